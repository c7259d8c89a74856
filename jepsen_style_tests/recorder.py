"""The history of one run, written by many threads on one clock."""

import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final, final

from raftlog.verify import Header, HistoryWriter

NANOS: Final = 1_000_000_000


@final
class HistoryRecorder:
    """Hands out process numbers, takes the time, and writes; safe to call from any thread.

    The instant is read under the lock that orders the lines: an invocation is on its way to the
    disk before the client may send, a completion is stamped after the answer was seen.
    """

    def __init__(self, path: Path, header: Header) -> None:
        self._file = path.open("w", encoding="utf-8")
        self._writer = HistoryWriter(self._file, header)
        self._lock = threading.Lock()
        self._processes = 0
        self.counts: Counter[str] = Counter()
        """`send ok` and the like -> how many."""
        self.last_ok_ns = time.monotonic_ns()
        self.longest_gap_ns = 0
        self._loaded = True
        self.ends: dict[str, int] = {}
        """Per key, one more than the highest offset that was acknowledged."""

    def begin(self) -> None:
        """The load begins: gaps are counted from here."""
        with self._lock:
            self.last_ok_ns, self.longest_gap_ns = time.monotonic_ns(), 0

    def load_ends(self) -> None:
        """The clients stop: what comes later are last reads, and waiting for them is no gap."""
        with self._lock:
            gap_ns = time.monotonic_ns() - self.last_ok_ns
            self.longest_gap_ns = max(self.longest_gap_ns, gap_ns)
            self._loaded = False

    def new_process(self) -> int:
        """A number that was never used."""
        with self._lock:
            self._processes += 1
            return self._processes - 1

    def invoke(
        self,
        process: int,
        f: str,
        key: str | None,
        value: Any,
        fields: Any,
        at_ns: int | None = None,
    ) -> None:
        """A call, on its way to the disk when this returns. `at_ns`: a program's own instant of it,
        on this machine's monotonic clock."""
        with self._lock:
            now = time.monotonic_ns() if at_ns is None else at_ns
            self._writer.invoke(process, f, time_ns=now, key=key, value=value, **fields)

    def complete(
        self,
        process: int,
        kind: str,
        f: str,
        value: Any,
        fields: Any,
        at_ns: int | None = None,
    ) -> None:
        """A return."""
        with self._lock:
            now = time.monotonic_ns() if at_ns is None else at_ns
            self._writer.complete(process, kind, time_ns=now, value=value, **fields)
            self.counts[f"{f} {kind}"] += 1
            if self._loaded and kind == "ok" and f not in ("poll", "assign", "crash", "rebalance"):
                self.longest_gap_ns = max(self.longest_gap_ns, now - self.last_ok_ns)
                self.last_ok_ns = max(self.last_ok_ns, now)

    def acknowledged(self, key: str, offset: int) -> None:
        """Remember how far the log must reach at the end."""
        with self._lock:
            self.ends[key] = max(self.ends.get(key, 0), offset + 1)

    def nemesis(self, f: str, value: Any = None) -> None:
        """A fault or a repair."""
        with self._lock:
            self._writer.nemesis(f, time_ns=time.monotonic_ns(), value=value)

    def close(self) -> None:
        """No more operations; what is still open counts as info."""
        with self._lock:
            self._writer.close()
            self._file.close()

    @property
    def operations(self) -> int:
        """Completions so far."""
        return sum(self.counts.values())


@final
class Actor:
    """One client's place in the history: one operation open at a time, a new number after info."""

    def __init__(self, recorder: HistoryRecorder) -> None:
        self._recorder = recorder
        self._process = recorder.new_process()
        self._f = ""

    def invoke(
        self,
        f: str,
        key: str | None = None,
        value: Any = None,
        *,
        at_ns: int | None = None,
        **fields: Any,
    ) -> None:
        """Before the call leaves."""
        self._f = f
        self._recorder.invoke(self._process, f, key, value, fields, at_ns)

    def ok(self, value: Any = None, *, at_ns: int | None = None, **fields: Any) -> None:
        """It happened."""
        self._recorder.complete(self._process, "ok", self._f, value, fields, at_ns)

    def fail(self, error: str) -> None:
        """It certainly did not happen."""
        self._recorder.complete(self._process, "fail", self._f, None, {"error": error})

    def info(self, error: str, *, at_ns: int | None = None, **fields: Any) -> None:
        """Nobody knows; the process is retired."""
        fields["error"] = error
        self._recorder.complete(self._process, "info", self._f, None, fields, at_ns)
        self._process = self._recorder.new_process()

"""Members of consumer groups: programs of their own, so that they can be killed and paused.

Each is `programs/group_member.py` with one of the clients. The harness writes its lines into the
history as they come, with the program's own instants: one monotonic clock serves all processes of a
machine.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, final

from jepsen_style_tests.clients.choice import OWN
from jepsen_style_tests.recorder import Actor, HistoryRecorder

PROGRAM: Final = Path(__file__).parent / "programs" / "group_member.py"
EAGER: Final = ("confluent-kafka", "kafka-python", "aiokafka", OWN)
"""Clients that share partitions by `range`."""
COOPERATIVE: Final = ("confluent-kafka", "kafka-python", OWN)
"""Those that know `cooperative-sticky` too."""
LEAVE_SECONDS: Final = 20.0
_TAIL_BYTES: Final = 800


@final
class MemberProgram:
    """One life of a member. Its lines go into the history while it runs."""

    def __init__(
        self,
        client: str,
        name: str,
        settings: Mapping[str, Any],
        recorder: HistoryRecorder,
        program: Path = PROGRAM,
    ) -> None:
        self.client = client
        self.name = name
        self._group: str = settings["group"]
        self._actors = {who: Actor(recorder) for who in ("poll", "told", "commit", "life")}
        self.broken = ""
        """How its lines could not become operations: a fault of the test."""
        self._last_words = ""
        """The end of what it wrote to its error stream."""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - until it ended
        self._process = subprocess.Popen(
            [sys.executable, str(program), client, json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, name=f"member {name}", daemon=True)
        self._reader.start()

    @property
    def running(self) -> bool:
        """Whether the program has not ended."""
        return self._process.poll() is None

    def pause(self) -> None:
        """SIGSTOP."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL: the coordinator hears nothing of it."""
        self._signal(signal.SIGKILL)
        self._end()

    def leave(self) -> str:
        """Leave the group; returns how the program ended wrongly, or an empty text."""
        if self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()
        try:
            code = self._process.wait(LEAVE_SECONDS)
        except subprocess.TimeoutExpired:
            # A client may wait for a coordinator that is gone. Then this is a crash.
            self.kill()
            return ""
        self._end()
        return f"{self.client} ended with {code}: {self._last_words}" if code else self.broken

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _end(self) -> None:
        life = self._actors["life"]
        life.invoke("crash", member=self._member(None))
        self._process.wait()
        self._reader.join()
        if self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()
        life.ok()
        with self._errors:
            size = self._errors.seek(0, os.SEEK_END)
            self._errors.seek(max(0, size - _TAIL_BYTES))
            self._last_words = " ".join(self._errors.read().decode(errors="replace").split())

    def _member(self, generation: int | None) -> list[Any]:
        return [self._group, self.name, generation]

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                if self.broken or not line.endswith(b"\n"):  # a killed program leaves half a line
                    continue
                try:
                    self._take(json.loads(line))
                except Exception:
                    self.broken = f"{line!r}: {traceback.format_exc()}"

    def _take(self, line: Mapping[str, Any]) -> None:
        who, at_ns = line["who"], line["ns"]
        actor, member = self._actors[who], self._member(line["generation"])
        match line["type"]:
            case "invoke":
                actor.invoke(line["f"], None, line["value"], at_ns=at_ns, member=member)
            case "ok":
                actor.ok(line["value"], at_ns=at_ns, member=member)
            case _:
                actor.info(line["error"], at_ns=at_ns, member=member)

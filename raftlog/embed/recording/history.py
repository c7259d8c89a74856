"""The history that an application's clients write together, from any thread and any event loop.

How it keeps to the truth:

1. A call is handed to the disk before the client may send it (`HistoryWriter.invoke`).
2. Each open call of a client has a seat, which is a process number. A seat is used again when its
   call ended in `ok` or `fail`, so the calls of one process follow each other in real time. After
   `info` the seat is not used again.
3. A send that timed out, or that the client refused, stays open, because the application may try
   again with the same value. Then both attempts are one send, from the first call to the last
   answer. `info` and `fail` are written at the end.
4. A call that is still open at the end may have happened: readers take it as `info`.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from io import StringIO
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, final

from raftlog.base.amounts import amount
from raftlog.base.arguments import AnyPath, checked
from raftlog.base.errors import LocalMisuse, OperatingError
from raftlog.client.core.arguments import Seconds, TopicName
from raftlog.embed.recording.door import Identify, Identity, by_value, sent_twice
from raftlog.embed.recording.operations import RecordedCall, Seats
from raftlog.verify import Header, HistoryWriter, Judgement, Verdict, judge
from raftlog.verify.judging.verdict import INVALID
from raftlog.verify.report.page import RunFolder, render
from raftlog.verify.report.proof import digest_of

OPERATIONS_MAX: Final = 5_000_000
"""The longest history in operations. It is judged in memory."""
CONSUMERS: Final = ("subscribe", "assign")
_FAILURES_SHOWN: Final = 5
_HINTS: Final = {
    "unseen": "read everything in the end: history.read_back(bootstrap_servers); or say that the "
    "application does not: recording(path, final_read=False)",
    "phantom": "record every producer of the topic, from when it is empty",
}
"""Class of anomaly -> the step that a test of this kind usually lacks."""


@final
class Recording:
    """The history of an application's clients. Open it with `with`, wrap clients by `record`, then
    call `read_back`, then `check` or `judge`. It is written to `path`, history.jsonl; an older file
    is replaced.

    `topics` names the topics to record; by default all. `consumer="assign"` also judges the order
    in which each consumer got its records; use it for consumers without rebalances.
    `final_read=False` says that the application does not read everything in the end: an
    acknowledged record that no client read is then no finding. `options` are further options of the
    history's header."""

    @checked
    def __init__(
        self,
        path: AnyPath,
        *,
        topics: Sequence[TopicName] | None = None,
        consumer: str = "subscribe",
        final_read: bool = True,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        if consumer not in CONSUMERS:
            raise LocalMisuse(f"consumer is one of {', '.join(CONSUMERS)}, not {consumer!r}")
        self.path = Path(path)
        self.header = Header(
            source="embed",
            options={"consumer": consumer, "final_read": final_read, **(options or {})},
        )
        self._topics = None if topics is None else frozenset(topics)
        self._lock = threading.RLock()
        self._sink: Any = StringIO()
        self._writer: HistoryWriter | None = None
        self._failure: Exception | None = None
        self._open: dict[RecordedCall, None] = {}
        self._put_off: dict[RecordedCall, tuple[str, str]] = {}
        """Sends that the application may try again -> how they end if it does not, and why."""
        self._sent: dict[str, dict[Identity, RecordedCall]] = {}
        """Topic -> what was sent to it."""
        self._identities: list[Identify] = []
        """The identify functions of the recorded clients, each once."""
        self._ends: dict[str, int] = {}
        self._processes = 0
        self._operations = 0
        self._last_ns = 0

    def __enter__(self) -> Self:
        with self._lock:
            if self._writer is not None:
                raise LocalMisuse("a recording is begun once", on=str(self.path))
            try:
                self._sink = self.path.open("w", encoding="utf-8")
            except OSError as error:
                raise OperatingError(
                    f"the history cannot be written: {error.strerror}", on=str(self.path)
                ) from None
            self._writer = HistoryWriter(self._sink, self.header)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        del kind, trace
        self._close()
        if error is None:
            self._raise_failure()

    def _close(self) -> None:
        with self._lock:
            self._settle()
            self._open.clear()
            if self._writer is not None and self._failure is None:
                self._writer.close()
            self._sink.close()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise OperatingError(
                f"the history could not be written: {self._failure}", on=str(self.path)
            ) from self._failure

    # --- for the wrappers -------------------------------------------------------------------------

    def will_identify(self, identify: Identify) -> None:
        """Keep the function by which a client identifies records. `read_back` must use the same
        one."""
        if identify not in self._identities:
            self._identities.append(identify)

    def _identify_read(self, given: Identify | None) -> Identify:
        if given is not None:
            return given
        if len(self._identities) > 1:
            raise LocalMisuse(
                "the recorded clients tell records apart in different ways",
                on=str(self.path),
                do="say which one is meant: read_back(servers, identity=...)",
            )
        return self._identities[0] if self._identities else by_value

    def records(self, topic: str) -> bool:
        """Whether operations on this topic are recorded."""
        return self._topics is None or topic in self._topics

    def begin(
        self, seats: Seats, f: str, key: str | None = None, value: Any = None
    ) -> RecordedCall:
        """Record a call. It is handed to the disk when this returns."""
        with self._lock:
            writer = self._running()
            if self._operations >= OPERATIONS_MAX:
                raise LocalMisuse(
                    f"a recording holds {amount(OPERATIONS_MAX, 'operation', grouped=True)}",
                    on=str(self.path),
                    do="record a shorter run, or fewer topics: recording(..., topics=[...])",
                )
            process = seats.take()
            if process is None:
                process = self._processes
                self._processes += 1
            begun = RecordedCall(self, seats, process, f, key or "", value)
            writer.invoke(process, f, time_ns=self._now(), key=key, value=value)
            self._operations += 1
            self._open[begun] = None
            return begun

    def begin_send(
        self, seats: Seats, topic: str, partition: int | None, identity: Identity
    ) -> RecordedCall:
        """Record a send. If an earlier send of the same value failed, this one continues it."""
        key = f"{topic}/{'?' if partition is None or partition < 0 else partition}"
        with self._lock:
            self._running()
            sent = self._sent.setdefault(topic, {})
            if identity in sent:
                before = sent[identity]
                if before not in self._put_off or before.key != key:
                    raise sent_twice(topic, identity)
                kind, error = self._put_off.pop(before)
                before.unsure = before.unsure or (error if kind == "info" else "")
                return before
            sent[identity] = begun = self.begin(seats, "send", key, identity)
            return begun

    def put_off(self, ended: RecordedCall, kind: str, error: str) -> None:
        """End a call that failed or whose outcome is unknown. For a send that is written only at
        the end of the recording, because the application may try again with the same value. `info`
        is final: a later refusal says nothing about the first attempt."""
        with self._lock:
            if ended.f != "send":
                self.end(ended, kind, error=error)
            elif ended in self._open:
                unsure = ended.unsure
                self._put_off[ended] = ("info", unsure) if unsure else (kind, error)

    def end(
        self,
        ended: RecordedCall,
        kind: str,
        *,
        value: Any = None,
        key: str | None = None,
        **more: Any,
    ) -> None:
        """Record a return, once."""
        with self._lock:
            if self._writer is None or ended not in self._open:
                return  # the call or the recording has ended already
            del self._open[ended]
            self._put_off.pop(ended, None)
            try:
                self._writer.complete(
                    ended.process, kind, time_ns=self._now(), value=value, key=key, **more
                )
            except OSError as error:
                # This may run in a callback of the client, which must not raise because our disk
                # failed.
                self._failure = self._failure or error
                return
            if kind != "info":
                ended.seats.give_back(ended.process)

    def look(self, seats: Seats) -> None:
        """End the open calls of a client whose outcome it knows but has not reported yet."""
        with self._lock:
            for each in list(self._open):
                if each.seats is seats and each.look is not None:
                    each.look()

    def acknowledged(self, key: str, offset: int) -> None:
        """Remember an acknowledged offset: `read_back` must reach it."""
        with self._lock:
            self._ends[key] = max(self._ends.get(key, 0), offset + 1)

    def _running(self) -> HistoryWriter:
        if self._writer is None or self._sink.closed:
            raise LocalMisuse(
                "this history is not being recorded",
                on=str(self.path),
                do="use recorded clients inside `with raftlog.verify.recording(...) as history`",
            )
        self._raise_failure()
        return self._writer

    def _settle(self) -> None:
        """End the calls whose outcome is known, and those that were put off."""
        self._look()
        put_off, self._put_off = self._put_off, {}
        for each, (kind, error) in put_off.items():
            self.end(each, kind, error=error)

    def _look(self) -> None:
        """Ask futures for their outcome: they have it before they call back."""
        for each in list(self._open):
            if each.look is not None:
                each.look()

    def _now(self) -> int:
        """The time in nanoseconds on the one clock of the history, which does not run backwards."""
        self._last_ns = max(self._last_ns, time.perf_counter_ns())
        return self._last_ns

    # --- for the user -----------------------------------------------------------------------------

    @checked
    def fault(self, name: str, node: int | None = None, **details: Any) -> None:
        """Note a fault or a repair ("kill", "restart", "pause", "resume", "partition", "heal") for
        the report's pictures. `record(cluster, history)` does this automatically."""
        with self._lock:
            value = {**({} if node is None else {"node": f"n{node}"}), **details}
            self._running().nemesis(name, time_ns=self._now(), value=value)

    @checked
    def read_back(
        self,
        bootstrap_servers: str,
        *,
        seconds: Seconds = 30.0,
        value: Callable[[bytes | None], Any] | None = None,
        identity: Identify | None = None,
    ) -> int:
        """Read every recorded topic from its beginning with a client of its own, so that the judge
        sees the final records. Returns their number. `value` is the consumers' deserializer of
        values. `identity` is by default the one given to `record`.

        `OperatingError` when an acknowledged record is not reached within `seconds`."""
        # Imported late: the client is a large import, and many applications read their topics
        # themselves.
        from raftlog.embed.recording.reading_back import read_everything  # noqa: PLC0415

        with self._lock:
            self._running()
            identify = self._identify_read(identity)
            self._look()
            topics, ends = list(self._sent), dict(self._ends)
        begin = partial(self.begin, Seats(), "poll")
        return read_everything(begin, bootstrap_servers, topics, ends, seconds, value, identify)

    @checked
    def judge(self, *, report: AnyPath | None = None) -> Verdict:
        """Judge the operations recorded so far; write the HTML report to `report` if given."""
        return self._judged(report)[0].verdict

    @checked
    def check(self, *, report: AnyPath | None = None) -> Verdict:
        """Judge, write the report, and raise AssertionError unless the history is valid. The error
        names the operations that contradict each other, and the report."""
        __tracebackhide__ = True  # for pytest: show the caller's line, not this one
        judgement, told = self._judged(report)
        verdict = judgement.verdict
        if verdict.exit_code != 0:
            raise AssertionError(told)
        return verdict

    def _judged(self, report: AnyPath | None) -> tuple[Judgement, str]:
        with self._lock:
            if self._writer is None:
                raise LocalMisuse("nothing was recorded yet", on=str(self.path))
            self._raise_failure()
            if not self._sink.closed:
                self._settle()
                self._writer.flush()
        with self.path.open("rb") as stream:
            judgement = judge(stream)
        if report is not None:
            with self.path.open("rb") as stream:
                folder = RunFolder(
                    name=self.path.stem, place=str(self.path), history_sha256=digest_of(stream)
                )
            Path(report).write_text(render(judgement, folder), encoding="utf-8")
        return judgement, _summary(judgement.verdict, self.path, report)


def _summary(verdict: Verdict, path: Path, report: AnyPath | None) -> str:
    lines = [f"the history is {verdict.verdict}"]
    failures = verdict.failures()
    for result in failures[:_FAILURES_SHOWN]:
        text = "" if result.witness is None else result.witness.text
        lines.append(f"{result.name} ({result.count}): {text}")
    if len(failures) > _FAILURES_SHOWN:
        lines.append(f"and {len(failures) - _FAILURES_SHOWN} more classes")
    lines += [f"perhaps: {hint}" for name, hint in _HINTS.items() if verdict.classes[name].count]
    if verdict.verdict != INVALID:
        lines += verdict.notes
    if verdict.judged_nothing:
        lines.append("use the clients that raftlog.verify.record(client, history) returns")
    lines.append(f"history: {path}")
    if report is not None:
        lines.append(f"report: {report}")
    return "\n".join(lines)

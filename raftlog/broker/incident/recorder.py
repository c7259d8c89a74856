"""Records one Broker from its boot on: every input of every turn, and a digest of its effects.

    shell --events, clocks--> Recorder.handle --> Broker.handle --> effects --> shell
                                  |  turn row before, outcome row after
                                  v
                              RecordingSink, Payloads

Laws:

1. The broker does the same as without a recorder. A value that cannot be recorded ends the
   recording, never the turn; the end row says why.
2. The turn row is handed to the sink before the turn: a turn that raises is the last of the record.
3. Rows are bounded by `bytes_max` and what one turn adds, payloads by their keeper.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, final

from raftlog.base.amounts import amount
from raftlog.base.buggify import Decision, arm, armed
from raftlog.base.limits import RECORDED_JOBS_MAX, RECORDING_BYTES_MAX
from raftlog.base.ports import Entropy, Tracer
from raftlog.base.units import Instant
from raftlog.broker.broker import Broker
from raftlog.broker.config import BrokerConfig
from raftlog.broker.events import Effects, Event, Job, JobDone
from raftlog.broker.incident.classes import classes
from raftlog.broker.incident.digests import DIGEST, digests_of
from raftlog.broker.incident.draws import BUGGIFY, Draw, RecordedEntropy
from raftlog.broker.incident.jobs import ResultCodec, codec_of, function_name, known_of
from raftlog.broker.incident.rows import HEAD, RowKind, RowWriter
from raftlog.broker.incident.value_writer import ValueWriter
from raftlog.broker.incident.values import NotRecordable, Payloads
from raftlog.broker.release import THIS_RELEASE
from raftlog.storage.directories.data_dir import DirectoryImage
from raftlog.storage.directories.log_directories import FurtherImage

ABOUT_RELEASE = {"this release": THIS_RELEASE}
"""Objects of code that a configuration refers to, by name."""


class RecordingSink(Protocol):
    """The place where rows go, in order. It must not block."""

    def append(self, row: bytes) -> bool:
        """Take a row; False when it is dropped, because the disk is full or far behind."""
        ...


@final
class Recorder:
    """Records one broker, which the constructor makes.

    `known` names the objects in the configuration that no recording can hold: releases. `about` is
    for people: versions, the day.
    """

    def __init__(
        self,
        *,
        config: BrokerConfig,
        directories: Sequence[DirectoryImage],
        further: Sequence[FurtherImage] = (),
        entropy: Entropy,
        tracer: Tracer,
        now: Instant,
        sink: RecordingSink,
        payloads: Payloads,
        known: Mapping[str, object] = ABOUT_RELEASE,
        about: Mapping[str, str] | None = None,
        bytes_max: int = RECORDING_BYTES_MAX,
    ) -> None:
        self._bytes_max = bytes_max
        self._sink = sink
        self._payloads = payloads
        self._rows = RowWriter()
        self._size = 0
        self._now, self._wall = now, 0
        self._draws: list[Draw] = []
        self._jobs: dict[int, Job] = {}
        self._decision: Decision | None = None
        self.over = ""
        """The reason why nothing more is recorded; empty while the recording goes on."""
        self.refused: NotRecordable | None = None
        """The error about the value that ended this recording, because recordings do not know its
        class."""
        self.turns = 0
        self._put(HEAD)
        self._begin(config, (directories, further), now, known, about or {})
        self.broker = Broker(
            config=config,
            directories=directories,
            further=further,
            entropy=RecordedEntropy(entropy, self._draws),
            tracer=tracer,
            now=now,
        )
        self._outcome(None)

    def handle(self, events: Sequence[Event], now_ns: int, wall_ms: int) -> Effects:
        """Do `Broker.handle`, recorded."""
        if self.over:
            self._draws.clear()
            return self.broker.handle(events, now_ns, wall_ms)
        self._turn(events, now_ns, wall_ms)
        self._decision = armed()
        if self._decision is not None:
            arm(self._decide)
        try:
            effects = self.broker.handle(events, now_ns, wall_ms)
        except BaseException as error:
            self._outcome(None, f"{type(error).__name__}: {error}")
            self.end("the turn raised")
            raise
        finally:
            if self._decision is not None:
                arm(self._decision)
        for job in effects.jobs:
            self._jobs[job.token] = job
        self._outcome(effects, events=events)
        self.turns += 1
        return effects

    def end(self, why: str) -> None:
        """Record nothing more; `why` is written for the reader."""
        if not self.over:
            self.over = why
            self._put(self._rows.row(RowKind.END, why.encode()))
            self._jobs.clear()

    def _refuse(self, what: str, error: NotRecordable) -> None:
        self.refused = error
        self.end(f"{what} cannot be recorded: {error}")

    # --- rows -------------------------------------------------------------------------------------

    def _put(self, row: bytes) -> None:
        self._size += len(row)
        if not self._sink.append(row) and not self.over:
            self.end("its disk is full, or far behind")

    def _begin(
        self,
        config: BrokerConfig,
        disks: tuple[Sequence[DirectoryImage], Sequence[FurtherImage]],
        now: Instant,
        known: Mapping[str, object],
        about: Mapping[str, str],
    ) -> None:
        writer = ValueWriter(self._payloads, known)
        table = classes().values()
        writer.varint(len(table))
        for each in table:
            writer.text(each.name)
            writer.varint(len(each.fields))
            for field in each.fields:
                writer.text(field)
        try:
            writer.value((dict(about), config, *map(list, disks), now))
        except NotRecordable as error:
            self._refuse("the configuration", error)
            return
        self._put(self._rows.row(RowKind.BEGIN, writer.buffer))

    def _turn(self, events: Sequence[Event], now_ns: int, wall_ms: int) -> None:
        writer = ValueWriter(None)
        writer.varint(now_ns - self._now)
        writer.integer(wall_ms - self._wall)
        writer.varint(len(events))
        self._now, self._wall = Instant(now_ns), wall_ms
        try:
            for event in events:
                written = self._event(event)
                writer.varint(len(written))
                writer.buffer += written
        except NotRecordable as error:
            self._refuse("an event", error)
            return
        self._put(self._rows.row(RowKind.TURN, writer.buffer))

    def _event(self, event: Event) -> bytearray:
        if type(event) is JobDone:
            return self._job_done(event)
        writer = ValueWriter(self._payloads)
        writer.value(event)
        return writer.buffer

    def _job_done(self, event: JobDone) -> bytearray:
        """The result of a job; or only the fact that it ran, when a replay runs it again."""
        job = self._jobs.pop(event.token, None)
        if job is None:
            raise NotRecordable(f"job {event.token} was not handed out")
        codec = codec_of(job.function)
        writer = ValueWriter(self._payloads, known_of(job.args))
        value: Any = event.value
        ran = codec is ResultCodec.RUN_AGAIN and not (
            value is None or isinstance(value, BaseException)
        )
        writer.value((event.token, function_name(job.function), ran, None if ran else value))
        return writer.buffer

    def _outcome(
        self, effects: Effects | None, raised: str = "", events: Sequence[Event] = ()
    ) -> None:
        if self.over:
            return
        writer = ValueWriter(None)
        try:
            digests = [] if effects is None else digests_of(self.broker, events, effects)
        except NotRecordable as error:
            self._refuse("an effect", error)
            return
        if self._draws or raised:
            writer.value((self._draws, raised))
        else:
            writer.none(None)
        for kind, count, crc in digests:
            writer.buffer += DIGEST.pack(kind, count, crc)
        self._draws.clear()
        self._put(self._rows.row(RowKind.OUTCOME, writer.buffer))
        if self._size > self._bytes_max:
            self.end(f"it is full: {amount(self._size, 'byte')}")
        elif len(self._jobs) > RECORDED_JOBS_MAX:
            self.end(f"{len(self._jobs)} jobs are under way")

    def _decide(self, name: str) -> bool:
        assert self._decision is not None, name
        taken = self._decision(name)
        self._draws.append((BUGGIFY, name, taken))
        return taken

"""Reads a recording: the configuration of the broker, then turn after turn.

Events are made only when their turn is played. The result of a job may hold objects of the broker
that handed the job out; in a replay these are the replayed broker's own.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, final

import attrs

from raftlog.base.amounts import amount
from raftlog.base.binary import Buffer
from raftlog.base.errors import CorruptData
from raftlog.base.limits import TURN_EVENTS_MAX
from raftlog.base.units import Instant, WallMillis
from raftlog.broker.config import BrokerConfig
from raftlog.broker.events import Event, Job, JobDone
from raftlog.broker.incident.classes import RecordedClass, classes
from raftlog.broker.incident.digests import DIGEST, KINDS, Digest
from raftlog.broker.incident.draws import DRAW_FIELDS, Draw
from raftlog.broker.incident.jobs import function_name, known_of
from raftlog.broker.incident.recorder import ABOUT_RELEASE
from raftlog.broker.incident.rows import RecordingRow, RowKind, RowReader
from raftlog.broker.incident.value_reader import ValueReader
from raftlog.broker.incident.values import ON, Payloads, Tag
from raftlog.storage.directories.data_dir import DirectoryImage
from raftlog.storage.directories.log_directories import FurtherImage

_CLASSES_MAX: Final = 4096


@final
@attrs.frozen
class TurnOutcome:
    """The draws and the digests of a turn.

    `raised` is the error that ended it, and the recording.
    """

    draws: list[Draw]
    digests: list[Digest]
    raised: str = ""


@final
@attrs.frozen(kw_only=True)
class RecordedTurn:
    """One turn; `outcome` is None when the process ended in it, or before it was written."""

    number: int
    now: Instant
    wall: WallMillis
    outcome: TurnOutcome | None
    raw_events: list[memoryview]


@final
class BrokerRecording:
    """A recording in memory, of one boot of a broker.

    The constructor raises `CorruptData` when the bytes are no recording, or are of a release whose
    classes have other fields.
    """

    about: dict[str, str]
    config: BrokerConfig
    directories: list[DirectoryImage]
    further: list[FurtherImage]
    begun_at: Instant
    made: TurnOutcome
    """The draws of making the broker."""

    def __init__(
        self,
        content: Buffer,
        payloads: Payloads,
        *,
        known: Mapping[str, object] = ABOUT_RELEASE,
        on: str = ON,
    ) -> None:
        self._content = content
        self._payloads = payloads
        self._on = on
        rows = RowReader(content, on)
        first, second = rows.next(), rows.next()
        if first is not None and first.kind is RowKind.END:
            raise CorruptData(f"nothing was recorded: {bytes(first.body).decode()}", on=on)
        if first is None or first.kind is not RowKind.BEGIN:
            raise CorruptData("a recording begins with how its broker was made", on=on)
        if second is None or second.kind is not RowKind.OUTCOME:
            raise CorruptData("the recording ends before the broker's first turn", on=on)
        self._table: list[RecordedClass] = []
        self._read_begin(first, known)
        self.made = self._read_outcome(second)
        self.ended = ""
        """The reason why the recording is over, once all turns were read; empty after a kill."""

    def turns(self) -> Iterator[RecordedTurn]:
        """All turns, from the first; may be called again.

        `CorruptData` where the recording is damaged.
        """
        rows = RowReader(self._content, self._on)
        rows.next()
        rows.next()
        now, wall, number = int(self.begun_at), 0, 0
        row = rows.next()
        while row is not None:
            if row.kind is RowKind.END:
                self.ended = bytes(row.body).decode("utf-8", "replace")
                return
            if row.kind is not RowKind.TURN:
                raise CorruptData(f"a row {row.kind.name} at byte {row.position}", on=self._on)
            reader = self._values(row.body)
            now += reader.varint()
            wall += reader.value()
            raw = [reader.reader.take(reader.varint()) for _ in range(self._count(reader))]
            reader.reader.end()
            row = rows.next()
            outcome = None
            if row is not None and row.kind is RowKind.OUTCOME:
                outcome = self._read_outcome(row)
                row = rows.next()
            number += 1
            yield RecordedTurn(
                number=number,
                now=Instant(now),
                wall=WallMillis(wall),
                outcome=outcome,
                raw_events=raw,
            )

    def events(self, turn: RecordedTurn, jobs: Mapping[int, Job]) -> list[Event]:
        """The events of a turn; `jobs` are those that the replayed broker has handed out."""
        return [self._event(raw, jobs) for raw in turn.raw_events]

    def kinds(self, turn: RecordedTurn) -> list[str]:
        """The names of the turn's events; no broker is needed for them."""
        return [self._kind(raw) for raw in turn.raw_events]

    def plain_events(self, turn: RecordedTurn) -> list[Event]:
        """The events of a turn that are no results of jobs."""
        return [self._event(raw, {}) for raw in turn.raw_events if raw[0] != Tag.TUPLE]

    def _kind(self, raw: memoryview) -> str:
        if raw[0] == Tag.TUPLE:
            return JobDone.__name__
        number = ValueReader(raw[1:], self._table, None).varint()
        if raw[0] not in (Tag.NAMED_TUPLE, Tag.PACKED) or number >= len(self._table):
            raise CorruptData("an event of unknown kind", on=self._on)
        return self._table[number].cls.__name__

    def _event(self, raw: memoryview, jobs: Mapping[int, Job]) -> Event:
        reader = self._values(raw)
        found: Any = self._job_done(raw, jobs) if raw[0] == Tag.TUPLE else reader.value()
        if not isinstance(found, Event):
            raise CorruptData(f"a {type(found).__name__} is no event", on=self._on)
        return found

    def _job_done(self, raw: memoryview, jobs: Mapping[int, Job]) -> JobDone:
        token = ValueReader(raw[2:], (), None).value()
        job = jobs.get(token)
        if job is None:
            raise CorruptData(f"job {token} comes back and was not handed out", on=self._on)
        told = ValueReader(raw, self._table, self._payloads, known_of(job.args)).value()
        if len(told) != 4 or told[1] != function_name(job.function):
            wanted = function_name(job.function)
            raise CorruptData(
                f"job {token} is {told[1:2]}, and {wanted} in the replay", on=self._on
            )
        return JobDone(token, job.function(None, *job.args) if told[2] else told[3])

    def _values(self, body: Buffer) -> ValueReader:
        return ValueReader(body, self._table, self._payloads)

    def _count(self, reader: ValueReader) -> int:
        count = reader.count()
        if count > _EVENTS_MAX:
            raise CorruptData(f"a turn of {amount(count, 'event')}", on=self._on)
        return count

    def _read_outcome(self, row: RecordingRow) -> TurnOutcome:
        values = self._values(row.body)
        draws, raised = values.value() or ([], "")
        reader = values.reader
        digests = []
        while reader.remaining():
            digests.append(Digest(*reader.unpack(DIGEST)))
        sound = all(len(each) == DRAW_FIELDS for each in draws)
        if not sound or not all(each.kind < len(KINDS) for each in digests):
            raise CorruptData(f"the outcome at byte {row.position} is none", on=self._on)
        return TurnOutcome(list(draws), digests, raised)

    def _read_begin(self, row: RecordingRow, known: Mapping[str, object]) -> None:
        reader = ValueReader(row.body, self._table, self._payloads, known)
        own = {each.name: each for each in classes().values()}
        count = reader.varint()
        if count > _CLASSES_MAX:
            raise reader.reader.fail(f"{count} classes")
        for number in range(count):
            name = reader.text()
            fields = tuple(reader.text() for _ in range(reader.count()))
            self._table.append(self._class(number, name, fields, own))
        told: Sequence[Any] = reader.value()
        reader.reader.end()
        self.about, self.config, self.directories, self.further, self.begun_at = told

    def _class(
        self, number: int, name: str, fields: tuple[str, ...], own: Mapping[str, RecordedClass]
    ) -> RecordedClass:
        """The class of a row in the table.

        A class that this release does not have, or has with other fields, is refused only when a
        value of it is met.
        """
        found = own.get(name)
        if found is None or found.fields != fields:
            return RecordedClass(number, name, _ClassOfAnotherRelease, fields)
        return attrs.evolve(found, number=number)


@final
class _ClassOfAnotherRelease:
    """Stands in the table for a class of another release; no value may be of it."""

    def __new__(cls) -> "_ClassOfAnotherRelease":
        raise CorruptData(
            "the recording holds values of classes that this release has otherwise",
            on=ON,
            do="replay it with the release that recorded it",
        )


_EVENTS_MAX: Final = 64 * TURN_EVENTS_MAX
"""The most events of a turn: the runtime's turns may hold ends of rounds beyond TURN_EVENTS_MAX."""

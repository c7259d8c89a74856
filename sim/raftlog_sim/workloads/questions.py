"""A client that asks for offsets in the midst of everything; `offset_checks` judges the answers.

It asks where partitions begin and end, where their epochs end, and which record is the first from
some timestamp on. It is the product's own client, and looks for leaders like all others. A question
that is refused, or not answered in time, says nothing.
"""

from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, final

import attrs

from raftlog.base.ids import GroupId
from raftlog.base.units import millis
from raftlog.client.core import asks
from raftlog.client.core.asks import Ask
from raftlog.client.core.results import OffsetAt
from raftlog.client.core.values import TopicPartition
from raftlog_sim.checks import offset_checks
from raftlog_sim.checks.offset_checks import (
    EARLIEST,
    EPOCH_END,
    LARGEST,
    LATEST,
    TIME,
    Before,
    ToldOffset,
)
from raftlog_sim.facts.committed import CommittedFacts
from raftlog_sim.facts.targets import group_of
from raftlog_sim.schedules.options import SimOptions
from raftlog_sim.workloads.callers import Caller

if TYPE_CHECKING:
    from raftlog_sim.checks.invariants import Invariants
    from raftlog_sim.world.world import World


class Acknowledging(Protocol):
    """The workload as these questions need it."""

    world: "World"
    options: SimOptions
    stored: dict[int, int]
    busy: int

    def client(self, name: str) -> Caller:
        """One more client of the world."""
        ...


_PATIENCE: Final = millis(3_000)
_TIMESTAMPS: Final = {
    EARLIEST: asks.EARLIEST,
    LATEST: asks.LATEST,
    LARGEST: asks.MAX_TIMESTAMP,
}
_NAMES: Final = {EPOCH_END: "epoch-ends-told", TIME: "times-told", LARGEST: "times-told"}
"""The invariant that judges each kind of question; for all others it is `offsets-told`."""
_BACK_MAX: Final = 8
_FARTHER: Final = 2
"""How much farther from the end the batch of a timestamp is with each `back`, as a power of 2: four
times."""


@final
@attrs.define(eq=False)
class _Question:
    """A question under way. `requests` are its requests, each with the leader's epoch and the epoch
    that it asked for. The client takes the first answer that says something, even to a request that
    it had given up (wide seed 163)."""

    what: str
    place: TopicPartition
    back: int
    group: GroupId
    asked_at: Before
    timestamp_ms: int = 0
    """The timestamp that a `TIME` question looks up."""
    requests: dict[tuple[int, int], None] = attrs.Factory(dict)

    def ask(self) -> Ask:
        """Returns the question for the client; each request adds the leader's epoch when it is
        made."""
        return self._ask(0)._replace(make=self._make)

    def _ask(self, epoch: int) -> Ask:
        if self.what == EPOCH_END:
            return asks.end_of_epoch(self.place, epoch, _PATIENCE)
        timestamp: Any = _TIMESTAMPS.get(self.what, self.timestamp_ms)
        return asks.list_offsets(self.place, timestamp, _PATIENCE)

    def _make(self, epoch: int, topic_id: bytes) -> Any:
        asked = self.timestamp_ms if self.what == TIME else max(0, epoch - self.back)
        self.requests[epoch, asked] = None
        make = self._ask(asked).make
        assert make is not None, self.what
        return make(epoch, topic_id)

    def told(self, outcome: Any) -> list[ToldOffset]:
        """Returns the answer, once for each request that it may answer."""
        at = isinstance(outcome, OffsetAt)
        epoch, offset = (outcome.leader_epoch, outcome.offset) if at else outcome
        at_ms = outcome.timestamp_ms if at else -1
        return [ToldOffset(leader, asked, epoch, offset, at_ms) for leader, asked in self.requests]


@final
@attrs.define(eq=False)
class Questions:
    """Asks questions. `workload` knows what was acknowledged, `invariants` what was committed."""

    workload: Acknowledging
    invariants: "Invariants"
    topic: str
    _client: Caller | None = None

    def ask(self, partition: int, what: str, back: int) -> None:
        """Ask for one offset of a partition.

        `back` is how many epochs before the leader's an epoch is. For a timestamp, a larger `back`
        takes a batch farther from the end.
        """
        workload = self.workload
        group = group_of(workload.world, self.topic, partition)
        if group is None:
            return
        committed = self.invariants.committed.get(group)
        asked_at = offset_checks.before(committed, workload.stored.get(partition, 0))
        place = TopicPartition(self.topic, partition)
        question = _Question(what, place, back, group, asked_at, _timestamp(committed, back))
        if self._client is None:
            self._client = workload.client("questions")
        workload.busy += 1
        self._client.call(question.ask(), partial(self._answered, question))

    def _answered(self, question: _Question, outcome: Any) -> None:
        self.workload.busy -= 1
        committed = self.invariants.committed.get(question.group)
        if not isinstance(outcome, Exception) and committed is not None:
            self._judge(question, question.told(outcome), committed)

    def _judge(
        self, question: _Question, told: list[ToldOffset], committed: CommittedFacts
    ) -> None:
        """Judge an answer: it is wrong when it is wrong for each of the requests."""
        name = _NAMES.get(question.what, "offsets-told")
        wrong = [self._wrong(question, each, committed) for each in told]
        said = wrong[-1] if all(wrong) else ""
        self.invariants.judge(((name, said and f"of {question.place} {said}"),))

    def _wrong(self, question: _Question, told: ToldOffset, committed: CommittedFacts) -> str:
        asked_at, shown = question.asked_at, self.invariants.shown.get(question.group, 0)
        if question.what in _WRONG:
            linearizable = self.workload.options.linearizable
            return _WRONG[question.what](
                told, asked_at, committed, shown, linearizable=linearizable
            )
        if question.what == EARLIEST:
            return offset_checks.wrong_earliest(told, asked_at, committed)
        return offset_checks.wrong_epoch_end(told, asked_at, committed)


_WRONG: Final = {
    LATEST: offset_checks.wrong_latest,
    TIME: offset_checks.wrong_time,
    LARGEST: offset_checks.wrong_largest,
}


def _timestamp(committed: CommittedFacts | None, back: int) -> int:
    """Returns a timestamp: right after the newest committed batch, or of a batch 1, 4, 16, ...
    before it."""
    batches = committed.batches if committed is not None else []
    if not batches:
        return 0
    if back == 0:
        return batches[-1].latest_ms + 1
    return batches[-min(len(batches), 1 << _FARTHER * min(back - 1, _BACK_MAX))].latest_ms

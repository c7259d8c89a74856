"""Planted bugs for scenarios that had none. As in raft_mutants.py."""

from collections.abc import Sequence
from typing import Any

from raftlog.base.ids import Offset, RaftIndex
from raftlog.base.units import NANOS_PER_SECOND, NEVER, Instant, millis
from raftlog.broker.broker import Broker
from raftlog.broker.control import registration
from raftlog.broker.events import Effects, Event
from raftlog.broker.front.clients import Clients
from raftlog.broker.front.ledger import Ledger
from raftlog.broker.replicas.rounds import WriteRounds
from raftlog.partition.background_tasks import BackgroundTasks
from raftlog.partition.output import ReplicaOutput
from raftlog.partition.producing.produce_path import ProducePath
from raftlog.partition.producing.producers import Duplicate
from raftlog.partition.replica import PartitionReplica
from raftlog.raft import lease, replication, transfer
from raftlog.raft import rounds as raft_rounds
from raftlog.raft.progress import Progress
from raftlog.raft.state import RaftState
from raftlog.raft.throttle import Throttle


def forgotten_and_content() -> None:
    """47: a broker that the controller does not know goes on with its heartbeats."""
    registration._UNKNOWN = ()  # type: ignore[assignment]


def transfers_never_end() -> None:
    """48: a leader waits for its successor without end, and takes no records meanwhile."""
    transfer._give_up = lambda state: None


def lease_kept_while_it_hands_over() -> None:
    """12f: a leader tells another replica to campaign, and still answers reads by its lease."""
    lease.give_up = lambda state: None


def produces_without_an_end() -> None:
    """49: a leader that cannot commit lets its producers wait without end."""
    ProducePath.deadline = property(lambda self: NEVER)  # type: ignore[method-assign, assignment]
    ProducePath.expire = lambda self, now: None  # type: ignore[method-assign]


def answers_of_an_earlier_boot() -> None:
    """50: a broker that boots answers at once, from the image on its disk."""
    Clients._serves = property(lambda self: True)  # type: ignore[method-assign, assignment]


def disks_get_no_more_time() -> None:
    """51: a leader that gave up because of its disk gives it no more time when it leads again."""
    raft_rounds.GIVEN_UP_MAX = 0  # type: ignore[misc]


def producers_never_released() -> None:
    """52: a producer that was paused for a group stays paused after the commit (Redpanda 1503)."""
    Ledger.settled = lambda self, group, left: None  # type: ignore[method-assign]


def time_by_the_wall_clock() -> None:
    """53: timers go by the clock that people set."""
    real = Broker.handle

    def handle(self: Broker, events: Sequence[Event], now_ns: int, wall_ms: int) -> Effects:
        off_s = round((millis(wall_ms) - now_ns) / NANOS_PER_SECOND)
        first_s = _first_off_s.setdefault(self, off_s)
        ahead = (off_s - first_s) * NANOS_PER_SECOND
        effects = real(self, events, max(self.context.now, now_ns + ahead), wall_ms)
        if effects.wake_at != NEVER:
            effects.wake_at = Instant(effects.wake_at - ahead)
        return effects

    Broker.handle = handle  # type: ignore[method-assign]


def producers_released_by_commits_only() -> None:
    """52b: whether a group still holds much is checked when it commits, and at no other time."""
    take, settle = PartitionReplica.take, WriteRounds._settle
    commits: set[PartitionReplica] = set()

    def taken(self: PartitionReplica, *arguments: Any) -> ReplicaOutput:
        output = take(self, *arguments)
        (commits.add if output.committed or output.leadership else commits.discard)(self)
        return output

    def settled(self: WriteRounds, replica: PartitionReplica) -> None:
        if replica in commits:
            settle(self, replica)

    PartitionReplica.take = taken  # type: ignore[method-assign]
    WriteRounds._settle = settled  # type: ignore[method-assign]


_first_off_s: dict[Broker, int] = {}


def duplicates_lie_at_the_beginning() -> None:
    """54: a producer that sends again hears that it is stored, at offset 0 (Bufstream 0.1.0)."""
    real = ProducePath._append_duplicate

    def append(self: ProducePath, known: Duplicate, *rest: Any, in_sync: bool) -> Any:
        return real(self, known._replace(base_offset=Offset(0)), *rest, in_sync=in_sync)

    ProducePath._append_duplicate = append  # type: ignore[method-assign]


def throttles_are_ignored() -> None:
    """90: a leader sends learners everything at once, whatever its throttle says."""
    replication.pacing.limits_on = lambda state, follower: ()


def voters_are_throttled() -> None:
    """90b: a voter in sync waits for the budget of moves (Kafka throttles only the others)."""

    def limits_on(state: RaftState, follower: Progress) -> Any:
        throttling = state.options.throttling
        return throttling.limits(follower.replica.node) if throttling else ()

    replication.pacing.limits_on = limits_on


def budgets_never_refill() -> None:
    """90c: a budget never gets back the bytes that it gave away."""
    Throttle.reserve = lambda self, now, byte_count: self.free_at  # type: ignore[method-assign]
    Throttle.settle = lambda self, byte_count: setattr(self, "free_at", NEVER)  # type: ignore[method-assign]


def gaps_are_never_handed_over() -> None:
    """27e: a leader with a gap in its log leads on, although another voter could lead."""
    BackgroundTasks.hand_over_gap = lambda self, now: None  # type: ignore[method-assign]


def the_log_is_sent_from_its_first_entry() -> None:
    """27f: a leader begins with the first entry at a follower that was away at the election."""

    def probe_again(self: Progress) -> None:
        self.become_probe(RaftIndex(self.match + 1))

    Progress.probe_again = probe_again  # type: ignore[method-assign]


def gaps_go_to_the_furthest_voter() -> None:
    """27g: a leader with a gap always asks the same voter, whatever that one lacks."""
    hand_over = transfer.hand_over

    def always_the_first(state: RaftState) -> None:
        state.heirs_asked = []
        hand_over(state)

    transfer.hand_over = always_the_first


MUTANTS = (
    ("12f", "lease-kept-while-it-hands-over", lease_kept_while_it_hands_over,
     ("linearizable-read",)),
    ("27e", "gaps-are-never-handed-over", gaps_are_never_handed_over, ("liveness",)),
    ("27f", "the-log-is-sent-from-its-first-entry", the_log_is_sent_from_its_first_entry,
     ("liveness",)),
    ("27g", "gaps-go-to-the-furthest-voter", gaps_go_to_the_furthest_voter, ("liveness",)),
    ("47", "forgotten-and-content", forgotten_and_content, ("liveness",)),
    ("48", "transfers-never-end", transfers_never_end, ("liveness",)),
    ("49", "produces-without-an-end", produces_without_an_end, ("answered-in-time",)),
    ("50", "answers-of-an-earlier-boot", answers_of_an_earlier_boot, ("answered-by-this-boot",)),
    ("51", "disks-get-no-more-time", disks_get_no_more_time, ("liveness",)),
    ("52", "producers-never-released", producers_never_released, ("bounded",)),
    ("52b", "producers-released-by-commits-only", producers_released_by_commits_only, ("bounded",)),
    ("53", "time-by-the-wall-clock", time_by_the_wall_clock, ("liveness",)),
    ("54", "duplicates-lie-at-the-beginning", duplicates_lie_at_the_beginning,
     ("produce-promise",)),
    ("90", "throttles-are-ignored", throttles_are_ignored, ("moves-paced",)),
    ("90b", "voters-are-throttled", voters_are_throttled, ("moves-paced",)),
    ("90c", "budgets-never-refill", budgets_never_refill, ("liveness",)),
)  # fmt: skip

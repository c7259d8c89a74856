"""A machine on every replica gets the committed batches, in order, each once, whatever happens.

The toy machine keeps the last value of each key. A few lines that know nothing of replicas compute
its expected content from the committed records.
"""

from itertools import pairwise

import pytest
from raftlog_sim.world.disk import Keep

from raftlog.base.errors import DiskError
from raftlog.base.limits import LOG_READ_FAILURES_MAX, MACHINE_REPLAY_PAUSE_MS
from raftlog.base.units import NEVER, Instant, millis
from raftlog.kafka.error_codes import ErrorCode
from raftlog.partition.config import PartitionConfig
from raftlog.partition.output import ProposalAnswer
from raftlog.raft.messages import Append
from raftlog.storage.boot import walked_parts
from raftlog.storage.replica import LogOptions
from tests.partition.group import ELECTION, FAR, Group, batch_of
from tests.partition.toy_machine import LastValues, pairs

ONE_SEGMENT = LogOptions(segment_bytes=1 << 20)
"""No snapshot is written: a boot replays everything, most of it from the file."""


def machine_group(*numbers, **options):
    return Group(*numbers, machine=LastValues, **options)


def propose(group, number, *items, deadline=FAR):
    """The answers so far; an error that came at once is one."""
    answers = []
    error = group[number].propose_records(
        pairs(*items), deadline, answers.append, group.now, group.wall
    )
    if error is not None:
        answers.append(ProposalAnswer(error))
    return answers


def values(group, number):
    return group[number].machine.values


def test_a_proposal_is_answered_when_the_machine_of_the_leader_has_applied_it():
    group = machine_group()
    group.elect(1)
    seen = []

    def then(answer):
        seen.append((answer, dict(values(group, 1))))

    batch = pairs((b"k", b"v"))
    assert group[1].propose_records(batch, FAR, then, group.now, group.wall) is None
    assert not seen
    assert not values(group, 1)
    group.settle()
    (answer, held) = seen[0]
    assert len(seen) == 1
    assert answer.error is ErrorCode.NONE
    assert (answer.raft_index, answer.base_offset) == (group[1].commit, 0)
    assert held == {b"k": b"v"}


def test_every_replica_applies_what_is_committed_in_order_and_once():
    group = machine_group()
    group.elect(1)
    for number in range(20):
        assert propose(group, 1, (b"%d" % (number % 3), b"%d" % number)) == []
        if number % 4 == 0:
            group.settle()
    group.advance(ELECTION)
    for number in (1, 2, 3):
        replica = group[number]
        assert replica.applied_index == replica.commit
        assert values(group, number) == {b"0": b"18", b"1": b"19", b"2": b"17"}
        assert [offset for _, offset in replica.machine.heard] == list(range(20))


def test_what_a_client_produced_is_fed_too():
    group = machine_group()
    group.elect(1)
    group.produce(1, b"a", b"b")
    propose(group, 1, (b"k", b"v"))
    group.advance(ELECTION)
    assert [group[n].machine.keyless for n in (1, 2, 3)] == [2, 2, 2]


def test_only_a_leader_that_committed_in_its_term_serves_its_machine():
    group = machine_group()
    assert not any(group[n].serves_machine for n in (1, 2, 3))
    group.elect(1)
    assert group[1].serves_machine
    assert not group[2].serves_machine
    assert propose(group, 2, (b"k", b"v")) == [ProposalAnswer(ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    told = [output.serves_machine for output in group.places[1].outputs]
    assert told.count(True) == 1, "the change is told once"
    group.isolate(1)
    group.advance(3 * ELECTION)
    assert not group[1].serves_machine
    assert [output.serves_machine for output in group.places[1].outputs].count(True) == 2


def test_a_leader_that_cannot_commit_in_its_term_does_not_serve_its_machine():
    """An older leader may have committed more than this one knows."""
    group = machine_group()
    group.elect(1)
    propose(group, 1, (b"k", b"v"))
    group.settle()
    group.blocked = lambda message: type(message) is Append
    seen = []
    for _ in range(40):
        group.advance(ELECTION // 4)
        seen += [
            (group[n].applied_index == group[n].commit, group[n].serves_machine)
            for n in (1, 2, 3)
            if group[n].is_leader and not group[n].publishing
        ]
    assert (True, False) in seen
    assert (True, True) not in seen


def test_a_replica_without_a_machine_serves_none():
    group = Group()
    group.elect(1)
    replica = group[1]
    assert replica.machine is None
    assert not replica.serves_machine
    assert replica.applied_index == 0
    error = replica.propose_records(pairs((b"k", b"v")), FAR, print, group.now, group.wall)
    assert error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_an_uncommitted_proposal_that_is_cut_never_reaches_a_machine():
    group = machine_group()
    group.elect(1)
    group.isolate(1)
    answers = propose(group, 1, (b"k", b"lost"), deadline=NEVER)
    group.settle()
    group.elect_without(1)
    leader = group.leader().me.node
    propose(group, leader, (b"k", b"kept"))
    group.heal()
    group.advance(3 * ELECTION)
    # It may yet have been committed, for all that the old leader knew.
    assert answers == [ProposalAnswer(ErrorCode.REQUEST_TIMED_OUT)]
    for number in (1, 2, 3):
        assert values(group, number) == {b"k": b"kept"}
        assert len(group[number].machine.heard) == 1


def test_a_proposal_waits_while_leadership_is_handed_over_and_goes_on_when_that_fails():
    group = machine_group()
    group.elect(1)
    group.isolate(2, notice=False)
    group[1].transfer(group.places[2].me, group.now)
    answers = propose(group, 1, (b"k", b"v"))
    group.settle()
    assert answers == []
    assert group[1].transferring is not None
    group.advance(2 * ELECTION)
    assert [answer.error for answer in answers] == [ErrorCode.NONE]
    assert values(group, 1) == {b"k": b"v"}


def test_proposals_have_the_bounds_of_produced_batches():
    group = machine_group(config=PartitionConfig(max_message_bytes=200))
    group.elect(1)
    assert propose(group, 1, (b"k", b"v" * 200)) == [ProposalAnswer(ErrorCode.MESSAGE_TOO_LARGE)]
    group = machine_group(config=PartitionConfig(min_insync_replicas=3))
    group.elect(1)
    group.isolate(3)
    group.advance(millis(40_000))
    answers = propose(group, 1, (b"k", b"v"))
    assert answers == [ProposalAnswer(ErrorCode.NOT_ENOUGH_REPLICAS)]
    assert group[1].uncommitted_bytes == 0


def test_a_proposal_without_a_majority_is_answered_at_its_deadline():
    group = machine_group()
    group.elect(1)
    group.isolate(1, notice=False)
    deadline = Instant(group.now + ELECTION // 4)
    answers = propose(group, 1, (b"k", b"v"), deadline=deadline)
    group.advance(ELECTION // 2)
    assert [answer.error for answer in answers] == [ErrorCode.REQUEST_TIMED_OUT]
    assert not values(group, 1)


def test_clients_delete_nothing_that_a_machine_was_fed():
    group = machine_group()
    group.elect(1)
    propose(group, 1, (b"k", b"v"))
    group.settle()
    answer = group[1].delete_records(1, FAR, print, group.now, group.wall)
    assert answer.error is ErrorCode.POLICY_VIOLATION


def test_a_boot_replays_the_log_up_to_what_is_known_to_be_committed():
    group = machine_group()
    group.elect(1)
    for number in range(60):
        propose(group, 1, (b"%d" % (number % 7), b"x" * 2000 + b"%d" % number))
        group.settle()
    group.advance(ELECTION)
    before = group[2].machine.snapshot()
    group.crash(2, Keep.NONE)
    group.restart(2)
    assert group[2].applied_index < group[2].commit
    group.settle()
    assert group[2].applied_index == group[2].commit
    assert group[2].machine.snapshot() == before
    propose(group, 1, (b"more", b"1"))
    group.advance(ELECTION)
    assert group[2].machine.snapshot() == group[1].machine.snapshot()


def test_what_a_boot_found_behind_the_commit_hint_is_read_when_it_is_committed(monkeypatch):
    """The mark on the disk knew of fewer commits than the log had entries. The machine was level
    with that hint; the commit then moved over entries that only the disk had, and the replica took
    them for entries in memory. Found by `test_machine_replay`, with a small memory at boots."""
    monkeypatch.setattr(walked_parts, "RECOVERED_WINDOW_BYTES", 256)
    group = machine_group(1)
    group.elect(1)
    propose(group, 1, (b"k", b"v" * 300))
    propose(group, 1, (b"l", b"w" * 300))
    group.settle()
    group.crash(1, Keep.ALL)
    group.restart(1)
    group.settle()
    assert group[1].applied_index == group[1].commit < 3
    group.advance(3 * ELECTION)
    assert group[1].serves_machine
    assert len(values(group, 1)) == 2


def test_a_leader_that_replays_is_not_served_from_until_it_is_level():
    group = machine_group(1, options=ONE_SEGMENT)
    group.elect(1)
    for number in range(60):
        propose(group, 1, (b"%d" % number, b"x" * 2000))
        group.settle()
    group.crash(1)
    group.restart(1)
    place = group.places[1]
    place.jobs_held = True
    for _ in range(20):
        group.advance(ELECTION)
    assert group[1].is_leader
    assert group[1].publishing
    assert not group[1].serves_machine
    assert propose(group, 1, (b"k", b"v")) == [ProposalAnswer(ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    place.jobs_held = False
    group.settle()
    assert group[1].serves_machine
    assert len(values(group, 1)) == 60


@pytest.mark.parametrize("failures", [1, LOG_READ_FAILURES_MAX])
def test_a_replay_tries_a_failed_read_again_and_then_calls_it_damage(failures, monkeypatch):
    group = machine_group(1, options=ONE_SEGMENT)
    group.elect(1)
    for number in range(60):
        propose(group, 1, (b"%d" % number, b"x" * 2000))
        group.settle()
    group.crash(1)
    group.restart(1)
    place, left, failed_at = group.places[1], [failures], []
    call = place.call

    def failing(function, args):
        if function.__name__ == "read_entries" and left[0]:
            left[0] -= 1
            failed_at.append(group.now)
            return DiskError("a bad moment", on="disk")
        return call(function, args)

    monkeypatch.setattr(place, "call", failing)
    for _ in range(20):
        group.advance(ELECTION)
    pauses = [later - earlier for earlier, later in pairwise(failed_at)]
    assert all(pause >= millis(MACHINE_REPLAY_PAUSE_MS) for pause in pauses), "a moment may last"
    if failures == 1:
        assert len(values(group, 1)) == 60
    else:
        assert any(output.damage is not None for output in place.outputs)


def test_records_of_a_later_release_stop_the_replica_that_cannot_read_them():
    group = machine_group()
    group.elect(1)
    propose(group, 1, (b"later release", b""))
    group.settle()
    assert group[1].stopped
    assert not group[1].serves_machine
    told = [output.differs for output in group.places[1].outputs if output.differs]
    assert len(told) == 1
    assert "later release" in told[0]


def test_a_fetch_sees_the_proposed_records():
    group = machine_group(options=LogOptions(segment_bytes=64 * 1024))
    group.elect(1)
    propose(group, 1, (b"k", b"v"))
    group.send(1, batch_of(b"w"))
    group.settle()
    assert group.read(1) == [(0, b"v"), (1, b"w")]

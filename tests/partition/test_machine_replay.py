"""Goal: whatever happens to a group of replicas, the machine of each of them is what a replay of
the committed batches makes.

Method: machines write each batch that they are fed on a tape that all replicas of an example share.
The tape takes one batch for each raft index. After every step, a fresh machine that replays the
tape up to what a replica has applied must be equal to that replica's machine: to its state, its
snapshot and its digest. The steps are crashes that keep all, some or nothing of what was not
synced, cuts of the network, transfers, installs (a replica is away while the log start moves),
held disks and held jobs. A boot keeps next to nothing of the log in memory, and a replay takes some
hundred bytes a turn, so that replays are long.
"""

from functools import partial

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from raftlog_sim.world.disk import Keep

from raftlog.base.units import millis
from raftlog.kafka.error_codes import ErrorCode
from raftlog.partition.config import PartitionConfig
from raftlog.partition.machine import machine_feed
from raftlog.storage.boot import walked_parts
from raftlog.storage.replica import LogOptions
from tests.partition.group import ELECTION, FAR, Group
from tests.partition.test_machine_snapshots import assert_covered
from tests.partition.toy_machine import LastValues, pairs

TINY = LogOptions(segment_bytes=8 * 1024, window_bytes=1024)
CONFIG = PartitionConfig(retention_check_ns=millis(2_000))
NUMBERS = st.sampled_from((1, 2, 3))


class Taped(LastValues):
    """`tape`: raft index to batch, of all replicas; `last` is this machine's last one."""

    def __init__(self, tape):
        super().__init__()
        self.tape = tape
        self.last = 0

    def apply(self, batch, base_offset, index):
        assert index > self.last, (index, self.last)
        self.last = index
        assert self.tape.setdefault(index, bytes(batch)) == bytes(batch), index
        super().apply(batch, base_offset, index)


class ReplayIsLive(RuleBasedStateMachine):
    @initialize()
    def begin(self):
        self.patches = pytest.MonkeyPatch()
        self.patches.setattr(walked_parts, "RECOVERED_WINDOW_BYTES", 256)
        self.patches.setattr(machine_feed, "MACHINE_REPLAY_BYTES", 700)
        self.tape = {}
        self.acknowledged = []
        self.written = 0
        self.group = Group(1, 2, 3, machine=partial(Taped, self.tape), options=TINY, config=CONFIG)
        self.group.elect(1)

    @rule(number=NUMBERS, count=st.integers(1, 12), size=st.sampled_from((10, 300, 900)))
    def propose(self, number, count, size):
        group = self.group
        if group[number] is None:
            return
        for _ in range(count):
            self.written += 1
            key, value = b"%d" % (self.written % 4), b"%d" % self.written + b"x" * size
            batch, now, wall = pairs((key, value)), group.now, group.wall
            error = group[number].propose_records(batch, FAR, self._told, now, wall)
            assert error in (None, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        group.settle()

    def _told(self, answer):
        """A success says that the machine of the leader has applied it, at this place."""
        if answer.error is ErrorCode.NONE:
            assert answer.raft_index in self.tape
            assert _base_of(self.tape[answer.raft_index]) == answer.base_offset
            self.acknowledged.append(answer.raft_index)

    @rule(number=NUMBERS, keep=st.sampled_from((Keep.ALL, Keep.NONE, Keep.SOME)))
    def crash(self, number, keep):
        if self.group[number] is not None:
            self.group.crash(number, keep)

    @rule(number=NUMBERS)
    def restart(self, number):
        if self.group[number] is None:
            self.group.restart(number)
            self.group.settle()

    @rule(number=NUMBERS)
    def isolate(self, number):
        self.group.isolate(number)

    @rule()
    def heal(self):
        self.group.heal()

    @rule(number=NUMBERS, held=st.booleans())
    def hold_jobs(self, number, held):
        self.group.places[number].jobs_held = held

    @rule(number=NUMBERS, held=st.booleans())
    def hold_disk(self, number, held):
        self.group.places[number].held = held

    @rule(spans=st.integers(1, 6))
    def advance(self, spans):
        self.group.advance(spans * ELECTION)

    @invariant()
    def live_is_replay(self):
        for place in self.group.running:
            replica = place.replica
            twin = LastValues()
            for index in sorted(self.tape):
                if index <= replica.applied_index:
                    twin.apply(self.tape[index], _base_of(self.tape[index]), index)
            assert replica.machine.snapshot() == twin.snapshot()
            assert replica.machine.digest() == twin.digest()
            assert not replica.stopped, "nothing is wrong, so that no digest differs"
            assert_covered(place)

    def teardown(self):
        """In the end all hold the same, and no less than was acknowledged."""
        self.patches.undo()
        group = self.group
        for number, place in group.places.items():
            place.held = place.jobs_held = False
            if place.replica is None:
                group.restart(number)
        group.heal()
        for _ in range(30):
            group.advance(2 * ELECTION)
            if len({replica.commit for replica in map(group.__getitem__, (1, 2, 3))}) == 1:
                break
        self.live_is_replay()
        assert len({group[n].machine.snapshot() for n in (1, 2, 3)}) == 1
        assert all(group[n].applied_index == group[n].commit for n in (1, 2, 3))
        assert group[1].commit >= max(self.acknowledged, default=0)


def _base_of(batch):
    return int.from_bytes(batch[:8], "big")


ReplayIsLive.TestCase.settings = settings(
    max_examples=25,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestReplayIsLive = ReplayIsLive.TestCase


def test_entries_that_leave_memory_during_a_replay_are_read_from_the_files(monkeypatch):
    """Regression (swarm seed 56): the replay of a boot took long, and what was committed meanwhile
    was shed. The broker took it for impossible, and stopped."""
    monkeypatch.setattr(walked_parts, "RECOVERED_WINDOW_BYTES", 256)
    monkeypatch.setattr(machine_feed, "MACHINE_REPLAY_BYTES", 700)
    group = Group(1, 2, 3, machine=LastValues, options=TINY, config=CONFIG)
    group.elect(1)

    def propose(count):
        for number in range(count):
            pair = b"%d" % (number % 4), b"%d" % number + b"x" * 300
            group[1].propose_records(pairs(pair), FAR, [].append, group.now, group.wall)
        group.settle()

    propose(12)
    group.crash(3, Keep.ALL)
    group.restart(3)
    group.places[3].jobs_held = True  # the replay waits for its first read
    found = group[3].log.last_index
    for _ in range(6):  # a commit that is known lets the next append shed
        propose(4)
        group.advance(ELECTION)
    assert group[3].applied_index < found < group[3].commit
    assert group[3].log.entries(found + 1, 1) is None, "it is in memory still"
    group.places[3].jobs_held = False
    group.advance(2 * ELECTION)
    assert group[3].applied_index == group[3].commit > found + 20
    assert group[3].machine.snapshot() == group[1].machine.snapshot()

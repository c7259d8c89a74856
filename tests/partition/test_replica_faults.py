"""Three replicas keep their promises under faults: crashes with un-synced loss, cuts, held disks,
transfers.

* Every acknowledged batch is there once, in the order of its producer, at the answered offset.
* Every request is answered once.
* Equal raft indexes mean equal producer tables.

Producers behave as Kafka's clients. Each has one batch in flight, and sends it again to the leader
until the answer is success. The seed of a failing run is in the test's name.
"""

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raftlog.base.units import millis
from raftlog.kafka.error_codes import ErrorCode
from raftlog.partition.config import PartitionConfig
from raftlog.storage.replica import LogOptions
from tests.partition.group import ELECTION, Group, Keep, batch_of
from tests.raft.cluster import SeededEntropy

RETRIED = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.KAFKA_STORAGE_ERROR,
)


class Producer:
    """One idempotent producer with one batch in flight."""

    def __init__(self, pid):
        self.pid = pid
        self.sequence = 0
        self.sent = 0
        self.answers = None
        self.asked = None
        self.acked = []

    def value(self):
        return b"p%d-%d" % (self.pid, self.sequence)

    def step(self, group):
        """Look at the answer, if there is one, and send what is due."""
        if self.answers is not None:
            if self.asked is not None and group[self.asked[0]] is not self.asked[1]:
                self.answers = None  # that process died with the request
            elif not self.answers:
                return
            else:
                self._answered()
        leader = group.leader()
        if leader is None:
            return
        self.asked = (leader.me.node, leader)
        batch = batch_of(self.value(), pid=self.pid, epoch=0, first=self.sequence)
        self.answers = group.send(leader.me.node, batch, timeout_ns=3 * ELECTION)
        self.sent += 1

    def _answered(self):
        assert len(self.answers) == 1, self.answers
        answer = self.answers[0]
        self.answers = None
        if answer.error == ErrorCode.NONE:
            self.acked.append((answer.base_offset, self.value()))
            self.sequence += 1
        else:
            assert answer.error in RETRIED, answer


class Run:
    def __init__(self, draw, minimum):
        self.draw = draw
        self.group = Group(
            config=PartitionConfig(min_insync_replicas=minimum, producer_expiration_ms=10**9),
            options=LogOptions(segment_bytes=5 * 1024, window_bytes=1024),
        )
        self.producers = [Producer(pid) for pid in range(3)]
        self.down = []

    def step(self):
        group, draw = self.group, self.draw
        for producer in self.producers:
            if draw(3):
                producer.step(group)
        what = draw(40)
        number = 1 + draw(3)
        if what == 0 and not self.down:
            keep = (Keep.NONE, Keep.SOME, Keep.ALL)[draw(3)]
            group.crash(number, keep)
            self.down.append(number)
        elif what in (1, 2) and self.down:
            group.restart(self.down.pop())
        elif what == 3 and not group.cut:
            group.isolate(number, notice=bool(draw(2)))
        elif what in (4, 5):
            group.heal()
        elif what == 6 and number not in self.down:
            group.places[number].held = True
        elif what in (7, 8):
            for place in group.places.values():
                place.held = False
        elif what == 9 and number not in self.down:
            self.transfer(number)
        elif what == 10:
            self.crash_everybody()
        self.move()

    def transfer(self, number):
        leader = self.group.leader()
        if leader is not None and leader.ready and leader.me.node != number:
            leader.transfer(self.group.places[number].me, self.group.now)

    def crash_everybody(self):
        for number in (1, 2, 3):
            if number not in self.down:
                self.group.crash(number)
        for number in (1, 2, 3):
            if number not in self.down:
                self.group.restart(number)

    def move(self):
        """Let a part of what can move do so: a turn is never the whole cluster's."""
        group, draw = self.group, self.draw
        for place in group.running:
            if draw(4):
                group.take(place)
            if draw(3):
                place.perform(group.now)
            if draw(3):
                place.run_jobs(group.now)
        if draw(3):
            group.deliver_all()
        if draw(3) == 0:
            group.advance(millis(1 + draw(400)))

    def finish(self):
        group = self.group
        while self.down:
            group.restart(self.down.pop())
        for place in group.places.values():
            place.held = False
        group.heal()
        for _ in range(30):
            group.advance(ELECTION)
            for producer in self.producers:
                producer.step(group)
        group.advance(4 * ELECTION)
        for producer in self.producers:
            if producer.answers:
                producer._answered()

    def check(self):
        group = self.group
        leader = group.leader()
        assert leader is not None
        number = leader.me.node
        records = group.read(number)
        assert [offset for offset, _ in records] == list(range(len(records)))
        for producer in self.producers:
            mine = [(o, v) for o, v in records if v.startswith(b"p%d-" % producer.pid)]
            assert len(producer.acked) > 3, producer.pid
            assert mine[: len(producer.acked)] == producer.acked
            values = [value for _, value in mine]
            assert values == [b"p%d-%d" % (producer.pid, n) for n in range(len(mine))]
            assert len(mine) <= len(producer.acked) + 1
        ends = {(p.replica.log.last_index, p.replica.log.last_chain) for p in group.running}
        assert len(ends) == 1, ends
        assert len({repr(state) for state in group.producer_states().values()}) == 1
        assert [place.replica.high_watermark for place in group.running] == [len(records)] * 3
        assert [place.replica.waiting for place in group.running] == [0, 0, 0]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("minimum", [1, 2])
def test_nothing_acknowledged_is_lost_or_doubled(seed, minimum):
    entropy = SeededEntropy(seed * 2 + minimum)
    run = Run(entropy.below, minimum)
    run.group.advance(3 * ELECTION)
    for _ in range(150):
        run.step()
    run.finish()
    run.check()


@settings(max_examples=15)
@given(st.data())
def test_any_schedule_keeps_what_was_acknowledged(data):
    run = Run(lambda bound: data.draw(st.integers(0, bound - 1)), 1)
    run.group.advance(3 * ELECTION)
    for _ in range(12):
        run.step()
    run.finish()
    run.check()


def test_a_running_group_can_be_copied_and_both_go_the_same_way():
    """The simulator's checkpoints are deep copies: nothing of a replica may be shared or closed
    over. Method: copy in the middle of things, run both on, compare everything that left."""
    draws = SeededEntropy(5).below
    run = Run(draws, 2)
    run.group.advance(3 * ELECTION)
    for _ in range(60):
        run.step()
    twin = copy.deepcopy(run)
    for one in (run, twin):
        one.draw = SeededEntropy(9).below
        for _ in range(60):
            one.step()
        one.finish()
        one.check()
    assert run.group.now == twin.group.now
    for number in (1, 2, 3):
        mine, other = run.group[number], twin.group[number]
        assert mine is not other
        assert mine.log.last_chain == other.log.last_chain
        assert (mine.term, mine.commit) == (other.term, other.commit)
    assert [p.acked for p in run.producers] == [p.acked for p in twin.producers]

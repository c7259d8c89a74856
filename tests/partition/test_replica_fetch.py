"""Goal: what a fetch sees of a partition, when waiting fetches are woken, and that none is left
over."""

import pytest

from raftlog.kafka.error_codes import ErrorCode
from raftlog.partition.output import ReadAnswer
from raftlog.partition.waiters import FetchWaiter
from raftlog.storage.replica import LogOptions
from tests.partition.group import ELECTION, Group
from tests.partition.test_replica_produce import led, unready_leader


def filled(count=4, size=100, **options):
    group = led(**options)
    for number in range(count):
        group.produce(1, b"%03d" % number + b"x" * (size - 3))
    group.settle()
    return group


def waiting_at(group, number, offset, missing=1):
    woken = []
    waiter = FetchWaiter(missing, woken.append)
    waiter.join(group[number].fetches, offset)
    return waiter, woken


@pytest.mark.parametrize(
    ("offset", "error", "any_bytes"),
    [(0, 0, True), (3, 0, True), (4, 0, False), (5, 1, False), (-1, 1, False)],
)
def test_the_range_of_offsets(offset, error, any_bytes):
    view = filled()[1].view(offset)
    assert (view.error, view.available > 0) == (error, any_bytes)
    assert (view.high_watermark, view.log_start) == (4, 0)


def test_uncommitted_records_are_not_available_and_not_an_error():
    group = filled()
    group.places[2].held = group.places[3].held = True
    group.produce(1, b"later")
    group.settle()
    assert group[1].log.next_offset == 5
    for offset in (4, 5):
        view = group[1].view(offset)
        assert (view.error, view.available, view.high_watermark) == (0, 0, 4)


def test_an_offset_below_the_log_start_is_out_of_range():
    group = filled(count=40, size=900, options=LogOptions(segment_bytes=8 * 1024))
    group[1].delete_records(10, group.now + 10**12, print, group.now, group.wall)
    group.settle()
    assert group[1].view(9).error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert group[1].view(10).error is ErrorCode.NONE


def test_leader_epochs_are_checked():
    group = filled()
    term = group[1].term
    assert group[1].leader_error(-1) is ErrorCode.NONE
    assert group[1].leader_error(term) is ErrorCode.NONE
    assert group[1].leader_error(term - 1) is ErrorCode.FENCED_LEADER_EPOCH
    assert group[1].leader_error(term + 1) is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert group[2].leader_error(-1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    group[1].io_failed(group.now)
    assert group[1].leader_error(-1) is ErrorCode.KAFKA_STORAGE_ERROR


def test_batches_are_read_whole_from_any_offset_inside():
    group = led()
    group.produce(1, b"a", b"b", b"c")
    group.settle()
    assert group.read(1, 2) == [(2, b"c")]


def test_everything_is_read_in_small_pieces_and_across_segments():
    group = filled(count=60, size=500, options=LogOptions(segment_bytes=8 * 1024))
    assert len(group[1].log.segments) > 2
    values = [value for _, value in group.read(1, 0, bytes_max=700)]
    assert [int(value[:3]) for value in values] == list(range(60))


def test_raft_entries_between_records_are_never_read():
    group = filled()
    group.elect(2)
    group.produce(2, b"more")
    group.settle()
    assert [offset for offset, _ in group.read(2)] == [0, 1, 2, 3, 4]


def test_a_commit_wakes_a_fetch_that_has_enough():
    group = filled()
    _, woken = waiting_at(group, 1, 4)
    group.settle()
    assert woken == []
    group.produce(1, b"x")
    group.settle()
    assert len(woken) == 1
    assert len(group[1].fetches) == 0


def test_a_fetch_waits_for_min_bytes():
    group = filled()
    waiter, woken = waiting_at(group, 1, 4, missing=1_000)
    group.produce(1, b"x" * 300)
    group.settle()
    assert woken == []
    assert 600 < 1_000 - waiter.missing_bytes + 300 < 800
    group.produce(1, b"x" * 900)
    group.settle()
    assert woken == [waiter]


def test_a_lost_leadership_wakes_every_fetch():
    group = filled()
    _, woken = waiting_at(group, 1, 4, missing=10**6)
    group.isolate(1)
    group.advance(5 * ELECTION)
    assert len(woken) == 1
    assert len(group[1].fetches) == 0


def test_a_deleted_partition_wakes_every_fetch():
    group = filled()
    _, woken = waiting_at(group, 1, 4, missing=10**6)
    group[1].stop(group.now)
    group.settle()
    assert (len(woken), group[1].waiting) == (1, 0)


def test_a_fetch_at_a_leader_that_publishes_nothing_is_woken_when_it_does():
    group, leader, _ = unready_leader()
    _, woken = waiting_at(group, leader, 0)
    assert group[leader].view(0).available == 0
    group.blocked = None
    group.advance(ELECTION)
    assert len(woken) == 1
    assert group[leader].view(0).available > 0


def test_one_waiter_in_two_partitions_leaves_both():
    one, two = filled(), filled()
    woken = []
    waiter = FetchWaiter(1, woken.append)
    waiter.join(one[1].fetches, 4)
    waiter.join(two[1].fetches, 4)
    one.produce(1, b"x")
    one.settle()
    assert (len(woken), len(two[1].fetches)) == (1, 0)
    two.produce(1, b"x")
    two.settle()
    assert len(woken) == 1


# --- linearizable reads ---------------------------------------------------------------------------


def test_a_read_index_is_confirmed_by_a_majority():
    group = filled()
    answers = []
    assert group[1].read_index(answers.append, group.now) is None
    assert answers == []
    group.settle()
    assert answers == [ReadAnswer(ErrorCode.NONE)]


def test_a_deposed_leader_confirms_no_read():
    """etcd #20418: a paused leader must not answer after another one was elected."""
    group = filled()
    group.isolate(1, notice=False)
    group.elect_without(1)
    answers = []
    group[1].read_index(answers.append, group.now)
    group.settle()
    assert answers == []
    group.heal()
    group.advance(2 * ELECTION)
    assert answers == [ReadAnswer(ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    assert group[1].waiting == 0


def test_a_follower_confirms_no_read():
    group = filled()
    refused = group[2].read_index(print, group.now)
    assert refused == ReadAnswer(ErrorCode.NOT_LEADER_OR_FOLLOWER)


def test_a_new_leader_confirms_a_read_only_after_its_own_commit():
    group, leader, _ = unready_leader()
    answers = []
    group[leader].read_index(answers.append, group.now)
    group.settle()
    assert answers == []
    group.blocked = None
    group.advance(ELECTION)
    assert answers == [ReadAnswer(ErrorCode.NONE)]


def test_a_single_replica_confirms_by_itself():
    group = Group(1)
    group.elect(1)
    answers = []
    group[1].read_index(answers.append, group.now)
    group.settle()
    assert answers == [ReadAnswer(ErrorCode.NONE)]

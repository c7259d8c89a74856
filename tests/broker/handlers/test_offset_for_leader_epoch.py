"""Goal: where epochs end, so that a consumer finds a truncation and never sees one that was not."""

from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from raftlog.kafka.versions import ApiKey
from tests.broker.handlers.data_path import batch_of, led_topic, produce


def ask(cluster, node, epoch, *, current=-1, number=0, version=4, replica_id=-1):
    partition = OffsetForLeaderPartition(number, current, epoch)
    body = OffsetForLeaderEpochRequest(replica_id, [OffsetForLeaderTopic("t", [partition])])
    answer = cluster.ask(node, ApiKey.OFFSET_FOR_LEADER_EPOCH, body, version)
    found = answer.topics[0].partitions[0]
    return (found.error_code, found.leader_epoch, found.end_offset)


def two_epochs():
    """Two records in one epoch, one in the next; returns cluster, leader and the two epochs."""
    cluster = led_topic()
    first = cluster.leader("t")
    produce(cluster, first.number, batch_of(b"a", b"b"))
    old = first.broker.context.router.replica("t", 0).term
    cluster.kill(first.number)
    second = cluster.leader("t")
    produce(cluster, second.number, batch_of(b"c"))
    return cluster, second.number, old, second.broker.context.router.replica("t", 0).term


def test_an_older_epoch_ends_where_the_next_began():
    cluster, leader, old, new = two_epochs()
    assert ask(cluster, leader, old) == (0, old, 2)
    assert ask(cluster, leader, new) == (0, new, 3)


def test_an_epoch_in_between_is_answered_by_the_one_below():
    cluster, leader, old, new = two_epochs()
    if new > old + 1:
        assert ask(cluster, leader, new - 1)[0] == 0
    assert ask(cluster, leader, 0)[1:] in ((-1, -1), (0, 0))
    assert ask(cluster, leader, -1) == (0, -1, -1)


def test_of_a_later_epoch_nothing_is_known():
    """As Kafka answers. The newest one instead would tell a consumer that its log was not cut."""
    cluster, leader, _, new = two_epochs()
    assert ask(cluster, leader, new) == (0, new, 3)
    assert ask(cluster, leader, new + 1) == (0, -1, -1)
    assert ask(cluster, leader, new + 5) == (0, -1, -1)
    assert ask(cluster, leader, 2**31 - 1) == (0, -1, -1)


def test_the_present_epoch_ends_at_the_log_end_not_at_the_high_watermark():
    cluster = led_topic()
    leader = cluster.leader("t")
    produce(cluster, leader.number, batch_of(b"a"))
    for number in (1, 2, 3):
        if number != leader.number:
            cluster.kill(number)
    produce(cluster, leader.number, batch_of(b"b"), timeout_ms=50)
    replica = leader.broker.context.router.replica("t", 0)
    if replica.is_leader:
        assert replica.high_watermark == 1
        assert ask(cluster, leader.number, replica.term)[2] == 2


def test_errors():
    cluster, leader, old, _ = two_epochs()
    assert ask(cluster, leader, old, number=7)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ask(cluster, leader, old, current=old)[0] == ErrorCode.FENCED_LEADER_EPOCH
    assert ask(cluster, leader, old, current=10**6)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert ask(cluster, leader, old, replica_id=2) == ask(cluster, leader, old) == (0, old, 2)
    other = next(n.number for n in cluster.world.running() if n.number != leader)
    assert ask(cluster, other, old)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_leader_that_has_not_committed_in_its_term_does_not_say():
    cluster = led_topic()
    leader = cluster.leader("t")
    replica = leader.broker.context.router.replica("t", 0)
    replica._serving._published_term = None
    assert ask(cluster, leader.number, replica.term)[0] == ErrorCode.OFFSET_NOT_AVAILABLE

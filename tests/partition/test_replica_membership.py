"""Goal: who counts while the membership changes: the in-sync set of a joint configuration, a
leader on its way out, a replaced replica."""

from raftlog.base.entries import Membership
from raftlog.kafka.error_codes import ErrorCode
from raftlog.partition.config import PartitionConfig
from tests.partition.group import ELECTION, Group, replica_id
from tests.partition.test_replica_idempotence import assert_equal_tables
from tests.partition.test_replica_produce import errors, led


def voters(*numbers):
    return Membership(tuple(replica_id(number) for number in numbers))


def grown(config=None):
    """1, 2, 3 vote, 4 learns and has everything."""
    group = Group(1, 2, 3, learners=(4,), config=config or PartitionConfig())
    group.elect(1)
    for number in range(5):
        group.produce(1, b"%d" % number, pid=1, epoch=0, first=number)
    group.settle()
    group.advance(ELECTION)
    return group


def change(group, *numbers):
    group[1].change_membership(voters(*numbers), group.now, group.wall)


def test_a_learner_is_not_in_sync():
    group = grown()
    assert [member.node for member in group[1].in_sync] == [1, 2, 3]


def test_a_leader_with_other_voters_commits_nothing_by_its_own_copy():
    """Its rounds need no turn of their own: `Write.awaited` of the broker's events."""
    group = grown()
    assert group[1].needs_peers
    assert not group[2].needs_peers, "somebody waits for a follower's round: its leader"
    change(group, 1)
    assert group[1].needs_peers, "joint: the majority of the old half counts too"
    group.advance(2 * ELECTION)
    assert not group[1].needs_peers


def test_after_a_change_the_new_voters_are_the_in_sync_set():
    group = grown()
    change(group, 1, 2, 4)
    group.advance(2 * ELECTION)
    assert [member.node for member in group[1].in_sync] == [1, 2, 4]
    assert not group[1].membership.joint
    assert any(output.membership for output in group.places[1].outputs)
    assert any(output.in_sync for output in group.places[1].outputs)
    assert_equal_tables_of(group, 1, 2, 4)


def assert_equal_tables_of(group, *numbers):
    states = group.producer_states()
    assert len({repr(states[number]) for number in numbers}) == 1


def joint_group():
    """In the joint configuration of (1 2 3) and (1 2 4); replica 4 does not sync, so that the end
    of the joint is appended and the change is not over for min.insync.replicas."""
    group = grown(PartitionConfig(min_insync_replicas=3))
    group.blocked = lambda message: message.sender.node == 4 or message.to.node == 4
    change(group, 1, 2, 4)
    for place in group.running:
        group.take(place)
    assert group[1].membership.joint
    assert replica_id(4) in group[1].membership.voters
    return group


def test_in_a_joint_configuration_the_incoming_voters_count():
    """`acks=all` speaks of the set that will stay: three incoming voters must hold it."""
    group = joint_group()
    assert [member.node for member in group[1].in_sync] == [1, 2, 4]
    answers = group.produce(1, b"x")
    group.settle()
    assert group[1].high_watermark == 6
    assert answers == []
    group.blocked = None
    group.advance(ELECTION)
    assert errors(answers) == [ErrorCode.NONE]


def test_an_outgoing_voter_that_is_down_does_not_matter_and_an_incoming_one_does():
    group = joint_group()
    group.blocked = None
    group.crash(3)
    answers = group.produce(1, b"x")
    group.settle()
    assert errors(answers) == [ErrorCode.NONE]
    group.crash(4)
    assert errors(group.produce(1, b"y")) == [ErrorCode.NOT_ENOUGH_REPLICAS]


def test_a_leader_that_is_taken_out_serves_until_the_end_and_then_points_elsewhere():
    group = grown()
    change(group, 2, 3, 4)
    answers = group.produce(1, b"x")
    group.advance(4 * ELECTION)
    assert errors(answers) == [ErrorCode.NONE]
    assert not group[1].is_leader
    assert errors(group.produce(1, b"y")) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    leader = group.leader()
    assert leader.me.node in (2, 3, 4)
    late = group.produce(leader.me.node, b"z")
    group.settle()
    assert errors(late) == [ErrorCode.NONE]
    assert group[1].waiting == 0


def test_a_promoted_replica_can_lead_with_the_producers_it_learned():
    group = grown()
    change(group, 1, 2, 4)
    group.advance(2 * ELECTION)
    group.elect(4)
    retry = group.produce(4, b"4", pid=1, epoch=0, first=4)
    assert [(a.error, a.base_offset) for a in retry] == [(0, 4)]


def test_a_membership_that_is_cut_off_gives_the_old_in_sync_set_back():
    group = grown()
    group.isolate(1, notice=False)
    change(group, 1, 2, 4)
    group.take(group.places[1])
    group.elect_without(1)
    group.heal()
    group.advance(3 * ELECTION)
    group.elect(1)
    assert [member.node for member in group[1].in_sync] == [1, 2, 3]
    assert_equal_tables(group)


def test_a_silent_follower_leaves_the_set_once_node_heartbeats_cover_it_no_more():
    """An idle leader has no deadline while node heartbeats cover all its followers. If their end
    did not set one, a dead broker stayed in sync until the next produce."""
    group = led()
    group.advance(ELECTION)
    leader, now = group[1], group.now
    for number in (2, 3):
        assert group[number].cover(replica_id(1), now)
        assert leader.cover(replica_id(number), now)
    group.advance(PartitionConfig().replica_lag_ns)
    assert [member.node for member in leader.in_sync] == [1, 2, 3]
    group.isolate(3, notice=False)
    leader.uncover(replica_id(3), group.now, group.now)
    group.advance(PartitionConfig().replica_lag_ns + ELECTION)
    assert [member.node for member in leader.in_sync] == [1, 2]

"""Static members that die and come back without a rebalance, and what only the leader knows then.

The story: a cooperative member gave a partition up and died before it joined again. It came back to
the rest of its assignment, and the partition had no owner until something else began a rebalance.
"""

from raftlog.base.units import millis
from raftlog.client.core.group.consumer import PartitionChange
from raftlog.client.core.group.membership import Phase
from raftlog.client.core.group.protocol import encode_subscription
from tests.client.group.world import ALL, COOPERATIVE, EAGER, generation, joined, place, start


def _leader_and_other(world, *readers):
    leads = world.groups.groups["g"].leader
    first, second = readers
    if first.consumer.membership.identity.member_id != leads:
        first, second = second, first
    return first, second


def _who_gives_up(world):
    """A leader that has all partitions and a newcomer: up to where the leader gave two up."""
    one = world.reader("t", group_instance_id="one", **COOPERATIVE)
    joined(world, one)
    two = world.reader("t", group_instance_id="two", **COOPERATIVE)
    world.run_until(lambda: one.told(PartitionChange.REVOKED))
    assert one.places() == ALL[:2]
    assert not two.places()
    return one, two


def test_a_follower_that_dies_before_it_joins_again_leaves_no_partition_without_an_owner():
    world = start()
    one = world.reader("t", group_instance_id="one", **COOPERATIVE)
    two = world.reader("t", group_instance_id="two", **COOPERATIVE)
    joined(world, one, two)
    leader, follower = _leader_and_other(world, one, two)
    three = world.reader("t", group_instance_id="three", **COOPERATIVE)
    world.run_until(lambda: follower.told(PartitionChange.REVOKED))
    assert not leader.told(PartitionChange.REVOKED)[1:], "it has no reason of its own to join again"
    world.kill(follower)
    instance = follower.consumer.settings.group_instance_id
    again = world.reader("t", group_instance_id=instance, **COOPERATIVE)
    joined(world, leader, again, three)


def test_a_leader_that_dies_before_it_joins_again_leaves_no_partition_without_an_owner():
    world = start()
    one, two = _who_gives_up(world)
    world.kill(one)
    again = world.reader("t", group_instance_id="one", **COOPERATIVE)
    joined(world, again, two)


def test_a_static_member_that_comes_back_to_a_whole_assignment_begins_no_rebalance():
    """Neither a follower of any kind nor an eager leader; a cooperative leader begins one, in which
    nothing moves."""
    for more, who, rounds in (
        (EAGER, 0, 0),
        (EAGER, 1, 0),
        (COOPERATIVE, 1, 0),
        (COOPERATIVE, 0, 1),
    ):
        world = start()
        one = world.reader("t", group_instance_id="one", **more)
        two = world.reader("t", group_instance_id="two", **more)
        joined(world, one, two)
        world.run_for(millis(2_000))
        pair = _leader_and_other(world, one, two)
        gone, other = pair[who], pair[1 - who]
        before, had = generation(world), gone.places()
        told = len(other.told(PartitionChange.REVOKED))
        world.kill(gone)
        instance = gone.consumer.settings.group_instance_id
        again = world.reader("t", group_instance_id=instance, **more)
        joined(world, again, other)
        world.run_for(millis(2_000))
        assert again.places() == had
        assert generation(world) - before == rounds, (more, who)
        assert len(other.told(PartitionChange.REVOKED)) == told


def test_a_leader_that_came_back_sees_new_partitions():
    """It had divided nothing, so it compared what it saw with nothing."""
    world = start()
    one = world.reader(
        "t", group_instance_id="one", client={"metadata_max_age_ns": millis(500)}, **EAGER
    )
    joined(world, one)
    world.kill(one)
    again = world.reader(
        "t", group_instance_id="one", client={"metadata_max_age_ns": millis(500)}, **EAGER
    )
    joined(world, again)
    world.cluster.grow("t")
    world.run_until(lambda: again.places() == [*ALL, "t-4"])


def test_a_member_that_claims_what_it_was_never_given_begins_no_storm():
    """Partitions that a member claims are not given to others, and the leader asks again; it does
    so with pauses."""
    world = start()
    one = world.reader("t", **COOPERATIVE)
    joined(world, one)
    group = world.groups.groups["g"]
    claims = encode_subscription("cooperative-sticky", ["t"], [place(each) for each in ALL], 10_000)
    world.groups.add_scripted("g", [("cooperative-sticky", claims)])
    before = generation(world)
    world.run_for(millis(10_000))
    assert one.consumer.membership.phase in (Phase.STABLE, Phase.JOINING, Phase.SYNCING)
    assert 5 < generation(world) - before < 40, group

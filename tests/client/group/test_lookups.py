"""How a member finds the coordinator of its group."""

from raftlog.base.units import millis
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.versions import ApiKey
from tests.client.group.world import commit, joined, start


def test_a_coordinator_that_cannot_be_looked_up_is_looked_up_again():
    world = start()
    world.cluster.refuse(ApiKey.FIND_COORDINATOR, 15, 15, 14)
    reader = world.reader("t")
    joined(world, reader)
    assert not reader.errors


def test_brokers_that_hear_nobody_are_not_asked_for_a_coordinator_for_ever():
    """They named the coordinator of old, which was one of them and refused. Both were connected,
    and the one of the lowest number was asked each time."""
    world = start()
    reader = world.reader("t")
    joined(world, reader)
    world.groups.deaf = {1: 1, 2: 1}
    world.groups.move_to(3)
    world.run_for(millis(3_000))
    assert commit(reader) is None
    assert not reader.errors
    asked = [node for node, key, _ in world.cluster.requests if key == ApiKey.FIND_COORDINATOR]
    assert asked[-1] == 3, "the only one that knows"


def test_a_refused_lookup_is_told():
    world = start()
    world.cluster.refuse(ApiKey.FIND_COORDINATOR, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    reader = world.reader("t")
    world.run_until(lambda: reader.errors)
    assert reader.errors[0].code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    joined(world, reader)

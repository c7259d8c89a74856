"""The table of fences: who asks, what must match, which error says that it does not."""

import pytest

from raftlog.kafka.error_codes import ErrorCode
from tests.groups.world import World

NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
FENCED = ErrorCode.FENCED_INSTANCE_ID
GENERATION = ErrorCode.ILLEGAL_GENERATION


@pytest.fixture
def world():
    """A stable group of one static member `i`, and one of one dynamic member."""
    world = World()
    join = world.join(instance="i")
    world.pass_ms(0)
    world.member = join.value.member_id
    world.sync(member=world.member, instance="i", parts={})
    (world.dynamic,) = world.stable(1, "d")
    return world


# member, instance, generation, heartbeat, and commit when it differs
ROWS = [
    ("right", "i", 1, NONE),
    ("right", None, 1, NONE),
    ("right", "i", 0, GENERATION),
    ("right", "i", 2, GENERATION),
    ("right", "other", 1, UNKNOWN),
    ("wrong", "i", 1, FENCED),
    ("wrong", "i", 7, FENCED),
    ("wrong", None, 1, UNKNOWN),
    ("", None, 1, UNKNOWN),
    ("", "i", 1, FENCED),
]


@pytest.mark.parametrize(("member", "instance", "generation", "error"), ROWS)
def test_member_then_instance_then_generation(world, member, instance, generation, error):
    member = world.member if member == "right" else member
    assert world.heartbeat("g", member, generation, instance=instance) is error
    assert world.sync("g", member, generation, instance=instance).error is error
    commit = world.commit("g", member=member, generation=generation, instance=instance)
    assert commit.partition_errors == [error]
    if generation == 1:
        assert world.join("g", member or "wrong", instance=instance).error is error


@pytest.mark.parametrize(
    ("version", "generation", "error"),
    [
        (8, 0, GENERATION),
        (8, 5, GENERATION),
        (9, 0, ErrorCode.GROUP_ID_NOT_FOUND),
        (10, 5, ErrorCode.GROUP_ID_NOT_FOUND),
        (2, -1, NONE),
        (10, -1, NONE),
    ],
)
def test_a_commit_to_an_unknown_group(version, generation, error):
    world = World()
    commit = world.commit(member="m", generation=generation, version=version)
    assert commit.partition_errors == [error]


@pytest.mark.parametrize(
    ("named", "error"),
    [
        ({}, NONE),
        ({"protocol_type": "consumer", "protocol_name": "range"}, NONE),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_a_sync_names_the_groups_protocol_or_none(world, named, error):
    assert world.sync("d", world.dynamic, 1, **named).error is error


def test_a_commit_of_generation_minus_one_with_a_member_is_fenced_while_the_group_lives(world):
    assert world.commit("d", member=world.dynamic).partition_errors == [GENERATION]
    assert world.commit("d", member="wrong").partition_errors == [UNKNOWN]
    assert world.commit("d", instance="i").partition_errors == [UNKNOWN]


def test_groups_that_are_not_known_have_no_members():
    world = World()
    assert world.heartbeat("no", "m") is UNKNOWN
    assert world.sync("no", "m").error is UNKNOWN


def test_an_empty_group_id_is_refused_except_for_offsets():
    world = World()
    bad = ErrorCode.INVALID_GROUP_ID
    assert world.join("").error is bad
    assert world.sync("").error is bad
    assert world.heartbeat("") is bad
    assert world.leave("", "m").error is bad
    assert world.delete("").error is bad
    assert world.commit("").partition_errors == [NONE]
    assert world.committed("") == 5


def test_a_group_whose_removal_is_undecided_is_not_available():
    world = World()
    world.commit()
    world.writes = False
    removal = world.delete()
    away = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.state() == "Dead"
    assert world.listed() == {}
    assert world.join().error is away
    assert world.sync(member="m").error is away
    assert world.heartbeat(member="m") is away
    assert world.leave("g", "m").error is away
    assert world.commit().partition_errors == [away]
    assert world.delete_offsets().error is away
    assert world.delete().error is away
    world.write()
    assert removal.error is NONE
    assert world.join().error is ErrorCode.MEMBER_ID_REQUIRED

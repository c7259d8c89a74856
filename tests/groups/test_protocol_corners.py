"""Corners of the classic protocol that break real clients, one test each."""

import pytest

from raftlog.kafka.error_codes import ErrorCode
from tests.groups.world import REBALANCE_MS, SESSION_MS, World, static_group

NONE = ErrorCode.NONE
REBALANCING = ErrorCode.REBALANCE_IN_PROGRESS
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
FENCED = ErrorCode.FENCED_INSTANCE_ID
TWO = (("range", b"1"), ("sticky", b"2"))


# --- two requests of one member -------------------------------------------------------------------


def test_an_older_join_of_a_member_is_answered_when_a_newer_one_comes():
    world = World()
    first, _ = world.stable(2)
    older = world.join(member=first)
    newer = world.join(member=first)
    assert older.error is REBALANCING
    assert newer.waits
    world.pass_ms(REBALANCE_MS)
    assert newer.error is NONE


def test_an_older_sync_of_a_member_is_answered_when_a_newer_one_comes():
    world = World()
    first, second = world.new_id(), world.new_id()
    world.join(member=first)
    world.join(member=second)
    world.pass_ms(0)
    older, newer = world.sync(member=second), world.sync(member=second)
    assert older.error is REBALANCING
    world.sync(member=first, parts={second: b"2"})
    assert bytes(newer.value.assignment) == b"2"


# --- static members -------------------------------------------------------------------------------


def test_the_static_join_that_comes_last_has_the_instance_id_and_the_other_is_fenced():
    world = World()
    first = world.join(instance="i")
    second = world.join(instance="i")
    assert first.error is FENCED
    assert second.waits
    world.pass_ms(0)
    assert second.error is NONE
    assert second.value.member_id.startswith("i-")


def test_a_replaced_static_member_is_fenced_everywhere():
    world = World()
    old = static_group(world, "i")["i"]
    new = world.join(instance="i").value.member_id
    assert new != old
    assert world.heartbeat(member=old, instance="i") is FENCED
    assert world.sync(member=old, instance="i").error is FENCED
    assert world.join(member=old, instance="i").error is FENCED
    commit = world.commit(member=old, generation=1, instance="i")
    assert commit.partition_errors == [FENCED]
    leave = world.leave("g", (old, "i"))
    assert [each.error_code for each in leave.value.members] == [FENCED]
    assert world.heartbeat(member=new, instance="i") is NONE


def test_a_waiting_sync_of_a_replaced_static_member_is_fenced():
    world = World()
    joins = [world.join(instance=each) for each in "ab"]
    world.pass_ms(0)
    sync = world.sync(member=joins[1].value.member_id, instance="b")
    assert sync.waits
    world.join(instance="b")
    assert sync.error is FENCED


def test_a_static_rejoin_before_the_assignment_makes_the_group_rebalance():
    world = World()
    joins = [world.join(instance=each) for each in "ab"]
    world.pass_ms(0)
    again = world.join(instance="b")
    assert world.state() == "PreparingRebalance"
    leader = world.join(member=joins[0].value.member_id, instance="a")
    assert (leader.error, again.error) == (NONE, NONE)
    assert again.value.member_id in {each.member_id for each in leader.value.members}


def test_a_static_rejoin_of_a_stable_group_is_put_on_record_before_it_is_answered():
    world = World()
    ids = static_group(world, "a", "b")
    world.writes = False
    join = world.join(instance="b")
    assert join.waits
    world.write()
    assert (join.error, join.value.generation_id) == (NONE, 1)
    assert world.state() == "Stable"
    stored = {each.instance_id: each.member_id for each in world.machine.group("g").members}
    assert stored == {"a": ids["a"], "b": join.value.member_id}
    sync = world.sync(member=join.value.member_id, instance="b")
    assert bytes(sync.value.assignment) == ids["b"].encode()


def test_a_static_rejoin_that_could_not_be_recorded_leaves_the_old_id_in_place():
    world = World()
    ids = static_group(world, "a", "b")
    world.writes = False
    join = world.join(instance="b")
    world.write(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert join.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert join.value.member_id == ""
    assert world.heartbeat(member=ids["b"], instance="b") is NONE


def test_a_static_rejoin_that_changes_the_protocol_makes_the_group_rebalance():
    world = World()
    static_group(world, "a", protocols=TWO)
    again = world.join(instance="a", protocols=TWO[1:])
    assert again.value.protocol_name == "sticky"
    assert again.value.generation_id == 2


def test_a_replaced_static_leader_gets_the_members_and_skips_the_assignment_from_version_9():
    world = World()
    static_group(world, "a", "b")
    join = world.join(instance="a", version=9)
    assert join.value.skip_assignment
    assert join.value.leader == join.value.member_id
    assert {each.group_instance_id for each in join.value.members} == {"a", "b"}
    follower = world.join(instance="b", version=9)
    assert not follower.value.skip_assignment
    assert follower.value.members == []


def test_a_replaced_static_leader_before_version_9_is_told_that_its_old_id_leads():
    world = World()
    ids = static_group(world, "a", "b")
    join = world.join(instance="a", version=8)
    assert join.value.leader == ids["a"]
    assert join.value.members == []
    assert not join.value.skip_assignment


def test_static_members_that_do_not_join_again_stay_until_their_sessions_end():
    world = World()
    ids = static_group(world, "a", "b", session_ms=200_000)
    leader = world.join(member=ids["a"], instance="a", session_ms=200_000)
    world.pass_ms(REBALANCE_MS)
    assert leader.error is NONE
    assert {each.group_instance_id for each in leader.value.members} == {"a", "b"}


def test_when_no_member_joined_again_a_phase_of_static_members_is_put_off():
    world = World()
    ids = static_group(world, "a", "b", session_ms=200_000)
    world.leave("g", (ids["a"], "a"))
    world.pass_ms(REBALANCE_MS)
    assert world.state() == "PreparingRebalance"
    join = world.join(member=ids["b"], instance="b", session_ms=200_000)
    assert join.error is NONE


# --- a member that comes again --------------------------------------------------------------------


def test_the_leaders_join_in_a_stable_group_makes_it_rebalance():
    world = World()
    leader, _ = world.stable(2)
    assert world.join(member=leader).waits
    assert world.state() == "PreparingRebalance"


def test_a_followers_join_with_the_same_subscription_gets_the_present_generation():
    world = World()
    leader, follower = world.stable(2)
    join = world.join(member=follower)
    assert (join.error, join.value.generation_id) == (NONE, 1)
    assert (join.value.leader, join.value.members) == (leader, [])
    assert world.state() == "Stable"


def test_a_followers_join_with_another_subscription_makes_the_group_rebalance():
    world = World()
    _, follower = world.stable(2)
    assert world.join(member=follower, protocols=(("range", b"other"),)).waits


def test_a_lost_join_answer_is_given_again_with_the_members_for_the_leader_only():
    world = World()
    members = [world.new_id() for _ in range(2)]
    joins = [world.join(member=member) for member in members]
    world.pass_ms(0)
    again = [world.join(member=member) for member in members]
    assert [each.value for each in again] == [each.value for each in joins]
    assert [len(each.value.members) for each in again] == [2, 0]


def test_a_join_answer_given_again_waits_for_the_record_of_its_generation_too():
    world = World(writes=False)
    member = world.new_id()
    world.join(member=member)
    world.pass_ms(0)
    again = world.join(member=member)
    assert again.waits
    world.write()
    assert (again.error, again.value.generation_id) == (NONE, 1)


# --- heartbeats and syncs by state ----------------------------------------------------------------


def test_heartbeats_before_the_assignment_are_fine_and_keep_the_session_alive():
    world = World()
    member, _ = world.enter()
    world.pass_ms(0)
    world.pass_ms(SESSION_MS - 1)
    assert world.state() == "CompletingRebalance"
    assert world.heartbeat(member=member) is NONE
    world.pass_ms(SESSION_MS - 1)
    assert world.heartbeat(member=member) is NONE


def test_heartbeats_in_a_join_phase_tell_of_it_and_keep_the_session_alive():
    world = World()
    first, second = world.stable(2)
    world.join(member=first)
    for _ in range(3):
        world.pass_ms(SESSION_MS - 1)
        assert world.heartbeat(member=second) is REBALANCING


def test_heartbeats_to_an_empty_group_are_of_an_unknown_member():
    world = World()
    (member,) = world.stable()
    world.leave("g", member)
    assert world.heartbeat(member=member) is UNKNOWN


@pytest.mark.parametrize("generation", [0, 1, 2])
def test_a_sync_in_a_join_phase_is_told_of_it_whatever_its_generation(generation):
    world = World()
    first, second = world.stable(2)
    world.join(member=first)
    assert world.sync(member=second, generation=generation).error is REBALANCING


def test_members_that_the_leader_forgot_get_an_empty_assignment():
    world = World()
    members = [world.new_id() for _ in range(2)]
    for member in members:
        world.join(member=member)
    world.pass_ms(0)
    syncs = [world.sync(member=members[1])]
    syncs.append(world.sync(member=members[0], parts={members[0]: b"all", "stranger": b"x"}))
    assert [(each.error, bytes(each.value.assignment)) for each in syncs] == [
        (NONE, b""),
        (NONE, b"all"),
    ]


def test_an_assignment_that_is_committed_after_the_group_moved_on_changes_nothing():
    world = World()
    member, _ = world.enter()
    world.pass_ms(0)
    world.writes = False
    sync = world.sync(member=member, parts={member: b"x"})
    proposal = world.coordinator.take()
    newcomer = world.new_id()
    world.join(member=newcomer)
    assert sync.error is REBALANCING
    world.decide(proposal)
    assert world.state() == "PreparingRebalance"
    world.writes = True
    world.rebalance("g", [member, newcomer])

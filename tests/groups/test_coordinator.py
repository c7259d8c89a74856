"""The usual ways through a group: join, sync, heartbeat, commit, leave, failover."""

import copy

from raftlog.base.units import NEVER
from raftlog.groups.settings import GroupSettings
from raftlog.kafka.error_codes import ErrorCode
from tests.groups.world import SESSION_MS, World

NONE = ErrorCode.NONE


def test_a_first_member_joins_leads_and_is_assigned_what_it_says():
    world = World()
    member, join = world.enter()
    assert join.waits
    world.pass_ms(0)
    assert join.error is NONE
    assert (join.value.leader, join.value.generation_id) == (member, 1)
    assert [each.member_id for each in join.value.members] == [member]
    sync = world.sync(member=member, parts={member: b"all"})
    assert (sync.error, bytes(sync.value.assignment)) == (NONE, b"all")
    assert (sync.value.protocol_type, sync.value.protocol_name) == ("consumer", "range")
    assert world.heartbeat(member=member) is NONE
    assert world.state() == "Stable"


def test_a_second_member_makes_the_first_join_again():
    world = World()
    (first,) = world.stable()
    second, join = world.enter()
    assert world.heartbeat(member=first) is ErrorCode.REBALANCE_IN_PROGRESS
    assert join.waits
    again = world.join(member=first)
    assert (join.error, again.error) == (NONE, NONE)
    assert join.value.generation_id == again.value.generation_id == 2
    assert join.value.members == []
    assert {each.member_id for each in again.value.members} == {first, second}


def test_joins_are_answered_when_their_generation_is_on_record():
    world = World(writes=False)
    member = world.new_id()
    join = world.join(member=member)
    world.pass_ms(0)
    assert join.waits
    world.write()
    assert join.error is NONE
    assert world.machine.generation_floor("g") == 1


def test_followers_and_leader_are_answered_when_the_assignment_is_on_record():
    world = World()
    first = world.new_id()
    second = world.new_id()
    joins = [world.join(member=first), world.join(member=second)]
    world.pass_ms(0)
    assert [join.error for join in joins] == [NONE, NONE]
    follower = world.sync(member=second)
    assert follower.waits
    world.writes = False
    leader = world.sync(member=first, parts={first: b"1", second: b"2"})
    assert leader.waits
    assert world.state() == "CompletingRebalance"
    world.write()
    assert [bytes(each.value.assignment) for each in (leader, follower)] == [b"1", b"2"]
    stored = world.machine.group("g")
    assert {each.member_id: each.assignment for each in stored.members} == {
        first: b"1",
        second: b"2",
    }


def test_the_protocol_is_one_that_all_have_and_most_prefer():
    world = World()
    names = [("a", b""), ("b", b""), ("c", b"")]
    members = [world.new_id() for _ in range(3)]
    preferences = [names, names[1:], [names[2], names[1]]]
    joins = [
        world.join(member=member, protocols=some)
        for member, some in zip(members, preferences, strict=True)
    ]
    world.pass_ms(0)
    assert {join.value.protocol_name for join in joins} == {"b"}


def test_the_initial_delay_is_extended_by_newcomers_up_to_the_rebalance_timeout():
    world = World(settings=GroupSettings(initial_rebalance_delay_ms=3_000))
    _, first = world.enter(rebalance_ms=7_000)
    world.pass_ms(2_900)
    _, second = world.enter(rebalance_ms=7_000)
    world.pass_ms(200)
    assert first.waits
    world.pass_ms(2_700)
    _, third = world.enter(rebalance_ms=7_000)
    world.pass_ms(1_100)
    assert first.waits
    world.pass_ms(200)
    assert [each.error for each in (first, second, third)] == [NONE] * 3


def test_an_initial_delay_without_newcomers_is_not_extended():
    world = World(settings=GroupSettings(initial_rebalance_delay_ms=3_000))
    _, first = world.enter()
    world.pass_ms(2_999)
    assert first.waits
    world.pass_ms(1)
    assert first.error is NONE


def test_a_member_that_is_not_heard_of_is_removed_and_its_partitions_given_to_the_rest():
    world = World()
    first, second = world.stable(2)
    world.pass_ms(SESSION_MS - 1)
    assert world.heartbeat(member=first) is NONE
    world.pass_ms(1)
    assert world.heartbeat(member=first) is ErrorCode.REBALANCE_IN_PROGRESS
    assert world.heartbeat(member=second) is ErrorCode.UNKNOWN_MEMBER_ID
    again = world.join(member=first)
    assert [each.member_id for each in again.value.members] == [first]


def test_members_that_do_not_join_again_are_dropped_at_the_rebalance_timeout():
    world = World()
    first, second = world.stable(2, session_ms=30_000, rebalance_ms=20_000)
    join = world.join(member=first, session_ms=30_000, rebalance_ms=20_000)
    world.pass_ms(19_999)
    assert world.heartbeat(member=second) is ErrorCode.REBALANCE_IN_PROGRESS
    assert join.waits
    world.pass_ms(1)
    assert join.error is NONE
    assert [each.member_id for each in join.value.members] == [first]


def test_the_last_leave_is_answered_when_the_empty_group_is_on_record():
    world = World()
    (member,) = world.stable()
    world.writes = False
    leave = world.leave("g", member)
    assert leave.waits
    world.write()
    assert [each.error_code for each in leave.value.members] == [0]
    assert world.state() == "Empty"
    assert world.machine.group("g").members == ()


def test_an_empty_group_that_could_not_be_recorded_is_written_again():
    world = World()
    (member,) = world.stable()
    world.writes = False
    leave = world.leave("g", member)
    world.write(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert leave.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.state() == "Empty"
    assert len(world.machine.group("g").members) == 1
    world.writes = True
    world.pass_ms(1_000)
    assert world.machine.group("g").members == ()


def test_a_failed_generation_record_refuses_the_joins_and_the_group_tries_again():
    world = World()
    member = world.new_id()
    world.writes = False
    join = world.join(member=member)
    world.pass_ms(0)
    world.write(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert join.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.writes = True
    again = world.join(member=member)
    assert (again.error, again.value.generation_id) == (NONE, 2)


def test_a_failed_assignment_record_refuses_the_syncs_and_the_group_rebalances():
    world = World()
    member, join = world.enter()
    world.pass_ms(0)
    world.writes = False
    sync = world.sync(member=member, generation=join.value.generation_id, parts={member: b"x"})
    world.write(ErrorCode.REQUEST_TIMED_OUT)
    assert sync.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.state() == "PreparingRebalance"
    world.writes = True
    world.rebalance("g", [member])


def test_after_a_failover_members_go_on_with_full_sessions():
    world = World()
    first, second = world.stable(2)
    world.commit(member=first, generation=1)
    world.pass_ms(SESSION_MS - 1)
    world.fail_over()
    assert world.state() == "Stable"
    world.pass_ms(SESSION_MS - 1)
    assert world.heartbeat(member=first) is NONE
    assert world.committed() == 5
    world.pass_ms(1)
    assert world.heartbeat(member=second) is ErrorCode.UNKNOWN_MEMBER_ID


def test_no_generation_is_given_out_twice_over_a_failover_between_join_and_sync():
    world = World()
    (member,) = world.stable()
    join = world.join(member=member)
    assert join.value.generation_id == 2
    world.fail_over()
    assert world.sync(member=member, generation=2).error is ErrorCode.ILLEGAL_GENERATION
    assert world.heartbeat(member=member, generation=1) is NONE
    again = world.join(member=member)
    assert again.value.generation_id == 3


def test_no_join_is_answered_with_a_generation_before_one_that_was_given_out():
    """Found by simulated members whose coordinator was killed in a sync phase: the next one loaded
    generation 2, which had an assignment, and gave it to a follower after others had heard of 3."""
    world = World()
    leader, follower = world.stable(2)
    before = world.machine.group("g").generation
    world.join(member=leader)
    again = world.join(member=follower)
    assert again.value.generation_id == before + 1
    world.fail_over()
    assert world.heartbeat(member=follower, generation=before) is NONE
    late = world.join(member=follower)
    assert late.waits
    assert world.join(member=leader).value.generation_id == before + 2
    assert late.value.generation_id == before + 2


def test_lost_leadership_answers_everything_that_waits_once():
    world = World()
    first, second = world.stable(2)
    world.join(member=first)
    commit_later = World(writes=False)
    waiting = [world.join(member=world.new_id())]
    world.fail_over()
    assert [each.error for each in waiting] == [ErrorCode.NOT_COORDINATOR]
    undecided = commit_later.commit()
    proposal = commit_later.coordinator.take()
    commit_later.coordinator.close(ErrorCode.NOT_COORDINATOR)
    assert undecided.partition_errors == [ErrorCode.NOT_COORDINATOR]
    commit_later.coordinator.decided(proposal.token, None, *commit_later.time)
    assert not any(each.waits for each in world.replies)
    assert second


def test_requests_of_one_turn_share_one_batch():
    world = World(writes=False)
    replies = [world.commit("g", {("t", partition): 1}) for partition in range(50)]
    proposal = world.coordinator.take()
    assert world.coordinator.take() is None
    assert all(reply.waits for reply in replies)
    world.decide(proposal)
    assert [reply.partition_errors for reply in replies] == [[NONE]] * 50


def test_a_coordinator_can_be_copied_with_all_that_waits():
    world = World(writes=False)
    member = world.new_id()
    world.join(member=member)
    world.pass_ms(0)
    copied = copy.deepcopy(world)
    copied.write()
    world.write()
    assert copied.machine.digest() == world.machine.digest()
    assert [each.value for each in copied.replies] == [each.value for each in world.replies]


def test_a_quiet_coordinator_wants_to_be_called_for_retention_only():
    world = World()
    assert world.coordinator.next_deadline() < NEVER
    before = world.now_ms
    world.pass_ms(world.settings.retention_check_ms - 1)
    assert world.now_ms == before + world.settings.retention_check_ms - 1

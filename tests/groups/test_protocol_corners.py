"""Corners of the classic protocol that break real clients, one test each."""

import pytest

from raftlog.groups.settings import GroupSettings
from raftlog.kafka.error_codes import ErrorCode
from tests.groups.world import REBALANCE_MS, SESSION_MS, World

NONE = ErrorCode.NONE
REBALANCING = ErrorCode.REBALANCE_IN_PROGRESS
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
FENCED = ErrorCode.FENCED_INSTANCE_ID
TWO = (("range", b"1"), ("sticky", b"2"))


def static_group(world, *instances, **options):
    """A stable group of static members: their ids by instance id. The first one leads."""
    joins = {each: world.join(instance=each, **options) for each in instances}
    world.pass_ms(0)
    ids = {each: join.value.member_id for each, join in joins.items()}
    leader = joins[instances[0]].value.leader
    parts = {member: member.encode() for member in ids.values()}
    generation = joins[instances[0]].value.generation_id
    for instance, member in ids.items():
        sent = parts if member == leader else {}
        world.sync(member=member, generation=generation, parts=sent, instance=instance)
    assert world.state() == "Stable"
    return ids


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


# --- removal in a join phase, pending members -----------------------------------------------------


def test_a_leave_in_a_join_phase_ends_it_when_all_others_have_joined():
    world = World()
    first, second = world.stable(2)
    join = world.join(member=first)
    world.leave("g", second)
    assert join.error is NONE


def test_a_session_that_ends_in_a_join_phase_ends_it_when_all_others_have_joined():
    world = World()
    first, _ = world.stable(2)
    join = world.join(member=first)
    world.pass_ms(SESSION_MS)
    assert join.error is NONE


def test_a_join_phase_waits_for_a_pending_member_until_its_session_ends():
    world = World()
    (first,) = world.stable()
    world.new_id()
    join = world.join(member=first)
    world.pass_ms(SESSION_MS - 1)
    assert join.waits
    world.pass_ms(1)
    assert join.error is NONE


def test_a_pending_member_can_leave_which_ends_the_join_phase():
    world = World()
    (first,) = world.stable()
    pending = world.new_id()
    join = world.join(member=first)
    leave = world.leave("g", pending)
    assert [each.error_code for each in leave.value.members] == [0]
    assert join.error is NONE


def test_a_pending_member_that_leaves_does_not_disturb_a_stable_group():
    world = World()
    (first,) = world.stable()
    world.leave("g", world.new_id())
    assert world.heartbeat(member=first) is NONE


def test_a_pending_member_that_joins_after_its_session_is_unknown():
    world = World()
    world.stable()
    pending = world.new_id()
    world.pass_ms(SESSION_MS)
    assert world.join(member=pending).error is UNKNOWN


def test_a_join_with_an_unknown_id_does_not_make_a_group():
    world = World()
    assert world.join(member="unknown").error is UNKNOWN
    assert world.listed() == {}


def test_a_group_whose_only_member_never_joined_does_not_exist():
    world = World()
    world.new_id()
    assert world.listed() == {"g": ("Empty", "")}
    world.pass_ms(SESSION_MS)
    assert world.listed() == {}
    assert world.machine.state_bytes == 0


# --- a full group ---------------------------------------------------------------------------------


def limited(count):
    return GroupSettings(initial_rebalance_delay_ms=0, group_size_max=count)


def test_a_newcomer_to_a_full_stable_group_is_sent_away():
    world = World(settings=limited(2))
    world.stable(2)
    join = world.join()
    assert join.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert join.value.member_id == ""
    assert world.state() == "Stable"


def test_when_the_limit_was_lowered_the_last_to_join_again_are_sent_away():
    world = World()
    members = world.stable(3)
    world.settings = limited(2)
    world.fail_over()
    assert world.state() == "PreparingRebalance"
    joins = [world.join(member=member) for member in members]
    assert [join.error for join in joins] == [NONE, NONE, ErrorCode.GROUP_MAX_SIZE_REACHED]
    assert len(joins[0].value.members) == 2


# --- simple commits, fetches ----------------------------------------------------------------------


def test_a_simple_commit_into_a_group_with_members_is_of_an_unknown_member():
    world = World()
    world.stable()
    assert world.commit().partition_errors == [UNKNOWN]


def test_a_simple_commit_into_an_empty_group_is_fine():
    world = World()
    (member,) = world.stable()
    world.leave("g", member)
    assert world.commit().partition_errors == [NONE]
    assert world.committed() == 5


def test_a_simple_commit_into_no_group_makes_one_without_a_type():
    world = World()
    assert world.commit().partition_errors == [NONE]
    assert world.listed() == {"g": ("Empty", "")}
    world.fail_over()
    assert world.listed() == {"g": ("Empty", "")}
    assert world.committed() == 5


def test_a_fetch_without_topics_gives_all_of_them():
    world = World()
    world.commit("g", {("t", 0): 1, ("t", 2): 2, ("u", 0): 3})
    assert world.fetch("g", None) == {("t", 0): (1, ""), ("t", 2): (2, ""), ("u", 0): (3, "")}


def test_a_fetch_of_what_is_unknown_says_minus_one_and_empty_metadata_without_error():
    world = World()
    assert world.fetch("unknown", (("t", (0, 1)),)) == {("t", 0): (-1, ""), ("t", 1): (-1, "")}
    assert world.fetch("unknown", None) == {}


def test_null_metadata_is_legal_and_comes_back_as_an_empty_text():
    world = World()
    assert world.commit(metadata=None).partition_errors == [NONE]
    assert world.fetch() == {("t", 0): (5, "")}


def test_a_negative_offset_is_stored_as_kafka_does_and_reads_as_none_when_it_is_minus_one():
    world = World()
    assert world.commit("g", {("t", 0): -1, ("t", 1): -7}).partition_errors == [NONE, NONE]
    assert world.fetch("g", (("t", (0, 1)),)) == {("t", 0): (-1, ""), ("t", 1): (-7, "")}


# --- leave ----------------------------------------------------------------------------------------


def test_leave_from_version_3_answers_for_each_member_and_without_an_error_of_its_own():
    world = World()
    ids = static_group(world, "a", "b")
    leave = world.leave("g", ("", "a"), ("", "stranger"), ("unknown", None), (ids["b"], "b"))
    assert leave.error is NONE
    assert [each.error_code for each in leave.value.members] == [0, UNKNOWN, UNKNOWN, 0]
    assert leave.value.members[0].group_instance_id == "a"
    assert world.state() == "Empty"


@pytest.mark.parametrize("version", [0, 1, 2])
def test_leave_before_version_3_answers_for_its_one_member(version):
    world = World()
    (member,) = world.stable()
    assert world.leave("g", "unknown", version=version).error is UNKNOWN
    leave = world.leave("g", member, version=version)
    assert (leave.error, leave.value.members) == (NONE, ())
    assert world.leave("no group", member, version=version).error is UNKNOWN


def test_leave_of_an_unknown_group_names_each_member():
    world = World()
    leave = world.leave("g", "x", ("y", "i"))
    assert (leave.error, [each.error_code for each in leave.value.members]) == (NONE, [UNKNOWN] * 2)


# --- members that never sync ----------------------------------------------------------------------


def test_a_leader_that_never_syncs_is_removed_by_the_sync_timer_though_it_is_alive():
    world = World()
    members = [world.new_id() for _ in range(2)]
    for member in members:
        world.join(member=member)
    world.pass_ms(0)
    sync = world.sync(member=members[1])
    for _ in range(REBALANCE_MS // 5_000):
        world.pass_ms(5_000)
        world.heartbeat(member=members[0])
    assert sync.error is REBALANCING
    assert world.heartbeat(member=members[0]) is UNKNOWN
    again = world.join(member=members[1])
    assert (again.error, again.value.leader) == (NONE, members[1])


def test_a_follower_that_never_syncs_is_removed_though_the_group_is_stable():
    world = World()
    members = [world.new_id() for _ in range(2)]
    for member in members:
        world.join(member=member)
    world.pass_ms(0)
    world.sync(member=members[0], parts={})
    for _ in range(REBALANCE_MS // 5_000):
        assert world.state() == "Stable"
        for member in members:
            world.heartbeat(member=member)
        world.pass_ms(5_000)
    assert world.heartbeat(member=members[1]) is UNKNOWN
    assert world.heartbeat(member=members[0]) is REBALANCING


# --- joins of old versions and with bad contents --------------------------------------------------


@pytest.mark.parametrize("version", [0, 3])
def test_a_join_without_an_id_before_version_4_is_admitted_at_once(version):
    world = World()
    join = world.join(version=version)
    assert join.waits
    world.pass_ms(0)
    assert join.error is NONE
    assert join.value.member_id.startswith("c-")


def test_no_join_answer_has_a_null_protocol_name_or_leader():
    world = World()
    replies = [world.join(version=0), world.join("", version=0)]
    replies += [world.join(member="unknown", version=6), world.join(session_ms=1)]
    world.pass_ms(0)
    for reply in replies:
        assert reply.value.protocol_name is not None
        assert reply.value.leader is not None


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001, -1, 2**31 - 1])
def test_a_session_timeout_out_of_bounds_is_refused(session_ms):
    world = World()
    assert world.join(session_ms=session_ms).error is ErrorCode.INVALID_SESSION_TIMEOUT
    assert world.listed() == {}


@pytest.mark.parametrize("session_ms", [6_000, 1_800_000])
def test_a_session_timeout_at_its_bounds_is_taken(session_ms):
    assert World().join(session_ms=session_ms).error is ErrorCode.MEMBER_ID_REQUIRED


@pytest.mark.parametrize("options", [{"protocols": ()}, {"kind": ""}])
def test_a_join_without_protocols_or_type_is_refused(options):
    world = World()
    assert world.join(**options).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.listed() == {}


@pytest.mark.parametrize("options", [{"protocols": (("other", b""),)}, {"kind": "connect"}])
def test_a_join_that_shares_no_protocol_with_the_group_is_refused(options):
    world = World()
    world.stable()
    assert world.join(**options).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.state() == "Stable"


def test_version_0_has_no_rebalance_timeout_and_its_session_timeout_serves_for_both():
    world = World()
    join = world.join(version=0, rebalance_ms=-1)
    world.pass_ms(0)
    assert join.error is NONE
    world.pass_ms(SESSION_MS - 1)
    assert world.heartbeat(member=join.value.member_id) is NONE
    world.pass_ms(1)
    assert world.heartbeat(member=join.value.member_id) is UNKNOWN


# --- cooperative rebalancing ----------------------------------------------------------------------


def test_kept_partitions_are_committed_with_the_old_generation_in_a_join_phase():
    world = World()
    first, second = world.stable(2)
    world.join(member=first)
    commit = world.commit(member=second, generation=1)
    assert commit.partition_errors == [NONE]
    assert world.state() == "PreparingRebalance"


def test_two_rebalances_in_a_row_give_two_generations_and_keep_commits():
    world = World()
    members = world.stable(2)
    world.commit(member=members[0], generation=1)
    world.rebalance("g", members)
    world.rebalance("g", members)
    assert world.committed() == 5
    assert world.heartbeat(member=members[0], generation=3) is NONE


def test_a_commit_between_join_and_sync_is_told_of_the_rebalance():
    world = World()
    member, _ = world.enter()
    world.pass_ms(0)
    assert world.commit(member=member, generation=1).partition_errors == [REBALANCING]


def test_a_commit_keeps_the_session_alive():
    world = World()
    (member,) = world.stable()
    for _ in range(3):
        world.pass_ms(SESSION_MS - 1)
        assert world.commit(member=member, generation=1).partition_errors == [NONE]


# --- clients that went away -----------------------------------------------------------------------


def test_a_waiting_member_is_alive_whatever_its_session_says():
    world = World()
    first, second = world.stable(2)
    join = world.join(member=first)
    for _ in range(5):
        world.pass_ms(SESSION_MS - 1)
        world.heartbeat(member=second)
    assert join.waits
    world.join(member=second)
    assert join.error is NONE


def test_the_session_of_a_member_that_waited_begins_again_with_its_answer():
    world = World()
    (first,) = world.stable()
    world.join(member=first)
    world.pass_ms(SESSION_MS - 1)
    assert world.heartbeat(member=first, generation=2) is NONE


def test_a_first_join_that_waits_for_five_minutes_is_answered_and_its_member_removed():
    world = World()
    long = {"rebalance_ms": 1_000_000, "session_ms": 1_800_000}
    world.stable(1, **long)
    join = world.join(version=3, **long)
    world.pass_ms(299_999)
    assert join.waits
    world.pass_ms(1)
    assert (join.error, join.value.member_id) == (UNKNOWN, "")


# --- what tools are shown -------------------------------------------------------------------------


def test_describe_shows_members_with_host_subscription_and_assignment_when_stable():
    world = World()
    member = world.new_id(protocols=(("range", b"s"),))
    world.join(member=member, protocols=(("range", b"s"),))
    world.pass_ms(0)
    assert world.coordinator.describe("g", 5).members[0].member_metadata == b""
    world.sync(member=member, parts={member: b"a"})
    described = world.coordinator.describe("g", 5)
    assert (described.group_state, described.protocol_type, described.protocol_data) == (
        "Stable",
        "consumer",
        "range",
    )
    (shown,) = described.members
    assert (shown.member_id, shown.client_id, shown.client_host) == (member, "c", "/127.0.0.1")
    assert (bytes(shown.member_metadata), bytes(shown.member_assignment)) == (b"s", b"a")


def test_describe_of_an_unknown_group_is_dead_and_an_error_from_version_6():
    described = World().coordinator.describe("g", 5)
    assert (described.error_code, described.group_state) == (0, "Dead")
    described = World().coordinator.describe("g", 6)
    assert described.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert "g" in described.error_message


def test_list_filters_by_state_and_type_in_any_case():
    world = World()
    world.stable(1, "live")
    world.commit("simple")
    live, simple = ("Stable", "consumer"), ("Empty", "")
    assert world.listed() == {"live": live, "simple": simple}
    assert world.listed(["stable"]) == {"live": live}
    assert world.listed(["EMPTY", "nonsense"]) == {"simple": simple}
    assert world.listed(["nonsense"]) == {}
    assert world.listed(types=["Classic"]) == {"live": live, "simple": simple}
    assert world.listed(types=["consumer"]) == {}

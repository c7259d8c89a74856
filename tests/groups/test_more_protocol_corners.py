"""Corners of the classic protocol, continued: who leaves, full groups, simple commits, tools."""

import pytest

from raftlog.groups.settings import GroupSettings
from raftlog.kafka.error_codes import ErrorCode
from tests.groups.world import REBALANCE_MS, SESSION_MS, World, static_group

NONE = ErrorCode.NONE
REBALANCING = ErrorCode.REBALANCE_IN_PROGRESS
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID


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

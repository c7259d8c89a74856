"""The events that remove groups and offsets, and those that must not."""

from itertools import pairwise

import pytest

from raftlog.base import limits
from raftlog.groups.settings import GroupSettings
from raftlog.kafka.embedded import encode_embedded
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.consumer_protocol import ConsumerProtocolSubscription
from tests.groups.world import IDS, U_ID, World

NONE = ErrorCode.NONE
HOUR = 3_600_000
RETENTION = GroupSettings(
    initial_rebalance_delay_ms=0, offsets_retention_ms=10 * HOUR, retention_check_ms=HOUR
)


def subscription(*topics):
    body = ConsumerProtocolSubscription(topics=list(topics))
    return (("range", encode_embedded("ConsumerProtocolSubscription", 1, body)),)


def live(world, *topics, **options):
    return world.stable(1, protocols=subscription(*topics), **options)[0]


def stay(world, member, hours):
    """Time passes, and the member is heard of all the while."""
    for _ in range(hours * 4):
        world.pass_ms(HOUR // 4)
        assert world.heartbeat(member=member) is NONE


# --- DeleteGroups ---------------------------------------------------------------------------------


def test_deleting_a_group_removes_its_record_its_floor_and_all_offsets_in_one_batch():
    world = World()
    (member,) = world.stable()
    world.commit("g", {("t", 0): 1, ("u", 0): 2}, member=member, generation=1)
    world.leave("g", member)
    batches = len(world.log)
    assert world.delete().error is NONE
    assert len(world.log) == batches + 1
    assert world.machine.state_bytes == 0
    world.fail_over()
    assert world.listed() == {}
    assert world.committed() == -1


def many_offsets(count=2_500):
    """A group with so many offsets that a turn may not remove them all; nothing is written yet."""
    world = World()
    (member,) = world.stable()
    world.leave("g", member)
    for first in range(0, count, 500):
        world.commit("g", {("t", first + each): 1 for each in range(500)})
    world.writes = False
    return world


def one_write(world, error=None):
    """The log decides the next batch, in a turn of its own."""
    proposal = world.coordinator.take()
    assert proposal is not None
    assert world.coordinator.take() is None, "more than one batch in a turn"
    world.decide(proposal, error)


def test_a_group_with_many_offsets_is_removed_in_several_turns():
    """DeleteGroups wrote the tombstones of 100,000 offsets in one turn."""
    world = many_offsets()
    removal = world.delete()
    left = [2_500]
    while left[-1]:
        one_write(world)
        left.append(len(world.machine.offset_keys("g")))
        if left[-1]:
            assert removal.waits
            assert world.commit("g").partition_errors == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
            assert world.join("g").error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert left == [2_500, 1_500, 500, 0]
    assert removal.error is NONE
    assert world.machine.state_bytes == 0


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_a_group_is_removed_when_all_its_offsets_are(failing):
    """When tombstones of offsets failed and those of the group did not, offsets stayed behind that
    belonged to no group."""
    world = many_offsets()
    removal = world.delete()
    for _ in range(failing):
        one_write(world)
    one_write(world, ErrorCode.NOT_ENOUGH_REPLICAS)
    assert removal.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert len(world.machine.offset_keys("g")) == 2_500 - 1_000 * failing
    assert world.machine.group("g") is not None
    again = world.delete()
    world.write()
    assert again.error is NONE
    assert world.machine.state_bytes == 0


def test_a_coordinator_that_goes_in_the_middle_of_a_removal_leaves_a_group():
    world = many_offsets()
    removal = world.delete()
    one_write(world)
    world.fail_over()
    assert removal.error is ErrorCode.NOT_COORDINATOR
    assert list(world.listed()) == ["g"]
    again = world.delete()
    world.write()
    assert again.error is NONE
    assert world.machine.state_bytes == 0


def test_only_an_empty_group_that_exists_can_be_deleted():
    world = World()
    assert world.delete("unknown").error is ErrorCode.GROUP_ID_NOT_FOUND
    (member,) = world.stable()
    assert world.delete().error is ErrorCode.NON_EMPTY_GROUP
    world.leave("g", member)
    assert world.delete().error is NONE
    assert world.delete().error is ErrorCode.GROUP_ID_NOT_FOUND


def test_deleting_a_group_takes_commits_with_it_that_are_on_their_way():
    world = World(writes=False)
    commit = world.commit()
    removal = world.delete()
    world.write()
    assert (commit.partition_errors, removal.error) == ([NONE], NONE)
    assert world.machine.state_bytes == 0


def test_a_removal_that_could_not_be_written_leaves_the_group():
    world = World()
    world.commit()
    world.writes = False
    removal = world.delete()
    world.write(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert removal.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.committed() == 5
    assert world.commit().waits


def test_a_group_that_is_not_yet_recorded_as_empty_is_not_deleted():
    world = World()
    (member,) = world.stable()
    world.writes = False
    world.leave("g", member)
    assert world.delete().error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.write(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert world.delete().error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.writes = True
    world.pass_ms(1_000)
    assert world.delete().error is NONE


def test_a_member_that_was_given_an_id_before_its_group_was_deleted_is_unknown():
    world = World()
    world.commit()
    pending = world.new_id()
    assert world.delete().error is NONE
    assert world.join(member=pending).error is ErrorCode.UNKNOWN_MEMBER_ID


# --- OffsetDelete ---------------------------------------------------------------------------------


def test_offsets_of_topics_that_no_member_subscribes_to_can_be_deleted():
    world = World()
    member = live(world, "t")
    world.commit("g", {("t", 0): 1, ("u", 0): 2}, member=member, generation=1)
    reply = world.delete_offsets("g", (("t", (0,)), ("u", (0, 7))))
    subscribed = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert (reply.error, reply.partition_errors) == (NONE, [subscribed, NONE, NONE])
    assert (world.committed(), world.committed(topic="u")) == (1, -1)


def test_offsets_of_a_group_whose_subscriptions_cannot_be_read_stay():
    world = World()
    (member,) = world.stable(1, protocols=(("range", b"\x00\x01\xff"),))
    world.commit(member=member, generation=1)
    assert world.delete_offsets().partition_errors == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]
    assert world.committed() == 5


def test_offsets_of_an_empty_group_can_be_deleted_and_of_an_unknown_one_not():
    world = World()
    world.commit()
    reply = world.delete_offsets()
    assert (reply.error, reply.partition_errors) == (NONE, [NONE])
    assert world.committed() == -1
    assert world.delete_offsets().error is ErrorCode.GROUP_ID_NOT_FOUND


def test_offsets_of_a_live_group_of_another_type_cannot_be_deleted():
    world = World()
    world.stable(1, kind="connect")
    assert world.delete_offsets().error is ErrorCode.NON_EMPTY_GROUP


def test_a_deletion_of_offsets_that_could_not_be_written_says_so():
    world = World()
    world.commit()
    world.writes = False
    reply = world.delete_offsets()
    assert reply.waits
    world.write(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert reply.error is ErrorCode.NOT_COORDINATOR
    assert world.committed() == 5


# --- topics that are gone -------------------------------------------------------------------------


def test_offsets_of_a_deleted_topic_are_removed_in_all_groups():
    world = World()
    for group in "gh":
        world.commit(group, {("t", 0): 1, ("u", 0): 2})
    world.coordinator.topics_changed({"u": U_ID}.get, ["t"], *world.time)
    world.write()
    for group in "gh":
        assert world.machine.offset_keys(group) == [("u", 0)]


def test_a_topic_made_again_inherits_no_offsets():
    world = World()
    world.commit()
    again = {"t": b"T" * 16}.get
    assert world.fetch("g", ids=again) == {("t", 0): (-1, "")}
    world.coordinator.topics_changed(again, None, *world.time)
    world.write()
    assert world.machine.state_bytes == 0


def test_offsets_without_a_topic_id_stay_while_the_name_exists():
    world = World()
    world.commit("g", {("v", 0): 9})
    world.coordinator.topics_changed({"v": b"v" * 16}.get, None, *world.time)
    world.write()
    assert world.committed(topic="v") == 9
    world.coordinator.topics_changed({}.get, None, *world.time)
    world.write()
    assert world.committed(topic="v") == -1


def test_a_commit_on_its_way_to_a_topic_that_is_deleted_meanwhile_is_removed_too():
    world = World(writes=False)
    commit = world.commit()
    world.coordinator.topics_changed({}.get, ["t"], *world.time)
    world.write()
    assert commit.partition_errors == [NONE]
    assert world.committed() == -1


def test_tombstones_that_could_not_be_written_are_tried_again():
    world = World()
    world.commit()
    world.writes = False
    world.coordinator.topics_changed({}.get, ["t"], *world.time)
    world.write(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert world.committed() == 5
    world.writes = True
    world.pass_ms(1_000)
    assert world.committed() == -1


def test_a_turn_looks_at_a_bounded_number_of_offsets_of_a_deleted_topic():
    """The deletion of any topic walked all offsets of all groups, in one turn."""
    world = World()
    for group in "ghi":
        world.commit(group, {("t", each): 1 for each in range(900)} | {("u", 0): 2})
    world.coordinator.topics_changed({"u": U_ID}.get, ["t"], *world.time)
    world.write()
    left = [2_700, len(world.machine.offsets_of_topic("t"))]
    while left[-1] and len(left) < 10:
        world.pass_ms(1)
        left.append(len(world.machine.offsets_of_topic("t")))
    assert all(0 < a - b <= limits.OFFSETS_SWEPT_AT_ONCE for a, b in pairwise(left))
    assert [world.machine.offset_keys(group) for group in "ghi"] == [[("u", 0)]] * 3
    assert world.machine.topics() == ["u"]


def test_a_sweep_waits_while_too_much_is_undecided_and_spares_what_is_committed_meanwhile(
    monkeypatch,
):
    world = World()
    world.commit("g", {("t", each): 1 for each in range(10)})
    monkeypatch.setattr("raftlog.groups.proposals.GROUPS_UNDECIDED_UNITS_MAX", 1)
    world.writes = False
    world.commit("h", {("u", 0): 1})
    again = {"t": b"T" * 16, "u": U_ID}
    world.coordinator.topics_changed(again.get, ["t"], *world.time)
    world.write()
    assert len(world.machine.offset_keys("g")) == 10
    monkeypatch.setitem(IDS, "t", again["t"])
    world.commit("g", {("t", 3): 7})
    world.writes = True
    world.pass_ms(3_000)
    assert world.machine.offset_keys("g") == [("t", 3)]
    assert world.fetch("g", ids=again.get) == {("t", 0): (-1, "")}


def test_expiry_looks_at_a_bounded_number_of_offsets_in_a_turn(monkeypatch):
    monkeypatch.setattr("raftlog.groups.removal.OFFSETS_EXPIRED_AT_ONCE", 10)
    world = World()
    for number in range(5):
        world.commit(f"g{number}", {("t", each): 1 for each in range(10)})
    world.pass_ms(world.settings.offsets_retention_ms + world.settings.retention_check_ms)
    assert world.listed() == {}


def test_expiry_looks_at_one_large_group_in_several_turns(monkeypatch):
    monkeypatch.setattr("raftlog.groups.removal.OFFSETS_EXPIRED_AT_ONCE", 10)
    world = World(settings=RETENTION)
    world.commit("f", {("t", 0): 1})
    world.commit("g", {("t", each): 1 for each in range(35)})
    world.commit("h", {("t", each): 1 for each in range(8)})
    world.pass_ms(9 * HOUR)
    world.commit("g", {("t", 20): 2})
    left, before = [35], world.now_ms
    while left[-1] > 1 and world.now_ms < before + 2 * HOUR:
        world.pass_ms(1)
        left.append(len(world.machine.offset_keys("g")))
    assert all(a - b <= 10 for a, b in pairwise(left))
    world.pass_ms(2)
    assert list(world.listed()) == ["g"]
    assert world.machine.offset_keys("g") == [("t", 20)]
    world.pass_ms(10 * HOUR)
    assert world.machine.state_bytes == 0


@pytest.mark.parametrize("decided_first", [True, False])
def test_tombstones_tried_again_spare_what_was_committed_since(decided_first):
    world = World()
    world.commit()
    world.writes = False
    world.coordinator.topics_changed({}.get, ["t"], *world.time)
    world.write(ErrorCode.NOT_ENOUGH_REPLICAS)
    world.commit("g", {("t", 0): 77})
    world.writes = decided_first
    world.pass_ms(1_000)
    world.writes = True
    world.pass_ms(5_000)
    assert world.committed() == 77


# --- expiry ---------------------------------------------------------------------------------------


def test_a_simple_commit_expires_a_retention_time_after_it():
    world = World(settings=RETENTION)
    world.commit("g", {("t", 0): 1})
    world.pass_ms(5 * HOUR)
    world.commit("g", {("t", 1): 2})
    world.pass_ms(5 * HOUR - 1)
    assert world.committed() == 1
    world.pass_ms(HOUR)
    assert (world.committed(), world.committed(partition=1)) == (-1, 2)
    world.pass_ms(5 * HOUR)
    assert world.listed() == {}
    assert world.machine.state_bytes == 0


def test_offsets_of_a_group_expire_a_retention_time_after_it_became_empty():
    world = World(settings=RETENTION)
    member = live(world, "t", session_ms=1_800_000)
    world.commit(member=member, generation=1)
    stay(world, member, 12)
    world.leave("g", member)
    world.pass_ms(9 * HOUR)
    assert world.committed() == 5
    world.pass_ms(2 * HOUR)
    assert world.listed() == {}


def test_a_stable_groups_offsets_expire_for_topics_that_no_member_subscribes_to():
    world = World(settings=RETENTION)
    member = live(world, "t", session_ms=1_800_000)
    world.commit("g", {("t", 0): 1, ("u", 0): 2}, member=member, generation=1)
    stay(world, member, 12)
    assert world.machine.offset_keys("g") == [("t", 0)]
    assert world.state() == "Stable"


def test_a_live_group_of_another_type_loses_no_offsets():
    world = World(settings=RETENTION)
    (member,) = world.stable(1, kind="connect", session_ms=1_800_000)
    world.commit(member=member, generation=1)
    stay(world, member, 15)
    assert world.committed() == 5


def test_a_clients_own_retention_time_goes_before_the_brokers():
    world = World(settings=RETENTION)
    world.commit("short", retention_ms=2 * HOUR, version=4)
    world.commit("long", retention_ms=20 * HOUR, version=4)
    world.commit("longest", retention_ms=2**63 - 1, version=4)
    world.pass_ms(3 * HOUR)
    assert list(world.listed()) == ["long", "longest"]
    world.pass_ms(16 * HOUR)
    assert list(world.listed()) == ["long", "longest"]
    world.pass_ms(2 * HOUR)
    assert list(world.listed()) == ["longest"]


def test_nothing_expires_while_the_wall_clock_is_not_agreed():
    world = World(settings=RETENTION)
    world.commit()
    world.wall_skew_ms = 1_000 * HOUR
    world.pass_ms(5 * HOUR, wall_agreed=False)
    assert world.committed() == 5
    world.wall_skew_ms = 0
    world.pass_ms(HOUR)
    assert world.committed() == 5


def test_a_commit_on_its_way_keeps_its_partition_from_expiring():
    world = World(settings=RETENTION)
    world.commit()
    world.pass_ms(10 * HOUR - 1)
    world.writes = False
    world.commit("g", {("t", 0): 6})
    world.pass_ms(HOUR)
    world.write()
    assert world.committed() == 6


def test_an_empty_group_without_offsets_is_removed_at_the_next_look():
    world = World(settings=RETENTION)
    (member,) = world.stable()
    world.leave("g", member)
    assert world.listed() == {"g": ("Empty", "consumer")}
    world.pass_ms(HOUR)
    assert world.listed() == {}
    assert world.machine.state_bytes == 0


def test_a_floor_whose_group_never_came_about_is_removed():
    world = World(settings=RETENTION)
    world.enter()
    world.pass_ms(0)
    world.fail_over()
    assert world.machine.generation_floor("g") == 1
    world.pass_ms(HOUR)
    assert world.machine.state_bytes == 0


def test_many_groups_are_looked_through_in_several_turns():
    world = World(settings=RETENTION)
    for number in range(250):
        world.commit(f"g{number}")
    world.pass_ms(11 * HOUR)
    assert world.listed() == {}

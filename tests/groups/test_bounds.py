"""A hostile client is refused by clear errors, in bounded memory, and the others are served."""

import pytest

from raftlog.base import limits
from raftlog.base.units import millis
from raftlog.groups.records import floor_record, group_record, offset_record
from raftlog.groups.settings import GroupSettings
from raftlog.groups.stored import StoredGroup, StoredMember, StoredOffset
from raftlog.kafka.error_codes import ErrorCode
from tests.groups.feeding import feed
from tests.groups.world import SESSION_MS, World

NONE = ErrorCode.NONE
SOME = StoredMember("m", None, "", "", -7, 2**31 - 1, b"", b"")
HOSTILE_GROUPS = {
    "twins": (SOME, SOME),
    "one instance": (SOME._replace(instance_id="i"), SOME._replace(member_id="n", instance_id="i")),
    "no session": (SOME._replace(session_timeout_ms=-1),),
}
FULL = ErrorCode.GROUP_MAX_SIZE_REACHED
AWAY = ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_ten_thousand_members_that_never_sync_are_bounded_and_go_away():
    world = World()
    joins = [world.join("bad", version=3) for _ in range(10_000)]
    refused = [join for join in joins if not join.waits]
    assert len(refused) == 10_000 - limits.GROUP_MEMBERS_MAX
    assert {join.error for join in refused} == {FULL}
    world.pass_ms(0)
    assert sum(join.error is NONE for join in joins) == limits.GROUP_MEMBERS_MAX
    world.rebalance("good", [world.new_id("good")])
    world.pass_ms(100_000)
    assert world.state("bad") == "Empty"


def test_ten_thousand_ids_that_are_never_joined_with_are_bounded_and_go_away():
    world = World()
    replies = [world.join("bad") for _ in range(10_000)]
    errors = [reply.error for reply in replies]
    assert errors.count(ErrorCode.MEMBER_ID_REQUIRED) == limits.GROUP_MEMBERS_MAX
    assert errors.count(FULL) == 10_000 - limits.GROUP_MEMBERS_MAX
    world.pass_ms(SESSION_MS)
    assert world.listed() == {}
    assert world.coordinator._shared.live_bytes.total == 0


def test_groups_without_end_are_bounded_by_the_bytes_of_what_lives(monkeypatch):
    monkeypatch.setattr("raftlog.groups.joining.GROUPS_LIVE_BYTES_MAX", 100_000)
    world = World()
    errors = [world.join(f"g{number}").error for number in range(200)]
    taken = errors.count(ErrorCode.MEMBER_ID_REQUIRED)
    assert 0 < taken < 100
    assert set(errors[taken:]) == {FULL}


def test_subscriptions_are_bounded_over_all_groups(monkeypatch):
    monkeypatch.setattr("raftlog.groups.joining.GROUPS_LIVE_BYTES_MAX", 100_000)
    world = World()
    large = (("range", b"x" * 60_000),)
    assert world.join("a", version=3, protocols=large).waits
    assert world.join("b", version=3, protocols=large).error is FULL
    assert world.join("c", version=3).waits


def test_a_member_whose_subscription_outgrows_the_bound_is_sent_away(monkeypatch):
    world = World()
    (member,) = world.stable()
    monkeypatch.setattr("raftlog.groups.joining.GROUPS_LIVE_BYTES_MAX", 100_000)
    join = world.join(member=member, protocols=(("range", b"x" * 200_000),))
    assert join.error is FULL
    assert world.state() == "Empty"


def test_metadata_of_a_mebibyte_is_refused_and_its_neighbours_are_committed():
    world = World()
    assert world.commit(metadata="x" * 2**20).partition_errors == [
        ErrorCode.OFFSET_METADATA_TOO_LARGE
    ]
    assert world.listed() == {}
    assert world.commit(metadata="x" * 4_096).partition_errors == [NONE]
    assert world.commit(metadata="x" * 4_097).partition_errors == [
        ErrorCode.OFFSET_METADATA_TOO_LARGE
    ]


def test_a_subscription_of_a_mebibyte_is_refused_when_its_group_cannot_be_recorded():
    world = World()
    member = world.new_id()
    world.join(member=member, protocols=(("range", b"x" * 2**20),))
    world.pass_ms(0)
    assert world.sync(member=member).error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert world.state() == "PreparingRebalance"
    world.rebalance("other", [world.new_id("other")])


def test_an_assignment_above_the_batch_limit_is_refused_to_all_who_wait():
    world = World()
    members = [world.new_id() for _ in range(2)]
    for member in members:
        world.join(member=member)
    world.pass_ms(0)
    follower = world.sync(member=members[1])
    leader = world.sync(member=members[0], parts={members[1]: b"x" * (2**20 + 100)})
    too_large = ErrorCode.UNKNOWN_SERVER_ERROR
    assert (follower.error, leader.error) == (too_large, too_large)


def test_a_static_rejoin_that_outgrows_the_batch_limit_keeps_the_old_id():
    world = World()
    join = world.join(instance="i")
    world.pass_ms(0)
    old = join.value.member_id
    world.sync(member=old, instance="i")
    large = (("range", b"x" * (2**20 + 100)),)
    again = world.join(instance="i", protocols=large)
    assert again.error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert world.heartbeat(member=old, instance="i") is NONE


def test_a_commit_larger_than_a_batch_is_answered_when_all_its_batches_are_decided():
    world = World(settings=GroupSettings(batch_bytes_max=limits.GROUPS_BATCH_BYTES_MIN))
    world.writes = False
    many = {("t", partition): partition for partition in range(3_000)}
    reply = world.commit("g", many)
    proposals = []
    while (proposal := world.coordinator.take()) is not None:
        proposals.append(proposal)
    assert len(proposals) > 1
    assert all(len(each.batch) <= limits.GROUPS_BATCH_BYTES_MIN for each in proposals)
    for proposal in proposals[1:]:
        world.decide(proposal)
    assert reply.waits
    world.decide(proposals[0])
    assert set(reply.partition_errors) == {NONE}
    assert len(world.fetch("g", None)) == 3_000


def test_a_commit_of_which_one_batch_failed_is_not_said_to_be_committed():
    world = World(settings=GroupSettings(batch_bytes_max=limits.GROUPS_BATCH_BYTES_MIN))
    world.writes = False
    reply = world.commit("g", {("t", partition): 1 for partition in range(3_000)})
    world.decide(world.coordinator.take())
    world.write(ErrorCode.MESSAGE_TOO_LARGE)
    assert set(reply.partition_errors) == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}


def test_requests_beyond_what_may_be_undecided_are_refused_before_they_propose(monkeypatch):
    monkeypatch.setattr("raftlog.groups.proposals.GROUPS_UNDECIDED_UNITS_MAX", 10)
    world = World(writes=False)
    replies = [world.commit("g", {("t", each): 1}) for each in range(20)]
    assert [reply.waits for reply in replies] == [True] * 10 + [False] * 10
    assert {reply.partition_errors[0] for reply in replies[10:]} == {AWAY}
    assert world.delete().error is AWAY
    assert world.delete_offsets().error is AWAY
    world.write()
    assert world.commit().waits
    world.write()
    assert world.coordinator._shared.proposals.undecided_bytes == 0
    assert world.coordinator._shared.proposals.undecided_units == 0


def test_a_leaders_sync_beyond_what_may_be_undecided_is_told_to_come_again(monkeypatch):
    world = World()
    member, _ = world.enter()
    world.pass_ms(0)
    world.writes = False
    monkeypatch.setattr("raftlog.groups.proposals.GROUPS_UNDECIDED_UNITS_MAX", 1)
    world.commit("other")
    assert world.sync(member=member).error is AWAY
    world.write()
    world.writes = True
    assert world.sync(member=member).error is NONE


@pytest.fixture
def small_state(monkeypatch):
    monkeypatch.setattr("raftlog.groups.shared.GROUPS_STATE_BYTES_MAX", 8_000)


@pytest.mark.usefixtures("small_state")
def test_offsets_beyond_the_bytes_of_the_state_are_refused_and_known_ones_go_on():
    world = World()
    errors = [world.commit("g", {("t", each): 1}).partition_errors[0] for each in range(200)]
    taken = errors.count(NONE)
    assert 10 < taken < 150
    assert set(errors[taken:]) == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
    assert world.commit("g", {("t", 0): 2}).partition_errors == [NONE]
    assert world.machine.state_bytes <= 8_000
    assert world.join("new").error is AWAY
    assert world.delete().error is NONE
    assert world.join("new").error is ErrorCode.MEMBER_ID_REQUIRED


def test_committed_bytes_may_say_anything_and_the_coordinator_serves_on():
    world = World()
    for machine in (world.machine, world.follower):
        feed(machine, offset_record("\u0000", "t", 0, StoredOffset(-9, 0, "", 0)))
        for group_id, members in HOSTILE_GROUPS.items():
            stored = StoredGroup("consumer", -5, None, "no member", -1, members)
            feed(machine, group_record(group_id, stored))
    world.lead()
    assert world.committed("\u0000") == -9
    assert len(world.coordinator.describe("twins", 5).members) == 1
    assert len(world.coordinator.describe("one instance", 5).members) == 1
    world.stable(2)
    world.pass_ms(1_800_001)
    assert {state for state, _ in world.listed().values()} == {"Empty"}


def test_ids_and_names_of_any_length_are_taken():
    world = World()
    name = "n" * 32_767
    reply = world.join(name, client="c" * 32_767)
    assert len(reply.value.member_id) < 400
    join = world.join(name, reply.value.member_id, kind="k" * 32_767)
    world.pass_ms(0)
    assert join.error is NONE
    world.leave(name, reply.value.member_id)
    assert world.state(name) == "Empty"
    assert world.machine.group(name).protocol_type == "k" * 32_767


def test_the_largest_generation_is_followed_by_the_first():
    world = World()
    for machine in (world.machine, world.follower):
        feed(machine, floor_record("g", 2**31 - 1))
    _, join = world.enter()
    world.pass_ms(0)
    assert join.value.generation_id == 1


def test_a_static_member_without_a_rebalance_timeout_costs_no_endless_turns():
    """The join phase was put off by that timeout again and again: of 0 ms, until its session
    ended."""
    world = World()
    static = StoredMember("i-1", "i", "", "", 0, 1_800_000, b"", b"")
    for machine in (world.machine, world.follower):
        feed(machine, group_record("g", StoredGroup("consumer", 1, "range", "i-1", 0, (static,))))
    world.lead()
    member, _ = world.enter(rebalance_ms=0)
    assert world.state() == "PreparingRebalance"
    world.leave("g", member)
    turns = 0
    end = world.now_ms + 60_000
    while (due := -(-world.coordinator.next_deadline() // millis(1))) <= end and turns < 1_000:
        world.now_ms = max(world.now_ms, due)
        world.coordinator.tick(*world.time, wall_agreed=True)
        turns += 1
    assert 0 < turns < 200


def test_joins_that_would_write_are_refused_while_too_much_is_undecided(monkeypatch):
    world = World()
    (member,) = world.stable()
    world.writes = False
    monkeypatch.setattr("raftlog.groups.proposals.GROUPS_UNDECIDED_UNITS_MAX", 1)
    world.commit("other")
    assert world.join(member=member).error is AWAY
    assert world.heartbeat(member=member) is NONE
    world.write()
    assert world.join(member=member).waits


@pytest.mark.parametrize("what", ["client", "kind", "group", "instance"])
def test_names_of_members_count_like_their_subscriptions(monkeypatch, what):
    """Only subscriptions were counted: names of 32,767 characters each came beside them."""
    monkeypatch.setattr("raftlog.groups.joining.GROUPS_LIVE_BYTES_MAX", 100_000)
    world = World()
    long = "n" * 30_000
    replies = []
    for number in range(10):
        name = f"{number}{long}" if what == "group" else f"g{number}"
        options = {what: f"{number}{long}"} if what != "group" else {}
        replies.append(world.join(name, version=3, **options))
    world.pass_ms(0)
    codes = [reply.error for reply in replies]
    assert codes == [NONE] * 3 + [FULL] * 7
    assert world.coordinator._shared.live_bytes.total <= 100_000
    world.pass_ms(100_000)
    assert world.coordinator._shared.live_bytes.total == 0

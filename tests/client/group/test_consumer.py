"""The consumer of a group against a scripted coordinator, in virtual time."""

import pytest

from raftlog.base.errors import LocalMisuse, WrongValue
from raftlog.base.units import millis
from raftlog.client.core.errors import CommitFailed
from raftlog.client.core.group.consumer import PartitionChange
from raftlog.client.core.group.membership import Phase
from raftlog.client.core.group.options import ConsumerOptions
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.versions import ApiKey
from tests.client.fake_cluster import START
from tests.client.group.world import (
    ALL,
    COOPERATIVE,
    EAGER,
    Reader,
    commit,
    generation,
    joined,
    place,
    start,
)
from tests.client.test_fetcher import fill

# --- sharing --------------------------------------------------------------------------------------


def test_one_member_reads_everything_once_and_in_order():
    world = start()
    reader = world.reader("t")
    world.run_until(lambda: len(reader.records) == 36)
    for partition in range(4):
        offsets = [each.offset for each in reader.records if each.partition == partition]
        assert offsets == list(range(9))


@pytest.mark.parametrize(
    "strategy", ["range", "roundrobin", "sticky", "cooperative-sticky", "range,cooperative-sticky"]
)
def test_two_members_share_and_the_one_that_is_left_takes_over(strategy):
    world = start()
    more = {"partition_assignment_strategy": tuple(strategy.split(","))}
    one, two = world.reader("t", **more), world.reader("t", **more)
    joined(world, one, two)
    assert len(one.places()) == len(two.places()) == 2
    world.kill(two)
    world.groups.expire("g", two.consumer.membership.identity.member_id)
    joined(world, one)
    assert not one.errors


def test_the_join_with_the_given_id_follows_at_once():
    """The answer with the id ended the turn, and the next turn came with another timer: half a
    second later, in each start of a consumer."""
    world = start()
    reader = world.reader("t")
    reader.act()
    reader.harness.turn()
    reader.harness.run_until(lambda: reader.consumer.membership.phase is Phase.STABLE)
    assert world.cluster.count(ApiKey.JOIN_GROUP) == 2
    assert reader.harness.now - START < millis(40)


def test_eager_members_give_up_all_before_they_join():
    world = start()
    one = world.reader("t", **EAGER)
    joined(world, one)
    two = world.reader("t", **EAGER)
    joined(world, one, two)
    assert one.told(PartitionChange.ASSIGNED) == [ALL, ALL[:2]]
    assert one.told(PartitionChange.REVOKED) == [ALL]
    assert two.told(PartitionChange.ASSIGNED) == [ALL[2:]]


def test_cooperative_members_keep_what_stays_theirs():
    world = start()
    one = world.reader("t", **COOPERATIVE)
    joined(world, one)
    two = world.reader("t", **COOPERATIVE)
    joined(world, one, two)
    (gone,) = one.told(PartitionChange.REVOKED)
    assert len(gone) == 2
    assert [each for each in two.told(PartitionChange.ASSIGNED) if each] == [gone]
    assert one.told(PartitionChange.LOST) == two.told(PartitionChange.LOST) == []


@pytest.mark.parametrize("api", [ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FETCH])
def test_an_answer_that_comes_after_its_partitions_went_begins_nothing(api):
    """A member had asked where its partitions begin when a rebalance took them. The late answer let
    it fetch them; it threw the first records away, as of partitions that were not its own, and when
    it got the partitions back it gave out what came behind these, and committed that.
    """
    world = start()
    world.cluster.holding.add(api)
    first, second = world.reader("t", **EAGER), world.reader("t", **EAGER)
    joined(world, first, second)
    world.run_until(lambda: world.cluster.held)
    second.begin_work()
    third = world.reader("t", **EAGER)
    world.run_until(lambda: first.places() == [])
    world.cluster.let_go(api)
    world.run_for(millis(200))
    world.cluster.holding.add(ApiKey.OFFSET_FETCH)
    second.end_work()
    readers = (first, second, third)
    joined(world, *readers)
    for each in world.cluster.topics["t"]:
        fill(each, 1)
    world.run_for(millis(200))
    world.cluster.let_go(ApiKey.OFFSET_FETCH)
    world.run_until(
        lambda: len({(r.partition, r.offset) for each in readers for r in each.records}) == 48
    )


def test_nothing_is_skipped_and_little_comes_twice_when_partitions_move():
    """Records that the user had handled were committed before the partition went."""
    world = start()
    one = world.reader("t", records_max=1)
    world.run_until(lambda: len(one.records) >= 10)
    two = world.reader("t")
    world.run_until(lambda: len({(r.partition, r.offset) for r in one.records + two.records}) == 36)
    assert len(one.records) + len(two.records) - 36 <= 1, "only the last record was not done with"


# --- what coordinators answer ---------------------------------------------------------------------

AGAIN = [
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
]


@pytest.mark.parametrize("code", AGAIN)
@pytest.mark.parametrize("api", [ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP])
def test_a_join_goes_on_after_an_answer_that_passes(api, code):
    world = start()
    world.cluster.refuse(api, code, code)
    reader = world.reader("t")
    joined(world, reader)
    assert not reader.errors
    assert world.cluster.count(api) >= 3


@pytest.mark.parametrize(
    ("code", "rejoins", "loses"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, False, False),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, False, False),
        (ErrorCode.NOT_COORDINATOR, False, False),
        (ErrorCode.REBALANCE_IN_PROGRESS, True, False),
        (ErrorCode.ILLEGAL_GENERATION, True, True),
        (ErrorCode.UNKNOWN_MEMBER_ID, True, True),
    ],
)
@pytest.mark.parametrize("more", [EAGER, COOPERATIVE])
def test_a_heartbeat_is_answered_with_an_error(more, code, rejoins, loses):
    world = start()
    reader = world.reader("t", **more)
    joined(world, reader)
    before = world.cluster.count(ApiKey.JOIN_GROUP)
    world.cluster.refuse(ApiKey.HEARTBEAT, code)
    world.run_for(millis(500))
    joined(world, reader)
    assert (world.cluster.count(ApiKey.JOIN_GROUP) > before) == rejoins
    assert reader.told(PartitionChange.LOST) == ([ALL] if loses else [])
    assert not reader.errors


def test_a_member_that_the_coordinator_does_not_know_joins_without_its_id():
    world = start()
    reader = world.reader("t")
    joined(world, reader)
    old = reader.consumer.membership.identity.member_id
    world.groups.expire("g", old)
    world.run_until(lambda: reader.told(PartitionChange.LOST))
    joined(world, reader)
    assert reader.consumer.membership.identity.member_id != old
    assert reader.told(PartitionChange.LOST) == [ALL]


def test_a_group_that_is_refused_is_an_error_of_each_poll_and_no_storm():
    """Brokers without groups, and brokers that allow none, answer so."""
    world = start()
    world.cluster.refuse(ApiKey.JOIN_GROUP, *[ErrorCode.GROUP_AUTHORIZATION_FAILED] * 1000)
    reader = world.reader("t")
    world.run_for(millis(5_000))
    assert {error.code for error in reader.errors} == {ErrorCode.GROUP_AUTHORIZATION_FAILED}
    assert "group g" in str(reader.errors[0])
    assert world.cluster.count(ApiKey.JOIN_GROUP) < 20, "it is asked again with backoff"


def test_a_broker_without_the_protocol_of_groups_says_so():
    world = start()
    world.groups.offered = False
    reader = world.reader("t")
    world.run_until(lambda: reader.errors)
    assert "does not serve SyncGroup" in str(reader.errors[0])


@pytest.mark.parametrize("code", [23, 24, 26, 81, -1])
def test_what_only_a_person_can_change_is_told(code):
    world = start()
    world.cluster.refuse(ApiKey.JOIN_GROUP, code)
    reader = world.reader("t")
    world.run_until(lambda: reader.errors)
    assert reader.errors[0].code == code
    joined(world, reader)


@pytest.mark.parametrize("api", [ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT])
@pytest.mark.parametrize("how", ["cuts", "losses"])
def test_a_connection_breaks_before_or_after_the_coordinator_acted(api, how):
    world = start()
    getattr(world.cluster, how)[api] = 2
    reader = world.reader("t")
    world.run_for(millis(1_000))
    joined(world, reader)
    assert reader.told(PartitionChange.LOST) == []


def test_the_coordinator_moves_and_the_membership_goes_on():
    world = start()
    reader = world.reader("t")
    joined(world, reader)
    before = generation(world)
    world.groups.move_to(2)
    world.run_for(millis(1_000))
    assert generation(world) == before
    assert reader.places() == ALL
    assert not reader.errors


@pytest.mark.parametrize("api", [ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT])
def test_a_coordinator_that_falls_silent_and_has_moved_is_left_within_seconds(api):
    """A paused broker answers nothing and breaks no connection. The session would be over before
    the request's own timeout."""
    world = start()
    reader = world.reader("t")
    if api == ApiKey.HEARTBEAT:
        joined(world, reader)
    elif api == ApiKey.SYNC_GROUP:
        world.run_until(lambda: reader.consumer.membership.phase is Phase.SYNCING)
    world.groups.silent.add(1)
    world.run_for(millis(300))
    world.groups.move_to(2)
    began = world.now
    world.run_until(lambda: reader.consumer.membership._asked in (None, 2), steps=100_000)
    joined(world, reader)
    beats = [node for node, key, _ in world.cluster.requests if key == ApiKey.HEARTBEAT]
    world.run_until(
        lambda: any(
            node == 2 and key == ApiKey.HEARTBEAT for node, key, _ in world.cluster.requests
        )
    )
    assert world.now - began < millis(4_000), beats


# --- static members -------------------------------------------------------------------------------


def test_a_static_member_comes_back_to_its_partitions_and_never_says_goodbye():
    world = start()
    one = world.reader("t", group_instance_id="one")
    two = world.reader("t", group_instance_id="two")
    joined(world, one, two)
    had = one.places()
    number = next(one.harness._numbers)
    one.consumer.leave(number)
    one.harness.turn()
    assert one.harness.results.pop(number) is None
    world.kill(one)
    assert world.cluster.count(ApiKey.LEAVE_GROUP) == 0
    again = world.reader("t", group_instance_id="one")
    joined(world, again, two)
    assert again.places() == had


def test_a_second_consumer_with_the_same_instance_fences_the_first():
    world = start()
    one = world.reader("t", group_instance_id="same")
    joined(world, one)
    two = world.reader("t", group_instance_id="same")
    world.run_until(lambda: one.errors)
    assert one.errors[0].code == ErrorCode.FENCED_INSTANCE_ID
    assert "its own" in one.errors[0].do
    assert one.told(PartitionChange.LOST) == [ALL]
    joined(world, two)
    before = world.cluster.count(ApiKey.JOIN_GROUP)
    count = len(one.errors)
    world.run_for(millis(2_000))
    assert len(one.errors) > count, "every poll says so"
    assert world.cluster.count(ApiKey.JOIN_GROUP) == before, "it must not fence the other in turn"


# --- polls ----------------------------------------------------------------------------------------


def test_a_rebalance_waits_for_the_user_to_poll_while_heartbeats_go_on():
    world = start()
    one = world.reader("t", **EAGER)
    joined(world, one)
    one.begin_work()
    two = world.reader("t", **EAGER)
    world.run_for(millis(3_000))
    assert one.places() == ALL
    assert two.places() == []
    beats = world.cluster.count(ApiKey.HEARTBEAT)
    world.run_for(millis(1_000))
    assert world.cluster.count(ApiKey.HEARTBEAT) > beats + 5
    one.end_work()
    joined(world, one, two)


def test_a_consumer_that_does_not_poll_for_too_long_leaves():
    world = start()
    one = world.reader("t", max_poll_interval_ms=2_000)
    joined(world, one)
    one.begin_work()
    world.run_for(millis(1_900))
    assert world.cluster.count(ApiKey.LEAVE_GROUP) == 0
    world.run_for(millis(200))
    assert world.cluster.count(ApiKey.LEAVE_GROUP) == 1
    assert isinstance(commit(one), CommitFailed)
    one.end_work()
    joined(world, one)
    assert one.told(PartitionChange.LOST) == [ALL]


def test_an_idle_member_costs_a_few_turns_a_second():
    """Heartbeats, and nothing that spins."""
    world = start()
    reader = world.reader("t", client={"fetch_wait_ms": 500}, heartbeat_interval_ms=3_000)
    joined(world, reader)
    world.run_for(millis(1_000))
    reader.begin_work()
    before = world.cluster.count(ApiKey.HEARTBEAT)
    world.run_for(millis(30_000))
    assert 9 <= world.cluster.count(ApiKey.HEARTBEAT) - before <= 11


# --- doors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ({"group_id": 7}, "group_id"),
        ({"group_id": ""}, "group_id"),
        ({"group_instance_id": "i"}, "needs a group_id"),
        ({"partition_assignment_strategy": ("best",)}, "'best'"),
        ({"partition_assignment_strategy": ()}, "partition_assignment_strategy"),
        ({"partition_assignment_strategy": ("range", "range")}, "once"),
        ({"auto_offset_reset": "smallest"}, "earliest"),
        ({"enable_auto_commit": 1}, "enable_auto_commit"),
        ({"session_timeout_ms": 0}, "session_timeout_ms"),
        ({"heartbeat_interval_ms": 45_000}, "below session_timeout_ms"),
        ({"max_poll_records": 0}, "max_poll_records"),
    ],
)
def test_options_are_checked(wrong, word):
    with pytest.raises(LocalMisuse, match=word):
        ConsumerOptions(**wrong)


def test_subscribing_and_assigning_exclude_each_other():
    world = start()
    reader = world.reader("t")
    with pytest.raises(LocalMisuse, match="unsubscribe"):
        reader.consumer.assign([place("t-0")])
    reader.consumer.unsubscribe()
    reader.consumer.assign([place("t-0")])
    with pytest.raises(LocalMisuse, match="unsubscribe"):
        reader.consumer.subscribe(["t"])
    with pytest.raises(LocalMisuse, match="group_id"):
        world.reader(group_id=None).consumer.subscribe(["t"])


# --- patterns -------------------------------------------------------------------------------------


def fast(**more):
    return {"client": {"metadata_max_age_ns": millis(500), "topic_wait_ns": millis(2_000)}, **more}


def made(world, *names, partitions=1):
    for name in names:
        for each in world.cluster.topic(name, partitions):
            fill(each, 1)


def test_a_pattern_stands_for_the_topics_that_match_it_and_for_new_ones():
    world = start()
    made(world, "orders-eu", "orders-us", "reorders")
    reader = world.reader(**fast())
    reader.consumer.subscribe_pattern("orders-")
    world.run_until(lambda: reader.places() == ["orders-eu-0", "orders-us-0"])
    made(world, "orders-asia", "other")
    world.run_until(lambda: len(reader.places()) == 3)
    assert reader.places() == ["orders-asia-0", "orders-eu-0", "orders-us-0"]
    world.cluster.remove("orders-us")
    world.run_until(lambda: len(reader.places()) == 2)
    assert reader.places() == ["orders-asia-0", "orders-eu-0"]
    assert reader.consumer.subscribed.topics == ("orders-asia", "orders-eu")
    assert not reader.errors


def test_members_of_one_pattern_share_its_topics():
    world = start()
    made(world, "orders-eu", "orders-us", partitions=2)
    readers = [world.reader(**fast()) for _ in range(2)]
    for reader in readers:
        reader.consumer.subscribe_pattern("orders-.*")
    world.run_until(lambda: sorted(map(len, map(Reader.places, readers))) == [2, 2])
    assert {each for reader in readers for each in reader.places()} == {
        f"orders-{where}-{at}" for where in ("eu", "us") for at in range(2)
    }


def test_a_pattern_that_nothing_matches_waits_and_matches_no_internal_topic():
    world = start()
    made(world, "__consumer_offsets")
    world.cluster.internal.add("__consumer_offsets")
    reader = world.reader(**fast())
    reader.consumer.subscribe_pattern("__.*")
    world.run_until(lambda: reader.consumer.membership.phase is Phase.STABLE)
    world.run_for(millis(3_000))
    assert reader.places() == []
    assert not reader.errors
    made(world, "__mine")
    world.run_until(lambda: reader.places() == ["__mine-0"])


def test_a_broker_that_is_behind_takes_no_topic_from_a_pattern():
    """One answer lacks the topic, the next one has it: nothing moves."""
    world = start()
    made(world, "orders-eu")
    reader = world.reader(**fast())
    reader.consumer.subscribe_pattern("orders-")
    world.run_until(lambda: reader.places() == ["orders-eu-0"])

    def behind(body):
        return body._replace(topics=[each for each in body.topics if each.name != "orders-eu"])

    world.cluster.changed[ApiKey.METADATA] = behind
    world.run_for(millis(1_200))
    del world.cluster.changed[ApiKey.METADATA]
    world.run_for(millis(5_000))
    assert reader.places() == ["orders-eu-0"]
    assert reader.told(PartitionChange.REVOKED) == []


def test_a_pattern_gives_way_to_names_and_names_to_a_pattern():
    world = start()
    made(world, "orders-eu")
    reader = world.reader("t", **fast())
    world.run_until(lambda: reader.places() == ALL)
    reader.consumer.subscribe_pattern("orders-")
    world.run_until(lambda: reader.places() == ["orders-eu-0"])
    reader.consumer.subscribe(["t"])
    world.run_until(lambda: reader.places() == ALL)
    reader.consumer.unsubscribe()
    assert reader.places() == []
    assert not reader.consumer.subscribed.active


def test_what_is_no_pattern_is_refused_at_the_door():
    reader = start().reader()
    with pytest.raises(WrongValue, match="no regular expression"):
        reader.consumer.subscribe_pattern("orders-(")
    reader.consumer.assign([place("t-0")])
    with pytest.raises(LocalMisuse, match="assigned by hand"):
        reader.consumer.subscribe_pattern("t")
    with pytest.raises(LocalMisuse, match="group_id"):
        start().reader(group_id=None).consumer.subscribe_pattern("t")

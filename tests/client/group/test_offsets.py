"""Commits, positions and topics of a group's consumer, against a scripted coordinator."""

import pytest

from raftlog.base.errors import LocalMisuse, ProtocolError
from raftlog.base.units import millis
from raftlog.client.core.errors import CommitFailed, NoOffset, NotDone
from raftlog.client.core.group.consumer import PartitionChange
from raftlog.client.core.group.membership import Phase
from raftlog.client.core.group_asks import OffsetAndMetadata, fetch_offsets
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.versions import ApiKey
from tests.client.group.world import (
    ALL,
    COOPERATIVE,
    EAGER,
    World,
    commit,
    generation,
    joined,
    place,
    start,
)
from tests.client.test_fetcher import fill

# --- commits --------------------------------------------------------------------------------------


def test_an_automatic_commit_says_only_what_the_user_had_done_with():
    """The records of the last poll may still be in work: a crash now must bring them again."""
    world = start(1)
    reader = world.reader("t", records_max=2, auto_commit_interval_ms=50)
    reader.records_max = 2
    world.run_until(lambda: len(reader.records) == 4)
    reader.begin_work()
    world.run_for(millis(1_000))
    committed = [offsets[("t", 0)] for _, _, offsets in world.groups.commits]
    assert all(each <= 2 for each in committed), committed
    reader.end_work()
    world.run_until(lambda: any(o[("t", 0)] == 9 for _, _, o in world.groups.commits))


def test_without_automatic_commits_nothing_is_committed_until_the_user_says_so():
    world = start(1)
    reader = world.reader("t", enable_auto_commit=False, auto_commit_interval_ms=10)
    world.run_until(lambda: len(reader.records) == 9)
    world.run_for(millis(500))
    assert world.groups.commits == []
    assert commit(reader) is None
    assert world.groups.groups["g"].offsets == {("t", 0): (9, "")}
    assert commit(reader, {place("t-0"): OffsetAndMetadata(4, "by hand")}) is None
    assert world.groups.groups["g"].offsets == {("t", 0): (4, "by hand")}
    found = reader.harness.ask(fetch_offsets("g", [place("t-0"), place("t-3")]))
    assert found == {place("t-0"): OffsetAndMetadata(4, "by hand", -1)}


def test_a_commit_that_is_refused_until_time_is_up_says_so():
    """Regression: it said 'no answer in time: check that the brokers can be reached'."""
    world = start()
    reader = world.reader("t", enable_auto_commit=False)
    world.run_until(lambda: len(reader.records) == 36)
    world.cluster.refuse(ApiKey.OFFSET_COMMIT, *[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 1_000)
    error = commit(reader, {place("t-0"): OffsetAndMetadata(4)})
    assert type(error) is NotDone
    assert str(error).startswith("refused until time was up; last: UNKNOWN_TOPIC_OR_PARTITION")
    assert "reached" not in str(error)


@pytest.mark.parametrize(
    ("code", "loses"),
    [
        (ErrorCode.ILLEGAL_GENERATION, True),
        (ErrorCode.UNKNOWN_MEMBER_ID, True),
        (ErrorCode.REBALANCE_IN_PROGRESS, False),
    ],
)
def test_a_commit_of_a_member_that_is_behind_fails_and_the_member_joins_again(code, loses):
    world = start()
    reader = world.reader("t", enable_auto_commit=False)
    world.run_until(lambda: len(reader.records) == 36)
    before = generation(world)
    world.cluster.refuse(ApiKey.OFFSET_COMMIT, code)
    failed = commit(reader)
    assert isinstance(failed, CommitFailed)
    assert failed.code == code
    assert "poll" in failed.do
    world.run_until(lambda: generation(world) > before)
    joined(world, reader)
    assert bool(reader.told(PartitionChange.LOST)) == loses


@pytest.mark.parametrize("code", [14, 15, 16])
def test_a_commit_is_sent_again_while_the_coordinator_is_elsewhere(code):
    world = start()
    reader = world.reader("t", enable_auto_commit=False)
    world.run_until(lambda: len(reader.records) == 36)
    world.cluster.refuse(ApiKey.OFFSET_COMMIT, code, code)
    assert commit(reader) is None
    assert len(world.groups.commits) == 1


def test_a_failing_automatic_commit_holds_no_rebalance_for_ever():
    world = start()
    one = world.reader("t", **EAGER)
    world.run_until(lambda: len(one.records) == 36)
    world.cluster.refuse(ApiKey.OFFSET_COMMIT, *[ErrorCode.COORDINATOR_NOT_AVAILABLE] * 10_000)
    two = world.reader("t", **EAGER)
    joined(world, one, two)


def test_partitions_by_hand_commit_without_membership():
    world = start()
    reader = world.reader()
    reader.consumer.assign([place("t-1")])
    world.run_until(lambda: len(reader.records) == 9)
    assert commit(reader) is None
    assert world.groups.commits[-1] == (-1, "", {("t", 1): 9})
    assert world.cluster.count(ApiKey.JOIN_GROUP) == 0
    again = world.reader()
    again.consumer.assign([place("t-1")])
    again.harness.turn()
    world.run_for(millis(500))
    assert again.records == []
    assert again.consumer.position(place("t-1")) == 9


# --- positions ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("policy", "first"), [("earliest", 0), ("latest", 9)])
def test_a_group_without_offsets_begins_where_it_was_told_to(policy, first):
    world = start(1)
    reader = world.reader("t", auto_offset_reset=policy)
    world.run_until(lambda: reader.consumer.membership.phase is Phase.STABLE)
    world.run_until(lambda: reader.places() and reader.consumer.position(place("t-0")) is not None)
    world.run_until(lambda: reader.consumer.position(place("t-0")) == 9)
    assert [each.offset for each in reader.records] == list(range(first, 9))


def test_a_group_that_may_not_choose_an_offset_says_so_until_it_is_given_one():
    world = start(1)
    reader = world.reader("t", auto_offset_reset="none")
    world.run_until(lambda: len(reader.errors) >= 2)
    assert all(isinstance(error, NoOffset) for error in reader.errors)
    assert "seek" in reader.errors[0].do
    reader.consumer.positions.seek(place("t-0"), 6)
    world.run_until(lambda: len(reader.records) == 3)


def test_an_offset_that_is_gone_is_reset_by_the_same_rule():
    world = start(1)
    world.groups.groups["g"].offsets[("t", 0)] = (500, "")
    reader = world.reader("t")
    world.run_until(lambda: len(reader.records) == 9)
    strict = world.reader("t", group_id="other", auto_offset_reset="none")
    world.groups.groups["other"].offsets[("t", 0)] = (500, "")
    world.run_until(lambda: strict.errors)
    assert strict.errors[0].code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_seek_pause_and_resume():
    world = start(2)
    reader = world.reader("t")
    world.run_until(lambda: len(reader.records) == 18)
    positions = reader.consumer.positions
    positions.pause([place("t-1")])
    positions.seek(place("t-0"), 5)
    positions.seek(place("t-1"), 5)
    reader.records.clear()
    world.run_for(millis(300))
    assert [(each.partition, each.offset) for each in reader.records] == [
        (0, offset) for offset in range(5, 9)
    ]
    assert positions.paused() == [place("t-1")]
    positions.resume([place("t-1")])
    world.run_until(lambda: len(reader.records) == 8)
    positions.seek_to([place("t-0")], -2)
    world.run_until(lambda: len(reader.records) == 17)
    with pytest.raises(LocalMisuse, match="t-9 is not assigned"):
        positions.seek(place("t-9"), 0)


def test_an_offset_fetch_that_fails_is_asked_again_and_no_reset():
    """A coordinator that loads has offsets. A consumer that took it for none would read all again,
    or skip to the end."""
    world = start(1)
    world.groups.groups["g"].offsets[("t", 0)] = (6, "")
    world.cluster.refuse(ApiKey.OFFSET_FETCH, 14, 16, 15)
    reader = world.reader("t", auto_offset_reset="latest")
    world.run_until(lambda: len(reader.records) == 3)
    assert [each.offset for each in reader.records] == [6, 7, 8]


# --- topics ---------------------------------------------------------------------------------------


def test_partitions_that_a_topic_gets_are_shared_out():
    world = start(2)
    reader = world.reader("t", client={"metadata_max_age_ns": millis(500)})
    world.run_until(lambda: len(reader.places()) == 2)
    world.cluster.grow("t", 2)
    joined(world, reader)


def test_a_topic_that_comes_later_is_read_from_then_on():
    world = World()
    reader = world.reader("t")
    world.run_until(lambda: reader.told(PartitionChange.ASSIGNED) == [[]])
    for each in world.cluster.topic("t", 4):
        fill(each, 1)
    world.run_until(lambda: len(reader.records) == 12)


def test_the_leader_divides_topics_that_only_others_subscribe_to():
    world = start()
    for each in world.cluster.topic("u", 1):
        fill(each, 1)
    one = world.reader("t", **EAGER)
    joined(world, one)
    two = world.reader("u", **EAGER)
    world.run_until(lambda: two.places() == ["u-0"])
    assert one.places() == ALL


def test_another_subscription_joins_again():
    world = start()
    for each in world.cluster.topic("u", 1):
        fill(each, 1)
    reader = world.reader("t", **COOPERATIVE)
    joined(world, reader)
    reader.consumer.subscribe(["u"])
    world.run_until(lambda: reader.places() == ["u-0"])
    assert reader.told(PartitionChange.REVOKED) == [ALL]


def test_a_member_that_talks_nonsense_is_named_to_the_user_of_the_leader():
    world = start()
    reader = world.reader("t", **EAGER)
    joined(world, reader)
    group = world.groups.groups["g"]
    member_id = world.groups._admit(group, type("B", (), {"group_instance_id": None}))
    stranger = group.members[member_id]
    stranger.protocols = [("range", b"\0\1nonsense")]
    stranger.joining = type("L", (), {"give": lambda self, body: None})()
    world.groups.rebalance("g")
    world.run_until(lambda: reader.errors)
    assert isinstance(reader.errors[0], ProtocolError)
    assert member_id in str(reader.errors[0])

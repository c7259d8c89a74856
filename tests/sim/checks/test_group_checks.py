"""The checks of groups fail on planted evidence, and pass on that of members in real runs."""

import attrs
import pytest
from raftlog_sim.base.violation import Violation
from raftlog_sim.checks.group_checks import GroupChecks
from raftlog_sim.facts.group_log import GroupLog, Walls
from raftlog_sim.facts.group_rest import (
    beyond_bounds,
    coordinator_of,
    left_of_gone_topics,
    live_group,
    unsettled,
)
from raftlog_sim.hunting import mutation
from raftlog_sim.playing.simulation import Run, simulate
from raftlog_sim.playing.variations import vary
from raftlog_sim.schedules.options import SimOptions, draw_options
from raftlog_sim.schedules.schedule import Schedule, step
from raftlog_sim.schedules.step_kinds import OF_MEMBERS

from raftlog.base.entries import Entry, EntryKind
from raftlog.base.ids import NodeId, Offset, RaftIndex, Term
from raftlog.base.units import WallMillis, millis
from raftlog.client.core.group.protocol import encode_assignment
from raftlog.client.core.values import TopicPartition
from raftlog.groups.machine import GroupsMachine
from raftlog.groups.records import floor_record, offset_record
from raftlog.groups.stored import StoredOffset
from raftlog.kafka.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from raftlog.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from raftlog.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from raftlog.kafka.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from raftlog.kafka.shape import ZERO_ID
from raftlog.kafka.versions import ApiKey
from raftlog.records.builder import RecordBatchBuilder

COMMITTED, UNKNOWN, REFUSED = 0, None, 25


def consume(at_ms, member=0, for_ms=0, how="eager", identity="dynamic"):
    return step(at_ms, "consume", for_ms, member=member, group=0, how=how, id=identity, every_ms=5)


def problems(found):
    return [problem for _, problem in found if problem]


# --- what members hear ----------------------------------------------------------------------------


def synced(checks, process, member, generation, *partitions):
    request = SyncGroupRequest(group_id="g", generation_id=generation, member_id=member)
    assignment = encode_assignment([TopicPartition("t", each) for each in partitions])
    serial = checks.asked(process, ApiKey.SYNC_GROUP, request, 0)
    answer = SyncGroupResponse(assignment=assignment)
    return problems(checks.answered(process, serial, ApiKey.SYNC_GROUP, request, answer, 0))


def test_two_owners_of_one_generation():
    checks = GroupChecks()
    assert synced(checks, 1, "a", 4, 0, 1) == []
    assert synced(checks, 2, "b", 4, 2) == []
    assert synced(checks, 2, "b", 5, 0, 1) == [], "the next generation may share out anew"
    assert synced(checks, 1, "a", 4, 0, 1) == [], "an answer that comes twice says the same"
    assert synced(checks, 2, "b", 4, 1) == ["t-1 belongs to a and to b in generation 4 of group g"]


def joins(checks, member="a", leader="a"):
    request = JoinGroupRequest(group_id="g", member_id=member)
    serial = checks.asked(1, ApiKey.JOIN_GROUP, request, 0)

    def answered(generation, code=0):
        listed = (JoinGroupResponseMember(member),) if leader == member else ()
        answer = JoinGroupResponse(
            error_code=code, generation_id=generation, member_id=member, leader=leader,
            members=listed,
        )  # fmt: skip
        return problems(checks.answered(1, serial, ApiKey.JOIN_GROUP, request, answer, 0))

    return answered


def test_a_generation_that_falls_and_one_that_two_lead():
    checks = GroupChecks()
    early = joins(checks, "late", leader="a")
    assert joins(checks)(7) == []
    assert early(6) == [], "it was asked before anybody heard of 7"
    assert joins(checks, "b")(3, code=REFUSED) == []
    assert joins(checks, "b", leader="a")(7) == []
    assert joins(checks, "b", leader="a")(6) == ["group g answers a join with 6 after 7"]
    assert joins(checks, "b", leader="b")(7) == ["generation 7 of g is led by a and by b"]


def commits(checks, offset):
    places = (OffsetCommitRequestPartition(0, offset),)
    topics = (OffsetCommitRequestTopic(name="t", partitions=places),)
    request = OffsetCommitRequest(group_id="g", topics=topics)
    serial = checks.asked(1, ApiKey.OFFSET_COMMIT, request, 0)

    def answered(code):
        parts = (OffsetCommitResponsePartition(0, code),)
        told = (OffsetCommitResponseTopic(name="t", partitions=parts),)
        answer = OffsetCommitResponse(topics=told)
        return problems(checks.answered(1, serial, ApiKey.OFFSET_COMMIT, request, answer, 0))

    return answered


def fetches(checks):
    request = OffsetFetchRequest(group_id="g")
    serial = checks.asked(2, ApiKey.OFFSET_FETCH, request, 0)

    def answered(offset):
        places = (OffsetFetchResponsePartitions(0, offset),)
        topics = (OffsetFetchResponseTopics(name="t", partitions=places),)
        answer = OffsetFetchResponse(groups=(OffsetFetchResponseGroup("g", topics),))
        return problems(checks.answered(2, serial, ApiKey.OFFSET_FETCH, request, answer, 0))

    return answered


def test_an_offset_that_goes_back():
    checks = GroupChecks()
    assert fetches(checks)(-1) == []
    assert commits(checks, 5)(COMMITTED) == []
    under_way = fetches(checks)
    later = commits(checks, 9)
    assert fetches(checks)(9) == [], "not acknowledged yet, and may be committed all the same"
    assert fetches(checks)(5) == []
    assert later(COMMITTED) == []
    assert under_way(5) == [], "it was asked before 9 was acknowledged"
    (wrong,) = fetches(checks)(5)
    assert "is told to be at 5; committed before were [5, 9]" in wrong
    (wrong,) = fetches(checks)(-1)
    assert "is told to have no offset; 9 was committed before" in wrong
    (wrong,) = fetches(checks)(7)
    assert "is told to be at 7" in wrong


def test_commits_of_which_nobody_knows_and_commits_that_were_refused():
    checks = GroupChecks()
    commits(checks, 3)(COMMITTED)
    commits(checks, 8)
    assert fetches(checks)(8) == [], "it was never answered"
    assert fetches(checks)(3) == []
    commits(checks, 11)(REFUSED)
    (wrong,) = fetches(checks)(11)
    assert "is told to be at 11" in wrong


def test_a_record_that_no_member_was_given():
    checks = GroupChecks()
    acknowledged = {(0, offset): "v" for offset in range(4)}
    checks.given("g", "t", 0, (0, 2))
    commits(checks, 1)(COMMITTED)
    assert checks.skipped(acknowledged, "t") == ""
    commits(checks, 3)(COMMITTED)
    assert "is committed up to 3, nobody was given 1" in checks.skipped(acknowledged, "t")
    checks.given("g", "t", 0, (1,))
    assert checks.skipped(acknowledged, "t") == ""


def test_an_answer_that_comes_twice_and_one_that_never_comes():
    checks = GroupChecks()
    request = ((1, 7), 3)
    checks.open[request] = ApiKey.JOIN_GROUP
    assert "were never answered" in checks.owes()
    checks.closed(request)
    assert checks.owes() == ""
    assert problems(checks.answered_again(((1, 8), 3))) == [], "of another kind of request"
    assert problems(checks.answered_again(request)) == ["process 3 hears twice of a request"]


# --- the log and the machines ---------------------------------------------------------------------


def entry(index, *records):
    builder = RecordBatchBuilder()
    for each in records:
        builder.append(each.value, key=each.key, timestamp_ms=WallMillis(0), headers=each.headers)
    return Entry(
        RaftIndex(index), Term(1), EntryKind.RECORDS, Offset(0), Offset(1), builder.build()
    )


def stored(offset, commit_ms=0):
    return StoredOffset(offset, -1, "", commit_ms, -1, ZERO_ID)


@attrs.frozen
class Fixture:
    log: GroupLog
    index: list = attrs.Factory(lambda: [0])

    def take(self, *records):
        self.index[0] += 1
        return problems(self.log.take(entry(self.index[0], *records)))


def test_a_generation_that_is_made_known_twice():
    log = Fixture(GroupLog(Walls()))
    assert log.take(floor_record("g", 3)) == []
    assert log.take(floor_record("h", 3)) == []
    assert log.take(floor_record("g", 3)) == ["generation 3 of group g begins after 3"]
    assert log.take(floor_record("g", None)) == []
    assert log.take(floor_record("g", 1)) == [], "the group was removed, and is another one"


def test_an_offset_that_is_removed_too_early():
    log = Fixture(GroupLog(Walls(retention_ms=1_000)))
    assert log.take(offset_record("g", "t", 0, stored(5, 100))) == []
    for node in (1, 2, 3):
        log.log.walls.look(NodeId(node), 900)
    log.log.walls.look(NodeId(3), 5_000)
    (wrong,) = log.take(offset_record("g", "t", 0, None))
    assert wrong == "the offset 5 of g for t is removed too early"
    log.take(offset_record("g", "t", 0, stored(6, 100)))
    log.log.walls.look(NodeId(2), 1_100)
    assert log.log.expired == {}, "the first one went too early"
    assert log.take(offset_record("g", "t", 0, None)) == []
    assert log.log.expired == {("g", "t", 0): {6: None}}


def test_an_offset_that_was_old_may_be_gone():
    """Regression: seed 21 of groups had two clocks of three hours ahead, and the offset expired."""
    checks = GroupChecks()
    assert commits(checks, 5)(COMMITTED) == []
    checks.expired = lambda place: [4]
    (wrong,) = fetches(checks)(-1)
    assert "is told to have no offset; 5 was committed before" in wrong
    checks.expired = lambda place: [4, 5]
    assert fetches(checks)(-1) == []
    (wrong,) = fetches(checks)(4)
    assert "is told to be at 4" in wrong


def test_a_machine_that_compaction_makes_another():
    log = GroupLog(Walls())
    log.take(entry(1, offset_record("g", "t", 0, stored(5)), floor_record("g", 1)))
    log.take(entry(2, offset_record("g", "t", 0, stored(6)), floor_record("g", 2)))
    assert log.compacted() == ""
    before = log.digest_at(RaftIndex(1))
    assert log.digest_at(RaftIndex(2)) == log.digest_at(RaftIndex(9)) == log.machine.digest()
    assert before not in (log.digest_at(RaftIndex(0)), log.digest_at(RaftIndex(2)))
    log.latest.pop(next(iter(log.latest)))
    assert "a compacted log makes another machine" in log.compacted()


# --- in a run -------------------------------------------------------------------------------------


def middle(*more):
    """A run in which two members have settled."""
    steps = (consume(0), consume(0, 1), *more)
    run = Run(Schedule(SimOptions(seed=3, partitions=2, safety_ms=4_000), steps))
    while run.phase == "set-up":
        run.advance()
    end = run.world.now + millis(2_500)
    while run.world.now < end:
        run.advance()
    return run


def test_members_settle_and_what_keeps_them_is_told():
    run = middle()
    alive = run.members.alive
    assert unsettled(run.world, ["g0"], alive, "t", 2) == ""
    assert "owners" in unsettled(run.world, ["g0"], alive, "t", 3)
    assert "its members are" in unsettled(run.world, ["g0"], alive[:1], "t", 2)
    assert unsettled(run.world, ["g9"], alive, "t", 2) == "", "a group of nobody"
    group = live_group(run.world, "g0")
    group.pending["asked"] = None
    assert "ids that nobody uses are ['asked']" in unsettled(run.world, ["g0"], alive, "t", 2)
    del group.pending["asked"]
    alive[0].consumer.membership.rejoin_wanted = True
    assert "is stable" in unsettled(run.world, ["g0"], alive, "t", 2)
    group.generation += 1
    alive[0].consumer.membership.rejoin_wanted = False
    assert "is of generation" in unsettled(run.world, ["g0"], alive, "t", 2)


def test_a_coordinator_that_counts_wrong_is_seen():
    run = middle()
    node, led = coordinator_of(run.world, "g0")
    shared, group = led.coordinator._shared, live_group(run.world, "g0")
    assert beyond_bounds(node) == ""
    group.joined += 1
    assert "joins of group g0 wait" in beyond_bounds(node)
    with pytest.raises(Violation, match="bounded"):
        run.onlooker.invariants.whole([node])
    group.joined -= 1
    shared.undecided_offsets["g0"] = {("t", 0): 0}
    assert "nothing is undecided, and" in beyond_bounds(node)
    shared.proposals.undecided_units += 1
    assert "undecided commits are counted" in beyond_bounds(node)
    shared.proposals.undecided_units -= 1
    shared.undecided_offsets.clear()
    shared.set_session("g0", "gone", 1_000)
    assert beyond_bounds(node) == "a session runs of gone, which is not in g0"
    for number in range(20):
        shared.set_session("g0", f"gone-{number}", 1_000)
    assert "alarms of 2 members" in beyond_bounds(node)


def test_a_static_member_that_is_forgotten_too_early_is_seen():
    run = middle(consume(0, 2, identity="static"))
    node, led = coordinator_of(run.world, "g0")
    shared, group = led.coordinator._shared, live_group(run.world, "g0")
    statics = run.onlooker.invariants.statics
    assert problems(statics.after_turn(node)) == []
    member_id = group.static.pop("i2")
    (problem,) = problems(statics.after_turn(node))
    assert f"group g0 forgets {member_id}, which is i2" in problem
    group.static["i2"] = member_id
    shared.set_session("g0", member_id, 0)
    assert problems(statics.after_turn(node)) == []
    del group.static["i2"]
    assert problems(statics.after_turn(node)) == [], "its session is over"


def test_an_offset_of_a_topic_that_is_gone_is_seen():
    run = middle()
    node, led = coordinator_of(run.world, "g0")
    assert left_of_gone_topics(run.world) == ""
    kept = StoredOffset(5, -1, "", 1, -1, topic_id=b"x" * 16)
    builder = RecordBatchBuilder()
    record = offset_record("g0", "gone", 1, kept)
    builder.append(record.value, key=record.key, timestamp_ms=1, headers=record.headers)
    led.coordinator._shared.machine.apply(builder.build(), Offset(0), RaftIndex(1))
    assert "keeps an offset of g0 for gone" in left_of_gone_topics(run.world)
    assert str(node.number) in left_of_gone_topics(run.world)


def test_a_machine_that_is_not_what_the_log_says():
    """All replicas agree on what is wrong."""
    run = middle()
    _, led = coordinator_of(run.world, "g0")
    checks = run.onlooker.invariants.replicas
    assert checks.machine(led.replica) == ""
    known = checks.committed[led.replica.group].groups
    known.digests[-1] = GroupsMachine().digest()
    assert "; the log " in checks.machine(led.replica)


def test_impostors_are_refused_whatever_they_say():
    whats = ("generations", "strangers", "joins", "left", "vanished-leader")
    steps = [step(600 + 150 * at, "impostor", group=0, what=what) for at, what in enumerate(whats)]
    options = SimOptions(seed=3, safety_ms=2_500)
    run = Run(Schedule(options, (consume(0), *steps)))
    assert run.play() == ""
    assert list(run.members.impostors.done) == list(whats)
    assert run.onlooker.invariants.checked["group-fences"] > 10


def test_members_of_all_kinds_come_and_go_and_come_again():
    steps = (
        step(10, "load", slot=0, partition=0, count=60, every_ms=30),
        consume(0, 0), consume(20, 1, 900, "cooperative"), consume(40, 2, identity="static"),
        step(900, "die", member=2), consume(1_000, 2, identity="static"),
        consume(1_200, 3, identity="shared"), consume(1_400, 4, identity="shared"),
        step(1_500, "commit", member=0), step(1_800, "die", member=0),
    )  # fmt: skip
    schedule = Schedule(SimOptions(seed=3, partitions=3, safety_ms=2_500), steps)
    one, two = simulate(schedule), simulate(schedule)
    assert one.failure == ""
    assert one.trace_hash == two.trace_hash
    for name in ("group-one-owner", "group-offsets-kept", "group-generations-rise"):
        assert one.invariants[name]["checked"] > 5, name
    assert one.invariants["group-skips-nothing"]["checked"] == 1


def test_a_broken_fence_is_seen():
    run = Run(Schedule(SimOptions(seed=3), ()))
    with pytest.raises(Violation, match="group-fences"):
        run.members.impostors._refused("a heartbeat of nobody", COMMITTED)


def test_seeds_in_which_a_bug_of_groups_has_nothing_to_break_are_not_played():
    groups, raft = mutation.named("73"), mutation.named("9")
    with_members = [seed for seed in range(1, 80) if draw_options(seed).members]
    assert 5 < len(with_members) < 30
    assert [each for each in range(1, 80) if mutation._can_matter(groups, each, "swarm")] == (
        with_members
    )
    assert all(mutation._can_matter(raft, each, "swarm") for each in range(1, 80))
    assert all(mutation._can_matter(groups, each, "groups") for each in range(1, 80))
    for seed in range(1, 80):  # a varied one may have members for its scenario, or beside it
        kinds = {each.kind for each in vary(seed).steps}
        assert mutation._can_matter(groups, seed, "varied") == bool(kinds & set(OF_MEMBERS))

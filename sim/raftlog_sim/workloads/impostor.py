"""A client that speaks for others.

It sends wrong generations, ids that no member has, joins whose answers it ignores, and commits of a
member that has left. It even writes to the log of the groups. It writes its requests by hand, to
the present coordinator.
    group-fences    what it may not do is refused, whatever the group does meanwhile
"""

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Final, final

import attrs

from raftlog.base.units import WallMillis, millis
from raftlog.broker.groups.offsets_topic import partition_of
from raftlog.broker.handlers.produce import TOPIC_IDS_FROM
from raftlog.client.core.group.protocol import encode_subscription
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.delete_groups import DeleteGroupsRequest
from raftlog.kafka.messages.heartbeat import HeartbeatRequest
from raftlog.kafka.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from raftlog.kafka.messages.leave_group import LeaveGroupRequest, MemberIdentity
from raftlog.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from raftlog.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from raftlog.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from raftlog.kafka.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from raftlog.kafka.versions import ApiKey
from raftlog.metadata.rules.topic_names import OFFSETS_TOPIC
from raftlog.records.builder import RecordBatchBuilder
from raftlog_sim.facts.group_rest import coordinator_of, live_group
from raftlog_sim.schedules.sizes import OFFSETS_PARTITIONS
from raftlog_sim.workloads.callers import CHURN, TOPIC
from raftlog_sim.world.client import HeapClient, Pending

if TYPE_CHECKING:
    from raftlog_sim.checks.invariants import Invariants
    from raftlog_sim.world.world import World

_LOOK_NS: Final = millis(4)
_FAR: Final = 1_000
"""A generation beyond any that a run reaches."""
_VERSIONS: Final = {
    ApiKey.PRODUCE: TOPIC_IDS_FROM - 1, ApiKey.OFFSET_COMMIT: 9, ApiKey.OFFSET_FETCH: 9
}  # fmt: skip
"""The last versions that name topics."""
_WRITES: Final = 6
_WRITE_MS: Final = 1_000
_VALUE: Final = 987_654
"""An offset that no other client commits."""
Asks = tuple[tuple[ApiKey, Any], ...]
"""Requests that are sent at once, one behind the other."""
Script = Generator[Asks, Any, None]
"""A script: each yield sends requests and gives their answers, or the one answer."""


@final
@attrs.define(eq=False)
class Impostors:
    """All impostors of a run."""

    world: "World"
    invariants: "Invariants"
    session_ms: int
    busy: int = 0
    done: dict[str, int] = attrs.Factory(dict)
    """How many answers each script got."""
    twins: int = 0
    """How many double joins were both answered with the generation."""
    _named: int = 0

    def perform(self, group: str, what: str) -> None:
        """Begin one script of `WHATS`; do nothing when no node coordinates the group."""
        found = coordinator_of(self.world, group)
        if found is None:
            return
        self._named += 1
        self.busy += 1
        client = HeapClient(found[0], f"impostor-{self._named}").connect()
        script = getattr(self, "_" + what.replace("-", "_"))(group)
        self._go_on(client, script, what, None)

    def _go_on(self, client: HeapClient, script: Script, what: str, answer: Any) -> None:
        try:
            asks = script.send(answer)
        except StopIteration:
            self.busy -= 1
            if client.connection is not None:
                client.close()
            return
        pending = [client.request(key, body, _VERSIONS.get(key)) for key, body in asks]
        self.world.after(_LOOK_NS, self._look, client, script, what, pending, 0)

    def _look(
        self, client: HeapClient, script: Script, what: str, pending: list[Pending], looks: int
    ) -> None:
        if not all(each.done for each in pending):
            if looks * _LOOK_NS < millis(4 * self.session_ms):
                self.world.after(_LOOK_NS, self._look, client, script, what, pending, looks + 1)
                return
            if any(each.done for each in pending):
                early = [number for number, each in enumerate(pending) if not each.done]
                problem = f"{what}: of {len(pending)} requests at once {early} hear nothing"
                self.invariants.judge((("group-answered-once", problem),))
            client.close()  # a node that is paused, or whose coordinator waits for others
        answers = [each.answer for each in pending]
        if client.connection is None or any(isinstance(each, Exception) for each in answers):
            self.busy -= 1
            return
        self.done[what] = self.done.get(what, 0) + 1
        self._go_on(client, script, what, answers if len(answers) > 1 else answers[0])

    def _refused(self, what: str, code: int) -> None:
        taken = f"{what} is taken" if code == ErrorCode.NONE else ""
        self.invariants.judge((("group-fences", taken),))

    # --- scripts ----------------------------------------------------------------------------------

    def _generations(self, group: str) -> Script:
        """Use another member's id, with generations that are not the group's."""
        live = live_group(self.world, group)
        if live is None or not live.members:
            return
        member, *_ = live.members.values()
        who = (member.member_id, member.instance_id)
        for generation in (live.generation + _FAR, live.generation - 1):
            answer = yield _ask(ApiKey.HEARTBEAT, HeartbeatRequest(group, generation, *who))
            self._refused(f"a heartbeat of generation {generation}", answer.error_code)
            answer = yield _ask(ApiKey.SYNC_GROUP, _sync(group, generation, who, {}))
            self._refused(f"a sync of generation {generation}", answer.error_code)
            if generation >= 0:
                answer = yield _ask(ApiKey.OFFSET_COMMIT, _commit(group, generation, who))
                self._refused(f"a commit of generation {generation}", _code(answer))

    def _strangers(self, group: str) -> Script:
        """Use a member id and an instance id that no member has."""
        live = live_group(self.world, group)
        generation = 1 if live is None else live.generation
        for who in (("nobody", None), ("nobody", "no-instance")):
            answer = yield _ask(ApiKey.HEARTBEAT, HeartbeatRequest(group, generation, *who))
            self._refused("a heartbeat of nobody", answer.error_code)
            answer = yield _ask(ApiKey.SYNC_GROUP, _sync(group, generation, who, {}))
            self._refused("a sync of nobody", answer.error_code)
            answer = yield _ask(ApiKey.OFFSET_COMMIT, _commit(group, generation, who))
            self._refused("a commit of nobody", _code(answer))
            answer = yield _ask(ApiKey.LEAVE_GROUP, _leave(group, *who))
            codes = [each.error_code for each in answer.members] or [answer.error_code]
            self._refused("a leave of nobody", codes[0])
            answer = yield _ask(ApiKey.JOIN_GROUP, self._join(group, "nobody"))
            self._refused("a join of an id that was never given", answer.error_code)

    def _joins(self, group: str) -> Script:
        """Ask for an id again and again, and join with none of them.

        Pending ids must not delay the group for longer than a session.
        """
        member = ""
        for _ in range(4):
            answer = yield _ask(ApiKey.JOIN_GROUP, self._join(group, ""))
            if answer.error_code != ErrorCode.MEMBER_ID_REQUIRED:
                return
            member = answer.member_id
        answer = yield _ask(ApiKey.LEAVE_GROUP, _leave(group, member))
        if not answer.error_code and not answer.members[0].error_code:
            answer = yield _ask(ApiKey.JOIN_GROUP, self._join(group, member))
            self._refused("a join of a pending id that has left", answer.error_code)

    def _twice(self, group: str) -> Script:
        """Join twice at once, as a client that has lost patience: both joins get an answer."""
        answer = yield _ask(ApiKey.JOIN_GROUP, self._join(group, ""))
        if answer.error_code != ErrorCode.MEMBER_ID_REQUIRED:
            return
        member, join = answer.member_id, self._join(group, answer.member_id)
        answers = yield (ApiKey.JOIN_GROUP, join), (ApiKey.JOIN_GROUP, join)
        self.invariants.judge((("group-answered-once", ""),))
        if all(each.error_code == ErrorCode.NONE for each in answers):
            self.twins += 1
        yield _ask(ApiKey.LEAVE_GROUP, _leave(group, member))

    def _deleter(self, group: str) -> Script:
        """Commit for a group of its own, delete that group, and find nothing."""
        own = self._neighbour(group)
        answer = yield _ask(ApiKey.OFFSET_COMMIT, _commit(own, -1, ("", None)))
        if _code(answer) != ErrorCode.NONE:
            return
        self.invariants.walls.deleted[own] = None
        answer = yield _ask(ApiKey.DELETE_GROUPS, DeleteGroupsRequest((own,)))
        if answer.results[0].error_code != ErrorCode.NONE:
            return
        place = (OffsetFetchRequestTopics(name=TOPIC, partition_indexes=(0,)),)
        asked = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(own, topics=place),))
        answer = yield _ask(ApiKey.OFFSET_FETCH, asked)
        (told,) = answer.groups
        if not told.error_code:
            left = told.topics[0].partitions[0].committed_offset
            problem = f"a deleted group has offset {left}" if left >= 0 else ""
            self.invariants.judge((("group-offsets-kept", problem),))

    def _writer(self, group: str) -> Script:
        """Write to the log of the groups, again and again without waiting for an answer."""
        name, number = OFFSETS_TOPIC, partition_of(group, OFFSETS_PARTITIONS)
        builder = RecordBatchBuilder()
        builder.append(b"forged", timestamp_ms=WallMillis(0))
        data = (PartitionProduceData(number, builder.build()),)
        topics = (TopicProduceData(name, partition_data=data),)
        for acks in (-1, 1):
            asked = ProduceRequest(None, acks, _WRITE_MS, topics)
            answers = yield ((ApiKey.PRODUCE, asked),) * _WRITES
            for answer in answers:
                code = answer.responses[0].partition_responses[0].error_code
                self._refused("a record for the log of the groups", code)

    def _traveller(self, group: str) -> Script:
        """Commit the position in a topic that may be deleted at any time.

        The offset must go with the topic, see `group_rest`.
        """
        images = [node.broker.context.image for node in self.world.running()]
        newest = max(images, key=lambda image: image.version)
        topic = next((name for name in sorted(newest.names) if name.startswith(CHURN)), None)
        if topic is not None:
            commit = _commit(self._neighbour(group), -1, ("", None), topic)
            yield _ask(ApiKey.OFFSET_COMMIT, commit)

    def _neighbour(self, group: str) -> str:
        """Returns an unused name of a group in the same partition."""
        mine = partition_of(group, OFFSETS_PARTITIONS)
        names = (f"own-{self._named}-{number}" for number in range(100))
        return next(each for each in names if partition_of(each, OFFSETS_PARTITIONS) == mine)

    def _left(self, group: str) -> Script:
        """Join, sync and leave; then go on as if it had not left."""
        joined = yield from self._join_whole(group)
        if joined is None:
            return
        who, generation = (joined.member_id, None), joined.generation_id
        yield _ask(ApiKey.SYNC_GROUP, _sync(group, generation, who, {}))
        answer = yield _ask(ApiKey.LEAVE_GROUP, _leave(group, *who))
        if answer.error_code:
            return  # that node coordinates no more
        answer = yield _ask(ApiKey.OFFSET_COMMIT, _commit(group, generation, who))
        self._refused("a commit of a member that has left", _code(answer))
        answer = yield _ask(ApiKey.HEARTBEAT, HeartbeatRequest(group, generation, *who))
        self._refused("a heartbeat of a member that has left", answer.error_code)

    def _vanished_leader(self, group: str) -> Script:
        """Join, lead perhaps, never sync, and disappear."""
        yield from self._join_whole(group)

    def _join_whole(self, group: str) -> Generator[Asks, Any, Any]:
        answer = yield _ask(ApiKey.JOIN_GROUP, self._join(group, ""))
        if answer.error_code != ErrorCode.MEMBER_ID_REQUIRED:
            return None
        answer = yield _ask(ApiKey.JOIN_GROUP, self._join(group, answer.member_id))
        return None if answer.error_code else answer

    def _join(self, group: str, member: str) -> JoinGroupRequest:
        said = [
            JoinGroupRequestProtocol(name, encode_subscription(name, [TOPIC], (), -1))
            for name in ("range", "cooperative-sticky")
        ]
        return JoinGroupRequest(
            group_id=group,
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=2 * self.session_ms,
            member_id=member,
            protocol_type="consumer",
            protocols=tuple(said),
        )


def _ask(key: ApiKey, body: Any) -> Asks:
    return ((key, body),)


def _leave(group: str, member: str, instance: str | None = None) -> LeaveGroupRequest:
    return LeaveGroupRequest(group, "", (MemberIdentity(member, instance),))


def _sync(
    group: str, generation: int, who: tuple[str, str | None], given: dict[str, bytes]
) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=who[0],
        group_instance_id=who[1],
        protocol_type="consumer",
        assignments=tuple(SyncGroupRequestAssignment(*each) for each in given.items()),
    )


def _commit(
    group: str, generation: int, who: tuple[str, str | None], topic: str = TOPIC
) -> OffsetCommitRequest:
    parts = (OffsetCommitRequestPartition(0, _VALUE, -1, ""),)
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=who[0],
        group_instance_id=who[1],
        topics=(OffsetCommitRequestTopic(name=topic, partitions=parts),),
    )


def _code(answer: Any) -> int:
    return int(answer.topics[0].partitions[0].error_code)

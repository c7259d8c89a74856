"""One offsets partition in a test: a coordinator, its log, a follower's machine, and a clock.

Requests go in by small methods that give a `Reply`, which holds the answer once there is one and
fails when a second one comes. `write()` lets the log take what is proposed, or fail; `pass_ms`
moves the clock from deadline to deadline.
"""

import random

from raftlog.base.ids import Offset, RaftIndex
from raftlog.base.units import Instant, WallMillis, millis
from raftlog.groups.coordinator import Coordinator
from raftlog.groups.machine import GroupsMachine
from raftlog.groups.settings import GroupClient, GroupSettings
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.heartbeat import HeartbeatRequest
from raftlog.kafka.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from raftlog.kafka.messages.leave_group import LeaveGroupRequest, MemberIdentity
from raftlog.kafka.messages.list_groups import ListGroupsRequest
from raftlog.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from raftlog.kafka.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from raftlog.kafka.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from raftlog.kafka.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

SETTINGS = GroupSettings(initial_rebalance_delay_ms=0)
SESSION_MS = 10_000
REBALANCE_MS = 60_000
START_MS = 1_700_000_000_000
T_ID, U_ID = b"t" * 16, b"u" * 16
IDS = {"t": T_ID, "u": U_ID}


class Dice:
    """Entropy from one seed."""

    def __init__(self, seed):
        self._random = random.Random(seed)

    def below(self, bound):
        return self._random.randrange(bound)

    def bytes(self, count):
        return self._random.randbytes(count)

    def fork(self, label):
        return Dice(f"{label}{self._random.random()}")


class Reply:
    """The answer to a request, once there is one."""

    def __init__(self):
        self.value = None

    def __call__(self, value):
        assert self.value is None, f"a second answer: {value} behind {self.value}"
        self.value = value

    @property
    def waits(self):
        return self.value is None

    @property
    def error(self):
        assert self.value is not None, "no answer came"
        return ErrorCode(getattr(self.value, "error_code", self.value))

    @property
    def partition_errors(self):
        assert self.value is not None, "no answer came"
        return [ErrorCode(each.error_code) for t in self.value.topics for each in t.partitions]


class World:
    def __init__(self, *, settings=SETTINGS, seed=1, writes=True):
        self.settings = settings
        self.now_ms = 0
        self.wall_skew_ms = 0
        self.seed = seed
        self.writes = writes
        """Whether everything that is proposed is written at once."""
        self.log = []
        self.machine = GroupsMachine()
        self.follower = GroupsMachine()
        self.replies = []
        self.coordinator = None
        self.lead()

    # --- the clock and the log ------------------------------------------------------------------

    @property
    def now(self):
        return Instant(millis(self.now_ms))

    @property
    def wall(self):
        return WallMillis(START_MS + self.now_ms + self.wall_skew_ms)

    @property
    def time(self):
        return self.now, self.wall

    def lead(self):
        """A new leader: its coordinator stands on what is committed."""
        self.seed += 1
        self.coordinator = Coordinator(
            self.machine, self.settings, Dice(self.seed), self.now, self.wall
        )

    def fail_over(self):
        """Leadership goes to the follower; what was proposed and not written is lost."""
        self.coordinator.close(ErrorCode.NOT_COORDINATOR)
        self.machine, self.follower = self.follower, self.machine
        self.lead()

    def write(self, error=None):
        """Let the log decide everything that is proposed."""
        while (proposal := self.coordinator.take()) is not None:
            self.decide(proposal, error)

    def decide(self, proposal, error=None):
        if error is None:
            self.append(proposal.batch)
        self.coordinator.decided(proposal.token, error, *self.time)

    def append(self, batch):
        self.log.append(batch)
        for machine in (self.machine, self.follower):
            machine.apply(batch, Offset(0), RaftIndex(len(self.log)))
        assert self.machine.digest() == self.follower.digest()

    def pass_ms(self, count, *, wall_agreed=True):
        """Time passes, and every deadline in it is met."""
        end = self.now_ms + count
        for _ in range(10_000):
            due = self.coordinator.next_deadline()
            due_ms = -(-due // millis(1))
            if due_ms > end:
                self.now_ms = end
                return
            self.now_ms = max(self.now_ms, due_ms)
            self.coordinator.tick(*self.time, wall_agreed=wall_agreed)
            self._maybe_write()
        raise AssertionError("deadlines come without end")

    def _maybe_write(self):
        if self.writes:
            self.write()

    def _reply(self):
        reply = Reply()
        self.replies.append(reply)
        return reply

    # --- requests -------------------------------------------------------------------------------

    def join(
        self,
        group="g",
        member="",
        *,
        instance=None,
        kind="consumer",
        protocols=(("range", b""),),
        session_ms=SESSION_MS,
        rebalance_ms=REBALANCE_MS,
        version=9,
        client="c",
    ):
        reply = self._reply()
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member,
            group_instance_id=instance,
            protocol_type=kind,
            protocols=[JoinGroupRequestProtocol(*each) for each in protocols],
        )
        asked_by = GroupClient(client_id=client, host="/127.0.0.1", version=version)
        self.coordinator.join(request, asked_by, reply, *self.time)
        self._maybe_write()
        return reply

    def new_id(self, group="g", **options):
        """The id that a new dynamic member is told to join with."""
        reply = self.join(group, **options)
        assert reply.error is ErrorCode.MEMBER_ID_REQUIRED
        return reply.value.member_id

    def enter(self, group="g", **options):
        """A new dynamic member joins, and waits. Its id and the reply."""
        member = self.new_id(group, **options)
        return member, self.join(group, member, **options)

    def sync(self, group="g", member="", generation=1, parts=None, *, instance=None, **named):
        reply = self._reply()
        assignments = [SyncGroupRequestAssignment(*each) for each in (parts or {}).items()]
        request = SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member,
            group_instance_id=instance,
            assignments=assignments,
            **named,
        )
        self.coordinator.sync(request, reply, *self.time)
        self._maybe_write()
        return reply

    def heartbeat(self, group="g", member="", generation=1, *, instance=None):
        request = HeartbeatRequest(group, generation, member, instance)
        value = self.coordinator.heartbeat(request, *self.time)
        self._maybe_write()
        return ErrorCode(value.error_code)

    def leave(self, group="g", *members, version=5):
        """Members are ids, or (id, instance id)."""
        reply = self._reply()
        pairs = [each if isinstance(each, tuple) else (each, None) for each in members]
        if version < 3:
            request = LeaveGroupRequest(group, pairs[0][0])
        else:
            request = LeaveGroupRequest(group, "", [MemberIdentity(*pair) for pair in pairs])
        asked_by = GroupClient(client_id="c", host="/h", version=version)
        self.coordinator.leave(request, asked_by, reply, *self.time)
        self._maybe_write()
        return reply

    def commit(
        self,
        group="g",
        offsets=None,
        *,
        member="",
        generation=-1,
        instance=None,
        metadata="",
        retention_ms=-1,
        version=10,
    ):
        """Offsets by (topic, partition); ("t", 0) at 5 when none are given."""
        reply = self._reply()
        topics = []
        for (topic, partition), offset in (offsets or {("t", 0): 5}).items():
            each = OffsetCommitRequestPartition(partition, offset, 3, metadata)
            topics.append(OffsetCommitRequestTopic(topic, IDS.get(topic, bytes(16)), [each]))
        request = OffsetCommitRequest(group, generation, member, instance, retention_ms, topics)
        asked_by = GroupClient(client_id="c", host="/h", version=version)
        self.coordinator.commit_offsets(request, asked_by, reply, *self.time)
        self._maybe_write()
        return reply

    def fetch(self, group="g", topics=(("t", (0,)),), *, ids=IDS.get):
        """Offset and metadata by (topic, partition)."""
        named = topics
        if topics is not None:
            named = [OffsetFetchRequestTopics(name, bytes(16), some) for name, some in topics]
        request = OffsetFetchRequestGroup(group, None, -1, named)
        value = self.coordinator.fetch_offsets(request, ids, require_stable=True)
        assert value.error_code == 0
        return {
            (topic.name, each.partition_index): (each.committed_offset, each.metadata)
            for topic in value.topics
            for each in topic.partitions
        }

    def committed(self, group="g", topic="t", partition=0):
        return self.fetch(group, ((topic, (partition,)),))[topic, partition][0]

    def delete(self, group="g"):
        reply = self._reply()
        self.coordinator.delete_group(group, reply, *self.time)
        self._maybe_write()
        return reply

    def delete_offsets(self, group="g", topics=(("t", (0,)),)):
        reply = self._reply()
        named = [
            OffsetDeleteRequestTopic(name, [OffsetDeleteRequestPartition(each) for each in some])
            for name, some in topics
        ]
        request = OffsetDeleteRequest(group, named)
        self.coordinator.delete_offsets(request, reply, *self.time)
        self._maybe_write()
        return reply

    def listed(self, states=(), types=()):
        value = self.coordinator.list_groups(ListGroupsRequest(list(states), list(types)))
        return {each.group_id: (each.group_state, each.protocol_type) for each in value}

    def state(self, group="g"):
        return self.coordinator.describe(group, 5).group_state

    # --- whole rebalances -----------------------------------------------------------------------

    def stable(self, count=1, group="g", **options):
        """A stable group of so many dynamic members; their ids, the leader first."""
        members = [self.new_id(group, **options) for _ in range(count)]
        return self.rebalance(group, members, **options)

    def rebalance(self, group, members, **options):
        """All members join and sync; their ids, the leader first."""
        joins = {member: self.join(group, member, **options) for member in members}
        self.pass_ms(0)
        leader = next(iter(joins.values())).value.leader
        generation = joins[leader].value.generation_id
        parts = {member: member.encode() for member in members}
        syncs = [self.sync(group, member, generation) for member in members if member != leader]
        syncs.append(self.sync(group, leader, generation, parts))
        assert [each.error for each in syncs] == [ErrorCode.NONE] * len(members)
        assert self.state(group) == "Stable"
        return [leader, *(member for member in members if member != leader)]


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

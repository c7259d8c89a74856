"""Checks answers to clients as they leave a broker.

Each request gets one answer, and a producer gets it within the request's timeout. An acknowledged
batch is committed and lies on enough disks. No answer shows the state of an earlier boot.
`topic_checks` checks answers to administrators, and `fetch_checks` checks Fetch answers.

The checks read requests and answers as bytes, and look batches up among the committed ones. The
broker tells them only which replicas are in sync.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast, final

import attrs

from raftlog.base.binary import Buffer
from raftlog.base.errors import RaftlogError
from raftlog.base.ids import ConnectionId, GroupId, NodeId, ReplicaId
from raftlog.base.limits import BATCH_HEADER_BYTES, PRODUCE_WAIT_MS_MAX
from raftlog.base.units import NEVER, millis
from raftlog.broker.events import ConnectionClosed, ConnectionOpened, Effects, Event, Reply, Request
from raftlog.kafka.codec import decode_request, decode_response
from raftlog.records.batch import read_header
from raftlog.records.slices import FileSlice
from raftlog.storage.segments.jobs import read_slice
from raftlog_sim.checks.fetch_checks import FETCH, FetchAsked, fetched
from raftlog_sim.checks.order_checks import AppendOrder
from raftlog_sim.checks.topic_checks import KEYS, TopicChecks, TopicRequest
from raftlog_sim.facts.committed import CommittedFacts, Stored, identity_of
from raftlog_sim.world.client import cut_frames

if TYPE_CHECKING:
    from raftlog.kafka.messages.produce import ProduceRequest, ProduceResponse
    from raftlog.partition.replica import PartitionReplica
    from raftlog_sim.world.node import Node

_LENGTH_BYTES: Final = 4
_KEY_BYTES: Final = 2
_PRODUCE: Final = 0
_API_VERSIONS: Final = 18
_ALL: Final = -1


class _Asked(NamedTuple):
    """A Produce that waits for its answer. `batches` maps (topic, partition) to the batch's
    identity and number of records. `by` is when the broker must have answered."""

    version: int
    by: int
    acks: int
    turn: int
    batches: dict[tuple[Any, int], tuple[tuple[int, ...], int]]


@final
@attrs.define(eq=False)
class _Desk:
    """The requests of one boot that wait for an answer; a request that is not checked any further
    is its API key. `version` is that of the newest image on any node when the boot began."""

    boots: int
    version: int
    turns: int = 0
    waiting: dict[ConnectionId, dict[int, _Asked | FetchAsked | TopicRequest | int]] = (
        attrs.Factory(dict)
    )
    appended: dict[ConnectionId, AppendOrder] = attrs.Factory(dict)
    """The acknowledged batches of each connection that has produced."""
    first_by: int = NEVER
    """The instant before which no answer is due."""
    now: int = 0
    """The instant of this turn."""
    before: int = 0
    """The instant of the turn before."""

    def close(self, connection: ConnectionId) -> None:
        """Forget a connection that has ended."""
        self.waiting.pop(connection, None)
        self.appended.pop(connection, None)


@final
@attrs.define(eq=False)
class AnswerChecks:
    """Checks every answer. `committed` and `shown` are those of the invariants. `durable` returns
    the entry up to which a replica was last seen to be durable, for a leader of a term.
    `is_excused` says whether the run may have damaged a node's disk."""

    committed: dict[GroupId, CommittedFacts]
    shown: dict[GroupId, int]
    durable: Callable[[GroupId, ReplicaId, int], int]
    topics: TopicChecks
    is_excused: "Callable[[Node], bool]"
    _desks: dict[NodeId, _Desk] = attrs.Factory(dict)

    def hear(self, node: "Node", events: Sequence[Event]) -> bool:
        """Note the requests of a turn; returns whether an answer may be overdue."""
        desk = self._desks.get(node.number)
        if desk is None or desk.boots != node.boots:
            desk = self._desks[node.number] = _Desk(node.boots, self.topics.version)
        desk.turns += 1
        context = node.broker.context
        desk.before, desk.now = desk.now, context.now
        begins = context.now + (0 if node.broker.clients.serving else context.config.session_ns)
        for event in events:
            kind = type(event)
            if kind is Request:
                self._note(desk, cast("Request", event), begins)
            elif kind is ConnectionOpened:
                desk.waiting[cast("ConnectionOpened", event).connection] = {}
            elif kind is ConnectionClosed:
                desk.close(cast("ConnectionClosed", event).connection)
        return desk.now > desk.first_by

    def after_turn(self, node: "Node", effects: Effects) -> Iterator[tuple[str, str]]:
        """Check the answers of a turn; yields (invariant, error or "") for each check."""
        desk = self._desks[node.number]
        for reply in effects.replies:
            yield from self._reply(node, desk, reply)
        for hangup in effects.hangups:
            desk.close(hangup.connection)
        if desk.now > desk.first_by:
            yield "answered-in-time", _overdue(node, desk)

    def unanswered(self, node: "Node") -> str:
        """Returns the answers that a broker still owes at the end of a run; "" for none."""
        desk = self._desks.get(node.number)
        if desk is None or desk.boots != node.boots:
            return ""
        owed = [f"{number} of connection {each}" for each in desk.waiting for number in
                desk.waiting[each]]  # fmt: skip
        return f"node {node.number} owes answers to requests {owed}" if owed else ""

    def _note(self, desk: _Desk, request: Request, begins: int) -> None:
        waiting = desk.waiting.get(request.connection)
        if waiting is None:
            return  # it came too late
        frame = request.frame
        key = int.from_bytes(frame[:_KEY_BYTES])
        if key in KEYS:
            waiting[request.request_no] = self.topics.asked(frame) or key
            return
        if key == FETCH:
            waiting[request.request_no] = FetchAsked(frame)
            return
        asked = _asked(frame, desk.turns, begins) if key == _PRODUCE else None
        waiting[request.request_no] = asked or key
        if asked is not None:
            desk.first_by = min(desk.first_by, asked.by)

    def _reply(self, node: "Node", desk: _Desk, reply: Reply) -> Iterator[tuple[str, str]]:
        waiting = desk.waiting.get(reply.connection)
        if waiting is None:
            return  # the connection has ended: no client hears it
        frames = None
        for number in range(reply.request_no, reply.request_no + reply.answers):
            if number not in waiting:
                yield "answered-once", f"request {number} of {reply.connection} is not waiting"
                continue
            yield "answered-once", ""
            asked = waiting.pop(number)
            if asked != _API_VERSIONS and reply.parts is not None:
                yield "answered-by-this-boot", _of_an_earlier_boot(node, desk)
            if type(asked) is int:
                continue
            if type(asked) is _Asked:
                late = asked.by < desk.before
                told = f"node {node.number} answered request {number} of {reply.connection} late"
                yield "answered-in-time", told if late else ""
            if reply.parts is not None:
                if frames is None:
                    frames = _frames(node, reply)
                frame = frames[number - reply.request_no] if frames else b""
                if not frame:
                    continue
                if type(asked) is _Asked:
                    order = desk.appended.setdefault(reply.connection, AppendOrder())
                    yield from self._produced(node, desk, asked, frame, order, number)
                elif type(asked) is FetchAsked:
                    if not self.is_excused(node):
                        for wrong in fetched(node, asked, frame, self.committed, self.shown):
                            yield "fetched-rightly", wrong
                else:
                    administered = cast("TopicRequest", asked)
                    yield from self.topics.answered(administered, frame[_LENGTH_BYTES:])

    def _produced(
        self,
        node: "Node",
        desk: _Desk,
        asked: _Asked,
        frame: bytes,
        order: AppendOrder,
        request_no: int,
    ) -> Iterator[tuple[str, str]]:
        body: ProduceResponse = decode_response(0, asked.version, frame[_LENGTH_BYTES:]).body
        for topic in body.responses:
            key = topic.name or bytes(topic.topic_id)
            for row in topic.partition_responses:
                if row.error_code:
                    continue
                partition = node.broker.context.router.partition(key, row.index)
                batch = asked.batches.get((key, row.index))
                group = getattr(partition, "group", None)
                if group is not None and batch is not None:
                    yield (
                        "produce-promise",
                        self._promise(node, desk, asked, group, row.base_offset, *batch),
                    )
                    yield (
                        "appended-in-order",
                        order.acknowledged(group, request_no, row.base_offset, batch[0]),
                    )

    def _promise(
        self,
        node: "Node",
        desk: _Desk,
        asked: _Asked,
        group: GroupId,
        base_offset: int,
        identity: tuple[int, ...],
        count: int,
    ) -> str:
        """Returns what is wrong with the answer that a batch begins at this offset, or ""."""
        committed = self.committed.get(group)
        stored = None if committed is None else committed.batch_at(base_offset)
        told = f"node {node.number} says that a batch of group {group} is stored at {base_offset}"
        if stored is None:
            return f"{told}: nothing is" if committed is None or committed.whole else ""
        if (stored.identity, stored.next_offset - stored.base_offset) != (identity, count):
            return f"{told}: it is {identity} with {count} records, there lies {stored}"
        if stored.next_offset > self.shown.get(group, 0):
            return f"{told}: no high watermark above {self.shown.get(group, 0)} was shown"
        replica = node.broker.context.replicas.get(group)
        if asked.acks != _ALL or replica is None:
            return ""
        # The in-sync set at the decision is known only for answers decided by the last take.
        late = len(asked.batches) == 1 and asked.turn != desk.turns and replica.is_leader
        members = replica.in_sync if late else replica.membership.all_voters()
        holders = [each for each in members if self._holds(node, group, each, stored)]
        if len(holders) >= replica.config.min_insync_replicas:
            return ""
        return f"{told}: of {members} only {holders} hold entry {stored.raft_index}"

    def _holds(self, node: "Node", group: GroupId, member: ReplicaId, stored: Stored) -> bool:
        if self.durable(group, member, stored.term) < stored.raft_index:
            return False
        other = node.world.nodes.get(member.node)
        replica: PartitionReplica | None = None
        if other is not None and other.up:
            replica = other.broker.context.replicas.get(group)
        if replica is None or replica.me != member:
            return True  # it was seen to hold the entry before it went down
        return replica.log.term_at(stored.raft_index) in (None, stored.term)  # type: ignore[arg-type]


def _of_an_earlier_boot(node: "Node", desk: _Desk) -> str:
    """Returns an error when a broker answers by an image older than its boot (decision 0055)."""
    version = node.broker.context.image.version
    if version >= desk.version:
        return ""
    return f"node {node.number} answers by version {version}, at its boot there was {desk.version}"


def _overdue(node: "Node", desk: _Desk) -> str:
    """Returns a Produce whose answer is overdue; "" when there is none."""
    desk.first_by = NEVER
    for connection, waiting in desk.waiting.items():
        for number, asked in waiting.items():
            if type(asked) is not _Asked:
                continue
            if asked.by < desk.now:
                late = f"request {number} of connection {connection}, {desk.now - asked.by} ns late"
                return f"node {node.number} does not answer a producer: {late}"
            desk.first_by = min(desk.first_by, asked.by)
    return ""


def _asked(frame: Buffer, turn: int, begins: int) -> _Asked | None:
    try:
        decoded = decode_request(frame)
    except RaftlogError:
        return None
    body: ProduceRequest = decoded.body
    batches = {}
    for topic in body.topic_data:
        for each in topic.partition_data:
            records = cast("Buffer | None", each.records)
            if records is not None and len(records) >= BATCH_HEADER_BYTES:
                header = read_header(records)
                key = (topic.name or bytes(topic.topic_id), int(each.index))
                batches[key] = (identity_of(header), header.records_count)
    by = begins + millis(min(max(body.timeout_ms, 0), PRODUCE_WAIT_MS_MAX))
    return _Asked(decoded.api_version, by, body.acks, turn, batches)


def _frames(node: "Node", reply: Reply) -> list[bytes]:
    """Returns the answers, each with its length; none when a file cannot be read, since the broker
    then sends no answer."""
    disk = node.disk.for_reading()
    try:
        parts = [
            read_slice(disk, part) if isinstance(part, FileSlice) else bytes(part)
            for part in reply.parts or ()
        ]
    except RaftlogError:
        return []
    return cut_frames(b"".join(parts), reply.answers)

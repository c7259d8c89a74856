"""A few replicas of one group in one process: messages and disks move only when a test says so.

`Peer` drives one RaftNode as a broker would: it takes, keeps what the take wrote until the test
persists it, and hands messages to the wire. `Cluster` holds the wire, the clock and the faults.
Nothing here is random but through the seed that a test gives.
"""

from collections.abc import Callable, Iterable

from raftlog.base.checksum import crc32c
from raftlog.base.entries import Entry, EntryKind, HardState, LogPosition, Membership
from raftlog.base.ids import (
    DirectoryId,
    GroupId,
    IoId,
    NodeId,
    Offset,
    RaftIndex,
    ReplicaEpoch,
    ReplicaId,
    Term,
)
from raftlog.base.trace import ListTracer
from raftlog.base.units import NEVER, Instant, WallMillis, millis
from raftlog.raft.messages import Append, RaftMessage
from raftlog.raft.node import RaftNode, Role
from raftlog.raft.options import RaftOptions
from raftlog.raft.output import Output
from raftlog.records.batch import CRC_FROM, HEADER
from tests.raft.memory_log import MemoryLog

GROUP = GroupId(1)
WALL = WallMillis(1_700_000_000_000)
OPTIONS = RaftOptions(heartbeat_ns=millis(100), election_ns=millis(1000), eager_commit=True)
BEAT = OPTIONS.heartbeat_ns
ELECTION = OPTIONS.election_ns
NO_HARD_STATE = HardState(Term(0), None)
START = Instant(1_000_000_000_000)


def rid(number: int, epoch: int = 0) -> ReplicaId:
    """The replica that node `number` holds; a later placement on the same node has a higher
    epoch."""
    return ReplicaId(NodeId(number), DirectoryId(number), ReplicaEpoch(epoch))


def voters(*numbers: int, learners: Iterable[int] = ()) -> Membership:
    return Membership(
        tuple(rid(n) for n in sorted(numbers)), learners=tuple(rid(n) for n in sorted(learners))
    )


def make_batch(offset: int, term: int, payload: bytes = b"x", records: int = 1) -> bytes:
    """A v2 batch whose records are any bytes: consensus never looks at them."""
    size = HEADER.size + len(payload) - 12
    head = (offset, size, term, 2, 0, 0, records - 1, 0, 0, -1, -1, -1, records)
    batch = bytearray(HEADER.pack(*head)) + payload
    batch[17:21] = crc32c(memoryview(batch)[CRC_FROM:]).to_bytes(4, "big")
    return bytes(batch)


def entry(index: int, term: int, offset: int, payload: bytes = b"x") -> Entry:
    batch = make_batch(offset, term, payload)
    kind = EntryKind.RECORDS
    return Entry(RaftIndex(index), Term(term), kind, Offset(offset), Offset(offset + 1), batch)


def log_of_terms(*terms: int, membership: Membership | None = None) -> MemoryLog:
    """A durable log whose entry i has the i-th of `terms`, one record each."""
    log = MemoryLog.founded(membership or voters(1, 2, 3))
    log.append([entry(i + 1, term, i, b"t%d" % term) for i, term in enumerate(terms)])
    log.take(IoId(0))
    log.persisted(IoId(0))
    return log


class SeededEntropy:
    """A small generator of its own, so that no test depends on another's draws."""

    def __init__(self, seed: int = 1) -> None:
        self._state = seed * 2654435761 % 2**32 or 1

    def below(self, bound: int) -> int:
        for _ in range(2):
            self._state ^= (self._state << 13) & 0xFFFFFFFF
            self._state ^= self._state >> 17
            self._state ^= (self._state << 5) & 0xFFFFFFFF
        return self._state % bound

    def bytes(self, count: int) -> bytes:
        return b"".join(self.below(256).to_bytes(1, "big") for _ in range(count))

    def fork(self, label: str) -> "SeededEntropy":
        return SeededEntropy(self._state + len(label) + 1)


class Peer:
    """One replica with its driver. Writes of a take are durable only after `persist`."""

    def __init__(
        self,
        me: ReplicaId,
        log: MemoryLog,
        *,
        hard_state: HardState = NO_HARD_STATE,
        options: RaftOptions = OPTIONS,
        damaged: LogPosition | None = None,
        commit_hint: int = 0,
        now: Instant = START,
        seed: int = 0,
        io_base: int = 0,
    ) -> None:
        self.me = me
        self.log = log
        self.options = options
        self.stored = hard_state
        self.mark = damaged
        self.hint = commit_hint
        self.tracer = ListTracer()
        self.io = io_base
        self.open: list[tuple[IoId, HardState | None, bool]] = []
        self.outputs: list[Output] = []
        self.reads: dict[int, RaftIndex | None] = {}
        self.transfers: list[tuple[ReplicaId, bool]] = []
        self.agreed: list[ReplicaId] = []
        self.uncovered: list[ReplicaId] = []
        self.installed: list[int] = []
        self.verify: list[tuple[RaftIndex, RaftIndex]] = []
        self.auto_reads = True
        self.deadline = NEVER
        self.node = RaftNode(
            group=GROUP,
            me=me,
            log=log,
            hard_state=hard_state,
            memberships=log.memberships,
            commit_hint=RaftIndex(commit_hint),
            damaged=damaged,
            options=options,
            entropy=SeededEntropy(seed or me.node * 7919 + 1),
            tracer=self.tracer,
            now=now,
        )
        self.node.wall_ms = WALL
        self.pending_log_reads = []
        self.pending_snapshots = []
        self._check_promises = True

    def take(self) -> Output:
        """One drain; what it wants written stays open until `persist`."""
        self.io += 1
        io_id = IoId(self.io)
        out = self.node.take(io_id)
        if out.hard_state is not None or out.log_changed:
            self.open.append((io_id, out.hard_state, out.log_changed))
            if out.log_changed:
                self.log.take(io_id)
        self.outputs.append(out)
        self.deadline = out.deadline
        self.agreed.extend(out.agreed)
        self.uncovered.extend(out.uncovered)
        self.verify.extend(out.verify)
        self.reads.update({read.token: read.raft_index for read in out.reads})
        if out.transfer_done is not None:
            self.transfers.append((out.transfer_done.to, out.transfer_done.ok))
        if out.installed is not None:
            self.installed.append(out.installed.position.raft_index)
        self.pending_log_reads.extend(out.log_reads)
        self.pending_snapshots.extend(out.snapshot_reads)
        return out

    def persist(self, now: Instant) -> bool:
        """Sync the oldest open write; whether there was one."""
        if not self.open:
            return False
        io_id, hard_state, log_changed = self.open.pop(0)
        if hard_state is not None:
            assert hard_state.term >= self.stored.term, (hard_state, self.stored)
            if hard_state.term == self.stored.term and self.stored.vote is not None:
                assert hard_state.vote == self.stored.vote, (hard_state, self.stored)
            self.stored = hard_state
        if log_changed:
            self.log.persisted(io_id)
        self.node.persisted(io_id, now)
        self.hint = max(self.hint, min(self.node.commit, self.node.durable))
        return True

    def answer_reads(self) -> bool:
        """Do the disk reads that the node asked for."""
        reads, self.pending_log_reads = self.pending_log_reads, []
        for read in reads:
            gone = not self.log.first_index <= read.first_index <= self.log.last_index
            found = None if gone else self.log.read(read.first_index, read.bytes_max)
            chain = self.log.chain_at(RaftIndex(read.first_index - 1)) or 0
            self.node.log_read_done(read.token, read.first_index, chain, found)
        snapshots, self.pending_snapshots = self.pending_snapshots, []
        for read in snapshots:
            position = self.log.position_before_first()
            content = b"state before %d" % self.log.first_index
            self.node.snapshot_read_done(read.token, position, content)
        return bool(reads or snapshots)

    @property
    def role(self) -> Role:
        return self.node.role

    @property
    def terms(self) -> list[int]:
        return [e.term for e in self.log.all_entries]

    @property
    def payloads(self) -> list[bytes]:
        """The records that clients wrote, in order, without Raft's own entries."""
        mine = (e for e in self.log.all_entries if e.kind is EntryKind.RECORDS)
        return [bytes(e.batch[HEADER.size :]) for e in mine]


class Cluster:
    """Peers, the wire between them, and the clock."""

    def __init__(
        self,
        count: int = 3,
        *,
        learners: Iterable[int] = (),
        options: RaftOptions = OPTIONS,
        logs: dict[int, MemoryLog] | None = None,
        hard_states: dict[int, HardState] | None = None,
        membership: Membership | None = None,
        hints: dict[int, int] | None = None,
    ) -> None:
        learners = list(learners)
        numbers = range(1, count + 1)
        self.membership = membership or voters(*numbers, learners=learners)
        self.options = options
        self.now = START
        self.wire: list[RaftMessage] = []
        self.sent: list[RaftMessage] = []
        self.cut: set[tuple[NodeId, NodeId]] = set()
        self.drop: Callable[[RaftMessage], bool] = lambda message: False
        self.frozen_disks: set[int] = set()
        self.peers: dict[int, Peer] = {}
        for number in [*numbers, *learners]:
            log = (logs or {}).get(number) or MemoryLog.founded(self.membership)
            state = (hard_states or {}).get(number) or HardState(log.last_term, None)
            hint = (hints or {}).get(number, 0)
            self.peers[number] = Peer(
                rid(number), log, hard_state=state, options=options, commit_hint=hint
            )

    def __getitem__(self, number: int) -> Peer:
        return self.peers[number]

    def node(self, number: int) -> RaftNode:
        return self.peers[number].node

    # --- faults -----------------------------------------------------------------------------------

    def isolate(self, *numbers: int) -> None:
        """Cut these off from all the others, both ways."""
        for number in numbers:
            for other in self.peers:
                if other not in numbers:
                    self.cut |= {(NodeId(number), NodeId(other)), (NodeId(other), NodeId(number))}

    def heal(self) -> None:
        self.cut.clear()
        self.drop = lambda message: False

    def crash(self, number: int) -> Peer:
        """Kill and boot again: what was not synced is gone, messages to it are lost."""
        old = self.peers[number]
        self.wire = [m for m in self.wire if m.to != old.me]
        log, mark = old.log.crashed(), old.mark
        if mark is not None and (log.last_term, log.last_index) >= (mark.term, mark.raft_index):
            mark = None  # refetched, or cut by a newer leader: either way the mark is void
        peer = Peer(
            old.me,
            log,
            hard_state=old.stored,
            options=old.options,
            damaged=mark,
            commit_hint=old.hint,
            now=self.now,
            seed=old.io + number,
            io_base=old.io,
        )
        self.peers[number] = peer
        return peer

    def links_reset(self, number: int) -> None:
        """All links of a node break and come back; what was queued on them is lost."""
        me = self.peers[number].me
        self.wire = [m for m in self.wire if me not in (m.to, m.sender)]
        for other, peer in self.peers.items():
            if other != number:
                for a, b in ((peer, me), (self.peers[number], peer.me)):
                    a.node.link_down(b.node, self.now)
                    a.node.link_up(b.node, self.now)

    # --- steps ------------------------------------------------------------------------------------

    def flush(self, number: int) -> Output:
        """One take; its messages go on the wire."""
        out = self.peers[number].take()
        self.sent.extend(out.send)
        for message in out.send:
            if not self.drop(message) and (message.sender.node, message.to.node) not in self.cut:
                self.wire.append(message)
        return out

    def deliver(self) -> int:
        """Deliver what is on the wire now; each receiver takes afterwards. How many arrived."""
        batch, self.wire = self.wire, []
        for message in batch:
            for peer in self.peers.values():
                if peer.me == message.to:
                    peer.node.receive([message], self.now)
        return len(batch)

    def settle(self, rounds: int = 200) -> None:
        """Take, sync, read and deliver until nothing moves any more, without time passing."""
        for _ in range(rounds):
            moved = False
            for number, peer in self.peers.items():
                out = self.flush(number)
                moved |= bool(out.send or out.commit is not None or out.reads)
                if number not in self.frozen_disks:
                    while peer.persist(self.now):
                        moved = True
                if peer.auto_reads:
                    moved |= peer.answer_reads()
            moved |= self.deliver() > 0
            if not moved:
                return
        raise AssertionError("the group does not come to rest")

    def advance(self, nanos: int, step: int = millis(20)) -> None:
        """Let time pass, everything moving as it becomes due."""
        end = self.now + nanos
        while self.now < end:
            self.now = Instant(min(self.now + step, end))
            for peer in self.peers.values():
                if self.now >= peer.deadline:
                    peer.node.tick(self.now)
            self.settle()

    def tick(self, number: int, at: int | None = None) -> None:
        """Let one replica's deadline come, at least."""
        peer = self.peers[number]
        self.flush(number)
        self.now = Instant(max(self.now, at if at is not None else peer.deadline))
        peer.node.tick(self.now)

    # --- shorthands -------------------------------------------------------------------------------

    def campaign(self, number: int) -> None:
        """This replica's election timeout passes, and no other's."""
        peer = self.peers[number]
        self.flush(number)
        self.now = Instant(self.now + 3 * ELECTION)
        for other, rest in self.peers.items():
            if other != number and rest.role is not Role.LEADER:
                rest.node._state.election_deadline = Instant(self.now + 2 * ELECTION)
        peer.node._state.election_deadline = self.now
        peer.node.tick(self.now)

    def elect(self, number: int) -> Peer:
        """Make this replica the leader, ready to take proposals."""
        self.settle()
        self.campaign(number)
        self.settle()
        peer = self.peers[number]
        assert peer.role is Role.LEADER, (number, peer.role, peer.node.term)
        return peer

    def propose(self, number: int, *payloads: bytes) -> tuple[int, int]:
        """Propose one batch for each payload, at once."""
        peer = self.peers[number]
        offset = peer.log.next_offset
        batches = [
            make_batch(offset + i, peer.node.term, payload) for i, payload in enumerate(payloads)
        ]
        return peer.node.propose(batches, self.now, WALL)

    def write(self, number: int, *payloads: bytes) -> None:
        """Propose and settle."""
        self.propose(number, *payloads)
        self.settle()

    def leader(self) -> int | None:
        leading = [(p.node.term, n) for n, p in self.peers.items() if p.role is Role.LEADER]
        return max(leading)[1] if leading else None

    def on_wire(self, kind: type) -> list:
        return [message for message in self.wire if isinstance(message, kind)]

    def appends_to(self, number: int) -> list[Append]:
        return [m for m in self.on_wire(Append) if m.to == rid(number)]

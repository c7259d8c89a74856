"""Three replicas of one partition in one process, on simulated disks, driven by hand.

`Place` is a node's data directory with the replica that lives on it; it does for one replica what
a broker does: takes it, performs rounds and jobs, and remembers what was answered. `Group` holds
the wire, the clock, and the faults: cut links, held disks, crashes. `settle` runs everything that
needs no time; `advance` lets time pass from deadline to deadline.
"""

from collections import deque

from raftlog_sim.world.disk import Keep, SimulatedDisk

from raftlog.base.entries import HardState, Membership
from raftlog.base.errors import RaftlogError
from raftlog.base.ids import (
    ClusterId,
    DirectoryId,
    GroupId,
    IoId,
    NodeId,
    ReplicaEpoch,
    ReplicaId,
    Term,
    TopicId,
)
from raftlog.base.trace import ListTracer
from raftlog.base.units import NEVER, Instant, WallMillis, millis
from raftlog.kafka.error_codes import ErrorCode
from raftlog.partition.config import PartitionConfig
from raftlog.partition.machine.applied import MachineStates
from raftlog.partition.output import ProduceAnswer
from raftlog.partition.producing.producer_snapshot import check_producers
from raftlog.partition.replica import PartitionReplica
from raftlog.raft.options import RaftOptions
from raftlog.records.builder import RecordBatchBuilder
from raftlog.records.record import records_of
from raftlog.records.slices import FileSlice
from raftlog.storage.boot.recovery import create_replica, recover_replica
from raftlog.storage.directories.data_dir import DirectoryIdentity, format_directory, open_directory
from raftlog.storage.directories.store import StoreImage
from raftlog.storage.ops import StoreRecords
from raftlog.storage.replica import LogOptions, Registration, ReplicaSpec, replica_path
from raftlog.storage.segments.cold import ColdRead
from raftlog.storage.segments.jobs import read_slice
from raftlog.storage.write_round import DirectoryWriter
from tests.raft.cluster import SeededEntropy

CLUSTER = ClusterId(b"partition-tests!")
TOPIC = TopicId(b"t" * 16)
GROUP = GroupId(7)
RAFT = RaftOptions(heartbeat_ns=millis(100), election_ns=millis(1_000))
ELECTION = RAFT.election_ns
START = Instant(7_000_000_000_000)
WALL = WallMillis(1_700_000_000_000)
FAR = Instant(NEVER - 1)
NO_HARD_STATE = HardState(Term(0), None)


def replica_id(number):
    return ReplicaId(NodeId(number), DirectoryId(0xD0 + number), ReplicaEpoch(1))


def batch_of(*values, pid=-1, epoch=-1, first=-1, timestamp_ms=WALL, codec=0):
    """A batch as a producer sends it."""
    builder = RecordBatchBuilder(
        producer_id=pid, producer_epoch=epoch, base_sequence=first, codec=codec
    )
    for value in values:
        builder.append(value, timestamp_ms=timestamp_ms)
    return builder.build()


class Clocks:
    """Wall clocks of the nodes as one of them sees them: those of the nodes in `apart` differ."""

    def __init__(self):
        self.apart = set()

    def shares(self, node, now, wall_ms):
        return node not in self.apart


class Place:
    """One data directory. `held`: rounds are queued and not performed until it is released."""

    def __init__(self, number, config, options, raft=RAFT, machine=None):
        self.me = replica_id(number)
        self.config = config
        self.options = options
        self.raft = raft
        self.machine = machine
        self.disk = SimulatedDisk(SeededEntropy(number))
        identity = DirectoryIdentity(
            cluster=CLUSTER, node=self.me.node, directory=self.me.directory
        )
        format_directory(self.disk, identity)
        self.spec = ReplicaSpec(
            cluster=CLUSTER,
            group=GROUP,
            replica=self.me,
            path=replica_path(TOPIC, 0, self.me.epoch),
            check_state=MachineStates(machine) if machine else check_producers,
        )
        self.replica = None
        self.held = False
        self.jobs_held = False
        self.rounds = deque()
        self.jobs = deque()
        self.outputs = []
        self.tracer = ListTracer()
        self.clocks = Clocks()
        self.deadline = NEVER
        self.hw_seen = 0

    def found(self, membership, now):
        """First boot: an empty log, registered."""
        self._boot()
        recovered = create_replica(self.disk, self.spec, membership, self.options)
        records = self.store.register(GROUP, Registration(self.me, self.spec.path))
        result = self.writer.perform(IoId(1), [StoreRecords(records)])
        assert result.poisoned is None
        self._run(recovered, now)

    def restart(self, now):
        """Another boot, from whatever the disk says."""
        self._boot()
        mark = self.store.marks.get(GROUP)
        recovered = recover_replica(self.disk, self.spec, mark, self.options)
        assert recovered.log is not None, recovered.why
        self._run(recovered, now)

    def crash(self, keep=Keep.NONE):
        """The process is gone, with what was not synced."""
        self.writer.close()
        self.replica = None
        self.rounds.clear()
        self.jobs.clear()
        self.deadline = NEVER
        self.disk.crash(keep)

    def _boot(self):
        self.store = StoreImage(open_directory(self.disk))
        self.writer = DirectoryWriter(self.disk)
        self.io = 1

    def _run(self, recovered, now):
        self.recovered = recovered
        self.replica = PartitionReplica(
            group=GROUP,
            me=self.me,
            where=f"p0@n{self.me.node}",
            config=self.config,
            recovered=recovered,
            store=self.store,
            hard_state=self.store.hard_states.get(GROUP, NO_HARD_STATE),
            commit_hint=recovered.commit_hint,
            raft=self.raft,
            entropy=SeededEntropy(self.me.node * 31 + self.io),
            tracer=self.tracer,
            clocks=self.clocks,
            machine=self.machine and self.machine(),
            now=now,
        )
        self.deadline = now

    def take(self, now, wall):
        """One drain; returns the messages."""
        self.io += 1
        output = self.replica.take(IoId(self.io), now, wall)
        self.outputs.append(output)
        self.deadline = output.deadline
        ops = list(output.ops)
        records = self.store.take_records(list(output.store_records), now)
        if records:
            ops.append(StoreRecords(records))
        if ops:
            self.rounds.append((IoId(self.io), ops))
        self.jobs.extend(output.jobs)
        if self.replica.publishing:
            # The high watermark that a client of this node saw never goes back, across restarts as
            # well.
            assert self.replica.high_watermark >= self.hw_seen
            self.hw_seen = self.replica.high_watermark
        for then, answer in output.completed:
            then(answer)
        return output.send

    def perform(self, now):
        """Perform the rounds that are queued; whether there were any."""
        if self.held or not self.rounds:
            return False
        while self.rounds:
            io_id, ops = self.rounds.popleft()
            result = self.writer.perform(io_id, ops)
            assert result.poisoned is None, result
            if GROUP in result.failed:
                self.replica.io_failed(now)
                continue
            self.replica.written(io_id)
            self.replica.persisted(io_id, now)
            self.store.note_mark(self.replica.log.mark(self.replica.commit), now)
        return True

    def run_jobs(self, now):
        """Run the jobs that are queued; whether there were any."""
        if self.jobs_held or not self.jobs:
            return False
        while self.jobs:
            token, function, args = self.jobs.popleft()
            self.replica.job_done(token, self.call(function, args), now)
        return True

    def call(self, function, args):
        try:
            return function(self.disk, *args)
        except RaftlogError as error:
            return error


class Group:
    """`numbers` are the nodes; all of them are voters of the founding membership."""

    def __init__(
        self,
        *numbers,
        config=None,
        options=None,
        learners=(),
        raft=RAFT,
        held=(),
        machine=None,
    ):
        self.now, self.wall = START, WALL
        self.wire = deque()
        self.cut = set()
        self.blocked = None  # a message for which this is true is lost
        self.places = {}
        numbers = numbers or (1, 2, 3)
        self.membership = Membership(
            tuple(replica_id(n) for n in numbers), learners=tuple(replica_id(n) for n in learners)
        )
        for number in (*numbers, *learners):
            place = Place(
                number,
                config or PartitionConfig(),
                options or LogOptions(segment_bytes=64 * 1024),
                raft,
                machine,
            )
            self.places[number] = place
            place.found(self.membership, self.now)
        self.link_all()

    def __getitem__(self, number):
        return self.places[number].replica

    @property
    def running(self):
        return [place for place in self.places.values() if place.replica is not None]

    def link_all(self):
        for place in self.running:
            for other in self.running:
                if other is not place and not self.is_cut(place.me.node, other.me.node):
                    place.replica.link_up(other.me.node, self.now)

    # --- moving ---

    def settle(self):
        """Everything that needs no time, until nothing moves."""
        for _ in range(10_000):
            for place in self.running:
                self.take(place)
            moved = False
            for place in self.running:
                moved |= place.perform(self.now)
            for place in self.running:
                moved |= place.run_jobs(self.now)
            moved |= self.deliver_all()
            if not moved:
                return
        raise AssertionError("the group does not come to rest")

    def take(self, place):
        for message in place.take(self.now, self.wall):
            if not self.is_cut(place.me.node, message.to.node) and not (
                self.blocked and self.blocked(message)
            ):
                self.wire.append(message)

    def deliver_all(self):
        moved = bool(self.wire)
        while self.wire:
            message = self.wire.popleft()
            place = self.places[message.to.node]
            if place.replica is not None and not self.is_cut(message.sender.node, message.to.node):
                place.replica.receive([message], self.now)
        return moved

    def advance(self, span_ns):
        """Let time pass; every replica is ticked at its deadline."""
        end = self.now + span_ns
        self.settle()
        while True:
            due = min([place.deadline for place in self.running], default=NEVER)
            if due > end:
                break
            self._pass_to(max(due, self.now + 1))
            for place in self.running:
                if place.deadline <= self.now:
                    place.replica.tick(self.now, self.wall)
            self.settle()
        self._pass_to(end)

    def _pass_to(self, instant):
        if instant > self.now:
            self.wall += (instant - self.now) // millis(1)
            self.now = Instant(instant)

    # --- faults ---

    def is_cut(self, one, two):
        return (min(one, two), max(one, two)) in self.cut

    def isolate(self, number, *, notice=True):
        for other in self.places:
            if other != number:
                self.cut.add((min(number, other), max(number, other)))
                if notice:
                    self._links("link_down", number, other)

    def heal(self):
        cut, self.cut = self.cut, set()
        for one, two in sorted(cut):
            self._links("link_up", one, two)

    def _links(self, what, one, two):
        for here, there in ((one, two), (two, one)):
            if self[here] is not None:
                getattr(self[here], what)(there, self.now)

    def crash(self, number, keep=Keep.NONE):
        self.places[number].crash(keep)
        for other in self.places:
            if other != number and self[other] is not None:
                self[other].link_down(number, self.now)

    def restart(self, number):
        self.places[number].restart(self.now)
        for other in self.places:
            if other != number and self[other] is not None and not self.is_cut(number, other):
                self._links("link_up", number, other)

    # --- leading ---

    def elect(self, number=1):
        """Make this replica campaign and win, at the present instant."""
        group = self
        for _ in range(40):
            if self[number].is_leader and self[number].ready:
                return self[number]
            leader = self.leader()
            if leader is not None and leader.me != replica_id(number) and leader.ready:
                leader.transfer(replica_id(number), self.now)
            group.advance(ELECTION // 2)
        raise AssertionError(f"{number} does not win")

    def elect_without(self, number):
        """Let the others elect one of them while `number` does not move."""
        still = self.places[number]
        for _ in range(100):
            self.now = Instant(self.now + ELECTION // 8)
            for place in self.running:
                if place is not still:
                    place.replica.tick(self.now, self.wall)
            for _ in range(20):
                for place in self.running:
                    if place is not still:
                        self.take(place)
                        place.perform(self.now)
                        place.run_jobs(self.now)
                self.deliver_all()
            leader = self.leader()
            if leader.me.node != number and leader.ready:
                return leader
        raise AssertionError("the others elect nobody")

    def leader(self):
        leaders = [place.replica for place in self.running if place.replica.is_leader]
        return max(leaders, key=lambda replica: replica.term, default=None)

    # --- clients ---

    def produce(self, number, *values, acks=-1, timeout_ns=None, **producer):
        """Produce one batch; returns the answers so far (empty while it waits)."""
        return self.send(number, batch_of(*values, **producer), acks=acks, timeout_ns=timeout_ns)

    def send(self, number, batch, *, acks=-1, timeout_ns=None):
        answers = []
        deadline = FAR if timeout_ns is None else Instant(self.now + timeout_ns)
        path = self[number].produces(self.now)
        if isinstance(path, ErrorCode):
            answer = ProduceAnswer(path)
        else:
            answer = path.submit(batch, acks, deadline, answers.append, self.now, self.wall)
        if answer is not None:
            answers.append(answer)
        return answers

    def read(self, number, offset=0, bytes_max=1 << 20):
        """All committed records from `offset` on, as (offset, value), as a client would read
        them."""
        replica, place = self[number], self.places[number]
        found = []
        while offset < replica.high_watermark:
            parts = replica.read(offset, bytes_max)
            if isinstance(parts, ColdRead):
                value = place.call(parts.function, parts.args)
                assert not isinstance(value, RaftlogError), value
                replica.log.cold_done(value)
                continue
            blob = b"".join(self._bytes_of(place, part) for part in parts)
            assert blob, offset
            for batch in _batches(blob):
                records = list(records_of(batch, ValueError, "test"))
                found += [(r.offset, bytes(r.value)) for r in records if r.offset >= offset]
            offset = found[-1][0] + 1
        return found

    def _bytes_of(self, place, part):
        if isinstance(part, FileSlice):
            return read_slice(place.disk, part)
        return bytes(part)

    def producer_states(self):
        """Producer table and last index of every replica."""
        return {
            place.me.node: (
                place.replica.log.last_index,
                place.replica._tracker.producers.clock_ms,
                place.replica._tracker.producers.states(),
            )
            for place in self.running
        }


def _batches(blob):
    from raftlog.records.batch import split

    return split(blob, ValueError, "test")


__all__ = ["ELECTION", "FAR", "Group", "Place", "batch_of", "replica_id"]

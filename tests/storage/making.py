"""Helpers of the storage tests: a formatted simulated disk, one replica, batches, rounds."""

from raftlog_sim.base.streams import Stream
from raftlog_sim.world.disk import SimulatedDisk

from raftlog.base.entries import Entry, EntryKind, Membership
from raftlog.base.errors import CorruptData
from raftlog.base.ids import ReplicaId
from raftlog.base.units import NEVER
from raftlog.records.batch import entry_of, patch
from raftlog.records.builder import RecordBatchBuilder
from raftlog.records.control import TermStart, build_control_entry, write_term_start
from raftlog.storage.boot.recovery import create_replica, recover_replica
from raftlog.storage.directories.data_dir import DirectoryIdentity, format_directory, open_directory
from raftlog.storage.directories.store import StoreImage
from raftlog.storage.replica import LogOptions, Registration, ReplicaSpec, replica_path
from raftlog.storage.segments.cold import Learned
from raftlog.storage.write_round import DirectoryWriter

CLUSTER = bytes(range(16))
NOW_MS = 1_700_000_000_000
ME = ReplicaId(1, 0x1111, 5)
OTHER = ReplicaId(2, 0x2222, 5)
FOUNDERS = Membership((ME, OTHER))
SPEC = ReplicaSpec(
    cluster=CLUSTER, group=7, replica=ME, path=replica_path(b"\xaa" * 16, 3, ME.epoch)
)
IDENTITY = DirectoryIdentity(cluster=CLUSTER, node=1, directory=ME.directory)
TINY = LogOptions(segment_bytes=1200 + 4096, window_bytes=2000, index_interval_bytes=300)


def new_disk(seed=0):
    return SimulatedDisk(Stream(seed, "disk"))


def batch_of(count=1, *, size=20, timestamp=NOW_MS, fill=b"v", **options):
    builder = RecordBatchBuilder(**options)
    for _ in range(count):
        builder.append(fill * size, timestamp_ms=timestamp)
    return builder.build()


class Driver:
    """One replica on one disk, driven as a broker would: memory first, then rounds."""

    def __init__(self, disk=None, options=TINY, founders=FOUNDERS):
        self.disk = disk or new_disk()
        self.options = options
        format_directory(self.disk, IDENTITY)
        self._open()
        self.log = create_replica(self.disk, SPEC, founders, options).log
        self.round(records=self.store.register(SPEC.group, Registration(ME, SPEC.path)))

    def _open(self):
        self.image = open_directory(self.disk)
        self.store = StoreImage(self.image)
        self.writer = DirectoryWriter(self.disk)
        self.io_id = 0
        self.commit = 0

    # --- entries ---

    def records(self, count=1, term=None, **options) -> Entry:
        """The next entry, holding `count` records."""
        batch = bytearray(batch_of(count, **options))
        patch(batch, self.log.next_offset, self.log.last_term if term is None else term)
        return entry_of(self.log.last_index + 1, bytes(batch), CorruptData, "test")

    def control(self, kind, body, term=None) -> Entry:
        return build_control_entry(
            kind,
            group=SPEC.group,
            term=self.log.last_term if term is None else term,
            raft_index=self.log.last_index + 1,
            base_offset=self.log.next_offset,
            timestamp_ms=NOW_MS,
            body=body,
        )

    def term_start(self, term) -> Entry:
        return self.control(EntryKind.TERM_START, write_term_start(TermStart(ME, -1)), term)

    def lead(self, term):
        self.log.append([self.term_start(term)])

    def append(self, batches=1, count=1, **options):
        for _ in range(batches):
            self.log.append([self.records(count, **options)])

    # --- rounds ---

    def begin_round(self, records=()):
        """Take the operations of a round without performing it."""
        self.io_id += 1
        ops = list(self.log.take_ops(self.io_id)) if hasattr(self, "log") else []
        from raftlog.storage.ops import StoreRecords

        stored = self.store.take_records(list(records), NEVER)
        return self.io_id, [*ops, StoreRecords(stored)] if stored else ops

    def perform(self, io_id, ops):
        result = self.writer.perform(io_id, ops, lambda: self.log.written(io_id))
        if result.poisoned is None and not result.failed:
            self.log.persisted(io_id)
            self.store.note_mark(self.log.mark(self.commit), 0)
        return result

    def round(self, records=()):
        result = self.perform(*self.begin_round(records))
        assert result.poisoned is None, result
        assert not result.failed, result
        return result

    def settle(self):
        """Rounds until everything, marks included, is durable; background jobs too."""
        self.round()
        self.run_jobs()
        self.round()

    def commit_all(self):
        self.commit = self.log.last_index
        self.log.set_commit(self.commit)

    def run(self, cold):
        value = cold.function(self.disk, *cold.args)
        self.log.cold_done(value)
        return value

    def look_up(self, timestamp_ms, limit=None):
        """The first record at or after a timestamp, all that must be known first computed."""
        limit = self.log.next_offset if limit is None else limit
        return self._ask(lambda: self.log.times().first_at(timestamp_ms, limit)).hit

    def largest(self, limit=None):
        """The largest timestamp below the limit, likewise."""
        limit = self.log.next_offset if limit is None else limit
        return self._ask(lambda: self.log.times().largest(limit)).timestamp_ms

    def _ask(self, plan):
        for _ in range(200):
            value = self.run(plan())
            if not isinstance(value, Learned):
                return value
        raise AssertionError("plan never settles")

    def run_jobs(self):
        for job in self.log.take_jobs():
            self.run(job)

    # --- boots ---

    def reopen(self, options=None):
        """A boot on the disk as it is now; returns what recovery says."""
        self._open()
        mark = self.image.marks.get(SPEC.group)
        found = recover_replica(self.disk, SPEC, mark, options or self.options)
        self.log = found.log
        self.commit = found.commit_hint
        return found

    def crash(self, keep):
        self.disk.crash(keep)
        return self.reopen()

    # --- looking ---

    def read(self, offset, limit=None, bytes_max=1 << 20):
        """Returns the bytes of one plan that a fetch would send, after the cold reads."""
        limit = self.log.next_offset if limit is None else limit
        for _ in range(4):
            plan = self.log.plan_read(offset, bytes_max, limit)
            if isinstance(plan, list):
                return b"".join(self.part(part) for part in plan)
            self.run(plan)
        raise AssertionError("plan never settles")

    def part(self, part):
        if hasattr(part, "path"):
            return self.disk.content(part.path)[part.position : part.position + part.size]
        return bytes(part)

    def read_all(self, bytes_max=1 << 20):
        """Every records batch from the first offset, by successive fetches."""
        from raftlog.records.batch import read_header, split

        offset = self.log.snapshot_position.next_offset
        found = []
        while offset < self.log.next_offset:
            data = self.read(offset, bytes_max=bytes_max)
            assert data, offset
            for batch in split(data, CorruptData, "read"):
                header = read_header(batch)
                assert not header.is_raft_entry
                if header.next_offset > offset:
                    found.append(bytes(batch))
                    offset = header.next_offset
        return found

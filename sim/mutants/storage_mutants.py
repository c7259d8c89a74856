"""Planted bugs of storage, partitions and brokers, as in raft_mutants.py."""

import sys
from functools import partial
from typing import Any

from raftlog_sim.world import disk as simulated_disk

from raftlog.base.errors import DiskError, DiskFull
from raftlog.base.ids import RaftIndex
from raftlog.broker.control.metadata_log import MetadataLog
from raftlog.broker.control.registration import BrokerRegistration
from raftlog.broker.replicas import partition_manager
from raftlog.broker.replicas.multi_raft import MultiRaft
from raftlog.broker.replicas.partition_manager import PartitionManager
from raftlog.metadata.rules import apply_brokers
from raftlog.partition import fetch_plan
from raftlog.partition.maintenance import retention
from raftlog.partition.producing import producer_snapshot, producers
from raftlog.partition.replica import PartitionReplica
from raftlog.partition.serving import Serving
from raftlog.partition.tracker import LogTracker
from raftlog.raft import election, following, replication
from raftlog.raft.state import FOLLOWER
from raftlog.storage.boot import recovery, walked_log
from raftlog.storage.boot.recovery import ReplicaState
from raftlog.storage.boot.trusted_index import IndexFiles, TrustedIndex
from raftlog.storage.directories.incarnations import IncarnationBook
from raftlog.storage.read_plan import ReadPlanner
from raftlog.storage.segments import jobs, scrub
from raftlog.storage.segments.term_table import TermTable
from raftlog.storage.segments.walk import Walk
from raftlog.storage.write_round import DirectoryWriter


def _everywhere(old: Any, new: Any) -> None:
    """Replace a function wherever it was imported by name."""
    for name, module in sorted(sys.modules.items()):
        if name.startswith("raftlog."):
            for key, value in list(vars(module).items()):
                if value is old:
                    setattr(module, key, new)


def producers_forgotten() -> None:
    """13: a batch whose producer is known is taken as new."""
    producers.ProducerTable.check = lambda self, header: None  # type: ignore[method-assign]


def producers_missing_from_snapshots() -> None:
    """13b: a snapshot holds no producers."""
    real = producer_snapshot.write_producers

    def write(table: Any, *, group: Any, before: Any) -> bytes:
        return real(type(table)(), group=group, before=before)

    _everywhere(real, write)


def producers_forgotten_at_failover() -> None:
    """13c: a new leader knows of no producer (Redpanda 3039)."""
    real = Serving.follow_role

    def follow_role(self: Serving, now: Any) -> bool:
        before = self._led_term
        changed = real(self, now)
        if self._led_term not in (None, before):
            self.produces._tracker.producers.load(0, {})
        return changed

    Serving.follow_role = follow_role  # type: ignore[method-assign]


def producers_of_another_log() -> None:
    """13d: a boot takes the producers of entries committed elsewhere.

    Its own log ends in entries that were not committed (seed 6000616).
    """
    TermTable.holds = lambda self, index, term: True  # type: ignore[method-assign]


def uncommitted_is_readable() -> None:
    """14: a reader gets records above the high watermark."""

    def read(self: PartitionReplica, offset: Any, bytes_max: int) -> Any:
        return self.log.plan_read(offset, bytes_max, self.log.next_offset)

    def view(self: PartitionReplica, offset: int) -> Any:
        return fetch_plan.view_of(self.log, offset, self.log.next_offset)

    PartitionReplica.read = read  # type: ignore[method-assign]
    PartitionReplica.view = view  # type: ignore[method-assign]


def names_not_synced() -> None:
    """16: a new file's directory is never synced."""
    simulated_disk.SimulatedDisk.sync_dir = lambda self, path: None  # type: ignore[method-assign]


def index_trusted_over_the_log() -> None:
    """17: a boot trusts an index file about its segment, whatever else contradicts it."""

    def trusted(self: Any, file: Any, following: Any, committed: Any) -> Any:
        del following, committed
        stored = self.read(file)
        return None if stored is None or file.stop is None else TrustedIndex(stored, [])

    IndexFiles.trusted = trusted  # type: ignore[method-assign]


def sync_skipped() -> None:
    """21: a round reports before its files are synced."""
    simulated_disk.SimulatedFile.sync = lambda self: None  # type: ignore[method-assign]


def _ignore(ignored: type[DiskError]) -> None:
    real = DirectoryWriter._append

    def append(self: DirectoryWriter, op: Any) -> None:
        try:
            real(self, op)
        except ignored:
            return

    DirectoryWriter._append = append  # type: ignore[method-assign]


def write_errors_ignored() -> None:
    """21b: a failed write is taken for done, and the next one continues behind it."""
    _ignore(DiskError)


def half_a_batch_is_left() -> None:
    """21d: a full disk took half of a batch, and the group's next round continues behind that."""
    _ignore(DiskFull)


def failed_sync_retried() -> None:
    """21c: a sync that failed is tried again, and believed."""

    def synced(self: DirectoryWriter, sync: Any, directory: str = "") -> None:
        del directory
        try:
            sync()
        except DiskError:
            sync()

    DirectoryWriter._synced = synced  # type: ignore[method-assign]


def retention_passes_the_watermark() -> None:
    """22: retention drops whole segments, committed or not."""
    real = retention.log_start_by_size

    def by_size(segments: Any, bytes_max: int, high_watermark: Any) -> Any:
        del high_watermark
        return real(segments, bytes_max, segments[-1].base_offset if segments else 0)

    _everywhere(real, by_size)


def log_start_before_it_is_committed() -> None:
    """22b: a log-start marker counts as soon as it is in the log."""
    real = LogTracker.committed

    def committed(self: Any, index: Any) -> Any:
        log_start = real(self, index)
        while self._log_starts:
            self.start_marker, log_start = self._log_starts.popleft()
        return log_start

    LogTracker.committed = committed  # type: ignore[method-assign]


def membership_from_the_oldest_entry() -> None:
    """25: a boot takes the membership from the log's entries only.

    From the head header it takes only the membership that founded the group.
    """
    real = walked_log._Walker.__init__

    def begin(self: Any, disk: Any, spec: Any, *more: Any) -> None:
        real(self, disk, spec, *more)
        memberships = self._parts.memberships
        if memberships[0][0] > 0:
            alone = type(memberships[0][1])(voters=(spec.replica,))
            memberships[0] = (RaftIndex(0), alone)

    walked_log._Walker.__init__ = begin  # type: ignore[method-assign]


def chain_never_compared() -> None:
    """26: the chain is written and never compared."""

    def check(self: Walk, raft_index: Any, chain: Any, position: Any, what: str) -> bool:
        del chain, position, what
        return self.place.raft_index == raft_index

    Walk.check = check  # type: ignore[method-assign]
    following._diverged = lambda state, message, index, theirs: None


def damage_cut_as_a_torn_tail() -> None:
    """27: a boot does not ask the mark how far the log once went."""
    real = recovery.recover_replica

    def recover(disk: Any, spec: Any, mark: Any, options: Any, **more: Any) -> Any:
        del mark
        return real(disk, spec, None, options, **more)

    _everywhere(real, recover)


def lost_replica_begins_empty() -> None:
    """28: a registered replica whose files are gone begins again, empty, and votes."""
    real = PartitionManager._opened

    def opened(self: PartitionManager, host: Any, new: bool, value: Any) -> None:
        if getattr(value, "state", None) is ReplicaState.LOST:
            done = partial(self._opened, host, True)
            create = partition_manager.create_replica
            self._job(create, (host.spec, host.founding, host.options), done)
            return
        real(self, host, new, value)

    PartitionManager._opened = opened  # type: ignore[method-assign]


def boot_numbers_not_compared() -> None:
    """28b: an old copy of a directory is accepted: neither its boots nor its lives tell."""
    IncarnationBook.has = lambda self, incarnation: True  # type: ignore[method-assign]
    real = apply_brokers._register_again

    def again(image: Any, known: Any, command: Any) -> Any:
        if command.boot < known.boot:
            known = type(known)(**{**_fields(known), "boot": command.boot - 1})
        return real(image, known, command)

    apply_brokers._register_again = again
    BrokerRegistration.peer_allowed = lambda self, peer, directory, boot: True  # type: ignore[method-assign]


def votes_before_the_image() -> None:
    """28d: a broker asks for votes, and counts them, before it has read what it knows of others.

    It also takes lives that it does not know for its own.
    """
    IncarnationBook.has = lambda self, incarnation: True  # type: ignore[method-assign]
    MetadataLog.behind = property(lambda self: False)  # type: ignore[method-assign,assignment]


def _fields(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in type(value).__attrs_attrs__}


def scrub_skips_a_segment() -> None:
    """27c: the scrubber passes over every second segment, and counts it as looked at."""
    real = scrub.scrub_stretch

    def scrub_stretch(disk: Any, order: Any) -> Any:
        if order.segment.file_sequence % 2:
            return real(disk, order)
        return scrub.StretchSound(1, None)

    _everywhere(real, scrub_stretch)


def node_heartbeat_counts_for_every_group() -> None:
    """29: the heartbeat of a pair of nodes stands for every group, agreed on or not."""

    def cover_follower(state: Any, peer: Any) -> bool:
        follower = state.progress.get(peer)
        if follower is None:
            return False
        follower.covered = True
        return True

    def cover_leader(state: Any, peer: Any) -> bool:
        if state.role is not FOLLOWER:
            return False
        state.leader = state.leader or peer
        state.covered = True
        return True

    replication.cover = cover_follower
    election.cover = cover_leader

    def offered(self: MultiRaft, pair: Any, offer: Any) -> None:
        replica = self.turn.replicas.get(offer.group)
        if replica is not None and replica.cover(offer.leader, self.turn.now):
            pair.follows.covered[offer.group] = offer
            self.turn.touch(offer.group)

    MultiRaft._offered = offered  # type: ignore[method-assign]
    MultiRaft._leader_stopped = lambda self, side, place: None  # type: ignore[method-assign]


def cold_read_to_the_end_of_the_segment() -> None:
    """14b: a read from files takes a whole segment that is written, and asks for no commit."""
    real = ReadPlanner._exact_end

    def exact_end(
        self: Any, segment: Any, index: Any, start: int, target: int, limit: Any, written: Any
    ) -> Any:
        whole = segment.end_position
        if whole is not None and segment.end.raft_index <= written and start < whole <= target:
            return whole
        return real(self, segment, index, start, target, limit, written)

    ReadPlanner._exact_end = exact_end  # type: ignore[method-assign]


def full_disk_removes_segments_first() -> None:
    """22c: a full disk makes room with the segments, before it says where the log begins."""
    real = jobs.remove_files

    def remove_files(disk: Any, paths: Any) -> None:
        segments = [path.removesuffix(".index") + ".log" for path in paths]
        for_room = all(path.endswith(".index") for path in paths)
        real(disk, [path for path in (segments if for_room else paths) if disk.exists(path)])

    jobs.remove_files = remove_files


MUTANTS = (
    ("13", "producers-forgotten", producers_forgotten, ("history-duplicate",)),
    ("13b", "producers-missing-from-snapshots", producers_missing_from_snapshots,
     ("history-duplicate",)),
    ("13c", "producers-forgotten-at-failover", producers_forgotten_at_failover,
     ("history-duplicate",)),
    ("13d", "producers-of-another-log", producers_of_another_log, ("producers-equal",)),
    ("14", "uncommitted-is-readable", uncommitted_is_readable, ("history-inconsistent-offsets",)),
    ("14b", "cold-read-to-the-end-of-the-segment", cold_read_to_the_end_of_the_segment,
     ("history-inconsistent-offsets",)),
    ("16", "names-not-synced", names_not_synced, ("exception",)),
    ("17", "index-trusted-over-the-log", index_trusted_over_the_log, ("exception",)),
    ("21", "sync-skipped", sync_skipped, ("leader-completeness", "exception")),
    ("21b", "write-errors-ignored", write_errors_ignored, ("assertion", "leader-completeness")),
    ("21c", "failed-sync-retried", failed_sync_retried, ("leader-completeness",)),
    ("21d", "half-a-batch-is-left", half_a_batch_is_left, ("promise-durable",)),
    ("22", "retention-passes-the-watermark", retention_passes_the_watermark, ("order",)),
    ("22b", "log-start-before-it-is-committed", log_start_before_it_is_committed, ("order",)),
    ("22c", "full-disk-removes-segments-first", full_disk_removes_segments_first,
     ("lost-rightly",)),
    ("25", "membership-from-the-oldest-entry", membership_from_the_oldest_entry,
     ("election-safety",)),
    ("26", "chain-never-compared", chain_never_compared, ("log-matching",)),
    ("27", "damage-cut-as-a-torn-tail", damage_cut_as_a_torn_tail, ("leader-completeness",)),
    ("27c", "scrub-skips-a-segment", scrub_skips_a_segment, ("rot-found",)),
    ("28", "lost-replica-begins-empty", lost_replica_begins_empty, ("leader-completeness",)),
    ("28b", "boot-numbers-not-compared", boot_numbers_not_compared, ("leader-completeness",)),
    ("28d", "votes-before-the-image", votes_before_the_image, ("leader-completeness",)),
    ("29", "node-heartbeat-counts-for-every-group", node_heartbeat_counts_for_every_group,
     ("liveness",)),
)  # fmt: skip

"""Planted bugs for the scenarios named review-N-*, as in raft_mutants.py."""

from typing import Any, final

import attrs
from raftlog_sim.faults import loss_faults
from raftlog_sim.world.disk import SimulatedDisk
from raftlog_sim.world.node import Node

from raftlog.base.ids import METADATA_GROUP, ReplicaEpoch, ReplicaId
from raftlog.broker.broker import Broker
from raftlog.metadata.topic_image import Reported
from raftlog.raft import following, node
from raftlog.raft.messages import Append
from raftlog.raft.state import FOLLOWER, RaftState
from raftlog.storage.boot import walked_log
from raftlog.storage.directories.data_dir import read_identity
from raftlog.storage.partition_log import PartitionLog


def void_suffix_counts() -> None:
    """25b: a boot takes entries of an older file for live which a younger file has replaced."""
    real = walked_log._Walker.__init__

    def begin(self: Any, disk: Any, spec: Any, files: Any, *more: Any) -> None:
        live = [file._replace(stop=None) for file in files.live]
        real(self, disk, spec, files._replace(live=live), *more)

    walked_log._Walker.__init__ = begin  # type: ignore[method-assign]


def mark_of_what_was_cut_counts() -> None:
    """27b: a boot holds the last file to a mark that speaks of an older one, whose end it cut."""
    real = walked_log._Walker._judge_last

    def judge(self: Any, opened_file: Any, file: Any, end: Any) -> Any:
        mark, sequence = self._mark, file.header.file_sequence
        if mark is not None and mark.file_sequence < sequence:
            self._mark = mark._replace(file_sequence=sequence)
        return real(self, opened_file, file, end)

    walked_log._Walker._judge_last = judge  # type: ignore[method-assign]


def wiped_disk_keeps_its_identity() -> None:
    """28c: an empty disk is formatted again under its old directory id."""

    def empty_disk(node: Node, cluster: object) -> SimulatedDisk:
        del cluster
        disk = node.world.new_disk(node.number)
        node.world.format(disk, read_identity(node.disk.durable_copy()))
        return disk

    loss_faults.empty_disk = empty_disk


def mark_before_its_bytes() -> None:
    """38: a mark speaks of bytes that were handed out, not of those that are synced."""
    real = PartitionLog.mark

    def mark(self: PartitionLog, commit: Any) -> Any:
        rounds = self._rounds
        durable = rounds.durable
        if durable is not None and rounds._flights:
            rounds.durable = rounds._flights[-1].end
        try:
            return real(self, commit)
        finally:
            rounds.durable = durable

    PartitionLog.mark = mark  # type: ignore[method-assign]


def appends_of_ended_terms_are_taken() -> None:
    """39: late messages of a deposed leader are accepted as if it still led."""
    real = following.on_append

    def on_append(state: RaftState, message: Append) -> None:
        if message.term < state.term and state.role is FOLLOWER:
            if message.entries and following._seam_holds(state, message):
                following._take_entries(state, message, message.entries)
            return
        real(state, message)

    node._HANDLERS[Append] = on_append


@final
class _Newest(tuple[int, int, int]):
    """A version that is never older than another."""

    __slots__ = ()

    def __le__(self, other: object) -> bool:
        del other
        return False


def older_reports_count() -> None:
    """40: the image takes the report that comes last, however old it is."""
    Reported.order = property(  # type: ignore[assignment]
        lambda self: _Newest((self.term, self.membership_index, self.serial))
    )


def joiner_founds_a_cluster() -> None:
    """41: an empty broker that is configured as a controller begins a metadata group by itself."""
    real = Broker._begin

    def begin(self: Broker) -> None:
        known = self.volume.store.registrations.get(METADATA_GROUP)
        context = self.context
        if known is None and not self._identity.controllers and context.config.is_controller:
            me = ReplicaId(context.node, context.directory, ReplicaEpoch(0))
            self._identity = attrs.evolve(self._identity, controllers=(me,))
            self.controller.founders = (me,)
        real(self)

    Broker._begin = begin  # type: ignore[method-assign]


MUTANTS = (
    ("25b", "void-suffix-counts", void_suffix_counts, ("assertion", "exception")),
    ("27b", "mark-of-what-was-cut-counts", mark_of_what_was_cut_counts, ("damaged-rightly",)),
    ("28c", "wiped-disk-keeps-its-identity", wiped_disk_keeps_its_identity,
     ("one-vote-a-term", "leader-completeness")),
    ("38", "mark-before-its-bytes", mark_before_its_bytes, ("mark-synced", "durable-on-disk")),
    ("39", "appends-of-ended-terms-are-taken", appends_of_ended_terms_are_taken,
     ("log-matching", "truncation-proven")),
    ("40", "older-reports-count", older_reports_count, ("reports-ascend",)),
    ("41", "joiner-founds-a-cluster", joiner_founds_a_cluster, ("election-safety",)),
)  # fmt: skip

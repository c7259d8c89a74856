"""Walks a data directory without changing it, for `raftlog inspect`; the values are ready for JSON.

It shows what a boot would find, and compares replicas. The chain, and a SHA-256 over the batches up
to an offset, are equal on two replicas that hold the same log from the same first entry. It may run
beside a broker. Bytes that the broker is writing at that moment may then look like a torn tail.
"""

import hashlib
from collections.abc import Mapping
from typing import NamedTuple, final

import attrs

from raftlog.base.entries import Entry
from raftlog.base.errors import CorruptData, FutureFormat
from raftlog.base.ids import Chain, GroupId, Offset, RaftIndex
from raftlog.base.limits import SEGMENT_HEADER_BYTES
from raftlog.base.ports import Disk
from raftlog.storage.directories.data_dir import DirectoryImage, peek_directory
from raftlog.storage.directories.log_directories import LogDirectories, directory_of
from raftlog.storage.files import opened
from raftlog.storage.replica import GROUPS_DIRECTORY, Mark, Registration, ReplicaSpec
from raftlog.storage.segments.live_files import LiveFile, LiveFiles, find_live_files
from raftlog.storage.segments.segment_header import header_needs_repair
from raftlog.storage.segments.walk import Walk, WalkPlace, segment_start

Json = dict[str, object]


class Fingerprint(NamedTuple):
    """A stretch of a log, from its first entry to before `end_index`, which is at `end_offset`."""

    first_index: RaftIndex
    end_index: RaftIndex
    end_offset: Offset
    chain: Chain
    sha256: str


def inspect_directory(
    disk: Disk, *, verify: bool = True, stop_offsets: Mapping[GroupId, Offset] | None = None
) -> Json:
    """Everything about a formatted directory.

    With `verify` every batch is read and checked. `stop_offsets` names, per group, the offset up to
    which the fingerprint goes (default: the end).

    `damaged` at the top says whether any replica is. Raises what `peek_directory` raises.
    """
    image = peek_directory(disk)
    groups: list[Json] = []
    for group, registration in sorted(image.registrations.items()):
        stop = (stop_offsets or {}).get(group)
        groups.append(_inspect_replica(disk, image, group, registration, verify, stop))
    known = {registration.path for registration in image.registrations.values()}
    names = (f"{GROUPS_DIRECTORY}/{name}" for name in disk.list(GROUPS_DIRECTORY))
    identity = image.identity
    return {
        "version": 1,
        "cluster": identity.cluster.hex(),
        "node": identity.node,
        "directory": f"{identity.directory:016x}",
        "boot": image.boot,
        "damaged": any(row["damaged"] for row in groups),
        "verified": verify,
        "controllers": [str(controller) for controller in identity.controllers],
        "unregistered": [name for name in names if name not in known],
        "groups": groups,
    }


def fingerprint_log(disk: Disk, spec: ReplicaSpec, stop: Offset | None = None) -> Fingerprint:
    """Walk a replica's log up to the first entry at or above the offset `stop`.

    Raises `CorruptData` when it is damaged before that, or does not reach it.
    """
    files = find_live_files(disk, spec)
    if not files.live:
        raise CorruptData("the replica has no segment", on=spec.path)
    reading = _Reading(disk, spec, stop)
    for file in files.live:
        reading.take(file)
    if stop is not None and reading.place.offset < stop:
        raise CorruptData(
            reading.fault or f"the log ends at offset {reading.place.offset}", on=spec.path
        )
    if reading.fault is not None and not reading.at_stop:
        raise CorruptData(reading.fault, on=spec.path)
    return reading.fingerprint(files.live[0].header.first_index)


def _inspect_replica(
    disk: Disk,
    image: DirectoryImage,
    group: GroupId,
    registration: Registration,
    verify: bool,
    stop: Offset | None,
) -> Json:
    spec = ReplicaSpec(
        cluster=image.identity.cluster,
        group=group,
        replica=registration.replica,
        path=registration.path,
    )
    hard_state, mark = image.hard_states.get(group), image.marks.get(group)
    row: Json = {
        "group": group,
        "path": registration.path,
        "replica": str(registration.replica),
        "term": hard_state.term if hard_state else 0,
        "vote": str(hard_state.vote) if hard_state and hard_state.vote else None,
        "mark_index": mark.raft_index if mark else 0,
        "commit_hint": mark.commit if mark else 0,
        "damaged": False,
        "fault": None,
    }
    if directory_of(registration.path) and not isinstance(disk, LogDirectories):
        return row | {"fault": "it lies in a further log directory, which was not looked at"}
    try:
        files = find_live_files(disk, spec)
        if not files.live:
            raise CorruptData("the replica has no segment", on=spec.path)
    except (CorruptData, FutureFormat) as damage:
        return row | {"damaged": True, "fault": str(damage)}
    return row | _inspect_log(disk, spec, files, mark, verify, stop)


def _inspect_log(
    disk: Disk,
    spec: ReplicaSpec,
    files: LiveFiles,
    mark: Mark | None,
    verify: bool,
    stop: Offset | None,
) -> Json:
    reading = _Reading(disk, spec, stop)
    segments: list[Json] = []
    for file in files.live:
        if verify:
            reading.take(file, mark)
        segments.append(_segment_row(disk, file, reading if verify else None))
    head = files.live[0].header
    found: Json = {
        "first_index": head.first_index,
        "first_offset": head.base_offset,
        "header_log_start": head.log_start,
        "void_files": files.void,
        "segments": segments,
    }
    if not verify:
        return found
    reached = reading.place.raft_index > (mark.raft_index if mark else 0)
    damaged = files.unreadable is not None or reading.gap is not None
    damaged = damaged or (not reached and not reading.at_stop)
    fingerprint = reading.fingerprint(head.first_index)
    return found | {
        "last_index": reading.place.raft_index - 1,
        "last_term": reading.place.term,
        "next_offset": reading.place.offset,
        "chain": f"{fingerprint.chain:016x}",
        "sha256": fingerprint.sha256,
        "damaged": damaged,
        "fault": files.unreadable or reading.gap or reading.fault,
        "commit_offset": reading.commit_offset,
        "terms": reading.terms,
    }


def _segment_row(disk: Disk, file: LiveFile, reading: "_Reading | None") -> Json:
    header = file.header
    with opened(disk, file.path) as opened_file:
        size = opened_file.size()
        bad_copy = header_needs_repair(opened_file.read_at(0, SEGMENT_HEADER_BYTES))
    row: Json = {
        "file": file.path.rpartition("/")[2],
        "bytes": size,
        "first_index": header.first_index,
        "base_offset": header.base_offset,
        "term": header.term,
        "chain_before": f"{header.chain_before:016x}",
        "membership_index": header.membership_index,
        "voters": [str(voter) for voter in header.membership.voters],
        "header_copy_bad": bad_copy,
        "reset": header.reset,
        "repair": list(header.repair) if header.repair else None,
    }
    if reading is not None:
        row["end_index"] = reading.place.raft_index
        row["end_offset"] = reading.place.offset
        row["end_chain"] = f"{reading.place.chain:016x}"
    return row


def _agrees(walk: Walk, file: LiveFile, mark: Mark) -> bool:
    """Whether the walk agrees with the mark; true where it is elsewhere than at the mark."""
    after = RaftIndex(mark.raft_index + 1)
    if file.header.file_sequence != mark.file_sequence or walk.place.raft_index != after:
        return True
    return walk.check(after, mark.chain, mark.end_position, "the mark")


@final
@attrs.define(eq=False)
class _Reading:
    """Walks live files one after another, hashing batches until `stop`.

    `gap` is a fault inside the log, `fault` any reason for which the walk ended, also a torn tail.
    """

    disk: Disk
    spec: ReplicaSpec
    stop: Offset | None
    place: WalkPlace = attrs.field(init=False)
    fault: str | None = None
    gap: str | None = None
    at_stop: bool = False
    terms: list[Json] = attrs.Factory(list)
    """A row per term: its places, and the chain behind its last entry."""
    commit_offset: int = 0
    """The offset behind the last entry that is known to be committed."""
    _hash: "hashlib._Hash" = attrs.Factory(hashlib.sha256)
    _begun: bool = False
    _stopped: WalkPlace | None = None

    def take(self, file: LiveFile, mark: Mark | None = None) -> None:
        """Walk one file, if the one before it led to its header.

        Where the mark speaks of the file, the walk is compared with it: batches that each look
        right may be another partition's.
        """
        start = segment_start(file.header)
        if self.gap is not None:
            return
        if self._begun and (self.place.raft_index, self.place.chain) != (
            start.raft_index,
            start.chain,
        ):
            self.gap = self.fault or f"{file.path} does not continue the file before it"
            return
        self._begun = True
        self.place = start
        with opened(self.disk, file.path) as opened_file:
            walk = Walk(opened_file, start, self.spec.group, file.path)
            for batch in walk.batches(file.stop):
                if self.stop is not None and batch.before.offset >= self.stop and not self.at_stop:
                    self.at_stop = True
                    self._stopped = batch.before
                if not self.at_stop:
                    self._hash.update(batch.entry.batch)
                self._note(batch.entry, walk.place.chain, mark.commit if mark else 0)
                if mark is not None and not _agrees(walk, file, mark):
                    self.gap = f"{walk.fault} ({file.path})"
                    break
            self.place = walk.place
            self.fault = f"{walk.fault} ({file.path})" if walk.fault else None
        if self.gap is None and file.stop is not None and self.place.raft_index < file.stop:
            self.gap = self.fault or f"{file.path} ends before entry {file.stop}"

    def _note(self, entry: Entry, chain: Chain, commit: int) -> None:
        if not self.terms or self.terms[-1]["term"] != entry.term:
            self.terms.append({"term": entry.term, "first_offset": entry.base_offset})
        self.terms[-1] |= {
            "last_index": entry.raft_index,
            "end_offset": entry.next_offset,
            "end_chain": f"{chain:016x}",
        }
        if entry.raft_index <= commit:
            self.commit_offset = entry.next_offset

    def fingerprint(self, first_index: RaftIndex) -> Fingerprint:
        """The fingerprint of the batches that were hashed."""
        place = self._stopped or self.place
        return Fingerprint(
            first_index, place.raft_index, place.offset, place.chain, self._hash.hexdigest()
        )

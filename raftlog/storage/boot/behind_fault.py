"""How far a damaged log once went: whole entries behind the fault are promises too.

An entry is acknowledged before it is marked, so the mark alone does not say what was promised.
"""

from contextlib import AbstractContextManager, nullcontext, suppress

from raftlog.base.errors import DiskError
from raftlog.base.ids import GroupId, Offset, RaftIndex
from raftlog.base.limits import BATCH_HEADER_BYTES
from raftlog.base.ports import Disk
from raftlog.base.probes import probe
from raftlog.records.batch import read_header
from raftlog.storage.boot.salvage import SalvagingDisk
from raftlog.storage.boot.walked_parts import end_before
from raftlog.storage.files import opened
from raftlog.storage.replica import LogEnd, Mark
from raftlog.storage.segments.live_files import LiveFiles
from raftlog.storage.segments.walk import Walk, WalkPlace, segment_start


def seen_in_last(disk: Disk, group: GroupId, files: LiveFiles) -> LogEnd:
    """How far the last file goes by itself."""
    file = (files.live + files.beyond)[-1]
    with opened(disk, file.path) as opened_file:
        walk = Walk(opened_file, segment_start(file.header), group, file.path, file.term_max)
        for _ in walk.batches(file.stop):
            continue
    return end_before(walk.place)


def seen_behind_mark(disk: Disk, group: GroupId, files: LiveFiles, mark: Mark) -> LogEnd | None:
    """How far the marked file goes from the mark on, whatever damage lies before it. None when
    nothing of that file counts behind the mark.

    A read error is raised, as it may pass. Once the disk has failed a few times, the entries count
    as unknown.
    """
    for file in files.live + files.beyond:
        if file.header.file_sequence != mark.file_sequence:
            continue
        if file.stop is not None and mark.raft_index >= file.stop:
            break
        with opened(disk, file.path) as opened_file, _lenient(disk):
            first = opened_file.read_at(mark.end_position, BATCH_HEADER_BYTES)
            if len(first) == BATCH_HEADER_BYTES:
                start = WalkPlace(
                    RaftIndex(mark.raft_index + 1),
                    Offset(read_header(first).base_offset),
                    mark.end_position,
                    mark.chain,
                    mark.term,
                )
                walk = Walk(opened_file, start, group, file.path, file.term_max)
                with _lenient(disk):
                    for _ in walk.batches(file.stop):
                        probe("promise-found-behind-the-mark")
                return end_before(walk.place)
    return None


def _lenient(disk: Disk) -> AbstractContextManager[object]:
    return suppress(DiskError) if isinstance(disk, SalvagingDisk) else nullcontext()

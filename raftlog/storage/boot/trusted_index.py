"""When the index file of a closed segment may stand for a walk of the segment, until first use."""

from typing import NamedTuple, final

from raftlog.base.entries import EntryKind
from raftlog.base.errors import CorruptData
from raftlog.base.ids import RaftIndex, Term
from raftlog.base.limits import INDEX_FILE_BYTES_MAX
from raftlog.base.ports import Disk, DiskFile
from raftlog.base.probes import probe
from raftlog.records.batch import crc_matches, read_header
from raftlog.records.control import parse_control_entry
from raftlog.storage.files import opened, read_whole
from raftlog.storage.log_end import Mended
from raftlog.storage.replica import ReplicaSpec, index_name
from raftlog.storage.segments.live_files import LiveFile
from raftlog.storage.segments.sparse_index import ControlRow, IndexFile, read_index_file

_LISTED_KINDS = (EntryKind.MEMBERSHIP, EntryKind.LOG_START)


class ListedControl(NamedTuple):
    """A membership or log start that an index file lists, read from its segment."""

    raft_index: RaftIndex
    kind: EntryKind
    body: bytes


class TrustedIndex(NamedTuple):
    """An index file that stands for its segment, and what the entries that it lists say."""

    stored: IndexFile
    controls: list[ListedControl]


@final
class IndexFiles:
    """Reads and judges the index files of one replica. `mended` gets the damaged ones."""

    def __init__(
        self, disk: Disk, spec: ReplicaSpec, interval_bytes: int, mended: list[Mended]
    ) -> None:
        self._disk = disk
        self._spec = spec
        self._interval_bytes = interval_bytes
        self._mended = mended

    def trusted(
        self, file: LiveFile, following: LiveFile, committed: RaftIndex
    ) -> TrustedIndex | None:
        """The index file of a segment that another follows, whose entries are all committed.

        None when it may not be trusted: where it disagrees with either header or with an entry
        that it lists, and where entries may still be replaced.
        """
        stored = self.read(file)
        if stored is None or file.stop is None:
            return None
        header = following.header
        if file.stop - 1 > committed or stored.end[:2] != (file.stop, header.base_offset):
            return None
        joins = stored.joins(file.header.term_before, header.term_before)
        if not joins or stored.end.chain != header.chain_before:
            return None
        with opened(self._disk, file.path) as opened_file:
            if opened_file.size() < stored.end.position:
                return None
            controls = self._controls(opened_file, stored, file.header.term_before)
        return None if controls is None else TrustedIndex(stored, controls)

    def read(self, file: LiveFile) -> IndexFile | None:
        """The segment's index file; None when it is missing, damaged or another segment's."""
        path = index_name(file.path)
        if not self._disk.exists(path):
            return None
        try:
            data = read_whole(self._disk, path, INDEX_FILE_BYTES_MAX)
            stored = read_index_file(data, self._interval_bytes, path)
        except CorruptData as damage:
            probe("index-file-rebuilt")
            self._mended.append(Mended("index-rebuilt", path, damage.what))
            return None
        header = file.header
        told = (stored.group, stored.file_sequence, stored.first_index)
        return stored if told == (header.group, header.file_sequence, header.first_index) else None

    def _controls(
        self, opened_file: DiskFile, stored: IndexFile, term_before: Term
    ) -> list[ListedControl] | None:
        found: list[ListedControl] = []
        for row in stored.sparse.controls:
            if row.kind in _LISTED_KINDS:
                term = stored.sparse.term_at(row.raft_index, term_before)
                body = self._control_body(opened_file, row, term)
                if body is None:
                    return None
                found.append(ListedControl(row.raft_index, row.kind, body))
        return found

    def _control_body(self, opened_file: DiskFile, row: ControlRow, term: Term) -> bytes | None:
        """The payload of a raft entry that the index lists; None when it lies elsewhere."""
        batch = opened_file.read_at(row.position, row.size)
        if len(batch) < row.size or not crc_matches(batch, read_header(batch)):
            return None
        try:
            control = parse_control_entry(batch, CorruptData, self._spec.path)
        except CorruptData:
            return None
        header = read_header(batch)
        told = (control.group, control.raft_index, control.kind)
        place = (header.leader_epoch, header.base_offset)
        if told != (self._spec.group, row.raft_index, row.kind) or place != (term, row.offset):
            return None
        return control.body

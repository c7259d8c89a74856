"""Tells which of a replica's segment files are live, from their names and headers alone."""

from typing import NamedTuple

from raftlog.base.errors import CorruptData
from raftlog.base.ids import RaftIndex, Term
from raftlog.base.limits import SEGMENT_HEADER_BYTES
from raftlog.base.ports import Disk
from raftlog.base.probes import probe
from raftlog.storage.files import opened
from raftlog.storage.replica import AWAY_SUFFIX, Mark, ReplicaSpec, parse_segment_name
from raftlog.storage.segments.head import read_head
from raftlog.storage.segments.segment_header import SegmentHeader, read_segment_header


class LiveFile(NamedTuple):
    """A segment file.

    Its entries from `stop` on (None: to its end) are void. So are those of a term above `term_max`,
    the term before a younger file's first entry: terms never fall along a log.
    """

    path: str
    header: SegmentHeader
    stop: RaftIndex | None
    term_max: Term | None = None


class LiveFiles(NamedTuple):
    """The result of reading all names and headers.

    `live`: oldest first. `void`: paths of files of which nothing counts any more. `beyond`: whole
    files behind one whose header cannot be read; they only show how far the log once went.
    `unreadable`: why the last live file's end cannot be continued, None when nothing is wrong.
    `head`: the first entry since retention removed something. `paths`: of all segment files.
    `repair`: the place that the replica once held, as the youngest live file's header says.
    """

    live: list[LiveFile]
    void: list[str]
    beyond: list[LiveFile]
    sequence_max: int
    unreadable: str | None
    head: RaftIndex | None
    paths: list[str]
    repair: tuple[RaftIndex, Term] | None = None

    def vouch_for(self, mark: Mark | None) -> bool:
        """Whether the commit hint of the mark speaks of these entries.

        It may not when a file cannot be read, or when the file of the mark is missing: such a file
        may have replaced some of them.
        """
        if mark is None or self.unreadable is not None:
            return False
        return any(file.header.file_sequence == mark.file_sequence for file in self.live)


class _Named(NamedTuple):
    file_sequence: int
    first_index: RaftIndex
    path: str


def find_live_files(disk: Disk, spec: ReplicaSpec) -> LiveFiles:
    """Read all headers, youngest file first.

    A file gets its name only after its header is synced. So a header that cannot be read is damage,
    never an unfinished creation. Everything from the index in its name on is then unknown, and
    older files count only below that. Raises `FutureFormat` when a file, or the head file, needs a
    newer reader, `CorruptData` when the head file is damaged.
    """
    live: list[LiveFile] = []
    void: list[str] = []
    beyond: list[LiveFile] = []
    unreadable: str | None = None
    stop: RaftIndex | None = None
    term_max: Term | None = None
    reset = False
    head = read_head(disk, spec)
    named = _named_files(disk, spec.path)
    for name in reversed(named):
        # A file that replaced one with the reset flag carries the flag itself. A removal that was
        # cut short is continued: entries before the recorded head are void.
        covered = reset or (stop is not None and name.first_index >= stop)
        if covered or (head is not None and name.first_index < head):
            void.append(name.path)
            continue
        try:
            header = _header_of(disk, spec, name)
        except CorruptData as damage:
            probe("segment-header-damaged")
            beyond, live = live + beyond, []
            unreadable = str(damage)
        else:
            if term_max is not None and header.term_before > term_max:
                # The file between, which replaced the entries of this one, is lost.
                probe("file-of-void-terms")
                void.append(name.path)
                continue
            live.insert(0, LiveFile(name.path, header, stop, term_max))
            reset, term_max = header.reset, header.term_before
        stop = name.first_index
    sequence_max = max((name.file_sequence for name in named), default=0)
    paths = [name.path for name in named]
    repair = live[-1].header.repair if live else None
    return LiveFiles(live, void, beyond, sequence_max, unreadable, head, paths, repair)


def _named_files(disk: Disk, path: str) -> list[_Named]:
    """All segment files by file sequence.

    A file that is being given its name again counts under its own name. A reader beside a broker
    may see such a file; a boot has put the name back.
    """
    found = []
    names = disk.list(path)
    for name in names:
        own = name.removesuffix(AWAY_SUFFIX)
        parsed = parse_segment_name(own)
        if parsed is not None and (own == name or own not in names):
            found.append(_Named(parsed[1], parsed[0], f"{path}/{name}"))
    return sorted(found)


def _header_of(disk: Disk, spec: ReplicaSpec, name: _Named) -> SegmentHeader:
    with opened(disk, name.path) as file:
        header = read_segment_header(file.read_at(0, SEGMENT_HEADER_BYTES), name.path)
    told = (header.cluster, header.group, header.replica)
    if told != (spec.cluster, spec.group, spec.replica):
        raise CorruptData(
            f"segment of group {header.group}, replica {header.replica}, not of {spec.group}, "
            f"{spec.replica}",
            on=name.path,
        )
    if (header.file_sequence, header.first_index) != name[:2]:
        raise CorruptData(
            f"segment says sequence {header.file_sequence}, first index {header.first_index}",
            on=name.path,
        )
    return header

"""The values from which recovery makes a log, what it mended, and the ends of rounds."""

from typing import NamedTuple, final

import attrs

from raftlog.base.entries import Membership
from raftlog.base.ids import Offset, RaftIndex, Term
from raftlog.storage.recent_window import RecentWindow
from raftlog.storage.replica import LogEnd
from raftlog.storage.segments.segment import Segment
from raftlog.storage.segments.term_table import TermTable


class FileEnd(NamedTuple):
    """A place after an entry, with the file and position where the next one would have gone."""

    end: LogEnd
    file_sequence: int
    position: int


class Mended(NamedTuple):
    """A repair that a boot made in one file, without another replica; `what` names its event."""

    what: str
    file: str
    why: str


@final
@attrs.define(eq=False, kw_only=True)
class LogParts:
    """A log that is on disk and durable up to `end`.

    `before` is the place before the first entry. `file_sequence` is the highest number ever used in
    the directory. `repair` is the end that a damaged replica once had; `repair_file_due` says that
    no file records it yet. `new_file_resets` belongs to a log whose only file is to be replaced.
    `obsolete`: files that are void once the file that is due is durable.
    """

    before: LogEnd
    end: FileEnd
    segments: list[Segment]
    window: RecentWindow
    terms: TermTable
    memberships: list[tuple[RaftIndex, Membership]]
    log_start: Offset
    file_sequence: int
    repair: tuple[RaftIndex, Term] | None = None
    repair_file_due: bool = False
    new_file_resets: bool = False
    obsolete: tuple[str, ...] = ()

"""Checks the answers to ListOffsets and OffsetForLeaderEpoch against the committed records.

They tell clients the beginning, the end and the epochs of a partition, and offsets by timestamp.
A request names the epoch in which its client knows the leader. Only the leader of that very epoch
answers it, so the checks know the term of each answer. An answer may come late, and from a leader
that is deposed without knowing it. Each check says which rules hold even then.
"""

from bisect import bisect_left, bisect_right
from operator import attrgetter
from typing import Final, NamedTuple

from raftlog_sim.facts.committed import CommittedFacts, Stored

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
EPOCH_END: Final = "epoch-end"
TIME: Final = "time"
LARGEST: Final = "largest"
_UNKNOWN: Final = -1


class Before(NamedTuple):
    """The committed state when a client began to ask: the offset after the last acknowledged
    record, the log start, and the newest epoch."""

    stored: int
    log_start: int
    epoch: int


class ToldOffset(NamedTuple):
    """An answer. `leader_epoch` is the epoch that the request named, -1 for none. `asked` is the
    epoch whose end the client wants, or the timestamp. `epoch`, `offset` and `at_ms`, a timestamp,
    are the answered values."""

    leader_epoch: int
    asked: int
    epoch: int
    offset: int
    at_ms: int = _UNKNOWN


def before(committed: CommittedFacts | None, stored: int) -> Before:
    """Returns the present state, for a request that begins now."""
    if committed is None:
        return Before(stored, 0, 0)
    return Before(stored, committed.log_start, committed.epochs[-1][0])


def wrong_latest(
    told: ToldOffset, asked_at: Before, committed: CommittedFacts, shown: int, *, linearizable: bool
) -> str:
    """Returns what is wrong with an answered end of the log; "" for nothing.

    The end is a high watermark, so it is at most the highest one that any leader showed. It covers
    what was acknowledged before the client asked: in linearizable topics always, else if the leader
    is still the newest that committed something. Its log holds what others acknowledged before it
    began.
    """
    if told.offset > shown:
        return f"the end is told to be {told.offset}, no high watermark above {shown} was shown"
    if told.leader_epoch >= 0 and told.epoch != told.leader_epoch:
        return f"the end is told in epoch {told.epoch} by the leader of {told.leader_epoch}"
    newest = committed.whole and committed.epochs[-1][0] == told.leader_epoch
    knows = linearizable or newest
    if knows and told.offset < asked_at.stored:
        return (
            f"the end is told to be {told.offset} in epoch {told.epoch}; records up to"
            f" {asked_at.stored} had been acknowledged before"
        )
    return ""


def wrong_earliest(told: ToldOffset, asked_at: Before, committed: CommittedFacts) -> str:
    """Returns what is wrong with an answered beginning of the log; "" for nothing.

    The beginning is 0 or the value of some committed marker. It is not below the one when the
    client asked if the leader had committed in its own epoch by then, and no later leader has
    since.
    """
    if not committed.whole:
        return ""
    if told.offset and told.offset not in {start for _, start in committed.starts}:
        return f"the log is told to begin at {told.offset}, and no committed marker says so"
    only = asked_at.epoch == committed.epochs[-1][0] == told.leader_epoch
    if only and told.offset < asked_at.log_start:
        return (
            f"the log is told to begin at {told.offset} by the leader of epoch"
            f" {told.leader_epoch}; it began at {asked_at.log_start} before somebody asked"
        )
    return ""


def wrong_epoch_end(told: ToldOffset, asked_at: Before, committed: CommittedFacts) -> str:
    """Returns what is wrong with the answered end of an epoch; "" for nothing.

    A leader that answers has committed in its own epoch, and so everything before. An earlier epoch
    ends where the next committed epoch begins. The leader's own epoch ends where its log ends,
    which may be cut later. That end must cover the acknowledged records while the leader is the
    newest.
    """
    epochs, leader = committed.epochs, told.leader_epoch
    if not committed.whole or leader < 0:
        return ""
    place = bisect_right(epochs, told.asked, key=_epoch_of) - 1
    said = (
        f"the leader of epoch {leader} tells of epoch {told.asked}: ({told.epoch}, {told.offset})"
    )
    if told.epoch == _UNKNOWN:
        begun = bisect_right(epochs, committed.log_start, key=_offset_of) - 1
        known = told.asked >= epochs[begun][0]
        return f"{said}, and the log begins in epoch {epochs[begun][0]}" if known else ""
    if told.asked < leader:
        following = epochs[place + 1][1] if place + 1 < len(epochs) else None
        right = (epochs[place][0], following)
        return "" if (told.epoch, told.offset) == right else f"{said}, committed is {right}"
    if told.epoch != leader or epochs[place][0] != leader:
        return f"{said}, committed epochs end with {epochs[-1]}"
    least = max(epochs[place][1], asked_at.stored if epochs[-1][0] == leader else 0)
    return "" if told.offset >= least else f"{said}, its log reaches {least} at least"


def wrong_time(
    told: ToldOffset, asked_at: Before, committed: CommittedFacts, shown: int, *, linearizable: bool
) -> str:
    """Returns what is wrong with the answered first record at or after a timestamp; "" for nothing.

    The record is of a committed batch, below a high watermark that was shown. No batch before it is
    late enough, unless the log began behind that batch by then. The leader may find no record only
    if no batch that it knows is late enough; `wrong_latest` says which batches it knows. A batch in
    whose middle the log may begin decides nothing.
    """
    if not committed.whole:
        return ""
    said = f"the first record from {told.asked} ms on is told to be {told.offset}, {told.at_ms} ms"
    first = _first_from(committed, told.asked)
    if told.offset == _UNKNOWN:
        sure = first is not None and first.next_offset <= asked_at.stored
        knows = linearizable or committed.epochs[-1][0] == told.leader_epoch
        return f"{said}; {first} is late enough" if sure and knows else ""
    wrong = _misplaced(told, committed, shown)
    if wrong or told.at_ms < told.asked:
        return f"{said}; {wrong or 'that is earlier'}"
    missed = first is not None and first.next_offset <= told.offset
    return f"{said}; {first} lies before it" if missed else ""


def wrong_largest(
    told: ToldOffset, asked_at: Before, committed: CommittedFacts, shown: int, *, linearizable: bool
) -> str:
    """Returns what is wrong with the answered record of the largest timestamp; "" for nothing.

    It is of a committed batch, and the leader knows no later batch.
    """
    if not committed.whole:
        return ""
    said = f"the largest timestamp is told to be {told.at_ms} ms, at {told.offset}"
    later = _first_from(committed, told.at_ms + 1)
    sure = later is not None and later.next_offset <= asked_at.stored
    knows = linearizable or committed.epochs[-1][0] == told.leader_epoch
    if sure and knows:
        return f"{said}; {later} is later"
    wrong = "" if told.offset == _UNKNOWN else _misplaced(told, committed, shown)
    return f"{said}; {wrong}" if wrong else ""


def _first_from(committed: CommittedFacts, timestamp_ms: int) -> Stored | None:
    """Returns the first late enough batch, of those that begin at or behind the log's beginning."""
    batches = committed.batches
    begin = bisect_left(batches, committed.log_start, key=attrgetter("base_offset"))
    return next((each for each in batches[begin:] if each.latest_ms >= timestamp_ms), None)


def _misplaced(told: ToldOffset, committed: CommittedFacts, shown: int) -> str:
    """Returns what is wrong with the place, the epoch or the timestamp of a found record."""
    place = bisect_right(committed.batches, told.offset, key=attrgetter("base_offset"))
    stored = committed.batches[place - 1] if place else None
    if stored is None or told.offset >= min(stored.next_offset, shown):
        return f"committed there is {stored}, no high watermark above {shown} was shown"
    if told.epoch != stored.term or told.at_ms > stored.latest_ms:
        return f"there lies {stored}, the answer says epoch {told.epoch}"
    return ""


def _epoch_of(row: tuple[int, int]) -> int:
    return row[0]


def _offset_of(row: tuple[int, int]) -> int:
    return row[1]

"""Checks memberships: the last in the log is in force, and a leader changes one thing at a time.

The product keeps the membership in force twice: in Raft's state and beside the log. The checks
compare the two with each other, and with every membership that any replica ever held at that index.
They also compare them with the entry itself while it is in memory. Once the entry is gone they use
the header of the head segment.
"""

from typing import TYPE_CHECKING, Final, final

import attrs

from raftlog.base.entries import Entry, EntryKind, Membership
from raftlog.base.errors import CorruptData
from raftlog.base.ids import GroupId, RaftIndex
from raftlog.partition.replica import PartitionReplica
from raftlog.records.control import parse_control_entry, read_membership_body
from raftlog_sim.facts.outline import Outline

if TYPE_CHECKING:
    from collections.abc import Iterator

    from raftlog.metadata.image import ClusterImage

_ALL_BYTES: Final = 2**62
_MEMBERSHIP: Final = EntryKind.MEMBERSHIP


@final
@attrs.define(eq=False)
class MembershipChecks:
    """Checks the memberships of all replicas. `entries` holds every membership ever in force, by
    group, index and term. The term is None where the entry lies before a log's beginning, hence is
    committed, or is the founding. `scanned` holds the last checked entry of each replica; it is
    never iterated."""

    entries: dict[tuple[GroupId, int, int | None], Membership] = attrs.Factory(dict)
    scanned: dict[PartitionReplica, int] = attrs.Factory(dict)

    def looked(
        self,
        replica: PartitionReplica,
        before: Outline,
        now: Outline,
        image: "ClusterImage | None" = None,
    ) -> "Iterator[tuple[str, str]]":
        """Check a replica that changed as `concerns` said; yields (invariant, error or "")."""
        if before.boot and now.last_term != before.last_term:
            self.scanned.pop(replica, None)  # a truncation may have replaced entries
        yield "membership-in-force", self.in_force(replica)
        if now.leading and now.membership_index > before.membership_index:
            yield "one-change-at-a-time", _begun(replica, now)
            if image is not None and not replica.group:
                yield "controllers-wanted", _unwanted(replica, now, image)

    def in_force(self, replica: PartitionReplica) -> str:
        """Returns what is wrong with the membership in force; "" for nothing."""
        log, used = replica.log, replica.node._state.memberships[-1]
        index, membership = used
        where = f"{replica.me} of group {replica.group} works with {membership} of entry {index}"
        if log.memberships[-1] != used:
            return f"{where}, its log tells of {log.memberships[-1]}"
        newest = self._newest(replica)
        if newest is not None and newest.raft_index > index:
            return f"{where}, and entry {newest.raft_index} is in its log"
        if index >= log.first_index:
            entries = log.entries(index, 1) if index <= log.last_index else []
            if entries is not None and _told_by(entries) != membership:
                return f"{where}, which is no such entry: {entries}"
            term = log.term_at(index)
        else:
            head = log._files.segments[0].header if log._files.segments else None
            if head is not None and (head.membership_index, head.membership) != used:
                return f"{where}, the header of its head segment says {head}"
            term = None
        terms = (term, None) if term is not None and index <= replica.commit else (term,)
        for each in terms:  # None: logs that begin behind it
            known = self.entries.setdefault((replica.group, index, each), membership)
            if known != membership:
                return f"{where}; others had {known} there"
        return ""

    def _newest(self, replica: PartitionReplica) -> Entry | None:
        """Returns the last membership entry in memory that was not checked yet."""
        log = replica.log
        first = max(self.scanned.get(replica, 0) + 1, log.first_index, log._window.entries_first)
        self.scanned[replica] = log.last_index
        if first > log.last_index:
            return None
        entries = log.entries(RaftIndex(first), _ALL_BYTES) or []
        return next((each for each in reversed(entries) if each.kind is _MEMBERSHIP), None)


def concerns(replica: PartitionReplica, before: Outline, now: Outline) -> bool:
    """Whether `MembershipChecks.looked` would find anything to check."""
    return (
        now.membership_index != before.membership_index
        or replica.log.memberships[-1][0] != now.membership_index
        or now.last_term != before.last_term
        or now.last_index < before.last_index
        or not before.boot
    )


def _unwanted(replica: PartitionReplica, now: Outline, image: "ClusterImage") -> str:
    """Returns the voters that a metadata leader changes against the committed image; "" for none.

    The image must want each voter that comes, and none that goes.
    """
    log, pairs = replica.log, replica.log.memberships
    if len(pairs) < 2 or log.term_at(RaftIndex(now.membership_index)) != now.term:
        return ""
    old, new, wanted = pairs[-2][1].voters, pairs[-1][1].voters, image.controllers
    wrong = [each for each in new if each not in old and each not in wanted]
    wrong += [each for each in old if each not in new and each in wanted]
    if not wrong:
        return ""
    return f"{replica.me} changes the controllers from {old} to {new}, wanted are {wanted}"


def _begun(replica: PartitionReplica, now: Outline) -> str:
    """Returns what is wrong with a membership that a leader begins itself; "" for nothing.

    The membership before it must be committed, and some entry of the leader's own term. An entry
    that is not committed now was not committed then either, since commit never falls.
    """
    log, index = replica.log, now.membership_index
    if log.term_at(RaftIndex(index)) != now.term:
        return ""  # an earlier leader left it; the election shows it too
    where = f"{replica.me} leads group {replica.group} in term {now.term} and began {index}"
    pairs = log.memberships
    if len(pairs) > 1 and pairs[-2][0] > now.commit:
        return f"{where} while {pairs[-2]} is not committed, only {now.commit} is"
    if log.term_at(RaftIndex(now.commit)) != now.term:
        return f"{where}, and has committed up to {now.commit}, nothing of its term"
    return ""


def _told_by(entries: list[Entry]) -> Membership | None:
    """Returns the membership that the first of these entries holds; None when it holds none."""
    if not entries or entries[0].kind is not _MEMBERSHIP:
        return None
    body = parse_control_entry(entries[0].batch, CorruptData, "membership entry").body
    return read_membership_body(body)

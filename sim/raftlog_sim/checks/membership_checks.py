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
    """`entries`: the membership at (group, index, term) ever in force; without a term where
    the entry lies before a log's beginning, hence is committed, or the founding. `scanned`: up to
    where a replica's entries were looked through; only looked up, never iterated."""

    entries: dict[tuple[GroupId, int, int | None], Membership] = attrs.Factory(dict)
    scanned: dict[PartitionReplica, int] = attrs.Factory(dict)

    def looked(
        self,
        replica: PartitionReplica,
        before: Outline,
        now: Outline,
        image: "ClusterImage | None" = None,
    ) -> "Iterator[tuple[str, str]]":
        """A replica changed, and `concerns` said so: the name of each invariant that was looked at,
        and what is wrong, or nothing."""
        if before.boot and now.last_term != before.last_term:
            self.scanned.pop(replica, None)  # something may have been cut, and other entries put
        yield "membership-in-force", self.in_force(replica)
        if now.leading and now.membership_index > before.membership_index:
            yield "one-change-at-a-time", _begun(replica, now)
            if image is not None and not replica.group:
                yield "controllers-wanted", _unwanted(replica, now, image)

    def in_force(self, replica: PartitionReplica) -> str:
        """See the module: what is wrong, or nothing."""
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
            head = log._segments[0].header if log._segments else None
            if head is not None and (head.membership_index, head.membership) != used:
                return f"{where}, the header of its head segment says {head}"
            term = None
        terms = (term, None) if term is not None and index <= replica.commit else (term,)
        for each in terms:  # None: of those whose logs begin behind it, for it was committed
            known = self.entries.setdefault((replica.group, index, each), membership)
            if known != membership:
                return f"{where}; others had {known} there"
        return ""

    def _newest(self, replica: PartitionReplica) -> Entry | None:
        """The last membership entry among those in memory that were not looked through yet."""
        log = replica.log
        first = max(self.scanned.get(replica, 0) + 1, log.first_index, log._window.entries_first)
        self.scanned[replica] = log.last_index
        if first > log.last_index:
            return None
        entries = log.entries(RaftIndex(first), _ALL_BYTES) or []
        return next((each for each in reversed(entries) if each.kind is _MEMBERSHIP), None)


def concerns(replica: PartitionReplica, before: Outline, now: Outline) -> bool:
    """Whether `MembershipChecks.looked` would find anything to look at."""
    return (
        now.membership_index != before.membership_index
        or replica.log.memberships[-1][0] != now.membership_index
        or now.last_term != before.last_term
        or now.last_index < before.last_index
        or not before.boot
    )


def _unwanted(replica: PartitionReplica, now: Outline, image: "ClusterImage") -> str:
    """The leader of the metadata began a membership itself: the committed image wants each voter
    that comes, and none that goes."""
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
    """Of a leader with a membership that is new: if it is its own, the one before is committed, and
    so is something of the leader's own term. What is not committed now was not when it began, for
    commit never falls."""
    log, index = replica.log, now.membership_index
    if log.term_at(RaftIndex(index)) != now.term:
        return ""  # what an earlier leader left, seen together with the election
    where = f"{replica.me} leads group {replica.group} in term {now.term} and began {index}"
    pairs = log.memberships
    if len(pairs) > 1 and pairs[-2][0] > now.commit:
        return f"{where} while {pairs[-2]} is not committed, only {now.commit} is"
    if log.term_at(RaftIndex(now.commit)) != now.term:
        return f"{where}, and has committed up to {now.commit}, nothing of its term"
    return ""


def _told_by(entries: list[Entry]) -> Membership | None:
    """What the first of these entries says; None when it is no membership, or there is none."""
    if not entries or entries[0].kind is not _MEMBERSHIP:
        return None
    body = parse_control_entry(entries[0].batch, CorruptData, "membership entry").body
    return read_membership_body(body)

"""Checks the beginning of a log, its truncation, and a new leader's view of its voters.

The offset from which clients may read never goes back. A replica truncates its log only after a
proven conflict, and removes files only when nothing needs them.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, final

import attrs

from raftlog.base.ids import DirectoryId, GroupId, NodeId, ReplicaId
from raftlog.broker.events import Event, LinkDown, LinkUp, PeerMessages
from raftlog.broker.replicas.hosts import HostState
from raftlog.partition.producing.producer_snapshot import write_producers
from raftlog.partition.replica import PartitionReplica
from raftlog.raft.messages import Append
from raftlog.storage.replica import SEGMENT_SUFFIX
from raftlog_sim.facts import truth
from raftlog_sim.facts.asked_leaders import Told, newest_leader
from raftlog_sim.facts.committed import CommittedFacts
from raftlog_sim.facts.outline import Outline

if TYPE_CHECKING:
    from raftlog_sim.world.node import Node

_NOTHING: Final = CommittedFacts()


class _Terms(NamedTuple):
    """The term table of a log as it was: indexes and the terms that begin there."""

    indexes: list[int]
    terms: list[int]

    def at(self, index: int) -> int:
        """The term of an entry."""
        return self.terms[bisect_right(self.indexes, index) - 1]


class _Home(NamedTuple):
    """Which replica's files lie in a directory."""

    group: GroupId
    replica: ReplicaId


@final
@attrs.define(eq=False)
class ReplicaChecks:
    """`committed` is that of the invariants. `starts`: per group, the newest term of whose leader
    clients saw a log start, and where that was. `epochs`: the newest leader epoch of a group that
    a boot published, and the node of a directory. `ids`: the youngest that ran there. `tables`:
    digests of producers at (index, term). `machines`: of state machines by what they applied.
    `told`: the leaders that a boot named to this check."""

    committed: dict[GroupId, CommittedFacts]
    starts: dict[GroupId, tuple[int, int]] = attrs.Factory(dict)
    leaders: dict[tuple[GroupId, int], NodeId] = attrs.Factory(dict)
    epochs: dict[tuple[GroupId, object], int] = attrs.Factory(dict)
    ids: dict[tuple[GroupId, DirectoryId], ReplicaId] = attrs.Factory(dict)
    tables: dict[tuple[GroupId, int, int], bytes] = attrs.Factory(dict)
    machines: dict[tuple[GroupId, int], bytes] = attrs.Factory(dict)
    told: dict[tuple[NodeId, int], Told] = attrs.Factory(dict)
    _routes: dict[NodeId, tuple[int, int]] = attrs.Factory(dict)
    _terms: dict[PartitionReplica, _Terms] = attrs.Factory(dict)
    _homes: dict[tuple[NodeId, str], _Home] = attrs.Factory(dict)
    _owed: dict[NodeId, dict[PartitionReplica, None]] = attrs.Factory(dict)
    """Whose logs changed otherwise than at their end, and whose producers do not follow yet."""

    def looked(
        self,
        node: "Node",
        replica: PartitionReplica,
        before: Outline,
        now: Outline,
        events: Sequence[Event],
    ) -> Iterator[tuple[str, str]]:
        """A replica changed: the name of each invariant that was looked at, and what is wrong, or
        nothing. What was committed in this turn is known by now."""
        new = not before.boot
        cut = not new and _went_back(replica, before, now)
        if cut:
            yield from self._cut(replica, before, now, events)
        if new or now.last_term != before.last_term:
            rows = replica.log.terms.rows()
            self._terms[replica] = _Terms([row[1] for row in rows], [row[0] for row in rows])
        if new:
            self._homes[node.number, replica.log.spec.path] = _Home(replica.group, replica.me)
        if new or cut or replica.log.first_index - 1 > before.commit:
            # A boot, a truncation, an install: later batches would hide a wrong entry.
            self._owed.setdefault(node.number, {})[replica] = None
        elif now.leading and not before.leading:
            yield from self.producers(replica)
        if new or now.commit != before.commit:
            yield "log-start-committed", self._log_start(replica)
            if replica.machine is not None:
                yield "machine-agrees", self.machine(replica)
        if now.leading and replica.publishing:
            yield "log-start-monotone", self._shown_start(replica)
        if now.leading and (not before.leading or now.term != before.term):
            yield "in-sync-at-first", _in_sync_at_first(node, replica, events)

    def has_news(self, node: "Node") -> bool:
        """Whether `after_turn` would find anything to look at."""
        seen = self._routes.get(node.number)
        if node.disk.removed or node.number in self._owed:
            return True
        return seen != (node.boots, node.broker.context.routes)

    def after_turn(self, node: "Node") -> Iterator[tuple[str, str]]:
        """What a whole turn did: removed files, published leaders."""
        context, disk = node.broker.context, node.disk
        yield from self._follow(node, context.replicas)
        boots, seen = self._routes.get(node.number, (0, 0))
        if disk.removed:
            removed, disk.removed = disk.removed, []
            for path in removed if boots == node.boots else ():  # else: the last boot's, unjudged
                if path.endswith(SEGMENT_SUFFIX):
                    yield "removed-rightly", self._removed(node, path)
            for replica in context.replicas.values():
                yield "log-start-committed", self._log_start(replica)
        if (boots, seen) != (node.boots, context.routes):
            self._routes[node.number] = (node.boots, context.routes)
            yield from self.routes_changed(node)

    def whole(self, node: "Node") -> Iterator[tuple[str, str]]:
        """All replicas of a node."""
        for replica in node.broker.context.replicas.values():
            yield from self.producers(replica)
            if replica.machine is not None:
                yield "machine-agrees", self.machine(replica)

    # --- producers --------------------------------------------------------------------------------

    def _follow(
        self, node: "Node", replicas: dict[GroupId, PartitionReplica]
    ) -> Iterator[tuple[str, str]]:
        """The producers of those that are owed a look, once they follow their logs."""
        owed = self._owed.pop(node.number, {})
        for replica in owed:
            if replicas.get(replica.group) is not replica:
                continue
            if _follows(replica):
                yield from self.producers(replica)
            else:
                self._owed.setdefault(node.number, {})[replica] = None

    def producers(self, replica: PartitionReplica) -> Iterator[tuple[str, str]]:
        """Equal logs mean equal producers, whatever way a replica came by them."""
        if not _follows(replica):
            return
        log = replica.log
        end = (log.last_index, log.last_term)
        table, key = replica._tracker.producers, (replica.group, *end)
        digest = write_producers(table, group=replica.group, before=log.last_index)
        if self.tables.setdefault(key, digest) != digest:
            yield "producers-equal", f"{replica.me} has other producers at {key} than others had"
        known = self.committed.get(replica.group)
        if known is not None and known.whole:
            yield "producers-equal", known.table_differs(replica)

    # --- the log start ----------------------------------------------------------------------------

    def machine(self, replica: PartitionReplica) -> str:
        """Machines that applied as much hold the same, whether they were fed live, replayed the log
        or took a snapshot over."""
        machine, applied = replica.machine, replica.applied_index
        assert machine is not None, replica.where
        digest = machine.digest()
        first = self.machines.setdefault((replica.group, applied), digest)
        if digest != first:
            return f"{replica.where} holds {digest.hex()} at entry {applied}; another {first.hex()}"
        known = self.committed.get(replica.group, _NOTHING)
        if known.groups is None or not known.whole or applied > known.end:
            return ""
        replayed = known.groups.digest_at(applied)
        if digest == replayed:
            return ""
        return f"{replica.where} holds {digest.hex()} at entry {applied}; the log {replayed.hex()}"

    def _log_start(self, replica: PartitionReplica) -> str:
        """The log start is what the last committed marker that was applied says (after an install:
        as much of it as that leader knew), and the log begins no later."""
        known = self.committed.get(replica.group, _NOTHING)
        if not known.whole:
            return ""
        log, start = replica.log, replica.log_start
        applied = replica._commit_seen
        if applied > replica.commit:
            return f"{replica.me} has applied {applied} of group {replica.group}, not committed"
        if not known.log_start_at(applied) <= start <= known.log_start:
            return (
                f"{replica.me} has log start {start} in group {replica.group} at entry {applied}; "
                f"markers say {known.log_start_at(applied)} there, {known.log_start} at their last"
            )
        head = log._segments[0].base_offset if log._segments else log.next_offset
        if head > known.log_start:
            return (
                f"the log of {replica.me} in group {replica.group} begins at {head}, all that is "
                f"committed is a log start of {known.log_start}"
            )
        return ""

    def _shown_start(self, replica: PartitionReplica) -> str:
        group, now = replica.group, (int(replica.term), int(replica.log_start))
        term, start = self.starts.get(group, (0, 0))
        if now[0] < term:
            return ""
        self.starts[group] = now
        if now[1] >= start:
            return ""
        return f"{replica.me} shows log start {now[1]} of group {group}, {start} was shown before"

    # --- truncation -------------------------------------------------------------------------------

    def _cut(
        self, replica: PartitionReplica, before: Outline, now: Outline, events: Sequence[Event]
    ) -> Iterator[tuple[str, str]]:
        """The log is cut from its first conflict on, never from before it: what lies below, the
        same as the leader's, is kept. Where the durable end fell, it fell to the cut."""
        if replica.log.first_index - 1 > before.commit:
            return  # an install
        conflict = self._first_conflict(replica, before, now, events)
        cut_from = before.last_index
        if now.durable < before.durable:
            cut_from = now.durable + 1
        elif now.last_index < before.last_index:
            cut_from = now.last_index + 1
        wrong = (
            f"{replica.me} cut group {replica.group} from {before} to {now}, and the first entry "
            f"of another term that proved a conflict is {conflict}"
        )
        yield "truncation-proven", "" if conflict is not None and conflict <= cut_from else wrong

    def _first_conflict(
        self, replica: PartitionReplica, before: Outline, now: Outline, events: Sequence[Event]
    ) -> int | None:
        """The first entry above the commit that is of another term in the log now, or in an append
        of this turn, than it was."""
        log, old = replica.log, self._terms[replica]
        held = range(max(before.commit, log.first_index - 1) + 1, before.last_index + 1)
        found = [
            int(entry.raft_index)
            for message in _appends(events, replica)
            for entry in message.entries
            if entry.raft_index in held and entry.term != old.at(entry.raft_index)
        ]
        for index in range(before.commit + 1, min(before.last_index, now.last_index) + 1):
            if log.term_at(index) != old.at(index):  # type: ignore[arg-type]
                found.append(index)
                break
        return min(found, default=None)

    # --- files ------------------------------------------------------------------------------------

    def _removed(self, node: "Node", path: str) -> str:
        """A segment goes when the log start has passed it, or a committed truncation or install
        voided it; all segments of a replica only when it is to be deleted."""
        home, _, _ = path.rpartition("/")
        context = node.broker.context
        known = self._homes.get((node.number, home))
        if known is None:
            return ""  # nothing ever ran here: a creation that was not finished
        replica = context.replicas.get(known.group)
        if replica is not None and replica.log.spec.path == home:
            return self._removed_of(replica, path)
        host = node.broker.manager.hosts.get(known.group)
        kept = truth.registered_path(node, known.group, known.replica)
        if kept is not None and kept != home:
            return ""  # of a move: a copy that was given up, or what it has left
        if host is not None and host.spec.path == home:
            if host.state is HostState.MOVING and path.endswith(SEGMENT_SUFFIX):
                return f"{path} is removed, and its replica is registered there, and moves"
            return ""  # it is being opened, and void files go
        return self._deleted(node, known, path)

    def _removed_of(self, replica: PartitionReplica, path: str) -> str:
        committed = self.committed.get(replica.group, _NOTHING)
        if not committed.whole:
            return ""  # a marker may be among the entries that nobody had in memory (seed 5300034)
        start, segments = committed.log_start, replica.log.segments
        for place, segment in enumerate(segments):
            if segment.path == path:
                behind = segments[place + 1].base_offset if place + 1 < len(segments) else None
                if behind is None or behind > start:
                    return f"{path} is removed, and in use; committed is a log start of {start}"
        return ""

    def _deleted(self, node: "Node", known: _Home, path: str) -> str:
        image = node.broker.context.image
        named = [
            each for each in image.removals.get(node.number, ()) if each.replica == known.replica
        ]
        if not named:
            return f"{path} is removed, and no delta names {known.replica} of group {known.group}"
        committed = self.committed.get(known.group, _NOTHING)
        if named[0].topic_id not in image.topics or committed.membership is None:
            return ""
        membership = committed.membership
        inside = (*membership.voters, *membership.outgoing, *membership.learners)
        if known.replica in inside:
            return f"{path} is removed, and {known.replica} is a member of {membership}"
        return ""

    # --- leaders ----------------------------------------------------------------------------------

    def routes_changed(self, node: "Node") -> Iterator[tuple[str, str]]:
        yield "leader-epoch-monotone", self._published(node)
        yield "replica-begins-once", self._begun_again(node)

    def _begun_again(self, node: "Node") -> str:
        """A replica whose place a younger one took runs no more: it would begin empty, and vote. An
        old copy of a disk knows of no younger one until it is refused (seed 7800313)."""
        if node.rolled_back:
            return ""
        context = node.broker.context
        for group, replica in context.replicas.items():
            place = (group, context.directory)
            youngest = self.ids.get(place, replica.me)
            if replica.me.epoch < youngest.epoch:
                return f"{replica.me} of group {group} runs where {youngest} ran before"
            self.ids[place] = replica.me
        return ""

    def _published(self, node: "Node") -> str:
        """Pairs of leader and epoch, as clients are told: they only rise, across boots too, and an
        epoch has one leader."""
        context = node.broker.context
        told = self.told.setdefault((node.number, node.boots), {})
        for topic in context.image.topics.values():
            for partition in topic.partitions:
                leader = newest_leader(context.router, partition, told)
                if leader is None:
                    continue
                problem = self._goes_back(node, partition.group, leader.epoch)
                if problem:
                    return problem
                known = self.leaders.setdefault((partition.group, leader.epoch), leader.node)
                if known != leader.node:
                    return (
                        f"nodes {known} and {leader.node} are published as leaders of group "
                        f"{partition.group} in epoch {leader.epoch}"
                    )
        return ""

    def _goes_back(self, node: "Node", group: GroupId, epoch: int) -> str:
        """Whether this boot published a newer epoch, or an earlier one of the same directory."""
        for key in ((group, (node.number, node.boots)), (group, node.broker.context.directory)):
            before = self.epochs.get(key, 0)
            if epoch < before:
                return f"node {node.number} published epoch {before} of group {group}, now {epoch}"
            self.epochs[key] = epoch
        return ""


def concerns(before: Outline, now: Outline) -> bool:
    """Whether `ReplicaChecks.looked` would find anything to look at."""
    return (
        not before.boot
        or now.commit != before.commit
        or now.last_term != before.last_term
        or now.leading != before.leading
        or now.last_index < before.last_index
        or now.durable < before.durable
    )


def _in_sync_at_first(node: "Node", replica: PartitionReplica, events: Sequence[Event]) -> str:
    """Who begins to lead has heard nobody yet, and says of no voter that it is out of sync, but of
    one that is fenced, or whose link began or ended in this turn; what
    is learned of a later boot ends a link, too."""
    context = node.broker.context
    excused = {event.peer for event in events if isinstance(event, LinkUp | LinkDown)}
    brokers, linked = context.image.brokers, context.sessions.keys() - node.broker.links.refused
    out = [
        voter
        for voter in replica.membership.voters
        if voter not in replica.in_sync
        and voter.node in linked
        and voter.node not in excused
        and not (voter.node in brokers and brokers[voter.node].fenced)
    ]
    if not out:
        return ""
    return f"{replica.me} begins to lead group {replica.group}, and says that {out} are not in sync"


def _went_back(replica: PartitionReplica, before: Outline, now: Outline) -> bool:
    """Whether something was cut from the log in this turn, for all that its ends tell."""
    if now.last_index < before.last_index or now.durable < before.durable:
        return True
    if now.last_term == before.last_term:
        return False
    return replica.log.term_at(before.last_index) != before.last_term  # type: ignore[arg-type]


def _follows(replica: PartitionReplica) -> bool:
    """Whether its producers are those of its log; not in an install, of which they follow."""
    log, tracker = replica.log, replica._tracker
    return bool((tracker._tracked, tracker._tracked_term) == (log.last_index, log.last_term))


def _appends(events: Sequence[Event], replica: PartitionReplica) -> Iterator[Append]:
    for event in events:
        if type(event) is PeerMessages:
            for message in event.messages:
                if type(message) is Append and message.to == replica.me:
                    yield message


def marks_ahead(node: "Node") -> str:
    """No durable mark says more than lies on the disk, synced, and its commit hint no more than the
    replica holds durably, unless it has lost that and knows it (while an install is under way, that
    is the log which it replaces). Of a file that the run has damaged at rest nothing is asked: what
    was synced there may be gone, or cannot be told from what is."""
    marks = truth.durable_marks(node)
    for group, replica in node.broker.context.replicas.items():
        mark = marks.get(group)
        if mark is None:
            continue
        held, whole = replica.log.durable_index, replica.node._state.damaged is None
        if mark.commit > held and whole and replica.log.durable_end is not None:
            return f"the mark of {replica.me} speaks of {mark}; entries up to {held} are durable"
        for segment in replica.log.segments:
            if segment.header.file_sequence != mark.file_sequence or node.disk.is_hurt(
                segment.path
            ):
                continue
            durable = node.disk.durable_to(segment.path)
            if durable < mark.end_position and node.disk.exists(segment.path):
                return f"the mark of {replica.me} speaks of {mark}; {durable} bytes are synced"
    return ""

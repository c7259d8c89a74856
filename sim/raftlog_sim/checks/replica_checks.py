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
        """Returns the term of an entry."""
        return self.terms[bisect_right(self.indexes, index) - 1]


class _Home(NamedTuple):
    """The replica whose files lie in a directory."""

    group: GroupId
    replica: ReplicaId


@final
@attrs.define(eq=False)
class ReplicaChecks:
    """Checks replicas that changed. `committed` is that of the invariants. `starts` holds, per
    group, the newest term whose leader showed clients a log start, and that log start. `epochs`
    holds the newest leader epoch of a group that a boot, or a directory, published. `ids` holds the
    youngest replica that ran in a directory. `tables` holds digests of producers by (index, term),
    and `machines` digests of state machines by the applied entry. `told` holds the leaders that a
    boot named to this check."""

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
    """Replicas whose log changed otherwise than at its end, and whose producers do not follow it
    yet."""

    def looked(
        self,
        node: "Node",
        replica: PartitionReplica,
        before: Outline,
        now: Outline,
        events: Sequence[Event],
    ) -> Iterator[tuple[str, str]]:
        """Check a replica that changed; yields (invariant, error or "") for each check.

        The caller has already noted what was committed in this turn.
        """
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
        """Whether `after_turn` would find anything to check."""
        seen = self._routes.get(node.number)
        if node.disk.removed or node.number in self._owed:
            return True
        return seen != (node.boots, node.broker.context.routes)

    def after_turn(self, node: "Node") -> Iterator[tuple[str, str]]:
        """Check the removed files and the published leaders of a whole turn."""
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
        """Check all replicas of a node."""
        for replica in node.broker.context.replicas.values():
            yield from self.producers(replica)
            if replica.machine is not None:
                yield "machine-agrees", self.machine(replica)

    # --- producers --------------------------------------------------------------------------------

    def _follow(
        self, node: "Node", replicas: dict[GroupId, PartitionReplica]
    ) -> Iterator[tuple[str, str]]:
        """Check the producers of the owed replicas that follow their logs by now."""
        owed = self._owed.pop(node.number, {})
        for replica in owed:
            if replicas.get(replica.group) is not replica:
                continue
            if _follows(replica):
                yield from self.producers(replica)
            else:
                self._owed.setdefault(node.number, {})[replica] = None

    def producers(self, replica: PartitionReplica) -> Iterator[tuple[str, str]]:
        """Check that equal logs mean equal producers, however a replica came by them."""
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
        """Returns an error when two machines that applied the same entries differ; "" when none do.

        They may be fed live, replay the log, or take over a snapshot.
        """
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
        """Returns what is wrong with a replica's log start; "" for nothing.

        The log start is the value of the last committed marker that the replica applied. After an
        install it is as much of that as the leader knew. The log itself begins no later.
        """
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
        head = log._files.segments[0].base_offset if log._files.segments else log.next_offset
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
        """Check that a replica cuts its log only from the first conflict on, or behind it.

        It keeps the entries below, which equal the leader's. If the durable end fell, the cut is
        there.
        """
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
        """Returns the first uncommitted entry that this turn replaced, or found replaced by an
        append."""
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
        """Returns what is wrong with the removal of a segment; "" for nothing.

        A segment goes when the log start passed it, or a committed truncation or install voided it.
        All segments of a replica go only when the replica is to be deleted.
        """
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
            return ""  # a move gave this copy up, or left it
        if host is not None and host.spec.path == home:
            if host.state is HostState.MOVING and path.endswith(SEGMENT_SUFFIX):
                return f"{path} is removed, and its replica is registered there, and moves"
            return ""  # an opening replica removes void files
        return self._deleted(node, known, path)

    def _removed_of(self, replica: PartitionReplica, path: str) -> str:
        committed = self.committed.get(replica.group, _NOTHING)
        if not committed.whole:
            return ""  # an entry that was in no memory may be a marker (seed 5300034)
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
        """Returns an error when a replica runs whose place a younger one took; "" for none.

        It would begin empty, and vote. An old copy of a disk knows of no younger replica until the
        broker is refused (seed 7800313).
        """
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
        """Returns what is wrong with the leaders that a broker names to clients; "" for nothing.

        Their epochs only rise, across boots too, and an epoch has one leader.
        """
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
        """Returns an error when this boot or this directory published a newer epoch before."""
        for key in ((group, (node.number, node.boots)), (group, node.broker.context.directory)):
            before = self.epochs.get(key, 0)
            if epoch < before:
                return f"node {node.number} published epoch {before} of group {group}, now {epoch}"
            self.epochs[key] = epoch
        return ""


def concerns(before: Outline, now: Outline) -> bool:
    """Whether `ReplicaChecks.looked` would find anything to check."""
    return (
        not before.boot
        or now.commit != before.commit
        or now.last_term != before.last_term
        or now.leading != before.leading
        or now.last_index < before.last_index
        or now.durable < before.durable
    )


def _in_sync_at_first(node: "Node", replica: PartitionReplica, events: Sequence[Event]) -> str:
    """Returns the voters that a new leader calls out of sync without cause; "" for none.

    It has heard no voter yet, so it may exclude only a fenced one, or one whose link began or ended
    in this turn. News of a later boot ends a link too.
    """
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
    """Whether the log was truncated in this turn, as far as its ends tell."""
    if now.last_index < before.last_index or now.durable < before.durable:
        return True
    if now.last_term == before.last_term:
        return False
    return replica.log.term_at(before.last_index) != before.last_term  # type: ignore[arg-type]


def _follows(replica: PartitionReplica) -> bool:
    """Whether the tracked producers are those of the log; False during an install."""
    log, tracker = replica.log, replica._tracker
    return bool((tracker._tracked, tracker._tracked_term) == (log.last_index, log.last_term))


def _appends(events: Sequence[Event], replica: PartitionReplica) -> Iterator[Append]:
    for event in events:
        if type(event) is PeerMessages:
            for message in event.messages:
                if type(message) is Append and message.to == replica.me:
                    yield message


def marks_ahead(node: "Node") -> str:
    """Returns a durable mark that says more than the disk holds; "" for none.

    A mark covers only synced bytes. Its commit hint covers only durable entries, unless the replica
    has lost some and knows it. During an install the mark speaks of the log that the install
    replaces. Files that the run damaged at rest are not checked: synced bytes may be gone there.
    """
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

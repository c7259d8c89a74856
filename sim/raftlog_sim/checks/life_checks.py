"""Checks which state outlives one life of a replica, and which state ends with it.

A life begins when a replica is recovered from its files, in a new boot or in the same one. Durable
entries are there again, and so are the term and the vote. A replica speaks only once it is
registered, and no more after it failed to write. Disks that the run has damaged are excused from
losses that damage explains.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, final

import attrs

from raftlog.base.ids import GroupId, ReplicaId
from raftlog.partition.replica import PartitionReplica
from raftlog.storage.directories.log_directories import directory_of
from raftlog_sim.facts import truth
from raftlog_sim.facts.outline import Outline

if TYPE_CHECKING:
    from raftlog.broker.events import WriteFailed
    from raftlog_sim.world.node import Node

Key = tuple[GroupId, ReplicaId]


@final
@attrs.define(eq=False)
class LifeChecks:
    """Checks the lives of replicas. `votes` and `told_terms` are those of the invariants: all that
    a replica ever said. `registered` holds the last boot in which the disk had an id that spoke.
    `failed` holds the lives that ended with a failed write, each with the end of its log at that
    moment."""

    votes: dict[tuple[GroupId, int, ReplicaId], ReplicaId]
    told_terms: dict[Key, int]
    registered: dict[Key, int] = attrs.Factory(dict)
    failed: dict[Key, tuple[PartitionReplica, int]] = attrs.Factory(dict)
    emptied: dict[Key, None] = attrs.Factory(dict)
    """Replicas whose log was cut to nothing and has held nothing durable since. They may begin
    empty."""

    def held(
        self, node: "Node", replica: PartitionReplica, now: Outline
    ) -> Iterator[tuple[str, str]]:
        """Check the durable end of a running replica after it moved."""
        key = (replica.group, replica.me)
        if now.durable:
            self.emptied.pop(key, None)
        elif replica.log.durable_end is not None:  # None while an install is under way
            self.emptied[key] = None
        yield "durable-agreed", _disagreed(node, replica)

    def began_again(
        self, node: "Node", replica: PartitionReplica, before: Outline, *, excused: bool
    ) -> Iterator[tuple[str, str]]:
        """Check an id that ran before and runs again.

        `before` is the most that was known of it. `excused` says that damage may have taken
        something since.
        """
        key = (replica.group, replica.me)
        ended = self.failed.pop(key, None)
        if ended is not None:
            yield "failed-write-is-the-end", _went_on(*ended)
        if node.rolled_back:
            return
        if replica.log.last_index:
            self.emptied.pop(key, None)
        empty = "" if key in self.emptied else _begins_empty(replica, before)
        yield "kept-across-lives", empty or _cut(node, replica)
        if not excused:
            yield "damaged-rightly", _complains(replica)
            yield "kept-across-lives", _lost(replica, before) or self._forgot(node, replica)

    def _forgot(self, node: "Node", replica: PartitionReplica) -> str:
        """Returns an error when a replica forgot its term or vote; "" when it did not.

        The term is at least the stored one, the one that the replica last spoke in, and that of its
        last entry. In a term that only the log knew the replica votes for no other: it may have
        voted.
        """
        group, me, state = replica.group, replica.me, replica.node
        stored = truth.stored_state(node, group)
        told = self.told_terms.get((group, me), 0)
        if state.term < max(stored.term, told, replica.log.last_term):
            return (
                f"{me} begins in term {state.term} of group {group}; stored is {stored}, it spoke "
                f"in term {told}, its log ends in term {replica.log.last_term}"
            )
        vote = self.votes.get((group, state.term, me))
        if vote is None and stored.term == state.term:
            vote = stored.vote
        if vote not in (None, state.vote):
            return f"{me} voted for {vote} in term {state.term} of group {group}, now {state.vote}"
        # A replica may hear another term and that leader's first entry in the very turn in which it
        # begins. Neither is durable yet (seed 9501329).
        begun_with = replica.log.durable_end
        alone = begun_with is not None and stored.term < state.term == begun_with.term
        if alone and state.vote not in (None, me):
            return (
                f"{me} votes for {state.vote} in term {state.term} of group {group}, of which its "
                f"log alone knew"
            )
        return ""

    def is_news(self, node: "Node", key: Key) -> bool:
        """Whether `speaks` has something to check."""
        return self.registered.get(key) != node.boots or key in self.failed

    def speaks(self, node: "Node", key: Key) -> Iterator[tuple[str, str]]:
        """Check a replica that votes, asks for votes or acknowledges.

        It does so for the first time in this boot, or after a write of it failed.
        """
        group, me = key
        ended = self.failed.get(key)
        if ended is not None:
            running = node.broker.context.replicas.get(group)
            mute = running is None or running is ended[0]
            wrong = f"{me} of group {group} speaks after a write of it failed"
            yield "failed-write-is-the-end", wrong if mute else ""
        if self.registered.get(key) != node.boots:
            known = truth.is_registered(node, group, me)
            wrong = f"{me} of group {group} speaks, and its disk has no registration of it"
            yield "registered-first", "" if known else wrong
            self.registered[key] = node.boots

    def write_failed(
        self, node: "Node", event: "WriteFailed", lives: dict[Key, PartitionReplica]
    ) -> "Iterator[tuple[str, str]]":
        """Note that replicas learned in this turn of a failed write of theirs.

        They send and take nothing more until they begin again. A failed further directory takes no
        other directory with it.
        """
        failed = directory_of(event.error.on)
        if failed:
            lies_in = node.broker.context.log_directories.directory_of
            others = [each for each in event.groups or () if lies_in(each) != failed]
            wrong = f"node {node.number} gives up {event.groups or 'all'} for {event.error}"
            yield "directories-apart", wrong if others or event.groups is None else ""
        directory = node.broker.context.directory
        for key, replica in lives.items():
            group, me = key
            concerned = event.groups is None or group in event.groups
            if concerned and (me.node, me.directory) == (node.number, directory):
                self.failed[key] = (replica, replica.log.last_index)


def _went_on(replica: PartitionReplica, last_index: int) -> str:
    """Whether a replica took entries after a write of it had failed."""
    if replica.log.last_index <= last_index:
        return ""
    return (
        f"{replica.me} of group {replica.group} took entries up to {replica.log.last_index} after "
        f"a write of it had failed at {last_index}"
    )


def _disagreed(node: "Node", replica: PartitionReplica) -> str:
    """Returns an error when Raft acknowledges more or less than storage holds to be durable; "" for
    none. Raft and storage book the same rounds apart (docs/decisions/0086)."""
    counts, durable = replica.node.durable, replica.log.durable_index
    if replica.log.durable_end is None:  # an install is under way: what is committed counts
        agreed = counts <= replica.commit
    elif node.broker.context.config.strict_mark:  # a round counts once its mark is durable
        agreed = counts <= durable
    else:
        agreed = counts == durable
    if agreed:
        return ""
    return (
        f"Raft counts {replica.me} of group {replica.group} durable up to {counts}, its storage "
        f"up to {durable}"
    )


def _begins_empty(replica: PartitionReplica, before: Outline) -> str:
    """Returns an error when an id starts empty a second time and whole, whatever damage took."""
    if replica.log.last_index or replica.node._state.damaged is not None or not before.durable:
        return ""
    return (
        f"{replica.me} of group {replica.group} had {before.durable} durable entries, and begins "
        f"empty and whole"
    )


def _complains(replica: PartitionReplica) -> str:
    """Returns an error when a replica holds itself damaged on an undamaged disk.

    Such a replica would not vote or lead until a needless repair.
    """
    damaged = replica.node._state.damaged
    if damaged is None:
        return ""
    return f"{replica.me} of group {replica.group} begins damaged, {damaged}; nothing was damaged"


def _cut(node: "Node", replica: PartitionReplica) -> str:
    """Returns an error when a boot cut entries before the durable mark as a torn tail.

    That is wrong even on a damaged disk. A replica whose log ends earlier, in the very file of the
    mark, is damaged.
    """
    group, log = replica.group, replica.log
    mark = truth.stored_mark(node, group)
    if mark is None or replica.node._state.damaged is not None or not log.segments:
        return ""
    same = log.segments[-1].header.file_sequence == mark.file_sequence
    if not same or log.last_index >= mark.raft_index:
        return ""
    if not truth.is_registered(node, group, replica.me):
        return ""
    return f"{replica.me} of group {group} begins whole with {log.last_index} entries below {mark}"


def _lost(replica: PartitionReplica, before: Outline) -> str:
    """Returns an error when durable entries of the last life are missing. Truncated ones are not
    durable."""
    if replica.log.last_index >= before.durable:
        return ""
    return (
        f"{replica.me} of group {replica.group} had {before.durable} durable entries, and begins "
        f"with {replica.log.last_index}"
    )

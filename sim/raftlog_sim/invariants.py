"""What must hold after every turn, over the real state of all brokers (LESSONS part 2).

The ghost log is everything ever seen committed: per group, raft index -> (term, chain). It
survives all crashes, for it belongs to nobody. Checks touch only the node whose turn it was and,
of its groups, the ends of their logs, so they cost little; `finish` checks everything.
"""

from typing import TYPE_CHECKING, Final, NamedTuple, final

import attrs

from raftlog.base.ids import GroupId, NodeId, RaftIndex, ReplicaId
from raftlog.partition.replica import PartitionReplica
from raftlog.raft.messages import AppendReply, VoteReply, VoteRequest

if TYPE_CHECKING:
    from raftlog.broker.events import Effects
    from raftlog_sim.node import Node

NAMES: Final = (
    "election-safety",
    "one-vote-a-term",
    "term-monotone",
    "log-matching",
    "committed-immutable",
    "leader-completeness",
    "high-watermark-monotone",
    "order",
)


class Violation(Exception):  # a finding, not an error of ours
    """An invariant does not hold. `name` is one of `NAMES`."""

    def __init__(self, name: str, what: str) -> None:
        super().__init__(name, what)
        assert name in NAMES, name
        self.name = name
        self.what = what

    def __str__(self) -> str:
        return f"{self.name}: {self.what}"


class Seen(NamedTuple):
    """A committed entry."""

    term: int
    chain: int


@final
@attrs.define(eq=False)
class Invariants:
    """See the module. `checked` counts, per name, how often something was really compared."""

    checked: dict[str, int] = attrs.Factory(lambda: dict.fromkeys(NAMES, 0))
    ghost: dict[GroupId, dict[RaftIndex, Seen]] = attrs.Factory(dict)
    ghost_end: dict[GroupId, RaftIndex] = attrs.Factory(dict)
    leaders: dict[tuple[GroupId, int], ReplicaId] = attrs.Factory(dict)
    votes: dict[tuple[GroupId, int, ReplicaId], ReplicaId] = attrs.Factory(dict)
    told_terms: dict[tuple[GroupId, ReplicaId], int] = attrs.Factory(dict)
    ends: dict[tuple[GroupId, int, int], int] = attrs.Factory(dict)
    published: dict[tuple[GroupId, NodeId], int] = attrs.Factory(dict)

    def after_turn(self, node: "Node", effects: "Effects") -> None:
        """Check the node's replicas and what it sent. Raises `Violation`."""
        for send in effects.sends:
            for message in send.messages:
                self._sent(message)
        for group, replica in node.broker.context.replicas.items():
            self._replica(group, replica)

    def _sent(self, message: object) -> None:
        if isinstance(message, VoteReply | VoteRequest | AppendReply):
            self._told(message)
        if isinstance(message, VoteReply) and message.granted:
            self._count("one-vote-a-term")
            key = (message.group, message.term, message.sender)
            before = self.votes.setdefault(key, message.to)
            if before != message.to:
                raise Violation(
                    "one-vote-a-term",
                    f"{message.sender} voted for {before} and {message.to} in term {message.term} "
                    f"of group {message.group}",
                )

    def _told(self, message: VoteReply | VoteRequest | AppendReply) -> None:
        """What a replica promised in a term it remembers for ever: later promises are of no lower
        term, across crashes too."""
        self._count("term-monotone")
        key = (message.group, message.sender)
        before = self.told_terms.get(key, 0)
        if message.term < before:
            raise Violation(
                "term-monotone",
                f"{message.sender} promised in term {before} of group {message.group} and now in "
                f"term {message.term}",
            )
        self.told_terms[key] = message.term

    def _replica(self, group: GroupId, replica: PartitionReplica) -> None:
        node, log = replica.node, replica.log
        if node.leading:
            self._leader(group, replica)
        self._count("order")
        if not replica.commit <= log.last_index or log.durable_index > log.last_index:
            what = f"commit {replica.commit}, durable {log.durable_index}, last {log.last_index}"
            raise Violation("order", f"group {group}: {what}")
        self._matching(group, replica)
        if replica.commit > self.ghost_end.get(group, 0):
            self._commit(group, replica)
        elif replica.commit:
            self._same_as_ghost(group, replica, replica.commit)
        self._published(group, replica)

    def _leader(self, group: GroupId, replica: PartitionReplica) -> None:
        term = replica.node.term
        self._count("election-safety")
        before = self.leaders.get((group, term))
        if before is None:
            self.leaders[(group, term)] = replica.me
            self._complete(group, replica)
        elif before != replica.me:
            raise Violation(
                "election-safety", f"{before} and {replica.me} lead group {group} in term {term}"
            )

    def _complete(self, group: GroupId, replica: PartitionReplica) -> None:
        """A new leader holds everything that was ever committed."""
        end = self.ghost_end.get(group, RaftIndex(0))
        if end == 0:
            return
        self._count("leader-completeness")
        term = replica.log.term_at(end)
        if term != self.ghost[group][end].term:
            raise Violation(
                "leader-completeness",
                f"{replica.me} leads group {group} in term {replica.node.term} with term {term} at "
                f"committed entry {end}, which had term {self.ghost[group][end].term}",
            )

    def _matching(self, group: GroupId, replica: PartitionReplica) -> None:
        """Equal index and term mean an equal chain, on whatever replica and at whatever time."""
        log = replica.log
        chain = log.chain_at(log.last_index)
        if chain is None or log.last_index == 0:
            return
        self._count("log-matching")
        key = (group, log.last_index, log.last_term)
        before = self.ends.setdefault(key, chain)
        if before != chain:
            raise Violation(
                "log-matching",
                f"entry {log.last_index} of term {log.last_term} in group {group} has two chains",
            )

    def _commit(self, group: GroupId, replica: PartitionReplica) -> None:
        ghost = self.ghost.setdefault(group, {})
        end = self.ghost_end.get(group, RaftIndex(0))
        log = replica.log
        for number in range(max(end + 1, log.first_index), replica.commit + 1):
            index = RaftIndex(number)
            term, chain = log.term_at(index), log.chain_at(index)
            if term is not None:
                ghost[index] = Seen(term, -1 if chain is None else chain)
        self.ghost_end[group] = replica.commit

    def _same_as_ghost(self, group: GroupId, replica: PartitionReplica, index: RaftIndex) -> None:
        seen = self.ghost[group].get(index)
        term, chain = replica.log.term_at(index), replica.log.chain_at(index)
        if seen is None or term is None:
            return
        self._count("committed-immutable")
        if term != seen.term or (chain is not None and seen.chain not in (-1, chain)):
            raise Violation(
                "committed-immutable",
                f"{replica.me} committed entry {index} of group {group} with term {term}, it had "
                f"term {seen.term} when it was first committed",
            )

    def _published(self, group: GroupId, replica: PartitionReplica) -> None:
        """No node shows its clients a high watermark below one that it showed before."""
        if not (replica.node.leading and replica.publishing):
            return
        self._count("high-watermark-monotone")
        key = (group, replica.me.node)
        before = self.published.get(key, 0)
        if replica.high_watermark < before:
            raise Violation(
                "high-watermark-monotone",
                f"node {key[1]} showed {before} of group {group}, now {replica.high_watermark}",
            )
        self.published[key] = replica.high_watermark

    def finish(self, nodes: "list[Node]") -> None:
        """Everything on every node: each committed entry that a replica holds is the ghost's."""
        for node in nodes:
            for group, replica in node.broker.context.replicas.items():
                for number in range(replica.log.first_index, replica.commit + 1):
                    self._same_as_ghost(group, replica, RaftIndex(number))

    def _count(self, name: str) -> None:
        self.checked[name] += 1

    def document(self, violated: str = "") -> dict[str, object]:
        """For verdict.json."""
        return {
            name: {"status": "violated" if name == violated else "held", "checked": count}
            for name, count in self.checked.items()
        }

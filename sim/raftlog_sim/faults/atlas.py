"""The fault atlas: which damage is allowed, so that every failure is a bug.

    fault                            allowed because
    un-synced bytes and names lost   a promise presupposes a sync: on any number of nodes at once
    write or open fails              what failed was never acknowledged: anywhere, any time
    reads fail                       recovery reads around what stays unreadable: damage (seed 12)
    disk full                        the same
    sync fails, pages or names clean may take what was acknowledged before: damage
    rot below the durable mark       the mark tells it from a torn tail, peers repair it: damage
    write goes astray                where the mark speaks of what it should have written: damage
    index files: anything            they are rebuilt: anywhere, any time
    directory wiped, replica lost    its promises are gone, its id never speaks again: damage
    directory put back, old copy     others have synced a later life of it, and tell: damage
    lying sync, rot of a majority    never here: no protocol survives it

Damage is rationed. A node may be damaged only if, in every group in which it votes, the nodes ever
damaged stay a minority. Then in each group a majority keeps registration, term, vote and every
entry that it acknowledged. An entry that damaged nodes committed lies on a whole node too. A repair
gives nothing back within a run: that is stricter than it must be, and simple. Only replication
protects bytes younger than the mark, so they do not rot.

While topics are created or partitions move, one damaged node must be enough. A placement that is
under way knows nothing of a disk that is wiped meanwhile. A new group that lost two of three
replicas before their first word can never elect (seed 74).

The targets of moves count from the beginning. No node of a pair of targets may be damaged, since
the joint configuration needs both, and perhaps only a node that is down knows of it (seed 640015).
Controllers come and go only as far as the damaged stay a minority of those that may vote then.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, final

import attrs

from raftlog.base.ids import DirectoryId, NodeId
from raftlog.storage.directories.incarnations import IncarnationBook
from raftlog_sim.facts import truth
from raftlog_sim.facts.convergence import is_core, voter_sets
from raftlog_sim.schedules.schedule import Step

if TYPE_CHECKING:
    from raftlog_sim.world.node import Node
    from raftlog_sim.world.world import World


@final
@attrs.define(eq=False)
class Atlas:
    """Rations the damage of a run. `damaged` are the nodes that may have lost promises. Those of
    them in `unaware` may not know it before they boot or read once more."""

    world: "World"
    churn: bool = False
    """Whether placements change during the run."""
    planned: tuple[tuple[NodeId, ...], ...] = ()
    """The nodes to which partitions move during the run."""
    damaged: dict[NodeId, None] = attrs.Factory(dict)
    unaware: dict[NodeId, None] = attrs.Factory(dict)
    voters: dict[tuple[NodeId, ...], None] = attrs.Factory(dict)
    """Every voter set that was ever seen here."""
    asked: dict[tuple[NodeId, ...], None] = attrs.Factory(dict)
    """Every set of controllers to which the requested changes may lead, in any order."""

    def allow(self, number: NodeId, *, aware: bool = False) -> bool:
        """Whether this node may be damaged now; if so it counts as damaged from here on.

        It may not while no running node knows of a topic, since nothing tells then who votes where.
        (Seed 302202: the only running node had been wiped, so the second of three was wiped too.)
        """
        if not any(node.broker.context.image.topics for node in self.world.running()):
            return False
        hurt = {*self.damaged, number}
        if self.churn and len(hurt) > 1:
            return False
        self.voters.update(dict.fromkeys(voter_sets(self.world)))
        for voters in (*self.voters, *self.planned, *self.asked):
            if number in voters and len(hurt & set(voters)) > (len(voters) - 1) // 2:
                return False
        self.damaged[number] = None
        if not aware:
            self.unaware[number] = None
        return True

    def change_controllers(self, now: Sequence[NodeId], number: NodeId, *, votes: bool) -> bool:
        """Whether this node may begin or end to vote, of the present controllers.

        The damaged nodes must stay a minority in every set that may come of it and of earlier
        requests. An administrator looks at that first, as the product says nothing of disks.
        """
        following: dict[tuple[NodeId, ...], None] = {}
        for known in (tuple(now), *self.asked):
            others = [each for each in known if each != number]
            following[tuple(sorted([*others, number] if votes else others))] = None
        following.pop((), None)
        for voters in following:
            if len(set(self.damaged) & set(voters)) > (len(voters) - 1) // 2:
                return False
        self.asked.update(dict.fromkeys((tuple(sorted(now)), *following)))
        return True

    def is_core(self, core: Sequence[NodeId]) -> bool:
        """Whether these nodes may be all that is left, whichever requested changes of controllers
        still come.

        See `convergence.is_core`.
        """
        whole = {number for number in core if number not in self.damaged}
        enough = all(len(whole & set(voters)) > len(voters) // 2 for voters in self.asked)
        return enough and is_core(self.world, core, self.damaged)

    def tells(self, number: NodeId, directory: DirectoryId, copy: IncarnationBook) -> bool:
        """Whether an old copy of this node's directory may be put back.

        In each group, every majority that holds the node must hold a witness. A witness is a voter
        that is not put back and has synced a life of the directory that the copy has not had.
        """
        others = [node for node in self.world.nodes.values() if node.number != number]
        witnesses = [
            node.number
            for node in others
            if not node.rolled_back and _met_later(node, directory, copy)
        ]
        self.voters.update(dict.fromkeys(voter_sets(self.world)))
        for voters in (*self.voters, *self.planned, *self.asked):
            strangers = [each for each in voters if each != number and each not in witnesses]
            if number in voters and len(strangers) >= len(voters) // 2:
                return False
        return True


def _met_later(other: "Node", directory: DirectoryId, copy: IncarnationBook) -> bool:
    """Whether the disk of a node, as a power loss would leave it, knows such a life."""
    known = truth.stored_incarnation(other, directory)
    return known is not None and known not in copy.own


def planned_places(steps: Iterable[Step]) -> tuple[tuple[NodeId, ...], ...]:
    """Returns the nodes that each move names by number; moves to roles count when they happen."""
    named = [str(step.argument("nodes")).split("+") for step in steps if step.kind == "reassign"]
    return tuple(
        tuple(NodeId(int(name[1:])) for name in names if name[1:].isdigit()) for names in named
    )

"""The last phases of a run: damaged nodes lead and are read, and all boot once more.

A damaged node must lead and serve reads, in some seeds every node. After a reboot all must be as
before. There are three kinds of reboot, in turn: all brokers are asked to stop; power fails and
keeps nothing unsynced; power fails so, and all index files are gone too.
"""

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

import attrs

from raftlog.base.ids import GroupId, NodeId
from raftlog.base.units import Instant, millis
from raftlog.broker.events import Stop
from raftlog_sim.facts.convergence import is_converged, is_told
from raftlog_sim.facts.targets import group_of
from raftlog_sim.faults import cluster_faults
from raftlog_sim.playing.goals import Goal
from raftlog_sim.schedules.schedule import step
from raftlog_sim.workloads.callers import TOPIC
from raftlog_sim.world.disk import Keep

if TYPE_CHECKING:
    from raftlog_sim.faults.nemesis import SimNemesis
    from raftlog_sim.world.node import Node
    from raftlog_sim.world.world import World

REBOOTS: Final = ("stopped", "power", "power-without-indexes")
_ALL_LEAD_IN: Final = 3
"""In one of this many seeds every node leads in the end, and serves reads."""
PATIENCE_NS: Final = millis(3_000)
"""How long a broker may take to stop, or to get the leadership that it is handed, and a report to
arrive, in nanoseconds."""


def read_last(world: "World", damaged: Collection[NodeId]) -> list[NodeId]:
    """Returns the nodes that lead in the end, one after another, and serve reads.

    They are the damaged nodes, in some seeds all: bytes that no client has read may still be
    rotten.
    """
    all_lead = world.stream("final/all-lead").chance(1, _ALL_LEAD_IN)
    return sorted(world.nodes if all_lead else damaged)


def patience(world: "World") -> Callable[[], bool]:
    """Returns a function that says whether PATIENCE_NS has passed since now."""
    end = world.now + PATIENCE_NS
    world.at(end, nothing)
    return lambda: world.now >= end


def scrubbed(world: "World", interval_ms: int, limit_ns: int) -> Iterator[Goal]:
    """Let an interval of the scrubber pass and its findings be repaired; no closed segment is
    rotten then.

    The scrubber asks a disk that has just failed again, which takes one pass more. Repairs may need
    elections.
    """
    if not interval_ms:
        return
    until = Instant(world.now + 2 * millis(interval_ms) + PATIENCE_NS)
    world.at(until, nothing)
    yield Goal(lambda: world.now >= until, limit_ns, "all is scrubbed", 1)
    yield Goal(lambda: is_converged(world), limit_ns, "what rotted is repaired", 1)


def nothing() -> None:
    """Do nothing: an action that makes the world reach an instant without other events."""


@final
@attrs.define(eq=False)
class Rest:
    """Says, at each call, whether the cluster has come to rest.

    All nodes have converged. The reports of leaders (wide seed 9300080) and the owed answers have
    arrived, or had their time to. A broker may still owe an answer whose client has just given up
    (wide seed 49). `owed` is None where clients wait for something to the very end.
    """

    world: "World"
    owed: "Callable[[Node], str] | None"
    _until: int = 0

    def __call__(self) -> bool:
        if not is_converged(self.world):
            return False
        if is_told(self.world) and not (self.owed and any(map(self.owed, self.world.running()))):
            return True
        self._until = self._until or self.world.now + PATIENCE_NS
        return self.world.now >= self._until


class Standing(NamedTuple):
    """The state of a replica that outlives a reboot while no client writes.

    Raft's own entries may follow, and retention may go on.
    """

    next_offset: int
    log_start: int
    members: tuple[Any, ...]
    producers: tuple[Any, ...]
    goes_on: bool = False
    """Whether its leader writes by itself: sessions of groups end while no member is there."""


def standings(world: "World") -> dict[tuple[NodeId, GroupId], Standing]:
    """Returns the state of every running replica; for the metadata only the members, since its log
    grows."""
    found = {}
    for node in world.running():
        for group, replica in node.broker.context.replicas.items():
            members = (replica.membership.voters, replica.membership.learners)
            if not group:
                found[node.number, group] = Standing(0, 0, members, ())
                continue
            states = replica._tracker.producers.states()
            producers = tuple((number, state.epoch, state.spans) for number, state in states)
            log = replica.log
            goes_on = replica.machine is not None
            found[node.number, group] = Standing(
                log.next_offset, log.log_start, members, producers, goes_on
            )
    return found


def lost_by_reboot(
    before: dict[tuple[NodeId, GroupId], Standing], after: dict[tuple[NodeId, GroupId], Standing]
) -> str:
    """Returns the first replica whose state the reboot changed; "" when there is none."""
    for key in sorted({*before, *after}):
        old, new = before.get(key), after.get(key)
        if old is None or new is None or new.log_start < old.log_start:
            return f"node {key[0]}, group {key[1]}: {old} became {new}"
        if old.goes_on and new.next_offset > old.next_offset:
            new = new._replace(next_offset=old.next_offset)
        if new._replace(log_start=0) != old._replace(log_start=0):
            return f"node {key[0]}, group {key[1]}: {old} became {new}"
    return ""


def begin_reboot(nemesis: "SimNemesis", kind: str) -> None:
    """Stop or crash every node."""
    for number in sorted(nemesis.world.nodes):
        node = nemesis.world.nodes[number]
        if kind == "stopped":
            nemesis.note("stop", number)
            now = node.broker.context.now
            node.leaves = True
            node.deliver(Stop(Instant(now + PATIENCE_NS)))
            continue
        nemesis.note("power-loss", number)
        node.crash(Keep.NONE)
        if kind == "power-without-indexes":
            for path in [path for path in node.disk.paths() if path.endswith(".index")]:
                node.disk.vanish(path)


def end_reboot(nemesis: "SimNemesis") -> None:
    """Start every node; one that has not finished stopping is killed first."""
    for number in sorted(nemesis.world.nodes):
        node = nemesis.world.nodes[number]
        if node.up:
            node.stop_process()
        nemesis.note("restart", number)
        node.start()


def hand_over(nemesis: "SimNemesis", number: NodeId, partitions: int) -> None:
    """Let the node lead every partition of which it is a voter."""
    for partition in range(partitions):
        wanted = step(0, "transfer", partition=partition, node=f"n{number}")
        cluster_faults.STRIKES["transfer"](nemesis, wanted)


def leads(world: "World", number: NodeId, partitions: int) -> bool:
    """Whether the node leads, and takes proposals for, every partition of which it has a
    replica."""
    for partition in range(partitions):
        group = group_of(world, TOPIC, partition)
        node = world.nodes[number]
        replica = node.broker.context.replicas.get(group) if node.up and group else None
        if replica is not None and not (replica.is_leader and replica.node.ready):
            return False
    return True

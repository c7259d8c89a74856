"""Field findings of others, as scenarios that stay: what broke their systems must not break ours.

Each is named as in the project's list of regression scenarios. A scenario differs from the finding
only where it must. A client cannot remove a raftlog broker from a cluster by a call, so "remove" is
a broker whose disk is lost.
"""

from collections.abc import Iterator
from typing import Final, final

import attrs

from jepsen_style_tests.nemeses import damage, kills, partitions, pauses
from jepsen_style_tests.world import PEERS, Nemesis, ProcessWorld, Setup, Steps

_POWER: Final = "writeback"


@final
@attrs.frozen(kw_only=True)
class NamedRun:
    """A script of faults with the load that it needs."""

    name: str
    about: str
    workload: str
    steps: Steps
    seconds: float = 60.0
    brokers: int = 3
    linearizable: bool = False
    setup: Setup = attrs.field(factory=Setup)

    def nemesis(self) -> Nemesis:
        """The script as the runner takes it."""
        return Nemesis(name=self.name, about=self.about, steps=self.steps, setup=self.setup)


def nats_7545(world: ProcessWorld) -> Iterator[float]:
    """Cut one, kill three, lose the disk of one of them, and write all the time."""
    while True:
        yield 2.0
        order = world.some(5)
        world.dice.shuffle(order)
        alone, killed = order[0], order[1:4]
        others = [node for node in world.nodes if node != alone]
        world.hold(partitions.between([alone], others), "isolate")
        yield 1.0
        world.kill(killed)
        yield world.dice.uniform(0.5, 2.0)
        world.cluster.wipe(killed[0])
        world.note.nemesis("wipe", {"node": f"n{killed[0]}"})
        world.heal_links()
        world.start(killed)
        world.wait_in_sync(60.0)


def nats_7549(world: ProcessWorld) -> Iterator[float]:
    """One of five has flipped bits; then the leaders die, so that the damaged one may be asked to
    lead. A corrupt log must win no election, and must not spread."""
    while True:
        yield 3.0
        damaged = world.some(1)[0]
        world.stop(damaged)
        flipped = damage.flip_bits(world, damaged)
        world.note.nemesis("bit-flips", {"node": f"n{damaged}", "flipped": flipped})
        world.start([damaged])
        yield world.dice.uniform(0.2, 1.5)
        sound = [node for node in world.nodes if node != damaged]
        leader = world.leader()
        victims = sorted({leader if leader != damaged else sound[0], world.dice.choice(sound)})
        world.kill(victims)
        yield 3.0
        world.start(victims)
        world.wait_in_sync(60.0)


def nats_7567(world: ProcessWorld) -> Iterator[float]:
    """Pause two, kill one as a power failure would, swap who is paused, start the dead one."""
    while True:
        yield 2.0
        order = world.some(5)
        world.dice.shuffle(order)
        first, dead, second = order[:2], order[2], order[3:]
        world.pause(first)
        yield world.dice.uniform(0.5, 2.0)
        world.kill([dead])
        yield world.dice.uniform(0.2, 1.0)
        world.resume(first)
        world.pause(second)
        world.start([dead])
        yield world.dice.uniform(1.0, 4.0)
        world.resume(second)
        world.wait_ready(world.nodes)


def shrink_isolate_elect(world: ProcessWorld) -> Iterator[float]:
    """The leader loses its followers until it alone is in sync; then it is cut off as well, and the
    others elect. The records that it took meanwhile must not have been acknowledged."""
    while True:
        yield 2.0
        leader = world.leader()
        others = [node for node in world.nodes if node != leader]
        for node in others:
            world.hold([(leader, node), (node, leader)], f"cut-n{node}")
            yield 1.5
        yield 1.0
        world.pause([leader])
        yield 3.0
        world.resume([leader])
        yield 1.0
        world.heal_links()
        world.wait_in_sync(30.0)


def last_replica_standing(world: ProcessWorld) -> Iterator[float]:
    """The in-sync set shrinks to one broker, which then loses its power; the others come back
    without it."""
    while True:
        yield 2.0
        order = world.some(3)
        world.dice.shuffle(order)
        for node in order:
            world.kill([node])
            yield 1.5
        world.start(order[:2])
        world.wait_ready(order[:2], 20.0)
        yield 2.0
        world.start(order[2:])
        world.wait_in_sync(30.0)


def pause_read(world: ProcessWorld) -> Iterator[float]:
    """The leader is paused just long enough for another to be elected and to accept writes; when
    it wakes it must not answer a read from its own past."""
    while True:
        yield world.dice.uniform(0.5, 1.5)
        victims = [world.leader()]
        world.pause(victims)
        yield world.dice.uniform(1.0, 2.5)
        world.resume(victims)


def quick_restarts(world: ProcessWorld) -> Iterator[float]:
    """All restart at once, again before anybody may have settled: no term is voted in twice."""
    while True:
        yield 2.0
        for _ in range(3):
            world.kill(world.nodes)
            world.start(world.nodes)
            yield world.dice.uniform(0.5, 2.0)
        world.wait_ready(world.nodes)


_LAG: Final = {"replica.lag.time.max.ms": "1000"}

SCENARIOS: Final[dict[str, NamedRun]] = {
    scenario.name: scenario
    for scenario in (
        NamedRun(
            name="nats-7545",
            about="cut one of five, kill three, one of them without its disk, while writing",
            workload="append",
            steps=nats_7545,
            brokers=5,
            setup=Setup(proxies=PEERS, lost_copies=True),
        ),
        NamedRun(
            name="nats-7549",
            about="one of five has flipped bits, then the leader dies",
            workload="append",
            steps=nats_7549,
            brokers=5,
            setup=Setup(lost_copies=True),
        ),
        NamedRun(
            name="nats-7567",
            about="pause two of five, lose the power of one, swap who is paused",
            workload="append",
            steps=nats_7567,
            brokers=5,
            setup=Setup(test_disk=_POWER),
        ),
        NamedRun(
            name="redpanda-pause-kill-idempotent",
            about="pauses and kills under idempotent producers, 300 s as it was found",
            workload="idempotent",
            steps=pauses.and_kill,
            seconds=300.0,
        ),
        NamedRun(
            name="kafka-08-shrink-isolate-elect",
            about="the in-sync set shrinks to the leader, it is cut off, the others elect",
            workload="append",
            steps=shrink_isolate_elect,
            setup=Setup(proxies=PEERS, settings=_LAG),
        ),
        NamedRun(
            name="kip966-last-replica-standing",
            about="the last replica in sync loses its power, the others come back without it",
            workload="append",
            steps=last_replica_standing,
            setup=Setup(test_disk=_POWER, settings=_LAG),
        ),
        NamedRun(
            name="etcd-20418-pause-read",
            about="the leader wakes from a pause and is asked for a value that was overwritten",
            workload="register",
            steps=pause_read,
            linearizable=True,
        ),
        NamedRun(
            name="etcd-20418-with-leases",
            about="the same with leases on, which must not outlive a pause",
            workload="register",
            steps=pause_read,
            linearizable=True,
            setup=Setup(settings={"raftlog.read.lease.enable": "true"}),
        ),
        NamedRun(
            name="power-loss-all",
            about="every broker loses its power at once; nothing that was acknowledged may go",
            workload="append",
            steps=kills.everybody,
            setup=Setup(test_disk=_POWER),
        ),
        NamedRun(
            name="pysyncobj-202",
            about="all brokers restart at once, again and again",
            workload="append",
            steps=quick_restarts,
            setup=Setup(test_disk=_POWER),
        ),
        NamedRun(
            name="wiped-disk-replacement",
            about="a broker comes back with an empty disk",
            workload="idempotent",
            steps=damage.wipes,
            setup=Setup(lost_copies=True),
        ),
    )
}

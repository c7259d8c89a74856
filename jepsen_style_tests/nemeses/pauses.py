"""SIGSTOP and SIGCONT: of the leader, of a majority, of everybody; and with a kill beside it."""

from collections.abc import Iterator

from jepsen_style_tests.world import Nemesis, ProcessWorld

AWAKE_SECONDS = (1.0, 4.0)
ASLEEP_SECONDS = (0.3, 6.0)
"""From less than an election timeout to more than a session."""


def leader(world: ProcessWorld) -> Iterator[float]:
    """The leader stands still, another is elected, the old one wakes and believes it leads."""
    while True:
        yield world.dice.uniform(*AWAKE_SECONDS)
        victims = [world.leader()]
        world.pause(victims)
        yield world.dice.uniform(*ASLEEP_SECONDS)
        world.resume(victims)


def majority(world: ProcessWorld) -> Iterator[float]:
    """Nothing can commit while it lasts."""
    while True:
        yield world.dice.uniform(*AWAKE_SECONDS)
        victims = world.majority()
        world.pause(victims)
        yield world.dice.uniform(*ASLEEP_SECONDS)
        world.resume(victims)


def and_kill(world: ProcessWorld) -> Iterator[float]:
    """One is paused, another is killed meanwhile, then the first wakes."""
    while True:
        yield world.dice.uniform(*AWAKE_SECONDS)
        paused, killed = world.dice.sample(world.nodes, 2)
        world.pause([paused])
        yield world.dice.uniform(0.1, 2.0)
        world.kill([killed])
        yield world.dice.uniform(0.1, 2.0)
        world.resume([paused])
        yield world.dice.uniform(0.0, 1.0)
        world.start([killed])
        world.wait_ready([killed])


NEMESES = (
    Nemesis(name="pause-leader", about="SIGSTOP of the leader, then SIGCONT", steps=leader),
    Nemesis(name="pause-majority", about="SIGSTOP of a majority, then SIGCONT", steps=majority),
    Nemesis(name="pause-and-kill", about="SIGSTOP of one, kill -9 of another", steps=and_kill),
)

"""kill -9: one broker, the leader, all at once, one after the other; and stops that hand over."""

from collections.abc import Iterator

from jepsen_style_tests.world import Nemesis, ProcessWorld, Setup

UP_SECONDS = (2.0, 6.0)
DOWN_SECONDS = (0.5, 4.0)


def _wait(world: ProcessWorld, bounds: tuple[float, float]) -> float:
    return world.dice.uniform(*bounds)


def one(world: ProcessWorld) -> Iterator[float]:
    """Any broker, again and again; the others always keep a majority."""
    while True:
        yield _wait(world, UP_SECONDS)
        victims = world.some(1)
        world.kill(victims)
        yield _wait(world, DOWN_SECONDS)
        world.start(victims)
        world.wait_ready(victims)


def leader(world: ProcessWorld) -> Iterator[float]:
    """The broker that leads the most partitions at that moment."""
    while True:
        yield _wait(world, UP_SECONDS)
        victims = [world.leader()]
        world.kill(victims)
        yield _wait(world, DOWN_SECONDS)
        world.start(victims)
        world.wait_ready(victims)


def everybody(world: ProcessWorld) -> Iterator[float]:
    """All at the same instant: with the write-back disk this is a power failure."""
    while True:
        yield _wait(world, UP_SECONDS)
        world.kill(world.nodes)
        yield world.dice.uniform(0.1, 1.0)
        order = world.some(len(world.nodes))
        world.dice.shuffle(order)
        world.start(order)
        world.wait_ready(world.nodes)


def rolling(world: ProcessWorld) -> Iterator[float]:
    """Each broker in turn is stopped in order, handing over what it leads, and started again."""
    while True:
        for node in world.nodes:
            yield world.dice.uniform(1.0, 3.0)
            world.stop(node)
            yield world.dice.uniform(0.0, 1.0)
            world.start([node])
            world.wait_ready([node])


def transfers(world: ProcessWorld) -> Iterator[float]:
    """The leader hands over and comes back, soon enough that leadership returns to it."""
    while True:
        yield world.dice.uniform(1.0, 3.0)
        node = world.leader()
        world.stop(node)
        world.start([node])
        world.wait_ready([node])


NEMESES = (
    Nemesis(name="kill-one", about="kill -9 of one broker", steps=one),
    Nemesis(name="kill-leader", about="kill -9 of the broker that leads most", steps=leader),
    Nemesis(
        name="kill-all",
        about="kill -9 of all brokers at once on the write-back disk: a power failure",
        steps=everybody,
        setup=Setup(test_disk="writeback"),
    ),
    Nemesis(name="rolling", about="graceful restarts, one broker after the other", steps=rolling),
    Nemesis(name="transfers", about="the leader hands over and returns", steps=transfers),
)

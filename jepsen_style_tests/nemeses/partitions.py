"""Links that drop, delay, crawl and reset, by proxies, without root.

A partition holds the bytes of a direction: to the brokers it looks like a network that drops every
packet, connections stay open. Half of the repairs reset the connections, half let the held bytes
arrive late.
"""

from collections.abc import Iterator

from jepsen_style_tests import namespaces
from jepsen_style_tests.proxy import CLIENTS
from jepsen_style_tests.world import EVERYBODY, PEERS, Nemesis, ProcessWorld, Setup, Steps

WHOLE_SECONDS = (1.0, 4.0)
CUT_SECONDS = (0.5, 8.0)
Flows = list[tuple[int, int]]


def between(one: list[int], other: list[int]) -> Flows:
    """Both directions of every link between two sides."""
    return [flow for a in one for b in other for flow in ((a, b), (b, a))]


def _isolated(world: ProcessWorld) -> Flows:
    """One broker is alone; half of the time it is the leader."""
    alone = world.leader() if world.dice.random() < 0.5 else world.some(1)[0]
    return between([alone], [node for node in world.nodes if node != alone])


def _one_way(world: ProcessWorld) -> Flows:
    """One broker is heard by nobody, or hears nobody."""
    alone = world.leader() if world.dice.random() < 0.5 else world.some(1)[0]
    others = [node for node in world.nodes if node != alone]
    if world.dice.random() < 0.5:
        return [(alone, node) for node in others]
    return [(node, alone) for node in others]


def _bridge(world: ProcessWorld) -> Flows:
    """Two sides that see each other only through one broker."""
    order = world.some(len(world.nodes))
    world.dice.shuffle(order)
    half = (len(order) - 1) // 2
    return between(order[:half], order[half + 1 :])


def _ring(world: ProcessWorld) -> Flows:
    """Each broker is heard by the next in a ring only: no two have the same view."""
    order = world.some(len(world.nodes))
    world.dice.shuffle(order)
    follows = {(order[at - 1], order[at]) for at in range(len(order))}
    return [(a, b) for a in order for b in order if a != b and (a, b) not in follows]


def _cutting(what: str) -> Steps:
    """Steps that cut by one of the shapes above."""
    shape = {"isolate": _isolated, "one-way": _one_way, "bridge": _bridge, "ring": _ring}[what]

    def steps(world: ProcessWorld) -> Iterator[float]:
        while True:
            yield world.dice.uniform(*WHOLE_SECONDS)
            world.hold(shape(world), what)
            yield world.dice.uniform(*CUT_SECONDS)
            world.heal_links()

    return steps


def packets(world: ProcessWorld) -> Iterator[float]:
    """Any of the shapes above, by dropped packets between network namespaces."""
    while True:
        yield world.dice.uniform(*WHOLE_SECONDS)
        shape = world.dice.choice((_isolated, _one_way, _bridge, _ring))
        world.drop(shape(world), "drop-packets")
        yield world.dice.uniform(*CUT_SECONDS)
        world.end("drop-packets")


def delay(world: ProcessWorld) -> Iterator[float]:
    """Some directions are late, each by its own time."""
    while True:
        yield world.dice.uniform(*WHOLE_SECONDS)
        late = {}
        for a in world.nodes:
            for b in world.nodes:
                if a != b and world.dice.random() < 0.6:
                    late[a, b] = world.dice.choice((0.02, 0.1, 0.3, 0.8))
                    world.links.flow(a, b).delay_seconds = late[a, b]
        world.begin("delay", {f"n{a}-n{b}": seconds for (a, b), seconds in late.items()})
        yield world.dice.uniform(*CUT_SECONDS)
        world.heal_links()


def throttle(world: ProcessWorld) -> Iterator[float]:
    """Everything a broker sends to its peers crawls."""
    while True:
        yield world.dice.uniform(*WHOLE_SECONDS)
        node, rate = world.leader(), world.dice.choice((2_000.0, 20_000.0))
        for other in world.nodes:
            world.links.flow(node, other).bytes_per_second = rate
        world.begin("throttle", {"node": f"n{node}", "bytes_per_second": rate})
        yield world.dice.uniform(*CUT_SECONDS)
        world.heal_links()


def resets(world: ProcessWorld) -> Iterator[float]:
    """Connections between brokers are reset, many times in a row."""
    pairs = [(a, b) for a in world.nodes for b in world.nodes if a < b]
    while True:
        yield world.dice.uniform(*WHOLE_SECONDS)
        world.begin("resets", {"links": "peers"})
        for _ in range(world.dice.randint(5, 40)):
            world.links.reset(world.dice.sample(pairs, world.dice.randint(1, len(pairs))))
            yield world.dice.uniform(0.01, 0.2)
        world.end("resets")


def client_resets(world: ProcessWorld) -> Iterator[float]:
    """Answers to clients are held, then their connections are reset: what was done is not heard
    of, and the client tries again."""
    while True:
        yield world.dice.uniform(0.5, 2.0)
        nodes = world.some(world.dice.randint(1, len(world.nodes)))
        world.hold([(node, CLIENTS) for node in nodes], "lost-answers")
        yield world.dice.uniform(0.02, 0.5)
        world.links.reset([(node, CLIENTS) for node in nodes])
        for node in nodes:
            world.links.flow(node, CLIENTS).clear()
        world.end("lost-answers")


_PEERS = Setup(proxies=PEERS)

NEMESES = (
    Nemesis(
        name="isolate",
        about="one broker, often the leader, is cut off",
        steps=_cutting("isolate"),
        setup=_PEERS,
    ),
    Nemesis(
        name="one-way",
        about="one broker is heard by nobody, or hears nobody",
        steps=_cutting("one-way"),
        setup=_PEERS,
    ),
    Nemesis(
        name="bridge",
        about="two sides see each other only through one broker",
        steps=_cutting("bridge"),
        setup=_PEERS,
    ),
    Nemesis(
        name="ring",
        about="each broker is heard by the next in a ring only",
        steps=_cutting("ring"),
        setup=_PEERS,
    ),
    Nemesis(name="delay", about="links between brokers are late", steps=delay, setup=_PEERS),
    Nemesis(name="throttle", about="the leader's links crawl", steps=throttle, setup=_PEERS),
    Nemesis(
        name="resets",
        about="links between brokers are reset in storms",
        steps=resets,
        setup=_PEERS,
    ),
    Nemesis(
        name="drop-packets",
        about="partitions of every shape between network namespaces (root)",
        steps=packets,
        setup=Setup(namespaces=True, missing=namespaces.missing),
    ),
    Nemesis(
        name="lost-answers",
        about="answers to clients are held and their connections reset",
        steps=client_resets,
        setup=Setup(proxies=EVERYBODY),
    ),
)

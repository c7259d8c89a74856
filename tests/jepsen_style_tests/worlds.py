"""A world whose brokers are only booked, for tests of nemeses: who runs, who is paused, what is
held, what was noted."""

from pathlib import Path
from random import Random

from jepsen_style_tests.proxy import Flow
from jepsen_style_tests.world import ProcessWorld


class BookedCluster:
    """Knows who would run. Breaking the rules of signals is an error here."""

    def __init__(self, directory: Path, count: int) -> None:
        self.directory = directory
        self.nodes = list(range(1, count + 1))
        self.up = set(self.nodes)
        self.paused: list[int] = []
        self.lowest_up = count
        self.asked_leader = 0
        for node in self.nodes:
            self.data_path(node).mkdir(parents=True, exist_ok=True)

    def data_path(self, node: int) -> Path:
        return self.directory / f"broker{node}"

    def running(self, node):
        return node in self.up

    def leaders(self):
        self.asked_leader += 1
        return {"a-0": 2, "b-0": 2, "b-1": 1}

    def start(self, node):
        self.up.add(node)

    def kill_all(self, nodes):
        self.up -= set(nodes)
        self.paused = [node for node in self.paused if node not in nodes]
        self.lowest_up = min(self.lowest_up, len(self.up))

    def stop(self, node):
        self.kill_all([node])

    def pause(self, node):
        assert node in self.up, node
        self.paused.append(node)

    def resume(self, node):
        if node in self.paused:
            self.paused.remove(node)

    def wipe(self, node):
        assert node not in self.up, "wiped under a running broker"
        for path in self.data_path(node).iterdir():
            path.unlink()

    def wait_ready(self, nodes, seconds=0.0):
        assert self.up.issuperset(nodes)

    def in_sync(self):
        return len(self.up) == len(self.nodes)


class BookedLinks:
    """Flows without proxies."""

    def __init__(self) -> None:
        self.flows: dict[tuple[int, int], Flow] = {}
        self.resets: list[list[tuple[int, int]]] = []

    def flow(self, start, to):
        return self.flows.setdefault((start, to), Flow())

    def reset(self, pairs):
        self.resets.append(list(pairs))

    def heal(self):
        for flow in self.flows.values():
            flow.clear()

    def held(self) -> set[tuple[int, int]]:
        return {ends for ends, flow in self.flows.items() if flow.held}

    def perfect(self) -> bool:
        return all(
            not (flow.held or flow.delay_seconds or flow.bytes_per_second)
            for flow in self.flows.values()
        )


class BookedNamespaces:
    """Cuts without a network."""

    def __init__(self) -> None:
        self.cut: set[tuple[int, int]] = set()

    def drop(self, flows):
        self.cut |= set(flows)

    def heal(self):
        self.cut.clear()


class Notes:
    """Stands for a history and keeps its lines."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, object]] = []

    def nemesis(self, f, value=None):
        self.lines.append((f, value))

    def names(self) -> list[str]:
        return [f for f, _ in self.lines]


def booked(tmp_path: Path, *, seed: int = 1, count: int = 3) -> ProcessWorld:
    """A world of `count` brokers that all run."""
    cluster, links = BookedCluster(tmp_path, count), BookedLinks()
    return ProcessWorld(cluster, links, Notes(), Random(seed), tmp_path, BookedNamespaces())

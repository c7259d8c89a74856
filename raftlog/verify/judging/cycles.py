"""Judges G0 and G1c: cycles of dependencies between operations.

Edges: ww from the writer at one index to the writer at the next; wr from a writer to the operations
that read it; no rw edges. The `-process` variants add the order of each process, the `-realtime`
variants the order of operations that do not overlap. A G0 cycle has a ww edge, a G1c cycle a wr
edge. Each cycle is counted under its plainest name, so a variant counts only cycles that need it.

Real time would need an edge for every pair of operations. A chain of barriers, one per return, says
the same with a linear number of edges. An operation points to the barrier of its return. A barrier
points to the next one and to every operation invoked after it and before the next.

A log whose scan (`raftlog.verify.judging.linearizability`) found a linearization has none of these
cycles: the points of the linearization rise along every edge. `acyclic_by_scan` says when that
argument holds, and then nothing is searched. That is the usual case, so a valid history is cheap.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from raftlog.verify.histories.interval import OPEN, Interval
from raftlog.verify.judging.classes import G0, G1C
from raftlog.verify.judging.explain import describe
from raftlog.verify.judging.facts import Facts
from raftlog.verify.judging.verdict import Findings, Witness

_WW: Final = "ww"
_WR: Final = "wr"
_TIME: Final = "time"


class Edge(NamedTuple):
    """A dependency: `target` comes after the operation that has this edge."""

    target: int
    kind: str


Graph = list[list[Edge]]


def acyclic_by_scan(facts: Facts, operations: Sequence[Interval], findings: Findings) -> bool:
    """Whether the scan's result already rules out every cycle.

    It does under three conditions. The scan of every key passed without a value conflict. No
    operation both sends and reads, or sends to several places (`txn`). No failed send lies in a
    log. Then:

    1. The points of the scan never fall along a ww or wr edge.
    2. A step in time, from one operation's return to a later invocation, raises them strictly.
    3. So a cycle would consist of ww and wr edges only. These lead up the log of one key and then
       end in a poll, which has no edge that leads on.

    Operations of one process may touch in time (return and next call at one instant). An edge
    between them does not raise the points strictly, so a cycle among equal instants is not ruled
    out here.
    """
    if any(
        findings.counts.get(name) for name in ("linearizability", "duplicate", "phantom", "G1a")
    ):
        return False
    if findings.counts.get("inconsistent-offsets"):
        return False
    if any(op.f == "txn" for op in facts.others):
        return False
    last_end: dict[int, int] = {}
    for op in operations:
        process = op.process
        if last_end.get(process) == op.start_ns:
            return False
        last_end[process] = op.end_ns
    return True


def check(facts: Facts, operations: Sequence[Interval], findings: Findings) -> None:
    """Judge all six classes."""
    keys = facts.keys.values()
    if any(key.batches for key in keys) and any(key.at for key in keys):
        findings.check(*G0)
    if any(key.polled for key in facts.keys.values()):
        findings.check(*G1C)
    if acyclic_by_scan(facts, operations, findings):
        return
    nodes, writes, reads = _dependencies(facts, operations)
    process = _process_edges(nodes)
    for names, kind, dependencies in ((G0, _WW, (writes,)), (G1C, _WR, (writes, reads))):
        for name, cycle in _cycles(names, kind, dependencies, nodes, process):
            findings.add(name, partial(_cycle_witness, name, cycle, nodes))
    if any(op.f == "txn" for op in nodes):
        # Write order makes cycles that Kafka's transactions allow. A cycle of reads alone is none
        # of them: each transaction read what the other had not committed yet.
        for name, cycle in _cycles(G1C, _WR, (reads,), nodes, process):
            findings.forbid(name, partial(_cycle_witness, name, cycle, nodes))


def _cycles(
    names: Sequence[str],
    kind: str,
    dependencies: Sequence[Graph],
    nodes: Sequence[Interval],
    process: Graph,
) -> Iterator[tuple[str, list[tuple[int, str]]]]:
    """(name, cycle) of each component with an edge of `kind`, under the plainest of `names`.

    The names are those of a plain cycle, one with the order of processes, and one with real time.
    """
    known: dict[int, None] = {}
    for name, more, barriers in zip(
        names, (None, process, None), (False, False, True), strict=True
    ):
        graph: Graph = [[] for _ in nodes]
        for part in (*dependencies, *([more] if more else [])):
            for source, edges in enumerate(part):
                graph[source].extend(edges)
        if barriers:
            _add_barriers(graph, nodes)
        for component in components(graph):
            cycle = _cycle_through(graph, component, kind)
            if cycle and not any(node in known for node in component):
                yield name, cycle
                if name == names[0]:
                    known.update(dict.fromkeys(component))


def _dependencies(
    facts: Facts, operations: Sequence[Interval]
) -> tuple[list[Interval], Graph, Graph]:
    """The committed operations, and their ww and wr edges."""
    nodes = [op for op in operations if op.type != "fail" and op.f in ("send", "poll", "txn")]
    number = {op.index: at for at, op in enumerate(nodes)}
    writes: Graph = [[] for _ in nodes]
    reads: Graph = [[] for _ in nodes]
    for key in facts.keys.values():
        before: int | None = None
        for offset in key.order():
            batch = key.writers.get(key.at[offset])
            here = None
            if batch is not None and key.committed(batch):
                here = number[batch.op.index]
            if before is not None and here is not None and before != here:
                writes[before].append(Edge(here, _WW))
            before = here if here is not None else before
    for at, op in enumerate(nodes):
        if op.type != "ok":
            continue
        for name, pairs in op.reads().items():
            writers = facts.keys[name].writers
            for source in dict.fromkeys(
                number[writers[value].op.index]
                for _, value in pairs
                if value in writers and writers[value].op.type != "fail"
            ):
                if source != at:
                    reads[source].append(Edge(at, _WR))
    return nodes, writes, reads


def _process_edges(nodes: Sequence[Interval]) -> Graph:
    graph: Graph = [[] for _ in nodes]
    last: dict[int, int] = {}
    for at in sorted(range(len(nodes)), key=lambda at: nodes[at].index):
        process = nodes[at].process
        if process in last:
            graph[last[process]].append(Edge(at, _TIME))
        last[process] = at
    return graph


def _add_barriers(graph: Graph, nodes: Sequence[Interval]) -> None:
    """Append the chain of barriers to `graph`: their numbers follow those of the operations."""
    count = len(nodes)
    returns = sorted((op.end_ns, at) for at, op in enumerate(nodes) if op.end_ns < OPEN)
    calls = sorted((op.start_ns, at) for at, op in enumerate(nodes))
    barrier, call = None, 0
    for end, at in returns:
        while call < count and calls[call][0] <= end:
            if barrier is not None:
                graph[barrier].append(Edge(calls[call][1], _TIME))
            call += 1
        graph.append([])
        following = len(graph) - 1
        graph[at].append(Edge(following, _TIME))
        if barrier is not None:
            graph[barrier].append(Edge(following, _TIME))
        barrier = following
    while call < count and barrier is not None:
        graph[barrier].append(Edge(calls[call][1], _TIME))
        call += 1


def components(graph: Graph) -> list[list[int]]:
    """Strongly connected components of more than one node (Tarjan's algorithm, no recursion)."""
    index: list[int] = [-1] * len(graph)
    low = [0] * len(graph)
    on_stack = [False] * len(graph)
    stack: list[int] = []
    found: list[list[int]] = []
    counter = 0
    for root in range(len(graph)):
        if index[root] >= 0:
            continue
        work = [(root, 0)]
        while work:
            node, edge = work.pop()
            if edge == 0:
                index[node] = low[node] = counter
                counter += 1
                stack.append(node)
                on_stack[node] = True
            edges = graph[node]
            while edge < len(edges):
                target = edges[edge].target
                edge += 1
                if index[target] < 0:
                    work.append((node, edge))
                    work.append((target, 0))
                    break
                if on_stack[target]:
                    low[node] = min(low[node], index[target])
            else:
                _close(node, index, low, on_stack, stack, found)
                if work:
                    parent = work[-1][0]
                    low[parent] = min(low[parent], low[node])
    return found


def _close(
    node: int,
    index: list[int],
    low: list[int],
    on_stack: list[bool],
    stack: list[int],
    found: list[list[int]],
) -> None:
    if low[node] != index[node]:
        return
    component = []
    while True:
        member = stack.pop()
        on_stack[member] = False
        component.append(member)
        if member == node:
            break
    if len(component) > 1:
        found.append(sorted(component))


def _cycle_through(graph: Graph, component: Sequence[int], wanted: str) -> list[tuple[int, str]]:
    """A shortest cycle through the first edge of kind `wanted` inside the component, or []."""
    inside = dict.fromkeys(component)
    for start in component:
        for target, kind in graph[start]:
            if kind == wanted and target in inside:
                return [(start, kind), *_path(graph, inside, target, start)]
    return []


def _path(graph: Graph, inside: dict[int, None], start: int, goal: int) -> list[tuple[int, str]]:
    """The shortest path from `start` to `goal`, as (node, kind of the edge that leaves it)."""
    came: dict[int, tuple[int, str]] = {}
    queue = [start]
    for node in queue:
        if node == goal:
            break
        for target, kind in graph[node]:
            if target in inside and target not in came and target != start:
                came[target] = (node, kind)
                queue.append(target)
    path: list[tuple[int, str]] = []
    node = goal
    while node != start:
        node, kind = came[node]
        path.append((node, kind))
    path.reverse()
    return path


def _cycle_witness(
    name: str, cycle: Sequence[tuple[int, str]], nodes: Sequence[Interval]
) -> Witness:
    steps = [(nodes[at], kind) for at, kind in cycle if at < len(nodes)]
    words = {_WW: "is followed in the log by", _WR: "is read by", _TIME: "is over before"}
    text = " ".join(f"the {describe(op)} {words[kind]}" for op, kind in steps[:8])
    return Witness(
        text=f"{name}: {text} the first again.",
        operations=tuple(op for op, _ in steps),
        detail={"edges": [kind for _, kind in steps]},
    )

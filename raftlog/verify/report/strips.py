"""Draws log strips: the log of a key on each node, by term, and where two nodes diverge.

They come from `run.json` (`replicas`, which the simulator knows) if possible, else from the answers
of the nodes. Then a strip shows only offsets that a client asked for, and says so.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from raftlog.verify.histories.interval import Interval

_STRIPS_MAX: Final = 6
_RUNS_MAX: Final = 200
_FAULT_CHARS_MAX: Final = 200


def strips_of(run: Mapping[str, Any], operations: Sequence[Interval]) -> list[dict[str, Any]]:
    """One entry per key: its nodes with their runs, and the first divergence."""
    replicas = run.get("replicas")
    if isinstance(replicas, dict) and replicas:
        found = [_from_replicas(str(key), nodes) for key, nodes in replicas.items()]
        return [strip for strip in found if strip["nodes"]][:_STRIPS_MAX]
    return _from_answers(operations)[:_STRIPS_MAX]


def _from_replicas(key: str, nodes: Any) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    for node, held in nodes.items() if isinstance(nodes, dict) else ():
        runs = [
            list(one)
            for one in (held.get("runs", []) if isinstance(held, dict) else [])
            if isinstance(one, list) and len(one) == 3 and all(type(x) is int for x in one)
        ]
        committed = held.get("committed") if isinstance(held, dict) else None
        rows.append(
            {
                "node": str(node),
                "runs": runs[-_RUNS_MAX:],
                "committed": committed if type(committed) is int else None,
            }
        )
    return {
        "key": key,
        "nodes": rows,
        "divergence": first_divergence([row["runs"] for row in rows]),
        "known": "the replicas at the end of the run" + _faults(nodes),
    }


def _faults(nodes: Any) -> str:
    """The complaints about a replica's files, by node."""
    found = [
        f"{node}: {str(held['fault'])[:_FAULT_CHARS_MAX]}"
        for node, held in (nodes.items() if isinstance(nodes, dict) else ())
        if isinstance(held, dict) and held.get("fault")
    ]
    return "".join(f"; {one}" for one in found[:_STRIPS_MAX])


def first_divergence(logs: Sequence[Sequence[Sequence[int]]]) -> int | None:
    """The lowest offset at which two logs have different terms.

    A log that is only shorter differs in nothing.
    """
    found: int | None = None
    for at, one in enumerate(logs):
        for other in logs[at + 1 :]:
            for first, stop, term in one:
                for other_first, other_stop, other_term in other:
                    low = max(first, other_first)
                    if low < min(stop, other_stop) and term != other_term:
                        found = low if found is None else min(found, low)
    return found


def _from_answers(operations: Sequence[Interval]) -> list[dict[str, Any]]:
    """Key -> node -> the offsets it answered, with the term where an acknowledgement named one."""
    terms: dict[str, dict[int, int]] = {}
    values: dict[str, dict[str, dict[int, Any]]] = {}
    for op in operations:
        if op.node is None or op.type != "ok":
            continue
        if op.f == "send" and op.key is not None and op.value is not None:
            size = len(op.asked) if type(op.asked) is list else 1
            sent = op.asked if type(op.asked) is list else [op.asked]
            held = values.setdefault(op.key, {}).setdefault(op.node, {})
            held.update(zip(range(op.value, op.value + size), sent, strict=True))
            term = (op.evidence or {}).get("term")
            if type(term) is int:
                known = terms.setdefault(op.key, {})
                known.update(dict.fromkeys(range(op.value, op.value + size), term))
        for key, pairs in op.reads().items():
            values.setdefault(key, {}).setdefault(op.node, {}).update(pairs)
    return [
        {
            "key": key,
            "nodes": [
                {"node": node, "runs": _runs(held, terms.get(key, {})), "committed": None}
                for node, held in sorted(nodes.items())
            ],
            "divergence": _first_difference(list(nodes.values())),
            "known": "what clients saw each node answer; terms from acknowledgements",
        }
        for key, nodes in values.items()
    ]


def _runs(held: Mapping[int, Any], terms: Mapping[int, int]) -> list[list[int | None]]:
    """Consecutive offsets of one term (None: unknown), as [first, end, term]."""
    runs: list[list[int | None]] = []
    for offset in sorted(held):
        term = terms.get(offset)
        if runs and runs[-1][1] == offset and runs[-1][2] == term:
            runs[-1][1] = offset + 1
        else:
            runs.append([offset, offset + 1, term])
    return runs[-_RUNS_MAX:]


def _first_difference(logs: Sequence[Mapping[int, Any]]) -> int | None:
    differing = [
        offset
        for at, one in enumerate(logs)
        for other in logs[at + 1 :]
        for offset in one
        if offset in other and one[offset] != other[offset]
    ]
    return min(differing, default=None)

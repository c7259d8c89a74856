"""Reads a trace and nemesis lines for pictures: lanes, arrows, ticks and fault bands.

A trace is text, one event a line: `<instant_ns> <where> <name> [key=value ...]`. Names with a
meaning here are `role`, `send`, `deliver`, `drop`, `sync`; every other event is a tick with its own
words. Lines of another form are counted, never guessed at.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, final

import attrs

from raftlog.verify.histories.history import Op

_CLOSES: Final[Mapping[str, tuple[str, ...]]] = {
    "restart": ("kill", "crash", "wipe", "stop", "power-loss"),
    "start": ("kill", "crash", "wipe", "stop", "power-loss"),
    "resume": ("pause", "stop"),
    "rejoin": ("isolate", "partition", "cut"),
    "restore": ("isolate", "partition", "cut", "disk-full", "slow-disk"),
}
"""Fault -> the names that end it, beside `start-X` and `stop-X`. `heal` ends every network fault.
"""
_METADATA: Final = "group-0"
"""The name in the trace for a change of role in the metadata group."""
_NOT_NETWORK: Final = ("kill", "crash", "wipe", "stop", "pause", "power-loss")


@final
@attrs.frozen(kw_only=True)
class Fault:
    """A band of time; `end_ns` None where nothing ended it, equal to `start_ns` for an instant."""

    name: str
    nodes: tuple[str, ...]
    start_ns: int
    end_ns: int | None
    label: str

    def document(self) -> dict[str, Any]:
        """The fault as the page's JSON."""
        return {
            "name": self.name,
            "nodes": list(self.nodes),
            "start": self.start_ns,
            "end": self.end_ns,
            "label": self.label,
        }


def faults_of(nemesis: Iterable[Op]) -> list[Fault]:
    """Fault bands from nemesis lines, in the order of their beginning."""
    open_faults: list[Fault] = []
    done: list[Fault] = []
    for op in nemesis:
        nodes = _nodes(op.value)
        closed = [fault for fault in open_faults if _ends(op.f, nodes, fault)]
        for fault in closed:
            open_faults.remove(fault)
            done.append(attrs.evolve(fault, end_ns=op.time_ns))
        if closed or op.f == "heal" or op.f.startswith("stop-") or op.f in _CLOSES:
            continue
        begins = op.f.startswith("start-") or op.f in _begins()
        name = op.f.removeprefix("start-")
        label = f"{name} {' '.join(nodes) if nodes else _words(op.value)}".strip()
        end = None if begins else op.time_ns
        fault = Fault(name=name, nodes=nodes, start_ns=op.time_ns, end_ns=end, label=label)
        (open_faults if begins else done).append(fault)
    return sorted([*done, *open_faults], key=lambda fault: (fault.start_ns, fault.label))


def _begins() -> tuple[str, ...]:
    return ("partition", "isolate", *(name for names in _CLOSES.values() for name in names))


def _ends(f: str, nodes: tuple[str, ...], fault: Fault) -> bool:
    if f == "heal":
        return fault.name not in _NOT_NETWORK
    if f.startswith("stop-"):
        if fault.name != f.removeprefix("stop-"):
            return False
    elif fault.name not in _CLOSES.get(f, ()):
        return False
    return not nodes or not fault.nodes or any(node in nodes for node in fault.nodes)


def _nodes(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    if isinstance(value, dict):
        found = value.get("nodes", value.get("node", []))
        if isinstance(found, str):
            return (found,)
        if isinstance(found, list):
            return tuple(str(node) for node in found)
    if isinstance(value, list) and all(isinstance(node, str) for node in value):
        return tuple(value)
    return ()


def _words(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, dict) and isinstance(value.get("groups"), list):
        return " | ".join(" ".join(map(str, group)) for group in value["groups"])
    if isinstance(value, dict) and isinstance(value.get("flows"), list):
        return _flows(value["flows"])
    text = str(value)
    if isinstance(value, dict):
        text = " ".join(f"{name}={entry}" for name, entry in value.items())
    return text if len(text) <= 60 else text[:57] + "..."


def _flows(flows: list[Any]) -> str:
    """The links that are cut, given as [from, to] numbers, in words.

    One node that all of them touch is named alone.
    """
    pairs = [flow for flow in flows if isinstance(flow, list) and len(flow) == 2]
    shared = [one for one in (pairs[0] if pairs else []) if all(one in pair for pair in pairs)]
    both_ways = all([other, one] in pairs for one, other in pairs)
    if len(shared) == 1 and both_ways and len(pairs) > 2:
        return f"n{shared[0]}"
    return ", ".join(f"n{one} to n{other}" for one, other in pairs[:8])


class TraceLine(NamedTuple):
    """One event of a trace."""

    instant: int
    where: str
    name: str
    fields: dict[str, str]


def trace_lines(text: str) -> tuple[list[TraceLine], int]:
    """The events of a trace, and how many lines were not of the form."""
    found: list[TraceLine] = []
    strange = 0
    for line in text.splitlines():
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) < 3 or not words[0].isdecimal() or len(words[0]) > 19:
            strange += 1
            continue
        fields = dict(word.split("=", 1) for word in words[3:] if "=" in word)
        found.append(TraceLine(int(words[0]), words[1], words[2], fields))
    return found, strange


@final
@attrs.define(eq=False)
class Picture:
    """The events of a trace, sorted by the way they are drawn."""

    roles: dict[str, list[dict[str, Any]]] = attrs.field(factory=dict)
    boots: dict[str, list[int]] = attrs.field(factory=dict)
    """Instants at which a node booted."""
    messages: list[dict[str, Any]] = attrs.field(factory=list)
    ticks: list[dict[str, Any]] = attrs.field(factory=list)


def picture_of(lines: Sequence[TraceLine], start_ns: int, end_ns: int) -> Picture:
    """Roles, messages and ticks of a window of time; a role holds until the node's next one."""
    picture = Picture()
    metadata: dict[str, list[dict[str, Any]]] = {}
    sent: dict[str, dict[str, Any]] = {}
    for instant, where, name, fields in lines:
        inside = start_ns <= instant <= end_ns
        if name in ("role", _METADATA):
            segment = {"from": instant, "role": fields.get("role", "?"), "term": fields.get("term")}
            roles = picture.roles if name == "role" else metadata
            roles.setdefault(where, []).append(segment)
        elif name == "send":
            message = {
                "from": where,
                "to": fields.get("to", "?"),
                "start": instant,
                "end": None,
                "what": fields.get("what", "message"),
                "fate": "open",
            }
            message["more"] = " ".join(f"{key}={value}" for key, value in fields.items())
            sent[fields.get("id", "")] = message
            if inside:
                picture.messages.append(message)
        elif name in ("deliver", "drop"):
            _finish(picture, sent.get(fields.get("id", "")), name, instant, inside=inside)
        else:
            if name == "boot":
                picture.boots.setdefault(where, []).append(instant)
            if not inside:
                continue
            more = " ".join(f"{key}={value}" for key, value in fields.items())
            picture.ticks.append({"where": where, "at": instant, "name": name, "more": more})
    for (
        node,
        found,
    ) in metadata.items():  # where no partition's replica told a role, that of the metadata counts
        picture.roles.setdefault(node, found)
    return picture


def _finish(
    picture: Picture, message: dict[str, Any] | None, name: str, instant: int, *, inside: bool
) -> None:
    if message is None:
        return
    if message["fate"] == "delivered" and name == "deliver":
        twin = {**message, "end": instant, "fate": "duplicate"}
        if inside:
            picture.messages.append(twin)
        return
    message["end"] = instant
    message["fate"] = "delivered" if name == "deliver" else "dropped"

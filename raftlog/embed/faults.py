"""The fault methods of a `Cluster`: their arguments, and the handle that each returns.

A method puts one fault in force on the brokers that it concerns. Each broker of this process has a
room, which is called directly. A broker process is told over its admin listener. If it is dead or
paused, the fault is written to the file that it reads before its next turn.
"""

import http.client
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Annotated, Any, Final, Protocol, Self, final

import attrs

from raftlog.base.amounts import amount
from raftlog.base.arguments import between, checked
from raftlog.base.errors import LocalMisuse, OperatingError, WrongValue
from raftlog.runtime.local.cluster import LocalCluster
from raftlog.runtime.local.ports import HOST
from raftlog.testing.room import FaultRoom, new_id
from raftlog.testing.rules import MS_MAX, TIMES_MAX, ApiFault, Fault, as_json, parse_fault
from raftlog.testing.uses import FileUses, MemoryUses, Uses, used

ANSWER_SECONDS: Final = 5.0
HANDLES_MAX: Final = 1_000
"""The largest number of handles that a cluster keeps over a whole test run. Handles of ended faults
are dropped first."""
Milliseconds = Annotated[int, between(1, MS_MAX)]
Times = Annotated[int, between(1, TIMES_MAX)]


class FaultNotUsedError(AssertionError):
    """A test required that a fault was used, or how often, and it was not."""


class Rooms(Protocol):
    """Installs and removes faults on the brokers of a cluster."""

    uses: Uses

    def install(self, node: int, told: dict[str, Any]) -> None: ...

    def remove(self, node: int, fault: str) -> None: ...


@final
@attrs.define(eq=False)
class RoomsInside:
    """The fault rooms of brokers in this process. A room stays when its broker ends."""

    uses: Uses = attrs.field(factory=MemoryUses, init=False)
    _rooms: dict[int, FaultRoom] = attrs.field(factory=dict, init=False)

    def room(self, node: int) -> FaultRoom:
        """The fault room of a node."""
        return self._rooms.setdefault(node, FaultRoom(node, self.uses))

    def install(self, node: int, told: dict[str, Any]) -> None:
        self.room(node).install(told)

    def remove(self, node: int, fault: str) -> None:
        self.room(node).remove(fault)


@final
class RoomsOfProcesses:
    """The fault rooms of broker processes. `reachable(node)` says whether a broker takes turns. If
    it does, it is asked over its admin listener, and the fault is in force when this returns.
    Otherwise its file is written."""

    def __init__(self, cluster: LocalCluster, still: set[int]) -> None:
        self.uses: Uses = FileUses(cluster.faults_path)
        self._cluster = cluster
        self._still = still

    def install(self, node: int, told: dict[str, Any]) -> None:
        if self._takes_turns(node):
            self._ask(node, "POST", "/faults", told)
        else:
            self._file(node).install(told)

    def remove(self, node: int, fault: str) -> None:
        if self._takes_turns(node):
            self._ask(node, "DELETE", f"/faults/{fault}", None)
        else:
            self._file(node).remove(fault)

    def _takes_turns(self, node: int) -> bool:
        return self._cluster.is_alive(node) and node not in self._still

    def _file(self, node: int) -> FaultRoom:
        return FaultRoom(node, folder=self._cluster.faults_path)

    def _ask(self, node: int, method: str, path: str, told: dict[str, Any] | None) -> None:
        port = self._cluster.place(node).admin_port
        connection = http.client.HTTPConnection(HOST, port, timeout=ANSWER_SECONDS)
        try:
            body = None if told is None else json.dumps(told)
            headers = {"Content-Type": "application/json"}
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            text = answer.read().decode(errors="replace").strip()
        except (OSError, http.client.HTTPException) as error:
            raise OperatingError(
                f"broker {node} does not take a fault: {error}", on=f"{HOST}:{port}"
            ) from error
        finally:
            connection.close()
        # 404 for a removal: the fault is gone already, because another caller removed it.
        if answer.status not in (200, 201, 404 if method == "DELETE" else 201):
            raise OperatingError(f"broker {node} refuses a fault: {text}", on=f"{HOST}:{port}")


@final
class FaultHandle:
    """A fault in force. `used` says how often it did something, over all brokers, even after it was
    removed. A `with` block removes it at its end and requires that it was used."""

    def __init__(self, faults: "ClusterFaults", fault: Fault, nodes: tuple[int, ...]) -> None:
        self._faults = faults
        self._fault = fault
        self.nodes = nodes
        """The brokers on which it is in force."""
        self.active = True
        self._used: int | None = None
        """The last count, after the cluster has stopped and its own counts are gone; None
        before."""

    @property
    def used(self) -> int:
        """How often the fault did something to a request, a message between brokers or a disk
        operation."""
        if self._used is not None:
            return self._used
        matches = self._faults.rooms.uses.matches(self._fault.id)
        if isinstance(self._fault, ApiFault):
            return used(matches, self._fault.nth, self._fault.times)
        return matches

    def remove(self) -> None:
        """End the fault. Nothing happens when it has ended already."""
        self._faults.remove(self)

    def end(self) -> None:
        """Keep the count, because the cluster stops."""
        self._used, self.active = self.used, False

    @checked
    def assert_used(self, times: Times | None = None) -> None:
        """Raise `FaultNotUsedError` (an AssertionError) unless the fault was used: `times` times,
        or at least once."""
        found = self.used
        if found == 0 or times not in (None, found):
            wanted = "" if times is None else f", not {times}"
            raise FaultNotUsedError(f"this fault was used {amount(found, 'time')}{wanted}: {self}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        del kind, trace
        self.remove()
        if error is None:
            self.assert_used()

    def __str__(self) -> str:
        told = as_json(self._fault)
        del told["id"]
        return json.dumps(told)

    def __repr__(self) -> str:
        return f"<fault {self} on {list(self.nodes)}, used {amount(self.used, 'time')}>"


@final
@attrs.define(eq=False)
class ClusterFaults:
    """All faults of a running cluster, in the order in which they were installed."""

    rooms: Rooms
    handles: list[FaultHandle] = attrs.field(factory=list, init=False)

    @property
    def active(self) -> bool:
        """Whether any fault is in force."""
        return any(handle.active for handle in self.handles)

    def install(self, told: Mapping[str, Any], nodes: Iterable[int]) -> FaultHandle:
        """Put a fault in force on these brokers: on all of them, or on none when one refuses."""
        given = {name: value for name, value in told.items() if value not in (None, False)}
        fault = parse_fault(given, new_id)
        handle = FaultHandle(self, fault, tuple(nodes))
        try:
            for node in handle.nodes:
                self.rooms.install(node, as_json(fault))
        except BaseException:
            with suppress(OperatingError):
                self._remove(handle)
            raise
        if len(self.handles) >= HANDLES_MAX:
            self.handles = [each for each in self.handles if each.active]
        self.handles.append(handle)
        return handle

    def remove(self, handle: FaultHandle) -> None:
        """End a fault. Nothing happens when it has ended already."""
        if handle.active:
            self._remove(handle)

    def heal(self) -> None:
        """End all faults."""
        for handle in self.handles:
            self.remove(handle)

    def end(self) -> None:
        """Keep the counts of all faults, because the cluster stops."""
        for handle in self.handles:
            handle.end()

    def take_report(self) -> str:
        """End and forget all faults. Returns a line for each fault since the last report, with how
        often it was used."""
        self.heal()
        lines = [
            f"used {amount(each.used, 'time')}, brokers {', '.join(map(str, each.nodes))}: {each}"
            for each in self.handles
        ]
        self.handles.clear()
        return "\n".join(lines)

    def _remove(self, handle: FaultHandle) -> None:
        for node in handle.nodes:
            self.rooms.remove(node, handle._fault.id)
        handle.active = False


@final
@attrs.define(eq=False)
class ApiFaults:
    """The requests that `cluster.on(...)` selected. Each method puts one fault in force on them and
    returns its handle.

    `times=1` means only the first such request, `nth=3` only the third. Both together mean `times`
    requests from the nth on. Without either, the fault acts on every request until it is removed.
    Requests are counted over all brokers.
    """

    _faults: ClusterFaults
    _which: Mapping[str, Any]
    _nodes: tuple[int, ...]

    @checked
    def drop_response(self, *, times: Times | None = None, nth: Times | None = None) -> FaultHandle:
        """Lose the answer: the broker executes the request, the connection stays open, and no
        answer comes on it any more."""
        return self._put("drop_response", times=times, nth=nth)

    @checked
    def error(
        self, error: str, *, times: Times | None = None, nth: Times | None = None
    ) -> FaultHandle:
        """Answer with a Kafka error, given by its name. The broker does not execute the request."""
        return self._put("error", error=error, times=times, nth=nth)

    @checked
    def delay(
        self, *, ms: Milliseconds, times: Times | None = None, nth: Times | None = None
    ) -> FaultHandle:
        """Delay the answer by `ms`. The broker executes the request at once."""
        return self._put("delay", ms=ms, times=times, nth=nth)

    @checked
    def disconnect(
        self, *, executed: bool = False, times: Times | None = None, nth: Times | None = None
    ) -> FaultHandle:
        """Close the connection instead of executing the request; with `executed`, after executing
        it and instead of answering."""
        return self._put("disconnect", executed=executed, times=times, nth=nth)

    def _put(self, do: str, **fields: Any) -> FaultHandle:
        return self._faults.install({"do": do, **self._which, **fields}, self._nodes)


def node_groups(nodes: list[int], named: Mapping[str, Iterable[int]]) -> list[list[int]]:
    """The groups of a partition as a fault's JSON object has them. `WrongValue` for an empty group,
    a node that does not exist, and a node in two groups."""
    seen: dict[int, str] = {}
    found: list[list[int]] = []
    for name, group in named.items():
        members = sorted(group)
        if not members:
            raise WrongValue(f"{name} must name at least one node")
        for node in members:
            if node not in nodes:
                known = ", ".join(map(str, nodes))
                raise WrongValue(f"{name} must hold nodes of {known}, not {node!r}")
            if node in seen:
                raise WrongValue(f"{name} must not hold node {node}: {seen[node]} does")
            seen[node] = name
        found.append(members)
    return found


def no_faults() -> LocalMisuse:
    """The error of a fault method on a cluster that was started without faults."""
    return LocalMisuse(
        "this cluster takes no faults", do="leave out raftlog.testing.faults=false and listeners="
    )

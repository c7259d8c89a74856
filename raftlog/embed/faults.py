"""Fault verbs of a `Cluster`: what they take, and the handle that each gives.

A verb puts one fault in force on the brokers that it concerns. Brokers of this process have a room
each, which is told directly; processes are told over their admin listener, and those that are dead
or stand still by the file that they read first.
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
"""Of a cluster that serves a whole test run; those that ended are forgotten first."""
Milliseconds = Annotated[int, between(1, MS_MAX)]
Times = Annotated[int, between(1, TIMES_MAX)]


class FaultNotUsedError(AssertionError):
    """A test demanded that a fault was used, and it was not, or not as often."""


class Rooms(Protocol):
    """How the faults of a cluster's brokers are reached."""

    uses: Uses

    def install(self, node: int, told: dict[str, Any]) -> None: ...

    def remove(self, node: int, fault: str) -> None: ...


@final
@attrs.define(eq=False)
class RoomsInside:
    """Of brokers in this process. The rooms stay when a broker ends."""

    uses: Uses = attrs.field(factory=MemoryUses, init=False)
    _rooms: dict[int, FaultRoom] = attrs.field(factory=dict, init=False)

    def room(self, node: int) -> FaultRoom:
        """The room of a node."""
        return self._rooms.setdefault(node, FaultRoom(node, self.uses))

    def install(self, node: int, told: dict[str, Any]) -> None:
        self.room(node).install(told)

    def remove(self, node: int, fault: str) -> None:
        self.room(node).remove(fault)


@final
class RoomsOfProcesses:
    """Of processes. `reachable(node)` says whether a broker takes turns: then it is asked over its
    admin listener, and the fault is in force when this returns. Else its file is written."""

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
        # A fault that is removed may be gone already: the broker was asked by somebody else.
        if answer.status not in (200, 201, 404 if method == "DELETE" else 201):
            raise OperatingError(f"broker {node} refuses a fault: {text}", on=f"{HOST}:{port}")


@final
class FaultHandle:
    """A fault in force. `used` says how often it did something, over all brokers, also when it was
    removed. In a `with` block it is removed at the end, and must have been used."""

    def __init__(self, faults: "ClusterFaults", fault: Fault, nodes: tuple[int, ...]) -> None:
        self._faults = faults
        self._fault = fault
        self.nodes = nodes
        """The brokers on which it is in force."""
        self.active = True
        self._used: int | None = None
        """Of a cluster that has stopped, whose counts are gone."""

    @property
    def used(self) -> int:
        """How often it did something: requests, messages between brokers, disk operations."""
        if self._used is not None:
            return self._used
        matches = self._faults.rooms.uses.matches(self._fault.id)
        if isinstance(self._fault, ApiFault):
            return used(matches, self._fault.nth, self._fault.times)
        return matches

    def remove(self) -> None:
        """End it; one that has ended is left alone."""
        self._faults.remove(self)

    def end(self) -> None:
        """The cluster stops: keep the count."""
        self._used, self.active = self.used, False

    @checked
    def assert_used(self, times: Times | None = None) -> None:
        """Raise `FaultNotUsedError` (an AssertionError) unless it was used: at all, or so many
        times."""
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
    """All faults of a running cluster, in the order in which they came."""

    rooms: Rooms
    handles: list[FaultHandle] = attrs.field(factory=list, init=False)

    @property
    def active(self) -> bool:
        """Whether a fault is in force."""
        return any(handle.active for handle in self.handles)

    def install(self, told: Mapping[str, Any], nodes: Iterable[int]) -> FaultHandle:
        """Put a fault in force on brokers, on all of them or on none."""
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
        """End one; nothing happens when it has ended."""
        if handle.active:
            self._remove(handle)

    def heal(self) -> None:
        """End all."""
        for handle in self.handles:
            self.remove(handle)

    def end(self) -> None:
        """The cluster stops."""
        for handle in self.handles:
            handle.end()

    def take_report(self) -> str:
        """A line for each fault since the last report, with how often it was used; all are ended
        and forgotten."""
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
    """What `cluster.on(...)` gives: the requests that are meant. Each method puts one fault in
    force on them and gives its handle.

    `times=1` means the first such request only, `nth=3` the third only, both together so many from
    the nth on, neither every one until the fault is removed. Requests are counted over all brokers.
    """

    _faults: ClusterFaults
    _which: Mapping[str, Any]
    _nodes: tuple[int, ...]

    @checked
    def drop_response(self, *, times: Times | None = None, nth: Times | None = None) -> FaultHandle:
        """The broker executes the request, and its answer is lost: the connection stays open and
        says nothing more."""
        return self._put("drop_response", times=times, nth=nth)

    @checked
    def error(
        self, error: str, *, times: Times | None = None, nth: Times | None = None
    ) -> FaultHandle:
        """The broker answers with a Kafka error, by its name, and does not execute the request."""
        return self._put("error", error=error, times=times, nth=nth)

    @checked
    def delay(
        self, *, ms: Milliseconds, times: Times | None = None, nth: Times | None = None
    ) -> FaultHandle:
        """The broker executes the request at once; its answer leaves so much later."""
        return self._put("delay", ms=ms, times=times, nth=nth)

    @checked
    def disconnect(
        self, *, executed: bool = False, times: Times | None = None, nth: Times | None = None
    ) -> FaultHandle:
        """The broker closes the connection in place of executing the request; with `executed`, in
        place of answering it."""
        return self._put("disconnect", executed=executed, times=times, nth=nth)

    def _put(self, do: str, **fields: Any) -> FaultHandle:
        return self._faults.install({"do": do, **self._which, **fields}, self._nodes)


def node_groups(nodes: list[int], named: Mapping[str, Iterable[int]]) -> list[list[int]]:
    """Groups of a partition as JSON has them, from the arguments that name them. `WrongValue` for
    an empty one, a node that does not exist, and one that stands in two."""
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
    """What a verb raises on a cluster that was started without faults."""
    return LocalMisuse(
        "this cluster takes no faults", do="leave out raftlog.testing.faults=false and listeners="
    )

"""Protocols of a node, its world and its network, for the parts of a node and of the network.

`node.Node`, `world.World` and `network.Network` implement them; the parts import none of the three.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from raftlog.base.ids import BootNumber, ConnectionId, DirectoryId, NodeId, SessionId
from raftlog.base.ports import Disk, Tracer
from raftlog.broker import events as e
from raftlog.broker.broker import Broker
from raftlog.broker.config import BrokerConfig
from raftlog_sim.base.streams import Stream
from raftlog_sim.world.boot import Boot, ConnectedClient
from raftlog_sim.world.disk import SimulatedDisk

Action = Callable[..., None]


class SimNode(Protocol):
    """A simulated machine."""

    directories: int

    @property
    def world(self) -> "SimWorld": ...

    @property
    def config(self) -> BrokerConfig: ...

    @property
    def disk(self) -> SimulatedDisk: ...

    @property
    def broken(self) -> dict[str, None]: ...

    @property
    def broker(self) -> Broker: ...

    @property
    def files(self) -> Disk: ...

    @property
    def number(self) -> NodeId: ...

    @property
    def boots(self) -> int: ...

    @property
    def release(self) -> int: ...

    @property
    def stalled(self) -> bool: ...

    @property
    def slower_ns(self) -> int: ...

    @property
    def suspended(self) -> bool: ...

    @property
    def rolled_back(self) -> bool: ...

    @property
    def boot_state(self) -> Boot | None: ...

    @property
    def up(self) -> bool: ...

    @property
    def directory(self) -> DirectoryId: ...

    @property
    def boot(self) -> BootNumber: ...

    def start(self) -> None:
        """Boot from the files on the disk."""
        ...

    def stop_process(self) -> None:
        """End the process at once."""
        ...

    def wants(self, peer: Any) -> bool:
        """Whether this node keeps a link to `peer`."""
        ...

    def deliver(self, event: e.Event) -> None:
        """Queue an event for this node's next turn."""
        ...

    def deliver_nothing(self, changed: str = "") -> None:
        """Let the node take a turn without events."""
        ...

    def arrive(self, boot: Boot, event: e.Event) -> None:
        """Let an event reach a boot; a paused connection holds it."""
        ...

    def arrive_later(self, delay_ns: int, event: e.Event) -> None:
        """Let an event reach this boot of the process after a delay."""
        ...

    def halted(self) -> None:
        """Stop after the disk stopped the machine or the process; boot again after a while."""
        ...

    def supervise(self, boot: Boot) -> None:
        """Restart a broker whose data directory is poisoned, as a supervisor does."""
        ...

    def connect(self, client: ConnectedClient) -> ConnectionId:
        """Connect a client to the first listener."""
        ...

    def disconnect(self, connection: ConnectionId) -> None:
        """Close the client's end of a connection."""
        ...


class JobChecks(Protocol):
    """Checks what the jobs of a boot make of the files."""

    def before(self, node: SimNode, job: e.Job | e.Read) -> Any:
        """Returns the state before the job, for `after`."""
        ...

    def after(self, node: SimNode, job: e.Job | e.Read, there: Any, done: e.Event) -> None:
        """Check the state after the job against the state before it."""
        ...


class SimNetwork(Protocol):
    """The links of a world, as nodes use them."""

    def look(self) -> None:
        """Begin to connect every pair that wants a link and has none."""
        ...

    def node_down(self, number: NodeId) -> None:
        """Break all links of a node that goes down."""
        ...

    def unlink(self, number: NodeId, peer: NodeId, session: SessionId) -> None:
        """Break a session because one of its ends wants that."""
        ...

    def send(self, sender: NodeId, to: NodeId, session: SessionId, messages: Sequence[Any]) -> None:
        """Send the messages of one turn on a session."""
        ...


class SimWorld(Protocol):
    """Time, randomness and the settings of a world."""

    now: int
    sync_ns: int
    turn_ns: int
    patient: bool
    split_turns: bool
    views: bool
    splits: dict[NodeId, Stream]
    tracer: Tracer
    boot_checks: JobChecks | None

    @property
    def network(self) -> SimNetwork: ...

    @property
    def nodes(self) -> Mapping[NodeId, SimNode]: ...

    def running(self) -> Iterable[SimNode]:
        """Returns the nodes that are up, by number."""
        ...

    def stream(self, name: str) -> Stream:
        """Returns a named stream of this world's randomness."""
        ...

    def after(self, delay_ns: int, action: Action, *args: Any) -> None:
        """Call `action(*args)` after a delay."""
        ...

    def at(self, instant: int, action: Action, *args: Any) -> None:
        """Call `action(*args)` at a world instant."""
        ...

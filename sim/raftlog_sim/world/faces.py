"""A node, its world and its network, as the parts of a node and of the network see them.

`node.Node`, `world.World` and `network.Network` have these faces; the parts import neither.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from raftlog.base.ids import BootNumber, ConnectionId, DirectoryId, NodeId, SessionId
from raftlog.base.ports import Disk, Tracer
from raftlog.broker import events as e
from raftlog.broker.broker import Broker
from raftlog.broker.config import BrokerConfig
from raftlog_sim.base.streams import Stream
from raftlog_sim.world.boot import Boot, Connected
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
        """Boot from what is on the disk."""
        ...

    def stop_process(self) -> None:
        """The process is gone at once."""
        ...

    def wants(self, peer: Any) -> bool:
        """Whether this node keeps a link to that one."""
        ...

    def deliver(self, event: e.Event) -> None:
        """An event for this node's next turn."""
        ...

    def deliver_nothing(self, changed: str = "") -> None:
        """A turn without events."""
        ...

    def arrive(self, boot: Boot, event: e.Event) -> None:
        """An event reaches a boot; a paused connection holds it."""
        ...

    def arrive_later(self, delay_ns: int, event: e.Event) -> None:
        """An event that reaches this boot of the process after a while."""
        ...

    def halted(self) -> None:
        """The disk stopped the machine, or the process."""
        ...

    def supervise(self, boot: Boot) -> None:
        """A supervisor sees a broker whose data directory is poisoned."""
        ...

    def connect(self, client: Connected) -> ConnectionId:
        """A client connects to the first listener."""
        ...

    def disconnect(self, connection: ConnectionId) -> None:
        """The client closes its end."""
        ...


class JobChecks(Protocol):
    """Looks at what boots make of files."""

    def before(self, node: SimNode, job: e.Job | e.Read) -> Any:
        """What is there before the job, for `after`."""
        ...

    def after(self, job: e.Job | e.Read, there: Any, done: e.Event) -> None:
        """What the job made of it."""
        ...


class SimNetwork(Protocol):
    """The links of a world, as nodes use them."""

    def look(self) -> None:
        """Dial what is wanted, hang up what is not."""
        ...

    def node_down(self, number: NodeId) -> None:
        """All links of a node break."""
        ...

    def unlink(self, number: NodeId, peer: NodeId, session: SessionId) -> None:
        """A node ends a session."""
        ...

    def send(self, sender: NodeId, to: NodeId, session: SessionId, messages: Sequence[Any]) -> None:
        """Messages of one turn."""
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
        """Nodes that are up, by number."""
        ...

    def stream(self, name: str) -> Stream:
        """A named stream of this world's randomness."""
        ...

    def after(self, delay_ns: int, action: Action, *args: Any) -> None:
        """`action(*args)` so much later."""
        ...

    def at(self, instant: int, action: Action, *args: Any) -> None:
        """`action(*args)` at a world instant."""
        ...

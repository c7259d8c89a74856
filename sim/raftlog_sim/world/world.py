"""A world: a heap of (instant, sequence, action), nodes, a network between them, and nothing else.

One step takes the earliest action. Ties go by the order of scheduling, so the same calls give the
same world. Time is integer nanoseconds from 0; no clock, thread, file or socket of the machine is
touched.
"""

from collections.abc import Callable, Sequence, Sized
from heapq import heappop, heappush
from typing import Any, Final, Protocol, final

import attrs

from raftlog.base.ids import ClusterId, NodeId, ReplicaEpoch, ReplicaId
from raftlog.base.ports import Tracer
from raftlog.base.trace import NoTracer
from raftlog.base.units import KIB, millis
from raftlog.broker.config import BrokerConfig, Listener
from raftlog.broker.events import PeerAddress
from raftlog.client.core.values import ClientOptions
from raftlog.storage.directories.data_dir import DirectoryIdentity, format_directory
from raftlog_sim.base.streams import Stream
from raftlog_sim.base.stuck import StuckError
from raftlog_sim.world.disk import SimulatedDisk
from raftlog_sim.world.driver import SimClient
from raftlog_sim.world.faces import Action, JobChecks
from raftlog_sim.world.inode import SECTOR
from raftlog_sim.world.network import HeapNetwork
from raftlog_sim.world.node import SYNC_NS, BootRecorder, Node, Observer

LISTENER: Final = "PLAINTEXT"
CLIENT_PORT: Final = 9092
PEER_PORT: Final = 9192
STEPS_AN_INSTANT_MAX: Final = 100_000
"""The most steps at one instant. More of them come from a broker that asks for turn after turn and
does nothing in them."""

Configure = Callable[[BrokerConfig], BrokerConfig]


@final
@attrs.define(eq=False)
class World:
    """A simulated cluster in virtual time. `configure` may change the configuration of a node."""

    seed: int
    tracer: Tracer = attrs.Factory(NoTracer)
    configure: Configure | None = None
    views: bool = False
    """Whether frames are views into writable memory, as in the runtime. Else they are bytes, and
    the world can be copied whole."""
    observer: Observer | None = None
    """Sees every turn of every node before its effects are performed."""
    boot_checks: JobChecks | None = None
    """Checks what boots make of the files; None when the run does not check that."""
    recordings: BootRecorder | None = None
    """Records every boot of every broker; None when the run is not recorded."""
    sync_ns: int = SYNC_NS
    """How long a sync takes on every disk, in nanoseconds."""
    patient: bool = False
    """Whether turns are delayed and collected as by the driver of a real process (`turns`)."""
    split_turns: bool = False
    """Whether a turn takes a drawn number of the waiting events (`turns`)."""
    splits: dict[NodeId, Stream] = attrs.Factory(dict)
    """The draws that split each node's turns."""
    turn_ns: int = 0
    """How long a turn takes every node; events that arrive meanwhile wait for its next turn."""
    store_bytes: int = 64 * KIB
    """The size of store files, in bytes. Small files are soon full, and quick to read."""
    tear_bytes: int = SECTOR
    """The unit, in bytes, in which a power failure keeps or drops pending bytes."""
    directories: int = 0
    """How many further log directories every node has."""
    release: int = 0
    """The release (an index into `releases.RELEASES`) with which all nodes begin."""
    now: int = 0
    steps: int = 0
    nodes: dict[NodeId, Node] = attrs.Factory(dict)
    network: HeapNetwork = attrs.field(init=False)
    _heap: list[tuple[int, int, Action, tuple[Any, ...]]] = attrs.Factory(list)
    _scheduled: int = 0
    _moved_at: int = 0
    """The number of the step at which time last moved."""

    def __attrs_post_init__(self) -> None:
        self.network = HeapNetwork(self)

    def stream(self, name: str) -> Stream:
        """Returns a named stream of this world's randomness."""
        return Stream(self.seed, name)

    # --- time ---

    def after(self, delay_ns: int, action: Action, *args: Any) -> None:
        """Call `action(*args)` after a delay, behind all that was scheduled for that instant."""
        assert delay_ns >= 0, delay_ns
        self._scheduled += 1
        heappush(self._heap, (self.now + delay_ns, self._scheduled, action, args))

    def at(self, instant: int, action: Action, *args: Any) -> None:
        """Call `action(*args)` at a world instant, or now when that has passed."""
        self._scheduled += 1
        heappush(
            self._heap,
            (instant if instant > self.now else self.now, self._scheduled, action, args),
        )

    def next_at(self) -> int | None:
        """Returns the instant of the earliest action; None when none is left."""
        return self._heap[0][0] if self._heap else None

    def step(self) -> None:
        """Perform the earliest action. Raises StuckError when none is left or time stands still."""
        if not self._heap:
            raise StuckError(f"nothing is left to happen at {self.now}")
        instant, _, action, args = heappop(self._heap)
        assert instant >= self.now, (instant, self.now)
        self.steps += 1
        if instant > self.now:
            self.now, self._moved_at = instant, self.steps
        elif self.steps - self._moved_at > STEPS_AN_INSTANT_MAX:
            raise StuckError(f"{STEPS_AN_INSTANT_MAX} steps at {instant}, and no end")
        action(*args)

    def run_for(self, duration_ns: int) -> None:
        """Perform all actions that are due within that time, and set the clock to its end."""
        end = self.now + duration_ns
        while self._heap and self._heap[0][0] <= end:
            self.step()
        self.now = end

    def run_until(self, reached: Callable[[], bool], limit_ns: int, what: str = "") -> int:
        """Step until `reached()` and return how long that took. StuckError after `limit_ns`."""
        begin, end = self.now, self.now + limit_ns
        while not reached():
            if not self._heap or self._heap[0][0] > end:
                raise StuckError(f"not reached within {limit_ns / 1e9} s: {what or reached}")
            self.step()
        return self.now - begin

    # --- nodes ---

    def found(self, brokers: int, controllers: int = 1) -> None:
        """Format `brokers` nodes, the first `controllers` of them as founders, and start them."""
        addresses = controller_addresses(controllers)
        for identity in identities_of(self, brokers, controllers):
            disk = self.new_disk(identity.node)
            self.format(disk, identity)
            self.add(identity.node, disk, addresses)

    def format(self, disk: SimulatedDisk, identity: DirectoryIdentity) -> None:
        """Give an empty disk its identity, with a store as small as this world's are."""
        format_directory(disk, identity, store_bytes=self.store_bytes)

    def new_disk(self, node: NodeId) -> SimulatedDisk:
        """An empty disk for a node."""
        return SimulatedDisk(self.stream(f"disk/{node}/{self._scheduled}"), self.tear_bytes)

    def new_directory(self, node: NodeId) -> Any:
        """A fresh directory id."""
        name = f"directory/{node}/{self._scheduled}"
        return int.from_bytes(self.stream(name).bytes(8), "big") | 1

    def add(self, number: NodeId, disk: SimulatedDisk, controllers: Sequence[PeerAddress]) -> Node:
        """Add a node with a formatted disk to the world, and boot it."""
        config = config_of(self, number, controllers)
        node = Node(self, config, disk, installed=self.release, directories=self.directories)
        self.nodes[number] = node
        node.start()
        return node

    def running(self) -> list[Node]:
        """Returns the nodes that are up, by number."""
        return [self.nodes[number] for number in sorted(self.nodes) if self.nodes[number].up]

    def client(self, name: str, options: ClientOptions) -> SimClient:
        """A client of the product."""
        return SimClient(self, name, options)

    def flood(self, number: NodeId, count: int, deaf_ns: int) -> None:
        """Do nothing: this world hands over whole requests, and no buffer can be full."""

    def lie(self, number: NodeId, peer: NodeId, what: str, lasts_ns: int) -> bool:
        """Do nothing: this world has no handshakes."""
        del number, peer, what, lasts_ns
        return False


class Founding(Protocol):
    """The part of a world that founding a cluster needs."""

    configure: Configure | None

    @property
    def nodes(self) -> Sized: ...

    def stream(self, name: str) -> Stream: ...

    def new_directory(self, node: NodeId) -> Any: ...


def identities_of(world: Founding, brokers: int, controllers: int) -> list[DirectoryIdentity]:
    """Returns the identities of a new cluster's nodes; the first `controllers` are founders."""
    cluster = ClusterId(world.stream("cluster").bytes(16))
    nodes = [NodeId(number) for number in range(1, brokers + 1)]
    directories = {node: world.new_directory(node) for node in nodes}
    founders = tuple(
        ReplicaId(node, directories[node], ReplicaEpoch(0)) for node in nodes[:controllers]
    )
    return [
        DirectoryIdentity(
            cluster=cluster,
            node=node,
            directory=directories[node],
            controllers=founders if node <= controllers else (),
        )
        for node in nodes
    ]


def controller_addresses(controllers: int) -> tuple[PeerAddress, ...]:
    """Returns the addresses of the first `controllers` nodes."""
    return tuple(_peer_address(NodeId(number)) for number in range(1, controllers + 1))


def config_of(world: Founding, number: NodeId, controllers: Sequence[PeerAddress]) -> BrokerConfig:
    """Returns the configuration of the next node of a world."""
    config = BrokerConfig(
        node=number,
        peer=_peer_address(number),
        controllers=tuple(controllers),
        listeners=(Listener(name=LISTENER, host=f"n{number}", port=CLIENT_PORT),),
        replication_default=min(3, max(len(world.nodes) + 1, 1)),
    ).fast()
    return config if world.configure is None else world.configure(config)


def _peer_address(node: NodeId) -> PeerAddress:
    return PeerAddress(node, f"n{node}", PEER_PORT)


def seconds(count: float) -> int:
    """Converts seconds to nanoseconds, for tests."""
    return int(millis(1) * 1000 * count)

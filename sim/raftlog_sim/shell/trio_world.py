"""Trio mode: the real runtime and the product's trio client in a virtual world.

    node.Node            TrioNode: each boot is one `serve_on`, in a task that can be cancelled
    driver.SimClient     TrioClient: the product's own trio client
    network.Network      trio_network.Hub: byte streams instead of messages
    world.World          trio_run.TrioWorld: time is the clock's, and a task performs what is due

Each on the right has the face of the one on the left, so that workload, nemesis, invariants and
phases are the same for both. Only here run driver, listener, peer links with handshakes, senders,
receivers and slabs, the log writer, the client's driver. There is no thread, no socket, no file.
This is the only file of the simulator that imports the runtime and the client's driver.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, cast, final

import attrs
import trio

from raftlog.base.errors import CorruptData, DiskError, RaftlogError
from raftlog.base.ids import NodeId
from raftlog.base.units import MIB, Instant, WallMillis
from raftlog.broker.broker import Broker
from raftlog.broker.config import BrokerConfig
from raftlog.broker.events import AdminCall, Effects, Event, PeerMessages, WriteFailed
from raftlog.client import system
from raftlog.client.core.calls import Call, Produce
from raftlog.client.core.values import ClientOptions
from raftlog.client.trio_driver import Client
from raftlog.runtime.driver import Driver
from raftlog.runtime.machine import Machine
from raftlog.runtime.network.listener import AcceptedConnections
from raftlog.runtime.network.peer_links import PeerLinks
from raftlog.runtime.server import Control, Started, serve_on
from raftlog.runtime.settings.config_file import Address, ServerConfig
from raftlog.storage.write_round import SYNCFS_FROM
from raftlog_sim.base.streams import Stream
from raftlog_sim.base.violation import Violation
from raftlog_sim.shell.trio_flood import BackPressure
from raftlog_sim.shell.trio_machine import (
    BootDisk,
    SimDescriptors,
    SimWorkers,
    Spending,
    first_of,
)
from raftlog_sim.shell.trio_network import CLIENTS, ProcessNetwork
from raftlog_sim.shell.trio_surroundings import SECRET, Surroundings
from raftlog_sim.world.clock import WALL_START_MS, MachineClock, NodeClock
from raftlog_sim.world.disk import Keep, SimulatedDisk
from raftlog_sim.world.disk_work import RESTART_NS
from raftlog_sim.world.releases import RELEASES
from raftlog_sim.world.world import PEER_PORT

CONNECTIONS_MAX: Final = 64
DATA_DIR: Final = "/no/such/place"
"""A path that does not exist, so that code that takes it for a real one finds nothing."""
_ENDS: Final = ("finish", "reset", "silent")


@final
@attrs.define(eq=False)
class TrioBoot:
    """One life of a broker process. `attached` once its broker is made, `over` when it is gone:
    nothing that its tasks do while they unwind has any effect then."""

    node: "TrioNode"
    clock: NodeClock
    network: ProcessNetwork
    files: SimDescriptors
    scope: trio.CancelScope = attrs.Factory(trio.CancelScope)
    spending: Spending = attrs.field(init=False)
    workers: SimWorkers = attrs.field(init=False)
    driver: Driver | None = None
    listened: bool = False
    stopped_in_a_call: bool = False
    over: bool = False

    def __attrs_post_init__(self) -> None:
        world = self.node.world
        self.spending = Spending(world.clock, world.sync_ns)
        stream = world.stream(f"node/{self.node.number}/workers/{self.node.boots}")
        self.workers = SimWorkers(world.start, self.spending, stream, self.node.disk_works)

    @property
    def broker(self) -> Broker:
        assert self.driver is not None, "not attached"
        watched = self.driver.broker
        assert isinstance(watched, _WatchedBroker), watched
        return watched.broker

    @property
    def clients(self) -> Sequence[object]:
        """The connections of clients."""
        return self.node.world.network.between(CLIENTS, self.node.number)

    def stopped(self) -> None:
        """Note that the disk stopped the machine in the middle of a call; that call never
        returns."""
        if not self.workers.cutting:
            self.stopped_in_a_call = True
            self.node.stopped_by_disk(self)

    # --- the runtime's Clock ---

    def now(self) -> Instant:
        """Returns the time that the process reads, in the middle of a call to the disk too."""
        return self.clock.now(self.node.world.now + self.spending.spent_ns)

    def wall(self) -> WallMillis:
        return self.clock.wall(self.node.world.now)

    def end(self, how: str) -> None:
        """The process is gone, between two instants."""
        self.workers.cut_short(self.node.disk)
        self.over = True
        if self.driver is not None:
            self.driver.pause()  # tasks that unwind post events, and a dead process takes no turn
        self.network.end(how)
        self.workers.end()
        self.scope.cancel()


@final
class _WatchedBroker:
    """The broker as the driver has it: every turn is looked at before its effects are
    performed."""

    def __init__(self, node: "TrioNode", broker: Broker) -> None:
        self.node = node
        self.broker = broker
        self.pressure = BackPressure()

    def handle(self, events: list[Event], now_ns: Instant, wall_ms: int) -> Effects:
        node, world = self.node, self.node.world
        if not node.up:
            return Effects()  # killed between its start and its first turn (seed 5300090)
        node.turns += 1
        node.events += len(events)
        world.network.frames_read += sum(type(event) is PeerMessages for event in events)
        try:
            effects = self.broker.handle(events, now_ns, WallMillis(wall_ms))
            if world.observer is not None:
                world.observer.after_turn(cast("Any", node), events, effects)
            self.pressure.after_turn(events, effects, world.invariants)
        except BaseException as error:
            world.fail(error)
            raise
        world.clock.advance(world.turn_ns)
        if any(type(event) is WriteFailed and event.groups is None for event in events):
            world.after(RESTART_NS, node.supervise, node.boots)
        return effects


@final
class TrioNode:
    """A machine; the face of `node.Node`."""

    def __init__(
        self, world: Surroundings, config: BrokerConfig, disk: SimulatedDisk, installed: int
    ) -> None:
        self.world = world
        self.config = config
        self.disk = disk
        self.installed = self.release = self.highest = installed
        self.keep_at_crash = Keep.SOME
        self.only_killed = False
        self.store_rotten = False
        self.rolled_back = False
        self.replace_disk: Callable[[TrioNode], None] | None = None
        self.boots = self.directories = 0
        self.turns = 0
        self.events = 0
        self.machine = MachineClock()
        self.leaves = self.suspended = False
        self.late_turn_ns = 0
        self.looked_up: Any = None
        self._boot: TrioBoot | None = None
        self._slower_ns = 0
        self._stalled = False
        self._goes_on = trio.Event()

    @property
    def number(self) -> NodeId:
        return self.config.node

    @property
    def boot_state(self) -> TrioBoot | None:
        """The present boot, once it has a broker."""
        boot = self._boot
        return None if boot is None or boot.over or boot.driver is None else boot

    @property
    def up(self) -> bool:
        return self.boot_state is not None

    @property
    def live(self) -> TrioBoot:
        """The present boot of a node that is up."""
        boot = self.boot_state
        assert boot is not None, f"node {self.number} is down"
        return boot

    @property
    def broker(self) -> Broker:
        return self.live.broker

    # --- the disk's pace ---

    @property
    def slower_ns(self) -> int:
        """How much longer everything on the disk takes."""
        return self._slower_ns

    @slower_ns.setter
    def slower_ns(self, value: int) -> None:
        self._slower_ns = value
        self._pace()

    @property
    def stalled(self) -> bool:
        """The disk answers nothing until it goes on."""
        return self._stalled

    @stalled.setter
    def stalled(self, value: bool) -> None:
        self._stalled = value
        self._pace()

    def _pace(self) -> None:
        """A disk that is slow or stalled is left to the workers: the loop is shared by all brokers
        of this world, and none may be held up for so long by another's disk."""
        boot = self._boot
        if boot is not None:
            boot.spending.slower_ns = self._slower_ns
            for threads in () if boot.driver is None else boot.driver.directories.values():
                threads.inline = not (self._stalled or self._slower_ns)
        if not (self._stalled or self.suspended):
            self._goes_on.set()
            self._goes_on = trio.Event()

    async def disk_works(self) -> None:
        """Wait while nothing is done here."""
        while self._stalled or self.suspended:
            await self._goes_on.wait()

    # --- life ---

    def start(self) -> None:
        """Boot from what is on the disk, soon; nothing while a boot is under way."""
        assert not self.up, self.number
        if self._boot is not None and not self._boot.over:
            return
        self.boots += 1
        self.release = self.installed
        self.highest = max(self.highest, self.release)
        self.config = attrs.evolve(self.config, release=RELEASES[self.release])
        stream = self.world.stream(f"node/{self.number}/boot/{self.boots}")
        clock = NodeClock.drawn(stream.fork("clock"), self.machine)
        files = SimDescriptors(self.disk)
        network = ProcessNetwork(self.world.network, self.number, files.read)
        boot = self._boot = TrioBoot(self, clock, network, files)
        self.world.network.power_on(self.number)
        self.world.start(partial(self._live, boot, stream), f"n{self.number} boot {self.boots}")

    async def _live(self, boot: TrioBoot, stream: Stream) -> None:
        disk = BootDisk(self.disk, boot)
        machine = Machine(
            clock=boot,
            entropy=stream.fork("process"),
            disk=disk,
            descriptors=boot.files,
            syncfs_from=SYNCFS_FROM,
            network=boot.network,
            workers=boot.workers,
            process=self.number,
        )
        control = Control(attached=partial(self._attached, boot))
        error: BaseException | None = None
        try:
            with boot.scope:
                config = server_config(self.config, self.world.idle_ms)
                started = partial(self._listening, boot)
                await serve_on(machine, config, self.world.tracer, started, control=control)
        except trio.Cancelled:
            self._ended(boot, None)
            raise
        except BaseException as raised:
            error = first_of(raised)
        self._ended(boot, error)

    def _attached(self, boot: TrioBoot, driver: Driver) -> None:
        assert isinstance(driver.broker, Broker), driver.broker
        driver.broker = _WatchedBroker(self, driver.broker)
        boot.driver = driver
        boot.spending.begun = True
        self._pace()

    def _listening(self, boot: TrioBoot, started: Started) -> None:
        """Unfinished frames of clients may take little memory."""
        del started
        boot.listened = True
        assert boot.driver is not None, "attached before it listens"
        connections = boot.driver.connections
        assert isinstance(connections, AcceptedConnections), connections
        connections.intake.bytes_max = self.world.intake_bytes

    def _ended(self, boot: TrioBoot, error: BaseException | None) -> None:
        """The process has ended by itself, or has unwound after it was killed."""
        error = error or self._left_behind(boot)
        if self.world.frozen:
            if error is not None:
                self.world.fail(error)
            return
        attached = boot.driver is not None
        if not boot.over:
            boot.end("finish")
            self.suspended = False  # it may have been paused in its last instant (seed 6305504)
            if attached and error is None:
                self.leaves = False
                return
        if error is None:
            return
        if attached or not isinstance(error, CorruptData | DiskError):
            self.world.fail(error)
            return
        if isinstance(error, CorruptData):
            if not self.store_rotten or self.replace_disk is None:
                self.world.fail(error)
                return
            self.replace_disk(self)
        self.world.after(RESTART_NS, self._start_again, self.boots)

    def _left_behind(self, boot: TrioBoot) -> Violation | None:
        """A process that has ended holds nothing any more: every task has cleaned up."""
        driver = boot.driver
        if driver is None or not boot.listened or boot.stopped_in_a_call:
            return None
        connections, peers = driver.connections, driver.peers
        assert isinstance(connections, AcceptedConnections), connections
        assert isinstance(peers, PeerLinks), peers
        left = {
            "connections": len(connections._open),
            "bytes of unfinished frames": connections.intake.held,
            "receivers with a share of memory": connections.intake.receivers,
            "links": len(peers._links),
            "open files": boot.files.count,
        }
        if self.world.invariants is not None:
            self.world.invariants.checked["nothing-left"] += 1
        held = ", ".join(f"{count} {what}" for what, count in left.items() if count)
        return Violation("nothing-left", f"node {self.number} ended with {held}") if held else None

    def _start_again(self, boots: int) -> None:
        if not self.up and self.boots == boots:
            self.start()

    def stopped_by_disk(self, boot: TrioBoot) -> None:
        """The disk stopped the machine, or the process; it boots again after a while."""
        if not boot.over:
            self._end(boot)
            if self.only_killed:
                self.disk.crash_at = None
            else:
                self.disk.crash(self.keep_at_crash)
            self.world.after(RESTART_NS, self._start_again, self.boots)

    def supervise(self, boots: int) -> None:
        """Restart a broker whose data directory is poisoned, as a supervisor does."""
        if self.up and self.boots == boots:
            self.stop_process()
            self.start()

    def crash(self, keep: Keep = Keep.NONE) -> None:
        """Power loss: the process is gone, and of what was not synced the disk keeps what `keep`
        says."""
        self.stop_process()
        self.disk.crash(keep)

    def stop_process(self) -> None:
        """The process is gone at once. Its peers are told, or hear nothing until it is back."""
        self._end(self.live)

    def _end(self, boot: TrioBoot) -> None:
        self.suspended = self.leaves = False
        ends = self.world.stream(f"node/{self.number}/end/{self.boots}")
        boot.end(_ENDS[ends.below(len(_ENDS))])
        self._pace()

    def suspend(self) -> None:
        """Stand still while time runs on; what arrives waits in the buffers of the streams."""
        self.suspended = True
        driver = self.live.driver
        assert driver is not None, self.number
        driver.pause()

    def freeze(self) -> None:
        """Do nothing more, and stay as it is."""
        boot = self._boot
        if boot is not None:
            boot.workers.end()
            if boot.driver is not None:
                boot.driver.pause()

    def resume(self) -> None:
        """Go on, with everything that arrived meanwhile."""
        self.suspended = False
        driver = self.live.driver
        assert driver is not None, self.number
        driver.resume()
        self._pace()

    # --- by hand ---

    def deliver(self, event: Event) -> None:
        """An event for this node's next turn."""
        driver = self.live.driver
        assert driver is not None, self.number
        driver.queue(event)

    def deliver_nothing(self, _: str = "") -> None:
        """Take a turn after a change by hand, without waiting for it."""
        self.deliver(AdminCall(0, "livez", ()))

    def lose_clients(self) -> None:
        """Every connection of a client breaks, at both ends."""
        self.world.network.reset(CLIENTS, self.number)


@final
class TrioClient:
    """The product's trio client, with the face of `driver.SimClient`."""

    def __init__(self, world: Surroundings, name: str, options: ClientOptions) -> None:
        self._world = world
        self._name = name
        self._open = trio.Event()
        machine = system.DriverPorts(
            entropy=world.stream(f"client/{name}"),
            wall_ms=lambda: WallMillis(WALL_START_MS),
            connect=world.connect_client,
        )
        self._client = Client(options=options, machine=machine)
        world.start(self._live, name)

    def call(self, request: Call, then: Callable[[Any], None]) -> None:
        """Begin a call of the core; `then` hears its result."""
        self._world.start(partial(self._ask, request, then), f"{self._name} asks")

    async def opened(self) -> Client:
        """The client itself, once it is open."""
        await self._open.wait()
        return self._client

    async def _live(self) -> None:
        async with self._client:
            self._open.set()
            await trio.sleep_forever()

    async def _ask(self, request: Call, then: Callable[[Any], None]) -> None:
        value: object
        try:
            value = await self._asked(await self.opened(), request)
        except RaftlogError as error:
            value = error
        then(value)

    async def _asked(self, client: Client, request: Call) -> object:
        """Records go as those of users do, who do not know the core."""
        if type(request) is not Produce:
            return await client.ask(request)
        return await client.produce(
            request.topic,
            request.value,
            key=request.key,
            headers=request.headers,
            partition=request.partition,
            timestamp_ms=request.timestamp_ms,
        )


def server_config(config: BrokerConfig, idle_ms: int) -> ServerConfig:
    """Returns the configuration that `serve` would get on this machine."""
    host = f"n{config.node}"
    return ServerConfig(
        broker=config,
        data_dir=DATA_DIR,
        bind=config.listeners,
        peer_bind=Address(host, PEER_PORT),
        admin_bind=None,
        secrets=(SECRET,),
        frame_bytes_max=MIB,
        connections_max=CONNECTIONS_MAX,
        connections_idle_ms=idle_ms,
    )

"""A simulated machine: one Broker, its disk, and the effects of its turns in virtual time.

Events that arrive at one instant share one turn. The disk performs write rounds one after another,
and jobs one after another beside them, as the runtime's threads do (`disk_work`). A crash ends the
boot: work that was under way for it stays as far as it went, and its result reaches no broker.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, final

import attrs

from raftlog.base.errors import CorruptData, DiskError
from raftlog.base.ids import BootNumber, ConnectionId, DirectoryId, NodeId
from raftlog.base.ports import Disk, Entropy
from raftlog.base.units import NANOS_PER_MICRO, Instant
from raftlog.broker import events as e
from raftlog.broker.broker import Broker
from raftlog.broker.config import BrokerConfig
from raftlog.broker.incident.recorder import Recorder
from raftlog.broker.turn_queue import perform
from raftlog.storage.directories.data_dir import (
    DirectoryIdentity,
    DirectoryImage,
    draw_incarnation,
    open_directory,
)
from raftlog.storage.directories.log_directories import FurtherImage
from raftlog.storage.directories.store_file import StoreReader
from raftlog.storage.directories.store_records import StoreState
from raftlog.storage.write_round import DirectoryWriter
from raftlog_sim.world import disk_work, turns
from raftlog_sim.world.arrivals import queue_of
from raftlog_sim.world.boot import Boot, BootTurn, ConnectedClient
from raftlog_sim.world.clock import MachineClock, NodeClock
from raftlog_sim.world.disk import Keep, SimulatedCrashError, SimulatedDisk
from raftlog_sim.world.disk_work import RESTART_NS
from raftlog_sim.world.faces import SimWorld
from raftlog_sim.world.hands import SimHands
from raftlog_sim.world.more_disks import OpenedDisks, look_after, open_disks
from raftlog_sim.world.network import HeapNetwork
from raftlog_sim.world.releases import RELEASES

SYNC_NS: Final = 150 * NANOS_PER_MICRO


class Observer(Protocol):
    """Looks on: invariants, digests, traces."""

    def after_turn(self, node: "Node", events: Sequence[e.Event], effects: e.Effects) -> None: ...


class BootRecorder(Protocol):
    """Records every boot of every broker."""

    def of_boot(
        self,
        node: "Node",
        image: DirectoryImage,
        further: Sequence[FurtherImage],
        entropy: Entropy,
        now: Instant,
    ) -> Recorder:
        """The broker of a boot, made and recorded."""
        ...


class NodeWorld(SimWorld, Protocol):
    """The world of a node, with all that hears of its boots and turns."""

    observer: Observer | None
    recordings: BootRecorder | None

    @property
    def network(self) -> HeapNetwork: ...

    @property
    def nodes(self) -> "Mapping[NodeId, Node]": ...

    def running(self) -> "list[Node]":
        """Nodes that are up, by number."""
        ...

    def new_disk(self, node: NodeId) -> SimulatedDisk:
        """An empty disk for a node."""
        ...

    def new_directory(self, node: NodeId) -> Any:
        """A fresh directory id."""
        ...

    def format(self, disk: SimulatedDisk, identity: DirectoryIdentity) -> None:
        """Give an empty disk its identity."""
        ...


@final
@attrs.define(eq=False)
class Node:
    """A simulated machine: its broker, its disk, its clocks, and its faults."""

    world: NodeWorld
    config: BrokerConfig
    disk: SimulatedDisk
    directories: int = 0
    """How many further log directories it has (`more_disks`)."""
    broken: dict[str, None] = attrs.Factory(dict)
    """The roots of the further directories that cannot be written, or read, now."""
    files: Disk = attrs.field(init=False)
    """All disks of the present or last boot, as one."""
    keep_at_crash: Keep = Keep.SOME
    """The pending writes that the disk keeps when it stops the machine in the middle of a call."""
    only_killed: bool = False
    """Whether the disk stops the process alone (kill -9), and the machine lives on."""
    store_rotten: bool = False
    """Whether the nemesis damaged a store file. If a boot cannot read it, the disk is replaced."""
    rolled_back: bool = False
    """Whether the disk is an older copy. The node may not take part until the disk is replaced."""
    replace_disk: "Callable[[Node], None] | None" = None
    installed: int = 0
    """The release (`releases`) that the next boot runs."""
    release: int = 0
    """The release of the present or last boot."""
    highest: int = 0
    """The newest release that ever ran here."""
    boot_state: Boot | None = None
    boots: int = 0
    turns: int = 0
    events: int = 0
    machine: MachineClock = attrs.Factory(MachineClock)
    leaves: bool = False
    """Whether the process ends when the broker says that it has stopped."""
    late_turn_ns: int = 0
    """How much later the broker serves a turn than the process read its clock for it."""
    slower_ns: int = 0
    """How much longer every operation of the disk takes."""
    stalled: bool = False
    """Whether the disk stands still and completes no operation."""
    suspended: bool = False
    """Whether the process stands still (SIGSTOP); arriving events wait."""
    looked_up: tuple[SimulatedDisk, int, StoreReader, StoreState | None] | None = None
    """A cache of the invariants: the durable store as read at this disk and mutation count."""
    _last_connection: int = 0

    @property
    def number(self) -> NodeId:
        return self.config.node

    @property
    def up(self) -> bool:
        return self.boot_state is not None

    @property
    def live(self) -> Boot:
        """The present boot of a node that is up."""
        assert self.boot_state is not None, f"node {self.number} is down"
        return self.boot_state

    @property
    def broker(self) -> Broker:
        boot = self.boot_state
        assert boot is not None, f"node {self.number} is down"
        return boot.broker

    @property
    def directory(self) -> DirectoryId:
        return self.broker.context.directory

    @property
    def boot(self) -> BootNumber:
        return self.broker.context.boot

    # --- life ---

    def start(self) -> None:
        """Boot from what is on the disk."""
        assert not self.up, self.number
        self.boots += 1
        self._take_release()
        stream = self.world.stream(f"node/{self.number}/boot/{self.boots}")
        clock = NodeClock.drawn(stream.fork("clock"), self.machine)
        opened = self._open_directory()
        if opened is None:
            return
        image, writer, disks = opened
        now, entropy = clock.now(self.world.now), stream.fork("broker")
        recorder = None
        if self.world.recordings is not None:
            recorder = self.world.recordings.of_boot(self, image, disks.images, entropy, now)
            broker = recorder.broker
        else:
            broker = Broker(
                config=self.config,
                directories=[image],
                further=disks.images,
                entropy=entropy,
                tracer=self.world.tracer,
                now=now,
            )
        queue = queue_of(patient=self.world.patient)
        self.boot_state = Boot(broker, writer, clock, queue, recorder)
        self._turn_soon(self.live)
        self.world.network.look()

    def _take_release(self) -> None:
        self.release = self.installed
        self.highest = max(self.highest, self.release)
        if self.config.release is not RELEASES[self.release]:
            self.config = attrs.evolve(self.config, release=RELEASES[self.release])

    def _open_directory(self) -> tuple[DirectoryImage, DirectoryWriter, OpenedDisks] | None:
        """Open the directories for a boot; None when the machine or its disk failed meanwhile.

        Then the node boots again after RESTART_NS.
        """
        try:
            stream = self.world.stream(f"node/{self.number}/incarnation/{self.boots}")
            image = open_directory(self.disk, self.config.lease_ns, draw_incarnation(stream))
            disks = open_disks(self, image)
            self.files = disks.files
            return image, DirectoryWriter(disks.files, further=disks.further), disks
        except SimulatedCrashError:
            self._disk_stops()
        except CorruptData:
            if not self.store_rotten or self.replace_disk is None:
                raise
            self.replace_disk(self)
        except DiskError:
            pass
        self.world.after(RESTART_NS, self._start_again, self.boots)
        return None

    def _start_again(self, boots: int) -> None:
        if not self.up and self.boots == boots:
            self.start()

    def halted(self) -> None:
        """The disk stopped the machine, or the process; it boots again after a while."""
        self.stop_process()
        self._disk_stops()
        self.world.after(RESTART_NS, self._start_again, self.boots)

    def _disk_stops(self) -> None:
        if self.only_killed:
            self.disk.crash_at = None
        else:
            self.disk.crash(self.keep_at_crash)

    def crash(self, keep: Keep = Keep.NONE) -> None:
        """Lose power: the disk keeps the part of its pending writes that `keep` says."""
        self.stop_process()
        self.disk.crash(keep)

    def stop_process(self) -> None:
        """End the process at once (kill -9); the machine and the written bytes live on."""
        boot = self.live
        disk_work.cut_job_short(self, boot)
        self.boot_state = None
        self.suspended = self.leaves = False
        self.world.network.node_down(self.number)
        for client in list(boot.clients.values()):
            client.lost()

    def wants(self, peer: "Node") -> bool:
        """Whether this node keeps a link to `peer`, at the peer's address or at a route to it (a
        proxy)."""
        true = (peer.config.peer, self.config.route_to(peer.config.peer))
        return any(address in true for address in self.live.peers)

    # --- turns ---

    def deliver(self, event: e.Event) -> None:
        """Queue an event for this node's next turn."""
        boot = self.live
        if turns.wants_turn(boot, event):
            self._turn_soon(boot)

    def deliver_nothing(self, changed: str = "") -> None:
        """Let the node take a turn without events.

        `changed` says how the nemesis changed the broker by hand. A recording ends there, since no
        event tells a replay of the change.
        """
        if changed and self.live.recorder is not None:
            self.live.recorder.end(f"the nemesis changed the broker by hand: {changed}")
        self._turn_soon(self.live)

    def arrive_later(self, delay_ns: int, event: e.Event) -> None:
        """Let an event reach this boot of the process after a delay; lost if the boot is over."""
        self.world.after(delay_ns, self.arrive, self.live, event)

    def arrive(self, boot: Boot, event: e.Event) -> None:
        """Let an event reach a boot of the process; lost if the boot is over. Requests of a paused
        connection wait in its socket."""
        if self.boot_state is not boot:
            return
        if isinstance(event, e.Request) and event.connection in boot.paused:
            boot.held.append(event)
        else:
            self.deliver(event)

    def _turn_soon(self, boot: Boot) -> None:
        if not boot.turn_due:
            boot.turn_due = True
            self.world.at(boot.busy_until, self._turn, boot)

    def _wake(self, boot: Boot, instant: int) -> None:
        if self.boot_state is not boot or boot.alarm != instant:
            return
        boot.alarm, wanted = None, boot.wake_at
        if wanted is None:
            return
        if wanted <= self.world.now:
            boot.wake_at = None
            self._turn_soon(boot)
        else:
            boot.alarm = wanted
            self.world.at(wanted, self._wake, boot, wanted)

    def _turn(self, boot: Boot) -> None:
        if self.boot_state is not boot:
            return
        boot.turn_due = False
        if self.suspended:
            return
        if boot.inline is not None:  # the loop waits for the disk
            boot.turn_refused = True
            return
        if boot.begun is not None:  # it is served first
            self._turn_soon(boot)
            return
        world, clock, late_ns = self.world, boot.clock, self.late_turn_ns
        boot.busy_until = world.now + late_ns + world.turn_ns
        events = turns.taken(self, boot)
        turn = BootTurn(events, clock.now(world.now), clock.wall(world.now))
        if late_ns:
            boot.begun = turn
            world.after(late_ns, self._serve_late, boot, turn)
        if boot.inbox.wants_turn:
            self._turn_soon(boot)
        if not late_ns:
            self._serve(boot, turn)

    def _serve(self, boot: Boot, turn: BootTurn) -> None:
        self.turns += 1
        self.events += len(turn.events)
        driven = boot.recorder or boot.broker
        effects = driven.handle(turn.events, turn.now, turn.wall)
        if self.world.observer is not None:
            self.world.observer.after_turn(self, turn.events, effects)
        self._perform(boot, effects)

    def _serve_late(self, boot: Boot, turn: BootTurn) -> None:
        """Serve a turn whose clock was read earlier, unless the process stands still now."""
        if self.boot_state is boot and boot.begun is turn and not self.suspended:
            boot.begun = None
            self._serve(boot, turn)

    def suspend(self) -> None:
        """Stand still while time runs on."""
        self.suspended = True

    def resume(self) -> None:
        """Go on, with everything that arrived meanwhile."""
        self.suspended, boot = False, self.live
        if boot.begun is not None:
            self.world.at(boot.busy_until, self._serve_late, boot, boot.begun)
        self._turn_soon(boot)

    # --- effects ---

    def _perform(self, boot: Boot, effects: e.Effects) -> None:
        boot.inbox.acks_may_wait = effects.acks_may_wait
        perform(effects, SimHands(self, boot))
        if boot.stopped and self.leaves:
            self.world.after(0, self._leave, boot)
        self._set_alarm(boot, effects)
        if self.directories:
            look_after(self, boot)

    def _leave(self, boot: Boot) -> None:
        if self.boot_state is boot:
            self.stop_process()

    def _set_alarm(self, boot: Boot, effects: e.Effects) -> None:
        instant = boot.clock.world(effects.wake_at)
        boot.wake_at = instant
        if instant is not None and (boot.alarm is None or instant < boot.alarm):
            boot.alarm = instant
            self.world.at(instant, self._wake, boot, instant)

    def supervise(self, boot: Boot) -> None:
        """Restart a broker whose data directory is poisoned, as a supervisor does."""
        if self.boot_state is boot:
            self.stop_process()
            self.start()

    # --- clients ---

    def connect(self, client: ConnectedClient) -> ConnectionId:
        """A client connects to the first listener."""
        self._last_connection += 1
        connection = ConnectionId(self._last_connection)
        self.live.clients[connection] = client
        listener = self.config.listeners[0].name
        self.deliver(e.ConnectionOpened(connection, listener, "ANONYMOUS", "client"))
        return connection

    def disconnect(self, connection: ConnectionId) -> None:
        """Close the client's end of a connection."""
        if self.live.clients.pop(connection, None) is not None:
            self.deliver(e.ConnectionClosed(connection))

    def lose_clients(self) -> None:
        """Break every client connection, at both ends."""
        clients, self.live.clients = self.live.clients, {}
        for connection, client in clients.items():
            self.deliver(e.ConnectionClosed(connection))
            client.lost()

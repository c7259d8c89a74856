"""One broker process: what is opened, in which order, and the nursery in which all of it lives.

    serve
      lock and open the data directory (an empty one of a running cluster is formatted as a joiner)
      threads of the directory   --completions-->  driver  <--events--  readers of clients and peers
                                                     |  Broker.handle
                                                     +--effects-->  threads, peer links, clients

SIGTERM and SIGINT stop gracefully: leadership is handed over first. A second signal stops at once.
"""

import os
import signal
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Final, Protocol, final

import attrs
import trio

from raftlog.base.errors import ConfigError, OperatingError, RaftlogError
from raftlog.base.ids import ClusterId, DirectoryId, NodeId
from raftlog.base.ports import Clock, Disk, Entropy, Tracer
from raftlog.base.trace import TraceEvent
from raftlog.base.units import NANOS_PER_SECOND, Instant
from raftlog.broker.broker import Broker
from raftlog.broker.config import BrokerConfig
from raftlog.broker.events import Event, PeerAddress, Stop
from raftlog.runtime.admin import AdminServer
from raftlog.runtime.admin_headers import CLUSTER_HEADER, NODE_HEADER, PROCESS_HEADER
from raftlog.runtime.disks.log_dirs import open_directories
from raftlog.runtime.disks.log_writer import DirectoryThreads
from raftlog.runtime.disks.open_files import OpenFiles
from raftlog.runtime.driver import DrivenBroker, Driver
from raftlog.runtime.fault_port import Faults
from raftlog.runtime.huge_pages import use_huge_pages_again
from raftlog.runtime.machine import Machine, raise_file_limit, this_machine, tune_process
from raftlog.runtime.network import handshake
from raftlog.runtime.network.handshake import Agreed, PeerIdentity, PlainPeerError, Trust
from raftlog.runtime.network.listener import ACCEPT_PAUSE_SECONDS, AcceptedConnections
from raftlog.runtime.network.peer_links import PeerLinks
from raftlog.runtime.network.peer_trust import trust_of
from raftlog.runtime.network.streams import ByteStream, Listening
from raftlog.runtime.real_ports import SystemClock
from raftlog.runtime.recording_port import RecordedBroker, Recordings
from raftlog.runtime.settings.config_file import ServerConfig
from raftlog.runtime.settings.fault_settings import TestDisk
from raftlog.storage.directories.data_dir import (
    DirectoryIdentity,
    DirectoryImage,
    draw_incarnation,
    format_directory,
    is_formatted,
    open_directory,
    read_identity,
)
from raftlog.storage.directories.log_directories import refuse_further
from raftlog.storage.write_round import DirectoryWriter

STOP_SECONDS: Final = 10.0
"""A graceful stop that takes longer than this is not graceful; the process ends all the same."""
JOIN_PAUSE_SECONDS: Final = 0.2
FOUND_THE_CLUSTER: Final = "found the cluster by raftlog format (see raftlog format --help)"
_NO_CLUSTER: Final = ClusterId(bytes(16))


class StreamTaker(Protocol):
    """How a listener hands over a connection."""

    async def __call__(self, stream: ByteStream, address: str) -> None: ...


@final
@attrs.frozen(kw_only=True)
class Started:
    """The report of `serve` once it listens: the ports that were really bound."""

    node: NodeId
    cluster: ClusterId
    client_ports: tuple[int, ...]
    peer_port: int
    admin_port: int | None


@final
@attrs.define(eq=False)
class Control:
    """How the program that runs `serve` inside itself reaches its broker, from the trio thread."""

    driver: Driver | None = None
    stop: Callable[[], None] | None = None
    """Ask for a graceful stop: leadership is handed over, then `serve` returns."""
    attached: Callable[[Driver], None] | None = None
    """Told of the driver before its first turn."""

    def attach(self, driver: Driver, stop: Callable[[], None]) -> None:
        """The broker is made, and has not begun."""
        self.driver, self.stop = driver, stop
        if self.attached is not None:
            self.attached(driver)


async def serve(
    config: ServerConfig,
    *,
    tracer: Tracer,
    started: Callable[[Started], None],
    clock: Clock | None = None,
    own_process: bool = True,
    control: Control | None = None,
    faults: Faults | None = None,
    test_disk: TestDisk | None = None,
    recordings: Recordings | None = None,
) -> None:
    """Run one broker until it is told to stop. Raises `RaftlogError` when it cannot start.

    With `own_process` it watches signals and tunes the process; without, it leaves both alone.
    `faults` and `test_disk` are those of a test; `recordings` takes that of this boot.
    """
    with ExitStack() as stack:
        machine = this_machine(config, clock or SystemClock(), tracer, stack, test_disk)
        if faults is not None:
            machine = _faulty(faults, config, machine, tracer)
        await serve_on(
            machine,
            config,
            tracer,
            started,
            own_process=own_process,
            control=control,
            faults=faults,
            recordings=recordings,
        )


def _faulty(faults: Faults, config: ServerConfig, machine: Machine, tracer: Tracer) -> Machine:
    if not config.loopback_only():
        raise ConfigError(
            "faults of tests are refused beyond loopback",
            on=config.data_dir,
            do="bind every listener to 127.0.0.1",
        )
    tracer.emit(TraceEvent("test-faults", config.data_dir, ()))
    further = tuple(
        each if each.disk is None else attrs.evolve(each, disk=faults.over_disk(each.disk))
        for each in machine.further
    )
    return attrs.evolve(machine, disk=faults.over_disk(machine.disk), further=further)


async def serve_on(
    machine: Machine,
    config: ServerConfig,
    tracer: Tracer,
    started: Callable[[Started], None],
    *,
    own_process: bool = False,
    control: Control | None = None,
    faults: Faults | None = None,
    recordings: Recordings | None = None,
) -> None:
    """`serve` with the ports of a machine."""
    if not is_formatted(machine.disk):
        refuse_further(machine.disk, config.data_dir)
        await _format_as_joiner(machine, config, tracer)
    trust = trust_of(config, tracer, sealed=read_identity(machine.disk).sealed)
    image = _open_image(config, machine.disk, machine.entropy.fork("incarnation"))
    process = _BrokerProcess(machine, config, image, trust, tracer, faults, recordings)
    if control is not None:
        control.attach(process.driver, process.stop)
    await process.run(started, own_process)


async def _format_as_joiner(machine: Machine, config: ServerConfig, tracer: Tracer) -> None:
    """Ask the controllers which cluster this is, and format the empty directory for it. It founds
    nothing: without an answer it waits, and says so. Raises `OperatingError` when no other node
    could ever answer."""
    node, entropy = config.broker.node, machine.entropy
    others = [address.node for address in config.broker.controllers if address.node != node]
    if not others:
        raise OperatingError(
            "the data directory is not formatted, and no other controller is configured",
            on=config.data_dir,
            do=FOUND_THE_CLUSTER,
        )
    directory = DirectoryId(1 + entropy.below(2**64 - 1))
    waiting = f"waiting for one of the controllers {', '.join(map(str, others))}"
    if len(others) < len(config.broker.controllers):
        # A founder waits in vain: the other controllers wait as well.
        waiting += f"; if the cluster is new, stop this broker and {FOUND_THE_CLUSTER}"
    tracer.emit(TraceEvent("joining", config.data_dir, (("do", waiting),)))
    trust = trust_of(config, tracer, sealed=False)
    identity = _identity(config.broker, _NO_CLUSTER, directory, 0)
    said: dict[int, str] = {}
    while True:
        for address in config.broker.controllers:
            if address.node == node:
                continue
            try:
                agreed = await _ask_for_cluster(machine, config, trust, identity, address)
            except (OSError, trio.TooSlowError, trio.BrokenResourceError, RaftlogError) as error:
                if said.get(address.node) != str(error):  # once, not at every attempt
                    said[address.node] = str(error)
                    fields = (("node", address.node), ("why", str(error)))
                    tracer.emit(TraceEvent("join-failed", config.data_dir, fields))
                continue
            if agreed.peer.cluster != _NO_CLUSTER:
                sealed = agreed.peer_requires_seals
                trust_of(config, tracer, sealed=sealed)  # a short secret stops here
                wanted = DirectoryIdentity(
                    cluster=agreed.peer.cluster, node=node, directory=directory, sealed=sealed
                )
                format_directory(machine.disk, wanted)
                return
        await trio.sleep(JOIN_PAUSE_SECONDS)


async def _ask_for_cluster(
    machine: Machine,
    config: ServerConfig,
    trust: Trust,
    identity: PeerIdentity,
    address: PeerAddress,
) -> Agreed:
    """The handshake result of a controller. A controller of the last release cannot seal; it is
    asked over a plain link, where those are allowed."""
    route = config.broker.route_to(address)
    for sealed in (True, False) if identity.seals else (False,):
        with trio.fail_after(handshake.HANDSHAKE_SECONDS):
            stream = await machine.network.connect(route.host, route.port)
            try:
                return await handshake.dial(
                    stream, trust, identity, machine.entropy, address.node, sealed=sealed
                )
            except PlainPeerError:
                if trust.required:
                    raise
            finally:
                stream.close()
    raise AssertionError("a plain hello is not hung up on as a sealed one")


def _open_image(config: ServerConfig, disk: Disk, entropy: Entropy) -> DirectoryImage:
    image = open_directory(disk, config.broker.lease_ns, draw_incarnation(entropy))
    if image.identity.node != config.broker.node:
        raise OperatingError(
            f"the data directory belongs to node {image.identity.node}, not {config.broker.node}",
            on=config.data_dir,
            do="set node.id or log.dirs",
        )
    return image


def _identity(
    config: BrokerConfig, cluster: ClusterId, directory: DirectoryId, boot: int
) -> PeerIdentity:
    address = f"{config.peer.host}:{config.peer.port}"
    oldest, newest = config.release.protocols
    return PeerIdentity(
        cluster,
        config.node,
        directory,
        boot,  # type: ignore[arg-type]
        oldest,
        newest,
        address,
    )


@final
class _BrokerProcess:
    """The parts of a running broker."""

    def __init__(
        self,
        machine: Machine,
        config: ServerConfig,
        image: DirectoryImage,
        trust: Trust,
        tracer: Tracer,
        faults: Faults | None,
        recordings: Recordings | None,
    ) -> None:
        self.machine = machine
        self.config = config
        self.image = image
        self.trust = trust
        self.clock = clock = machine.clock
        self.tracer = tracer
        opened = open_directories(machine, config.data_dir, image, tracer)
        directory, disk, sent = image.identity.directory, opened.disk, opened.descriptors
        self.files = OpenFiles(
            {} if sent is None else {directory: sent}, {directory: disk} if sent is None else None
        )
        entropy, now = machine.entropy.fork("broker"), clock.now()
        self.recorder: RecordedBroker | None = None
        if recordings is not None:
            self.recorder = recordings.of_boot(
                config.broker, image, opened.images, entropy, tracer, now
            )
            self.broker = self.recorder.broker
        else:
            self.broker = Broker(
                config=config.broker,
                directories=[image],
                further=opened.images,
                entropy=entropy,
                tracer=tracer,
                now=now,
            )
        writer = DirectoryWriter(disk, syncfs_from=machine.syncfs_from, further=opened.further)
        self.threads = DirectoryThreads(
            directory, disk, writer, clock, self._deliver, machine.workers
        )
        driven: DrivenBroker = self.recorder or self.broker
        if faults is not None:
            driven = faults.over_broker(driven, self.broker)
        self.driver = Driver(config.broker.node, driven, clock, {directory: self.threads})
        self.fault_door = None if faults is None else faults.door
        if faults is not None:
            faults.attach(self.driver.turn_soon, self.threads.allow_inline)

    def _deliver(self, events: Sequence[Event]) -> None:
        self.driver.post_all(events)

    def _connections_that_fit(self) -> int:
        """Clients get one half of the files that this process may open: the log, the peers and the
        admin listener need the other."""
        most = raise_file_limit() // 2
        if most < self.config.connections_max:
            about = (
                ("max.connections", str(self.config.connections_max)),
                ("served", str(most)),
                ("do", "let the process open more files (ulimit -n, LimitNOFILE)"),
            )
            self.tracer.emit(TraceEvent("connections-limited-by-files", "process", about))
        return min(most, self.config.connections_max)

    async def run(self, started: Callable[[Started], None], own_process: bool) -> None:
        """Listen, report, and drive until stopped."""
        config, driver, machine = self.config, self.driver, self.machine
        connections_max = config.connections_max
        if own_process:
            tune_process(self.clock)
            connections_max = self._connections_that_fit()
        self.threads.start()
        try:
            async with trio.open_nursery() as nursery:
                connections = AcceptedConnections(
                    driver,
                    self.files,
                    self.tracer,
                    config.frame_bytes_max,
                    connections_max,
                )
                identity = self.image.identity
                links = PeerLinks(
                    driver,
                    self.trust,
                    _identity(
                        config.broker, identity.cluster, identity.directory, self.image.boot
                    )._replace(incarnation=self.image.incarnation),
                    machine.entropy.fork("links"),
                    self.tracer,
                    nursery,
                    self.broker.registration.peer_stands,
                    machine.network,
                    config.broker.release.codecs,
                )
                admin = AdminServer(driver, self.tracer, self._headers(), self.fault_door)
                driver.connections, driver.peers, driver.admin = connections, links, admin
                ports = await self._listen(nursery, connections, links, admin)
                if own_process:
                    await nursery.start(self._watch_signals, nursery)
                    nursery.start_soon(use_huge_pages_again, self.clock, name="huge pages")
                nursery.start_soon(driver.run, name="driver")
                nursery.start_soon(
                    connections.close_idle, config.connections_idle_ms / 1000, name="idle clients"
                )
                nursery.start_soon(self.files.close_removed_for_ever, name="removed files")
                started(ports)
                await driver.stopped.wait()
                nursery.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True):
                await self.threads.stop(STOP_SECONDS)
            self.files.close()
            if self.recorder is not None:
                self.recorder.end("the broker has ended")

    def _headers(self) -> tuple[tuple[str, str], ...]:
        return (
            (CLUSTER_HEADER, self.image.identity.cluster.hex()),
            (NODE_HEADER, str(self.config.broker.node)),
            (PROCESS_HEADER, str(self.machine.process)),
        )

    async def _listen(
        self,
        nursery: trio.Nursery,
        connections: AcceptedConnections,
        links: PeerLinks,
        admin: AdminServer,
    ) -> Started:
        config = self.config
        client_ports: list[int] = []
        for each in config.bind:
            serve_client = _ClientListener(connections, each.name)
            client_ports.append(await _bind(nursery, each.host, each.port, serve_client, self))
        peer = config.peer_bind
        peer_port = await _bind(nursery, peer.host, peer.port, links.accept, self)
        admin_port = None
        if config.admin_bind is not None:
            host, port = config.admin_bind
            admin_port = await _bind(nursery, host, port, admin.serve, self)
        return Started(
            node=config.broker.node,
            cluster=self.image.identity.cluster,
            client_ports=tuple(client_ports),
            peer_port=peer_port,
            admin_port=admin_port,
        )

    async def _watch_signals(
        self,
        nursery: trio.Nursery,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            task_status.started()
            asked = False
            async for number in signals:
                self.tracer.emit(TraceEvent("stopping", "process", (("signal", number),)))
                if asked:
                    self.driver.stopped.set()
                    return
                asked = True
                nursery.start_soon(self._give_up_stopping, name="stop deadline")
                self.stop()

    def stop(self) -> None:
        """Ask the broker to stop gracefully."""
        deadline = self.clock.now() + int(STOP_SECONDS * NANOS_PER_SECOND)
        self.driver.post(Stop(Instant(deadline)))

    async def _give_up_stopping(self) -> None:
        await trio.sleep(STOP_SECONDS + 1)
        self.driver.stopped.set()


@final
@attrs.frozen
class _ClientListener:
    """A client listener by name."""

    connections: AcceptedConnections
    name: str

    async def __call__(self, stream: ByteStream, address: str) -> None:
        await self.connections.serve(stream, self.name, address)


async def _bind(
    nursery: trio.Nursery, host: str, port: int, serve_one: StreamTaker, process: _BrokerProcess
) -> int:
    """Listen and serve what connects; the port that was bound."""
    try:
        listeners = await process.machine.network.listen(host, port)
    except OSError as error:
        raise OperatingError(
            f"cannot listen: {os.strerror(error.errno) if error.errno else error}",
            on=f"{host}:{port}",
            do="choose a free port",
        ) from error
    for listening in listeners:
        nursery.start_soon(
            _accept_for_ever, nursery, listening, serve_one, process, name=f"accept {port}"
        )
    return listeners[0].port


async def _accept_for_ever(
    nursery: trio.Nursery, listening: Listening, serve_one: StreamTaker, process: _BrokerProcess
) -> None:
    try:
        while True:
            try:
                stream, address = await listening.accept()
            except OSError as error:
                process.tracer.emit(TraceEvent("accept-failed", "process", (("why", str(error)),)))
                await trio.sleep(ACCEPT_PAUSE_SECONDS)
                continue
            nursery.start_soon(serve_one, stream, address, name=f"connection {address}")
            # It may be one too many: it is counted, and closed, before the next one is accepted.
            await trio.lowlevel.checkpoint()
    finally:
        listening.close()

"""One broker process: what is opened, in which order, and the nursery in which all of it lives.

    serve
      lock and open the data directory (an empty one of a running cluster is formatted as a joiner)
      threads of the directory   --completions-->  driver  <--events--  readers of clients and peers
                                                     |  Broker.handle
                                                     +--effects-->  threads, peer links, clients

SIGTERM and SIGINT stop gracefully: leadership is handed over first. A second signal stops at once.
"""

import fcntl
import gc
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Final, Protocol, final

import attrs
import trio

from raftlog.base.errors import ConfigError, OperatingError, RaftlogError
from raftlog.base.ids import ClusterId, DirectoryId, NodeId
from raftlog.base.ports import Clock, Disk, Tracer
from raftlog.base.trace import TraceEvent
from raftlog.base.units import NANOS_PER_SECOND, Instant
from raftlog.broker.broker import Broker
from raftlog.broker.config import BrokerConfig
from raftlog.broker.events import Event, Stop
from raftlog.runtime import faulty_disk, handshake
from raftlog.runtime.admin import AdminServer
from raftlog.runtime.config_file import ServerConfig
from raftlog.runtime.driver import Driver
from raftlog.runtime.handshake import PeerIdentity
from raftlog.runtime.huge_pages import use_huge_pages, use_huge_pages_again
from raftlog.runtime.listener import ACCEPT_PAUSE_SECONDS, Connections
from raftlog.runtime.log_writer import DirectoryThreads
from raftlog.runtime.open_files import OpenFiles
from raftlog.runtime.peer_links import PeerLinks
from raftlog.runtime.real_ports import SYNCFS_TELLS, OsEntropy, PosixDisk, SystemClock
from raftlog.runtime.slabs import SlabPool
from raftlog.runtime.streams import TcpStream, accept_tcp, connect_tcp, listen_tcp
from raftlog.storage.data_dir import (
    DirectoryIdentity,
    DirectoryImage,
    format_directory,
    is_formatted,
    open_directory,
)
from raftlog.storage.write_round import SYNCFS_FROM, DirectoryWriter

STOP_SECONDS: Final = 10.0
"""A graceful stop that takes longer than this is not graceful; the process ends all the same."""
JOIN_PAUSE_SECONDS: Final = 0.2
SWITCH_SECONDS: Final = 0.0005
"""How long the loop may keep the log thread from reporting: the default of 5 ms is a failover's
worth of waiting behind a busy turn."""
OPEN_FILES_WANTED: Final = 65_536
_NO_CLUSTER: Final = ClusterId(bytes(16))


class Stream(Protocol):
    """How a listener hands over a connection."""

    async def __call__(self, stream: TcpStream, address: str) -> None: ...


@final
@attrs.frozen(kw_only=True)
class Started:
    """What `serve` reports once it listens: the ports that were really bound."""

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


async def serve(
    config: ServerConfig,
    *,
    tracer: Tracer,
    started: Callable[[Started], None],
    clock: Clock | None = None,
    own_process: bool = True,
    control: Control | None = None,
) -> None:
    """Run one broker until it is told to stop. Raises `RaftlogError` when it cannot start.

    With `own_process` it watches signals and tunes the process; without, it leaves both alone.
    """
    clock = clock or SystemClock()
    with ExitStack() as stack:
        disk = _open_disk(config, stack, tracer)
        entropy = OsEntropy()
        if not is_formatted(disk):
            await _format_as_joiner(config, disk, entropy, tracer)
        image = _open_image(config, disk)
        process = _BrokerProcess(config, disk, image, clock, entropy, tracer)
        if control is not None:
            control.driver, control.stop = process.driver, process.stop
        await process.run(started, own_process)


def _open_disk(config: ServerConfig, stack: ExitStack, tracer: Tracer) -> Disk:
    """The data directory, locked for this process, with the test disk over it when that is
    asked."""
    os.makedirs(config.data_dir, exist_ok=True)
    lock = os.open(os.path.join(config.data_dir, ".lock"), os.O_RDWR | os.O_CREAT, 0o644)
    stack.callback(os.close, lock)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise OperatingError(
            "the data directory is in use by another process",
            on=config.data_dir,
            do="stop that broker first, or set log.dirs",
        ) from None
    disk: Disk = PosixDisk(config.data_dir)
    wanted = os.environ.get(faulty_disk.VARIABLE)
    if wanted:
        if not config.loopback_only():
            raise ConfigError("test disks are refused beyond loopback", on=faulty_disk.VARIABLE)
        tracer.emit(TraceEvent("test-disk", config.data_dir, (("options", wanted),)))
        disk = faulty_disk.wrap(disk, faulty_disk.parse_options(wanted))
    return disk


async def _format_as_joiner(
    config: ServerConfig, disk: Disk, entropy: OsEntropy, tracer: Tracer
) -> None:
    """Ask the controllers which cluster this is, and format the empty directory for it. It founds
    nothing: without an answer it waits, and says so."""
    node = config.broker.node
    directory = DirectoryId(1 + entropy.below(2**64 - 1))
    tracer.emit(TraceEvent("joining", config.data_dir, (("do", "waiting for a controller"),)))
    identity = _identity(config.broker, _NO_CLUSTER, directory, 0)
    said: dict[int, str] = {}
    while True:
        for address in config.broker.controllers:
            if address.node == node:
                continue
            try:
                with trio.fail_after(handshake.HANDSHAKE_SECONDS):
                    route = config.broker.route_to(address)
                    stream = await connect_tcp(route.host, route.port)
                    try:
                        agreed = await handshake.dial(
                            stream, config.secret, identity, entropy, address.node
                        )
                    finally:
                        stream.close()
            except (OSError, trio.TooSlowError, trio.BrokenResourceError, RaftlogError) as error:
                if said.get(address.node) != str(error):  # once, not at every attempt
                    said[address.node] = str(error)
                    fields = (("node", address.node), ("why", str(error)))
                    tracer.emit(TraceEvent("join-failed", config.data_dir, fields))
                continue
            if agreed.peer.cluster != _NO_CLUSTER:
                wanted = DirectoryIdentity(
                    cluster=agreed.peer.cluster, node=node, directory=directory
                )
                format_directory(disk, wanted)
                return
        await trio.sleep(JOIN_PAUSE_SECONDS)


def _open_image(config: ServerConfig, disk: Disk) -> DirectoryImage:
    image = open_directory(disk)
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
    return PeerIdentity(
        cluster,
        config.node,
        directory,
        boot,  # type: ignore[arg-type]
        handshake.PROTOCOL_MIN,
        handshake.PROTOCOL_MAX,
        address,
    )


@final
class _BrokerProcess:
    """The parts of a running broker."""

    def __init__(
        self,
        config: ServerConfig,
        disk: Disk,
        image: DirectoryImage,
        clock: Clock,
        entropy: OsEntropy,
        tracer: Tracer,
    ) -> None:
        self.config = config
        self.image = image
        self.clock = clock
        self.entropy = entropy
        self.tracer = tracer
        self.pool = SlabPool()
        directory = image.identity.directory
        test_disk = None if isinstance(disk, PosixDisk) else {directory: disk}
        self.files = OpenFiles({directory: config.data_dir}, test_disk)
        self.broker = Broker(
            config=config.broker,
            directories=[image],
            entropy=entropy.fork("broker"),
            tracer=tracer,
            now=clock.now(),
        )
        self.threads = DirectoryThreads(
            directory,
            disk,
            DirectoryWriter(disk, syncfs_from=SYNCFS_FROM if SYNCFS_TELLS else sys.maxsize),
            clock,
            self._deliver,
            trio.lowlevel.current_trio_token(),
        )
        self.driver = Driver(config.broker.node, self.broker, clock, {directory: self.threads})

    def _deliver(self, events: Sequence[Event]) -> None:
        self.driver.post_all(events)

    async def run(self, started: Callable[[Started], None], own_process: bool) -> None:
        """Listen, report, and drive until stopped."""
        if own_process:
            _tune_process(self.clock)
        config, driver = self.config, self.driver
        self.threads.start()
        try:
            async with trio.open_nursery() as nursery:
                connections = Connections(
                    driver,
                    self.pool,
                    self.files,
                    self.tracer,
                    config.frame_bytes_max,
                    config.connections_max,
                )
                identity = self.image.identity
                links = PeerLinks(
                    driver,
                    config.secret,
                    _identity(config.broker, identity.cluster, identity.directory, self.image.boot),
                    self.entropy.fork("links"),
                    self.tracer,
                    self.pool,
                    nursery,
                    self.broker.registration.peer_stands,
                )
                admin = AdminServer(driver, self.tracer)
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

    async def _listen(
        self,
        nursery: trio.Nursery,
        connections: Connections,
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

    connections: Connections
    name: str

    async def __call__(self, stream: TcpStream, address: str) -> None:
        await self.connections.serve(stream, self.name, address)


async def _bind(
    nursery: trio.Nursery, host: str, port: int, serve_one: Stream, process: _BrokerProcess
) -> int:
    """Listen and serve what connects; the port that was bound."""
    try:
        sockets = await listen_tcp(host, port)
    except OSError as error:
        raise OperatingError(
            f"cannot listen: {os.strerror(error.errno) if error.errno else error}",
            on=f"{host}:{port}",
            do="choose a free port",
        ) from error
    for listening in sockets:
        nursery.start_soon(
            _accept_for_ever, nursery, listening, serve_one, process, name=f"accept {port}"
        )
    return int(sockets[0].getsockname()[1])


async def _accept_for_ever(
    nursery: trio.Nursery, listening: socket.socket, serve_one: Stream, process: _BrokerProcess
) -> None:
    try:
        while True:
            try:
                stream = await accept_tcp(listening)
            except OSError as error:
                process.tracer.emit(TraceEvent("accept-failed", "process", (("why", str(error)),)))
                await trio.sleep(ACCEPT_PAUSE_SECONDS)
                continue
            address = stream.peer_address()
            nursery.start_soon(serve_one, stream, address, name=f"connection {address}")
    finally:
        trio.lowlevel.notify_closing(listening)
        listening.close()


def _tune_process(clock: Clock) -> None:
    """Raise the file limit, let the log thread in quickly, keep the collector off what lives for
    ever (everything made so far is never garbage, and cycles are rare on the data path), and put
    that on huge pages."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES_WANTED if hard == resource.RLIM_INFINITY else min(OPEN_FILES_WANTED, hard)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    use_huge_pages(clock)

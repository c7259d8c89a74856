"""A whole cluster in a `with` block.

    with raftlog.Cluster(brokers=3) as cluster:
        client = AnyKafkaClient(cluster.bootstrap_servers)
        cluster.kill(cluster.leader_of("orders", 0))

The brokers are real: they listen on free ports of the loopback interface, elect leaders, write and
sync files. They run inside this process, or with `processes=True` each in its own. When the block
ends nothing remains: no thread, no process, and no file unless a directory was given.

The methods block. Inside an event loop, trio's or asyncio's, use `async with Cluster(...)` and the
same methods under `.aio`.
"""

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Final, Self, final

from raftlog.base.amounts import amount
from raftlog.base.arguments import AnyPath, between, checked, one_of
from raftlog.base.errors import LocalMisuse, OperatingError, RaftlogError
from raftlog.client.core.arguments import NodeNumber, PartitionIndex, Seconds, TopicName
from raftlog.client.system import refuse_inside_trio
from raftlog.embed import parts
from raftlog.embed.async_face import AsyncFace
from raftlog.embed.event_loops import enter_in_thread, in_thread_shielded
from raftlog.embed.faults import (
    ApiFaults,
    ClusterFaults,
    FaultHandle,
    Milliseconds,
    RoomsOfProcesses,
    no_faults,
    node_groups,
)
from raftlog.embed.health import HEALTHY_SECONDS, broker_status, lacking, newest_leader
from raftlog.embed.settings import takes_faults, with_defaults
from raftlog.embed.temporary_folder import temporary_folder
from raftlog.kafka.error_codes import ErrorCode, error_name
from raftlog.runtime.local import cluster as local_cluster
from raftlog.runtime.local.cluster import LocalCluster
from raftlog.runtime.local.ports import HOST
from raftlog.testing.rules import api_key_of, refuse_topic

if TYPE_CHECKING:
    from raftlog.embed.in_process import InProcessBrokers
    from raftlog.embed.metadata_client import MetadataClient
    from raftlog.kafka.messages.metadata import MetadataResponse
    from raftlog.runtime.disks.recording_files import RecordingFolder

BROKERS_MAX: Final = 9
"""The largest number of brokers; more do not run well on one machine."""
START_ATTEMPTS: Final = 3
"""How often the start is tried. Free ports are chosen before they are bound, and another process
may bind one first."""
_POLL_SECONDS: Final = 0.02
_UNKNOWN_SECONDS: Final = 3.0
"""How long a question about an unknown topic waits: the asked broker may not have heard of it
yet."""


@final
class Cluster:
    """A cluster of real brokers. `settings` are broker settings by Kafka's names. `controllers` is
    1 or 3, by default 3 from three brokers on. A `directory` keeps the data: the next cluster on it
    has the same data, and the same ports if they are free. `fixture` is a folder of `raftlog topics
    export`, whose topics a new cluster begins with. `record` is an empty or new folder for
    recordings of all brokers (`raftlog incident`)."""

    @checked
    def __init__(
        self,
        brokers: Annotated[int, between(1, BROKERS_MAX)] = 3,
        *,
        processes: bool = False,
        directory: AnyPath | None = None,
        settings: Mapping[str, str] | None = None,
        controllers: Annotated[int, one_of(1, 3)] | None = None,
        fixture: AnyPath | None = None,
        record: AnyPath | None = None,
    ) -> None:
        self._count = brokers
        self._processes = processes
        self._directory = Path(directory) if directory is not None else None
        self._record = Path(record) if record is not None else None
        self._settings = with_defaults(settings, processes=processes, record=self._record)
        self._controllers = controllers
        self._fixture = Path(fixture) if fixture is not None else None
        self._stack = ExitStack()
        self._cluster: LocalCluster | None = None
        self._inside: InProcessBrokers | None = None
        self._client: MetadataClient | None = None
        self._paused: set[int] = set()
        self._faults: ClusterFaults | None = None
        self.recordings: RecordingFolder | None = None
        self.aio = AsyncFace(self)

    # --- life -------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Found the cluster, start all brokers, and wait until they are ready. `with` calls it."""
        if self._cluster is not None:
            raise LocalMisuse("the cluster is running already")
        if not self._processes or self._fixture is not None:
            refuse_inside_trio("Cluster.start", "use `async with Cluster(...)`")
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def _start(self) -> None:
        fixture = self._fixture
        loaded = None if fixture is None else parts.opened_fixture(fixture, self._directory)
        directory = self._directory
        if directory is None:
            directory = self._stack.enter_context(temporary_folder())
        if self._record is not None and not self._processes:
            self.recordings = self._stack.enter_context(parts.recording_folder(self._record))
        for attempt in range(START_ATTEMPTS):
            cluster = local_cluster.found(
                directory.resolve(),
                brokers=self._count,
                controllers=self._controllers,
                settings=self._settings,
                ends_with_parent=True,
            )
            try:
                self._start_brokers(cluster)
            except OperatingError as error:
                self._stop_brokers()
                if "cannot listen" not in str(error) or attempt == START_ATTEMPTS - 1:
                    raise
                continue
            self._cluster = cluster
            if loaded is not None:
                loaded.load(self.bootstrap_servers)
            return

    def _start_brokers(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        if self._processes:
            if takes_faults(self._settings):
                self._faults = ClusterFaults(RoomsOfProcesses(cluster, self._paused))
            cluster.start_all()
        else:
            self._inside = parts.brokers_inside(cluster, self.recordings)
            if self._inside.rooms is not None:
                self._faults = ClusterFaults(self._inside.rooms)
            self._inside.start_all()

    def stop(self) -> None:
        """End all brokers and leave nothing behind. `with` calls it."""
        if self._inside is not None:
            refuse_inside_trio("Cluster.stop", "use `async with Cluster(...)`")
        try:
            client, self._client = self._client, None
            if client is not None:
                client.close()
            self._stop_brokers()
        finally:
            self._stack.close()

    def _stop_brokers(self) -> None:
        cluster, self._cluster = self._cluster, None
        inside, self._inside = self._inside, None
        self._paused.clear()
        faults, self._faults = self._faults, None
        if faults is not None:
            faults.end()
        try:
            if inside is not None:
                inside.stop()
        finally:
            if cluster is not None:
                cluster.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        del kind, trace
        inside = self._inside
        try:
            if error is None and inside is not None:
                inside.raise_failures()
        finally:
            self.stop()

    async def __aenter__(self) -> Self:
        return await enter_in_thread(self.start, self.stop)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await in_thread_shielded(self.__exit__, kind, error, trace)

    # --- what there is ----------------------------------------------------------------------------

    @property
    def _running(self) -> LocalCluster:
        if self._cluster is None:
            raise LocalMisuse("the cluster is not running", do="with Cluster(...) as cluster")
        return self._cluster

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers as Kafka clients take them: `host:port,host:port`."""
        return self._running.bootstrap_servers

    @property
    def directory(self) -> Path:
        """The folder with the brokers' data, configuration and output (brokerN.log)."""
        return self._running.directory

    @property
    def nodes(self) -> list[int]:
        """The node ids of all brokers, dead or alive."""
        return [place.node for place in self._running.places]

    @property
    def alive(self) -> list[int]:
        """The nodes that were neither killed nor shut down. Paused ones are alive."""
        if self._inside is not None:
            return self._inside.running()
        processes = self._running.processes
        return sorted(node for node, each in processes.items() if each.poll() is None)

    @checked
    def address_of(self, node: NodeNumber) -> tuple[str, int]:
        """The host and port at which clients reach a broker."""
        return HOST, self._running.place(node).client_port

    # --- faults -----------------------------------------------------------------------------------

    @checked
    def kill(self, node: NodeNumber) -> None:
        """Kill a broker, as SIGKILL does: it ends at once and hands over nothing."""
        self._running.place(node)
        (self._inside or self._running).kill(node)
        self._paused.discard(node)

    @checked
    def shut_down(self, node: NodeNumber) -> None:
        """Stop a broker, as SIGTERM does: it hands over leadership first."""
        self.resume(node)
        (self._inside or self._running).terminate(node)

    @checked
    def restart(self, node: NodeNumber, *, wait: bool = True) -> None:
        """Start a dead broker with its old directory and ports; a live one is killed first.

        It returns when the broker is ready. With `wait=False`, or while too few controllers are
        alive for any broker to become ready, it returns when the broker listens. `OperatingError`
        when the broker is not ready in time: the error says what it waits for, and the broker goes
        on."""
        self._running.place(node)
        if node in self.alive:
            self.kill(node)
        brokers = self._inside or self._running
        self._running.refuse_taken_ports([node])
        brokers.start(node)
        if wait and self._has_quorum():
            brokers.wait_ready(node)
        else:
            brokers.wait_serving(node)

    def start_all(self) -> None:
        """Start all dead brokers together, and wait until all are ready."""
        (self._inside or self._running).start_all()

    def _has_quorum(self) -> bool:
        """Whether a majority of the controllers is alive and not paused."""
        controllers = self._running.founded_controllers
        able = [n for n in self.alive if n <= controllers and n not in self._paused]
        return 2 * len(able) > controllers

    @checked
    def pause(self, node: NodeNumber) -> None:
        """Pause a broker, as SIGSTOP does: it does nothing, and its connections stay open."""
        self._running.place(node)
        (self._inside or self._running).pause(node)
        self._paused.add(node)

    @checked
    def resume(self, node: NodeNumber) -> None:
        """Let a broker go on, as SIGCONT does; nothing happens unless it was paused."""
        self._running.place(node)
        if node in self._paused:
            (self._inside or self._running).resume(node)
            self._paused.discard(node)

    @checked
    def partition(
        self,
        first: Collection[NodeNumber],
        second: Collection[NodeNumber],
        third: Collection[NodeNumber] = (),
        *,
        one_way: bool = False,
    ) -> FaultHandle:
        """Cut groups of brokers off from each other; clients still reach all of them. Messages wait
        at the cut until it heals. A broker in no group still reaches every other one. With
        `one_way`, only messages from earlier groups to later ones wait."""
        named = {"first": first, "second": second, **({"third": third} if third else {})}
        groups = node_groups(self.nodes, named)
        return self._put({"do": "partition", "groups": groups, "one_way": one_way})

    @checked
    def isolate(self, node: NodeNumber) -> FaultHandle:
        """Cut a broker off from all others."""
        self._running.place(node)
        others = [each for each in self.nodes if each != node]
        if not others:
            raise LocalMisuse("a cluster of one broker has nothing to isolate it from")
        return self._put({"do": "partition", "groups": [[node], others]})

    @checked
    def delay(
        self,
        first: Collection[NodeNumber] = (),
        second: Collection[NodeNumber] = (),
        *,
        ms: Milliseconds,
    ) -> FaultHandle:
        """Delay messages between two groups of brokers, or between all brokers, by `ms` each way.
        To delay answers to clients use `on(api).delay`."""
        named = {"first": first, "second": second}
        groups = node_groups(self.nodes, named) if first or second else None
        return self._put({"do": "delay_peers", "groups": groups, "ms": ms})

    @checked
    def slow_disk(self, node: NodeNumber, *, ms: Milliseconds) -> FaultHandle:
        """Delay each sync of a broker's disk by `ms`."""
        self._running.place(node)
        return self._put({"do": "slow_disk", "ms": ms}, [node])

    @checked
    def full_disk(self, node: NodeNumber) -> FaultHandle:
        """Leave no space on a broker's disk: files cannot grow."""
        self._running.place(node)
        return self._put({"do": "full_disk"}, [node])

    @checked
    def fail_sync(self, node: NodeNumber) -> FaultHandle:
        """Let syncs of a broker's disk fail. It then serves no more: end the fault and restart
        it."""
        self._running.place(node)
        return self._put({"do": "fail_sync"}, [node])

    @checked
    def on(
        self,
        api: str,
        *,
        topic: TopicName | None = None,
        client_id: str | None = None,
        connection: str | None = None,
        node: NodeNumber | None = None,
    ) -> ApiFaults:
        """Select the requests of an API on which a fault acts; a method of the result begins it.
        `api` is a name of Kafka's protocol ("Produce"). The others select further: requests that
        name a topic, of a client id, on a connection (the client's host:port), to one broker."""
        nodes = self.nodes if node is None else [self._running.place(node).node]
        refuse_topic(api_key_of(api, "api"), topic)
        which = {"on": api, "topic": topic, "client_id": client_id, "connection": connection}
        return ApiFaults(self._faulty, which, tuple(nodes))

    def heal(self) -> None:
        """End every fault that is in force. Dead and paused brokers stay as they are."""
        self._faulty.heal()

    @checked
    def recover(self, *, seconds: Seconds = HEALTHY_SECONDS) -> str:
        """`heal`, resume paused brokers, start dead ones, wait for a healthy cluster. Returns a
        line for each fault since the last call: how often it was used."""
        told = self._faulty.take_report()
        for node in sorted(self._paused):
            self.resume(node)
        self.start_all()
        self.wait_until_healthy(seconds=seconds)
        return told

    @property
    def _faulty(self) -> ClusterFaults:
        if self._faults is None:
            assert self._running is not None, "raised by the property"
            raise no_faults()
        return self._faults

    def _put(self, told: dict[str, object], nodes: list[int] | None = None) -> FaultHandle:
        return self._faulty.install(told, self.nodes if nodes is None else nodes)

    # --- questions --------------------------------------------------------------------------------

    @checked
    def leader_of(
        self,
        topic: TopicName,
        partition: PartitionIndex = 0,
        *,
        seconds: Seconds = HEALTHY_SECONDS,
    ) -> int:
        """The node that leads a partition. While the known leader is dead, this waits for a new
        one; `OperatingError` when there is none in time. It waits 3 s for an unknown topic."""
        unknown_since: float | None = None

        def look() -> int | str | OperatingError:
            nonlocal unknown_since
            asked = time.perf_counter()
            found = self._leader_of(topic, partition)
            if not isinstance(found, OperatingError):
                unknown_since = None
                return found
            if unknown_since is None:
                unknown_since = asked
            return found if asked >= unknown_since + _UNKNOWN_SECONDS else found.what

        return self._until(look, seconds)

    def _leader_of(self, topic: str, partition: int) -> int | str | OperatingError:
        """The leader by one broker's answer; an error for a partition that it does not know."""
        (told,) = self._metadata([topic]).topics
        for found in told.partitions:
            if found.partition_index == partition:
                leader = self._leader_of_all(f"{topic}-{partition}") or found.leader_id
                leads = leader in self.alive
                return leader if leads else f"{topic}-{partition} has no leader"
        if told.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return OperatingError(
                f"there is no topic {topic}", on=str(self.directory), do="create it first"
            )
        if told.error_code != ErrorCode.NONE:
            return f"{topic}-{partition} has no leader ({error_name(told.error_code)})"
        return OperatingError(
            f"there is no partition {topic}-{partition}",
            on=str(self.directory),
            do=f"{topic} has {amount(len(told.partitions), 'partition')}, numbered from 0",
        )

    def _leader_of_all(self, name: str) -> int | None:
        """The leader of the highest term in any broker's status; None without a fault in force. A
        broker that is cut off may not know the leader."""
        if self._faults is None or not self._faults.active:
            return None
        able = [node for node in self.alive if node not in self._paused]
        return newest_leader(name, [broker_status(self._running.place(n).admin_port) for n in able])

    @checked
    def wait_until_healthy(self, *, seconds: Seconds = HEALTHY_SECONDS) -> None:
        """Wait until every broker is alive and registered, and every leader reports all replicas of
        its partition in sync. `OperatingError` says what is missing."""
        self._until(self._health, seconds)

    def _health(self) -> int | str:
        missing = [node for node in self.nodes if node not in self.alive or node in self._paused]
        if missing:
            return f"broker {missing[0]} is dead or paused"
        known = [broker.node_id for broker in self._metadata([]).brokers]
        if len(known) < self._count:
            return f"the cluster knows brokers {sorted(known)} only"
        ports = [self._running.place(node).admin_port for node in self.nodes]
        return lacking(broker_status(port) for port in ports) or 0

    def _until(self, look: Callable[[], int | str | OperatingError], seconds: float) -> int:
        """Call `look` until it returns a number (a text: what is missing) or a final error."""
        lacking = "nothing was heard of the cluster"
        deadline = time.perf_counter() + seconds
        while time.perf_counter() < deadline:
            try:
                found = look()
            except RaftlogError as error:
                if isinstance(error, LocalMisuse):
                    raise
                found = str(error)
            if isinstance(found, OperatingError):
                raise found
            if isinstance(found, int):
                return found
            lacking = found
            time.sleep(_POLL_SECONDS)
        raise OperatingError(f"not in {seconds:g} seconds: {lacking}", on=str(self.directory))

    def _metadata(self, topics: list[str]) -> "MetadataResponse":
        if self._client is None:
            self._client = parts.metadata_client(self.bootstrap_servers)
        return self._client.ask(topics)

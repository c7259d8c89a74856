"""A cluster of real broker processes on this machine: what `raftlog up` runs, and tests and demo
too.

A cluster lives in one directory:

    secret            what the brokers prove to each other, mode 0600
    cluster.json      node ids, ports, process ids
    faults            of tests, with raftlog.testing.faults=true; empty when the cluster starts

and the files of every broker, which `broker_processes` names.

Client ports are P, P+1, ...; peers P+100+i; admin P+200+i. With P = 0 every port is the one that
the cluster had before, if it is free, and else any free one. The directory is founded once; coming
up again finds the same cluster with its data, at whatever ports.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, final

import attrs

from raftlog.base.amounts import amount
from raftlog.base.errors import LocalMisuse, OperatingError, WrongValue
from raftlog.base.ids import ClusterId, DirectoryId, NodeId, ReplicaEpoch, ReplicaId
from raftlog.runtime.disks.locks import is_locked
from raftlog.runtime.local.broker_processes import (
    BrokerFiles,
    BrokerProcess,
    kill,
    terminate,
)
from raftlog.runtime.local.health import health_of
from raftlog.runtime.local.ports import HOST, HeldPorts, kept_or_free, refuse_taken
from raftlog.runtime.local.state import STATE_FILE, load_state, write_state
from raftlog.runtime.real_ports import OsEntropy, PosixDisk, make_data_directory
from raftlog.runtime.settings.fault_settings import FAULTS, FAULTS_DIRECTORY
from raftlog.storage.directories.data_dir import (
    DirectoryIdentity,
    format_directory,
    is_formatted,
    read_identity,
)

SECRET_FILE: Final = "secret"
FAULTS_FOLDER: Final = "faults"
START_SECONDS: Final = 20.0
_NO_ANSWER: Final = "it does not listen yet"
PEER_PORTS_FROM: Final = 100
ADMIN_PORTS_FROM: Final = 200
_OF_ONE_BROKER: Final = (
    "node.id",
    "log.dirs",
    "log.dir",
    "listeners",
    "advertised.listeners",
    "raftlog.peer.listener",
    "raftlog.admin.listener",
    "raftlog.cluster.secret.file",
    "controller.quorum.voters",
)
"""Settings that differ between brokers of one machine, or that the cluster's directory decides."""


@final
@attrs.frozen(kw_only=True)
class BrokerPlace:
    """Where one broker of a local cluster listens."""

    node: int
    client_port: int
    peer_port: int
    admin_port: int

    @property
    def ports(self) -> tuple[int, int, int]:
        """All of them."""
        return self.client_port, self.peer_port, self.admin_port


@final
@attrs.define(eq=False)
class LocalCluster:
    """A directory with a cluster, and the processes that this object has started.

    `settings` are added to every broker's configuration. `environment` to that of the processes.
    With `ends_with_parent` a broker ends at once when this process has ended, by SIGKILL too.
    """

    directory: Path
    places: tuple[BrokerPlace, ...]
    settings: dict[str, str]
    environment: dict[str, str] = attrs.Factory(dict)
    detached: bool = False
    ends_with_parent: bool = False
    _lifeline: tuple[int, int] | None = attrs.field(default=None, init=False)
    """A pipe: brokers wait for its end, which comes when nothing holds the second descriptor."""
    processes: dict[int, BrokerProcess] = attrs.field(factory=dict, init=False)
    others: dict[int, int] = attrs.field(factory=dict, init=False)
    """Process ids of brokers that another process has started; they stay in the state."""
    files: BrokerFiles = attrs.field(init=False)
    _held_ports: HeldPorts = attrs.field(factory=HeldPorts, init=False)

    def __attrs_post_init__(self) -> None:
        self.files = BrokerFiles(self.directory)

    @property
    def bootstrap_servers(self) -> str:
        """The `bootstrap.servers` value for a Kafka client."""
        return ",".join(f"{HOST}:{place.client_port}" for place in self.places)

    def place(self, node: int) -> BrokerPlace:
        """The place of a node; `WrongValue` for one that the cluster does not have."""
        for each in self.places:
            if each.node == node:
                return each
        nodes = ", ".join(str(each.node) for each in self.places)
        raise WrongValue(f"node must be one of {nodes}, not {node}", on=str(self.directory))

    # --- processes --------------------------------------------------------------------------------

    def start(self, node: int) -> None:
        """Start one broker's process; `wait_ready` tells when it serves."""
        if self.is_alive(node):
            raise LocalMisuse(f"broker {node} is running already", on=str(self.directory))
        options = ["--end-with-input"] if self.ends_with_parent else []
        self.processes[node] = self.files.start(
            node,
            *options,
            environment=self.environment,
            standard_input=self._input(),
            own_session=self.detached,
        )
        self.save()

    def _input(self) -> int:
        """The standard input for a broker. The pipe's second end is not inherited by brokers."""
        if not self.ends_with_parent:
            return subprocess.DEVNULL
        if self._lifeline is None:
            self._lifeline = os.pipe()
        return self._lifeline[0]

    def start_all(self) -> None:
        """Start every broker that is not running, then wait until all are ready. `OperatingError`
        says who listens on a port that is taken; then none was started."""
        dead = [place.node for place in self.places if not self.is_alive(place.node)]
        self.refuse_taken_ports(dead)
        self.hold_ports()
        for node in dead:
            self.start(node)
        self.wait_ready(*(place.node for place in self.places))

    def refuse_taken_ports(self, nodes: list[int]) -> None:
        """Raise `OperatingError` when another process listens on a port of these brokers."""
        for node in nodes:
            refuse_taken(self.place(node).ports, for_whom=f"broker {node}")

    def hold_ports(self) -> None:
        """Until `stop`, no new cluster is given a port of these brokers, dead or alive. Clients of
        a broker that was dead for a while had found another cluster at its port."""
        for place in self.places:
            self._held_ports.hold(place.ports)

    def is_alive(self, node: int) -> bool:
        """Whether this object has started the broker's process, and it has not ended."""
        process = self.processes.get(node)
        return process is not None and process.poll() is None

    def wait_ready(self, *nodes: int) -> None:
        """Wait until these brokers are ready. `OperatingError` when one died, or is not ready in
        time: it says what the broker waits for, and shows its last lines."""
        self.files.wait(nodes, self.waits_for, START_SECONDS)

    def wait_serving(self, node: int) -> None:
        """Wait until this broker listens, whether or not the cluster is there for it."""
        self.files.wait([node], self._silent, START_SECONDS)

    def _silent(self, node: int) -> str | None:
        return _NO_ANSWER if self.waits_for(node) == _NO_ANSWER else None

    def waits_for(self, node: int) -> str | None:
        """The reason why a broker is not ready; None when it is. `OperatingError` when its process
        has ended."""
        process = self.processes.get(node)
        if process is not None and process.poll() is not None:
            raise self.files.trouble(node, f"ended with {process.returncode}")
        return self.lacking(node, process.pid if process is not None else None)

    def lacking(self, node: int, process: int | None) -> str | None:
        """The reason why the broker in this process is not ready; None when it is. An answer of
        another cluster's broker, or of another process, does not count: the port may be theirs.
        `process` is None for a broker that this object has not started."""
        health = health_of(self.place(node).admin_port)
        if health is None or (health.cluster, health.node) != (self.cluster_id, str(node)):
            return _NO_ANSWER
        if process is not None and health.process != str(process):
            return _NO_ANSWER
        return None if health.ready else health.lacking

    def kill(self, node: int) -> None:
        """SIGKILL: the process ends between any two instructions."""
        kill([self._running(node)])

    def pause(self, node: int) -> None:
        """SIGSTOP: the process stands still, its sockets stay open."""
        self._running(node).send_signal(signal.SIGSTOP)

    def resume(self, node: int) -> None:
        """SIGCONT."""
        self._running(node).send_signal(signal.SIGCONT)

    def terminate(self, node: int) -> int:
        """SIGTERM, and wait: the broker hands over leadership first. Its exit code."""
        return terminate([self._running(node)])[0]

    def restart(self, node: int) -> None:
        """Start a broker that was killed or terminated, and wait until it is ready."""
        self.refuse_taken_ports([node])
        self.start(node)
        self.wait_ready(node)

    def stop(self) -> None:
        """Terminate all, together; who does not end in time is killed. Then give up the ports."""
        terminate(self.processes.values())
        self.processes.clear()
        self._held_ports.release()
        lifeline, self._lifeline = self._lifeline, None
        for descriptor in lifeline or ():
            os.close(descriptor)

    def _running(self, node: int) -> BrokerProcess:
        process = self.processes.get(node)
        if process is None or process.poll() is not None:
            raise LocalMisuse(f"broker {node} is not running", on=str(self.directory))
        return process

    # --- files ------------------------------------------------------------------------------------

    @property
    def cluster_id(self) -> str:
        """The cluster's id as hex, by its data directories; "" when all of them are empty."""
        return next((each.cluster.hex() for each in self._identities()), "")

    @property
    def founded_controllers(self) -> int:
        """How many brokers founded the cluster as its controllers; 0 before that."""
        return max((len(each.controllers) for each in self._identities()), default=0)

    def _identities(self) -> Iterator[DirectoryIdentity]:
        """The identities of the formatted data directories. A broker that joins formats its own."""
        for place in self.places:
            disk = PosixDisk(str(self.data_path(place.node)))
            if is_formatted(disk):
                yield read_identity(disk)

    def log_path(self, node: int) -> Path:
        """The file with a broker's output."""
        return self.files.log_path(node)

    def data_path(self, node: int) -> Path:
        """A broker's data directory."""
        return self.files.data_path(node)

    @property
    def faults_path(self) -> Path:
        """Where brokers under test keep their faults."""
        return self.directory / FAULTS_FOLDER

    def last_lines(self, node: int) -> str:
        """The end of a broker's output."""
        return self.files.last_lines(node)

    def save(self) -> None:
        """Write the state file, by which other processes know the cluster."""
        state = {
            "bootstrap_servers": self.bootstrap_servers,
            "settings": self.settings,
            "brokers": [
                {
                    **attrs.asdict(place),
                    "pid": _pid(self.processes.get(place.node)) or self.others.get(place.node),
                }
                for place in self.places
            ],
        }
        write_state(self.directory, state)


def _pid(process: BrokerProcess | None) -> int | None:
    return process.pid if process is not None and process.poll() is None else None


# --- founding -------------------------------------------------------------------------------------


def found(
    directory: Path,
    *,
    brokers: int = 3,
    controllers: int | None = None,
    port: int = 0,
    settings: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    detached: bool = False,
    ends_with_parent: bool = False,
) -> LocalCluster:
    """Make a cluster's directory, or take up the one that is there with the same brokers or more.

    `controllers` is 1 or 3 (3 when there are three brokers or more), and stays what it was. Nothing
    is started yet. `OperatingError` when the directory's brokers run. `LocalMisuse` for a setting
    that brokers cannot share.
    """
    for name in settings or {}:
        if name in _OF_ONE_BROKER:
            raise LocalMisuse(
                f"{name} cannot be set for all brokers of a local cluster",
                do="leave it out, or start each broker by raftlog serve",
            )
    _make_folder(directory)
    before = _places_before(directory, brokers)
    places = _places(brokers, port, before)
    cluster = LocalCluster(
        directory,
        places,
        dict(settings or {}),
        dict(environment or {}),
        detached,
        ends_with_parent,
    )
    voters = cluster.founded_controllers or controllers or (3 if brokers >= 3 else 1)
    if controllers not in (None, voters):
        what = f"{amount(controllers, 'controller')} of a cluster that was founded with {voters}"
        raise LocalMisuse(what, on=str(directory))
    if not 1 <= voters <= brokers:
        raise LocalMisuse(f"{amount(voters, 'controller')} of {amount(brokers, 'broker')}")
    secret = directory / SECRET_FILE
    if not secret.exists():
        descriptor = os.open(secret, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(OsEntropy().bytes(32).hex() + "\n")
    shutil.rmtree(cluster.faults_path, ignore_errors=True)
    # Controllers may have changed since the cluster was founded, and all ports may have: then no
    # registered address is right, and only these lead the present controllers to each other.
    named = places if cluster.founded_controllers else places[:voters]
    _format(cluster, [place.node for place in places[:voters]])
    for place in places:
        _write(cluster, place, named)
    cluster.save()
    return cluster


def _make_folder(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OperatingError(
            f"cannot make the folder of a cluster: {error.strerror}",
            on=str(directory),
            do="choose a folder that is new, or one that an earlier cluster has left",
        ) from error


def _places_before(directory: Path, brokers: int) -> dict[int, BrokerPlace]:
    """Where the brokers of this directory listened last; {} when it has none."""
    if not (directory / STATE_FILE).exists():
        return {}
    names = [field.name for field in attrs.fields(BrokerPlace)]
    told = load_state(directory)["brokers"]
    places = [BrokerPlace(**{name: int(each[name]) for name in names}) for each in told]
    running = [place.node for place in places if is_locked(f"{directory}/broker{place.node}")]
    if running:
        # Their configuration would be written over, and `raftlog down` would know them no more.
        raise OperatingError(
            f"brokers {', '.join(str(node) for node in running)} are running already",
            on=str(directory),
            do=f"stop them (raftlog down --dir {directory}), or choose another directory and "
            "other ports",
        )
    if brokers < len(places):
        raise LocalMisuse(
            f"{amount(brokers, 'broker')} of a cluster that has {len(places)}",
            on=str(directory),
            do=f"start it with {len(places)}, or choose another directory",
        )
    return {place.node: place for place in places}


def _places(brokers: int, port: int, before: Mapping[int, BrokerPlace]) -> tuple[BrokerPlace, ...]:
    """`before` counts when no port is asked for: clients may still know the old ones. Brokers keep
    their numbers, among which removed ones leave gaps."""
    nodes = sorted(before)
    nodes += range(max(nodes, default=0) + 1, max(nodes, default=0) + 1 + brokers - len(nodes))
    if port == 0:
        none = (None, None, None)
        old = [before[node].ports if node in before else none for node in nodes]
        ports = iter(kept_or_free(each for of_node in old for each in of_node))
    else:
        ports = iter(
            base + node - 1
            for node in nodes
            for base in (port, port + PEER_PORTS_FROM, port + ADMIN_PORTS_FROM)
        )
    return tuple(
        BrokerPlace(
            node=node, client_port=next(ports), peer_port=next(ports), admin_port=next(ports)
        )
        for node in nodes
    )


def _format(cluster: LocalCluster, voters: list[int]) -> None:
    """Found the cluster in its empty data directories, all or none of them: a directory that is
    missing beside formatted ones was wiped, and its broker comes back as a joiner."""
    disks = {place.node: PosixDisk(str(cluster.data_path(place.node))) for place in cluster.places}
    if any(is_formatted(disk) for disk in disks.values()):
        return
    entropy = OsEntropy()
    identity = ClusterId(entropy.bytes(16))
    directories = {node: DirectoryId(1 + entropy.below(2**64 - 1)) for node in disks}
    founders = tuple(ReplicaId(NodeId(node), directories[node], ReplicaEpoch(0)) for node in voters)
    for node, disk in disks.items():
        make_data_directory(str(cluster.data_path(node)))
        format_directory(
            disk,
            DirectoryIdentity(
                cluster=identity,
                node=NodeId(node),
                directory=directories[node],
                controllers=founders,
                sealed=True,
            ),
        )


def write_properties(cluster: LocalCluster, place: BrokerPlace) -> None:
    """Write the configuration of a broker that joins a cluster, which was founded."""
    _write(cluster, place, tuple(each for each in cluster.places if each.node != place.node))


def _write(cluster: LocalCluster, place: BrokerPlace, controllers: tuple[BrokerPlace, ...]) -> None:
    path = cluster.files.config_path(place.node)
    path.write_text(_properties(cluster, place, controllers))


def _properties(
    cluster: LocalCluster, place: BrokerPlace, controllers: tuple[BrokerPlace, ...]
) -> str:
    voters = ",".join(f"{each.node}@{HOST}:{each.peer_port}" for each in controllers)
    settings = {
        "node.id": str(place.node),
        "log.dirs": str(cluster.data_path(place.node)),
        "listeners": f"PLAINTEXT://{HOST}:{place.client_port}",
        "raftlog.peer.listener": f"{HOST}:{place.peer_port}",
        "raftlog.admin.listener": f"{HOST}:{place.admin_port}",
        "raftlog.cluster.secret.file": str(cluster.directory / SECRET_FILE),
        "controller.quorum.voters": voters,
        "default.replication.factor": str(min(3, len(cluster.places))),
        "offsets.topic.num.partitions": "4",
        **_kept_for_ever(cluster.settings),
        **_shared_faults(cluster),
        **cluster.settings,
    }
    return "".join(f"{key} = {value}\n" for key, value in settings.items())


def _kept_for_ever(settings: Mapping[str, str]) -> dict[str, str]:
    """A cluster for tests and first steps deletes nothing by age unless its user asks for it, in
    whichever of Kafka's units: records that a test stamps with a year of old must still be there.
    `log.retention.ms` would win over the two others, so it is left out beside them."""
    asked = any(f"log.retention.{unit}" in settings for unit in ("ms", "minutes", "hours"))
    return {} if asked else {"log.retention.ms": "-1"}


def _shared_faults(cluster: LocalCluster) -> dict[str, str]:
    """Brokers under test keep their faults together, so that "once" means once in the cluster."""
    if cluster.settings.get(FAULTS, "").lower() != "true":
        return {}
    return {FAULTS_DIRECTORY: str(cluster.faults_path)}

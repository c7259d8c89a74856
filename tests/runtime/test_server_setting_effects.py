"""Each honoured broker setting about ports, files and connections, with two values: servers that
were started with either differ in what a user sees from outside.
"""

import shutil
import socket
import tempfile
import threading
from contextlib import ExitStack, contextmanager, suppress

import attrs
import pytest
import trio

from raftlog.base.errors import ConfigError
from raftlog.base.ids import ClusterId, DirectoryId, NodeId, ReplicaEpoch, ReplicaId
from raftlog.base.trace import ListTracer
from raftlog.cli.serve import _recordings
from raftlog.kafka.codec import decode_response, encode_request
from raftlog.kafka.messages.api_versions import ApiVersionsRequest
from raftlog.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from raftlog.kafka.versions import ApiKey
from raftlog.metadata.settings.topic_configs import BROKER_DEFAULT_NAMES
from raftlog.runtime import server
from raftlog.runtime.real_ports import PosixDisk, make_data_directory
from raftlog.runtime.settings.config_keys import SETTINGS
from raftlog.storage.directories.data_dir import DirectoryIdentity, format_directory
from raftlog.testing.faults import faults_of
from tests.runtime.setting_effects import judged
from tests.runtime.test_broker_setting_effects import EFFECTS as DECISIONS
from tests.runtime.test_broker_setting_effects import Effect
from tests.runtime.test_group_setting_effects import EFFECTS as OF_GROUPS

PATIENCE_S = 20.0
ONE = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "raftlog.peer.listener": "127.0.0.1:0",
    "controller.quorum.voters": "1@127.0.0.1:1",
    "raftlog.raft.election.timeout.ms": "300",
}


@attrs.define
class Running:
    """A server and where it listens."""

    ports: tuple[int, ...]
    peer_port: int
    admin_port: int | None
    tracer: ListTracer


@contextmanager
def serving(secret, settings, *, founds=True):
    """A server that was started with the settings, in a thread of its own. One that founds no
    cluster is not waited for: it joins or says that it cannot."""
    data = tempfile.mkdtemp(dir=secret.parent)
    config = judged(secret, {**ONE, "log.dirs": data, **settings})
    if founds:
        found(config)
    life = _Life(config)
    thread = threading.Thread(target=trio.run, args=(life.run,), daemon=True)
    thread.start()
    try:
        assert life.begun.wait(PATIENCE_S), "the thread does not run"
        if not founds:
            yield Running((), 0, None, life.tracer)
            return
        assert life.listening.wait(PATIENCE_S), "not started"
        at = life.started
        yield Running(at.client_ports, at.peer_port, at.admin_port, life.tracer)
    finally:
        life.end()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


class _Life:
    """One server from its start to its end, in a trio loop of its own."""

    def __init__(self, config):
        self.config = config
        self.tracer = ListTracer()
        self.begun, self.listening = threading.Event(), threading.Event()
        self.token = self.scope = self.started = None

    async def run(self):
        self.token = trio.lowlevel.current_trio_token()
        with trio.CancelScope() as self.scope:
            self.begun.set()
            await server.serve(
                self.config,
                tracer=self.tracer,
                started=self._started,
                own_process=False,
                faults=faults_of(self.config) if self.config.faults.on else None,
            )

    def _started(self, told):
        self.started = told
        self.listening.set()

    def end(self):
        with suppress(trio.RunFinishedError):
            trio.from_thread.run_sync(self.scope.cancel, trio_token=self.token)


def found(config):
    """Format the data directory of a cluster of one controller."""
    node, directory = config.broker.node, DirectoryId(7)
    founders = (ReplicaId(node, directory, ReplicaEpoch(0)),)
    make_data_directory(config.data_dir)
    identity = DirectoryIdentity(
        cluster=ClusterId(b"c" * 16), node=NodeId(node), directory=directory, controllers=founders
    )
    format_directory(PosixDisk(config.data_dir), identity)


class Caller:
    """A Kafka client of one connection."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self.number = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def ask(self, api_key, body, version):
        self.number += 1
        parts = encode_request(api_key, version, self.number, "effects", body)
        self.socket.sendall(b"".join(bytes(part) for part in parts))
        frame = self.read(int.from_bytes(self.read(4), "big"))
        return decode_response(api_key, version, frame).body

    def read(self, count):
        data = b""
        while len(data) < count:
            part = self.socket.recv(count - len(data))
            if not part:
                raise ConnectionResetError("the broker hung up")
            data += part
        return data

    def is_served(self):
        try:
            return self.ask(ApiKey.API_VERSIONS, ApiVersionsRequest("x", "1"), 3).error_code == 0
        except OSError:
            return False


def brokers(running):
    """Returns the brokers that Metadata names, once there is one."""
    with Caller(running.ports[0]) as caller:
        found = ()
        while not found:
            found = caller.ask(ApiKey.METADATA, MetadataRequest([]), 12).brokers
        return found


def with_server(see, **settings):
    def look(secret, told):
        with serving(secret, {**settings, **told}) as running:
            return see(running)

    return look


def node_of(running):
    return brokers(running)[0].node_id


def told_address(running):
    return brokers(running)[0].host, brokers(running)[0].port


def count_of_client_ports(running):
    return len(running.ports)


def has_metrics(running):
    if running.admin_port is None:
        return False
    with socket.create_connection(("127.0.0.1", running.admin_port), PATIENCE_S) as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        return connection.recv(100).startswith(b"HTTP/1.1 200")


def peer_hosts(running):
    """On which addresses of the loopback interface peers are awaited."""
    return [host for host in ("127.0.0.1", "127.0.0.2") if listens(host, running.peer_port)]


def client_hosts(running):
    return [host for host in ("127.0.0.1", "127.0.0.2") if listens(host, running.ports[0])]


def listens(host, port):
    try:
        with socket.create_connection((host, port), timeout=PATIENCE_S) as connection:
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(1000):
                continue
    except ConnectionRefusedError:
        return False
    return True


def takes_a_request_of_100_kb(running):
    with Caller(running.ports[0]) as caller:
        topics = [MetadataRequestTopic(name=f"{number:0200}") for number in range(500)]
        try:
            caller.ask(ApiKey.METADATA, MetadataRequest(topics, False), 12)
        except OSError:
            return False
        return True


def serves_a_second_connection(running):
    with Caller(running.ports[0]) as first:
        assert first.is_served()
        with Caller(running.ports[0]) as second:
            return second.is_served()


def hangs_up_on_the_idle(running):
    """The bound is twice the setting, and a broker looks now and then."""
    with Caller(running.ports[0]) as caller:
        assert caller.is_served()
        caller.socket.settimeout(6)
        try:
            return caller.socket.recv(1) == b""
        except TimeoutError:
            return False


def where_records_lie(setting):
    """The directory that the setting names holds what the broker writes, the other one nothing."""

    def look(secret, told):
        named = {"log.dirs": None, setting: str(secret.parent / told[setting])}
        with serving(secret, named):
            found = [name for name in ("a", "b") if list((secret.parent / name).glob("*"))]
        for name in found:
            shutil.rmtree(secret.parent / name)
        return found

    return look


def is_started(secret, told):
    try:
        with serving(secret, {"listeners": "INSIDE://127.0.0.1:0", **told}) as running:
            return brokers(running)[0].node_id == 1
    except ConfigError:
        return False


def joins(second_of):
    """Whether a second broker becomes one of the cluster, started with what `second_of` makes of
    the first one and of the setting's value. It says when it fails."""

    def look(secret, told):
        (value,) = told.values()
        with serving(secret, {}) as first:
            settings = {"node.id": "2", **second_of(first, secret, value)}
            with (
                serving(secret, settings, founds=False) as second,
                Caller(first.ports[0]) as caller,
            ):
                while not [e for e in second.tracer.events if e.name == "join-failed"]:
                    nodes = caller.ask(ApiKey.METADATA, MetadataRequest([]), 12).brokers
                    if [each.node_id for each in nodes] == [1, 2]:
                        return True
                return False

    return look


def with_route(first, secret, value):
    return {"raftlog.peer.routes": value and f"1@127.0.0.1:{first.peer_port}"}


def with_secret(first, secret, value):
    path = secret.parent / "second-secret"
    path.write_text(f"{value}\n")
    path.chmod(0o600)
    return {
        "raftlog.cluster.secret.file": str(path),
        "raftlog.peer.routes": f"1@127.0.0.1:{first.peer_port}",
    }


def with_other_secret(first, secret, value):
    """It has a new secret, and the cluster's one as the other."""
    path = secret.parent / "new-secret"
    path.write_text("a-new-secret-of-25-bytes\n")
    path.chmod(0o600)
    return {
        "raftlog.cluster.secret.file": str(path),
        "raftlog.cluster.secret.other.file": value and str(secret),
        "raftlog.peer.routes": f"1@127.0.0.1:{first.peer_port}",
    }


def takes_plain_links(secret, told):
    """Whether a broker answers the hello of the last release."""
    path = secret.parent / "long-secret"
    path.write_text("a-secret-of-enough-bytes-for-a-seal\n")
    path.chmod(0o600)
    settings = {**told, "raftlog.cluster.secret.file": str(path)}
    with serving(secret, settings) as running:
        address = ("127.0.0.1", running.peer_port)
        with socket.create_connection(address, timeout=PATIENCE_S) as asking:
            asking.sendall(b"raftlogP" + bytes(32))
            return asking.recv(8) == b"raftlogP"


ADDRESS = "127.0.0.1:0"
TWO = f"PLAINTEXT://{ADDRESS},INSIDE://{ADDRESS}"
MAP = {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT"}


def serves_faults(running):
    with socket.create_connection(("127.0.0.1", running.admin_port), timeout=PATIENCE_S) as asking:
        asking.sendall(b"GET /faults HTTP/1.1\r\nHost: h\r\n\r\n")
        return asking.recv(4096).startswith(b"HTTP/1.1 200")


def faults_after_a_restart(secret, told):
    """A folder is named from where the test's files lie."""
    folder = told["raftlog.testing.faults.directory"]
    path = folder and tempfile.mkdtemp(dir=secret.parent)
    settings = {"raftlog.testing.faults": "true", "raftlog.testing.faults.directory": path}
    config = judged(secret, {**ONE, **settings})
    room = faults_of(config).room
    room.install({"do": "full_disk"})
    return len(faults_of(config).room.listed())


def records(secret, told):
    with ExitStack() as stack:
        return _recordings(judged(secret, {**ONE, **told}), stack) is not None


EFFECTS = {
    "advertised.listeners": Effect(
        with_server(told_address),
        {"PLAINTEXT://one:1111": ("one", 1111), "PLAINTEXT://two:2222": ("two", 2222)},
    ),
    "broker.id": Effect(with_server(node_of, **{"node.id": None}), {"1": 1, "7": 7}),
    "connections.max.idle.ms": Effect(
        with_server(hangs_up_on_the_idle), {"1000": True, "600000": False}
    ),
    "controller.listener.names": Effect(
        with_server(count_of_client_ports, listeners=TWO, **MAP), {"": 2, "INSIDE": 1}
    ),
    "listener.security.protocol.map": Effect(
        is_started, {"INSIDE:PLAINTEXT": True, "INSIDE:SSL": False}
    ),
    "listeners": Effect(
        with_server(client_hosts),
        {
            "PLAINTEXT://127.0.0.1:0": ["127.0.0.1"],
            "PLAINTEXT://127.0.0.2:0": ["127.0.0.2"],
        },
    ),
    "log.dir": Effect(where_records_lie("log.dir"), {"a": ["a"], "b": ["b"]}),
    "log.dirs": Effect(where_records_lie("log.dirs"), {"a": ["a"], "b": ["b"]}),
    "max.connections": Effect(with_server(serves_a_second_connection), {"1": False, "2": True}),
    "node.id": Effect(with_server(node_of), {"1": 1, "7": 7}),
    "raftlog.admin.listener": Effect(with_server(has_metrics), {"": False, ADDRESS: True}),
    "raftlog.cluster.secret.file": Effect(
        joins(with_secret), {"0123456789abcdef": True, "another-secret-of-24": False}
    ),
    "raftlog.cluster.secret.other.file": Effect(
        joins(with_other_secret), {"the cluster's": True, "": False}
    ),
    "raftlog.peer.listener": Effect(
        with_server(peer_hosts), {ADDRESS: ["127.0.0.1"], "127.0.0.2:0": ["127.0.0.2"]}
    ),
    "raftlog.peer.routes": Effect(joins(with_route), {"to the first": True, "": False}),
    "raftlog.peer.seal": Effect(takes_plain_links, {"allowed": True, "required": False}),
    "raftlog.testing.faults": Effect(
        with_server(serves_faults, **{"raftlog.admin.listener": ADDRESS}),
        {"false": False, "true": True},
    ),
    "raftlog.testing.faults.directory": Effect(faults_after_a_restart, {"": 0, "f": 1}),
    "raftlog.recordings.directory": Effect(records, {"": False, "there": True}),
    "socket.request.max.bytes": Effect(
        with_server(takes_a_request_of_100_kb), {"65536": False, "1048576": True}
    ),
}


def test_every_honoured_setting_shows_its_effect_in_one_of_three_tables():
    """Settings of topics show theirs in a table of their own, by their names for brokers, too.
    One choice is no setting yet."""
    shown = {**EFFECTS, **DECISIONS, **OF_GROUPS}
    honoured = [
        name
        for name, setting in SETTINGS.items()
        if name not in BROKER_DEFAULT_NAMES and len(setting.choices) != 1
    ]
    assert sorted(shown) == sorted(honoured)
    assert len(shown) == len(EFFECTS) + len(DECISIONS) + len(OF_GROUPS)


@pytest.mark.parametrize("setting", EFFECTS)
def test_servers_started_with_two_values_differ(setting, secret):
    effect = EFFECTS[setting]
    seen = {value: effect.see(secret, {setting: value}) for value in effect.values}
    assert seen == effect.values

"""A configuration is judged before anything starts, and errors name line, key and what to do."""

import os

import pytest

from raftlog.base.errors import ConfigError
from raftlog.base.units import millis
from raftlog.runtime.settings import config_file
from raftlog.runtime.settings.config_file import parse_properties
from tests.tidy.tree import ROOT

GOOD = """
# a broker
node.id = 2
log.dirs=/somewhere/data
listeners: PLAINTEXT://127.0.0.1:9093
raftlog.peer.listener = 127.0.0.1:9193
controller.quorum.voters = 1@127.0.0.1:9192,\\
    2@127.0.0.1:9193,3@127.0.0.1:9194
num.network.threads = 3
log.segment.bytes = 1048576
default.replication.factor = 3
"""


@pytest.fixture
def secret(tmp_path):
    path = tmp_path / "secret"
    path.write_bytes(b"0123456789abcdef\n")
    path.chmod(0o600)
    return path


def judged(text: str, secret):
    text += f"raftlog.cluster.secret.file = {secret}\n"
    return config_file.judge(parse_properties(text, "server.properties"), "server.properties")


def test_a_whole_file(secret):
    config = judged(GOOD, secret)
    assert config.broker.node == 2
    assert (config.data_dir, config.further_dirs) == ("/somewhere/data", ())
    assert [(each.name, each.host, each.port) for each in config.bind] == [
        ("PLAINTEXT", "127.0.0.1", 9093)
    ]
    assert config.peer_bind == ("127.0.0.1", 9193)
    assert [each.node for each in config.broker.controllers] == [1, 2, 3]
    assert config.broker.heartbeat_ns == millis(100)
    assert config.broker.topic_defaults == (("segment.bytes", "1048576"),)
    assert config.ignored == ("num.network.threads",)
    assert config.secrets == (b"0123456789abcdef",)
    assert config.admin_bind is None
    assert config.loopback_only()


def test_a_session_just_longer_than_a_heartbeat_is_taken(secret):
    config = judged(GOOD + "broker.session.timeout.ms = 101\n", secret)
    assert config.broker.session_ns == millis(101)


def test_a_broker_that_votes_for_no_controller_says_so(secret):
    text = GOOD.replace("node.id = 2", "node.id = 4").replace("9193\n", "9199\n", 1)
    assert judged(text + "process.roles = broker\n", secret).broker.node == 4
    with pytest.raises(ConfigError, match="does not name this broker"):
        judged(text + "process.roles = broker, controller\n", secret)


def test_the_peer_listener_may_be_the_controller_listener(secret):
    text = GOOD.replace("raftlog.peer.listener = 127.0.0.1:9193", "").replace(
        "PLAINTEXT://127.0.0.1:9093", "PLAINTEXT://:9093,CONTROLLER://:9193"
    )
    config = judged(text + "controller.listener.names = CONTROLLER\n", secret)
    assert config.peer_bind == ("127.0.0.1", 9193)
    assert [each.name for each in config.bind] == ["PLAINTEXT"]


def test_routes_say_where_this_broker_reaches_others(secret):
    config = judged(GOOD + "raftlog.peer.routes = 1@127.0.0.1:7001, 3@proxy:7003\n", secret).broker
    assert config.route_to(config.controllers[0]) == (1, "127.0.0.1", 7001)
    assert config.route_to(config.controllers[1]) == config.controllers[1]
    assert config.route_to(config.controllers[2]) == (3, "proxy", 7003)
    assert config.peer == config.controllers[1], "what others are told stays"


@pytest.mark.parametrize("routes", ["1@x", "x", "1@h:1,1@h:2", "1@h:99999"])
def test_routes_that_lead_nowhere_are_refused(secret, routes):
    with pytest.raises(ConfigError, match=r"raftlog\.peer\.routes"):
        judged(GOOD + f"raftlog.peer.routes = {routes}\n", secret)


KAFKAS_OWN_FILE = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,\\
SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""
"""The settings of the server.properties that comes with Kafka 4."""


def test_kafkas_own_file_starts_when_voters_and_secret_are_added(secret):
    """It did not: controller.quorum.bootstrap.servers was no known name. Clients were told of the
    controllers' listener."""
    config = judged(KAFKAS_OWN_FILE + "controller.quorum.voters=1@localhost:9093\n", secret)
    assert [each.name for each in config.bind] == ["PLAINTEXT"]
    assert [(each.name, each.port) for each in config.broker.listeners] == [("PLAINTEXT", 9092)]
    assert config.peer_bind == ("127.0.0.1", 9093)
    assert "controller.quorum.bootstrap.servers" in config.ignored
    assert "log.retention.check.interval.ms" not in config.ignored


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("node.id = 2", "node.idd = 2", ["line 3", "node.idd", "did you mean node.id?"]),
        ("node.id = 2", "", ["node.id is not set"]),
        ("node.id = 2", "node.id = two", ["line 3", "'two' is not a whole number"]),
        ("node.id = 2", "node.id = -1", ["outside 0 to"]),
        ("node.id = 2", "node.id 2", ["line 3", "has no '='"]),
        ("node.id = 2", "node.id = 2\nnode.id = 3", ["line 4", "set twice", "line 3"]),
        ("1@127.0.0.1:9192", "1@127.0.0.1", ["line 7", "not host:port"]),
        ("1@127", "3@127", ["a broker is named twice"]),
        ("PLAINTEXT://127", "SSL://127", ["line 5", "wants SSL"]),
        ("PLAINTEXT://127.0.0.1:9093", "127.0.0.1:9093", ["NAME://host:port"]),
        ("raftlog.peer.listener = 127.0.0.1:9193", "", ["raftlog.peer.listener"]),
        ("num.network.threads = 3", "num.network.threads = few", ["is not a whole number"]),
        ("num.network.threads = 3", "process.roles = server", ["names no role"]),
        ("num.network.threads = 3", "process.roles = controller", ["a controller alone"]),
        ("num.network.threads = 3", "process.roles = broker", ["voters names this broker"]),
        ("num.network.threads = 3", "max.connections.per.ip = 9", ["only max.connections is"]),
        ("num.network.threads = 3", "log.local.retention.ms = 5", ["there is no remote storage"]),
        ("num.network.threads = 3", "log.retention.hour = 1", ["did you mean log.retention.hours"]),
        ("=/somewhere/data", "=/one,/two,/one", ["line 4", "one directory", "name each"]),
        ("=/somewhere/data", "=/one,,/two", ["line 4", "a path of log.dirs is empty"]),
        (
            "=/somewhere/data",
            "=" + ",".join(map("/{}".format, range(65))),
            ["line 4", "at most 64"],
        ),
        ("num.network.threads = 3", "auto.create.topics.enable = yes", ["neither true nor false"]),
        (
            "num.network.threads = 3",
            "raftlog.raft.election.timeout.ms = 150",
            ["too near a heartbeat"],
        ),
        (
            "num.network.threads = 3",
            "broker.session.timeout.ms = 100",
            ["broker.session.timeout.ms = 100", "raftlog.raft.heartbeat.ms = 100", "line 9"],
        ),
        ("log.segment.bytes = 1048576", "log.segment.bytes = big", ["line 10", "whole number"]),
        ("num.network.threads = 3", "raftlog.read.consistency = strong", ["is none of committed"]),
    ],
)
def test_errors_say_where_and_what(secret, old, new, words):
    text = GOOD.replace(old, new)
    assert text != GOOD
    with pytest.raises(ConfigError) as caught:
        judged(text, secret)
    for word in words:
        assert word in str(caught.value)
    assert caught.value.on.startswith("server.properties")
    assert caught.value.do, "what to do about it"


def test_every_bound_is_said_with_its_default(secret):
    with pytest.raises(ConfigError) as caught:
        judged(GOOD + "num.partitions = -1\n", secret)
    assert caught.value.on == "server.properties, line 12, num.partitions"
    assert caught.value.do == "set it to a number from 1 to 10000; 1 is the default"


def test_the_page_of_settings_that_errors_name_is_there(secret):
    with pytest.raises(ConfigError) as caught:
        judged(GOOD + "zzzzzz = 1\n", secret)
    page = caught.value.do.split()[0]
    assert (ROOT / page).is_file(), page
    assert "`num.partitions`" in (ROOT / page).read_text()


def test_a_secret_that_others_can_read_is_refused(secret):
    secret.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        judged(GOOD, secret)


def test_a_short_secret_is_refused(secret):
    secret.write_bytes(b"short")
    with pytest.raises(ConfigError, match="at least 16"):
        judged(GOOD, secret)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere\.properties"):
        config_file.load(str(tmp_path / "nowhere.properties"))


def test_settings_of_the_command_line_win(tmp_path, secret):
    path = tmp_path / "server.properties"
    path.write_text(GOOD + f"raftlog.cluster.secret.file = {secret}\n")
    config = config_file.load(str(path), {"node.id": "3", "num.partitions": "7"})
    assert config.broker.node == 3
    assert config.broker.partitions_default == 7
    with pytest.raises(ConfigError, match=r"--set nmu\.partitions"):
        config_file.load(str(path), {"nmu.partitions": "7"})


def test_a_secret_of_another_user_is_refused(secret):
    """Its owner can change it, whatever its mode."""
    try:
        os.chown(secret, 12345, -1)
    except PermissionError:
        pytest.skip("only root gives files away")
    with pytest.raises(ConfigError, match="belongs to another user"):
        judged(GOOD, secret)


def test_a_secret_may_be_a_link_and_no_fifo(secret, tmp_path):
    """Kubernetes shows secrets by links; reading a FIFO would wait for its writer."""
    link = tmp_path / "link"
    link.symlink_to(secret)
    assert judged(GOOD, link).secrets == (b"0123456789abcdef",)
    os.mkfifo(tmp_path / "fifo", 0o600)
    with pytest.raises(ConfigError, match="it is a FIFO"):
        judged(GOOD, tmp_path / "fifo")


def test_two_secrets_are_read_while_the_cluster_changes_from_one_to_the_other(secret, tmp_path):
    other = tmp_path / "other"
    text = GOOD + f"raftlog.cluster.secret.other.file = {other}\n"
    with pytest.raises(ConfigError, match=r"raftlog\.cluster\.secret\.other\.file"):
        judged(text, secret)
    other.write_bytes(b"fedcba9876543210\n")
    with pytest.raises(ConfigError, match="chmod 600"):
        judged(text, secret)
    other.chmod(0o600)
    assert judged(text, secret).secrets == (b"0123456789abcdef", b"fedcba9876543210")
    other.write_bytes(secret.read_bytes())
    with pytest.raises(ConfigError, match="both files hold the same secret"):
        judged(text, secret)


def test_the_seal_is_allowed_required_or_left_to_the_data_directory(secret):
    for value in ("", "allowed", "required"):
        assert judged(GOOD + f"raftlog.peer.seal = {value}\n", secret).peer_seal == value
    assert judged(GOOD, secret).peer_seal == ""
    with pytest.raises(ConfigError, match="allowed or required"):
        judged(GOOD + "raftlog.peer.seal = off\n", secret)

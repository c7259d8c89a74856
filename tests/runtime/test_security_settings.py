"""A broker that is told to be secure, and is not, does not start.

The fault: `security.inter.broker.protocol=SSL`, `listeners=ssl://...` and `Sasl_Ssl://...` started
in plaintext, because one was listed as "without a meaning" and protocols were compared letter by
letter. Every name of the table is checked for the whole kind of fault.
"""

import pytest

from raftlog.base.errors import ConfigError
from raftlog.runtime.settings.security_settings import DEFAULT_PROTOCOL_MAP, NO_OPS
from tests.runtime.test_config_file import GOOD, judged

KAFKA_MAP = (
    "listener.security.protocol.map = CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,"
    "SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL\n"
)
"""The line of the `server.properties` that Kafka ships."""


@pytest.fixture
def secret(tmp_path):
    path = tmp_path / "secret"
    path.write_bytes(b"0123456789abcdef\n")
    path.chmod(0o600)
    return path


@pytest.mark.parametrize("name", NO_OPS)
def test_what_asks_for_nothing_is_accepted(name, secret):
    default = NO_OPS[name]
    for value in ("", default, default.upper()):
        assert judged(GOOD + f"{name} = {value}\n", secret).broker.node == 2


def test_faults_on_demand_are_refused_beyond_loopback(secret):
    on = GOOD + "raftlog.testing.faults = true\n"
    assert judged(on, secret).broker.node == 2
    for listener in ("0.0.0.0:9093", "192.0.2.7:9093"):
        reachable = on.replace("PLAINTEXT://127.0.0.1:9093", f"PLAINTEXT://{listener}")
        with pytest.raises(ConfigError, match="must not fail on demand"):
            judged(reachable, secret)


@pytest.mark.parametrize("prefix", ["", "listener.name.internal.", "listener.name.a.plain."])
@pytest.mark.parametrize("name", NO_OPS)
def test_anything_else_stops_the_start(name, prefix, secret):
    with pytest.raises(ConfigError, match="asks for security") as caught:
        judged(GOOD + f"{prefix}{name} = strong\n", secret)
    assert caught.value.on == f"server.properties, line 12, {prefix}{name}"
    assert "leave it out" in caught.value.do
    assert "strong" not in str(caught.value), "a password is not shown"


@pytest.mark.parametrize("protocol", ["SSL", "ssl", "Sasl_Ssl", "SASL_PLAINTEXT", "sasl_plaintext"])
@pytest.mark.parametrize("key", ["listeners", "advertised.listeners"])
@pytest.mark.parametrize("kafka_map", ["", KAFKA_MAP])
def test_a_listener_of_another_protocol_stops_the_start(protocol, key, kafka_map, secret):
    text = GOOD.replace("PLAINTEXT://127.0.0.1:9093", f"{protocol}://127.0.0.1:9093")
    if key == "advertised.listeners":
        text = GOOD + f"advertised.listeners = {protocol}://127.0.0.1:9093\n"
    with pytest.raises(ConfigError, match=f"listener {protocol.upper()} wants {protocol.upper()}"):
        judged(text + kafka_map, secret)


def test_a_mapped_listener_of_another_protocol_stops_the_start(secret):
    text = GOOD.replace("PLAINTEXT://", "Internal://")
    with pytest.raises(ConfigError, match="listener INTERNAL wants SASL_SSL"):
        judged(text + "listener.security.protocol.map = internal:sasl_ssl\n", secret)
    with pytest.raises(ConfigError, match="listener PLAINTEXT wants SSL"):
        judged(GOOD + "listener.security.protocol.map = PLAINTEXT:SSL\n", secret)


def test_a_listener_without_a_protocol_stops_the_start(secret):
    with pytest.raises(ConfigError, match="listener TLS has no protocol") as caught:
        judged(GOOD.replace("PLAINTEXT://", "tls://"), secret)
    assert caught.value.do == "add TLS:PLAINTEXT to listener.security.protocol.map"


def test_the_map_of_kafkas_default_file_is_no_wish(secret):
    text = GOOD.replace("PLAINTEXT://127.0.0.1:9093", "PLAINTEXT://:9093,CONTROLLER://:9193")
    text = text.replace("raftlog.peer.listener = 127.0.0.1:9193", "") + KAFKA_MAP
    text += "inter.broker.listener.name = PLAINTEXT\nsecurity.inter.broker.protocol = PLAINTEXT\n"
    config = judged(text + "controller.listener.names = CONTROLLER\n", secret)
    assert [each.name for each in config.bind] == ["PLAINTEXT"]
    assert config.peer_bind.port == 9193
    assert "SASL_SSL:SASL_SSL" in DEFAULT_PROTOCOL_MAP


def test_names_are_in_capitals_as_in_kafka(secret):
    text = GOOD.replace("PLAINTEXT://127.0.0.1:9093", "plaintext://:9093,Control://:9193")
    text = text.replace("raftlog.peer.listener = 127.0.0.1:9193", "")
    config = judged(text + "controller.listener.names = control\n", secret)
    assert [each.name for each in config.bind] == ["PLAINTEXT"]
    with pytest.raises(ConfigError, match="used twice"):
        judged(GOOD.replace("PLAINTEXT://", "plaintext://:1,PLAINTEXT://"), secret)


@pytest.mark.parametrize("protocols", ["PLAINTEXT:TLS", "PLAINTEXT:", "PLAINTEXT"])
def test_a_map_to_no_protocol_is_refused(protocols, secret):
    with pytest.raises(ConfigError, match=r"listener\.security\.protocol\.map"):
        judged(GOOD + f"listener.security.protocol.map = {protocols}\n", secret)

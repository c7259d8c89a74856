"""DescribeConfigs of a broker: every setting of Kafka 4, what it is set to, and what that does."""

import pytest

from raftlog.kafka.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from raftlog.kafka.versions import ApiKey
from raftlog.runtime.settings.config_keys import BROKER_DEFAULT_NAMES, default_of
from tests.runtime.setting_effects import cluster_of
from tests.runtime.test_config_keys import KAFKAS

FILE, DEFAULT = 4, 5


@pytest.fixture
def described(secret):
    settings = {"num.io.threads": "5", "num.partitions": "3", "log.segment.bytes": "1048576"}
    cluster = cluster_of(secret, settings)
    resource = DescribeConfigsResource(4, "1", None)
    body = DescribeConfigsRequest([resource], False, True)
    (result,) = cluster.ask(1, ApiKey.DESCRIBE_CONFIGS, body, 4).results
    found = {line.name: line for line in result.configs}
    assert len(found) == len(result.configs)
    return found


def test_every_setting_of_kafka_4_is_described(described):
    """A topic default is described under the finest of its names."""
    coarser = [n for n in BROKER_DEFAULT_NAMES if default_of(n).broker_names[0][0] != n]
    assert coarser
    assert [name for name in KAFKAS if name not in described] == [n for n in KAFKAS if n in coarser]


def test_where_a_value_comes_from_and_what_it_does(described):
    def told(name):
        line = described[name]
        return line.value, line.config_source, line.documentation.partition(":")[0]

    assert told("num.partitions") == ("3", FILE, "Partitions of a topic made by default.")
    assert told("num.io.threads") == ("5", FILE, "without effect")
    assert told("num.network.threads") == ("3", DEFAULT, "without effect")
    assert told("max.connections.per.ip") == (
        "2147483647",
        DEFAULT,
        "refused away from its default",
    )
    assert told("ssl.client.auth") == ("none", DEFAULT, "refused away from its default")
    assert told("log.segment.bytes")[:2] == ("1048576", FILE)
    assert told("log.preallocate") == ("false", DEFAULT, "without effect")

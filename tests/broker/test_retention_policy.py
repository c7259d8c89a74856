"""Retention asks a topic's cleanup.policy first; judged by what a reader of the topic finds."""

import attrs
import pytest

from raftlog.base.limits import SEGMENT_BYTES_MIN
from raftlog.base.units import millis
from tests.broker.cluster import Cluster

SIZES = (("segment.bytes", str(SEGMENT_BYTES_MIN)), ("retention.bytes", str(SEGMENT_BYTES_MIN)))
POLICIES = {"delete": True, "compact,delete": True, "compact": False}
RECORDS = 12


def cluster_of(topic_defaults=()):
    def configure(config):
        return attrs.evolve(
            config, retention_check_ns=millis(200), topic_defaults=tuple(topic_defaults)
        )

    return Cluster(brokers=1, configure=configure).ready()


def fill(cluster, name, configs):
    cluster.create(name, 1, 1, configs=configs)
    for number in range(RECORDS):
        assert cluster.put(name, ["x" * (SEGMENT_BYTES_MIN // 3)]) == number


def log_start(cluster, name):
    return cluster.fetch(name, RECORDS - 1).log_start_offset


@pytest.mark.parametrize("sizes_of", ["topic", "broker"])
def test_retention_by_size_deletes_only_where_the_policy_says_delete(sizes_of):
    """Story in docs/bugs.md: the keys of a compacted topic were deleted. Topics with the same sizes
    that say `delete` show that retention ran meanwhile."""
    cluster = cluster_of(SIZES if sizes_of == "broker" else ())
    for policy in POLICIES:
        own = SIZES if sizes_of == "topic" else ()
        fill(cluster, policy.replace(",", "-"), [("cleanup.policy", policy), *own])
    cluster.run(3)
    for policy, deletes in POLICIES.items():
        name = policy.replace(",", "-")
        assert (log_start(cluster, name) > 0) == deletes, policy
    assert [offset for offset, _ in cluster.read_all("compact")] == list(range(RECORDS))


def test_a_policy_of_the_broker_forbids_as_well():
    cluster = cluster_of([*SIZES, ("cleanup.policy", "compact")])
    fill(cluster, "kept", ())
    fill(cluster, "trimmed", [("cleanup.policy", "delete")])
    cluster.run(3)
    assert log_start(cluster, "kept") == 0
    assert log_start(cluster, "trimmed") > 0


def test_a_compacted_topic_comes_with_a_warning():
    cluster = Cluster(brokers=3).ready()

    def told(name, factor, policy):
        return cluster.create(name, 1, factor, configs=[("cleanup.policy", policy)]).error_message

    kept = "cleanup.policy=compact: compaction does not run yet; every record is kept"
    deleted = "cleanup.policy=compact,delete: compaction does not run yet; retention still deletes"
    assert told("a", 3, "delete") is None
    assert told("b", 3, "compact") == kept
    assert told("c", 3, "compact,delete") == deleted
    assert told("d", 2, "compact") == (
        f"replication factor 2 survives no more failures than 1; {kept}"
    )

"""`raftlog cluster status`, healthy and not."""

import pytest

from raftlog.client.blocking import BlockingClient
from raftlog.embed.cluster import Cluster

pytestmark = pytest.mark.processes


def test_a_healthy_cluster(on_cluster, cluster):
    with BlockingClient(cluster.bootstrap_servers) as client:
        client.create_topic("healthy", partitions=3)
    cluster.wait_until_healthy()
    ran = on_cluster("cluster", "status")
    assert ran.code == 0
    assert "is healthy" in ran.out
    told = on_cluster("cluster", "status", "--format", "json").json
    assert told["healthy"] is True
    assert told["controller"] in cluster.nodes
    assert [broker["node"] for broker in told["brokers"]] == cluster.nodes
    assert {broker["state"] for broker in told["brokers"]} == {"ok"}
    assert (told["leaderless_count"], told["under_replicated_count"]) == (0, 0)
    assert told["partition_count"] == len(told["partitions"]) >= 3
    watched = on_cluster("cluster", "status", "--watch", "--exit-when-healthy")
    assert watched.code == 0
    lines = on_cluster("cluster", "status", "--watch", "--exit-when-healthy", "--format", "json")
    assert lines.json_lines[-1]["healthy"] is True
    assert on_cluster("cluster", "status", "--exit-when-healthy").code == 64


def test_a_cluster_that_lacks_a_broker(raftlog):
    with Cluster(brokers=3) as cluster:
        with BlockingClient(cluster.bootstrap_servers) as client:
            client.create_topic("t", partitions=3, replication_factor=3)
        cluster.wait_until_healthy()
        cluster.kill(3)
        servers = cluster.bootstrap_servers
        ran = raftlog("cluster", "status", "-b", servers)
        assert ran.code == 1
        assert "NOT healthy" in ran.out
        watched = raftlog(
            "cluster",
            "status",
            "--watch",
            "--exit-when-healthy",
            "--interval",
            "0.2",
            "--timeout",
            "1.5",
            "-b",
            servers,
            "--format",
            "json",
        )
        assert watched.code == 1
        last = watched.json_lines[-1]
        assert last["healthy"] is False
        assert {each["node"]: each["state"] for each in last["brokers"]}[3] in ("fenced", "silent")
        cluster.restart(3)
        healed = raftlog(
            "cluster", "status", "--watch", "--exit-when-healthy", "--timeout", 30, "-b", servers
        )
        assert healed.code == 0


def test_nobody_there(raftlog):
    ran = raftlog(
        "cluster",
        "status",
        "--watch",
        "--exit-when-healthy",
        "--timeout",
        "3",
        "-b",
        "127.0.0.1:1",
    )
    assert ran.code == 1

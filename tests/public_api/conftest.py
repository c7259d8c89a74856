"""A cluster of one broker, and clients that all tests here share and none may end."""

from collections.abc import Iterator

import pytest

from raftlog.client.blocking import BlockingClient
from raftlog.embed.cluster import Cluster
from raftlog.embed.replicated_log import ReplicatedLog
from tests.public_api.calls import OPTIONS


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    settings = {"auto.create.topics.enable": "false"}
    with Cluster(brokers=1, settings=settings) as running:
        yield running


@pytest.fixture(scope="module")
def client(cluster: Cluster) -> Iterator[BlockingClient]:
    with BlockingClient(cluster.bootstrap_servers, **OPTIONS) as opened:
        opened.create_topic("t", partitions=1, replication_factor=1)
        yield opened


@pytest.fixture(scope="module")
def log(cluster: Cluster) -> Iterator[ReplicatedLog]:
    with ReplicatedLog(replicas=1, cluster=cluster) as opened:
        yield opened

"""One cluster and one Spark session for all tests here; topics are named after their tests."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from raftlog.client.blocking import BlockingClient
from raftlog.client.core.errors import KafkaError
from raftlog.embed.cluster import Cluster
from raftlog.kafka.error_codes import ErrorCode


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spark's tests come first. xdist hands each process one stretch of the list and moves what
    lies at the end of it, so one process runs nearly all of them: one JVM, warmed up once."""
    here = Path(__file__).parent
    items.sort(key=lambda item: here not in item.path.parents)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, processes=True) as running:  # simulations share this process
        yield running


@pytest.fixture(scope="session")
def client(cluster: Cluster) -> Iterator[BlockingClient]:
    with BlockingClient(cluster.bootstrap_servers) as opened:
        yield opened


@pytest.fixture(scope="session")
def spark():
    """`local[2]` with a small heap; the compiler is told to be quick rather than thorough."""
    from raftlog.spark.session import local_session

    session = local_session(
        memory="768m",
        spark_driver_extraJavaOptions="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        spark_sql_streaming_pollingDelay="5",
        spark_ui_showConsoleProgress="false",
        # Small data: compiling each query costs more than it saves.
        spark_sql_codegen_wholeStage="false",
        spark_sql_adaptive_enabled="false",
    )
    yield session
    session.stop()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name for this test's topic."""
    kept = [letter if letter.isalnum() else "-" for letter in request.node.name]
    return "".join(kept)[:180]


@pytest.fixture
def read(spark, cluster: Cluster):
    """A reader of this cluster with options."""

    def reader(**options: object):
        source = spark.read.format("raftlog").option(
            "kafka.bootstrap.servers", cluster.bootstrap_servers
        )
        schema = options.pop("schema", None)
        if schema is not None:
            source = source.schema(schema)
        return source.options(**{name: str(value) for name, value in options.items()}).load()

    return reader


@pytest.fixture
def fill(cluster: Cluster):
    """Create a topic and write `count` records into each of its partitions, by a new client: one
    that knew a topic of that name refuses to write to another one."""

    def write(topic: str, *, partitions: int = 2, count: int = 10, replicas: int = 1, **configs):
        with BlockingClient(cluster.bootstrap_servers) as client:
            client.create_topic(
                topic, partitions=partitions, replication_factor=replicas, configs=configs or None
            )
            append(client, topic, partitions=partitions, count=count)
        until_all_tell(cluster, topic, partitions)

    return write


@pytest.fixture
def grow(cluster: Cluster, client: BlockingClient):
    """Give a topic more partitions, and wait until every broker tells of them."""

    def to(topic: str, partitions: int) -> None:
        client.create_partitions(topic, partitions)
        until_all_tell(cluster, topic, partitions)

    return to


@pytest.fixture
def delete(cluster: Cluster, client: BlockingClient):
    """Delete a topic, and wait until no broker tells of it."""

    def topic(name: str) -> None:
        client.delete_topic(name)
        until_all_tell(cluster, name, 0)

    return topic


def until_all_tell(cluster: Cluster, topic: str, partitions: int) -> None:
    """Wait until every broker tells of so many partitions. A reader asks any of them, and what it
    does not hear of it finds with its next trigger; a test has but one."""
    for node in cluster.alive:
        with BlockingClient("{}:{}".format(*cluster.address_of(node))) as one:
            while _told(one, topic) != partitions:
                time.sleep(0.01)


def _told(client: BlockingClient, topic: str) -> int:
    try:
        return len(client.describe(topic).partitions)
    except KafkaError as error:
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        return 0


def append(client, topic, *, partitions, count, start=0, timestamp_ms=1000):
    """Records `start` to `start + count` of each partition; value `p:n`, timestamp by number."""
    for number in range(start, start + count):
        for partition in range(partitions):
            client.send_soon(
                topic,
                b"%d:%d" % (partition, number),
                key=b"k%d" % (number % 3),
                partition=partition,
                timestamp_ms=timestamp_ms + number,
            )
    client.flush()

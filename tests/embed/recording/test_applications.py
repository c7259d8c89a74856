"""Applications of every library, recorded and judged while brokers fail under them."""

import gc
import time
from collections.abc import Iterator

import pytest

from raftlog import verify
from raftlog.base.errors import LocalMisuse
from raftlog.client.blocking import BlockingClient
from raftlog.client.core.asks import LATEST, list_offsets
from raftlog.client.core.values import TopicPartition
from raftlog.embed.cluster import Cluster
from raftlog.embed.recording.history import Recording
from raftlog.embed.recording.operations import RecordedCall
from tests.embed.recording.applications import APPLICATIONS, TOPIC, lines_of, sends_of

pytestmark = [
    pytest.mark.processes,
    pytest.mark.slow,
    pytest.mark.timeout(120),
    # Clients that are ended while their broker stands still leave sockets to the collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """The collector finds those sockets here, and not in whatever test comes later."""
    yield
    gc.collect()


each_application = pytest.mark.parametrize(
    "application", APPLICATIONS, ids=[each.name for each in APPLICATIONS]
)

each_that_gives_up = pytest.mark.parametrize(
    "application", APPLICATIONS[:4], ids=[each.name for each in APPLICATIONS[:4]]
)
"""All but raftlog's trio client, which shares its errors with the blocking one."""


def make_topic(cluster: Cluster, partitions: int = 3) -> None:
    with BlockingClient(cluster.bootstrap_servers) as client:
        client.create_topic(TOPIC, partitions=partitions, replication_factor=len(cluster.nodes))


@each_application
def test_an_application_that_loses_its_leader_is_valid(application, tmp_path):
    path = tmp_path / "history.jsonl"
    values = [f"order {number}" for number in range(20)]
    with Cluster(brokers=3) as cluster, verify.recording(path) as history:
        make_topic(cluster)
        watched = verify.record(cluster, history)
        errors = application.send(history, cluster.bootstrap_servers, values[:10], 30.0)
        watched.kill(cluster.leader_of(TOPIC))
        errors += application.send(history, cluster.bootstrap_servers, values[10:], 30.0)
        assert errors == [None] * 20
        found = application.read(history, cluster.bootstrap_servers, 20)
        assert sorted(found) == sorted(values)
        assert history.read_back(cluster.bootstrap_servers) == 20
    verdict = history.check(report=tmp_path / "report.html")
    assert verdict.classes["lost-write"].status == "valid"
    assert verdict.classes["unseen"].status == "valid"
    assert "<html" in (tmp_path / "report.html").read_text(encoding="utf-8")
    lines = lines_of(path)
    assert [line["f"] for line in lines if line["process"] == "nemesis"] == ["kill"]
    sends = sends_of(path)
    assert list(sends) == values
    assert {tuple(line["type"] for line in each) for each in sends.values()} == {("invoke", "ok")}
    # Keys choose the partitions, so only the answers name them.
    assert {each[0]["key"] for each in sends.values()} == {"orders/?"}
    assert len({each[1]["key"] for each in sends.values()}) > 1


def timed_out(application, path, monkeypatch):
    """A send that is given up while its broker stands still, and is written when it goes on."""
    with Cluster(brokers=1) as cluster, verify.recording(path) as history:
        make_topic(cluster, partitions=1)
        begin = Recording.begin_send

        def begin_and_pause(self, seats, topic, partition, identity):
            begun = begin(self, seats, topic, partition, identity)
            if identity == "late":  # the client is connected, and sends next
                cluster.pause(1)
            return begun

        monkeypatch.setattr(Recording, "begin_send", begin_and_pause)
        servers = cluster.bootstrap_servers
        first, late = application.send(history, servers, ["first", "late"], 2.0)
        assert first is None
        assert late is not None
        cluster.resume(1)
        with BlockingClient(servers) as client:
            place, deadline = TopicPartition(TOPIC, 0), time.monotonic() + 30
            while client.ask(list_offsets(place, LATEST)).offset < 2:
                assert time.monotonic() < deadline, "the broker has not written what it was sent"
                time.sleep(0.02)
        assert history.read_back(servers) == 2
    return history


def test_records_are_told_apart_by_what_record_was_given(tmp_path):
    """The values repeat; the keys do not, and `read_back` knows."""
    with Cluster(brokers=1) as cluster, verify.recording(tmp_path / "h.jsonl") as history:
        make_topic(cluster)
        client = BlockingClient(cluster.bootstrap_servers)
        recorded = verify.record(client, history, identity=lambda record: record.key)
        with recorded:
            for number in range(10):
                recorded.produce(TOPIC, b"the same", key=b"%d" % number)
        assert history.read_back(cluster.bootstrap_servers) == 10
        history.check()
        verify.record(BlockingClient(cluster.bootstrap_servers), history)
        with pytest.raises(LocalMisuse, match="identity="):
            history.read_back(cluster.bootstrap_servers)


@each_that_gives_up
def test_a_timeout_is_info(application, tmp_path, monkeypatch):
    path = tmp_path / "history.jsonl"
    timed_out(application, path, monkeypatch).check()
    kinds = [line["type"] for line in sends_of(path)["late"]]
    assert kinds in (["invoke", "info"], ["invoke"]), kinds


@each_that_gives_up
def test_a_recorder_that_calls_timeouts_failures_is_caught(application, tmp_path, monkeypatch):
    """The record is there in the end, so the judge finds a read of what "failed"."""
    monkeypatch.setattr(RecordedCall, "info", RecordedCall.fail)
    with pytest.raises(AssertionError, match="G1a"):
        timed_out(application, tmp_path / "history.jsonl", monkeypatch).check()

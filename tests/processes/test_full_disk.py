"""A full disk under a live broker: an error by name, nothing lost, and it goes on by itself."""

import pytest

from raftlog.base.errors import RaftlogError
from raftlog.base.units import millis
from raftlog.client.blocking import BlockingClient
from raftlog.client.core.asks import fetch
from raftlog.client.core.values import TopicPartition
from raftlog.runtime.local import cluster as local_cluster

pytestmark = [pytest.mark.processes, pytest.mark.slow]


def test_a_full_disk(tmp_path, monkeypatch):
    control = tmp_path / "control"
    control.write_text("")
    monkeypatch.setenv("RAFTLOG_TEST_DISK", f"control={control}")
    running = local_cluster.found(tmp_path / "data", brokers=1)
    patience = {"delivery_timeout_ns": millis(3_000), "call_timeout_ns": millis(3_000)}
    try:
        running.start_all()
        with BlockingClient(running.bootstrap_servers, **patience) as client:
            client.create_topic("orders", partitions=1, replication_factor=1)
            for number in range(5):
                assert client.produce("orders", b"before %d" % number).offset == number
            control.write_text("full")
            with pytest.raises(RaftlogError):
                client.produce("orders", bytes(500_000))
            control.write_text("")
        assert running.processes[1].poll() is None
        assert "No space left" in (running.directory / "broker1.log").read_text()
        with BlockingClient(running.bootstrap_servers) as client:
            client.produce("orders", b"after")
            piece = client.ask(fetch(TopicPartition("orders", 0), 0, max_wait_ms=500))
            values = [bytes(record.value) for record in piece.records()]
        assert values[:5] == [b"before %d" % number for number in range(5)]
        assert values[-1] == b"after"
        assert len(values) <= 7, "the refused one may be there once"
    finally:
        running.stop()

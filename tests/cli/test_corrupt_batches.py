"""`raftlog consume` before a batch that cannot be read.

The fault: one batch whose count lied, or whose inside was garbage, ended the command before
anything was written, and nothing led past it.
"""

import socket
import struct

import pytest

from raftlog.client.blocking import BlockingClient
from raftlog.client.core import fetcher
from raftlog.kafka import codec
from raftlog.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from raftlog.kafka.versions import ApiKey
from raftlog.records.batch import HEADER, LENGTH_OVERHEAD
from raftlog.records.builder import RecordBatchBuilder
from raftlog.records.compression import GZIP, compress
from tests.records.making import changed, plain_batch, with_body

PRODUCE_VERSION = 9
NOT_LEADER = 6


def produce_raw(servers: str, topic: str, batch: bytes) -> int:
    """Store a batch as it is, at the broker that takes it; the error code of the last one asked."""
    data = TopicProduceData(name=topic, partition_data=(PartitionProduceData(0, batch),))
    body = ProduceRequest(acks=-1, timeout_ms=9_000, topic_data=(data,))
    code = NOT_LEADER
    for server in servers.split(","):
        host, port = server.split(":")
        with socket.create_connection((host, int(port)), timeout=20) as connection:
            frame = codec.encode_request(ApiKey.PRODUCE, PRODUCE_VERSION, 1, "raw", body)
            connection.sendall(b"".join(bytes(part) for part in frame))
            with connection.makefile("rb") as answers:
                (size,) = struct.unpack(">i", answers.read(4))
                response = codec.decode_response(
                    ApiKey.PRODUCE, PRODUCE_VERSION, answers.read(size)
                )
        code = response.body.responses[0].partition_responses[0].error_code
        if code != NOT_LEADER:
            break
    return code


def lying_count() -> bytes:
    builder = RecordBatchBuilder()
    builder.append(b"first and only" + bytes(70), timestamp_ms=1_700_000_000_000)
    return changed(builder.build(), records_count=9, last_offset_delta=8)


def garbage_behind_the_frame() -> bytes:
    good = bytearray(compress(GZIP, plain_batch(9)[HEADER.size :]))
    good[20:30] = b"0123456789"
    return with_body(bytes(good), count=9, codec=GZIP)


@pytest.mark.parametrize("bad", [lying_count, garbage_behind_the_frame])
def test_what_lies_before_a_bad_batch_is_written_and_it_can_be_skipped(bad, cluster, on_cluster):
    topic = bad.__name__.replace("_", "-")
    with BlockingClient(cluster.bootstrap_servers) as client:
        client.create_topic(topic, partitions=1, replication_factor=3)
        for value in (b"one", b"two"):
            client.produce(topic, value)
        assert produce_raw(cluster.bootstrap_servers, topic, bad()) == 0
        client.produce(topic, b"three")
    stopped = on_cluster("consume", topic, "-e", "-f", r"%o\n")
    assert stopped.code == 1
    assert stopped.out.splitlines()[:2] == ["0", "1"], "what lies before it"
    assert "11" not in stopped.out.split(), "nothing from behind it"
    assert "offsets 2 to 10 cannot be read" in stopped.err
    assert "--skip-corrupt" in stopped.err
    skipped = on_cluster("consume", topic, "-e", "--skip-corrupt", "-f", r"%o %s\n")
    assert skipped.code == 0
    assert skipped.out.splitlines()[-1] == "11 three"
    assert "offsets 2 to 10 cannot be read" in skipped.err
    counted = on_cluster("consume", topic, "-c", 2, "-f", r"%o\n")
    assert (counted.code, counted.out) == (0, "0\n1\n"), "who wants no more does not meet it"
    behind = on_cluster("consume", topic, "-o", 11, "-e")
    assert (behind.code, behind.out) == (0, "three\n")


@pytest.fixture
def _rotten_on_the_way(monkeypatch):
    """The batch at offset 2 reaches the client with one bit of its last byte flipped. A broker
    stores no such batch, so it rots behind the broker."""
    real = fetcher.check_batches

    def check(place, asked, data):
        records = bytearray(data.records or b"")
        at = 0
        while at < len(records):
            base, length = struct.unpack_from(">qi", records, at)
            at += LENGTH_OVERHEAD + length
            if base == 2:
                records[at - 1] ^= 1
        return real(place, asked, data._replace(records=memoryview(bytes(records))))

    monkeypatch.setattr(fetcher, "check_batches", check)


@pytest.mark.usefixtures("_rotten_on_the_way")
def test_a_batch_that_fails_its_crc_is_named_and_can_be_skipped(cluster, on_cluster):
    with BlockingClient(cluster.bootstrap_servers) as client:
        client.create_topic("rotten", partitions=1, replication_factor=3)
        for value in (b"zero", b"one", b"two", b"three", b"four"):
            client.produce("rotten", value)
    stopped = on_cluster("consume", "rotten", "-e", "-f", r"%o\n")
    assert (stopped.code, stopped.out) == (1, "0\n1\n"), "what lies before it, and no more"
    assert "it fails its CRC" in stopped.err
    assert "offset 2 cannot be read" in stopped.err
    assert "--skip-corrupt" in stopped.err
    skipped = on_cluster("consume", "rotten", "-e", "--skip-corrupt", "-f", r"%o %s\n")
    assert skipped.code == 0
    assert skipped.out.splitlines() == ["0 zero", "1 one", "3 three", "4 four"]
    assert skipped.err.count("skipped in rotten-0: ") == 1
    assert "it fails its CRC" in skipped.err
    behind = on_cluster("consume", "rotten", "-o", 3, "-e")
    assert (behind.code, behind.out) == (0, "three\nfour\n")

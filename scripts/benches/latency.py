"""Measures one record in flight: our p50 against one fdatasync plus two blocking-socket round
trips."""

import os
import socket
import statistics
import subprocess
import sys
import time

from confluent_kafka import Producer

from benches import measuring, producing
from raftlog.base.units import WallMillis
from raftlog.kafka import codec
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages import metadata, produce
from raftlog.kafka.versions import ApiKey
from raftlog.records.builder import RecordBatchBuilder

PRODUCE_VERSION = 9
METADATA_VERSION = 9
ROUNDS_PER_MEASURE = 1500
SETTLE_SECONDS = 20
_ECHO = """
import socket, sys
listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
connection, _ = listening.accept()
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
while data := connection.recv(4096):
    connection.sendall(data)
"""


def round_trip_seconds() -> float:
    """Returns the median of a 128-byte ping-pong over blocking loopback sockets, Python at both
    ends."""
    with subprocess.Popen([sys.executable, "-c", _ECHO], stdout=subprocess.PIPE, text=True) as echo:
        port = int(echo.stdout.readline())
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            times = []
            for _ in range(ROUNDS_PER_MEASURE):
                began = time.perf_counter()
                connection.sendall(b"x" * 128)
                connection.recv(4096)
                times.append(time.perf_counter() - began)
    return statistics.median(times)


class RawClient:
    """One blocking socket, one produce request at a time."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), 30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = self._socket.makefile("rb")
        self._correlation = 0

    def call(self, api_key: int, version: int, body):
        self._correlation += 1
        parts = codec.encode_request(api_key, version, self._correlation, "bench", body)
        return codec.decode_response(api_key, version, self.exchange(b"".join(parts))).body

    def exchange(self, frame: bytes) -> bytes:
        """Send a whole frame; returns the answer without its length."""
        self._socket.sendall(frame)
        size = int.from_bytes(self._stream.read(4), "big")
        return self._stream.read(size)

    def close(self) -> None:
        self._stream.close()
        self._socket.close()


def leader_address(bootstrap: str) -> tuple[str, int]:
    host, _, port = bootstrap.partition(",")[0].rpartition(":")
    client = RawClient(host, int(port))
    wanted = metadata.MetadataRequestTopic(name=producing.TOPIC)
    request = metadata.MetadataRequest(topics=(wanted,))
    leader, deadline = -1, time.monotonic() + SETTLE_SECONDS
    while leader < 0 and time.monotonic() < deadline:
        answer = client.call(ApiKey.METADATA, METADATA_VERSION, request)
        leader = answer.topics[0].partitions[0].leader_id
    client.close()
    for each in answer.brokers:
        if each.node_id == leader:
            return each.host, each.port
    raise SystemExit(f"the partition has no leader after {SETTLE_SECONDS} s")


def steady_client(bootstrap: str) -> RawClient:
    """Returns a warmed-up connection to the leader.

    Just after creation leadership may still move to the preferred replica. A refusal for that
    reason looks the leader up again.
    """
    deadline = time.monotonic() + SETTLE_SECONDS
    while True:
        client = RawClient(*leader_address(bootstrap))
        try:
            raw_latencies(client)
            return client
        except NotLeading:
            client.close()
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


class NotLeading(SystemExit):
    """The broker that was asked does not lead the partition, or no more."""


def produce_body() -> produce.ProduceRequest:
    builder = RecordBatchBuilder()
    builder.append(os.urandom(100), timestamp_ms=WallMillis(int(time.time() * 1000)))
    data = produce.PartitionProduceData(0, builder.build())
    topic = produce.TopicProduceData(name=producing.TOPIC, partition_data=(data,))
    return produce.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=(topic,))


def raw_latencies(client: RawClient) -> list[float]:
    """Returns the seconds from sending a request to having its answer, sorted.

    The frame is made before, and the answers are judged afterwards: the floor has no client library
    in it either.
    """
    parts = codec.encode_request(ApiKey.PRODUCE, PRODUCE_VERSION, 1, "bench", produce_body())
    frame = b"".join(parts)
    times, answers = [], []
    for _ in range(ROUNDS_PER_MEASURE):
        began = time.perf_counter()
        answers.append(client.exchange(frame))
        times.append(time.perf_counter() - began)
    for answer in answers:
        _judge(codec.decode_response(ApiKey.PRODUCE, PRODUCE_VERSION, answer).body)
    return sorted(times)


def _judge(answer: produce.ProduceResponse) -> None:
    error = answer.responses[0].partition_responses[0].error_code
    if error == ErrorCode.NOT_LEADER_OR_FOLLOWER:
        raise NotLeading("leadership moved while measuring")
    if error:
        raise SystemExit(f"produce answered {error}")


def confluent_latencies(bootstrap: str) -> list[float]:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "log_level": 3}
    )
    value = os.urandom(100)
    producing.warm_up(producer, value)
    times = []
    for _ in range(ROUNDS_PER_MEASURE):
        began = time.perf_counter()
        producer.produce(producing.TOPIC, value, partition=0)
        if producer.flush(10):
            raise SystemExit("no acknowledgement in ten seconds")
        times.append(time.perf_counter() - began)
    return sorted(times)


def compare(rounds: int) -> dict:
    raw: list[float] = []
    raw_p99: list[float] = []
    confluent: list[float] = []
    floor: list[float] = []
    with measuring.cluster() as cluster:
        producing.make_topic(cluster.bootstrap_servers)
        client = steady_client(cluster.bootstrap_servers)
        for _ in range(rounds):
            measuring.wait_for_good_disk(cluster.directory, "latency")
            sync = measuring.sync_probe(cluster.directory)
            floor.append(sync + 2 * round_trip_seconds())
            times = raw_latencies(client)
            raw.append(times[len(times) // 2])
            raw_p99.append(times[len(times) * 99 // 100])
            through = confluent_latencies(cluster.bootstrap_servers)
            confluent.append(through[len(through) // 2])
            print(
                f"  raw p50 {raw[-1] * 1e6:.0f} us, p99 {raw_p99[-1] * 1e6:.0f} us, "
                f"confluent-kafka p50 {confluent[-1] * 1e6:.0f} us, "
                f"floor {floor[-1] * 1e6:.0f} us"
            )
        client.close()
    ratios = [mine / least for mine, least in zip(raw, floor, strict=True)]
    print(f"latency: p50 is {measuring.shown(ratios, 'x')} the floor")
    return {
        "raw_p50_us": measuring.summary([each * 1e6 for each in raw]),
        "raw_p99_us": measuring.summary([each * 1e6 for each in raw_p99]),
        "confluent_p50_us": measuring.summary([each * 1e6 for each in confluent]),
        "floor_us": measuring.summary([each * 1e6 for each in floor]),
        "ratio": measuring.summary(ratios),
    }

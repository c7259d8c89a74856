"""Measures consumer groups: join to first record, offset commits, and the cost of idle members.

The same three measures of Apache Kafka, where it can be started.
"""

import contextlib
import itertools
import selectors
import socket
import tempfile
import threading
import time
from pathlib import Path

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benches import apache_kafka, measuring
from benches.latency import RawClient
from raftlog.client.blocking_consumer import BlockingConsumer
from raftlog.kafka import codec
from raftlog.kafka.messages import (
    find_coordinator,
    heartbeat,
    join_group,
    offset_commit,
    sync_group,
)
from raftlog.kafka.versions import ApiKey

TOPIC = "grouped"
PARTITIONS = 4
JOINS_A_ROUND = 10
COMMIT_SECONDS = 5
IN_FLIGHT = 256
GROUPS = 1_000
HEARTBEAT_SECONDS = 3.0
SETTLE_SECONDS = 5
WATCH_SECONDS = 15
SESSION_MS = 45_000
MUST = {"join_ms": 300, "commits_per_s": 3_000, "cpu_percent": 5}
AIM = {"join_ms": 100, "commits_per_s": 10_000, "cpu_percent": 5}
SETTINGS = {"group.initial.rebalance.delay.ms": "0"}


# --- join to first record -------------------------------------------------------------------------


def fill(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(60)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(100):
        producer.produce(TOPIC, b"x" * 100, partition=number % PARTITIONS)
    assert producer.flush(60) == 0


def confluent_join_ms(bootstrap: str, group: str) -> float:
    """Returns the milliseconds from the making of a consumer to its first record."""
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    began = time.perf_counter()
    consumer = Consumer(settings)
    try:
        consumer.subscribe([TOPIC])
        while (message := consumer.poll(30)) is None or message.error():
            if time.perf_counter() > began + 60:
                raise SystemExit("no record within 60 s")
        return (time.perf_counter() - began) * 1000
    finally:
        consumer.close()


def own_join_ms(bootstrap: str, group: str) -> float:
    began = time.perf_counter()
    with BlockingConsumer(bootstrap, group_id=group, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([TOPIC])
        while not consumer.poll(seconds=30):
            pass
        return (time.perf_counter() - began) * 1000


def joins(bootstrap: str, names, rounds: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {"confluent-kafka": [], "our client": []}
    for each in range(rounds * JOINS_A_ROUND + 1):
        took = confluent_join_ms(bootstrap, next(names)), own_join_ms(bootstrap, next(names))
        if each:  # the first group creates the internal topic
            for kind, ms in zip(found, took, strict=True):
                found[kind].append(ms)
    return found


# --- offset commits -------------------------------------------------------------------------------


def coordinator(bootstrap: str, group: str) -> tuple[str, int]:
    host, _, port = bootstrap.partition(",")[0].rpartition(":")
    client = RawClient(host, int(port))
    try:
        for _ in range(100):
            body = find_coordinator.FindCoordinatorRequest(key=group)
            answer = client.call(ApiKey.FIND_COORDINATOR, 2, body)
            if answer.error_code == 0:
                return answer.host, answer.port
            time.sleep(0.1)
    finally:
        client.close()
    raise SystemExit(f"no coordinator: error {answer.error_code}")


def commit_frame(group: str) -> bytes:
    partition = offset_commit.OffsetCommitRequestPartition(0, 7, -1, "")
    topic = offset_commit.OffsetCommitRequestTopic(TOPIC, bytes(16), [partition])
    body = offset_commit.OffsetCommitRequest(group, -1, "", topics=[topic])
    return b"".join(codec.encode_request(ApiKey.OFFSET_COMMIT, 8, 1, "bench", body))


def commits_per_second(bootstrap: str, group: str) -> float:
    """Returns commits a second of one connection to the coordinator, with a fixed number in
    flight."""
    frame = commit_frame(group)
    with socket.create_connection(coordinator(bootstrap, group), 30) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream = connection.makefile("rb", 1 << 20)
        room = threading.Semaphore(IN_FLIGHT)
        stop = threading.Event()

        def send() -> None:
            while not stop.is_set():
                room.acquire()
                count = 1
                while count < IN_FLIGHT and room.acquire(blocking=False):
                    count += 1
                connection.sendall(frame * count)

        sender = threading.Thread(target=send, daemon=True)
        sender.start()
        answered, began = 0, time.perf_counter()
        while (now := time.perf_counter()) < began + COMMIT_SECONDS:
            data = stream.read(int.from_bytes(stream.read(4), "big"))
            room.release()
            answered += 1
        rate = answered / (now - began)
        stop.set()
        room.release(2)
        answer = codec.decode_response(ApiKey.OFFSET_COMMIT, 8, data).body
        code = answer.topics[0].partitions[0].error_code
        if code:
            raise SystemExit(f"a commit was refused: {code}")
        sender.join()
        return rate


# --- idle groups ----------------------------------------------------------------------------------


def idle_member(bootstrap: str, group: str) -> tuple[socket.socket, bytes]:
    """Returns a connection to the coordinator of a new group of one member, and its heartbeat."""
    client = RawClient(*coordinator(bootstrap, group))
    protocols = [join_group.JoinGroupRequestProtocol("range", b"")]
    body = join_group.JoinGroupRequest(
        group, SESSION_MS, SESSION_MS, "", None, "consumer", protocols
    )
    for _ in range(100):
        joined = client.call(ApiKey.JOIN_GROUP, 3, body)
        if joined.error_code == 0:
            break
        time.sleep(0.1)
    else:
        raise SystemExit(f"a join was refused: {joined.error_code}")
    part = [sync_group.SyncGroupRequestAssignment(joined.member_id, b"")]
    body = sync_group.SyncGroupRequest(
        group, joined.generation_id, joined.member_id, assignments=part
    )
    synced = client.call(ApiKey.SYNC_GROUP, 2, body)
    if synced.error_code:
        raise SystemExit(f"a sync was refused: {synced.error_code}")
    beat = heartbeat.HeartbeatRequest(group, joined.generation_id, joined.member_id)
    frame = b"".join(codec.encode_request(ApiKey.HEARTBEAT, 2, 1, "bench", beat))
    return client._socket, frame


def beat(members: list[tuple[socket.socket, bytes]], seconds: float) -> int:
    """Let every member send a heartbeat each three seconds, spread evenly; returns how many were
    answered."""
    selector = selectors.DefaultSelector()
    for connection, _ in members:
        connection.setblocking(False)
        selector.register(connection, selectors.EVENT_READ)
    step = HEARTBEAT_SECONDS / len(members)
    began, answered = time.perf_counter(), 0
    turn = itertools.cycle(members)
    due = began
    while (now := time.perf_counter()) < began + seconds:
        while due <= now:
            connection, frame = next(turn)
            connection.sendall(frame)
            due += step
        for key, _ in selector.select(max(0.0, due - now)):
            data = key.fileobj.recv(4096)
            if not data or data[-2:] != b"\0\0":
                raise SystemExit(f"a heartbeat was refused: {data.hex()}")
            answered += 1
    selector.close()
    return answered


def idle_cpu(cluster, names) -> tuple[list[float], list[float]]:
    """Returns percent of a core of each broker: at rest, and with the groups."""
    pids = [process.pid for process in cluster.processes.values()]

    def watch(work) -> list[float]:
        before = [measuring.cpu_seconds(pid) for pid in pids]
        began = time.perf_counter()
        work()
        took = time.perf_counter() - began
        return [
            100 * (measuring.cpu_seconds(pid) - was) / took
            for pid, was in zip(pids, before, strict=True)
        ]

    time.sleep(SETTLE_SECONDS)
    at_rest = watch(lambda: time.sleep(WATCH_SECONDS))
    members: list[tuple[socket.socket, bytes]] = []
    try:
        bootstrap = cluster.bootstrap_servers
        members.extend(idle_member(bootstrap, next(names)) for _ in range(GROUPS))
        beat(members, SETTLE_SECONDS)
        busy = watch(lambda: beat(members, WATCH_SECONDS))
    finally:
        for connection, _ in members:
            connection.close()
    return at_rest, busy


# --- both -----------------------------------------------------------------------------------------


def measure_cluster(cluster, rounds: int) -> dict:
    bootstrap, names = cluster.bootstrap_servers, (f"bench-{each}" for each in itertools.count())
    fill(bootstrap)
    took = joins(bootstrap, names, rounds)
    rates = []
    for _ in range(rounds):
        measuring.wait_for_good_disk(Path(tempfile.gettempdir()), "groups")
        rates.append(commits_per_second(bootstrap, next(names)))
    at_rest, busy = idle_cpu(cluster, names)
    more = [one - other for one, other in zip(busy, at_rest, strict=True)]
    for kind, values in took.items():
        print(f"groups: join to first record, {kind}: {measuring.shown(values, ' ms')}")
    print(f"groups: {IN_FLIGHT} commits in flight: {measuring.shown(rates, ' commits/s')}")
    print(f"groups: at rest {measuring.shown(at_rest, ' %')} of a core a broker")
    print(f"groups: {GROUPS} idle groups add {measuring.shown(more, ' %')} of a core a broker")
    return {
        "join_ms": {kind: measuring.summary(values) for kind, values in took.items()},
        "commits_per_s": measuring.summary(rates),
        "cpu_percent_at_rest": measuring.summary(at_rest),
        "cpu_percent": measuring.summary(more),
    }


def judged(figures: dict) -> None:
    """Whether the goals are met."""
    join = max(each["median"] for each in figures["join_ms"].values())
    commits, cpu = figures["commits_per_s"]["median"], figures["cpu_percent"]["median"]
    for what, value, good in (
        ("join_ms", join, lambda limit: join <= limit),
        ("commits_per_s", commits, lambda limit: commits >= limit),
        ("cpu_percent", cpu, lambda limit: cpu <= limit),
    ):
        verdict = "met" if good(MUST[what]) else "MISSED"
        aimed = "met" if good(AIM[what]) else "missed"
        print(f"groups: {what} {value:.3g}: must {MUST[what]} {verdict}, aim {AIM[what]} {aimed}")


def measure(rounds: int) -> dict:
    with measuring.cluster(SETTINGS) as cluster:
        ours = measure_cluster(cluster, rounds)
    judged(ours)
    results = {"raftlog": ours}
    where = apache_kafka.jars()
    if where is None:
        print("groups: Apache Kafka cannot be started here: Java and Maven are needed")
        return results
    print("groups: Apache Kafka")
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(apache_kafka.cluster(where, SETTINGS))
        results["apache_kafka"] = measure_cluster(cluster, rounds)
    return results

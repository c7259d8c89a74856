"""Hostile clients against a live broker: each gets an error or a closed connection, no other client
notices.

After every attack the broker is up, another client is served, and its memory has at no moment been
64 MiB above what it was. (The peak counts: memory that is given back when the attacker leaves was
taken all the same, and a look afterwards once missed four gigabytes.)
"""

import contextlib
import random
import resource
import socket
import struct
import threading
import time
from pathlib import Path

import pytest

from raftlog.base.limits import FRAME_ITEMS_MAX, RECORD_COPY_BYTES_MAX, WAITING_BYTES_MAX
from raftlog.base.units import WallMillis
from raftlog.client.blocking import BlockingClient
from raftlog.kafka import codec
from raftlog.kafka.messages import create_topics, fetch, metadata, produce
from raftlog.kafka.versions import ApiKey
from raftlog.records.builder import RecordBatchBuilder
from raftlog.runtime.local import cluster as local_cluster

pytestmark = [pytest.mark.processes, pytest.mark.slow]

MEMORY_RISE_MAX = 64 * 1024 * 1024
TOPIC = "prey"
SECONDS = 20


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    running = local_cluster.found(tmp_path_factory.mktemp("hostile"), brokers=1)
    try:
        running.start_all()
        with BlockingClient(running.bootstrap_servers) as client:
            client.create_topic(TOPIC, partitions=1, replication_factor=1)
            client.produce(TOPIC, b"warm")
        yield running
    finally:
        running.stop()


@pytest.fixture
def unharmed(broker):
    """The broker before and after a test: alive, serving, and not much larger."""
    with survives(broker, MEMORY_RISE_MAX):
        yield broker


@pytest.fixture
def full(broker):
    """The same for clients that come to a bound of the whole process, twice which it lets in."""
    with survives(broker, MEMORY_RISE_MAX + 2 * WAITING_BYTES_MAX):
        yield broker


@contextlib.contextmanager
def survives(broker, rise_max: int):
    process = broker.processes[1]
    Path(f"/proc/{process.pid}/clear_refs").write_text("5")  # the peak begins again
    before = memory(process.pid, "VmRSS")
    yield
    assert process.poll() is None, broker.last_lines(1)
    with BlockingClient(broker.bootstrap_servers) as client:
        assert client.produce(TOPIC, b"still served").offset > 0
    rise = memory(process.pid, "VmHWM") - before
    assert rise < rise_max, f"{rise >> 20} MiB more"


def memory(pid: int, what: str) -> int:
    """Resident bytes of a process: VmRSS as it is now, VmHWM at most since the peak was cleared."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(what + ":"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"no {what} of process {pid}")


def connect(broker) -> socket.socket:
    return socket.create_connection(("127.0.0.1", broker.places[0].client_port), SECONDS)


def closed_by_broker(connection: socket.socket) -> bool:
    """Whether the broker hangs up within the time limit; answers before that are read over."""
    connection.settimeout(SECONDS)
    try:
        while connection.recv(65536):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


def call(connection: socket.socket, api_key: int, version: int, body):
    connection.sendall(b"".join(codec.encode_request(api_key, version, 7, "hostile", body)))
    return codec.decode_response(api_key, version, read_frame(connection)).body


def read_frame(connection: socket.socket) -> bytes:
    connection.settimeout(SECONDS)
    stream = connection.makefile("rb")
    size = int.from_bytes(stream.read(4), "big")
    return stream.read(size)


def a_batch(**changes) -> bytes:
    builder = RecordBatchBuilder(**changes)
    builder.append(b"value", timestamp_ms=WallMillis(int(time.time() * 1000)))
    return builder.build()


def produce_code(connection: socket.socket, records: bytes | None, topic: str = TOPIC) -> int:
    data = produce.PartitionProduceData(0, records)
    request = produce.ProduceRequest(
        acks=-1,
        timeout_ms=5000,
        topic_data=(produce.TopicProduceData(name=topic, partition_data=(data,)),),
    )
    answer = call(connection, ApiKey.PRODUCE, 9, request)
    return answer.responses[0].partition_responses[0].error_code


@pytest.mark.parametrize(
    "opening",
    [
        b"\x7f\xff\xff\xff" + bytes(100),
        b"\xff\xff\xff\xff" + bytes(100),
        b"\0\0\0\0",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(50),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        struct.pack(">ihhi", 8, 999, 0, 1),
        struct.pack(">ihhih", 10, 3, 99, 1, -5),
        struct.pack(">ihhihB", 11, 3, 12, 1, -1, 0) + b"\xff\xff\xff\xff\x0f\0\0",
    ],
    ids=["2 GiB", "negative", "empty", "tls", "http", "unknown api", "bad header", "huge array"],
)
def test_a_bad_opening_is_closed(unharmed, opening):
    with connect(unharmed) as connection:
        connection.sendall(opening)
        connection.shutdown(socket.SHUT_WR)
        assert closed_by_broker(connection)


def test_random_frames_never_get_far(unharmed):
    source = random.Random(3)
    for _ in range(200):
        body = source.randbytes(source.randrange(1, 400))
        if source.random() < 0.7:
            body = struct.pack(">hhi", source.randrange(0, 80), source.randrange(0, 20), 1) + body
        with connect(unharmed) as connection:
            connection.sendall(struct.pack(">i", len(body)) + body)
            connection.shutdown(socket.SHUT_WR)
            assert closed_by_broker(connection)


def test_truncated_requests_are_closed(unharmed):
    whole = b"".join(
        codec.encode_request(ApiKey.METADATA, 9, 1, "x", metadata.MetadataRequest(topics=None))
    )
    for size in range(1, len(whole)):
        with connect(unharmed) as connection:
            connection.sendall(whole[:size])
            connection.shutdown(socket.SHUT_WR)
            assert closed_by_broker(connection)


def test_an_unknown_version_of_a_known_api_gets_an_answer(unharmed):
    with connect(unharmed) as connection:
        connection.sendall(struct.pack(">ihhih", 10, ApiKey.API_VERSIONS, 77, 42, -1))
        frame = read_frame(connection)
        assert struct.unpack_from(">ih", frame) == (42, 35)


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (a_batch()[:-1], 2),
        (a_batch()[:30], 2),
        (a_batch()[:20] + b"\0" + a_batch()[21:], 2),
        (a_batch() + a_batch(), 87),
        (a_batch()[:16] + b"\1" + a_batch()[17:], 87),
        (a_batch()[:16] + b"\0" + a_batch()[17:], 87),
        (b"", 2),
        (None, 87),
    ],
    ids=["cut", "header cut", "crc", "two batches", "magic 1", "magic 0", "empty", "null"],
)
def test_a_bad_batch_is_refused_by_name(unharmed, records, code):
    with connect(unharmed) as connection:
        assert produce_code(connection, records) == code
        assert produce_code(connection, a_batch()) == 0, "the connection still serves"


def test_a_forged_raft_entry_is_refused(unharmed):
    """Zero offsets wide, with the control bit: only Raft writes such a thing."""
    forged = bytearray(a_batch())
    struct.pack_into(">h", forged, 21, 0x20)
    struct.pack_into(">i", forged, 23, -1)
    struct.pack_into(">i", forged, 57, 0)
    from raftlog.base.checksum import crc32c

    struct.pack_into(">I", forged, 17, crc32c(bytes(forged[21:])))
    with connect(unharmed) as connection:
        assert produce_code(connection, bytes(forged)) == 87


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".", "..", "x" * 250, "nul\0", "ünï"])
def test_absurd_topic_names_are_refused(unharmed, name):
    with connect(unharmed) as connection:
        topic = create_topics.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        request = create_topics.CreateTopicsRequest(topics=(topic,), timeout_ms=5000)
        answer = call(connection, ApiKey.CREATE_TOPICS, 5, request)
        assert answer.topics[0].error_code == 17


def test_a_client_cannot_read_as_a_replica(unharmed):
    with connect(unharmed) as connection:
        wanted = fetch.FetchPartition(0, partition_max_bytes=1 << 20)
        request = fetch.FetchRequest(
            replica_id=2, max_wait_ms=0, topics=(fetch.FetchTopic(TOPIC, partitions=(wanted,)),)
        )
        answer = call(connection, ApiKey.FETCH, 11, request)
        codes = {answer.error_code} | {
            each.error_code for topic in answer.responses for each in topic.partitions
        }
        assert 42 in codes


def test_slow_senders_do_not_stop_others(unharmed):
    """Two hundred clients that announce a large produce and send a byte now and then."""
    opened = [connect(unharmed) for _ in range(200)]
    try:
        for connection in opened:
            connection.sendall(struct.pack(">ihh", 20 << 20, ApiKey.PRODUCE, 9) + b"x" * 100)
        with BlockingClient(unharmed.bootstrap_servers) as client:
            for number in range(50):
                client.produce(TOPIC, str(number).encode())
    finally:
        for connection in opened:
            connection.close()


@pytest.fixture
def many_files():
    """Room for a thousand sockets in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("sent", [b"", b"\0", struct.pack(">ihh", 30 << 20, ApiKey.PRODUCE, 9)])
def test_a_thousand_connections_that_only_stand_there(unharmed, many_files, sent):
    """Silent, with one byte of a frame, or with the announcement of thirty megabytes."""
    opened = []
    try:
        for _ in range(1000):
            opened.append(connect(unharmed))
            opened[-1].sendall(sent)
        with BlockingClient(unharmed.bootstrap_servers) as client:
            client.produce(TOPIC, b"served beside them")
    finally:
        for connection in opened:
            connection.close()


def test_large_frames_that_stay_unfinished(unharmed):
    """Four clients send all of twenty megabytes but the end; a large record of another passes."""
    size = 20 << 20
    body = struct.pack(">ihh", size, ApiKey.PRODUCE, 9) + bytes(size - 1000)
    opened = [connect(unharmed) for _ in range(4)]
    senders = [threading.Thread(target=send_what_is_taken, args=(each, body)) for each in opened]
    try:
        for sender in senders:
            sender.start()
        with BlockingClient(unharmed.bootstrap_servers) as client:
            client.produce(TOPIC, bytes(900_000))
    finally:
        for connection in opened:
            connection.close()
        for sender in senders:
            sender.join()


def send_what_is_taken(connection: socket.socket, data: bytes) -> None:
    connection.settimeout(SECONDS)
    with contextlib.suppress(OSError):
        connection.sendall(data)


def test_many_who_flood_without_reading(unharmed):
    """Sixteen at once. One receive brings thousands of small requests, and all of them were handed
    in before the broker could pause a client: others waited for more than a minute."""
    request = b"".join(
        codec.encode_request(ApiKey.METADATA, 9, 1, "x", metadata.MetadataRequest(topics=None))
    )
    opened = []
    try:
        for _ in range(16):
            opened.append(connect(unharmed))
            opened[-1].settimeout(0.05)
            with contextlib.suppress(TimeoutError):
                for _ in range(100):
                    opened[-1].sendall(request * 1000)
        with BlockingClient(unharmed.bootstrap_servers) as client:
            client.produce(TOPIC, b"served all the same")
    finally:
        for connection in opened:
            connection.close()


def test_a_flood_without_reading_answers_is_paused(unharmed):
    """A client that never reads its answers: it is paused at the limit and costs bounded memory."""
    request = b"".join(
        codec.encode_request(ApiKey.METADATA, 9, 1, "x", metadata.MetadataRequest(topics=None))
    )
    with connect(unharmed) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(0.5)
        sent = 0
        try:
            while sent < 64 << 20:
                sent += connection.send(request * 100)
        except TimeoutError:
            pass
        assert sent < 64 << 20, "the broker swallowed everything"


@pytest.mark.parametrize(("empty", "wanted"), [(15_000, 1), (FRAME_ITEMS_MAX - 3, 1), (0, 1_800)])
def test_many_parts_of_requests_that_wait_cost_little(unharmed, empty, wanted):
    """Three bytes of a request become an object of sixty. One connection's requests may weigh 8 MiB
    while they wait, and held 240 MiB."""
    topics = [fetch.FetchTopic("", partitions=())] * empty
    with BlockingClient(unharmed.bootstrap_servers) as client:
        end = client.produce(TOPIC, b"the last one").offset + 1
    partition = fetch.FetchPartition(0, fetch_offset=end, partition_max_bytes=1 << 20)
    topics.append(fetch.FetchTopic(TOPIC, partitions=[partition] * wanted))
    body = fetch.FetchRequest(max_wait_ms=60_000, min_bytes=1 << 20, topics=topics)
    request = b"".join(codec.encode_request(ApiKey.FETCH, 12, 1, "x", body))
    with connect(unharmed) as connection:
        connection.settimeout(1)
        sent = 0
        with contextlib.suppress(TimeoutError):
            while sent < 64 << 20:
                sent += connection.send(request)
        assert sent < 64 << 20, "the broker swallowed everything"


def test_requests_that_wait_on_many_connections(full, many_files):
    """Each connection may have 8 MiB of them, and they may wait for an hour: three hundred of these
    were more than a gigabyte. No other client waits behind them."""
    topics = [fetch.FetchTopic("", partitions=())] * 14_000
    with BlockingClient(full.bootstrap_servers) as client:
        end = client.produce(TOPIC, b"the last one").offset + 1
    partition = fetch.FetchPartition(0, fetch_offset=end, partition_max_bytes=1 << 20)
    topics.append(fetch.FetchTopic(TOPIC, partitions=[partition]))
    body = fetch.FetchRequest(
        max_wait_ms=3_600_000, min_bytes=1 << 20, topics=topics, rack_id="r" * 30_000
    )
    request = b"".join(codec.encode_request(ApiKey.FETCH, 12, 1, "x", body))
    assert len(request) > RECORD_COPY_BYTES_MAX
    opened = []
    try:
        for _ in range(300):
            opened.append(connect(full))
            opened[-1].settimeout(SECONDS)
            send_what_is_taken(opened[-1], request)
        with BlockingClient(full.bootstrap_servers) as client:
            client.produce(TOPIC, b"x" * 900_000)
        assert closed_by_broker(opened[0]), "who waited longest was sent away"
        assert open_in_the_end(opened) > 20, "and no more than had to be"
    finally:
        for connection in opened:
            connection.close()


def open_in_the_end(connections: list[socket.socket]) -> int:
    """How many the broker leaves open, once it has sent no client away for two seconds: an honest
    client is served long before it has taken in what all of them sent."""
    last, since = len(connections), time.monotonic()
    deadline = since + SECONDS
    while time.monotonic() < min(since + 2, deadline):
        now = sum(map(still_open, connections))
        if now != last:
            last, since = now, time.monotonic()
        time.sleep(0.1)
    assert time.monotonic() < deadline, "connections are still being closed"
    return last


def still_open(connection: socket.socket) -> bool:
    connection.settimeout(0)
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def test_a_large_frame_of_garbage_costs_little(unharmed):
    """30 MiB that only look like a produce request."""
    with connect(unharmed) as connection:
        size = 30 << 20
        connection.sendall(struct.pack(">ihhi", size, ApiKey.PRODUCE, 9, 1))
        chunk = bytes(1 << 20)
        left = size - 8
        try:
            while left:
                left -= connection.send(chunk[: min(left, len(chunk))])
        except OSError:
            pass
        connection.shutdown(socket.SHUT_WR)
        assert closed_by_broker(connection)


def test_many_connections_at_once(unharmed):
    results: list[bool] = []

    def hammer() -> None:
        for _ in range(40):
            with connect(unharmed) as connection:
                connection.sendall(b"\0\0\0\x08garbage!")
                connection.shutdown(socket.SHUT_WR)
                results.append(closed_by_broker(connection))

    threads = [threading.Thread(target=hammer) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 320


def test_peer_bytes_on_the_client_port_and_the_reverse(unharmed):
    with connect(unharmed) as connection:
        connection.sendall(b"raftlogP" + bytes(32))
        connection.shutdown(socket.SHUT_WR)
        assert closed_by_broker(connection)
    peer = ("127.0.0.1", unharmed.places[0].peer_port)
    with socket.create_connection(peer, SECONDS) as connection:
        request = metadata.MetadataRequest(topics=None)
        connection.sendall(b"".join(codec.encode_request(ApiKey.METADATA, 9, 1, "x", request)))
        connection.sendall(bytes(64))
        assert closed_by_broker(connection)


def test_two_brokers_with_one_directory(unharmed):
    """A second process on the same directory says so and ends; the first goes on."""
    again = local_cluster.LocalCluster(unharmed.directory, unharmed.places, {})
    again.start(1)
    try:
        assert again.processes[1].wait(30) == 1
        assert "in use by another process" in again.last_lines(1)
    finally:
        again.stop()

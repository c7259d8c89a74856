"""A static Kafka responder: one topic, one partition, one file; blocking sockets and sendfile.

It answers ApiVersions, Metadata, ListOffsets and Fetch, and does nothing else that a broker must
do: no log, no routing, no waiting. So a client reads from it at the client's own speed.
"""

import bisect
import os
import socket
import struct
import sys
import threading

from raftlog.base.limits import SEGMENT_HEADER_BYTES
from raftlog.kafka import codec, versions
from raftlog.kafka.error_bodies import error_body
from raftlog.kafka.messages import fetch, list_offsets, metadata
from raftlog.kafka.versions import ApiKey
from raftlog.records.batch import read_header

TOPIC = "bench"
TOPIC_ID = b"\1" * 16
FETCH_BYTES_MAX = 8 << 20


class Batches:
    """The beginnings of the batches of a segment, and their offsets."""

    def __init__(self, path: str) -> None:
        self.fd = os.open(path, os.O_RDONLY)
        self.offsets: list[int] = []
        self.positions: list[int] = []
        self.end_offset = 0
        position, size = SEGMENT_HEADER_BYTES, os.fstat(self.fd).st_size
        while position + 61 <= size:
            header = read_header(os.pread(self.fd, 61, position))
            if header.magic != 2 or header.batch_length < 49:
                break
            if not header.is_raft_entry:
                self.offsets.append(header.base_offset)
                self.positions.append(position)
                self.end_offset = header.next_offset
            elif self.positions:
                break  # one slice never spans an entry of Raft's own
            position += header.size
        self.end_position = position

    def slice(self, offset: int, bytes_max: int) -> tuple[int, int]:
        """Returns position and size of whole batches from `offset` on."""
        at = bisect.bisect_right(self.offsets, offset) - 1
        start = self.positions[at]
        last = bisect.bisect_right(self.positions, start + bytes_max) - 1
        end = self.positions[last] if last > at else self.end_position
        if start + bytes_max >= self.end_position:
            end = self.end_position
        return start, end - start


def serve(connection: socket.socket, batches: Batches, port: int) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream = connection.makefile("rb")
    while len(prefix := stream.read(4)) == 4:
        frame = stream.read(struct.unpack(">i", prefix)[0])
        answer(connection, codec.decode_request(frame), batches, port)


def answer(connection: socket.socket, request, batches: Batches, port: int) -> None:
    where = None
    body = None
    if request.api_key == ApiKey.API_VERSIONS:
        body = versions.api_versions_response()
    elif request.api_key == ApiKey.METADATA:
        partition = metadata.MetadataResponsePartition(0, 0, 1, 1, (1,), (1,), ())
        body = metadata.MetadataResponse(
            brokers=(metadata.MetadataResponseBroker(1, "127.0.0.1", port, None),),
            cluster_id="static",
            controller_id=1,
            topics=(metadata.MetadataResponseTopic(0, TOPIC, TOPIC_ID, False, (partition,)),),
        )
    elif request.api_key == ApiKey.LIST_OFFSETS:
        found = list_offsets.ListOffsetsPartitionResponse(0, 0, -1, batches.offsets[0], 1)
        topic = list_offsets.ListOffsetsTopicResponse(TOPIC, (found,))
        body = list_offsets.ListOffsetsResponse(0, (topic,))
    elif request.api_key == ApiKey.FETCH:
        body, where = fetch_body(request.body, batches)
    else:
        body = error_body(request.body, 15)
    parts = codec.encode_response(
        request.api_key, request.api_version, request.correlation_id, body
    )
    for part in parts:
        if isinstance(part, Hole):
            send_file(connection, batches.fd, *where)
        else:
            connection.sendall(part)


class Hole:
    """Stands for file bytes in an encoded answer."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size


def fetch_body(request, batches: Batches):
    wanted = request.topics[0].partitions[0]
    offset = wanted.fetch_offset
    records, where = b"", None
    if offset < batches.end_offset:
        where = batches.slice(offset, min(wanted.partition_max_bytes, FETCH_BYTES_MAX))
        records = Hole(where[1])
    partition = fetch.PartitionData(
        partition_index=0,
        high_watermark=batches.end_offset,
        last_stable_offset=batches.end_offset,
        log_start_offset=0,
        aborted_transactions=None,
        records=records,
    )
    topic = fetch.FetchableTopicResponse(TOPIC, TOPIC_ID, (partition,))
    return fetch.FetchResponse(responses=(topic,)), where


def send_file(connection: socket.socket, fd: int, position: int, size: int) -> None:
    while size:
        sent = os.sendfile(connection.fileno(), fd, position, size)
        position += sent
        size -= sent


def main(path: str, port: int) -> None:
    batches = Batches(path)
    with socket.create_server(("127.0.0.1", port)) as listening:
        while True:
            connection, _ = listening.accept()
            threading.Thread(target=serve, args=(connection, batches, port), daemon=True).start()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

"""Reads everything back: by a consumer from offset 0, and from the files of every replica."""

from pathlib import Path
from typing import Any, Final

import trio

from raftlog.base.errors import CorruptData, OperatingError, RaftlogError
from raftlog.base.ids import GroupId, Offset
from raftlog.base.ports import Clock
from raftlog.cli.demo.flights import row_of
from raftlog.cli.demo.proof import ReadRecord, ReplicaLog
from raftlog.client.core import asks
from raftlog.client.core.fetcher import Trouble
from raftlog.client.core.values import TopicPartition
from raftlog.client.trio_driver import Client
from raftlog.runtime.local.cluster import LocalCluster
from raftlog.runtime.real_ports import PosixDisk
from raftlog.storage.inspect import inspect_directory
from raftlog.verify import HistoryWriter

READER: Final = 1_000_000_000
"""The consumer's process in the history: above those of all records in flight."""
CONVERGE_SECONDS: Final = 20.0
STALL_SECONDS: Final = 30.0


async def read_all(
    client: Client, history: HistoryWriter, clock: Clock, topic: str
) -> tuple[list[ReadRecord], dict[int, int]]:
    """Read every record of the topic; returns them with the end of each partition.

    The records that the reader sees go into the history.
    """
    ends: dict[int, int] = {}
    for place in await client.offsets(topic, asks.LATEST):
        history.invoke(READER, "end", time_ns=clock.now(), key=f"{topic}/{place.partition}")
        end = (await client.offset(place, asks.LATEST)).offset
        history.complete(READER, "ok", time_ns=clock.now(), value=end)
        ends[place.partition] = end
    positions = dict.fromkeys(ends, 0)
    client.assign({TopicPartition(topic, partition): 0 for partition in ends})
    found: list[ReadRecord] = []
    last_progress = clock.now()
    while any(positions[partition] < end for partition, end in ends.items()):
        before = len(found)
        asked = {f"{topic}/{partition}": offset for partition, offset in positions.items()}
        history.invoke(READER, "poll", time_ns=clock.now(), value=asked)
        got = await _poll(client, topic, positions, found)
        history.complete(READER, "ok", time_ns=clock.now(), value=got)
        if len(found) > before:
            last_progress = clock.now()
        elif clock.now() - last_progress > STALL_SECONDS * 1e9:
            raise OperatingError("reading does not get on", on=str(positions))
    return found, ends


async def _poll(
    client: Client, topic: str, positions: dict[int, int], found: list[ReadRecord]
) -> dict[str, list[list[Any]]]:
    """Poll once; advances `positions`, extends `found`.

    Returns the reads as the history has them.
    """
    got: dict[str, list[list[Any]]] = {}
    for piece in await client.poll(seconds=1.0):
        if isinstance(piece, Trouble):
            raise OperatingError(f"reading failed: {piece.error}", on=str(piece.place))
        partition = piece.place.partition
        pairs = got.setdefault(f"{topic}/{partition}", [])
        for record in piece.records():
            if record.value is None:
                raise OperatingError("a record without a value", on=str(piece.place))
            row = row_of(record.value)
            found.append(ReadRecord(partition, record.offset, row, record.key))
            pairs.append([record.offset, f"{(record.key or b'').decode()}#{row}"])
        positions[partition] = piece.next_offset
    return got


async def replica_logs(
    cluster: LocalCluster, topic_id: bytes, ends: dict[int, int]
) -> list[ReplicaLog]:
    """The content of each replica's files up to the high watermark, once all have reached it."""
    logs: list[ReplicaLog] = []
    for place in cluster.places:
        data = cluster.data_path(place.node)
        logs += await _logs_of(place.node, data, topic_id.hex(), ends)
    return logs


async def _logs_of(node: int, data: Path, topic: str, ends: dict[int, int]) -> list[ReplicaLog]:
    deadline = trio.current_time() + CONVERGE_SECONDS
    while True:
        try:
            return await trio.to_thread.run_sync(walk_replicas, node, data, topic, ends)
        except RaftlogError:
            if trio.current_time() > deadline:
                raise
            await trio.sleep(0.2)


def walk_replicas(node: int, data: Path, topic: str, ends: dict[int, int]) -> list[ReplicaLog]:
    """Walk one broker's replicas of a topic up to `ends`.

    Raises `CorruptData` where a replica is damaged or does not reach that far yet.
    """
    disk = PosixDisk(str(data))
    partitions: dict[GroupId, int] = {}
    for row in _rows(inspect_directory(disk, verify=False)):
        name = str(row["path"]).rpartition("/")[2]
        if name.startswith(f"{topic}-"):
            partitions[GroupId(int(row["group"]))] = int(name.split("-")[-2])
    stops = {group: Offset(ends[partition]) for group, partition in partitions.items()}
    logs: list[ReplicaLog] = []
    for row in _rows(inspect_directory(disk, stop_offsets=stops)):
        partition = partitions.get(GroupId(int(row["group"])))
        if partition is None:
            continue
        if row["damaged"] or int(row.get("next_offset", -1)) < ends[partition]:
            raise CorruptData(f"the replica does not reach its end: {row['fault']}", on=str(data))
        logs.append(ReplicaLog(node, partition, str(row["chain"]), str(row["sha256"])))
    return logs


def _rows(inspected: dict[str, Any]) -> list[dict[str, Any]]:
    rows = inspected["groups"]
    assert isinstance(rows, list), type(rows)
    return rows

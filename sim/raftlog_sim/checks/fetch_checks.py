"""Checks Fetch answers against the committed log.

An answer holds only committed batches, unchanged and with valid checksums. It reaches up to a high
watermark that a leader showed, and its log start is committed.

The checks read answers as bytes, including those that are sent straight from files. Nodes whose
disk the run has damaged are left out. There a sector may rot after the log was verified. The broker
then sends it as it is, and the client's checksum refuses it.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from raftlog.base.binary import Buffer
from raftlog.base.checksum import crc32c
from raftlog.base.errors import RaftlogError
from raftlog.base.ids import GroupId
from raftlog.base.limits import BATCH_HEADER_BYTES
from raftlog.kafka.codec import decode_request, decode_response
from raftlog.records.batch import CRC_FROM, LENGTH_OVERHEAD, BatchHeader, read_header
from raftlog_sim.facts.committed import CommittedFacts, identity_of

if TYPE_CHECKING:
    from raftlog.kafka.messages.fetch import FetchRequest, FetchResponse, PartitionData
    from raftlog_sim.world.node import Node

FETCH: Final = 1
_LENGTH_BYTES: Final = 4
_UNKNOWN: Final = -1
_NOTHING: Final = CommittedFacts()


class FetchAsked(NamedTuple):
    """A Fetch that waits for its answer."""

    frame: Buffer


def fetched(
    node: "Node",
    asked: FetchAsked,
    frame: bytes,
    committed: dict[GroupId, CommittedFacts],
    shown: dict[GroupId, int],
) -> Iterator[str]:
    """Yields an error text for each partition of an answer; "" for a right one."""
    try:
        request = decode_request(asked.frame)
    except RaftlogError:
        return
    body: FetchRequest = request.body
    offsets = {
        (topic.topic or bytes(topic.topic_id), each.partition): each.fetch_offset
        for topic in body.topics
        for each in topic.partitions
    }
    answer: FetchResponse = decode_response(FETCH, request.api_version, frame[_LENGTH_BYTES:]).body
    for topic in answer.responses:
        key = topic.topic or bytes(topic.topic_id)
        for row in topic.partitions:
            group = getattr(node.broker.context.router.partition(key, row.partition_index),
                            "group", None)  # fmt: skip
            if group is None:
                continue
            known = committed.get(group, _NOTHING)
            offset = offsets[key, row.partition_index]
            wrong = _ends(row, known, shown.get(group, 0)) or _batches(
                row, known, shown.get(group, 0), offset
            )
            told = f"node {node.number} answers a Fetch of group {group} at {offset}"
            yield f"{told}: {wrong}" if wrong else ""


def _ends(row: "PartitionData", known: CommittedFacts, shown: int) -> str:
    """Returns what is wrong with the log start and the high watermark of an answer, or ""."""
    if row.high_watermark > shown:
        return f"high watermark {row.high_watermark}, none above {shown} was shown"
    if known.whole and row.log_start_offset > known.log_start:
        return f"log start {row.log_start_offset}, markers say {known.log_start}"
    if _UNKNOWN < row.high_watermark < row.log_start_offset:
        return f"high watermark {row.high_watermark} below log start {row.log_start_offset}"
    return ""


def _batches(row: "PartitionData", known: CommittedFacts, shown: int, offset: int) -> str:
    """Returns what is wrong with the batches of an answer, or "".

    They follow one another, and the first one holds the wanted offset.
    """
    content = cast("Buffer | None", row.records)
    if content is None:
        return ""
    position, expected = 0, None
    while position < len(content):
        rest: Any = memoryview(content)[position:]
        if len(rest) < BATCH_HEADER_BYTES:
            return f"{len(rest)} bytes at the end are no batch"
        header = read_header(rest)
        size = LENGTH_OVERHEAD + header.batch_length
        if size > len(rest):
            return f"the batch at {header.base_offset} ends {size - len(rest)} bytes early"
        following = header.base_offset + header.last_offset_delta + 1
        if expected is None and not header.base_offset <= offset < following:
            return f"it begins with {header.base_offset} to {following}"
        if expected not in (None, header.base_offset):
            return f"behind offset {expected} follows {header.base_offset}"
        wrong = _batch(header, following, rest[:size], known)
        if wrong:
            return wrong
        position, expected = position + size, following
    if expected is not None and expected > shown:
        return f"records up to {expected}, no high watermark above {shown} was shown"
    return ""


def _batch(header: BatchHeader, following: int, batch: Buffer, known: CommittedFacts) -> str:
    if crc32c(batch[CRC_FROM:]) != header.crc:
        return f"the batch at {header.base_offset} fails its checksum"
    stored = known.batch_at(header.base_offset)
    if stored is None:
        return f"no batch that begins at {header.base_offset} is committed" if known.whole else ""
    told = (identity_of(header), following, header.leader_epoch)
    if told == (stored.identity, stored.next_offset, stored.term):
        return ""
    return f"a batch (identity, next offset, epoch) {told}, committed is {stored}"

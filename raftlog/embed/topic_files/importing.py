"""Creates the topics of a checked export in a cluster, and fills them.

Every batch is sent as it is in its file, one at a time for each partition. The topics are new, so
the offset of each batch is known in advance. Any other offset means that another client writes to
them. When an import fails, the topics that it created are deleted.
"""

from collections.abc import Sequence
from typing import Final

import trio

from raftlog.base.errors import OperatingError, RaftlogError
from raftlog.base.units import millis
from raftlog.client.core.asks import (
    Ask,
    broker_ms,
    create_topics,
    delete_topics,
    metadata,
    new_topic,
)
from raftlog.client.core.errors import KafkaError
from raftlog.client.core.results import TopicResult, check_code
from raftlog.client.core.values import TopicPartition
from raftlog.client.trio_driver import Client, gather
from raftlog.embed.topic_files.folder import Advance, Export, ignore_progress
from raftlog.embed.topic_files.manifest import TopicPart
from raftlog.embed.topic_files.plain import at_offset
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.create_topics import CreatableTopic
from raftlog.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from raftlog.kafka.versions import ApiKey
from raftlog.records.batch import read_header

_LANES: Final = 4
"""How many partitions are filled at the same time, each with one batch in memory."""
_BATCH_NS: Final = millis(30_000)
_LEADER_SECONDS: Final = 30.0
"""How long a batch may wait for a leader that accepts it."""
_PAUSE_SECONDS: Final = 0.05
_UNDO_SECONDS: Final = 10.0
_NOT_WRITTEN: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    }
)
"""Errors of a broker that has certainly not appended the batch, because it has not heard of the new
topic yet."""
_MIN_INSYNC: Final = "min.insync.replicas"


async def import_topics(
    client: Client, export: Export, advance: Advance = ignore_progress
) -> list[TopicPart]:
    """Create the topics of an export and append their records. A topic has at most as many replicas
    as there are brokers. Raises `OperatingError` when a topic exists, and the client's errors; then
    the cluster is as it was before."""
    topics = export.manifest.topics
    present = dict.fromkeys(await client.topics())
    for topic in topics:
        if topic.name in present:
            raise OperatingError(
                "it exists already", on=f"topic {topic.name}", do="delete it first, with its data"
            )
    brokers = len((await client.ask(metadata([]))).brokers)
    wanted = [_wanted(topic, brokers) for topic in topics]
    for refused in await client.ask(create_topics(wanted, validate_only=True)):
        refused.check()
    results: list[TopicResult] = await client.ask(create_topics(wanted))
    made = [each.name for each in results if each.error_code == ErrorCode.NONE]
    try:
        for each in results:
            each.check()
        lanes = trio.CapacityLimiter(_LANES)
        async with gather() as nursery:
            for topic in topics:
                for number in range(len(topic.partitions)):
                    nursery.start_soon(_fill, client, export, topic, number, lanes, advance)
    except BaseException as error:
        await _undo(client, made, error)
        raise
    return list(topics)


async def _undo(client: Client, made: Sequence[str], cause: BaseException) -> None:
    """Delete the created topics, even when the import was cancelled."""
    if not made:
        return
    try:
        with trio.fail_after(_UNDO_SECONDS, shield=True):
            for result in await client.ask(delete_topics(made)):
                result.check()
    except (RaftlogError, trio.TooSlowError) as error:
        why = cause if isinstance(cause, RaftlogError) else "it was interrupted"
        raise OperatingError(
            f"the import failed, and what it made could not be deleted: {why}",
            on=f"topics {', '.join(made)}",
            do="delete them before the next try",
        ) from error


def _wanted(topic: TopicPart, brokers: int) -> CreatableTopic:
    factor = max(1, min(topic.replication_factor, brokers))
    settings = dict(topic.settings)
    needed = settings.get(_MIN_INSYNC, "")
    if needed.isdecimal() and int(needed) > factor:
        # With a minimum above the number of replicas, brokers would refuse every produce request.
        settings[_MIN_INSYNC] = str(factor)
    return new_topic(topic.name, len(topic.partitions), factor, configs=settings)


async def _fill(
    client: Client,
    export: Export,
    topic: TopicPart,
    number: int,
    lanes: trio.CapacityLimiter,
    advance: Advance,
) -> None:
    async with lanes:
        place, offset = TopicPartition(topic.name, number), 0
        for batch in export.batches(topic, number):
            given = await _append(client, place, at_offset(batch, 0))
            if given != offset:
                raise OperatingError(
                    f"a batch was given offset {given}, and {offset} was due: another client "
                    "writes to this topic",
                    on=str(place),
                )
            offset += read_header(batch).records_count
            advance(len(batch))


async def _append(client: Client, place: TopicPartition, batch: bytes) -> int:
    """Append one batch and return its offset. It is sent again only when it was certainly not
    written."""
    deadline = trio.current_time() + _LEADER_SECONDS
    while True:
        try:
            given: int = await client.ask(_produce(place, batch))
        except KafkaError as error:
            if error.code not in _NOT_WRITTEN or trio.current_time() > deadline:
                raise
            await trio.sleep(_PAUSE_SECONDS)
        else:
            return given


def _produce(place: TopicPartition, batch: bytes) -> Ask:
    """A question that sends a batch to its leader; the answer is the batch's offset, once a
    majority has it."""

    def make(epoch: int, topic_id: bytes) -> ProduceRequest:
        del epoch
        data = (PartitionProduceData(place.partition, batch),)
        return ProduceRequest(
            acks=-1,
            timeout_ms=broker_ms(_BATCH_NS),
            topic_data=(TopicProduceData(place.topic, topic_id, data),),
        )

    def read(body: ProduceResponse) -> int:
        (found,) = [each for topic in body.responses for each in topic.partition_responses]
        check_code(found.error_code, str(place), found.error_message)
        return found.base_offset

    return Ask(ApiKey.PRODUCE, read, make=make, place=place, changes=True, timeout_ns=_BATCH_NS)

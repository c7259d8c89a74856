"""Topics as people and programs read them: Kafka's two layouts, and JSON."""

import base64
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from raftlog.client.core.asks import describe_configs, metadata
from raftlog.client.core.errors import KafkaError
from raftlog.client.core.results import ConfigEntry
from raftlog.client.trio_driver import Client
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.metadata import MetadataResponse, MetadataResponsePartition
from raftlog.metadata.settings.topic_configs import config_warnings

MIN_ISR = "min.insync.replicas"
COLLISION_WARNING = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') "
    "could collide. To avoid issues it is best to use either, but not both."
)
_IDS_PER_REQUEST = 100


class Ends(NamedTuple):
    """The log start offset of a partition, and its high watermark.

    A consumer reads between them.
    """

    start: int
    end: int

    @property
    def records(self) -> int:
        # The two are asked one after the other, and the start may rise between.
        return max(0, self.end - self.start)


class PartitionView(NamedTuple):
    """One partition of a described topic.

    `leader` is None without one, `ends` while no leader told them.
    """

    topic: str
    partition: int
    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    live: frozenset[int]
    min_isr: int
    ends: Ends | None = None

    @property
    def under_replicated(self) -> bool:
        return len(self.isr) < len(self.replicas)

    @property
    def unavailable(self) -> bool:
        return self.leader is None or self.leader not in self.live

    @property
    def under_min_isr(self) -> bool:
        return len(self.isr) < self.min_isr

    @property
    def at_min_isr(self) -> bool:
        return len(self.isr) == self.min_isr

    def line(self) -> str:
        """Kafka's line of describe."""
        return f"{self._common()}\tElr: \tLastKnownElr: "  # raft has no eligible leader replicas

    def line_with_ends(self) -> str:
        """Kafka's line, with how much the partition holds; `-` where that is unknown."""
        start, end, records = ("-", "-", "-")
        if self.ends is not None:
            start, end, records = map(str, (*self.ends, self.ends.records))
        return f"{self.line()}\tStartOffset: {start}\tEndOffset: {end}\tRecords: {records}"

    def legacy_line(self) -> str:
        """Kafka's line in the older layout."""
        return self._common()

    def _common(self) -> str:
        leader = "none" if self.leader is None else str(self.leader)
        return (
            f"\tTopic: {self.topic}\tPartition: {self.partition}\tLeader: {leader}"
            f"\tReplicas: {_numbers(self.replicas)}\tIsr: {_numbers(self.isr)}"
        )

    def as_json(self) -> dict[str, Any]:
        """The partition for `--format json`."""
        return {
            "partition": self.partition,
            "leader": self.leader,
            "leader_epoch": self.leader_epoch,
            "replicas": list(self.replicas),
            "isr": list(self.isr),
        }

    def as_json_with_ends(self) -> dict[str, Any]:
        """The partition for `--format json` with how much it holds; null where that is unknown."""
        start, end, records = (
            (None, None, None) if self.ends is None else (*self.ends, self.ends.records)
        )
        known = {"start_offset": start, "end_offset": end, "records": records}
        return {**self.as_json(), **known}


class TopicDescription(NamedTuple):
    """A topic with its partitions and settings."""

    name: str
    topic_id: bytes
    internal: bool
    partitions: tuple[PartitionView, ...]
    configs: dict[str, ConfigEntry]

    @property
    def overrides(self) -> dict[str, str]:
        """The settings that are not defaults."""
        return {key: each.value or "" for key, each in self.configs.items() if each.overridden}

    @property
    def warnings(self) -> list[str]:
        """Behaviour of this topic that its settings do not suggest.

        Empty when the settings were not asked for.
        """
        if not self.configs:
            return []
        values = {key: each.value or "" for key, each in self.configs.items()}
        return config_warnings(values, self.overrides)

    @property
    def replication_factor(self) -> int:
        return len(self.partitions[0].replicas) if self.partitions else 0

    def header(self) -> str:
        """Kafka's first line of describe."""
        configs = ",".join(f"{key}={value}" for key, value in sorted(self.overrides.items()))
        return (
            f"Topic: {self.name}\tTopicId: {id_text(self.topic_id)}"
            f"\tPartitionCount: {len(self.partitions)}"
            f"\tReplicationFactor: {self.replication_factor}\tConfigs: {configs}"
        )

    def legacy_header(self) -> str:
        """The first line of the older layout."""
        internal = "true" if self.internal else "false"
        return (
            f"Topic:{self.name} PartitionCount:{len(self.partitions)} "
            f"ReplicationFactor:{self.replication_factor} IsInternal:{internal} "
            f"MinInsyncReplicas:{_min_isr(self.configs)}"
        )

    def as_json(self) -> dict[str, Any]:
        """The topic for `--format json`."""
        return {
            "name": self.name,
            "topic_id": id_text(self.topic_id),
            "internal": self.internal,
            "partition_count": len(self.partitions),
            "replication_factor": self.replication_factor,
            "configs": {key: each.value for key, each in sorted(self.configs.items())},
            "overrides": self.overrides,
            "warnings": self.warnings,
            "partitions": [each.as_json() for each in self.partitions],
        }

    def as_json_with_ends(self) -> dict[str, Any]:
        """The topic for `--format json`, with how much each partition holds."""
        partitions = [each.as_json_with_ends() for each in self.partitions]
        return {**self.as_json(), "partitions": partitions}


def id_text(topic_id: bytes) -> str:
    """A topic id as Kafka writes it: base64url without padding, 22 characters."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


def id_of_text(text: str) -> bytes | None:
    """The id that `id_text` wrote; None for a text that is none."""
    try:
        raw = base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except ValueError:
        return None
    return raw if len(raw) == 16 else None


def _numbers(nodes: Sequence[int]) -> str:
    return ",".join(str(node) for node in nodes)


def _min_isr(configs: dict[str, ConfigEntry]) -> int:
    entry = configs.get(MIN_ISR)
    return int(entry.value) if entry is not None and entry.value else 1


async def describe_topics(
    client: Client, names: Sequence[str] | None, *, configs: bool = True
) -> list[TopicDescription]:
    """These topics, or all, sorted by name. `KafkaError` for the first that does not exist."""
    answer: MetadataResponse = await client.ask(metadata(names))
    live = frozenset(broker.node_id for broker in answer.brokers)
    settings: dict[str, dict[str, ConfigEntry]] = {}
    if configs:
        wanted = sorted(topic.name or "" for topic in answer.topics if topic.error_code == 0)
        for start in range(0, len(wanted), _IDS_PER_REQUEST):
            settings |= await client.ask(describe_configs(wanted[start : start + _IDS_PER_REQUEST]))
    return list(_descriptions(answer, live, settings))


def _descriptions(
    answer: MetadataResponse, live: frozenset[int], settings: dict[str, dict[str, ConfigEntry]]
) -> Iterator[TopicDescription]:
    for topic in sorted(answer.topics, key=lambda each: each.name or ""):
        name = topic.name or ""
        if topic.error_code != ErrorCode.NONE:
            raise KafkaError(topic.error_code, on=f"topic {name}")
        configs = settings.get(name, {})
        ordered = sorted(topic.partitions, key=lambda each: each.partition_index)
        views = tuple(_partition(name, each, live, configs) for each in ordered)
        yield TopicDescription(name, topic.topic_id, topic.is_internal, views, configs)


def _partition(
    name: str,
    each: MetadataResponsePartition,
    live: frozenset[int],
    configs: dict[str, ConfigEntry],
) -> PartitionView:
    return PartitionView(
        name,
        each.partition_index,
        each.leader_id if each.leader_id >= 0 else None,
        each.leader_epoch,
        tuple(each.replica_nodes),
        tuple(each.isr_nodes),
        live,
        _min_isr(configs),
    )

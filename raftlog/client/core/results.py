"""The results of questions: plain values that `raftlog.client.core.asks` reads from answers."""

from typing import NamedTuple

from raftlog.base.ids import Offset
from raftlog.base.units import WallMillis
from raftlog.client.core.errors import KafkaError
from raftlog.client.core.values import TopicPartition
from raftlog.kafka.error_codes import ErrorCode


class OffsetAt(NamedTuple):
    """An offset with its timestamp and leader epoch. The offset is -1 when no record matches."""

    offset: Offset
    timestamp_ms: WallMillis
    leader_epoch: int


class TopicResult(NamedTuple):
    """The outcome of an administrative call for one topic."""

    name: str
    error_code: int = 0
    message: str | None = None
    topic_id: bytes = b""
    partitions: int = -1
    replication_factor: int = -1

    def check(self) -> "TopicResult":
        """The result itself; raises `KafkaError` for a refusal."""
        if self.error_code != 0:
            raise KafkaError(self.error_code, on=f"topic {self.name}", message=self.message)
        return self


class PartitionResult(NamedTuple):
    """The outcome of an administrative call for one partition."""

    place: TopicPartition
    error_code: int = 0
    message: str | None = None

    def check(self) -> "PartitionResult":
        """The result itself; raises `KafkaError` for a refusal."""
        check_code(self.error_code, str(self.place), self.message)
        return self


class ConfigEntry(NamedTuple):
    """A setting from DescribeConfigs. `overridden` means that the value is not a default."""

    name: str
    value: str | None
    overridden: bool
    read_only: bool


def check_code(code: int, on: str, message: str | None = None) -> None:
    """Raise `KafkaError` unless the error code is 0."""
    if code != ErrorCode.NONE:
        raise KafkaError(code, on=on, message=message or None)

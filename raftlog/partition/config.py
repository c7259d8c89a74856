"""The settings of one partition: its topic's, with the broker's defaults already applied.

Names follow Kafka's settings. The metadata code parses and judges the values before they come here.
"""

from typing import Final, final

import attrs

from raftlog.base.limits import BATCH_BYTES_DEFAULT, BATCH_BYTES_MAX, ROLL_MS_MIN
from raftlog.base.units import Nanos, millis

UNBOUNDED_MS: Final = 2**63 - 1
UNLIMITED: Final = -1
_DAY_MS: Final = 86_400_000


@final
@attrs.frozen(kw_only=True)
class PartitionConfig:
    """Settings of one partition. When a topic setting changes, the replica gets a new value
    (`PartitionReplica.configure`).

    * `max_message_bytes`, `min_insync_replicas`: as Kafka's.
    * `log_append_time`: whether `message.timestamp.type` is LogAppendTime.
    * `timestamp_before_max_ms`, `timestamp_after_max_ms`: `message.timestamp.*.max.ms`.
    * `validate_records`: `raftlog.validate.records`. `keyed`: each record then needs a key.
    * `linearizable`: whether `raftlog.read.consistency` is linearizable.
    * `retention_bytes`, `retention_ms`: the bounds of retention; -1 for no bound.
    * `retention_check_ns`: the time between two looks of a leader at retention.
    * `segment_bytes`: the size at which a new segment begins; None keeps the size with which the
      log was opened.
    * `segment_ms`: the age at which a segment takes no more entries.
    * `replica_lag_ns`: `replica.lag.time.max.ms`.
    * `producer_expiration_ms`: `producer.id.expiration.ms`.
    """

    max_message_bytes: int = BATCH_BYTES_DEFAULT
    min_insync_replicas: int = 1
    log_append_time: bool = False
    timestamp_before_max_ms: int = UNBOUNDED_MS
    timestamp_after_max_ms: int = 3_600_000
    validate_records: bool = False
    keyed: bool = False
    linearizable: bool = False
    retention_bytes: int = UNLIMITED
    retention_ms: int = UNLIMITED
    segment_bytes: int | None = None
    segment_ms: int = UNBOUNDED_MS
    retention_check_ns: Nanos = millis(300_000)
    replica_lag_ns: Nanos = millis(30_000)
    producer_expiration_ms: int = _DAY_MS

    def __attrs_post_init__(self) -> None:
        assert 0 <= self.max_message_bytes <= BATCH_BYTES_MAX, self.max_message_bytes
        assert self.min_insync_replicas >= 1, self.min_insync_replicas
        assert self.retention_bytes >= UNLIMITED, self.retention_bytes
        assert self.retention_ms >= UNLIMITED, self.retention_ms
        assert self.segment_ms >= 1, self.segment_ms
        assert self.retention_check_ns > 0, self.retention_check_ns
        assert self.replica_lag_ns > 0, self.replica_lag_ns
        assert self.producer_expiration_ms > 0, self.producer_expiration_ms

    @property
    def deletes(self) -> bool:
        """Whether retention by size or by age ever deletes records."""
        return self.retention_bytes != UNLIMITED or self.retention_ms != UNLIMITED

    @property
    def roll_ms(self) -> int:
        """The age at which the active segment rolls, in milliseconds.

        Retention deletes whole segments only. So a segment must not take records for longer than
        records are kept.
        """
        kept = self.segment_ms if self.retention_ms == UNLIMITED else self.retention_ms
        return max(ROLL_MS_MIN, min(self.segment_ms, kept))

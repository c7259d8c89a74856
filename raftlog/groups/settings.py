"""The settings of coordinators, and the facts about a client that a coordinator needs."""

from typing import final

import attrs

from raftlog.base.limits import BATCH_BYTES_DEFAULT

_DAY_MS = 24 * 3_600 * 1_000


@final
@attrs.frozen(kw_only=True)
class GroupSettings:
    """Settings of all coordinators of a broker; the defaults are Kafka's.

    * `session_timeout_ms_min`: `group.min.session.timeout.ms`.
    * `session_timeout_ms_max`: `group.max.session.timeout.ms`.
    * `initial_rebalance_delay_ms`: `group.initial.rebalance.delay.ms`.
    * `group_size_max`: `group.max.size`; `GROUP_MEMBERS_MAX` is its upper bound.
    * `offsets_retention_ms`: `offsets.retention.minutes`.
    * `retention_check_ms`: `offsets.retention.check.interval.ms`.
    * `offset_metadata_bytes_max`: `offset.metadata.max.bytes`.
    * `new_member_join_ms`: how long the first JoinGroup of a member may wait; Kafka's constant.
    * `batch_bytes_max`: `max.message.bytes` of the offsets topic; no proposal is larger.
    """

    session_timeout_ms_min: int = 6_000
    session_timeout_ms_max: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    group_size_max: int = 2**31 - 1
    offsets_retention_ms: int = 7 * _DAY_MS
    retention_check_ms: int = 600_000
    offset_metadata_bytes_max: int = 4_096
    new_member_join_ms: int = 300_000
    batch_bytes_max: int = BATCH_BYTES_DEFAULT


@final
@attrs.frozen(kw_only=True)
class GroupClient:
    """The sender of a request: its client id, its host as DescribeGroups prints it (`/127.0.0.1`),
    and the version of the API that it used."""

    client_id: str
    host: str
    version: int

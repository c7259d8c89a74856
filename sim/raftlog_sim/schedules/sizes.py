"""The broker configuration that the options of a run give: small sizes, whose edges are common.

It has the rarer modes too.
"""

from typing import TYPE_CHECKING, Final

import attrs

from raftlog.base.units import NANOS_PER_MICRO, Nanos, millis
from raftlog.broker.config import BrokerConfig, BrokerLimits, OffsetsTopicSettings
from raftlog.groups.settings import GroupSettings
from raftlog.storage.replica import LogOptions
from raftlog_sim.schedules.options import SEGMENT_BYTES, SimOptions

if TYPE_CHECKING:
    from raftlog_sim.schedules.schedule import Schedule
    from raftlog_sim.world.world import World

RETENTION_CHECK_NS: Final = millis(100)
_TIGHT: Final = BrokerLimits(
    unanswered_bytes=4_000,
    unanswered_requests=2,
    uncommitted_bytes=2_000,
    output_bytes=6_000,
    held_bytes=8_000,
)
"""Small limits, each of which admits one request of any size, so nothing comes to a halt."""
_METADATA_SEGMENT_BYTES: Final = 8_000
_ELECTIONS_A_SESSION: Final = 4
"""The session of a broker, in election timeouts. A controller is elected, and hears of the live
brokers, before it fences one."""
_SESSION_MS_MIN: Final = 800
_ELECTIONS_A_MEMBER: Final = 5
OFFSETS_RETENTION_MS: Final = 3_600_000
OFFSETS_PARTITIONS: Final = 2


def session_ms(options: SimOptions) -> int:
    """Returns the session of a group's member.

    It outlives the failover of a coordinator, so that no member expires that the old one still
    hears.
    """
    return max(_SESSION_MS_MIN, _ELECTIONS_A_MEMBER * options.election_ms)


def rebalance_ms(options: SimOptions, group: int) -> int:
    """Returns how long a rebalance waits for a member that does not come back.

    It waits until the member's session is over or, in groups of odd number, half as long.
    """
    return session_ms(options) // 2 if group % 2 else 2 * session_ms(options)


def _with_groups(options: SimOptions, config: BrokerConfig) -> BrokerConfig:
    """Returns the configuration of groups: few partitions, and a short delay in every second
    seed."""
    return attrs.evolve(
        config,
        groups=GroupSettings(
            session_timeout_ms_min=session_ms(options),
            initial_rebalance_delay_ms=(0, 100)[options.seed % 2],
            offsets_retention_ms=OFFSETS_RETENTION_MS,
            retention_check_ms=200,
        ),
        offsets_topic=OffsetsTopicSettings(
            partitions=OFFSETS_PARTITIONS,
            replication=options.replication,
            segment_bytes=max(options.segment_bytes, SEGMENT_BYTES),
        ),
    )


def configured(options: SimOptions, config: BrokerConfig) -> BrokerConfig:
    """Returns the configuration of one broker of such a run."""
    election_ns = millis(options.election_ms)
    config = attrs.evolve(
        config,
        heartbeat_ns=millis(options.heartbeat_ms),
        election_ns=election_ns,
        session_ns=Nanos(max(config.session_ns, _ELECTIONS_A_SESSION * election_ns)),
    )
    config = _with_groups(options, config)
    if options.narrow_appends:
        config = attrs.evolve(config, append_bytes_max=1, appends_in_flight_max=1)
    if options.segment_bytes < SEGMENT_BYTES:
        sizes = LogOptions(segment_bytes=options.segment_bytes)
        config = attrs.evolve(config, log_sizes=sizes, retention_check_ns=RETENTION_CHECK_NS)
    if options.retention_ms:
        config = attrs.evolve(config, retention_check_ns=RETENTION_CHECK_NS)
    if options.tight:
        config = attrs.evolve(config, limits=_TIGHT)
    if options.snapshot_every:
        config = attrs.evolve(
            config,
            metadata_segment_bytes=_METADATA_SEGMENT_BYTES,
            metadata_snapshot_every=options.snapshot_every,
            metadata_digest_every=max(1, options.snapshot_every // 4),
        )
    if options.producer_expiration_ms:
        config = attrs.evolve(
            config,
            producer_expiration_ms=options.producer_expiration_ms,
            retention_check_ns=RETENTION_CHECK_NS,
        )
    if options.scrub_ms:
        config = attrs.evolve(config, scrub_interval_ns=millis(options.scrub_ms))
    return attrs.evolve(config, strict_mark=options.strict_mark, lease=options.lease)


def shape(world: "World", schedule: "Schedule") -> None:
    """Set up the world for this schedule."""
    options = schedule.options
    world.sync_ns = options.sync_us * NANOS_PER_MICRO
    world.turn_ns = options.turn_us * NANOS_PER_MICRO
    world.patient = options.patient
    world.split_turns = options.split_turns
    world.release = options.release
    world.directories = options.directories
    world.store_bytes = options.store_bytes
    network = world.network
    network.encode, network.stale = options.encode, options.stale
    network.latency_ns = options.latency_us * NANOS_PER_MICRO
    network.jitter_ns = options.jitter_us * NANOS_PER_MICRO
    network.queue_max = options.queue_max
    network.replays = any(step.kind == "replay" for step in schedule.steps)
    network.keeps = any(step.kind == "replay-any" for step in schedule.steps)

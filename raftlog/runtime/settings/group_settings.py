"""Settings of a broker's file for consumer groups: `group.*` and `offsets.*` settings, judged."""

from typing import Final

from raftlog.base.errors import ConfigError
from raftlog.base.units import Nanos, millis
from raftlog.broker.config import OffsetsTopicSettings, session_timeout_ms_least
from raftlog.groups.settings import GroupSettings
from raftlog.runtime.settings.settings_file import SettingsFile

_MINUTE_MS: Final = 60_000
_SHORTEST: Final = "group.min.session.timeout.ms"
_LONGEST: Final = "group.max.session.timeout.ms"


def group_settings(
    settings: SettingsFile, heartbeat_ns: Nanos, election_ns: Nanos
) -> GroupSettings:
    """The settings that coordinators get. `ConfigError` where a session could end while the
    coordinator that was replaced still answers, or where no session timeout is left."""
    shortest, longest = settings.number(_SHORTEST), settings.number(_LONGEST)
    least = session_timeout_ms_least(heartbeat_ns, election_ns)
    if shortest <= least:
        raise ConfigError(
            f"{_SHORTEST} = {shortest} is too short for the election timeout: a new coordinator "
            f"could take a member for gone whom the old one still answers",
            on=settings.where(_SHORTEST),
            do=f"make it more than {least}, or lower raftlog.raft.election.timeout.ms",
        )
    if longest < shortest:
        raise ConfigError(
            f"{_LONGEST} = {longest} is below {_SHORTEST} = {shortest}",
            on=settings.where(_LONGEST),
            do=f"make it at least {shortest}",
        )
    return GroupSettings(
        session_timeout_ms_min=shortest,
        session_timeout_ms_max=longest,
        initial_rebalance_delay_ms=settings.number("group.initial.rebalance.delay.ms"),
        group_size_max=settings.number("group.max.size"),
        offsets_retention_ms=settings.number("offsets.retention.minutes") * _MINUTE_MS,
        retention_check_ms=settings.number("offsets.retention.check.interval.ms"),
        offset_metadata_bytes_max=settings.number("offset.metadata.max.bytes"),
    )


def offsets_topic_settings(settings: SettingsFile) -> OffsetsTopicSettings:
    """How the internal topic is made, and how long its writes may take."""
    return OffsetsTopicSettings(
        partitions=settings.number("offsets.topic.num.partitions"),
        replication=settings.number("offsets.topic.replication.factor"),
        segment_bytes=settings.number("offsets.topic.segment.bytes"),
        commit_ns=millis(settings.number("offsets.commit.timeout.ms")),
    )

"""Settings of brokers that change while they run: kept in group 0, for one broker or for every one.

Most are Kafka's broker-wide defaults of topic settings, under the names of `server.properties`.
A value for one broker beats the value for every broker, and both beat the broker's file. A topic's
own setting beats them all. The others (BROKER_ONLY) are about the broker itself:
the rates of throttled moves, between brokers and between the log directories of one. Everything
else is read from the file at the start.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from raftlog.base.binary import Reader
from raftlog.base.ids import NodeId
from raftlog.base.limits import BROKERS_MAX, INT32_MAX
from raftlog.metadata import fields as f
from raftlog.metadata.settings.config_changes import (
    Altered,
    ConfigChange,
    ConfigOperation,
    altered_configs,
)
from raftlog.metadata.settings.config_checks import LONG_MAX, integer
from raftlog.metadata.settings.topic_config_table import (
    TOPIC_CONFIGS,
    ConfigType,
    SettingClass,
    TopicConfig,
)
from raftlog.metadata.topic_image import CONFIGS, Configs

EVERY_BROKER: Final = NodeId(-1)
"""The owner of what counts for every broker."""
BrokerSettings = Mapping[NodeId, Configs]

DYNAMIC: Final[Mapping[str, TopicConfig]] = {
    config.broker_names[0][0]: config
    for config in TOPIC_CONFIGS.values()
    if config.classed is SettingClass.HONOURED and config.broker_names
}
"""Broker-wide name -> the topic setting whose default it is. A number is meant as it stands: only
the first of several names counts (`log.retention.ms`, and not `.hours`)."""
LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
DIRECTORY_RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
BROKER_ONLY: Final[Mapping[str, TopicConfig]] = {
    name: TopicConfig(
        name=name,
        kind=ConfigType.LONG,
        default=str(LONG_MAX),
        check=integer(0, LONG_MAX),
        about=about,
    )
    for name, about in (
        (
            FOLLOWER_RATE,
            "bytes a second that this broker takes for replicas that move here, of topics whose "
            "follower.replication.throttled.replicas names it",
        ),
        (
            LEADER_RATE,
            "bytes a second that this broker sends to replicas that move, of topics whose "
            "leader.replication.throttled.replicas names it",
        ),
        (
            DIRECTORY_RATE,
            "bytes a second that this broker copies of replicas that move between its log "
            "directories",
        ),
    )
}
"""Settings of the broker itself: no topic has one, and a file gives none."""
CHANGEABLE: Final[Mapping[str, TopicConfig]] = {**DYNAMIC, **BROKER_ONLY}
"""Every setting that changes while a broker runs, by the name that brokers have for it."""
_BROKER_NAMES: Final = {config.name: name for name, config in DYNAMIC.items()}


def _read_owner(reader: Reader) -> NodeId:
    number = reader.u32()
    if number > INT32_MAX + 1:
        raise reader.fail(f"owner {number} of settings is no node")
    return NodeId(number - 1)


# On disk an owner is its node id + 1, so that every broker is 0.
OWNER: Final = f.Field(lambda writer, node: writer.u32(node + 1), _read_owner, 4)
SETTINGS: Final = f.many(f.pair(OWNER, CONFIGS), BROKERS_MAX + 1)


def topic_level(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The same under the names that topics have. A name that this release does not know was given
    by a later one, and has no meaning here."""
    return {DYNAMIC[name].name: value for name, value in pairs if name in DYNAMIC}


def altered_settings(
    own: Iterable[tuple[str, str]], changes: Iterable[ConfigChange], *, replace: bool
) -> Altered | str:
    """The settings of an owner to set and to remove, or why the changes are refused."""
    own, wanted, changed, removed = tuple(own), [], [], []
    for change in changes:
        config = CHANGEABLE.get(change.name)
        if config is None:
            return f"{change.name} does not change while a broker runs"
        wrong = config.check(change.value) if change.operation is ConfigOperation.SET else None
        if wrong is not None:
            return f"{change.name}={change.value} {wrong}"
        if change.name in DYNAMIC:
            wanted.append(ConfigChange(change.operation, config.name, change.value))
        elif change.operation is ConfigOperation.SET:
            changed.append((change.name, change.value))
        elif change.operation is ConfigOperation.DELETE:
            removed.append(change.name)
        else:
            return (
                f"Can't {change.operation.name} to key {change.name} because its type is not LIST."
            )
    altered = altered_configs(topic_level(own).items(), wanted, replace=replace)
    if isinstance(altered, str):
        return altered
    kept = dict(changed)
    gone = [
        name
        for name, _ in own
        if name in BROKER_ONLY and (name in removed or (replace and name not in kept))
    ]
    changed += [(_BROKER_NAMES[name], value) for name, value in altered.changed]
    gone += [_BROKER_NAMES[name] for name in altered.removed]
    return Altered(tuple(sorted(changed)), tuple(sorted(gone)))

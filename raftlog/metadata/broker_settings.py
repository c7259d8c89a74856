"""Settings of brokers that change while they run: kept in group 0, for one broker or for every one.

They are Kafka's broker-wide defaults of topic settings, under the names of `server.properties`.
What is given to one broker counts before what is given to every broker, and both before its file. A
topic's own setting counts before them all. Everything else is read from the file at the start.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from raftlog.base.binary import Reader
from raftlog.base.ids import NodeId
from raftlog.base.limits import BROKERS_MAX, INT32_MAX
from raftlog.metadata import fields as f
from raftlog.metadata.config_changes import Altered, ConfigChange, Operation, altered_configs
from raftlog.metadata.topic_config_table import TOPIC_CONFIGS, SettingClass, TopicConfig
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
    """What to set and to remove of an owner's settings, or why the changes are refused."""
    wanted: list[ConfigChange] = []
    for change in changes:
        config = DYNAMIC.get(change.name)
        if config is None:
            return f"{change.name} does not change while a broker runs"
        wrong = config.check(change.value) if change.operation is Operation.SET else None
        if wrong is not None:
            return f"{change.name}={change.value} {wrong}"
        wanted.append(ConfigChange(change.operation, config.name, change.value))
    altered = altered_configs(topic_level(own).items(), wanted, replace=replace)
    if isinstance(altered, str):
        return altered
    return Altered(
        tuple(sorted((_BROKER_NAMES[name], value) for name, value in altered.changed)),
        tuple(sorted(_BROKER_NAMES[name] for name in altered.removed)),
    )

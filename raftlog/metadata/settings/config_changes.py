"""Applies SET, DELETE, APPEND and SUBTRACT to a topic's own settings. Pure; controllers call it.

Codes and sentences are Kafka's where Kafka has them. A list that the topic does not set begins with
its built-in default, as in Kafka. Only what comes out is judged: a value that an older release took
stays as long as no change names it.
"""

import enum
from collections.abc import Iterable, Mapping
from typing import Final, final

import attrs

from raftlog.base.binary import Reader, Writer
from raftlog.base.limits import CONFIG_NAME_BYTES_MAX, CONFIG_VALUE_BYTES_MAX, CONFIGS_PER_TOPIC_MAX
from raftlog.metadata import fields as f
from raftlog.metadata.settings.config_checks import words
from raftlog.metadata.settings.topic_config_table import TOPIC_CONFIGS, ConfigType
from raftlog.metadata.settings.topic_configs import config_problem, configs_problem
from raftlog.metadata.settings.topic_defaults import DEFAULTS_NAME, built_in_defaults
from raftlog.metadata.topic_image import Configs


@final
class ConfigOperation(enum.IntEnum):
    """Kafka's numbers of IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@final
@attrs.frozen
class ConfigChange:
    """One change of one setting. `value` is empty for DELETE."""

    operation: ConfigOperation
    name: str
    value: str = ""


def _read_operation(reader: Reader) -> ConfigOperation:
    number = reader.u8()
    try:
        return ConfigOperation(number)
    except ValueError:
        raise reader.fail(f"unknown operation {number} on a setting") from None


_OPERATION: Final = f.Field(Writer.u8, _read_operation, 1)

CHANGES: Final = f.many(
    f.record(
        ConfigChange,
        (
            ("operation", _OPERATION),
            ("name", f.text(CONFIG_NAME_BYTES_MAX)),
            ("value", f.text(CONFIG_VALUE_BYTES_MAX)),
        ),
    ),
    CONFIGS_PER_TOPIC_MAX,
)


@final
@attrs.frozen
class Altered:
    """The overrides to set, sorted, and the names to remove, sorted; disjoint."""

    changed: Configs
    removed: tuple[str, ...]


def altered_configs(
    own: Iterable[tuple[str, str]], changes: Iterable[ConfigChange], *, replace: bool
) -> Altered | str:
    """The settings of a topic's `own` to set and to remove, or why the changes are refused. With
    `replace` (AlterConfigs) the settings that no change names go back to their defaults."""
    before = dict(own)
    defaults = built_in_defaults(before.items())
    changed: dict[str, str] = {}
    deleted: list[str] = []
    for change in changes:
        if change.name in changed or change.name in deleted:
            return f"{change.name} is given twice"
        if change.name == DEFAULTS_NAME:
            return f"{DEFAULTS_NAME} belongs to the cluster and cannot be changed"
        if change.operation is ConfigOperation.DELETE:
            deleted.append(change.name)
            continue
        if change.operation is not ConfigOperation.SET:
            result = _changed_list(change, before, defaults)
            if result is None:
                return _not_a_list(change)
            changed[change.name] = result
        else:
            changed[change.name] = change.value
    problem = configs_problem(changed.items())
    if problem is not None:
        return problem
    removed = [name for name in before if name in deleted]
    if replace:
        kept = (DEFAULTS_NAME, *changed, *deleted)
        removed += [name for name in before if name not in kept]
    return Altered(tuple(sorted(changed.items())), tuple(sorted(removed)))


def _changed_list(
    change: ConfigChange, before: Mapping[str, str], defaults: Mapping[str, str]
) -> str | None:
    """The list after APPEND or SUBTRACT; None when the setting is none."""
    config = TOPIC_CONFIGS.get(change.name)
    if config is None or config.kind is not ConfigType.LIST:
        return None
    found = words(before.get(change.name, defaults[change.name]))
    for word in words(change.value):
        if change.operation is ConfigOperation.SUBTRACT:
            found = [each for each in found if each != word]
        elif word not in found:
            found.append(word)
    return ",".join(found)


def _not_a_list(change: ConfigChange) -> str:
    if change.name not in TOPIC_CONFIGS:
        return config_problem(change.name, change.value) or change.name
    name = change.operation.name
    return f"Can't {name} to key {change.name} because its type is not LIST."

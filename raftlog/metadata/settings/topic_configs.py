"""Judges the settings of a topic, names the nearest name to a wrong one, and lays settings over one
another.

The table is `topic_config_table`. Broker-wide defaults go by Kafka's broker names
(`log.retention.ms` and the like), which the table translates. The controller refuses a value
before it proposes a command. `apply` itself judges no value, for defaults and rules may change
between releases.
"""

import difflib
from collections.abc import Iterable, Mapping
from typing import Final

from raftlog.base.limits import CONFIG_VALUE_BYTES_MAX
from raftlog.metadata.settings.config_checks import words
from raftlog.metadata.settings.topic_config_table import TOPIC_CONFIGS, SettingClass, TopicConfig

_PROBLEMS_NAMED_MAX: Final = 10
"""A request may hold thousands of wrong settings; the answer names ten and counts the rest."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like `name`, if one is."""
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return found[0] if found else None


def config_problem(name: str, value: str) -> str | None:
    """The fault of a topic setting, in a sentence that names the fix; None when there is none."""
    config = TOPIC_CONFIGS.get(name)
    if config is None:
        near = nearest(name, TOPIC_CONFIGS)
        advice = f"did you mean {near}?" if near else "docs/reference/topic_settings.md has all"
        return f"unknown topic setting {name}; {advice}"
    if len(value.encode()) > CONFIG_VALUE_BYTES_MAX:
        return f"the value of {name} is longer than {CONFIG_VALUE_BYTES_MAX} bytes"
    wrong = config.check(value)
    return None if wrong is None else f"{name}={value} {wrong}"


def configs_problem(configs: Iterable[tuple[str, str]]) -> str | None:
    """The faults of overrides, every problem named up to a bound; each name at most once."""
    seen: dict[str, str] = {}
    problems: list[str] = []
    for name, value in configs:
        problem = f"{name} is given twice" if name in seen else config_problem(name, value)
        seen[name] = value
        if problem is not None:
            problems.append(problem)
    more = len(problems) - _PROBLEMS_NAMED_MAX
    told = "; ".join(problems[:_PROBLEMS_NAMED_MAX])
    return (f"{told}; and {more} more" if more > 0 else told) or None


def effective_configs(
    overrides: Iterable[tuple[str, str]], defaults: Iterable[tuple[str, str]] = ()
) -> dict[str, str]:
    """Every setting of a topic: its overrides, over the broker's defaults (by topic-level name),
    over the built-in ones."""
    values = {name: config.default for name, config in TOPIC_CONFIGS.items()}
    values.update(defaults)
    values.update(overrides)
    return values


def retention_deletes(cleanup_policy: str) -> bool:
    """Whether retention may delete segments of a topic with this `cleanup.policy`. Without `delete`
    a segment may hold the last record of a key, which Kafka promises to keep."""
    return "delete" in words(cleanup_policy)


def config_warnings(values: Mapping[str, str], overrides: Iterable[str]) -> list[str]:
    """Warnings about a topic that behaves otherwise than its owner may expect, one sentence each.

    `values` are its effective values, `overrides` the names of its own settings. CreateTopics
    answers the warnings, and `topics describe` shows them.
    """
    found = [_no_effect(name) for name in sorted(overrides) if _is_idle(name, values[name])]
    policies = words(values.get("cleanup.policy", ""))
    if "compact" in policies:
        kept = "retention still deletes" if "delete" in policies else "every record is kept"
        policy = ",".join(policies)
        found.insert(0, f"cleanup.policy={policy}: compaction does not run yet; {kept}")
    return found


def _is_idle(name: str, value: str) -> bool:
    config = TOPIC_CONFIGS.get(name)
    if config is None:
        return False  # a broker of a later release describes a setting that this table lacks
    return config.classed is SettingClass.NO_EFFECT and value != config.default


def _no_effect(name: str) -> str:
    return f"{name} has no effect: {TOPIC_CONFIGS[name].about}"


def broker_defaults(properties: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The topic-level defaults that broker settings give, by topic-level name, sorted.

    A value that is not valid is left for `broker_default_problem` to name.
    """
    found: list[tuple[str, str]] = []
    for config in TOPIC_CONFIGS.values():
        for name, factor in config.broker_names:
            if name in properties:
                found.append((config.name, _scaled(properties[name], factor)))
                break
    return tuple(found)


def default_of(broker_name: str) -> TopicConfig:
    """The topic setting whose default a broker setting gives."""
    return next(
        config
        for config in TOPIC_CONFIGS.values()
        if any(broker_name == name for name, _ in config.broker_names)
    )


def broker_default_problem(name: str, value: str) -> str | None:
    """The fault of a broker setting that gives a topic default; None when it is right or is no such
    setting."""
    for config in TOPIC_CONFIGS.values():
        for broker_name, factor in config.broker_names:
            if broker_name == name:
                wrong = config.check(_scaled(value, factor))
                return None if wrong is None else f"{name}={value} {wrong}"
    return None


BROKER_DEFAULT_NAMES: Final = tuple(
    sorted({name for config in TOPIC_CONFIGS.values() for name, _ in config.broker_names})
)
"""Every broker setting that gives a default of a topic setting."""


def _scaled(value: str, factor: int) -> str:
    """Hours and minutes as milliseconds; what is no number, or -1 for no bound, stays as it is."""
    digits = value[1:] if value.startswith("-") else value
    if factor <= 1 or value.startswith("-") or not (digits.isascii() and digits.isdigit()):
        return value
    return str(int(value) * factor) if len(value) <= 18 else value

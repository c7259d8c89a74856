"""Checks of setting values: each one returns what is wrong with a text, or None.

The case of `true` and `false`, and spaces around the words of a list, do not count, as in Kafka.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

Check = Callable[[str], str | None]

LONG_MAX: Final = 2**63 - 1
INT_MAX: Final = 2**31 - 1

_REPLICAS: Final = re.compile(r"\d+:\d+(\s*,\s*\d+:\d+)*", re.ASCII)


def integer(low: int, high: int) -> Check:
    """A whole number from `low` to `high`."""

    def check(value: str) -> str | None:
        digits = value.removeprefix("-")
        if not (digits.isascii() and digits.isdigit()) or len(digits) > 20:
            return "is not a whole number"
        if not low <= int(value) <= high:
            return f"must be from {low} to {high}"
        return None

    return check


def one_of(*allowed: str) -> Check:
    """One of these words."""

    def check(value: str) -> str | None:
        return None if value in allowed else f"must be one of: {', '.join(allowed)}"

    return check


def fixed(allowed: str, why: str) -> Check:
    """Only the default: what any other value promises is not kept. `why` says so."""

    def check(value: str) -> str | None:
        if value.strip().lower() == allowed.lower():
            return None
        return f"must be {allowed or 'empty'}: {why}"

    return check


def flag(value: str) -> str | None:
    """`true` or `false`."""
    return None if value.lower() in ("true", "false") else "must be true or false"


def number(value: str) -> str | None:
    """A number, with or without a fraction."""
    try:
        float(value)
    except ValueError:
        return "is not a number"
    return None


def ratio(value: str) -> str | None:
    """A number from 0 to 1."""
    wrong = number(value)
    if wrong is not None:
        return wrong
    return None if 0 <= float(value) <= 1 else "must be from 0 to 1"


def text(value: str) -> str | None:
    """Anything."""
    return None


def throttled_replicas(value: str) -> str | None:
    """Kafka's list of throttled replicas."""
    if value.strip() in ("", "*") or _REPLICAS.fullmatch(value.strip()):
        return None
    return "must be * or a list like 0:1,1:2 (partition:broker)"


@lru_cache(maxsize=64)
def _listed(value: str) -> Mapping[int, tuple[int, ...]]:
    nodes: dict[int, list[int]] = {}
    for word in words(value):
        partition, _, node = word.partition(":")
        nodes.setdefault(int(partition), []).append(int(node))
    return {partition: tuple(each) for partition, each in nodes.items()}


def names_replica(value: str, partition: int, node: int) -> bool:
    """Whether a list of throttled replicas (checked before) names that replica."""
    if value.strip() == "*":
        return True
    return bool(value) and node in _listed(value).get(partition, ())


def words(value: str) -> list[str]:
    """The words of a list with commas; spaces around each do not count."""
    return [word for word in (each.strip() for each in value.split(",")) if word]


def words_of(*allowed: str) -> Check:
    """A list with commas of these words; it may be empty."""

    def check(value: str) -> str | None:
        if all(word in allowed for word in words(value)):
            return None
        return f"must be a list of: {', '.join(allowed)}"

    return check

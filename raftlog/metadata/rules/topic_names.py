"""Which topic names are allowed: Kafka's grammar, which does not change between releases."""

from typing import Final

from raftlog.base.amounts import amount
from raftlog.base.limits import TOPIC_NAME_CHARS_MAX

METADATA_TOPIC: Final = "__cluster_metadata"
"""Group 0's log; the name is taken and never served."""
OFFSETS_TOPIC: Final = "__consumer_offsets"
"""Holds consumer groups and their committed offsets; brokers make it when a group is first used."""
RESERVED_TOPICS: Final = frozenset(
    {METADATA_TOPIC, OFFSETS_TOPIC, "__transaction_state", "__share_group_state"}
)
"""Topics whose records brokers write themselves; no request of a client creates one of them."""

_ALLOWED: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def topic_name_problem(name: str) -> str | None:
    """Why the name is not allowed, in Kafka's words where it has some; None when it is."""
    if not name:
        return "the topic name is empty"
    if name in (".", ".."):
        return f"the topic name cannot be {name!r}"
    if len(name) > TOPIC_NAME_CHARS_MAX:
        return (
            f"the topic name has {amount(len(name), 'character')}, at most "
            f"{TOPIC_NAME_CHARS_MAX} allowed"
        )
    if not all(character in _ALLOWED for character in name):
        return "the topic name may hold ASCII letters and digits, '.', '_' and '-' only"
    return None


def collision_key(name: str) -> str:
    """Names with equal keys collide in metric names: Kafka treats '.' and '_' alike there."""
    return name.replace(".", "_")

"""The identity of a record. The judge needs values that are unique within a topic."""

import hashlib
import json
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from raftlog.base.errors import WrongType, WrongValue

TEXT_MAX: Final = 200
"""The longest text that is recorded whole. A longer one is recorded as its beginning and its
SHA-256."""
_BEGINNING: Final = 60

Identity = str | int


class SeenRecord(NamedTuple):
    """A record as the application sees it: before its serializer, or after its deserializer."""

    topic: str
    key: Any
    value: Any
    headers: Any


Identify = Callable[[SeenRecord], Any]
"""A function that returns what is unique in a record of its topic: a text, a number, or an object
that can become one."""


def by_value(record: SeenRecord) -> Any:
    """Identify a record by its whole value, which is the default."""
    return record.value


def identity_of(record: SeenRecord, identify: Identify) -> Identity:
    """The identity that the history stores for a record."""
    found = identify(record)
    if found is None:
        raise WrongValue(
            "a record without a value cannot be told from another one",
            on=f"topic {record.topic}",
            do=_ADVICE,
        )
    if isinstance(found, int) and not isinstance(found, bool):
        return int(found)
    return _shortened(_text(found, record.topic))


_ADVICE: Final = (
    "tell the recorder what is unique: record(client, history, identity=lambda record: ...), with "
    "the same function for producers and consumers; it sees topic, key, value and headers"
)


def sent_twice(topic: str, identity: Identity) -> WrongValue:
    """The error of a value that was sent before."""
    return WrongValue(
        f"the value {identity!r} was sent before, and the judge tells records apart by their "
        "values",
        on=f"topic {topic}",
        do=f"send unique values (a number at the end will do), or {_ADVICE}",
    )


def _text(found: Any, topic: str) -> str:
    if isinstance(found, str):
        return found
    if isinstance(found, bytes | bytearray | memoryview):
        data = bytes(found)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return f"bytes {data.hex()}"
    try:
        return json.dumps(found, sort_keys=True, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):
        raise WrongType(
            f"a value of type {type(found).__name__} has no text to record",
            on=f"topic {topic}",
            do=_ADVICE,
        ) from None


def _shortened(text: str) -> str:
    whole = text.encode("utf-8", "backslashreplace")
    text = whole.decode()
    if len(text) <= TEXT_MAX:
        return text
    return f"{text[:_BEGINNING]}... sha256 {hashlib.sha256(whole).hexdigest()}"

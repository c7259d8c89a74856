"""The JSON files of moves, elections and deletions, in Kafka's formats.

    {"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 2, 3]}]}
    {"version": 1, "topics": [{"topic": "orders"}]}

`log_dirs` beside `replicas` names a directory for each, or says "any". A file that is wrong is
refused as a whole: `OperatingError` names the entry.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from raftlog.base.errors import OperatingError
from raftlog.base.limits import INT32_MAX, INT64_MAX
from raftlog.client.core.values import TopicPartition
from raftlog.metadata.rules.topic_names import topic_name_problem

Moves = dict[TopicPartition, tuple[int, ...]]
"""Partition -> its brokers, the preferred leader first."""
Directories = dict[int, dict[TopicPartition, str]]
"""Broker -> partition -> the log directory in which its replica is to lie."""

_VERSION: Final = 1
_FILE_BYTES_MAX: Final = 64 << 20
"""A plan of 100,000 partitions takes 10 MB."""
_ANY_DIRECTORY: Final = "any"
_Value = TypeVar("_Value")


def read_moves(path: Path) -> Moves:
    """Read a plan that `raftlog reassign generate` or Kafka's tool wrote."""
    return moves_of(_text(path), str(path))


def moves_of(text: str, on: str) -> Moves:
    """Read a plan from a text."""
    found = _entries(text, on, "partitions", _replicas)
    for place, nodes in found.items():
        if len(dict.fromkeys(nodes)) != len(nodes):
            raise OperatingError(f"{place} names a broker twice: {list(nodes)}", on=on)
    return found


def read_directories(path: Path) -> Directories:
    """The log directories that a plan names."""
    found: Directories = {}
    entries = _entries(_text(path), str(path), "partitions", _directories)
    for place, named in entries.items():
        for node, directory in named:
            found.setdefault(node, {})[place] = directory
    return found


def _replicas(entry: Mapping[str, Any]) -> tuple[int, ...]:
    nodes = entry["replicas"]
    if not isinstance(nodes, list) or not nodes:
        raise ValueError("replicas is no list of brokers")
    directories = entry.get("log_dirs", [_ANY_DIRECTORY] * len(nodes))
    if not isinstance(directories, list) or len(directories) != len(nodes):
        raise ValueError("log_dirs has not as many entries as replicas")
    if not all(isinstance(each, str) for each in directories):
        raise ValueError("log_dirs has an entry that is no text")
    return tuple(_number(node, "a broker", INT32_MAX) for node in nodes)


def _directories(entry: Mapping[str, Any]) -> list[tuple[int, str]]:
    nodes = _replicas(entry)
    named = zip(nodes, entry.get("log_dirs", [_ANY_DIRECTORY] * len(nodes)), strict=True)
    return [(node, directory) for node, directory in named if directory != _ANY_DIRECTORY]


def read_topics(path: Path) -> list[str]:
    """The topics of a file of topics to move."""
    on = str(path)
    entries = _list_of(_text(path), on, "topics")
    names = [_topic(each, on) for each in entries]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise OperatingError(f"topic {twice} is named twice", on=on)
    return names


def read_places(path: Path) -> list[TopicPartition]:
    """The partitions of a file of elections."""
    return list(_entries(_text(path), str(path), "partitions", lambda entry: None))


def read_offsets(path: Path) -> dict[TopicPartition, int]:
    """The offsets of a file of deletions; -1 means everything."""
    return _entries(
        _text(path),
        str(path),
        "partitions",
        lambda entry: _number(entry["offset"], "offset", INT64_MAX, low=-1),
    )


def plan_document(moves: Mapping[TopicPartition, Sequence[int]]) -> dict[str, Any]:
    """A plan in Kafka's form, sorted."""
    partitions = [
        {
            "topic": place.topic,
            "partition": place.partition,
            "replicas": list(nodes),
            "log_dirs": [_ANY_DIRECTORY] * len(nodes),
        }
        for place, nodes in sorted(moves.items())
    ]
    return {"version": _VERSION, "partitions": partitions}


def plan_text(moves: Mapping[TopicPartition, Sequence[int]]) -> str:
    """A plan as Kafka's tool writes it: one line, without spaces."""
    return json.dumps(plan_document(moves), separators=(",", ":"))


# --- reading --------------------------------------------------------------------------------------


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > _FILE_BYTES_MAX:
            raise OperatingError(f"the file is larger than {_FILE_BYTES_MAX} bytes", on=str(path))
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OperatingError(f"the file cannot be read: {error}", on=str(path)) from error


def _list_of(text: str, on: str, field: str) -> list[Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise OperatingError(f"the file is no JSON: {error}", on=on) from None
    if not isinstance(document, dict):
        raise OperatingError("the file is no JSON object", on=on)
    version = document.get("version", _VERSION)
    if version != _VERSION:
        raise OperatingError(f"Not supported version field value {version}", on=on)
    entries = document.get(field)
    if not isinstance(entries, list) or not entries:
        raise OperatingError(f'the file has no list "{field}"', on=on)
    return entries


def _entries(
    text: str, on: str, field: str, value: Callable[[Mapping[str, Any]], _Value]
) -> dict[TopicPartition, _Value]:
    found: dict[TopicPartition, _Value] = {}
    for at, entry in enumerate(_list_of(text, on, field)):
        topic = _topic(entry, on)
        try:
            place = TopicPartition(topic, _number(entry["partition"], "partition", INT32_MAX))
            told = value(entry)
        except KeyError as error:
            raise OperatingError(f"{field}[{at}] has no {error}", on=on) from None
        except ValueError as error:
            raise OperatingError(f"{field}[{at}]: {error}", on=on) from None
        if place in found:
            raise OperatingError(f"{place} is named twice", on=on)
        found[place] = told
    return found


def _topic(entry: object, on: str) -> str:
    name = entry.get("topic") if isinstance(entry, dict) else None
    problem = topic_name_problem(name) if isinstance(name, str) else "an entry has no topic"
    if problem is not None:
        raise OperatingError(problem, on=on)
    assert isinstance(name, str), name
    return name


def _number(value: object, what: str, high: int, *, low: int = 0) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ValueError(f"{what} is no number from {low} to {high}: {value!r}")
    return value

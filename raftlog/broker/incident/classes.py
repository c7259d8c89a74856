"""The classes whose values a recording may hold: those of the modules named here, and no other.

A recording names each class that it holds with its fields. A reader makes values of its own classes
only, and only when the fields are the same: nothing in a file can name code to run.
"""

import enum
import inspect
from collections.abc import Iterator, Mapping
from functools import cache
from types import ModuleType
from typing import Any, Final, final

import attrs

from raftlog.base import entries, errors, ids
from raftlog.broker import config, events, peer_messages
from raftlog.groups import settings
from raftlog.metadata.settings import topic_config_table
from raftlog.raft import messages
from raftlog.records import batch, control, slices
from raftlog.storage import (
    log_end,
    ops,
    partition_log,
    pending,
    read_plan,
    recent_window,
    replica,
    rounds,
    segment_files,
)
from raftlog.storage.boot import recovery, walked_log
from raftlog.storage.directories import (
    data_dir,
    directory_move,
    incarnations,
    log_directories,
    space,
)
from raftlog.storage.segments import (
    cold,
    jobs,
    scrub,
    segment,
    segment_end,
    segment_header,
    sparse_index,
    term_table,
    time_jobs,
    time_plan,
    walk,
)

MODULES: Final[tuple[ModuleType, ...]] = (
    entries, errors, ids, config, events, peer_messages, settings, topic_config_table, messages,
    batch, control, slices, cold, data_dir, incarnations, jobs, log_directories, log_end, ops,
    partition_log, pending, read_plan, recent_window, recovery, replica, rounds, scrub, segment,
    segment_end, segment_header, space, sparse_index, term_table, time_jobs, time_plan, walk,
    segment_files, walked_log, directory_move,
)  # fmt: skip


ERROR_FIELDS: Final = ("what", "on", "do")
MORE_OF_ERRORS: Final[Mapping[type, tuple[str, ...]]] = {
    log_directories.DirectoryFailed: ("directory",)
}
"""Class of an error with a constructor of its own -> the fields that it has beside its text."""


@final
@attrs.frozen
class RecordedClass:
    """One class: its name in a recording, its number there, and its fields in writing order."""

    number: int
    name: str
    cls: type
    fields: tuple[str, ...]


@cache
def classes() -> Mapping[type, RecordedClass]:
    """All recorded classes, in the order of their names."""
    found = {_name(cls): cls for module in MODULES for cls in _of(module)}
    return {
        found[name]: RecordedClass(number, name, found[name], _fields(found[name]))
        for number, name in enumerate(sorted(found))
    }


def _of(module: ModuleType) -> Iterator[type]:
    for _, cls in inspect.getmembers(module, inspect.isclass):
        if cls.__module__ == module.__name__ and _is_value(cls):
            yield cls


def _is_value(cls: type) -> bool:
    plain = "__slots__" in vars(cls) and not getattr(cls, "_is_protocol", False)
    return plain or attrs.has(cls) or issubclass(cls, tuple | enum.Enum | errors.RaftlogError)


def _name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _fields(cls: Any) -> tuple[str, ...]:
    if issubclass(cls, tuple):
        return tuple(cls._fields)
    if issubclass(cls, enum.Enum):
        return tuple(cls.__members__)
    if issubclass(cls, errors.RaftlogError):
        return (*ERROR_FIELDS, *MORE_OF_ERRORS.get(cls, ()))
    if attrs.has(cls):
        return tuple(each.name for each in attrs.fields(cls))
    slots = [getattr(base, "__slots__", ()) for base in reversed(cls.__mro__)]
    return tuple(name for each in slots for name in ((each,) if isinstance(each, str) else each))

"""The meaning of the tuples in the generated tables, and the types of the generated classes.

message = (api key or -1, name, kind, versions, flexible versions or None, fields)
field   = (name, type, versions, nullable versions or None, tag or None, tagged versions or None,
           default, children)

A range is (first, last), both included and cut to the message's versions. `type` is Kafka's word,
with `[]` in front for an array; `children` are the fields of a struct. A default of () is an empty
array or a struct of defaults, None is null.
"""

from typing import Any, Final, Protocol, TypeAlias

Range: TypeAlias = tuple[int, int]
FieldTable: TypeAlias = tuple[
    str, str, Range, Range | None, int | None, Range | None, Any, tuple[Any, ...]
]
MessageTable: TypeAlias = tuple[int, str, str, Range, Range | None, tuple[FieldTable, ...]]

ZERO_ID: Final = bytes(16)
"""The uuid that means "none"."""


class Sized(Protocol):
    """Bytes that lie elsewhere (a slice of a file), of known length, sent as they are."""

    def __len__(self) -> int:
        """The number of bytes that it stands for."""
        ...


Buffer: TypeAlias = bytes | bytearray | memoryview
"""Decoding gives a memoryview into the frame; encoding takes any of the three."""

Part: TypeAlias = Buffer | Sized
"""A part of a frame to send: bytes, a view, or a slice of a file."""

Records: TypeAlias = Part | list[Part]
"""A `records` field. Decoding gives a memoryview; encoding takes one part, or a list of parts."""


def holds(versions: Range | None, version: int) -> bool:
    """Whether the range contains the version."""
    return versions is not None and versions[0] <= version <= versions[1]

"""The text of a function under construction, with the fixed-width runs that it merges.

The two generators (`decode_text`, `encode_text`) share it. Nothing is executed here;
`raftlog.kafka.compile` does that.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from struct import Struct
from typing import Final, final

import attrs

from raftlog.kafka.shape import FieldTable, holds

FIXED: Final = {
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "bool": "B",
    "uuid": "16s",
}
"""Kafka type -> struct letter."""


@final
@attrs.define(eq=False)
class Source:
    """Indented lines and the constants that they name."""

    lines: list[str] = attrs.field(factory=list)
    constants: dict[str, object] = attrs.field(factory=dict)
    depth: int = 0

    def line(self, text: str) -> None:
        """Add one line at the present depth."""
        self.lines.append("    " * self.depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Add `head` and indent what follows."""
        self.line(head)
        self.depth += 1
        yield
        self.depth -= 1

    def constant(self, name: str, value: object) -> str:
        """Make `value` known under `name`, which must stand for one value only."""
        known = self.constants.setdefault(name, value)
        assert known == value, (name, known, value)
        return name

    def packer(self, letters: str) -> str:
        """The name of a precompiled Struct's `pack`."""
        name = "pack_" + letters.replace("?", "t")
        self.constants.setdefault(name, Struct(">" + letters).pack)
        return name

    def unpacker(self, letters: str) -> str:
        """The name of a precompiled Struct's `unpack_from`."""
        name = "unpack_" + letters
        self.constants.setdefault(name, Struct(">" + letters).unpack_from)
        return name

    def text(self) -> str:
        """All lines."""
        return "\n".join([*self.lines, ""])


def on_wire(fields: tuple[FieldTable, ...], version: int) -> list[FieldTable]:
    """The untagged fields of this version, in wire order."""
    return [f for f in fields if holds(f[2], version) and not holds(f[5], version)]


def tagged(fields: tuple[FieldTable, ...], version: int) -> list[FieldTable]:
    """The tagged fields of this version, by tag."""
    chosen = [f for f in fields if holds(f[2], version) and holds(f[5], version)]
    return sorted(chosen, key=lambda field: field[4] or 0)


def element(kind: str) -> str:
    """`[]int32` -> `int32`; a type that is no array is returned as it is."""
    return kind.removeprefix("[]")


def has_views(fields: tuple[FieldTable, ...], version: int) -> bool:
    """Whether this version carries bytes or records, which are handed out as views."""
    return any(
        holds(field[2], version)
        and (element(field[1]) in {"bytes", "records"} or has_views(field[7], version))
        for field in fields
    )


def min_bytes(fields: tuple[FieldTable, ...], version: int, flexible: bool) -> int:
    """The fewest bytes that a struct of these fields can take; at least one."""
    least = sum(min_field_bytes(field, version, flexible) for field in on_wire(fields, version))
    return max(1, least + (1 if flexible else 0))


def min_field_bytes(field: FieldTable, version: int, flexible: bool) -> int:
    """The fewest bytes that one field can take."""
    kind = field[1]
    if kind in FIXED:
        return Struct(">" + FIXED[kind]).size
    if kind == "string":
        return 1 if flexible else 2
    if kind.startswith("[]") or kind in {"bytes", "records"}:
        return 1 if flexible else 4
    return 1 if holds(field[3], version) else min_bytes(field[7], version, flexible)

"""Writes the text of a decoder: `decode(data, pos, budget) -> (body, pos, budget)`.

`data` is bytes, or a memoryview when the version has bytes or records. `budget` is the number of
array elements and tagged fields that the whole frame may still have. Rules of the text:

* consecutive fixed-width fields, and the length that follows them, are one `unpack_from`;
* a count is checked against what is left (count * smallest element) before a list is begun;
* every slice ends at or before the end of the frame, every tagged field exactly at its end;
* a fixed field past the end raises struct.error or IndexError, which the entry translates.
"""

from collections.abc import Callable
from typing import Final, final

import attrs

from raftlog.kafka.shape import FieldTable, MessageTable, holds
from raftlog.kafka.source import (
    FIXED,
    Source,
    element,
    has_views,
    min_bytes,
    min_field_bytes,
    on_wire,
    tagged,
)

ClassOf = Callable[[str], type]
"""Struct name -> generated class."""

_SIZES: Final = {"b": 1, "B": 1, "h": 2, "H": 2, "i": 4, "I": 4, "q": 8, "d": 8, "16s": 16}


def decoder_source(table: MessageTable, version: int, class_of: ClassOf) -> Source:
    """The decoder of one message version."""
    flexible = holds(table[4], version)
    source = Source()
    writer = _Decoder(
        source=source,
        version=version,
        flexible=flexible,
        views=has_views(table[5], version),
        class_of=class_of,
    )
    with source.block("def decode(data, pos, budget):"):
        source.line("end = len(data)")
        value = writer.struct(table[1], table[5], 0)
        source.line(f"return {value}, pos, budget")
    return source


@final
@attrs.define(eq=False, kw_only=True)
class _Decoder:
    source: Source
    version: int
    flexible: bool
    views: bool
    class_of: ClassOf
    run: list[tuple[str, str]] = attrs.field(factory=list)
    """Fixed-width fields not yet written: (struct letter, variable)."""
    checks: list[str] = attrs.field(factory=list)
    """Lines to write after the run's values are read."""

    def struct(self, name: str, fields: tuple[FieldTable, ...], depth: int) -> str:
        """Write the reading of a struct; returns the expression that makes it."""
        for field in on_wire(fields, self.version):
            self.field(field, depth)
        if self.flexible:
            self.tags(fields, depth)
        self.flush()
        known = self.class_of(name)
        values = [
            _variable(field, depth) if holds(field[2], self.version) else self.default(field)
            for field in fields
        ]
        made = self.source.constant("C_" + known.__name__, known)
        return f"new({made}, ({', '.join(values)},))"

    def field(self, field: FieldTable, depth: int) -> None:
        """Write the reading of one untagged or tagged field into its variable."""
        name, kind, target = field[0], field[1], _variable(field, depth)
        nullable = holds(field[3], self.version)
        if kind in FIXED:
            self.fixed(name, kind, target)
        elif kind.startswith("[]"):
            self.length("i", "more_uvarint")
            self.optional(nullable, target, lambda: self.array(field, target, depth))
        elif kind == "string":
            self.length("h", "string_length")
            self.optional(nullable, target, lambda: self.slice(name, self.string(), target))
        elif kind in {"bytes", "records"}:
            self.length("i", "more_uvarint")
            self.optional(nullable, target, lambda: self.slice(name, "data[pos:stop]", target))
        else:
            self.nested(field, target, nullable, depth)

    # --- values ---

    def fixed(self, name: str, kind: str, target: str) -> None:
        """Add a fixed-width value to the run."""
        self.run.append((FIXED[kind], target))
        if kind == "bool":
            self.checks.append(f"if {target} > 1: bad_bool({name!r}, {target})")
            self.checks.append(f"{target} = {target} == 1")

    def length(self, letter: str, more: str) -> None:
        """Read a length or count into `n`: classic as it is, compact plus one."""
        self.run.append(("B" if self.flexible else letter, "n"))
        self.flush()
        if self.flexible:
            self.source.line(f"if n > 127: n, pos = {more}(data, pos, n)")

    def optional(self, nullable: bool, target: str, read: Callable[[], None]) -> None:
        """Write `read`, under a test for null if null is allowed."""
        if not nullable:
            read()
            return
        null = 0 if self.flexible else -1
        with self.source.block(f"if n == {null}:"):
            self.source.line(f"{target} = None")
        with self.source.block("else:"):
            read()

    def string(self) -> str:
        """The expression that makes a str of `data[pos:stop]`."""
        return 'str(data[pos:stop], "utf-8")' if self.views else "data[pos:stop].decode()"

    def slice(self, name: str, value: str, target: str) -> None:
        """Write: bound `n` bytes, take them, move on."""
        length = "n - 1" if self.flexible else "n"
        self.source.line(f"stop = pos + {length}")
        self.source.line(f"if not pos <= stop <= end: bad_length({name!r}, {length}, end - pos)")
        self.source.line(f"{target} = {value}")
        self.source.line("pos = stop")

    def array(self, field: FieldTable, target: str, depth: int) -> None:
        """Write: bound the count, charge the budget, read the elements into a tuple."""
        name, kind = field[0], element(field[1])
        line = self.source.line
        if self.flexible:
            line("n -= 1")
        line(
            f"if not 0 <= n * {self.element_bytes(field)} <= end - pos: "
            f"bad_count({name!r}, n, end - pos)"
        )
        line(f"if n > budget: over_budget({name!r}, n, budget)")
        line("budget -= n")
        if kind in FIXED and kind not in {"bool", "uuid"}:
            letter = FIXED[kind]
            line(f"{target} = numbers({letter!r}, n, data, pos)")
            line(f"pos += n * {_SIZES[letter]}")
            return
        line(f"{target} = []")
        line(f"add{depth} = {target}.append")
        with self.source.block("for _ in range(n):"):
            if field[7]:
                value = self.struct(kind, field[7], depth + 1)
            else:
                self.field(_plain(f"{name}_item", kind), depth)
                self.flush()
                value = f"{name}_item_{depth}"
            line(f"add{depth}({value})")
        line(f"{target} = tuple({target})")

    def element_bytes(self, field: FieldTable) -> int:
        """The fewest bytes of one element of this array."""
        if field[7]:
            return min_bytes(field[7], self.version, self.flexible)
        return min_field_bytes(_plain(field[0], element(field[1])), self.version, self.flexible)

    def nested(self, field: FieldTable, target: str, nullable: bool, depth: int) -> None:
        """Write the reading of a struct outside an array; a nullable one begins with a marker."""
        if not nullable:
            value = self.struct(field[1], field[7], depth + 1)
            self.source.line(f"{target} = {value}")
            return
        self.run.append(("B", "n"))
        self.flush()
        with self.source.block("if n == 255:"):
            self.source.line(f"{target} = None")
        with self.source.block("else:"):
            self.source.line(f"if n != 1: bad_marker({field[0]!r}, n)")
            value = self.struct(field[1], field[7], depth + 1)
            self.source.line(f"{target} = {value}")

    # --- tags, runs, defaults ---

    def tags(self, fields: tuple[FieldTable, ...], depth: int) -> None:
        """Write the reading of a tag section: known fields are read, others skipped."""
        known = tagged(fields, self.version)
        self.run.append(("B", "n"))
        self.flush()
        if not known:
            self.source.line("if n: pos, budget = skip_tags(data, pos, end, n, budget)")
            return
        for field in known:
            self.source.line(f"{_variable(field, depth)} = {self.default(field)}")
        with self.source.block("if n:"):
            self.source.line("if n > 127: n, pos = more_uvarint(data, pos, n)")
            self.source.line('if n > budget: over_budget("the tag section", n, budget)')
            self.source.line("budget -= n")
            with self.source.block("for _ in range(n):"):
                self.tag_loop(known, depth)

    def tag_loop(self, known: list[FieldTable], depth: int) -> None:
        """Write one turn of the loop over a tag section."""
        line, stop = self.source.line, f"tag_end{depth}"
        line("tag, pos = uvarint(data, pos)")
        line("size, pos = uvarint(data, pos)")
        line(f"{stop} = pos + size")
        line(f'if {stop} > end: bad_length("tagged field", size, end - pos)')
        test = "if"
        for field in known:
            with self.source.block(f"{test} tag == {field[4]}:"):
                self.field(field, depth)
                self.flush()
                line(f"if pos != {stop}: bad_tag({field[0]!r}, pos, {stop})")
            test = "elif"
        with self.source.block("else:"):
            line(f"pos = {stop}")

    def flush(self) -> None:
        """Write the pending run as one read."""
        if not self.run:
            return
        letters = "".join(letter for letter, _ in self.run)
        names = ", ".join(name for _, name in self.run)
        size = sum(_SIZES[letter] for letter, _ in self.run)
        if letters == "B":
            self.source.line(f"{names} = data[pos]")
        else:
            self.source.line(f"{names}, = {self.source.unpacker(letters)}(data, pos)")
        self.source.line(f"pos += {size}")
        for check in self.checks:
            self.source.line(check)
        self.run.clear()
        self.checks.clear()

    def default(self, field: FieldTable) -> str:
        """The expression of a field's default."""
        if field[7] and not field[1].startswith("[]") and field[6] == ():
            known = self.class_of(field[1])
            return self.source.constant("D_" + known.__name__, known())
        return repr(field[6])


def _variable(field: FieldTable, depth: int) -> str:
    """The local variable of a field; depths keep parents and children apart."""
    return f"{field[0]}_{depth}"


def _plain(name: str, kind: str) -> FieldTable:
    """A field that stands for one element of an array of scalars."""
    return (name, kind, (0, 32767), None, None, None, None, ())

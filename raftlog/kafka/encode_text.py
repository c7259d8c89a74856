"""Writes the text of an encoder: `encode(body, parts, large)`.

It appends pieces to `parts` and puts the index of every piece that must not be joined (more than
1 KiB, or a slice of a file) into `large`. Rules of the text:

* consecutive fixed-width values, with the length that follows them, are one `pack`;
* fields that this version lacks are not looked at;
* a tagged field equal to its default is not written;
* in a response, a string that only other versions allow to be null is written as an empty one.
  Handlers set the newest shape, and a parked answer must be encodable in any version;
* an error message is cut at a bound: it may quote a client's text, and must never make an answer
  fail.
"""

from typing import final

import attrs

from raftlog.base.limits import ERROR_MESSAGE_CHARS_MAX
from raftlog.kafka.decode_text import ClassOf
from raftlog.kafka.shape import FieldTable, MessageTable, holds
from raftlog.kafka.source import FIXED, Source, element, has_views, on_wire, tagged


def encoder_source(table: MessageTable, version: int, class_of: ClassOf) -> Source:
    """The encoder of one message version."""
    source = Source()
    writer = _Encoder(
        source=source,
        version=version,
        flexible=holds(table[4], version),
        class_of=class_of,
        response=table[2] == "response",
    )
    with source.block("def encode(body, parts, large):"):
        source.line("add = parts.append")
        writer.struct("body", table[5], 0)
        writer.flush()
    return source


@final
@attrs.define(eq=False, kw_only=True)
class _Encoder:
    source: Source
    version: int
    flexible: bool
    class_of: ClassOf
    response: bool
    sink: str = "add"
    """The function that takes a piece: the frame's, or that of a tagged field being built."""
    run: list[tuple[str, str]] = attrs.field(factory=list)
    """Fixed-width values not yet written: (struct letter, expression); "x" is a zero byte."""

    def struct(self, value: str, fields: tuple[FieldTable, ...], depth: int) -> None:
        """Write a struct: unpack its fields into variables, then each in wire order."""
        used = [f"{field[0]}_{depth}" if holds(field[2], self.version) else "_" for field in fields]
        self.source.line(f"{', '.join(used)}, = {value}")
        for field in on_wire(fields, self.version):
            self.field(field, depth)
        if self.flexible:
            self.tags(tagged(fields, self.version), depth)

    def field(self, field: FieldTable, depth: int) -> None:
        """Write one field from its variable."""
        name, kind, value = field[0], field[1], f"{field[0]}_{depth}"
        nullable = holds(field[3], self.version)
        if kind in FIXED:
            self.fixed(name, kind, value)
        elif kind.startswith("[]"):
            self.array(field, value, nullable, depth)
        elif kind == "string":
            if self.response:
                self.forgive(name, value, nullable, known=field[3] is not None)
            self.string(value, nullable)
        elif kind in {"bytes", "records"}:
            self.bytes(value, nullable)
        else:
            self.nested(field, value, nullable, depth)

    # --- values ---

    def fixed(self, name: str, kind: str, value: str) -> None:
        """Add a fixed-width value to the run."""
        if kind == "uuid":
            self.source.line(f"if len({value}) != 16: bad_id({name!r}, {value})")
        self.run.append(("?" if kind == "bool" else FIXED[kind], value))

    def forgive(self, name: str, value: str, nullable: bool, known: bool) -> None:
        """Write how a null of other versions is replaced, and how a long message is cut."""
        if known and not nullable:
            self.source.line(f'if {value} is None: {value} = ""')
        if name.endswith("error_message"):
            cut = f"{value}[:{ERROR_MESSAGE_CHARS_MAX}]"
            self.source.line(f"if {value}: {value} = {cut}")

    def string(self, value: str, nullable: bool) -> None:
        """Write length and bytes of a string."""
        line = self.source.line
        plus = " + 1" if self.flexible else ""
        if nullable:
            with self.source.block(f"if {value} is None:"):
                line(f"b = EMPTY; n = {0 if self.flexible else -1}")
            with self.source.block("else:"):
                line(f"b = {value}.encode(); n = len(b){plus}")
        else:
            line(f"b = {value}.encode(); n = len(b){plus}")
        self.length("h", "encode_string_length")
        line(f"{self.sink}(b)")

    def bytes(self, value: str, nullable: bool) -> None:
        """Write length and content of bytes or records; never inside a tagged field."""
        assert self.sink == "add", value
        line = self.source.line
        plus = " + 1" if self.flexible else ""
        if nullable:
            line(f"n = {0 if self.flexible else -1} if {value} is None else size_of({value}){plus}")
            self.length("i", "encode_uvarint")
            line(f"if {value} is not None: put({value}, parts, large)")
        else:
            line(f"n = size_of({value}){plus}")
            self.length("i", "encode_uvarint")
            line(f"put({value}, parts, large)")

    def array(self, field: FieldTable, value: str, nullable: bool, depth: int) -> None:
        """Write count and elements of an array."""
        plus = " + 1" if self.flexible else ""
        if nullable:
            null = 0 if self.flexible else -1
            self.source.line(f"n = {null} if {value} is None else len({value}){plus}")
        else:
            self.source.line(f"n = len({value}){plus}")
        self.length("i", "encode_uvarint")
        if not nullable:
            self.elements(field, value, depth)
            return
        with self.source.block(f"if {value} is not None:"):
            self.elements(field, value, depth)

    def elements(self, field: FieldTable, value: str, depth: int) -> None:
        """Write the elements of an array."""
        kind = element(field[1])
        if kind in FIXED and kind not in {"bool", "uuid"}:
            self.source.line(f"if {value}: {self.sink}(encode_numbers({FIXED[kind]!r}, {value}))")
            return
        item = f"{field[0]}_item_{depth}"
        with self.source.block(f"for {item} in {value}:"):
            if field[7]:
                self.struct(item, field[7], depth + 1)
            else:
                plain = (f"{field[0]}_item", kind, (0, 32767), None, None, None, None, ())
                self.field(plain, depth)
            self.flush()

    def nested(self, field: FieldTable, value: str, nullable: bool, depth: int) -> None:
        """Write a struct that is not in an array."""
        self.flush()
        if not nullable:
            self.struct(value, field[7], depth + 1)
            return
        with self.source.block(f"if {value} is None:"):
            self.source.line(f'{self.sink}(b"\\xff")')
        with self.source.block("else:"):
            self.run.append(("b", "1"))
            self.struct(value, field[7], depth + 1)
            self.flush()

    # --- lengths, tags, runs ---

    def length(self, letter: str, long: str) -> None:
        """Write the run and the length `n` behind it."""
        if not self.flexible:
            self.run.append((letter, "n"))
            self.flush()
            return
        run = list(self.run)
        with self.source.block("if n < 128:"):
            self.run.append(("B", "n"))
            self.flush()
        with self.source.block("else:"):
            self.run = run
            self.flush()
            self.source.line(f"{self.sink}({long}(n))")

    def tags(self, known: list[FieldTable], depth: int) -> None:
        """Write the tag section; in the common case all are defaults and it is one zero byte."""
        if not known:
            self.run.append(("x", ""))
            return
        run = list(self.run)
        with self.source.block(f"if {' and '.join(self.is_default(f, depth) for f in known)}:"):
            self.run.append(("x", ""))
            self.flush()
        with self.source.block("else:"):
            self.run = run
            self.flush()
            self.source.line(f"tags{depth} = []")
            for field in known:
                self.tag(field, depth)
            self.source.line(f"{self.sink}(tag_section(tags{depth}))")

    def tag(self, field: FieldTable, depth: int) -> None:
        """Write one tagged field, built aside because its size comes first."""
        assert not has_views((field,), self.version), field[0]
        outer, self.sink = self.sink, f"add{depth}"
        with self.source.block(f"if not {self.is_default(field, depth)}:"):
            self.source.line(f"pieces{depth} = []")
            self.source.line(f"{self.sink} = pieces{depth}.append")
            self.field(field, depth)
            self.flush()
            self.source.line(f"tags{depth}.append(({field[4]}, pieces{depth}))")
        self.sink = outer

    def is_default(self, field: FieldTable, depth: int) -> str:
        """The expression that says whether a tagged field may be left out."""
        value, default = f"{field[0]}_{depth}", field[6]
        if default is None:
            return f"{value} is None"
        if field[7] and not field[1].startswith("[]"):
            known = self.class_of(field[1])
            name = self.source.constant("D_" + known.__name__, known())
            return f"({value} is {name} or {value} == {name})"
        if default == ():
            return f"len({value}) == 0"
        return f"{value} == {default!r}"

    def flush(self) -> None:
        """Write the pending run as one piece."""
        if not self.run:
            return
        letters = "".join(letter for letter, _ in self.run)
        values = [value for letter, value in self.run if letter != "x"]
        if values:
            piece = f"{self.source.packer(letters)}({', '.join(values)})"
        else:
            piece = repr(bytes(len(letters)))
        self.source.line(f"{self.sink}({piece})")
        self.run.clear()

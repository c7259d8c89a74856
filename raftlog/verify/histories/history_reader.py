"""Reads a history: blocks of lines are decoded at once, straight into `Op`s.

A block with anything unusual in it is read again line by line. That slower code keeps fields that
it does not know, and its errors name the line. Both ways accept the same lines.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from sys import intern
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, cast, final

import attrs
import msgspec

from raftlog.base.amounts import amount
from raftlog.base.arguments import check
from raftlog.base.errors import FutureFormat, WrongType, WrongValue
from raftlog.base.limits import HISTORY_LINE_CHARS_MAX
from raftlog.verify.histories.history import (
    FORMAT,
    KNOWN,
    NEMESIS,
    OPTIONAL,
    REQUIRED,
    TYPES,
    BadHistory,
    Extra,
    Header,
    Line,
    Op,
)

_SCAN: Final = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
_BLOCK_CHARS: Final = 32 * 1024
_BLOCK_LINES: Final = 256
"""Lines that are decoded at once. They should stay in the processor's cache: blocks of 256 KiB take
a fifth longer."""
_HEADER_KNOWN: Final = frozenset(
    ("format", "source", "seed", "commit", "model", "options", "nodes")
)


def _refuse_extra(kind: type, found: Any) -> Any:
    raise ValueError(f"{kind.__name__}: {found!r}")


_DECODER: Final = msgspec.json.Decoder(Op, dec_hook=_refuse_extra)


if TYPE_CHECKING:
    HalfParsed = Any
else:
    HalfParsed = None | bool | int | float | str | list[Any] | dict[str, msgspec.Raw]


RawLine: TypeAlias = Line[HalfParsed]
"""A usual line: an `Op` without `extra`. Its value is parsed, unless it is an object, as those of
polls are. Only the names in an object are parsed."""
_RAW_DECODER: Final = msgspec.json.Decoder(RawLine)


class HistoryFile(Protocol):
    """The source that a `HistoryReader` reads fastest: a file opened for bytes, or for text."""

    def read(self, size: int, /) -> str | bytes:
        """The next bytes or characters, at most `size` of them; empty at the end of the file."""

    def readline(self, size: int = -1, /) -> str | bytes:
        """The rest of the present line."""


@final
@attrs.define(eq=False)
class HistoryReader:
    """Reads one history, lazily: iterate for the operations. The header is read at construction.

    A last line that has no end and does not parse is the trace of a killed writer: it is left out
    and `torn` is set. Any other line that does not parse is `BadHistory`; a higher format version
    is `FutureFormat`. Unknown fields are kept in `extra`.
    """

    lines: Iterable[str] | Iterable[bytes] | HistoryFile
    _blocks: Iterator[tuple[Any, Sequence[str | bytes] | None]] = attrs.field(init=False)
    header: Header = attrs.field(init=False)
    torn: bool = attrs.field(default=False, init=False)
    line_number: int = attrs.field(default=1, init=False)

    def __attrs_post_init__(self) -> None:
        check("lines", self.lines, Iterable[str] | HistoryFile)
        if hasattr(self.lines, "readline"):
            file = cast("HistoryFile", self.lines)
            first: Any = file.readline(HISTORY_LINE_CHARS_MAX + 1)
            self._blocks = _blocks_of_file(file)
        else:
            lines = iter(cast("Iterable[str | bytes]", self.lines))
            first = check("lines[0]", next(lines, ""), str | bytes)
            self._blocks = _blocks_of_lines(lines)
        self.header = self._read_header(first)

    def __iter__(self) -> Iterator[Op]:
        return chain.from_iterable(self._decoded_blocks(_DECODER))

    def raw_blocks(self) -> Iterator[list[RawLine] | Iterator[Op]]:
        """The history block by block: usual lines with objects half parsed, others as operations.

        A caller iterates over these blocks instead of over the reader. `line_number` is that of the
        last line of the block.
        """
        return self._decoded_blocks(_RAW_DECODER)

    def _decoded_blocks(self, decoder: msgspec.json.Decoder[Any]) -> Iterator[Any]:
        for text, lines in self._blocks:
            found = _decoded(decoder, text, lines)
            if found is None:
                yield self._one_by_one(_lines_of(text) if lines is None else lines)
            else:
                self.line_number += len(found)
                yield found

    def _one_by_one(self, lines: Sequence[str | bytes]) -> Iterator[Op]:
        for at, line in enumerate(lines):
            self.line_number += 1
            try:
                op = _quick(line) or _op_of(_object(line, self.line_number), self.line_number)
            except (ValueError, RecursionError) as why:
                if at < len(lines) - 1 or not self._ends_here(line):
                    bytes_wrong = isinstance(why, UnicodeDecodeError)
                    what = "not UTF-8 text" if bytes_wrong else "not a JSON object"
                    raise BadHistory(what, on=f"line {self.line_number}") from None
                self.torn = True
                return
            yield op

    def _ends_here(self, line: str | bytes) -> bool:
        return line[-1:] not in ("\n", b"\n") and next(self._blocks, None) is None

    def _read_header(self, first: str | bytes) -> Header:
        if not first:
            raise BadHistory("the history is empty", on="line 1", do="it begins with a header line")
        try:
            document = _object(first, 1)
        except (ValueError, RecursionError):
            raise BadHistory(
                "the header is not a JSON object",
                on="line 1",
                do="pass a history.jsonl, or a .edn file for Jepsen's format",
            ) from None
        return header_of(document)


def _blocks_of_file(file: HistoryFile) -> Iterator[tuple[Any, None]]:
    """The whole lines of a file, many at once."""
    while block := file.read(_BLOCK_CHARS):
        if block[-1:] not in ("\n", b"\n"):
            block += file.readline(HISTORY_LINE_CHARS_MAX + 1)  # type: ignore[operator]
        yield block, None


def _blocks_of_lines(lines: Iterator[str | bytes]) -> Iterator[tuple[Any, list[str | bytes]]]:
    """The lines of an iterable, many joined into one text, and each of them beside it."""
    while block := list(islice(lines, _BLOCK_LINES)):
        kind = type(check("a line", block[0], str | bytes))
        try:
            text = kind().join(block)
        except TypeError as error:
            raise WrongType(f"lines must all be {kind.__name__}: {error}") from None
        yield text, block


def _lines_of(text: Any) -> list[str | bytes]:
    """The lines of a block.

    It is cut at line feeds only; `splitlines` would cut at other characters.
    """
    end: Any = "\n" if type(text) is str else b"\n"
    *whole, rest = text.split(end)
    lines = [line + end for line in whole]
    return [*lines, rest] if rest else lines


def _decoded(
    decoder: msgspec.json.Decoder[Any], text: Any, lines: Sequence[str | bytes] | None
) -> list[Any] | None:
    """The operations in a block of usual lines; None for a block that needs a closer look.

    The decoder accepts a line break anywhere between two objects or inside one, so the counts make
    sure of two facts. Every line break lies between two objects: no text and no list can hold those
    three characters. There are as many objects as lines.
    """
    if type(text) is str:
        end, between, begin, usual = "\n", "}\n{", "{", '"index":'
    else:
        end, between, begin, usual = b"\n", b"}\n{", b"{", b'"index":'  # type: ignore[assignment]
    count = text.count(end)
    if len(text) > HISTORY_LINE_CHARS_MAX or (lines is not None and len(lines) != count):
        return None
    if not text.startswith(begin) or text[-1:] != end:
        return None
    # Searching for a longer text is faster, and nearly all lines begin like that.
    if text.count(between + usual) != count - 1 and text.count(between) != count - 1:
        return None
    try:
        found = decoder.decode_lines(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return found if len(found) == count else None


def header_of(document: Mapping[str, Any]) -> Header:
    """The header in a parsed first line; refuses versions this release does not read."""
    version = document.get("format")
    if type(version) is not int or version != FORMAT:
        if isinstance(version, int) and version > FORMAT:
            raise FutureFormat(
                f"history format {version}, this release reads {FORMAT}",
                on="line 1",
                do="verify it with the release that wrote it, or a newer one",
            )
        raise BadHistory(f"unknown history format {version!r}", on="line 1", do=f"write {FORMAT}")
    options, nodes = document.get("options", {}), document.get("nodes", [])
    if not isinstance(options, dict) or not isinstance(nodes, list):
        raise BadHistory("options is an object and nodes a list", on="line 1")
    model = document.get("model", "log")
    if not isinstance(model, str) or not all(isinstance(node, str) for node in nodes):
        raise BadHistory("model and the names of nodes are strings", on="line 1")
    try:
        return Header(
            source=str(document.get("source")),
            seed=document.get("seed"),
            commit=document.get("commit"),
            model=model,
            options=options,
            nodes=nodes,
            extra={name: document[name] for name in document if name not in _HEADER_KNOWN},
        )
    except (WrongType, WrongValue) as error:
        raise BadHistory(error.what, on="line 1") from None


def _quick(line: str | bytes) -> Op | None:
    """The operation of a usual line; None for one that needs a closer look."""
    if len(line) > HISTORY_LINE_CHARS_MAX:
        return None
    try:
        return _DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def _object(line: str | bytes, number: int) -> dict[str, Any]:
    if len(line) > HISTORY_LINE_CHARS_MAX:
        raise BadHistory(
            f"{amount(len(line), 'character')} in one line, {HISTORY_LINE_CHARS_MAX} are allowed",
            on=f"line {number}",
        )
    if isinstance(line, bytes):
        line = line.decode()
    # The bare scanner: json.loads takes as long again to check its arguments.
    try:
        document, end = _SCAN(line, 0)
    except StopIteration:
        raise ValueError("not JSON") from None
    rest = line[end:]
    if rest != "\n" and rest.strip():
        raise ValueError("more than one JSON value")
    if type(document) is not dict:
        raise BadHistory("not a JSON object", on=f"line {number}")
    return document


def _op_of(document: dict[str, Any], number: int) -> Op:
    try:
        kind, f, index = document["type"], document["f"], document["index"]
        time_ns, process, key = document["time_ns"], document["process"], document["key"]
        value = document["value"]
    except KeyError as missing:
        raise BadHistory(f"{missing} is missing", on=f"line {number}") from None
    if (
        type(index) is not int
        or type(time_ns) is not int
        or type(f) is not str
        or kind not in TYPES
        or not (type(process) is int or process == NEMESIS)
        or not (key is None or type(key) is str)
    ):
        raise BadHistory(
            "index, time_ns, process, type, f or key is of the wrong kind",
            on=f"line {number}",
        )
    if key is not None:
        key = intern(key)
    op = Op(index, time_ns, process, intern(kind), intern(f), key, value)
    if len(document) > len(REQUIRED):
        _add_optional(op, document)
    return op


def _add_optional(op: Op, document: dict[str, Any]) -> None:
    extra = Extra()
    for name, value in document.items():
        if name in OPTIONAL:
            setattr(op, name, value)
        elif name not in KNOWN:
            extra[name] = value
    if extra:
        op.extra = extra

"""The history format: `history.jsonl`, a header line and then one operation per line.

The format is fixed by docs/internals/history_format.md. Everything that runs clients writes it
through `HistoryWriter`; everything that judges reads it through `HistoryReader`. Neither opens a
file: a text stream (anything with `write` and `flush`) or an iterable of lines is handed in.

Surviving a crash of the writing process: an invocation is flushed to the operating system before
`invoke` returns, hence before the client can send anything. A completion rides on the next flush. A
process killed at any moment therefore leaves a prefix of whole lines, then at most one torn line,
and what the prefix lacks is only completions, which makes their operations `info`: weaker, never
wrong.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from sys import intern
from typing import Any, Final, Protocol, final

import attrs
import msgspec

from raftlog.base.errors import FutureFormat, LocalMisuse, OperatingError
from raftlog.base.limits import HISTORY_LINE_CHARS_MAX

FORMAT: Final = 1
SOURCES: Final = ("sim", "blackbox", "demo", "embed", "import")
TYPES: Final = ("invoke", "ok", "fail", "info")
NEMESIS: Final = "nemesis"

_REQUIRED: Final = ("index", "time_ns", "process", "type", "f", "key", "value")
_OPTIONAL: Final = ("error", "node", "term", "hw", "log_start", "producer", "rebalance")
_SCAN: Final = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
_KNOWN: Final = frozenset((*_REQUIRED, *_OPTIONAL))
_HEADER_KNOWN: Final = frozenset(
    ("format", "source", "seed", "commit", "model", "options", "nodes")
)


class BadHistory(OperatingError):
    """A history breaks the format; `on` names the line or operation."""


class TextSink(Protocol):
    """What a `HistoryWriter` writes to: an open text file, or a StringIO."""

    def write(self, text: str, /) -> int:
        """Take `text`."""

    def flush(self) -> None:
        """Hand everything taken so far to the operating system."""


@final
class Op(msgspec.Struct, gc=False):
    """One line of a history. A struct of msgspec's: millions are built, and it costs a third.

    `value` and the optional fields are what JSON gives (lists, not tuples); `extra` keeps unknown
    fields, so that reading and writing a history loses nothing.
    """

    index: int
    time_ns: int
    process: int | str
    type: str
    f: str
    key: str | None = None
    value: Any = None
    error: Any = None
    node: str | None = None
    term: Any = None
    hw: Any = None
    log_start: Any = None
    producer: Any = None
    rebalance: Any = None
    extra: dict[str, Any] | None = None

    def document(self) -> dict[str, Any]:
        """The JSON object of this line; optional fields only where they are present."""
        found: dict[str, Any] = {name: getattr(self, name) for name in _REQUIRED}
        for name in _OPTIONAL:
            value = getattr(self, name)
            if value is not None:
                found[name] = value
        if self.extra:
            found.update(self.extra)
        return found


@final
class _Line(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A line as nearly all are: no unknown fields, every field of its kind. Anything else takes the
    slow road (`_op_of`), which keeps what is unknown and names what is wrong."""

    index: int
    time_ns: int
    process: int | str
    type: str
    f: str
    key: str | None
    value: Any
    error: Any = None
    node: str | None = None
    term: Any = None
    hw: Any = None
    log_start: Any = None
    producer: Any = None
    rebalance: Any = None


_decode: Final = msgspec.json.Decoder(_Line).decode


@final
@attrs.frozen(kw_only=True)
class Header:
    """The first line. `options` is described in docs/internals/history_format.md."""

    source: str
    seed: int | str | None = None
    commit: str | None = None
    model: str = "log"
    options: Mapping[str, Any] = attrs.field(factory=dict)
    nodes: tuple[str, ...] = attrs.field(default=(), converter=tuple)
    extra: Mapping[str, Any] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        if self.source not in SOURCES:
            raise BadHistory(
                f"unknown source {self.source!r}",
                on="header",
                do=f"use one of {', '.join(SOURCES)}",
            )

    def document(self) -> dict[str, Any]:
        """The JSON object of the header line."""
        return {
            "format": FORMAT,
            "source": self.source,
            "seed": self.seed,
            "commit": self.commit,
            "model": self.model,
            "options": dict(self.options),
            "nodes": list(self.nodes),
            **self.extra,
        }


@final
@attrs.define(eq=False)
class HistoryWriter:
    """Writes one history. Not locked: callers with threads hold a lock of their own.

    It refuses what no judge could use: a process with two open operations, a completion without an
    invocation, a process that comes back after `info`, time that runs backwards within a process.
    After a failed write it refuses everything, so a half line is always the last one.
    """

    _sink: TextSink
    header: Header
    _next_index: int = attrs.field(default=0, init=False)
    _open: dict[int, Op] = attrs.field(factory=dict, init=False)
    _last_ns: dict[int, int] = attrs.field(factory=dict, init=False)
    _retired: set[int] = attrs.field(factory=set, init=False)
    _state: str = attrs.field(default="open", init=False)

    def __attrs_post_init__(self) -> None:
        self._put(self.header.document())
        self._flush()

    def invoke(
        self,
        process: int,
        f: str,
        *,
        time_ns: int,
        key: str | None = None,
        value: Any = None,
        **fields: Any,
    ) -> int:
        """Record a call, flushed before this returns; gives the operation's index."""
        if process in self._open:
            raise LocalMisuse(
                f"process {process} already has operation {self._open[process].index} open",
                do="complete it first; a pipelining client uses one process per slot in flight",
            )
        if process in self._retired:
            raise LocalMisuse(
                f"process {process} is retired", do="after info, take a new process number"
            )
        self._check_time(process, time_ns)
        op = self._op(process, "invoke", f, time_ns, key, value, fields)
        self._open[process] = op
        self._last_ns[process] = time_ns
        self._put(op.document())
        self._flush()
        return op.index

    def complete(
        self, process: int, kind: str, *, time_ns: int, value: Any = None, **fields: Any
    ) -> int:
        """Record the end of the open operation of `process`: `ok`, `fail` or `info`.

        A missing `value` is the invocation's, except for `ok`, whose value is what the system said.
        """
        if kind not in ("ok", "fail", "info"):
            raise LocalMisuse(f"a completion is ok, fail or info, not {kind!r}")
        if process not in self._open:
            raise LocalMisuse(f"process {process} has no open operation to complete")
        self._check_time(process, time_ns)
        call = self._open.pop(process)
        if value is None and kind != "ok":
            value = call.value
        op = self._op(process, kind, call.f, time_ns, call.key, value, fields)
        self._last_ns[process] = time_ns
        if kind == "info":
            self._retired.add(process)
            self._last_ns.pop(process)
        self._put(op.document())
        return op.index

    def nemesis(self, f: str, *, time_ns: int, value: Any = None, **fields: Any) -> int:
        """Record a fault or a repair, so that pictures can show it."""
        op = self._op(NEMESIS, "info", f, time_ns, None, value, fields)
        self._put(op.document())
        self._flush()
        return op.index

    def flush(self) -> None:
        """Hand everything to the operating system."""
        self._flush()

    def close(self) -> None:
        """Flush and refuse more. Operations still open stay so: a reader takes them as info."""
        if self._state == "open":
            self._flush()
            self._state = "closed"

    def _op(
        self,
        process: int | str,
        kind: str,
        f: str,
        time_ns: int,
        key: str | None,
        value: Any,
        fields: dict[str, Any],
    ) -> Op:
        optional = {name: fields.pop(name) for name in _OPTIONAL if name in fields}
        clash = [name for name in fields if name in _KNOWN or name == "extra"]
        if clash:
            raise LocalMisuse(f"fields {clash} are set by the writer")
        return Op(
            self._next_index,
            time_ns,
            process,
            kind,
            f,
            key,
            value,
            extra=fields or None,
            **optional,
        )

    def _check_time(self, process: int, time_ns: int) -> None:
        last = self._last_ns.get(process, time_ns)
        if time_ns < last:
            raise LocalMisuse(
                f"time of process {process} runs backwards, {last} ns then {time_ns} ns",
                do="use one monotonic clock for the whole history",
            )

    def _put(self, document: dict[str, Any]) -> None:
        if self._state != "open":
            raise LocalMisuse(f"this history is {self._state}")
        line = json.dumps(document, separators=(",", ":")) + "\n"
        self._state = "failed"  # until the sink took it: a failed write may have left half a line
        self._sink.write(line)
        self._state = "open"
        if "index" in document:
            self._next_index += 1

    def _flush(self) -> None:
        if self._state != "open":
            return
        self._state = "failed"
        self._sink.flush()
        self._state = "open"


@final
@attrs.define(eq=False)
class HistoryReader:
    """Reads one history, lazily: iterate for the operations. The header is read at construction.

    A last line without an end and without sense is what a killed writer leaves: it is left out and
    `torn` is set. Anything else that does not parse is `BadHistory`; a higher format version is
    `FutureFormat`. Unknown fields are kept in `extra`.
    """

    lines: Iterable[str]
    _lines: Iterator[str] = attrs.field(init=False)
    header: Header = attrs.field(init=False)
    torn: bool = attrs.field(default=False, init=False)
    line_number: int = attrs.field(default=1, init=False)

    def __attrs_post_init__(self) -> None:
        self._lines = iter(self.lines)
        self.header = self._read_header()

    def __iter__(self) -> Iterator[Op]:
        number = self.line_number
        line = "\n"
        try:
            for line in self._lines:
                number += 1
                yield _quick(line) or _op_of(_object(line, number), number)
        except (ValueError, RecursionError):
            if not self._ends_here(line):
                raise BadHistory("not a JSON object", on=f"line {number}") from None
            self.torn = True
        self.line_number = number

    def _ends_here(self, line: str) -> bool:
        return not line.endswith("\n") and next(self._lines, None) is None

    def _read_header(self) -> Header:
        first = next(self._lines, None)
        if first is None:
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


def header_of(document: Mapping[str, Any]) -> Header:
    """The header in a parsed first line; refuses versions this release does not read."""
    version = document.get("format")
    if version != FORMAT or isinstance(version, bool):
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
    return Header(
        source=str(document.get("source")),
        seed=document.get("seed"),
        commit=document.get("commit"),
        model=model,
        options=options,
        nodes=nodes,
        extra={name: document[name] for name in document if name not in _HEADER_KNOWN},
    )


def _quick(line: str) -> Op | None:
    """The operation of a usual line; None for one that needs a closer look."""
    if len(line) > HISTORY_LINE_CHARS_MAX:
        return None
    try:
        found = _decode(line)
    except (msgspec.DecodeError, UnicodeError):
        return None
    kind, process, key = found.type, found.process, found.key
    if kind not in TYPES or (process != NEMESIS and type(process) is not int):
        return None
    return Op(
        found.index,
        found.time_ns,
        process,
        intern(kind),
        intern(found.f),
        key if key is None else intern(key),
        found.value,
        found.error,
        found.node,
        found.term,
        found.hw,
        found.log_start,
        found.producer,
        found.rebalance,
    )


def _object(line: str, number: int) -> dict[str, Any]:
    if len(line) > HISTORY_LINE_CHARS_MAX:
        raise BadHistory(
            f"{len(line)} characters in one line, {HISTORY_LINE_CHARS_MAX} are allowed",
            on=f"line {number}",
        )
    # The bare scanner: json.loads costs as much again in checks of its arguments.
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
    if len(document) > len(_REQUIRED):
        _add_optional(op, document)
    return op


def _add_optional(op: Op, document: dict[str, Any]) -> None:
    extra = {}
    for name, value in document.items():
        if name in _OPTIONAL:
            setattr(op, name, value)
        elif name not in _KNOWN:
            extra[name] = value
    if extra:
        op.extra = extra

"""The history format: `history.jsonl`, a header line and then one operation per line.

The format is fixed by docs/internals/history_format.md. Everything that runs clients writes it
through `HistoryWriter`. Everything that judges reads it through `HistoryReader`
(`raftlog.verify.histories.history_reader`). Neither opens a file: the writer is handed a text
stream (anything with `write` and `flush`), the reader an open file or an iterable of lines.

Surviving a crash of the writing process: an invocation is flushed to the operating system before
`invoke` returns, hence before the client can send anything. A completion rides on the next flush. A
process killed at any moment therefore leaves a prefix of whole lines, then at most one torn line.
That prefix can lack only completions. Their operations then count as `info`, which makes the
judgement weaker and never wrong.
"""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, Protocol, TypeVar, final

import attrs
import msgspec

from raftlog.base.arguments import AnyText, check, checked
from raftlog.base.errors import LocalMisuse, OperatingError, WrongType, WrongValue

FORMAT: Final = 1
SOURCES: Final = ("sim", "blackbox", "demo", "embed", "import")
TYPES: Final = ("invoke", "ok", "fail", "info")
NEMESIS: Final = "nemesis"
UNKNOWN_PARTITION: Final = "/?"
"""The end of a key whose partition the client chooses (`raftlog.verify.histories.late_keys`)."""

if TYPE_CHECKING:
    Kind = str  # an `Op` keeps whatever kind its maker gave it
    Process = int | str
else:
    Kind = Literal["invoke", "ok", "fail", "info"]  # what a usual line may say
    Process = int | Literal["nemesis"]

REQUIRED: Final = ("index", "time_ns", "process", "type", "f", "key", "value")
OPTIONAL: Final = (
    *("error", "node", "term", "hw", "log_start"),
    *("producer", "rebalance", "member"),
)
KNOWN: Final = frozenset((*REQUIRED, *OPTIONAL))
_ENCODER: Final = json.JSONEncoder(separators=(",", ":"))

ValueT = TypeVar("ValueT")


class BadHistory(OperatingError):
    """A history breaks the format; `on` names the line or operation."""


class TextSink(Protocol):
    """The stream that a `HistoryWriter` writes to: an open text file, or a StringIO."""

    def write(self, text: str, /) -> int:
        """Take `text`."""

    def flush(self) -> None:
        """Hand everything taken so far to the operating system."""


@final
class Extra(dict[str, Any]):
    """The unknown fields of a line. No line can set `extra` by name, since this type is its own."""


class Line(msgspec.Struct, Generic[ValueT], forbid_unknown_fields=True, gc=False):
    """The known fields of a line.

    It is a struct of msgspec's, so that usual lines are decoded straight into it. `ValueT` is the
    kind of value that the decoder is asked for.
    """

    index: int
    time_ns: int
    process: Process
    type: Kind
    f: str
    key: str | None
    value: ValueT
    error: Any = None
    node: str | None = None
    term: Any = None
    hw: Any = None
    log_start: Any = None
    producer: Any = None
    rebalance: Any = None
    member: Any = None


@final
class Op(Line[Any]):
    """One line of a history.

    `value` and the optional fields are what JSON gives (lists, not tuples); `extra` keeps unknown
    fields, so that reading and writing a history loses nothing.
    """

    extra: Extra = None  # type: ignore[assignment]  # "| None" would let a null through

    def document(self) -> dict[str, Any]:
        """The JSON object of this line; optional fields only where they are present."""
        found: dict[str, Any] = {name: getattr(self, name) for name in REQUIRED}
        for name in OPTIONAL:
            value = getattr(self, name)
            if value is not None:
                found[name] = value
        if self.extra:
            found.update(self.extra)
        return found


def _nodes(given: Any) -> tuple[str, ...]:
    return tuple(check("nodes", given, Sequence[AnyText]))


@final
@attrs.frozen(kw_only=True)
class Header:
    """The first line. `options` is described in docs/internals/history_format.md."""

    source: str
    seed: int | str | None = None
    commit: str | None = None
    model: str = "log"
    options: Mapping[str, Any] = attrs.field(factory=dict)
    nodes: tuple[str, ...] = attrs.field(default=(), converter=_nodes)
    extra: Mapping[str, Any] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        check("source", self.source, str)
        check("seed", self.seed, int | AnyText | None)
        check("commit", self.commit, AnyText | None)
        check("model", self.model, AnyText)
        check("options", self.options, Mapping[AnyText, Any])
        check("extra", self.extra, Mapping[AnyText, Any])
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

    It refuses a history that no judge could use: a process with two open operations, a completion
    without an invocation, a process that comes back after `info`, or time that runs backwards
    within a process. After a failed write it refuses everything, so a half line is always the last
    one.
    """

    _sink: TextSink
    header: Header
    _next_index: int = attrs.field(default=0, init=False)
    _open: dict[int, Op] = attrs.field(factory=dict, init=False)
    _last_ns: dict[int, int] = attrs.field(factory=dict, init=False)
    _retired: set[int] = attrs.field(factory=set, init=False)
    _state: str = attrs.field(default="open", init=False)

    def __attrs_post_init__(self) -> None:
        check("sink", self._sink, TextSink)
        check("header", self.header, Header)
        self._put(self.header.document())
        self._flush()

    @checked
    def invoke(
        self,
        process: int,
        f: AnyText,
        *,
        time_ns: int,
        key: AnyText | None = None,
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
        self._put(op.document())
        self._open[process] = op
        self._last_ns[process] = time_ns
        self._flush()
        return op.index

    @checked
    def complete(
        self, process: int, kind: str, *, time_ns: int, value: Any = None, **fields: Any
    ) -> int:
        """Record the end of the open operation of `process`: `ok`, `fail` or `info`.

        A missing `value` is taken from the invocation, except for `ok`, whose value is the system's
        answer. For a send to `topic/?`, `key=` is the partition that the client chose.
        """
        if kind not in ("ok", "fail", "info"):
            raise WrongValue(f"kind must be ok, fail or info, not {kind!r}")
        if process not in self._open:
            raise LocalMisuse(f"process {process} has no open operation to complete")
        self._check_time(process, time_ns)
        call = self._open[process]
        if value is None and kind != "ok":
            value = call.value
        key = check("key", fields.pop("key", None) or call.key, AnyText | None)
        op = self._op(process, kind, call.f, time_ns, key, value, fields)
        if key != call.key and not chosen_late(call, op):
            raise LocalMisuse(f"key {key!r} is no partition of {call.key!r}, which was called")
        self._put(op.document())
        del self._open[process]
        self._last_ns[process] = time_ns
        if kind == "info":
            self._retired.add(process)
            self._last_ns.pop(process)
        return op.index

    @checked
    def nemesis(self, f: AnyText, *, time_ns: int, value: Any = None, **fields: Any) -> int:
        """Record a fault or a repair, so that pictures can show it."""
        op = self._op(NEMESIS, "info", f, time_ns, None, value, fields)
        self._put(op.document())
        self._flush()
        return op.index

    def flush(self) -> None:
        """Hand everything to the operating system."""
        self._flush()

    def close(self) -> None:
        """Flush and refuse more. A reader takes operations that are still open as `info`."""
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
        optional = {name: fields.pop(name) for name in OPTIONAL if name in fields}
        clash = [name for name in fields if name in KNOWN or name == "extra"]
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
            extra=Extra(fields) if fields else None,  # type: ignore[arg-type]
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
        try:
            line = _ENCODER.encode(document) + "\n"
        except TypeError as error:
            raise WrongType(f"value and fields must be JSON: {error}") from None
        except (ValueError, RecursionError) as error:
            raise WrongValue(f"value and fields must be JSON: {error}") from None
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


def chosen_late(call: Op, end: Op) -> bool:
    """Whether a completion names the partition that the client chose for its send to `topic/?`."""
    if call.f != "send" or call.key is None or end.key is None:
        return False
    topic, _, partition = end.key.rpartition("/")
    return call.key == topic + UNKNOWN_PARTITION and partition.isdecimal()

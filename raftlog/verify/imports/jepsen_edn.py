"""Reads and writes Jepsen's histories: one EDN map per operation, with Jepsen's kafka workload.

A line is `{:index 3, :time 12, :process 0, :type :invoke, :f :send, :value [[:send 5 17]]}`. In
Jepsen a value is a list of micro-operations: `[:send k v]` is answered by `[:send k [offset v]]`,
and `[:poll]` by `[:poll {k [[offset v] ...]}]`. A list with one send becomes our `send`, one with
polls only our `poll`, any other list our `txn`. Keys are written as text. Registers (`:read`,
`:write`, `:cas`) pass as they are.

Nothing is invented: where `:index` or `:time` are missing, the place in the file stands for both.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from raftlog.verify.histories.history import NEMESIS, TYPES, BadHistory, Header, Op
from raftlog.verify.imports.edn import Keyword, read_all, write

REGISTER: Final = ("read", "write", "cas")
"""Operations of a register."""
ONE_REGISTER: Final = "register"
"""The key that a history with one register gets when it names none."""
_MODELS: Final = {
    **dict.fromkeys(REGISTER, "cas-register"),
    **dict.fromkeys(("get", "put", "append"), "key-value"),
    "release": "mutex",
    "transact": "multi-register",
}
"""The model that an operation tells of; a log's where none does."""
_LOG: Final = ("send", "poll", "txn")


def read_ops(text: str) -> Iterator[Op]:
    """The operations of a history in EDN: a list of maps, or maps one after the other."""
    documents: list[Mapping[Any, Any]] = []
    for element in read_all(text):
        for document in element if isinstance(element, list) else [element]:
            if not isinstance(document, dict):
                raise BadHistory("an operation is a map", on=f"operation {len(documents)}")
            documents.append(document)
    if not documents:
        raise BadHistory("the history is empty", do="pass a file with operations")
    renamed = _completed_otherwise(documents)
    keyed = _by_key(documents)
    asked: dict[int | str, Op] = {}
    for place, document in enumerate(documents):
        op = _op_of(document, place, whole=place in renamed)
        if op.process != NEMESIS and op.f in REGISTER:
            if keyed:
                _split_key(op, asked.get(op.process), place)
            else:
                op.key = op.key or ONE_REGISTER
        if op.type == "invoke":
            asked[op.process] = op
        yield op


def _completed_otherwise(documents: Sequence[Mapping[Any, Any]]) -> dict[int, None]:
    """The places of calls whose completions name other sends, and of those completions.

    They stay transactions, also with one step: a transaction's completion says what was sent.
    """
    found: dict[int, None] = {}
    calls: dict[Any, int] = {}
    for place, document in enumerate(documents):
        process = document.get("process")
        if document.get("f") not in _LOG or type(process) is not int:
            continue
        if document.get("type") == "invoke":
            calls[process] = place
        elif process in calls:
            call = calls.pop(process)
            asked = _sends_of(documents[call].get("value"))
            if len(asked) == len(_sends_of(document.get("value"))) == 1 and not _same_send(
                asked[0], _sends_of(document.get("value"))[0]
            ):
                found[call] = found[place] = None
    return found


def _sends_of(value: Any) -> list[Any]:
    if not isinstance(value, list):
        return []
    return [
        micro
        for micro in value
        if isinstance(micro, list) and len(micro) > 2 and micro[0] == "send"
    ]


def _same_send(asked: Sequence[Any], done: Sequence[Any]) -> bool:
    sent, completed = asked[2], done[2]
    named = isinstance(completed, list) and len(completed) == 2 and completed[1] == sent
    return asked[1] == done[1] and (completed == sent or named)


# --- registers that name their object in the value (jepsen.independent) ---------------------------


def _by_key(documents: Iterable[Mapping[Any, Any]]) -> bool:
    """Whether the values of a register's operations are `[key value]`.

    A read asks for nothing: its call is nil where there is one register, and `[key nil]` where
    there are many.
    """
    kinds: dict[bool, int] = {}
    for place, document in enumerate(documents):
        if document.get("f") == "read" and document.get("type") == "invoke":
            value = document.get("value")
            pair = isinstance(value, list) and len(value) == 2 and value[1] is None
            if pair or value is None:
                kinds.setdefault(pair, place)
    if len(kinds) == 2:
        raise BadHistory(
            "some reads name a key, [key nil], and some do not",
            on=f"operations {kinds[True]} and {kinds[False]}",
            do="give every operation its key, or none",
        )
    return True in kinds


def _split_key(op: Op, call: Op | None, place: int) -> None:
    """Turn `[key value]` into key and value. A completion without a key takes that of its call."""
    value = op.value
    if op.type == "invoke" or call is None or op.type == "ok" or _names(value, call.key):
        if not isinstance(value, list) or len(value) != 2:
            raise BadHistory(
                f"the value of :{op.f} is {str(value)[:40]}, not [key value]",
                on=f"operation {place}",
                do="in this history reads name a key, so every operation has one",
            )
        op.key, op.value = str(value[0]), value[1]
    else:
        op.key, op.value = call.key, None


def _names(value: Any, key: str | None) -> bool:
    return isinstance(value, list) and len(value) == 2 and str(value[0]) == key


def header_for(ops: Iterable[Op]) -> Header:
    """The header of an import, guessed from its operations."""
    options: dict[str, Any] = {"read_consistency": "committed-prefix", "dense": False}
    model = "log"
    for op in ops:
        if op.f in _MODELS:
            model = _MODELS[op.f]
        elif op.f in ("assign", "subscribe"):
            options["consumer"] = op.f if options.get("consumer") != "subscribe" else "subscribe"
        elif op.f == "txn" and len(op.value or ()) > 1:
            options["transactions"] = True
    return Header(source="import", model=model, options=options if model == "log" else {})


def _op_of(document: Mapping[Any, Any], place: int, *, whole: bool = False) -> Op:
    """One operation from its map; with `whole` a send of one value stays a transaction."""
    process, kind, f = document.get("process"), document.get("type"), document.get("f")
    if not isinstance(f, str) or kind not in TYPES:
        raise BadHistory(":f or :type is missing", on=f"operation {place}")
    time_ns = document.get("time", place)
    index = document.get("index", place)
    if type(time_ns) is not int or type(index) is not int:
        raise BadHistory(":time and :index are integers", on=f"operation {place}")
    if type(process) is not int:
        return Op(index, time_ns, NEMESIS, "info", str(f), None, plain(document.get("value")))
    op = Op(index, time_ns, process, str(kind), str(f), None, plain(document.get("value")))
    if "error" in document:
        op.error = plain(document["error"])
    if document.get("rebalance-log") is not None:
        op.rebalance = _rebalanced(document["rebalance-log"], place)
    if isinstance(document.get("key"), str):
        op.key = str(document["key"])
    if f == "txn" and _transacts(op.value):
        op.f = "transact"
    elif f in _LOG and isinstance(op.value, list):
        try:
            _kafka(op, document.get("value"), whole=whole)
        except (TypeError, ValueError, LookupError, AttributeError) as why:
            raise BadHistory(
                f"not an operation of the kafka workload ({why})", on=f"operation {place}"
            ) from None
    elif f in ("assign", "subscribe"):
        if not isinstance(op.value or [], list):
            raise BadHistory(f":{f} names a list of keys", on=f"operation {place}")
        op.value = [str(key) for key in op.value or []]
    elif f == "crash":
        op.value = None
    return op


def _transacts(value: Any) -> bool:
    """Whether a transaction reads and writes registers: `[[:read k nil] [:write k v]]`."""
    return isinstance(value, list) and all(
        isinstance(micro, list) and len(micro) == 3 and micro[0] in ("read", "write")
        for micro in value
    )


def _rebalanced(log: Any, place: int) -> list[str]:
    """The keys of a `:rebalance-log`: a map with `:keys` for each rebalance."""
    entries = log if isinstance(log, list) else [None]
    keys: dict[str, None] = {}
    for entry in entries:
        moved = entry.get("keys", []) if isinstance(entry, dict) else None
        if not isinstance(moved, list):
            raise BadHistory(":rebalance-log is maps with :keys", on=f"operation {place}")
        keys.update(dict.fromkeys(map(str, moved)))
    return list(keys)


def plain(value: Any) -> Any:
    """EDN as JSON has it: keywords and keys as text."""
    if isinstance(value, Keyword):
        return str(value)
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    return value


def _kafka(op: Op, value: Any, *, whole: bool) -> None:
    """Turn micro-operations into our `send`, `poll` or `txn`, in place."""
    steps = []
    for micro in value:
        if micro[0] == "send":
            key, sent = str(micro[1]), plain(micro[2])
            steps.append(["send", key, sent])
        elif micro[0] == "poll":
            reads = micro[1] if len(micro) > 1 and isinstance(micro[1], dict) else None
            steps.append(["poll", None if reads is None else _reads(reads)])
        else:
            raise ValueError(f"{micro[0]!r} is neither :send nor :poll")
    kinds = [step[0] for step in steps]
    if kinds == ["send"] and not whole:
        op.f, op.key, op.value = "send", steps[0][1], steps[0][2]
    elif "send" not in kinds:
        op.f, op.value = "poll", None
        if op.type == "ok" or _have_read(op, steps):
            op.value = {}
            for _, reads in steps:
                for key, pairs in (reads or {}).items():
                    op.value.setdefault(key, []).extend(pairs)
    else:
        op.f, op.value = "txn", steps


def _have_read(op: Op, steps: Sequence[Sequence[Any]]) -> bool:
    """Whether a completion says what was read.

    One of any type may: a failed read has read as well.
    """
    return op.type != "invoke" and any(step[0] == "poll" and step[1] for step in steps)


def _reads(reads: Mapping[Any, Any]) -> dict[str, list[Any]]:
    """The pairs by key.

    A pair without an offset (Jepsen writes nil) has no place and is left out.
    """
    return {
        str(key): [plain(pair) for pair in pairs if pair[0] is not None]
        for key, pairs in reads.items()
    }


def write_op(op: Op) -> str:
    """One operation as a line of Jepsen's EDN; fields that only we have keep their names."""
    document: dict[Any, Any] = {
        Keyword("index"): op.index,
        Keyword("time"): op.time_ns,
        Keyword("process"): Keyword(NEMESIS) if op.process == NEMESIS else op.process,
        Keyword("type"): Keyword(op.type),
        Keyword("f"): Keyword("txn" if op.f == "transact" else op.f),
        Keyword("value"): _jepsen_value(op),
    }
    if op.error is not None:
        document[Keyword("error")] = op.error
    if op.rebalance is not None:
        document[Keyword("rebalance-log")] = [{Keyword("keys"): op.rebalance}]
    return write(document)


def _jepsen_value(op: Op) -> Any:
    send, poll = Keyword("send"), Keyword("poll")
    if op.f == "send":
        sent = op.value if not isinstance(op.value, list) or op.type == "ok" else list(op.value)
        return [[send, op.key, sent]]
    if op.f == "poll":
        pairs = op.value.values() if isinstance(op.value, dict) else [None]
        told = op.type != "invoke" and all(isinstance(each, list) for each in pairs)
        return [[poll, op.value]] if told else [[poll]]
    if op.f in REGISTER and op.process != NEMESIS and op.key not in (None, ONE_REGISTER):
        return [op.key, op.value]
    if op.f == "transact" and op.value is not None:
        return [[Keyword(step[0]), *step[1:]] for step in op.value]
    if op.f == "txn" and op.value is not None:
        return [
            [Keyword(step[0]), *(part for part in step[1:] if part is not None)]
            for step in op.value
        ]
    return op.value

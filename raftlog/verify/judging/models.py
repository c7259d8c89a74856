"""Models for the general search: sequential objects as pure step functions.

A model is a value. `step(state, asked, value)` says whether an operation asked with `asked` may
answer `value` in `state`, and gives the state after it. `value` is None where the answer is not
known: an operation that may or may not have happened has no answer. States are compared and hashed,
so they are tuples, numbers or texts: anything that Python hashes by value. A state that grows long
should carry a chained hash instead of its whole past (`append_only` does).

`partition` splits a history into independent objects, since linearizability is local. The default
is the operation's key. `describe` is for pictures only.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Final, NamedTuple, final

import attrs

from raftlog.base.arguments import check
from raftlog.verify.histories.history import BadHistory
from raftlog.verify.histories.interval import OPEN, Interval

State = Hashable
Step = Callable[[Any, Any], tuple[bool, Any]]


@final
@attrs.frozen
class Call:
    """One operation as the search sees it. `end_ns` is `OPEN` where it may never have returned."""

    start_ns: int
    end_ns: int
    asked: Any
    answer: Any
    source: Any = None


@final
@attrs.frozen(kw_only=True)
class Model:
    """A sequential object: its name, first state, step, and how a history becomes calls."""

    name: str
    init: Callable[[], Any]
    step: Callable[[Any, Any, Any], tuple[bool, Any]]
    call_of: Callable[[Interval], Call | None]
    """The call of an operation, or None where it asserts nothing (it failed, or read nothing)."""
    partition: Callable[[Interval], Hashable] = lambda op: op.key
    functions: tuple[str, ...] = ()
    """The `f` that this model understands. A history with another one is refused."""
    describe: Callable[[Any, Any], str] = lambda asked, answer: f"{asked} -> {answer}"
    asserts: Callable[[Call], bool] = lambda call: True
    """Whether a call could have answered wrongly. A history without such a call is not judged:
    writes alone say nothing about a register."""
    reads_and_writes: bool = False
    """Whether the calls are a register's. Then a fault can be told as a value that was read and the
    values that had been written (`raftlog.verify.judging.register_story`)."""

    def __attrs_post_init__(self) -> None:
        check("name", self.name, str)
        check("functions", self.functions, Sequence[str])
        for field in ("init", "step", "call_of", "partition", "describe"):
            check(field, getattr(self, field), Callable[..., Any])


def _register_call(op: Interval) -> Call | None:
    """The call of a register's operation; None where it failed, or read and has no answer."""
    if op.type == "fail":
        return None
    if op.f == "read":
        if op.type != "ok":
            return None
        return Call(op.start_ns, op.end_ns, ("read",), _frozen(op.value), op)
    if op.f == "write":
        return Call(op.start_ns, op.end_ns, ("write", _frozen(op.asked)), None, op)
    old, new = op.asked
    matched = op.value is not False
    return Call(op.start_ns, op.end_ns, ("cas", _frozen(old), _frozen(new)), matched, op)


class _Truth(NamedTuple):
    """A truth value, wrapped because Python takes it for equal to 0 or 1."""

    truth: bool


class _Fields(NamedTuple):
    """A JSON object, wrapped so that it differs from a list of pairs."""

    fields: tuple[tuple[str, Any], ...]


def _frozen(value: Any) -> Any:
    """JSON as something hashable: equal values stay equal, and different ones different."""
    if isinstance(value, bool):
        return _Truth(value)
    if isinstance(value, list):
        return tuple(_frozen(item) for item in value)
    if isinstance(value, dict):
        fields = sorted((name, _frozen(item)) for name, item in value.items())
        return _Fields(tuple(fields))
    return value


def _register_step(state: Any, asked: Any, answer: Any) -> tuple[bool, Any]:
    kind = asked[0]
    if kind == "read":
        return state == answer, state
    if kind == "write":
        return True, asked[1]
    if answer is False:  # a compare that is known to have failed
        return state != asked[1], state
    return state == asked[1], asked[2]


REGISTER: Final = Model(
    name="register",
    init=lambda: None,
    step=_register_step,
    call_of=_register_call,
    functions=("read", "write"),
    reads_and_writes=True,
    asserts=lambda call: call.asked[0] != "write",
)
"""A register with read and write; it begins with nil."""

CAS_REGISTER: Final = Model(
    name="cas-register",
    init=lambda: None,
    step=_register_step,
    call_of=_register_call,
    functions=("read", "write", "cas"),
    reads_and_writes=True,
    asserts=lambda call: (
        call.asked[0] == "read"
        or (call.asked[0] == "cas" and (call.answer is False or call.end_ns < OPEN))
    ),
)
"""A register with read, write and compare-and-set. An ok `cas` whose value is false is one whose
compare is known to have failed. An `info` one happened (and matched), or did nothing."""


# --- objects of public histories ------------------------------------------------------------------

_PRIME: Final = (1 << 127) - 1
_BASE: Final = 1_000_003


def _digest(text: str) -> tuple[int, int]:
    """(polynomial hash, length): two of them join in constant time, so a state never grows."""
    value, encoded = 0, text.encode("utf-8", "surrogatepass")
    for byte in encoded:
        value = (value * _BASE + byte + 1) % _PRIME
    return value, len(encoded)


def _key_value_call(op: Interval) -> Call | None:
    if op.type == "fail" or (op.f == "get" and op.type != "ok"):
        return None
    text = op.value or "" if op.f == "get" else op.asked  # nil is the empty text
    if not isinstance(text, str):
        raise BadHistory(f"{op.f} of {text!r:.40}: a value is a text", on=f"index {op.index}")
    if op.f == "get":
        return Call(op.start_ns, op.end_ns, ("get",), _digest(text), op)
    return Call(op.start_ns, op.end_ns, (op.f, *_digest(text)), None, op)


def _key_value_step(state: Any, asked: Any, answer: Any) -> tuple[bool, Any]:
    if asked[0] == "get":
        return answer == state, state
    if asked[0] == "put":
        return True, (asked[1], asked[2])
    joined = (state[0] * pow(_BASE, asked[2], _PRIME) + asked[1]) % _PRIME
    return True, (joined, state[1] + asked[2])


KEY_VALUE: Final = Model(
    name="key-value",
    init=lambda: (0, 0),
    step=_key_value_step,
    call_of=_key_value_call,
    functions=("get", "put", "append"),
    asserts=lambda call: call.asked[0] == "get",
)
"""Texts by key, with get, put, and append to the present text; each begins empty. A state is a
hash."""


def _mutex_call(op: Interval) -> Call | None:
    return None if op.type == "fail" else Call(op.start_ns, op.end_ns, op.f, None, op)


MUTEX: Final = Model(
    name="mutex",
    init=lambda: False,
    step=lambda held, asked, answer: (held == (asked == "release"), asked == "acquire"),
    call_of=_mutex_call,
    functions=("acquire", "release"),
    asserts=lambda call: call.end_ns < OPEN,
)
"""A lock that one client at a time holds; it begins free. A failed operation did nothing."""


def _transact_call(op: Interval) -> Call | None:
    if op.type == "fail":
        return None
    steps = op.value if op.type == "ok" else [step for step in op.asked if step[0] == "write"]
    asked = tuple((what, str(key), _frozen(value)) for what, key, value in steps)
    return Call(op.start_ns, op.end_ns, asked, None, op)


def _transact_step(state: Any, asked: Any, answer: Any) -> tuple[bool, Any]:
    known = dict(state)
    for what, key, value in asked:
        if what == "read" and known.get(key, value) != value:
            return False, state
        known[key] = value
    return True, tuple(sorted(known.items(), key=lambda entry: entry[0]))


MULTI_REGISTER: Final = Model(
    name="multi-register",
    init=lambda: (),
    step=_transact_step,
    call_of=_transact_call,
    partition=lambda op: "registers",
    functions=("transact",),
    asserts=lambda call: any(step[0] == "read" for step in call.asked),
)
"""Registers that are read and written together. The first read of one fixes the value it begins
with."""


class _Newest(NamedTuple):
    """The range in which the newest token lies.

    An `acquire` of type info took a token that no client was told. It may be any higher one, until
    a check narrows the range. `most` is None where there is no upper bound.
    """

    least: int = 0
    most: int | None = 0


def _fencing_call(op: Interval) -> Call | None:
    """The call of an `acquire`, which answers a token, or of a `check`.

    A `check` is ok where the token was accepted. Its fail is a fact as well: the token was refused.
    """
    if op.f == "acquire":
        if op.type == "fail":
            return None
        token = _token(op, op.value) if op.type == "ok" else None
        return Call(op.start_ns, op.end_ns, ("acquire",), token, op)
    if op.type == "info":
        return None
    return Call(op.start_ns, op.end_ns, ("check", _token(op, op.asked)), op.type == "ok", op)


def _token(op: Interval, token: Any) -> int:
    if type(token) is not int:
        raise BadHistory(f"{op.f} of {token!r}: a token is an integer", on=f"index {op.index}")
    return token


def _fencing_step(newest: _Newest, asked: Any, answer: Any) -> tuple[bool, _Newest]:
    least, most = newest
    if asked[0] == "acquire":
        if answer is None:
            return True, _Newest(least + 1, None)
        return answer > least, _Newest(answer, answer)
    token = asked[1]
    if answer:  # accepted: there is no newer token
        return token >= least, _Newest(least, token if most is None else min(most, token))
    return most is None or token < most, _Newest(max(least, token + 1), most)


FENCING: Final = Model(
    name="fencing",
    init=_Newest,
    step=_fencing_step,
    call_of=_fencing_call,
    functions=("acquire", "check"),
)
"""Fencing tokens: they only rise, and only the newest is accepted."""


def _offsets_call(op: Interval) -> Call | None:
    if op.type == "fail":
        return None
    if op.f == "offset_commit":
        return Call(op.start_ns, op.end_ns, ("commit", tuple(op.asked[1].items())), None, op)
    if op.type != "ok":
        return None
    return Call(op.start_ns, op.end_ns, ("fetch",), tuple(op.value.items()), op)


def _offsets_step(state: Any, asked: Any, answer: Any) -> tuple[bool, Any]:
    known = dict(state)
    if asked[0] == "commit":
        known.update(asked[1])
        return True, tuple(sorted(known.items()))
    for key, offset in answer:
        held = known.get(key, -1)
        if (-1 if held is None else held) != (-1 if offset is None else offset):
            return False, state
    return True, state


CONSUMER_OFFSETS: Final = Model(
    name="consumer-offsets",
    init=lambda: (),
    step=_offsets_step,
    call_of=_offsets_call,
    partition=lambda op: op.asked[0],
    functions=("offset_commit", "offset_fetch"),
)
"""The committed offsets of one group, judged as one object."""


# --- topics ---------------------------------------------------------------------------------------

TOPIC_EXISTS: Final = "exists"
TOPIC_MISSING: Final = "missing"
TOPIC_TOO_FEW: Final = "too few"


class _Topic(NamedTuple):
    """A topic's name: its partitions (0: it does not exist), when its last deletion returned."""

    partitions: int = 0
    deleted_ns: int = -1


class _TopicAsked(NamedTuple):
    """An operation with its interval, which tells whether two deletions were concurrent."""

    f: str
    partitions: int
    start_ns: int
    end_ns: int


def _topic_call(op: Interval) -> Call | None:
    if op.type == "fail" or (op.f == "look" and op.type != "ok"):
        return None
    if type(op.asked) is not (int if op.f in ("create", "grow") else type(None)):
        raise BadHistory(f"{op.f} asks for {op.asked!r}", on=f"index {op.index}")
    asked = _TopicAsked(op.f, op.asked or 0, op.start_ns, op.end_ns)
    return Call(op.start_ns, op.end_ns, asked, op.value if op.type == "ok" else None, op)


def _topic_step(topic: _Topic, asked: _TopicAsked, answer: Any) -> tuple[bool, _Topic]:
    if asked.f == "look":
        return answer == topic.partitions, topic
    after, refusal = _topic_effect(topic, asked)
    if answer is None:  # no client was told, so every effect that is possible here is accepted
        return True, after
    if answer == "done":
        # Two deletions at once may both report success: the topic that both should delete is gone.
        together = asked.f == "delete" and topic.deleted_ns >= asked.start_ns
        return refusal is None or together, after
    return answer == refusal, after


def _topic_effect(topic: _Topic, asked: _TopicAsked) -> tuple[_Topic, str | None]:
    """(the topic afterwards, why it was refused or None)."""
    count = asked.partitions
    if asked.f == "create":
        if topic.partitions:
            return topic, TOPIC_EXISTS
        return topic._replace(partitions=count), None
    if not topic.partitions:
        return topic, TOPIC_MISSING
    if asked.f == "delete":
        return _Topic(0, asked.end_ns), None
    if count <= topic.partitions:
        return topic, TOPIC_TOO_FEW
    return topic._replace(partitions=count), None


TOPIC: Final = Model(
    name="topic",
    init=_Topic,
    step=_topic_step,
    call_of=_topic_call,
    functions=("create", "delete", "grow", "look"),
)
"""A topic's name: created with partitions, grown, deleted, looked at (0: it does not exist)."""


# --- the log, as an oracle for the near-linear check ----------------------------------------------


def _log_step(state: Any, asked: Any, answer: Any) -> tuple[bool, Any]:
    """One step of a log. The state is (length, chained hash, ((offset, value), ...)).

    The hash keeps comparison cheap.
    """
    length, digest, held = state
    kind = asked[0]
    if kind == "append":
        _, values, dense = asked
        base = length if answer is None else answer
        if base < length or (dense and base != length):
            return False, state
        added = tuple(enumerate(values, base))
        return True, (base + len(values), hash_chain(digest, added), held + added)
    if kind == "poll":
        places = dict(held)
        return all(places.get(offset) == value for offset, value in answer), state
    if kind == "length":
        _, dense = asked
        if length == answer:
            return True, state
        if dense or answer < length:
            return False, state
        return True, (answer, hash_chain(digest, ("to", answer)), held)
    if kind == "at least":
        if length >= answer:
            return True, state
        _, dense = asked
        return not dense, (answer, hash_chain(digest, ("to", answer)), held)
    assert kind == "at most", kind
    return length <= answer, state


def hash_chain(digest: int, added: object) -> int:
    """The next link of a hash chain: one number for a whole past, so states compare quickly."""
    value = digest
    for byte in repr(added).encode():
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


def append_only(*, first_end: int = 0) -> Model:
    """An append-only log that begins with `first_end` records. The caller builds the calls:

    ("append", values, dense) -> base or None, ("poll",) -> pairs, ("length", dense) -> end, ("at
    least", dense) -> end, ("at most",) -> end. The search is exponential: this model serves small
    histories, and as the oracle of `raftlog.verify.judging.linearizability`. In a log that is not
    `dense`, control records may take offsets at any time.
    """
    return Model(
        name="append-only-log",
        init=lambda: (first_end, 0, ()),
        step=_log_step,
        call_of=lambda op: None,
    )


MODELS: Final[Mapping[str, Model]] = {
    model.name: model
    for model in (
        *(REGISTER, CAS_REGISTER, FENCING, CONSUMER_OFFSETS, TOPIC),
        *(KEY_VALUE, MUTEX, MULTI_REGISTER),
    )
}


def calls_of(model: Model, operations: Sequence[Interval]) -> dict[Hashable, list[Call]]:
    """The calls of a history, by independent object, in order of invocation."""
    found: dict[Hashable, list[Call]] = {}
    for op in sorted(operations, key=lambda op: (op.start_ns, op.index)):
        call = model.call_of(op)
        if call is not None:
            assert call.end_ns <= OPEN, call
            found.setdefault(model.partition(op), []).append(call)
    return found

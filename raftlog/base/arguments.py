"""The doors of the public API: each argument is checked before the function does anything.

    @checked
    def create_partitions(self, name: TopicName, count: PartitionCount) -> None: ...

`checked` reads a function's annotations once. Each call then compares its arguments with them:

1. A wrong type raises `WrongType`, which is a TypeError, and a wrong value `WrongValue`, which is a
   ValueError. Both name the argument (`headers[0][1]`, where it lies inside another one).
2. `Annotated[int, between(0, 9)]` adds rules about the value. A rule is a function
   (name, value) -> the value to use.
3. `**options: Unpack[SomeOptions]` takes the keys of that TypedDict as keywords, and no others.
4. A value of a kindred type is converted. Any whole number becomes an int, numpy's too, but no
   bool. bytearray and memoryview are copied into bytes. A plain pair becomes the named tuple that
   the function expects.

A check costs about a microsecond per call. `check` is the same for one value, where a class takes
its arguments without a function of its own.
"""

import operator
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache, wraps
from inspect import Parameter, signature
from pathlib import Path, PurePath
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    ForwardRef,
    ParamSpec,
    TypeVar,
    Union,
    Unpack,
    final,
    get_args,
    get_origin,
    get_type_hints,
)

import attrs

from raftlog.base.errors import WrongType, WrongValue
from raftlog.base.limits import INT64_MAX

Result = TypeVar("Result")
Parameters = ParamSpec("Parameters")
Rule = Callable[[str, Any], Any]
"""(name, value) -> the value to use; raises `WrongType` or `WrongValue`."""

_BYTES_LIKE: Final = (bytes, bytearray, memoryview)
_TEXT_LIKE: Final = (str, *_BYTES_LIKE)
_NOT_CHECKED: Final = ("self", "cls")


@final
@attrs.frozen
class Door:
    """The values that one annotation lets in. `accepts` looks at the type alone, so that a union
    can choose its member. `take` looks inside the value and returns the one to use."""

    wanted: str
    accepts: Callable[[Any], bool]
    take: Rule

    def enter(self, name: str, value: Any) -> Any:
        """The value to use; raises for a wrong one."""
        if not self.accepts(value):
            raise WrongType(
                f"{name} must be {self.wanted}, not {kind_of(value)}", do=_advice(self, value)
            )
        return self.take(name, value)


# --- functions ------------------------------------------------------------------------------------


def checked(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Check the arguments of every call by the function's annotations. See the module."""
    if not getattr(function, "__annotations__", None):
        # Modules that mypyc compiled have no annotations. They only run simulated seeds.
        return function
    positional: list[tuple[str, Door | None]] = []
    named: dict[str, Door] = {}
    others: Door | None = None
    closed = False
    for each in signature(function).parameters.values():
        if each.name in _NOT_CHECKED:
            positional.append((each.name, None))
            continue
        assert each.annotation is not Parameter.empty, (function, each.name)
        if get_origin(each.annotation) is Unpack:
            named |= _doors_of_keys(get_args(each.annotation)[0])
            closed = True
            continue
        door = door_of(each.annotation)
        if each.kind is Parameter.VAR_KEYWORD:
            others = door
            continue
        assert each.kind is not Parameter.VAR_POSITIONAL, (function, each.name)
        named[each.name] = door
        if each.kind is not Parameter.KEYWORD_ONLY:
            positional.append((each.name, door))

    @wraps(function)
    def with_doors(*args: Parameters.args, **more: Parameters.kwargs) -> Result:
        __tracebackhide__ = True  # for pytest: an error is about the caller's line, not about this
        # Too many, missing and unknown arguments are left to the function, whose own TypeError
        # names them.
        passed: list[Any] = list(args)
        for at, ((name, door), value) in enumerate(zip(positional, args, strict=False)):
            if door is not None:
                passed[at] = door.enter(name, value)
        given: dict[str, Any] = more
        for name, value in given.items():
            door = named.get(name, others)
            if door is None and closed:
                # The function takes any keyword, so Python does not refuse this one.
                text = f"{function.__qualname__}() got an unexpected keyword argument {name!r}"
                raise TypeError(text)
            if door is not None:
                given[name] = door.enter(name, value)
        return function(*passed, **given)

    with_doors.__checked__ = True  # type: ignore[attr-defined]
    return with_doors


def _doors_of_keys(kind: type) -> dict[str, Door]:
    """The doors of a TypedDict's keys."""
    return {name: door_of(each) for name, each in get_type_hints(kind, include_extras=True).items()}


def check(name: str, value: Any, annotation: Any) -> Any:
    """Check one value; returns the value to use."""
    return door_of(annotation).enter(name, value)


def kind_of(value: object) -> str:
    """The type of a value, for a message."""
    return "None" if value is None else type(value).__name__


# --- rules ----------------------------------------------------------------------------------------


def between(low: float, high: float) -> Rule:
    """Numbers from `low` to `high`, both included."""

    def rule(name: str, value: Any) -> Any:
        if not low <= value <= high:
            raise WrongValue(f"{name} must be {low} to {high}, not {_shown(value)}")
        return value

    return rule


def one_of(*allowed: object) -> Rule:
    """Accept these values only."""

    def rule(name: str, value: Any) -> Any:
        if value not in allowed:
            raise WrongValue(
                f"{name} must be one of {', '.join(map(str, allowed))}, not {_shown(value)}"
            )
        return value

    return rule


def names_a_path(name: str, value: Any) -> Any:
    """Accept what can name a file or a folder. `Path("")` is taken: it is the present folder."""
    if value == "" or "\0" in str(value):
        raise WrongValue(f"{name} must name a file or folder, not {_shown(value)}")
    return value


AnyText = Annotated[str, "any text"]
"""Text that may hold half a surrogate pair: JSON can tell it, UTF-8 cannot."""
AnyPath = Annotated[str | Path, names_a_path]
"""A file or folder of the user's machine."""


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


# --- doors ----------------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def door_of(annotation: Any) -> Door:
    """The door that an annotation describes. An annotation of an unknown kind is our own mistake:
    the assertion fails when the module is imported."""
    found = _SIMPLE.get(annotation)
    if found is not None:
        return found
    supertype = getattr(annotation, "__supertype__", None)
    if supertype is not None:  # a NewType
        return door_of(supertype)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation == AnyText:
        return Door("str", lambda value: isinstance(value, str), _as_is)
    if origin is Annotated:
        return _with_rules(door_of(arguments[0]), arguments[1:])
    if origin is Union or origin is UnionType:
        return _union([door_of(each) for each in arguments])
    if origin is Callable or annotation is Callable:
        return Door("a function", callable, _as_is)
    if origin is not None:
        return _container(origin, arguments)
    assert isinstance(annotation, type), f"no door for {annotation!r}"
    if hasattr(annotation, "_fields"):
        return _named_tuple(annotation)
    if getattr(annotation, "_is_protocol", False):
        return _protocol(annotation)
    return _instance(annotation)


def _as_is(name: str, value: Any) -> Any:
    del name
    return value


def _with_rules(door: Door, rules: Sequence[Any]) -> Door:
    def take(name: str, value: Any) -> Any:
        value = door.take(name, value)
        for rule in rules:
            value = rule(name, value)
        return value

    return Door(door.wanted, door.accepts, take)


def _union(doors: Sequence[Door]) -> Door:
    wanted = list(dict.fromkeys(door.wanted for door in doors))
    text = wanted[0] if len(wanted) == 1 else f"{', '.join(wanted[:-1])} or {wanted[-1]}"

    def accepts(value: Any) -> bool:
        return any(door.accepts(value) for door in doors)

    def take(name: str, value: Any) -> Any:
        return next(door for door in doors if door.accepts(value)).take(name, value)

    return Door(text, accepts, take)


def _instance(kind: type) -> Door:
    return Door(kind.__name__, lambda value: isinstance(value, kind), _as_is)


def _protocol(kind: type) -> Door:
    """A door for every object that has the methods of a Protocol."""
    names = [name for name in vars(kind) if not name.startswith("_")]
    text = f"an object with {' and '.join(names)}"
    return Door(text, lambda value: all(hasattr(value, name) for name in names), _as_is)


def _named_tuple(kind: Any) -> Door:
    """A door for a named tuple. A plain tuple may stand for one of only text and numbers."""
    hints = kind.__annotations__
    # Sources that are rewritten to be compiled quote the fields. They only run simulated seeds.
    doors = {
        name: door_of(hints[name])
        for name in kind._fields
        if not isinstance(hints[name], ForwardRef)
    }
    plain = all(_is_plain(hints[name]) for name in kind._fields)

    def accepts(value: Any) -> bool:
        if isinstance(value, kind):
            return True
        return plain and type(value) is tuple and len(value) == len(doors)

    def take(name: str, value: Any) -> Any:
        found = [
            doors[field].enter(f"{name}.{field}", each) if field in doors else each
            for field, each in zip(kind._fields, value, strict=True)
        ]
        return kind(*found)

    return Door(kind.__name__, accepts, take)


def _is_plain(annotation: Any) -> bool:
    if get_origin(annotation) is Annotated:
        return _is_plain(get_args(annotation)[0])
    return getattr(annotation, "__supertype__", annotation) in (str, int)


def _container(origin: Any, arguments: Sequence[Any]) -> Door:
    if issubclass(origin, Mapping):
        return _mapping(door_of(arguments[0]), door_of(arguments[1]))
    if origin is tuple and arguments[-1] is not Ellipsis:
        return _fixed_tuple([door_of(each) for each in arguments])
    if origin in (list, tuple) or issubclass(origin, Collection):
        return _collection(origin, door_of(arguments[0]))
    assert issubclass(origin, Iterable), f"no door for {origin!r}"
    return Door("an iterable", _is_iterable, _as_is)


def _is_iterable(value: Any) -> bool:
    return hasattr(type(value), "__iter__") and not isinstance(value, _TEXT_LIKE)


def _mapping(keys: Door, values: Door) -> Door:
    def take(name: str, value: Any) -> Any:
        return {
            keys.enter(f"a key of {name}", key): values.enter(f"{name}[{_shown(key)}]", each)
            for key, each in value.items()
        }

    return Door("a mapping", lambda value: isinstance(value, Mapping), take)


def _fixed_tuple(doors: Sequence[Door]) -> Door:
    def accepts(value: Any) -> bool:
        return isinstance(value, tuple | list) and len(value) == len(doors)

    def take(name: str, value: Any) -> Any:
        return tuple(
            door.enter(f"{name}[{at}]", each)
            for at, (door, each) in enumerate(zip(doors, value, strict=True))
        )

    wanted = ", ".join(door.wanted for door in doors)
    return Door(f"({wanted})", accepts, take)


def _collection(origin: Any, inner: Door) -> Door:
    """A door for a list, tuple or another collection. It copies the collection, so that the caller
    may change it later. It refuses text, since text in place of a list of texts is nearly always
    a mistake."""
    due = Sequence if origin in (list, tuple) else origin
    ordered = issubclass(due, Sequence)

    def accepts(value: Any) -> bool:
        return isinstance(value, due) and not isinstance(value, (*_TEXT_LIKE, Mapping))

    def take(name: str, value: Any) -> Any:
        if inner.take is _as_is and all(map(inner.accepts, value)):
            return value  # no copy: the judge is handed millions of operations
        found = [inner.enter(f"{name}[{at}]", each) for at, each in enumerate(value)]
        return found if origin is list or not ordered else tuple(found)

    return Door(f"a list of {inner.wanted}", accepts, take)


# --- simple types ---------------------------------------------------------------------------------


def _take_text(name: str, value: Any) -> Any:
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise WrongValue(
                f"{name} holds half a surrogate pair at {error.start}, which UTF-8 cannot tell"
            ) from None
    return value


def _take_bytes(name: str, value: Any) -> bytes:
    if type(value) is bytes:
        return value
    try:
        return bytes(value)
    except (ValueError, BufferError) as error:  # a memoryview that was released
        raise WrongValue(f"{name} cannot be read: {error}") from None


def _is_whole(value: Any) -> bool:
    return hasattr(type(value), "__index__") and not isinstance(value, bool)


def _take_whole(name: str, value: Any) -> int:
    try:
        number = operator.index(value)
    except TypeError:  # an array of numpy has __index__, and no whole number
        raise WrongType(f"{name} must be a whole number, not {kind_of(value)}") from None
    if not -INT64_MAX - 1 <= number <= INT64_MAX:
        raise WrongValue(f"{name} must fit into 64 bits, not {_shown(number)}")
    return number


def _is_number(value: Any) -> bool:
    return isinstance(value, float) or _is_whole(value)


def _take_number(name: str, value: Any) -> float:
    number = value if isinstance(value, float) else _take_whole(name, value)
    if number != number:
        raise WrongValue(f"{name} must be a number, not NaN")
    return number


def _anything(value: Any) -> bool:
    del value
    return True


_SIMPLE: Final[dict[Any, Door]] = {
    str: Door("str", lambda value: isinstance(value, str), _take_text),
    bytes: Door("bytes", lambda value: isinstance(value, _BYTES_LIKE), _take_bytes),
    int: Door("a whole number", _is_whole, _take_whole),
    float: Door("a number", _is_number, _take_number),
    bool: Door("True or False", lambda value: isinstance(value, bool), _as_is),
    None: Door("None", lambda value: value is None, _as_is),
    NoneType: Door("None", lambda value: value is None, _as_is),
    object: Door("anything", _anything, _as_is),
    Any: Door("anything", _anything, _as_is),
}


def _advice(door: Door, value: object) -> str:
    """Advice for the caller's most likely mistake; empty when none is known."""
    if isinstance(value, str) and "bytes" in door.wanted:
        return "text.encode() makes bytes of text"
    if isinstance(value, _BYTES_LIKE) and "str" in door.wanted:
        return "data.decode() makes text of bytes"
    if isinstance(value, str | PurePath) and "readline" in door.wanted:
        return "open the file and hand that over"
    return ""

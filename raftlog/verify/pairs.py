"""What a poll returned: offsets and values, checked and kept in little memory.

Polls are most of a history's bytes: each record is sent once and read many times. `KnownLog` exists
for that: it has one copy of every value that was acknowledged or read, and the bytes that said so,
so that a poll which returned just that is neither parsed nor stored again.
"""

import json
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any, Final, final

import msgspec

_WAITING_MAX: Final = 256
"""Acknowledgements of one key that came before those of lower offsets: more than are in flight."""

Value = str | int


@final
class KnownLog:
    """The log of one key as the lines have told it so far, from one offset on without a gap.

    Only ever a help for reading: what a poll returned is decided by the poll's own bytes.
    """

    __slots__ = (
        "_between",
        "_first",
        "_fresh",
        "_starts",
        "_text",
        "_values",
        "_waiting",
        "end",
        "key",
    )

    def __init__(self, key: str) -> None:
        self.key = key
        self.end = -1
        """The offset that comes next; -1 before the first."""
        self._first = 0
        self._values: list[Value] = []
        self._fresh: list[bytes] = []
        """Pairs that are not in `_text` yet: it grows many at a time."""
        self._text = bytearray()
        """The JSON of a poll that returned everything, without its outer brackets."""
        self._starts = array("q")
        """Where each pair begins in `_text`."""
        self._between = b","
        self._waiting: dict[int, tuple[Value, bytes]] = {}

    def put(self, offset: int, value: Value, pair: bytes) -> None:
        """`value` lies at `offset`; `pair` is JSON that says so, in the style of the lines."""
        if offset == self.end and not self._waiting:
            self.end = offset + 1
            self._values.append(value)
            self._fresh.append(pair)
        else:
            self._put_in_order(offset, value, pair)

    def _put_in_order(self, offset: int, value: Value, pair: bytes) -> None:
        if self.end < 0:
            self._first = self.end = offset
            self._between = b", " if pair.startswith(b"[%d, " % offset) else b","
        if offset < self.end or len(self._waiting) >= _WAITING_MAX:
            return
        self._waiting.setdefault(offset, (value, pair))
        while self.end in self._waiting:
            value, pair = self._waiting.pop(self.end)
            self.end += 1
            self._values.append(value)
            self._fresh.append(pair)

    def _freshen(self) -> None:
        """Bring `_text` up to date."""
        text, between = self._text, self._between
        if text:
            text += between
        step, begin = len(between), len(text)
        for pair in self._fresh:
            self._starts.append(begin)
            begin += len(pair) + step
        text += between.join(self._fresh)
        self._fresh.clear()

    def told(self, first: int, pairs: bytes) -> tuple[Value, ...] | None:
        """The values of `pairs`, JSON that begins at offset `first`, if it is known word for word.

        JSON that is a prefix of JSON and ends behind a bracket ends behind the same bracket, so a
        match ends where one of the known pairs ends.
        """
        place = first - self._first
        if place < 0 or first >= self.end:
            return None
        if self._fresh:
            self._freshen()
        start = self._starts[place]
        if not self._text.startswith(pairs, start):
            return None
        return tuple(self._values[place : bisect_left(self._starts, start + len(pairs), place)])

    def share(self, first: int, values: tuple[Value, ...]) -> tuple[Value, ...]:
        """`values`, which a poll found from `first` on, as the objects that are known already."""
        known, place = self._values, first - self._first
        if self.end < 0 or not 0 <= place <= len(known):
            return values
        ours = tuple(known[place : place + len(values)])
        if ours != values[: len(ours)]:
            return values
        rest = values[len(ours) :]
        self.put_all(first + len(ours), rest)
        return (*ours, *rest)

    def put_all(self, first: int, values: tuple[Value, ...]) -> None:
        """`values` lie from `first` on. In JSON as our own writer has it."""
        space = self._between[1:]
        for offset, value in enumerate(values, first):
            self.put(offset, value, b"[%d,%s%s]" % (offset, space, json.dumps(value).encode()))


@final
class Pairs(msgspec.Struct, eq=False, gc=False):
    """What a poll returned of one key: offsets and values, in the order of their return.

    Of consecutive offsets, the usual case, only the first is kept: little memory, and whole polls
    can be compared with the log at once.
    """

    places: int | list[int]
    """Every offset, or the first of consecutive ones."""
    values: tuple[Any, ...]

    @property
    def offsets(self) -> Sequence[int]:
        """A range, or a list where offsets do not follow each other."""
        places = self.places
        if isinstance(places, int):
            return range(places, places + len(self.values))
        return places

    @property
    def in_order(self) -> bool:
        """Whether each offset follows the one before."""
        return type(self.places) is int

    @classmethod
    def of(cls, pairs: Sequence[Sequence[Any]], log: KnownLog | None = None) -> "Pairs":
        """From JSON. ValueError or TypeError where that is not a list of offsets and values."""
        if not pairs:
            return cls([], ())
        offsets, values = zip(*pairs, strict=True)
        if not _are_usual(offsets, values):
            _check(offsets, values)
        first, count = offsets[0], len(offsets)
        if offsets[-1] - first == count - 1 and offsets == tuple(range(first, first + count)):
            return cls(first, values if log is None else log.share(first, values))
        return cls(list(offsets), values)

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        return zip(self.offsets, self.values, strict=True)

    @property
    def end(self) -> int:
        """One more than the highest offset; 0 if there is none."""
        places = self.places
        if type(places) is int:
            return places + len(self.values)
        return max(self.offsets, default=-1) + 1


def values_of(asked: Any) -> tuple[Value, ...]:
    """The values of one send: one, or those of one batch."""
    return tuple(asked) if type(asked) is list else (asked,)


def _are_usual(offsets: Sequence[Any], values: Sequence[Any]) -> bool:
    """Whether all offsets are natural numbers and all values texts, told without a loop of ours.

    A sum shows any fraction. That leaves truth values, which count as 0 and 1: none can hide where
    the least is 2 or more.
    """
    try:
        "".join(values)
        return type(sum(offsets)) is int and min(offsets) > 1
    except TypeError:
        return False


def _check(offsets: Sequence[Any], values: Sequence[Any]) -> None:
    for offset in offsets:
        if type(offset) is not int or offset < 0:
            raise ValueError(f"offset {offset!r}")
    for value in values:
        if type(value) is not str and type(value) is not int:
            raise TypeError(f"value {value!r}")

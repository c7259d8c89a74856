"""The answers of polls: offsets and values, checked and kept in little memory.

Polls are most of a history's bytes: each record is sent once and read many times. `KnownLog` has
one copy of every value that was acknowledged or read, and the JSON that says so. A poll that
returned just that JSON is neither parsed nor stored again.
"""

import json
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import accumulate
from operator import add
from typing import Any, Final, final

import msgspec

_WAITING_MAX: Final = 256
"""The most acknowledgements of one key that may wait for those of lower offsets. It is more than a
client has in flight."""
_OPENING: Final = ord("[")
_CLOSING: Final = ord("]")
_PAIR_BYTES_MIN: Final = len("[0,0],")
_JSON_LINES: Final = msgspec.json.Encoder().encode_lines

Value = str | int


@final
class KnownLog:
    """The log of one key as the lines have told it so far, from one offset on without a gap.

    It only saves work: a poll's own bytes decide what the poll returned. A value that is here never
    changes, so that polls may refer to it (`Pairs`).
    """

    __slots__ = (
        "_spaced",
        "_starts",
        "_text",
        "_unicode",
        "_waiting",
        "end",
        "first",
        "key",
        "values",
    )

    def __init__(self, key: str) -> None:
        self.key = key
        self.first = 0
        self.end = -1
        """The offset after the last known value; -1 before the first."""
        self.values: list[Value] = []
        """The known values, from offset `first` on."""
        self._text = bytearray()
        """The JSON of a poll that returned everything, without its outer brackets. It may be
        shorter than `values`, and grows when a poll needs more of it."""
        self._starts = array("q")
        """Where each pair begins in `_text`, in bytes."""
        self._spaced = False
        """The style of the JSON, learned from the first poll: whether spaces follow commas.
        `_unicode` says whether texts beyond ASCII are written as they are."""
        self._unicode = False
        self._waiting: dict[int, Value] = {}

    def put(self, offset: int, value: Value) -> None:
        """Take note that `value` lies at `offset`; it waits while the log has a gap before it."""
        if offset == self.end and not self._waiting:
            self.end = offset + 1
            self.values.append(value)
        else:
            self._put_in_order(offset, value)

    def _put_in_order(self, offset: int, value: Value) -> None:
        if self.end < 0:
            self.first = self.end = offset
        if offset < self.end or len(self._waiting) >= _WAITING_MAX:
            return
        self._waiting.setdefault(offset, value)
        while self.end in self._waiting:
            self.values.append(self._waiting.pop(self.end))
            self.end += 1

    def told(self, words: bytes) -> "Pairs | None":
        """The answer of a poll whose JSON is `words`; None unless the log knows all of it.

        A match ends where one of the known pairs ends: when a text is a prefix of the known JSON
        and ends behind a bracket, the known JSON has the same bracket there.
        """
        if words == b"[]":
            return Pairs([], 0, ())
        try:
            first = int(words[2 : words.find(b",")])  # a text that is no number matches nothing
        except ValueError:
            return None
        place = first - self.first
        if place < 0 or first >= self.end or words[0] != _OPENING or words[-2] != _CLOSING:
            return None
        starts, text, pairs = self._starts, self._text, words[1:-1]
        if place >= len(starts) or starts[place] + len(pairs) > len(text):
            self._freshen(words)
        begin = starts[place]
        if not text.startswith(pairs, begin):
            return None
        most = min(place + len(pairs) // _PAIR_BYTES_MIN + 1, len(starts))
        return Pairs(first, bisect_left(starts, begin + len(pairs), place, most) - place, self)

    def _freshen(self, words: bytes) -> None:
        """Extend `_text` to all of `values`, in the style of `words`."""
        text, starts = self._text, self._starts
        if not starts:
            self._spaced = words[words.find(b",") :].startswith(b", ")
            self._unicode = not words.isascii()
        place = len(starts)
        fresh = self.values[place:]
        if not fresh:
            return
        lines = _lines_of(self.first + place, fresh, self._unicode)
        more, step = lines[:-1].replace(b"\n", b","), 1
        if self._spaced:  # one inside each pair, one between two
            more, step = msgspec.json.format(b"[" + more + b"]", indent=0)[1:-1], 3
        if text:
            text += b", " if self._spaced else b","
        begins = accumulate(map(len, lines.split(b"\n")), initial=len(text))
        starts.extend(map(add, begins, range(0, step * len(fresh), step)))
        text += more

    def close(self) -> None:
        """Drop everything but the values: no more lines will come."""
        self._text, self._starts, self._waiting = bytearray(), array("q"), {}

    def share(self, first: int, values: tuple[Value, ...]) -> "Pairs":
        """The pairs of a poll that found `values` from `first` on, part of this log if possible."""
        known, place, end = self.values, first - self.first, first + len(values)
        if self.end < 0 or not 0 <= place <= len(known):
            return Pairs(first, len(values), values)
        ours = len(known) - place
        if tuple(known[place : place + len(values)]) == values[:ours]:
            for offset in range(self.end, end):
                self.put(offset, values[offset - first])
            if tuple(known[place : place + len(values)]) == values:
                return Pairs(first, len(values), self)
        return Pairs(first, len(values), values)


@final
class Pairs(msgspec.Struct, eq=False, gc=False):
    """The answer of a poll for one key: offsets and values, in the order in which it returned them.

    Consecutive offsets, the usual case, are kept as the first of them. Values that the log has at
    the same offsets are kept as a reference to the log. That takes little memory, and a whole poll
    can be compared with the log at once.
    """

    places: int | list[int]
    """Every offset, or only the first where they are consecutive."""
    count: int
    held: tuple[Any, ...] | KnownLog
    """The values, or the log that has them at the same offsets."""

    @property
    def values(self) -> tuple[Any, ...]:
        """The values, in order."""
        held = self.held
        if type(held) is tuple:
            return held
        assert isinstance(held, KnownLog)
        assert isinstance(self.places, int)
        place = self.places - held.first
        return tuple(held.values[place : place + self.count])

    @property
    def offsets(self) -> Sequence[int]:
        """The offsets: a range where they are consecutive, else a list."""
        places = self.places
        if isinstance(places, int):
            return range(places, places + self.count)
        return places

    @classmethod
    def of(cls, pairs: Sequence[Sequence[Any]], log: KnownLog | None = None) -> "Pairs":
        """The pairs in parsed JSON.

        Raises ValueError or TypeError where it holds no offsets and values.
        """
        if not pairs:
            return cls([], 0, ())
        offsets, values = zip(*pairs, strict=True)
        if not _are_usual(offsets, values):
            _check(offsets, values)
        first, count = offsets[0], len(offsets)
        if offsets[-1] - first == count - 1 and offsets == tuple(range(first, first + count)):
            return cls(first, count, values) if log is None else log.share(first, values)
        return cls(list(offsets), count, values)

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        return zip(self.offsets, self.values, strict=True)

    @property
    def end(self) -> int:
        """One more than the highest offset; 0 where there is none."""
        places = self.places
        if type(places) is int:
            return places + self.count
        return max(self.offsets, default=-1) + 1


def _lines_of(first: int, values: Sequence[Value], unicode: bool) -> bytes:
    """The pairs of `values`, which lie from `first` on, as lines of JSON without spaces."""
    with suppress(UnicodeEncodeError):  # half a surrogate pair: JSON can only escape it
        lines = _JSON_LINES(list(enumerate(values, first)))
        if unicode or lines.isascii():
            return lines
    return b"".join(
        b"[%d,%s]\n" % (offset, json.dumps(value).encode())
        for offset, value in enumerate(values, first)
    )


def values_of(asked: Any) -> tuple[Value, ...]:
    """The values of one send: one, or those of one batch."""
    return tuple(asked) if type(asked) is list else (asked,)


def _are_usual(offsets: Sequence[Any], values: Sequence[Any]) -> bool:
    """Whether all offsets are natural numbers and all values texts, told without a loop of ours.

    The sum of the offsets shows any fraction. Truth values remain, which count as 0 and 1: none can
    hide where the lowest offset is 2 or more.
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

"""One operation of a history, from its call to its return, as the judge sees it."""

from collections.abc import Iterator
from itertools import islice
from math import isfinite
from typing import Any, Final, final

import msgspec

from raftlog.verify.histories.pairs import Pairs, Value, values_of

OPEN: Final = 1 << 62
"""The end of an operation that never ended, in ns: longer than a century."""


@final
class Interval(msgspec.Struct, eq=False, gc=False):
    """One operation of one process, from its call to its return.

    `asked` is the value of the invocation. `value` is the answer and depends on `f`: the base
    offset or None for `send`, {key: pairs} for `poll` and the reads of `txn`, an offset for
    `empty`, `end` and `start`. It is None where no answer came.
    """

    index: int
    process: int
    f: str
    key: str | None
    type: str
    start_ns: int
    end_ns: int
    asked: Any
    value: Any
    node: str | None = None
    evidence: dict[str, Any] | None = None

    # An acknowledged send of one record stands for its own batch, without another object: `op`,
    # `base`, `values`, `size` and `offset_of` are those of `raftlog.verify.judging.facts.Batch`.

    @property
    def op(self) -> "Interval":
        """The send that this batch belongs to: the operation itself."""
        return self

    @property
    def base(self) -> int:
        """The offset of the record."""
        return self.value  # type: ignore[no-any-return]

    @property
    def values(self) -> tuple[Value, ...]:
        """The values that the batch carries: one."""
        return (self.asked,)

    @property
    def size(self) -> int:
        """The number of offsets that the batch takes."""
        return 1

    def offset_of(self, value: Value) -> int:
        """The offset at which `value`, the only one of this batch, lies."""
        assert value == self.asked, (value, self.asked)
        return self.base

    def sends(self) -> Iterator[tuple[str, tuple[Value, ...], int | None]]:
        """(key, values of one batch, base offset or None) of every send inside, in order."""
        if self.f == "send":
            assert self.key is not None
            yield self.key, values_of(self.asked), self.value
        elif self.f == "txn":
            done = self.value[0] if self.value is not None else [None] * len(self.asked)
            for (kind, key, sent), base in zip(self.asked, done, strict=True):
                if kind == "send":
                    yield key, values_of(sent), base

    def reads(self) -> dict[str, Pairs]:
        """The pairs that the operation read, by key; empty where no answer came."""
        if self.value is None:
            return {}
        if self.f == "poll":
            return self.value  # type: ignore[no-any-return]
        if self.f == "txn":
            return self.value[1]  # type: ignore[no-any-return]
        return {}

    def summary(self) -> dict[str, Any]:
        """The operation as a witness shows it: JSON, long values shortened."""
        found: dict[str, Any] = {
            "index": self.index,
            "process": self.process,
            "f": self.f,
            "key": self.key,
            "type": self.type,
            "invoked_ns": self.start_ns,
            "returned_ns": None if self.end_ns >= OPEN else self.end_ns,
            "asked": shortened(self.asked),
            "value": shortened(self.value),
        }
        if self.node is not None:
            found["node"] = self.node
        if self.evidence:
            found["evidence"] = {name: shortened(value) for name, value in self.evidence.items()}
        return found


def shortened(value: Any, most: int = 8) -> Any:
    """`value` with long lists and texts cut, for people.

    JSON stays JSON. NaN and Infinity, which only Python takes for JSON, become texts.
    """
    if isinstance(value, Pairs):
        value = [list(pair) for pair in islice(value, most)] + [None] * (len(value) - most)
    if isinstance(value, (list, tuple)):
        cut = [shortened(item, most) for item in value[:most]]
        return [*cut, f"... {len(value) - most} more"] if len(value) > most else cut
    if isinstance(value, dict):
        few = {str(name): shortened(value[name], most) for name in list(value)[:most]}
        if len(value) > most:
            few["..."] = f"{len(value) - most} more"
        return few
    if isinstance(value, str) and len(value) > 200:
        return value[:200] + "..."
    return str(value) if isinstance(value, float) and not isfinite(value) else value

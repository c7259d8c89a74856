"""One block of a key's chain, judged by whole columns: what a task of the log check runs.

    rows of a block -> `fold` -> one row an offset -> `judge` -> a verdict, and what the next blocks
                                                                 need to know

The theory is that of `raftlog.verify.judging.linearizability`. A block is judged as if nothing lay
before it. That is its verdict unless an invocation before it is later than `earliest`, the earliest
return in the block: then it is judged again with that `BlockCarry`. No operation holds the running
maximum of such an order unless it is the latest so far; of equally late ones the first on the chain
does.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from raftlog.verify.histories.interval import OPEN
from raftlog.verify.judging.linearizability import BEFORE_ALL

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

# The meanings of a row (the column `what`).
TEXT: Final = 0
"""A value was read at this offset."""
NOBODYS: Final = 1
"""A value is at this offset, and no operation counts as its append: its send failed, or the value
is at two places."""
OWN: Final = 2
"""A value is at this offset, appended by `op` from `begin` to `end`."""
BEGUN: Final = 3
"""The last record that the log had when the history began."""
AT_LEAST: Final = 4
"""A read that ended before this offset; it returned at `end`."""
AT_MOST: Final = 5
"""An `empty` at this offset, invoked at `begin`."""
EXACT: Final = 6
"""An `end` at this offset, from `begin` to `end`."""

ROWS: Final = (
    "number INT, block BIGINT, offset BIGINT, what INT, begin BIGINT, end BIGINT, op BIGINT, "
    "text BIGINT"
)
"""The columns of a row of the chain: the key's number, the block, the offset and its meaning;
`text` stands for the value."""
VERDICTS: Final = (
    "number INT, block BIGINT, latest BIGINT, latest_op BIGINT, earliest BIGINT, first BIGINT, "
    "cut BOOLEAN, behind BIGINT, conflicts BIGINT, violations BIGINT, first_offset BIGINT, "
    "first_slot BIGINT, first_before BIGINT, first_after BIGINT, holes BIGINT, "
    "hole_starts ARRAY<BIGINT>, hole_stops ARRAY<BIGINT>, hole_ends ARRAY<BIGINT>, "
    "hole_cuts ARRAY<BOOLEAN>"
)
"""A block's verdict. `latest` and its operation hold the maximum at its end, `earliest` is the
earliest return in it; `first` is its first offset, at which `cut` says whether a batch must end,
and `behind` the offset that follows it. `violations` with the first pair; `holes` between its
offsets, which are listed, with the earliest return from each on, where they were asked for."""
ARROW_VERDICTS: Final = pa.schema(
    [
        pa.field("number", pa.int32()),
        pa.field("block", pa.int64()),
        *(pa.field(name, pa.int64()) for name in ("latest", "latest_op", "earliest", "first")),
        pa.field("cut", pa.bool_()),
        *(
            pa.field(name, pa.int64())
            for name in (
                "behind",
                "conflicts",
                "violations",
                "first_offset",
                "first_slot",
                "first_before",
                "first_after",
                "holes",
            )
        ),
        *(
            pa.field(name, pa.list_(pa.int64()))
            for name in ("hole_starts", "hole_stops", "hole_ends")
        ),
        pa.field("hole_cuts", pa.list_(pa.bool_())),
    ]
)

NEVER: Final = -(1 << 63)
"""An instant before all others, which means that there is none."""


class BlockCarry(NamedTuple):
    """The input to a block from those before it: the latest invocation and its operation, and
    whether to list the block's holes."""

    at: int = NEVER
    op: int = -1
    list_holes: bool = False


NO_CARRY: Final = BlockCarry()


class Rows(NamedTuple):
    """The columns of a block's rows."""

    offset: Ints
    what: Ints
    begin: Ints
    end: Ints
    op: Ints
    text: Ints


class Bound(NamedTuple):
    """An instant and its operation for each offset. Without one, the instant is a number that
    constrains nothing."""

    at: Ints
    op: Ints


class Chain(NamedTuple):
    """One row for each offset, ascending. An append without an operation has -1."""

    offsets: Ints
    exact_in: Bound
    exact_out: Bound
    at_least: Bound
    at_most: Bound
    appended: Bools
    start: Ints
    stop: Ints
    op: Ints
    conflicts: int
    """The number of offsets with more than one value."""


def judged_blocks(
    carries: Mapping[tuple[int, int], BlockCarry], first_ends: Mapping[int, int]
) -> Callable[[tuple[Any, ...], pa.Table], pa.Table]:
    """The function that Spark calls for each block: (number, block) and its rows to a verdict."""

    def judged(key: tuple[Any, ...], table: pa.Table) -> pa.Table:
        number, block = (int(each.as_py()) for each in key)
        columns = (table.column(name).to_numpy().astype(np.int64) for name in Rows._fields)
        carry = carries.get((number, block), NO_CARRY)
        found = judge(fold(Rows(*columns)), carry, first_ends.get(number, 0))
        row = {"number": number, "block": block, **found}
        return pa.Table.from_pylist([row], schema=ARROW_VERDICTS)

    return judged


def fold(rows: Rows) -> Chain:
    """Combine all rows of each offset into one."""
    offsets, place = np.unique(rows.offset, return_inverse=True)
    size = len(offsets)

    def told(what: int, instant: Ints, nothing: int, *, latest: bool) -> Bound:
        chosen = np.flatnonzero(rows.what == what)
        found = Bound(np.full(size, nothing), np.full(size, -1))
        if chosen.size:
            order = -instant[chosen] if latest else instant[chosen]
            chosen = _first(place, chosen, rows.op[chosen], order)
            found.at[place[chosen]] = instant[chosen]
            found.op[place[chosen]] = rows.op[chosen]
        return found

    has_text = rows.what <= OWN
    texts, conflicts = _texts(place[has_text], rows.text[has_text], size)
    start, stop = np.full(size, BEFORE_ALL), np.full(size, OPEN)
    op, appended = np.full(size, -1), texts
    own = np.flatnonzero(rows.what == OWN)
    own = _first(place, own, rows.op[own], rows.end[own], rows.begin[own])
    nobodys = np.zeros(size, dtype=np.bool_)
    nobodys[place[rows.what == NOBODYS]] = True
    own = own[~nobodys[place[own]]]
    start[place[own]], stop[place[own]] = rows.begin[own], rows.end[own]
    op[place[own]] = rows.op[own]
    begun = place[rows.what == BEGUN]
    start[begun], stop[begun], op[begun], appended[begun] = BEFORE_ALL, BEFORE_ALL, -1, True
    return Chain(
        offsets,
        told(EXACT, rows.begin, NEVER, latest=True),
        told(EXACT, rows.end, OPEN, latest=False),
        told(AT_LEAST, rows.end, OPEN, latest=False),
        told(AT_MOST, rows.begin, NEVER, latest=True),
        appended,
        start,
        stop,
        op,
        conflicts,
    )


def _first(place: Ints, chosen: Ints, *orders: Ints) -> Ints:
    """The first of the chosen rows of each place, sorted by the orders; the last order counts
    most."""
    where = place[chosen]
    met = np.zeros(int(where.max(initial=-1)) + 1, dtype=np.bool_)
    met[where] = True
    if int(met.sum()) == len(where):
        return chosen
    order = np.lexsort((*orders, where))
    ranked = where[order]
    ahead: Ints = chosen[order[np.append(True, ranked[1:] != ranked[:-1])]]
    return ahead


def _texts(place: Ints, text: Ints, size: int) -> tuple[Bools, int]:
    """Which places have a value, and how many have more than one."""
    found, at = np.zeros(size, dtype=np.bool_), np.empty(size, dtype=np.int64)
    found[place] = True
    at[place] = text
    return found, len(np.unique(place[at[place] != text]))


def judge(chain: Chain, carry: BlockCarry, first_end: int) -> dict[str, Any]:
    """The verdict of a block, without its number."""
    appended, offsets = chain.appended, chain.offsets
    returns = np.where(appended, chain.stop, OPEN)
    earliest = np.minimum(np.minimum(returns, chain.exact_out.at), chain.at_least.at)
    follows = offsets + appended
    found = {
        "earliest": int(earliest.min()),
        "first": int(offsets[0]),
        "cut": bool(appended[0]) or int(chain.exact_out.op[0]) >= 0,
        "behind": int(follows[-1]),
        "conflicts": chain.conflicts,
        **_scan(chain, returns, carry),
    }
    hole_starts = np.maximum(follows[:-1], first_end)
    holes = np.flatnonzero(hole_starts < offsets[1:])
    found["holes"] = len(holes)
    if carry.list_holes:
        ends = np.minimum.accumulate(earliest[::-1])[::-1]
        cuts = appended | (chain.exact_out.op >= 0)
        found["hole_starts"] = hole_starts[holes].tolist()
        found["hole_stops"] = offsets[holes + 1].tolist()
        found["hole_ends"] = ends[holes + 1].tolist()
        found["hole_cuts"] = cuts[holes + 1].tolist()
    return found


def _scan(chain: Chain, returns: Ints, carry: BlockCarry) -> dict[str, Any]:
    """The running maximum and what it violates.

    An offset has three instants, in the order of the chain: exact reads before it, empties before
    it, its append.
    """
    size = len(chain.offsets)
    instants, ops = np.empty(3 * size + 1, np.int64), np.empty(3 * size + 1, np.int64)
    instants[0], ops[0] = carry.at, carry.op
    starts = np.where(chain.appended, chain.start, NEVER)
    parts = (chain.exact_in, chain.at_most, Bound(starts, chain.op))
    for slot, part in enumerate(parts):
        instants[slot + 1 :: 3], ops[slot + 1 :: 3] = part
    latest = np.maximum.accumulate(instants)
    rises = np.append(True, latest[1:] > latest[:-1])
    holder = np.maximum.accumulate(np.where(rises, np.arange(len(instants)), 0))
    before, into = slice(0, 3 * size, 3), slice(2, 3 * size + 1, 3)
    checks = (
        (before, chain.exact_out.at, chain.exact_out.op),
        (before, chain.at_least.at, chain.at_least.op),
        (into, returns, chain.op),
    )
    violations, first = 0, None
    for slot, (held, at, op) in enumerate(checks):
        wrong = np.flatnonzero(latest[held] > at)
        violations += len(wrong)
        if wrong.size:
            one = int(wrong[0])
            pair = (int(chain.offsets[one]), slot, int(ops[holder[held][one]]), int(op[one]))
            first = pair if first is None else min(first, pair)
    names = ("first_offset", "first_slot", "first_before", "first_after")
    return {
        "latest": int(latest[-1]),
        "latest_op": int(ops[holder[-1]]),
        "violations": violations,
        **(dict(zip(names, first, strict=True)) if first is not None else {}),
    }

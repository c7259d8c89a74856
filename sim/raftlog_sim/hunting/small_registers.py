"""Random small histories of registers, and an independent judge that tries every order of their
calls.

The general search of `raftlog.verify` must agree. Its tests and the hunts of its mutants draw from
here.
"""

import itertools
from collections.abc import Sequence
from random import Random  # noqa: TID251  (seeded by name, outside every simulated world)
from typing import Any, Final

import attrs

from raftlog.verify.histories.interval import OPEN, Interval
from raftlog.verify.judging.models import CAS_REGISTER, Call, Model

KEYS: Final = ("r/0", "r/1")


def write(start: int, end: int, value: Any) -> Call:
    """Returns a write, which has no answer that could be wrong."""
    return Call(start, end, ("write", value), None)


def read(start: int, end: int, value: Any) -> Call:
    """Returns a read that answered."""
    return Call(start, end, ("read",), value)


def cas(start: int, end: int, old: Any, new: Any, matched: bool = True) -> Call:
    """Returns a compare-and-set."""
    return Call(start, end, ("cas", old, new), matched)


def random_calls(rng: Random) -> list[Call]:
    """Returns up to five calls of one register, close together; some never return."""
    calls = []
    for _ in range(rng.randint(1, 5)):
        start = rng.randint(0, 8)
        end = OPEN if rng.random() < 0.2 else start + rng.randint(0, 5)
        kind = rng.choice(["write", "read", "cas"])
        if kind == "write":
            calls.append(write(start, end, rng.randint(0, 2)))
        elif kind == "read":
            calls.append(read(start, start + rng.randint(0, 5), rng.choice([None, 0, 1, 2])))
        else:
            calls.append(cas(start, end, rng.randint(0, 2), rng.randint(0, 2)))
    return calls


def legal(model: Model, calls: Sequence[Call], order: Sequence[int]) -> bool:
    """Whether `order` respects the intervals and the model, and has all that returned."""
    state = model.init()
    for number in order:
        call = calls[number]
        fits, state = model.step(state, call.asked, call.answer)
        if not fits:
            return False
    for one, other in itertools.combinations(order, 2):
        if calls[other].end_ns < calls[one].start_ns:
            return False
    return all(number in order for number, call in enumerate(calls) if call.end_ns < OPEN)


def by_every_order(model: Model, calls: Sequence[Call]) -> bool:
    """Whether some order of the calls, with any of those that never returned, is legal."""
    must = [n for n, call in enumerate(calls) if call.end_ns < OPEN]
    may = [n for n, call in enumerate(calls) if call.end_ns >= OPEN]
    for size in range(len(may) + 1):
        for chosen in itertools.combinations(may, size):
            for order in itertools.permutations([*must, *chosen]):
                if legal(model, calls, order):
                    return True
    return False


def generate_registers(rng: Random) -> tuple[list[Interval], bool]:
    """Returns a history of one or two registers, and whether it is linearizable, by definition.

    Some of its compares are known to have failed.
    """
    operations: list[Interval] = []
    right = True
    for key in KEYS[: rng.randint(1, len(KEYS))]:
        calls = [_told_apart(rng, call) for call in random_calls(rng)]
        right = by_every_order(CAS_REGISTER, calls) and right
        operations += [_interval(len(operations) + n, key, call) for n, call in enumerate(calls)]
    return operations, right


def _told_apart(rng: Random, call: Call) -> Call:
    """Returns the call; some compares that returned did not match."""
    if call.asked[0] == "cas" and call.end_ns < OPEN and rng.random() < 0.3:
        return attrs.evolve(call, answer=False)
    return call


def _interval(number: int, key: str, call: Call) -> Interval:
    """Returns the call as a line of a history."""
    f, *asked = call.asked
    kind = "info" if call.end_ns >= OPEN else "ok"
    value = call.answer if f == "read" or call.answer is False else None
    what = None if f == "read" else asked[0] if f == "write" else asked
    return Interval(number, number, f, key, kind, call.start_ns, call.end_ns, what, value)

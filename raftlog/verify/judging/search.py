"""The general search of Wing, Gong and Lowe: is there a legal order of these calls?

The search goes depth first over a doubly linked list of calls and returns in time order. At equal
times calls come first, since intervals are closed. A call that is legal in the current state is
lifted out together with its return. At a return that is still in the list, the last choice is
undone. A memo of (calls lifted out, state) cuts branches that were tried before. Worst case O(2^c *
n) for c concurrent calls. Calls that never return stay concurrent to the end, so a history should
have few.

The problem is NP-complete, hence the budget: when it is spent the answer is `unknown`, never
`valid`. Independent objects are searched one by one (P-compositionality), which usually gains most.
"""

from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from typing import Any, Final, final

import attrs

from raftlog.base.amounts import amount
from raftlog.verify.histories.history import BadHistory
from raftlog.verify.histories.interval import OPEN, Interval
from raftlog.verify.judging.explain import describe, moment
from raftlog.verify.judging.models import Call, Model, calls_of
from raftlog.verify.judging.register_story import core_of, story_of
from raftlog.verify.judging.verdict import INVALID, UNKNOWN, VALID, Findings, Witness

CLASS: Final = "model"
_CORE_STEPS_MAX: Final = 400_000
"""The most steps of search that a small witness may cost, in all and per try: a second or two."""
_CORE_TRY_STEPS_MAX: Final = 20_000


@final
@attrs.frozen(kw_only=True)
class Search:
    """The outcome for one object: verdict, steps spent, the longest legal order that was found."""

    verdict: str
    steps: int
    longest: tuple[int, ...]
    """Indexes of calls, in their order of linearization."""
    stuck_at: int | None = None
    """Index of the call whose return could not be passed after the longest order."""


@final
class _Node:
    """An event in the list: a call (`match` is its return) or a return (`match` is None)."""

    __slots__ = ("call", "following", "match", "previous")

    def __init__(self, call: int) -> None:
        self.call = call
        self.match: _Node | None = None
        self.previous: _Node | None = None
        self.following: _Node | None = None


def search(model: Model, calls: Sequence[Call], steps_max: int) -> Search:
    """Decide one object's history."""
    head = _event_list(calls)
    state = model.init()
    step = model.step
    done = 0
    chosen: list[tuple[_Node, Any]] = []
    memo: set[tuple[int, Any]] = {(0, state)}
    longest: tuple[int, ...] = ()
    stuck: int | None = None
    steps = 0
    # A call that never returns need not be placed: the end is reached when only such calls remain.
    waiting = sum(1 for call in calls if call.end_ns < OPEN)
    node = head.following
    while waiting:
        assert node is not None, "every call that returns has its return in the list"
        steps += 1
        if steps > steps_max:
            return Search(verdict=UNKNOWN, steps=steps, longest=longest, stuck_at=stuck)
        if node.match is not None:
            call = calls[node.call]
            legal, after = step(state, call.asked, call.answer)
            if legal:
                placed = (done | (1 << node.call), after)
                if placed not in memo:
                    memo.add(placed)
                    chosen.append((node, state))
                    done, state = placed
                    waiting -= call.end_ns < OPEN
                    _lift(node)
                    node = head.following
                    continue
            node = node.following
            continue
        if len(chosen) > len(longest) or stuck is None:
            longest = tuple(entry.call for entry, _ in chosen)
            stuck = node.call
        if not chosen:
            return Search(verdict=INVALID, steps=steps, longest=longest, stuck_at=stuck)
        node, state = chosen.pop()
        done &= ~(1 << node.call)
        waiting += calls[node.call].end_ns < OPEN
        _put_back(node)
        node = node.following
    order = tuple(entry.call for entry, _ in chosen)
    return Search(verdict=VALID, steps=steps, longest=order)


def _event_list(calls: Sequence[Call]) -> _Node:
    """The list in time order. A call that never returns has its return at the very end."""
    events: list[tuple[int, int, int]] = []
    for number, call in enumerate(calls):
        events.append((call.start_ns, 0, number))
        events.append((call.end_ns, 1, number))
    events.sort()
    head = _Node(-1)
    last = head
    opened: dict[int, _Node] = {}
    for _, is_return, number in events:
        node = _Node(number)
        if is_return:
            opened[number].match = node
        else:
            opened[number] = node
        last.following, node.previous = node, last
        last = node
    return head


def _lift(node: _Node) -> None:
    """Take a call and its return out of the list. Both keep the links to their neighbours."""
    for gone in (node, node.match):
        assert gone is not None
        assert gone.previous is not None
        gone.previous.following = gone.following
        if gone.following is not None:
            gone.following.previous = gone.previous


def _put_back(node: _Node) -> None:
    """Undo `_lift`, in the opposite order."""
    for back in (node.match, node):
        assert back is not None
        assert back.previous is not None
        back.previous.following = back
        if back.following is not None:
            back.following.previous = back


def check(
    model: Model, operations: Sequence[Interval], findings: Findings, *, steps_max: int
) -> dict[str, Any]:
    """Judge a whole history by `model`; the first invalid object stops the rest.

    Returns the budget.
    """
    known = [op for op in operations if op.f in model.functions]
    strange = [op for op in operations if op.f not in model.functions]
    if strange:
        raise BadHistory(
            f"model {model.name} does not know {strange[0].f!r}",
            on=f"index {strange[0].index}",
            do=f"it knows {', '.join(model.functions)}; choose another with --model",
        )
    parts = _parts(model, known)
    if any(model.asserts(call) for calls in parts.values() for call in calls):
        findings.check(CLASS)
    spent = 0
    # Small parts first: a fault there is found cheaply and has the smallest witness.
    for name, calls in sorted(parts.items(), key=lambda part: (len(part[1]), repr(part[0]))):
        outcome = search(model, calls, steps_max)
        spent += outcome.steps
        if outcome.verdict == UNKNOWN:
            findings.give_up(CLASS, f"search of {name}: {amount(steps_max, 'step')} spent")
        elif outcome.verdict == INVALID:
            findings.add(CLASS, partial(_witness, model, name, calls, outcome))
            break
    return {"search_steps": spent, "search_steps_max": steps_max, "objects": len(parts)}


def _parts(model: Model, operations: Sequence[Interval]) -> Mapping[Hashable, Sequence[Call]]:
    try:
        return calls_of(model, operations)
    except (TypeError, ValueError, IndexError, KeyError, AttributeError) as why:
        raise BadHistory(
            f"a value does not fit model {model.name} ({why})", do="see docs/guides/verify.md"
        ) from None


def _witness(model: Model, name: Hashable, calls: Sequence[Call], outcome: Search) -> Witness:
    assert outcome.stuck_at is not None, "an invalid search is stuck somewhere"
    stuck = calls[outcome.stuck_at]
    order = [calls[number] for number in outcome.longest]
    key = f"the {model.name}" if name is None else str(name)
    story = story_of(key, calls, stuck) if model.reads_and_writes else None
    if story is not None:
        text, named = story
    else:
        named = tuple(_core(model, calls, stuck))
        done = f"{len(order)} of {amount(len(calls), 'operation')} on {key} have a legal order"
        before = f", the last of them {_say(model, order[-1])}" if order else ""
        text = (
            f"{done}{before}; then {_say(model, stuck)}, which returned at "
            f"{moment(stuck.end_ns)}, fits nowhere."
        )
        if named:
            text += f" Already {_those(named)} cannot all be true, whatever the others did."
        else:
            named = (*order[-3:], stuck)
    return Witness(
        text=text,
        key=key,
        operations=tuple(call.source for call in named if call.source is not None),
        detail={"legal_order": [call.source.index for call in order if call.source is not None]},
    )


def _core(model: Model, calls: Sequence[Call], stuck: Call) -> list[Call]:
    """The fewest calls that contradict each other, as far as a bounded search finds them."""
    left = _CORE_STEPS_MAX

    def still_invalid(tried: Sequence[Call]) -> bool:
        nonlocal left
        if left <= 0:
            return False
        found = search(model, tried, min(left, _CORE_TRY_STEPS_MAX))
        left -= found.steps
        return found.verdict == INVALID

    return core_of(calls, stuck, still_invalid)


def _those(calls: Sequence[Call]) -> str:
    numbers = [str(call.source.index) for call in calls if call.source is not None]
    if len(numbers) == 1:
        return f"operation {numbers[0]}"
    return f"operations {', '.join(numbers[:-1])} and {numbers[-1]}"


def _say(model: Model, call: Call) -> str:
    if isinstance(call.source, Interval):
        return f"the {describe(call.source)}"
    return model.describe(call.asked, call.answer)

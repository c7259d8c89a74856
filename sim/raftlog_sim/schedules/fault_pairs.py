"""Counts which kinds of faults came together: what a sweep has tried, and what it has not.

A kind has struck when a step of it did something, at the instant when the step began. Whether steps
that last overlap is not counted.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from itertools import combinations
from typing import Any, Final, final

import attrs

from raftlog.base.units import NANOS_PER_SECOND
from raftlog_sim.schedules.options import GROUPS, NOT_ON_STREAMS, VARIED, WIDE, WIDE_ONLY
from raftlog_sim.schedules.step_kinds import DEMANDS, KINDS, OF_LINKS, OUTSIDE_ATLAS, is_fault

NEAR_NS: Final = 2 * NANOS_PER_SECOND
"""The largest distance of near faults in simulated time: an election or two, or a boot."""
OF_SCENARIOS: Final = ("elect", *OUTSIDE_ATLAS)
"""Kinds of steps that only varied seeds draw."""
_HARMLESS: Final = ("image", "remember", *DEMANDS)
"""Kinds that break nothing: copies for later steps, and steps that only look."""
_OF_WIDE_MOVES: Final = (
    "cancel-move", "at-moment", "throttle", "unregister", "add-controller", "remove-controller",
    "move-replicas", "break-directory",
)  # fmt: skip
"""Steps that only wide seeds draw, and that no kind of faults names."""
_MANY: Final = 10

Pair = tuple[str, str]


def pair(one: str, other: str) -> Pair:
    """Returns two kinds in alphabetical order."""
    return (one, other) if one < other else (other, one)


@final
@attrs.define(eq=False)
class NearFaults:
    """The pairs of kinds that struck within `NEAR_NS` of each other in one run."""

    pairs: dict[Pair, None] = attrs.Factory(dict)
    """The pairs, in the order in which they came."""
    _last: dict[str, int] = attrs.Factory(dict)

    def struck(self, kind: str, now: int) -> None:
        """Note that a step of that kind did something; instants never fall."""
        for other, instant in self._last.items():
            if other != kind and now - instant <= NEAR_NS:
                self.pairs[pair(kind, other)] = None
        self._last[kind] = now


def drawable(profile: str) -> list[str]:
    """Returns the kinds of faults that the seeds of a broker profile may draw, sorted."""
    if profile == "calm":
        return []
    left_out: tuple[str, ...]
    if profile == VARIED:
        left_out = (*OUTSIDE_ATLAS, *_HARMLESS)
    else:
        left_out = (*OF_SCENARIOS, *_HARMLESS)
        left_out += () if profile == WIDE else (*WIDE_ONLY, *_OF_WIDE_MOVES)
    left_out += NOT_ON_STREAMS if profile == "trio" else ()
    left_out += OF_LINKS if profile == GROUPS else ()
    return sorted(kind for kind in KINDS if is_fault(kind) and kind not in left_out)


@final
@attrs.define(eq=False)
class PairCounts:
    """Counts over many runs of one profile: how many runs each kind struck, how many both kinds of
    a pair, and how many both of them near each other."""

    profile: str
    runs: Counter[str] = attrs.Factory(Counter)
    both: Counter[Pair] = attrs.Factory(Counter)
    near: Counter[Pair] = attrs.Factory(Counter)

    def add(self, struck: Collection[str], near: Iterable[Pair]) -> None:
        """Count a run: which kinds struck, and which pairs of them near each other."""
        counted = sorted(kind for kind in struck if kind not in _HARMLESS)
        self.runs.update(counted)
        self.both.update(combinations(counted, 2))
        self.near.update(each for each in near if not set(each) & set(_HARMLESS))

    @property
    def never_struck(self) -> list[str]:
        """Returns kinds that seeds of the profile may draw, and that struck in no run."""
        return [kind for kind in drawable(self.profile) if kind not in self.runs]

    @property
    def not_drawn(self) -> list[str]:
        """Returns kinds that only seeds of other profiles draw."""
        known = drawable(self.profile)
        return [kind for kind in drawable(WIDE) if kind not in known]

    @property
    def never_both(self) -> list[Pair]:
        """Returns pairs of kinds that struck, but never in the same run."""
        return [each for each in combinations(sorted(self.runs), 2) if each not in self.both]

    @property
    def never_near(self) -> list[Pair]:
        """Returns pairs that struck in the same run, but never near each other."""
        return [each for each in sorted(self.both) if each not in self.near]

    def document(self) -> dict[str, Any]:
        """Returns the counts as JSON; `a+b` is a pair."""
        return {
            "never_struck": self.never_struck,
            "not_drawn": self.not_drawn,
            "runs": dict(sorted(self.runs.items())),
            "near_seconds": NEAR_NS // NANOS_PER_SECOND,
            "both": _counted(self.both),
            "near": _counted(self.near),
            "never_both": list(map("+".join, self.never_both)),
            "never_near": list(map("+".join, self.never_near)),
        }

    def lines(self) -> list[str]:
        """Returns lines for people: the kinds that never struck, then a table of the pairs of the
        others."""
        known, seconds = drawable(self.profile), NEAR_NS // NANOS_PER_SECOND
        never = ", ".join(self.never_struck) or "none"
        found = [f"never struck: {never} ({len(self.never_struck)} of {len(known)} kinds)"]
        if self.not_drawn:
            found.append(f"not of {self.profile} seeds: {', '.join(self.not_drawn)}")
        kinds = sorted(self.runs)
        total = len(kinds) * (len(kinds) - 1) // 2
        found.append(
            f"pairs of what struck: of {total}, {len(self.both)} in the same run, "
            f"{len(self.near)} of them within {seconds} s of each other"
        )
        if not total:
            return found
        found.append(
            f"below \\: in how many runs both struck; above: within {seconds} s of each other; "
            f"+: {_MANY} or more"
        )
        numbers = range(1, len(kinds) + 1)
        tens = "".join(str(number // 10 or " ") for number in numbers)
        units = "".join(str(number % 10) for number in numbers)
        found += [f"{'':27}{tens}".rstrip(), f"{'':21}runs  {units}"]
        for number, kind in enumerate(kinds, 1):
            cells = "".join(self._cell(kind, other) for other in kinds)
            found.append(f"{number:2} {kind:17} {self.runs[kind]:4}  {cells}")
        return found

    def _cell(self, kind: str, other: str) -> str:
        """Returns the cell in the row of one kind and the column of the other."""
        if kind == other:
            return "\\"
        count = (self.both if other < kind else self.near)[pair(kind, other)]
        return "+" if count >= _MANY else str(count or ".")


def _counted(pairs: Counter[Pair]) -> dict[str, int]:
    return {"+".join(each): count for each, count in sorted(pairs.items())}

"""Mutants of the judge: broken judges that must disagree with an independent one.

Small histories, most of them with something in them changed, are judged by the patched judge and
decided by definition: those of logs by the general search, those of registers by trying every
order. Where the two differ the mutant is caught; a mutant of the general search itself is given
registers only. The judge as it is must agree on the same histories; that is the control. The public
corpora, where a folder has them, are judged as well: their verdicts are other people's.

As in `raftlog_sim.hunting.mutation`, a patch cannot be taken back: each mutant has a process of its
own.
"""

import itertools
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from random import Random  # noqa: TID251  (seeded by name, outside every simulated world)
from typing import Any, Final, NamedTuple

from raftlog.verify import Header, judge_operations
from raftlog.verify.histories.interval import Interval
from raftlog_sim.hunting import mutation
from raftlog_sim.hunting.small_logs import KEY, SHAPES, Shape, by_search, generate
from raftlog_sim.hunting.small_registers import generate_registers

OTHER: Final = "t/1"
REGISTERS: Final = "registers"
LOG_CLASSES: Final = ("linearizability", "inconsistent-offsets", "duplicate", "phantom", "G1a")
"""What the definition of a log knows; the judge finds more, which is not compared."""
CORPUS_STEPS_MAX: Final = 2_000_000
NAMED_MAX: Final = 3


class SmallHistory(NamedTuple):
    """A history, and whether it is right by definition."""

    name: str
    model: str
    options: dict[str, Any]
    operations: Sequence[Interval]
    right: bool


class JudgeHunt(NamedTuple):
    """How a mutant of the judge is hunted. `histories` of all `kinds` in turn (no kinds: all),
    until `kills` of them are judged wrongly or that many seconds of CPU are spent. `corpora` are
    folders with the public histories of `scripts/corpora`."""

    histories: int = 20_000
    kills: int = 1
    kinds: tuple[str, ...] = ()
    seconds: float = 600.0
    corpora: tuple[Path, ...] = ()


class Wrong(NamedTuple):
    """A history that was judged wrongly: the how manieth it was, and what was found in it."""

    place: int
    history: str
    found: list[str]


# --- small histories ------------------------------------------------------------------------------


def one_log(shape: Shape, name: str) -> SmallHistory:
    """One partition."""
    options, operations = generate(Random(name), shape)
    return SmallHistory(name, "log", options, operations, by_search(options, operations))


def two_logs(name: str) -> SmallHistory:
    """Two partitions in one history."""
    rng = Random(name)
    options, first = generate(rng, SHAPES["dense"])
    _, second = generate(rng, SHAPES["dense"])
    right = by_search(options, first) and by_search(options, second)
    for op in second:
        op.index += 100
        op.process += 100
        op.key = OTHER if op.key else None
        if op.f == "poll":
            op.value = {OTHER: op.value[KEY]}
    return SmallHistory(name, "log", options, [*first, *second], right)


def registers(name: str) -> SmallHistory:
    """One or two registers, for the general search."""
    operations, right = generate_registers(Random(name))
    return SmallHistory(name, "cas-register", {}, operations, right)


KINDS: Final[dict[str, Callable[[str], SmallHistory]]] = {
    **{kind: partial(one_log, shape) for kind, shape in SHAPES.items()},
    "two-logs": two_logs,
    REGISTERS: registers,
}


def histories(kinds: Sequence[str] = ()) -> Iterator[SmallHistory]:
    """Without end: `dense 0`, `crowded 0`, ..., `dense 1`, ... Each is made when it is asked for,
    for judging may change it."""
    for seed in itertools.count():
        for kind in kinds or KINDS:
            yield KINDS[kind](f"{kind} {seed}")


def found_in(history: SmallHistory) -> list[str]:
    """The classes that the judge of this process finds in it, of those that are compared."""
    header = Header(source="sim", options=history.options, model=history.model)
    judged = judge_operations(header, history.operations, with_metrics=False)
    compared = LOG_CLASSES if history.model == "log" else ("model",)
    return [name for name in compared if judged.verdict.classes[name].count]


# --- hunting --------------------------------------------------------------------------------------


def hunt(number: str, plan: JudgeHunt) -> dict[str, Any]:
    """A row as `raftlog_sim.hunting.mutation.hunt` gives, of a mutant of the judge: after how many
    histories it was caught, by which kind, what became of the first, and whether the healthy judge
    was right about all of them."""
    if REGISTERS in mutation.named(number).expected:
        plan = plan._replace(kinds=(REGISTERS,))  # what decides about logs is broken as well
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        row = pool.apply(_hunt_here, (number, plan))
    with context.Pool(1) as pool:
        row |= pool.apply(_control_here, (row["tried"], plan, row["history"]))
    row["what"] = _in_words(row)
    return row


def _hunt_here(number: str, plan: JudgeHunt) -> dict[str, Any]:
    mutant = mutation.named(number)
    assert mutant.of == mutation.JUDGE, number
    mutation.switch_on(number)
    began = time.process_time()
    tried, wrong = judged_wrongly(plan)
    row: dict[str, Any] = {"number": number, "name": mutant.name, "of": mutant.of, "tried": tried}
    row |= {
        "expected": list(mutant.expected),
        "by": dict(Counter(each.history.partition(" ")[0] for each in wrong)),
        "seeds": [each.place for each in wrong],
        "history": wrong[0].history if wrong else "",
        "found": wrong[0].found if wrong else [],
    }
    if plan.corpora:
        row["corpora"] = _judge_corpora(plan.corpora)
    row["killed"] = bool(wrong or row.get("corpora", {}).get("wrong"))
    row["seconds"] = round(time.process_time() - began, 1)
    return row


def judged_wrongly(plan: JudgeHunt) -> tuple[int, list[Wrong]]:
    """How many histories the judge of this process was given, and those that it got wrong."""
    began = time.process_time()
    tried = 0
    wrong: list[Wrong] = []
    for history in itertools.islice(histories(plan.kinds), plan.histories):
        if time.process_time() - began > plan.seconds or len(wrong) >= plan.kills:
            break
        tried += 1
        found = _verdict(history)
        if found is not None and history.right != (not found):
            wrong.append(Wrong(tried, history.name, found))
    return tried, wrong


def _verdict(history: SmallHistory) -> list[str] | None:
    """As `found_in`; None when a broken judge raised: that is no verdict, and anybody sees it, so
    it does not count as caught."""
    try:
        return found_in(history)
    except (AssertionError, AttributeError, LookupError, TypeError, ValueError):
        return None


def _control_here(count: int, plan: JudgeHunt, name: str) -> dict[str, Any]:
    """What the healthy judge makes of the same histories, and of the one of that name."""
    wrong = _judge_corpora(plan.corpora)["wrong"]
    healthy: list[str] = []
    for history in itertools.islice(histories(plan.kinds), count):
        found = found_in(history)
        wrong += history.right != (not found)
        if history.name == name:
            healthy = found
    return {"healthy": healthy, "control": {"tried": count, "wrong": wrong}}


def _in_words(row: dict[str, Any]) -> str:
    """What happened in the first history that caught it."""
    if not row["history"]:
        return ""
    healthy, found = ", ".join(row["healthy"]), ", ".join(row["found"])
    return f"{row['history']}: {f'{healthy} missed' if healthy else f'false alarm of {found}'}"


# --- the public corpora ---------------------------------------------------------------------------


def public_histories(folders: Sequence[Path]) -> int:
    """How many of them these folders hold."""
    cases = _corpora().cases
    return sum(1 for folder in folders for _ in cases(folder))


def _corpora() -> Any:
    return mutation.module_of(mutation.FOLDER.parent.parent / "scripts" / "_corpora.py")


def _judge_corpora(folders: Sequence[Path]) -> dict[str, Any]:
    """How many public histories there are, and how many are not judged as their owners published.
    A budget that runs out is a verdict that differs."""
    corpora = _corpora()
    tried = 0
    wrong: list[str] = []
    for folder in folders:
        for path, valid, _ in corpora.cases(folder):
            tried += 1
            if not corpora.agrees(corpora.judged(path, CORPUS_STEPS_MAX), valid):
                wrong.append(path.name)
    return {"tried": tried, "wrong": len(wrong), "first": wrong[:NAMED_MAX]}

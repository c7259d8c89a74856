"""Mutants of the judge: broken judges that must disagree with an independent one.

1. Small histories, most of them with something in them changed, go to the patched judge.
2. The definition decides about each: the general search for logs, trying every order for registers.
   A mutant of the general search itself gets registers only.
3. A mutant is caught where the two differ.
4. The control: the judge as it is must be right about the same histories.
5. The public corpora, where a folder has them, are judged too; others published their verdicts.

As in `raftlog_sim.hunting.mutation`, a patch cannot be taken back, so each mutant has a process of
its own.
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
"""The classes that the definition of a log decides. The judge finds more, which are not
compared."""
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
    """How a mutant of the judge is hunted. It gets up to `histories` of all `kinds` in turn (no
    kinds: all) until it judges `kills` of them wrongly or has spent `seconds` of CPU. `corpora` are
    folders with the public histories of `scripts/corpora`."""

    histories: int = 20_000
    kills: int = 1
    kinds: tuple[str, ...] = ()
    seconds: float = 600.0
    corpora: tuple[Path, ...] = ()


class Wrong(NamedTuple):
    """A wrongly judged history: its number in the hunt, and the classes found in it."""

    place: int
    history: str
    found: list[str]


# --- small histories ------------------------------------------------------------------------------


def one_log(shape: Shape, name: str) -> SmallHistory:
    """Returns a history of one partition."""
    options, operations = generate(Random(name), shape)
    return SmallHistory(name, "log", options, operations, by_search(options, operations))


def two_logs(name: str) -> SmallHistory:
    """Returns a history of two partitions."""
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
    """Returns a history of one or two registers, for the general search."""
    operations, right = generate_registers(Random(name))
    return SmallHistory(name, "cas-register", {}, operations, right)


KINDS: Final[dict[str, Callable[[str], SmallHistory]]] = {
    **{kind: partial(one_log, shape) for kind, shape in SHAPES.items()},
    "two-logs": two_logs,
    REGISTERS: registers,
}


def histories(kinds: Sequence[str] = ()) -> Iterator[SmallHistory]:
    """Yields histories without end: `dense 0`, `crowded 0`, ..., `dense 1`, ...

    Each is made when it is asked for, since judging may change it.
    """
    for seed in itertools.count():
        for kind in kinds or KINDS:
            yield KINDS[kind](f"{kind} {seed}")


def found_in(history: SmallHistory) -> list[str]:
    """Returns the classes that the judge of this process finds in it, of those that are
    compared."""
    header = Header(source="sim", options=history.options, model=history.model)
    judged = judge_operations(header, history.operations, with_metrics=False)
    compared = LOG_CLASSES if history.model == "log" else ("model",)
    return [name for name in compared if judged.verdict.classes[name].count]


# --- hunting --------------------------------------------------------------------------------------


def hunt(number: str, plan: JudgeHunt) -> dict[str, Any]:
    """Hunt a mutant of the judge; returns a row like `raftlog_sim.hunting.mutation.hunt`.

    It says after how many histories the mutant was caught, by which kind, what happened in the
    first, and whether the healthy judge was right about all of them.
    """
    if REGISTERS in mutation.named(number).expected:
        plan = plan._replace(kinds=(REGISTERS,))  # the decider about logs is broken as well
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
    """Returns how many histories this process judged, and which of them wrongly."""
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
    """Returns `found_in` of a history; None when a broken judge raised an error.

    An error is no verdict, and every user would see it, so it does not count as caught.
    """
    try:
        return found_in(history)
    except (AssertionError, AttributeError, LookupError, TypeError, ValueError):
        return None


def _control_here(count: int, plan: JudgeHunt, name: str) -> dict[str, Any]:
    """Returns the healthy judge's verdicts on the same histories, and on the one of that name."""
    wrong = _judge_corpora(plan.corpora)["wrong"]
    healthy: list[str] = []
    for history in itertools.islice(histories(plan.kinds), count):
        found = found_in(history)
        wrong += history.right != (not found)
        if history.name == name:
            healthy = found
    return {"healthy": healthy, "control": {"tried": count, "wrong": wrong}}


def _in_words(row: dict[str, Any]) -> str:
    """Returns what happened in the first history that caught the mutant."""
    if not row["history"]:
        return ""
    healthy, found = ", ".join(row["healthy"]), ", ".join(row["found"])
    return f"{row['history']}: {f'{healthy} missed' if healthy else f'false alarm of {found}'}"


# --- the public corpora ---------------------------------------------------------------------------


def public_histories(folders: Sequence[Path]) -> int:
    """Returns how many public histories these folders hold."""
    cases = _corpora().cases
    return sum(1 for folder in folders for _ in cases(folder))


def _corpora() -> Any:
    return mutation.module_of(mutation.FOLDER.parent.parent / "scripts" / "_corpora.py")


def _judge_corpora(folders: Sequence[Path]) -> dict[str, Any]:
    """Returns how many public histories there are, and how many verdicts differ from the published
    ones.

    A budget that runs out is a verdict that differs.
    """
    corpora = _corpora()
    tried = 0
    wrong: list[str] = []
    for folder in folders:
        for path, valid, _ in corpora.cases(folder):
            tried += 1
            if not corpora.agrees(corpora.judged(path, CORPUS_STEPS_MAX), valid):
                wrong.append(path.name)
    return {"tried": tried, "wrong": len(wrong), "first": wrong[:NAMED_MAX]}

"""The judge: one history in, one verdict out.

`check_history` is the whole public face:

    from raftlog.verify import check_history
    verdict = check_history(open("history.jsonl"))
    print(verdict.verdict, [result.name for result in verdict.failures()])
"""

import gc
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from operator import attrgetter
from typing import Annotated, Any, Final, TypedDict, Unpack, final

import attrs

from raftlog.base.amounts import amount
from raftlog.base.arguments import between, checked
from raftlog.base.errors import LocalMisuse
from raftlog.base.limits import HOLE_STEPS_DEFAULT, INT64_MAX, SEARCH_STEPS_DEFAULT
from raftlog.verify.histories.history import BadHistory, Header, Op
from raftlog.verify.histories.history_reader import HistoryFile, HistoryReader
from raftlog.verify.histories.interval import Interval
from raftlog.verify.histories.raw_pairing import intervals
from raftlog.verify.judging import (
    anomalies,
    cycles,
    evidence,
    groups,
    linearizability,
    metrics,
    search,
)
from raftlog.verify.judging.classes import CLASSES, allowed_by_default
from raftlog.verify.judging.facts import Facts, KeyFacts
from raftlog.verify.judging.linearizability import COMMITTED_PREFIX, LINEARIZABLE
from raftlog.verify.judging.models import MODELS, Model
from raftlog.verify.judging.process_order import ProcessOrder
from raftlog.verify.judging.verdict import Findings, Verdict, Witness, with_note_on_nothing

LOG: str = "log"
Source = Iterable[str] | Iterable[bytes] | HistoryFile | HistoryReader
"""A history: an open file (for bytes reads fastest), lines, or a reader."""
Steps = Annotated[int, between(0, INT64_MAX)]
MODES = (LINEARIZABLE, COMMITTED_PREFIX)
_LENGTHS = ("empty", "end", "start")
_GROUPS = ("assign", "subscribe", "rebalance", "offset_commit", "offset_fetch")
_OF_LOGS = frozenset(("send", "poll", "txn", "crash", *_LENGTHS, *_GROUPS))
"""The operations that the log model knows, by `f`."""


class JudgeOptions(TypedDict, total=False):
    """How a history is judged: the keywords of `check_history`, `judge` and `judge_operations`."""

    model: str | Model | None
    """The model in place of the header's: "log", a name of `raftlog.verify.judging.models.MODELS`,
    or a `Model`."""
    allowed: Collection[str] | None
    """Replaces the classes that are counted but make nothing invalid."""
    always: Collection[str]
    """These classes are allowed in every form (`G1c` by default only where it takes write
    order)."""
    search_steps: Steps
    """The most steps that the search of an object may take. With more, the verdict is unknown."""
    hole_steps: Steps
    """The most steps that filling the holes of a log may take. With more, the verdict is
    unknown."""
    with_metrics: bool
    """Whether rates and latencies are measured too."""


_DEFAULTS: Final[JudgeOptions] = {
    "model": None,
    "allowed": None,
    "always": (),
    "search_steps": SEARCH_STEPS_DEFAULT,
    "hole_steps": HOLE_STEPS_DEFAULT,
    "with_metrics": True,
}


@final
@attrs.frozen(kw_only=True)
class Judgement:
    """A verdict with the operations and facts behind it, for the report."""

    verdict: Verdict
    header: Header
    operations: Sequence[Interval]
    nemesis: Sequence[Op]
    facts: Facts
    settings: Mapping[str, Any]
    """The options of the judge: `model`, `reads`, `allowed`, `search_steps`, `hole_steps`."""


@checked
def check_history(source: Source, **options: Unpack[JudgeOptions]) -> Verdict:
    """Judge a history: an open `history.jsonl`, lines, or a reader.

    `JudgeOptions` describes the keywords. Raises `BadHistory` or `FutureFormat` for a
    source that is no history.
    """
    return judge(source, **options).verdict


@checked
def judge(source: Source, **options: Unpack[JudgeOptions]) -> Judgement:
    """Judge a history like `check_history`, and keep the facts for the report."""
    reader = source if isinstance(source, HistoryReader) else HistoryReader(source)
    with _collector_paused():
        return _judge(reader, options)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Pause Python's search for reference cycles.

    A judgement makes millions of small objects and no cycle; the search would double its time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _judge(reader: HistoryReader, options: JudgeOptions) -> Judgement:
    operations, nemesis = intervals(reader)
    judgement = judge_operations(reader.header, operations, nemesis, **options)
    if reader.torn:
        note = "the last line was torn, as a killed writer leaves it, and was left out"
        verdict = attrs.evolve(judgement.verdict, notes=[*judgement.verdict.notes, note])
        judgement = attrs.evolve(judgement, verdict=verdict)
    return judgement


@checked
def judge_operations(
    header: Header,
    operations: Sequence[Interval],
    nemesis: Sequence[Op] = (),
    **options: Unpack[JudgeOptions],
) -> Judgement:
    """Judge operations that are already paired."""
    asked: JudgeOptions = {**_DEFAULTS, **options}
    chosen, allowed, always = asked["model"], asked["allowed"], asked["always"]
    if chosen is None:
        chosen = header.model
    stated = header.options
    default = allowed_by_default(header.source, stated)
    permitted = frozenset(default if allowed is None else allowed).union(always)
    unknown = permitted.difference(entry.name for entry in CLASSES)
    if unknown:
        raise LocalMisuse(
            f"no class is called {sorted(unknown)}", do="see raftlog.verify.judging.classes"
        )
    findings = Findings(always=frozenset(always))
    facts = Facts(_first_ends(stated))
    measured: dict[str, Any] = {}
    notes = [] if operations else ["the history has no operation"]
    if chosen == LOG:
        notes += _strangers(operations) + _renamed(operations)
        budget: dict[str, Any] = {"hole_steps_max": asked["hole_steps"]}
        facts.add_all(operations)
        measured = _check_log(facts, operations, findings, stated, permitted, asked)
    else:
        steps = asked["search_steps"]
        budget = search.check(_model(chosen), operations, findings, steps_max=steps)
    if findings.exhausted:
        budget["exhausted"] = dict(findings.exhausted)
    verdict = Verdict(
        classes={
            entry.name: findings.result(entry.name, allowed=entry.name in permitted)
            for entry in CLASSES
        },
        operations=len(operations),
        mode=mode_of(stated) if chosen == LOG else LINEARIZABLE,
        model=chosen.name if isinstance(chosen, Model) else chosen,
        metrics=measured,
        budget=budget,
        notes=notes,
    )
    return Judgement(
        verdict=with_note_on_nothing(verdict),
        header=header,
        operations=operations,
        nemesis=nemesis,
        facts=facts,
        settings={
            "model": verdict.model,
            "reads": verdict.mode,
            "allowed": sorted(permitted),
            "always": sorted(always),
            "search_steps": asked["search_steps"],
            "hole_steps": asked["hole_steps"],
        },
    )


def _strangers(operations: Sequence[Interval]) -> list[str]:
    """A note on operations that say nothing about a log.

    A history of nothing else is no log's: calling it valid would be a pass without any check.
    """
    strange = {f: 0 for f in dict.fromkeys(map(attrgetter("f"), operations)) if f not in _OF_LOGS}
    if not strange:
        return []
    for op in operations:
        if op.f in strange:
            strange[op.f] += 1
    if sum(strange.values()) == len(operations):
        raise BadHistory(
            f"model {LOG} does not know {next(iter(strange))!r}, nor is there anything else",
            on=f"index {operations[0].index}",
            do="name the model in the header, or choose one with --model",
        )
    counts = ", ".join(f"{f!r} {count:,}" for f, count in strange.items())
    return [f"operations that model {LOG} does not know were not judged: {counts}"]


def _renamed(operations: Iterable[Interval]) -> list[str]:
    """A note on transactions whose completions name other sends than their calls."""
    found = [op.index for op in operations if op.evidence and "called" in op.evidence]
    if not found:
        return []
    count = amount(len(found), "transaction", grouped=True)
    return [
        f"{count} completed with other keys or values than called with (the first is operation "
        f"{found[0]}); what the completions name was judged"
    ]


def mode_of(options: Mapping[str, Any]) -> str:
    """The consistency of reads that the history claims."""
    mode = options.get("read_consistency", COMMITTED_PREFIX)
    if mode == "committed":  # the name of this mode in the broker's settings
        return COMMITTED_PREFIX
    if mode not in MODES:
        raise BadHistory(
            f"unknown read_consistency {mode!r}", on="header", do=f"use one of {', '.join(MODES)}"
        )
    return str(mode)


def _first_ends(options: Mapping[str, Any]) -> dict[str, int]:
    ends = options.get("first_end", {})
    if not isinstance(ends, dict) or not all(
        type(end) is int and end >= 0 for end in ends.values()
    ):
        raise BadHistory("first_end maps keys to offsets", on="header")
    return dict(ends)


def _model(chosen: str | Model) -> Model:
    if isinstance(chosen, Model):
        return chosen
    model = MODELS.get(chosen)
    if model is None:
        raise BadHistory(
            f"unknown model {chosen!r}",
            do=f"use one of {', '.join([LOG, *MODELS])}, or pass a Model",
        )
    return model


def _check_log(
    facts: Facts,
    operations: Sequence[Interval],
    findings: Findings,
    options: Mapping[str, Any],
    allowed: Collection[str],
    asked: JudgeOptions,
) -> dict[str, Any]:
    mode = mode_of(options)
    dense = options.get("dense", True) is not False
    final_read = options.get("final_read")
    for key_facts in facts.keys.values():
        before = dict(findings.counts)
        anomalies.check_key(key_facts, operations, findings, final_read=final_read)
        _conflicts(key_facts, before, findings, allowed)
        linearizability.check_key(
            key_facts, findings, mode=mode, dense=dense, hole_steps=asked["hole_steps"]
        )
    order = ProcessOrder(facts, findings, options, mode)
    order.run(operations)
    if options.get("compaction"):
        for name in ("lost-write", "poll-skip", "int-poll-skip", "unseen"):
            findings.forget(name)
    if any(op.node is not None and op.reads() for op in facts.others):
        findings.check("fork")
    evidence.check(operations, facts, findings, options=options, mode=mode)
    members = groups.check(facts, findings, options)
    cycles.check(facts, operations, findings)
    measured = metrics.measure(operations, facts) if asked["with_metrics"] else {}
    if options.get("consumer") == "subscribe":
        measured["consumed_twice"] = order.consumed_twice
    if members:
        measured["groups"] = members
    return measured


def _conflicts(
    facts: KeyFacts, before: Mapping[str, int], findings: Findings, allowed: Collection[str]
) -> None:
    """Count a value conflict: it rules out any linearization.

    Unless the conflict is allowed, the class of linearizability says so as well.
    """
    for name in anomalies.CONFLICTS:
        more = findings.counts.get(name, 0) - before.get(name, 0)
        if more and name not in allowed:
            findings.add(
                linearizability.CLASS, partial(_conflict_witness, findings, name, facts.key), more
            )


def _conflict_witness(findings: Findings, name: str, key: str) -> Witness:
    found = findings.witnesses[name]
    return attrs.evolve(
        found,
        text=f"No order of {key} fits what was seen: {name} shows why.",
        detail={**found.detail, "kind": "conflict"},
    )

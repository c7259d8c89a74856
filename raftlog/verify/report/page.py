"""Writes the report: one self-contained HTML file that needs no tool to be read.

Everything is data in one JSON block, drawn by the script beside it (raftlog/verify/report/assets).
The page asks nothing of the network, opens from disk, and stays under `REPORT_BYTES_MAX`. The whole
history is in its counts and plots; operations are shown in a window around the failure. No text
from a history is ever markup: the JSON block cannot end early, and the script writes text nodes.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any, Final, final

import attrs

from raftlog.base.amounts import amount
from raftlog.base.limits import REPORT_BYTES_MAX
from raftlog.base.printable import visible_everywhere
from raftlog.verify.histories.interval import OPEN, shortened
from raftlog.verify.judging.check import LOG, Judgement
from raftlog.verify.judging.classes import DEFINITIONS
from raftlog.verify.judging.explain import moment
from raftlog.verify.judging.run_checks import RunCheck, checks_of, exercised, idle, violated, whole
from raftlog.verify.judging.verdict import INVALID, NOT_CHECKED, UNKNOWN, VALID, Verdict
from raftlog.verify.report.claims import claims_of, claims_of_checks, cost_of
from raftlog.verify.report.commands import commands_of
from raftlog.verify.report.lanes import segments_of
from raftlog.verify.report.plots import plots_of
from raftlog.verify.report.proof import proof_of
from raftlog.verify.report.strips import strips_of
from raftlog.verify.report.trace import Fault, Picture, faults_of, picture_of, trace_lines
from raftlog.verify.report.window import Window, bars_of, partitions_of, window_of

_PAGE: Final = "raftlog.verify.report.assets"
_SCRIPTS: Final = ("base.js", "summary.js", "diagram.js", "timeline.js", "plots.js", "main.js")
_HEADLINES: Final = {VALID: "PASS", INVALID: "FAIL", UNKNOWN: "UNKNOWN"}
_MESSAGES_MAX: Final = 1_500
_TICKS_MAX: Final = 1_500
_FAULTS_MAX: Final = 500
_TEXT_MAX: Final = 2_000
_POINT_MAX: Final = 1e15
"""The highest number that a curve may hold; a browser has no infinity in its JSON."""


@final
@attrs.frozen(kw_only=True)
class RunFolder:
    """The files that a run left beside its history. Each of them may be missing."""

    name: str = ""
    place: str = ""
    """The path of the folder as a person types it; below `runs/` unless the caller names another.
    """
    run: Mapping[str, Any] = attrs.field(factory=dict)
    invariants: Mapping[str, Any] = attrs.field(factory=dict)
    trace: str = ""
    history_sha256: str = ""
    """The SHA-256 of the history's bytes (`raftlog.verify.report.proof.digest_of`)."""

    def checks(self) -> list[RunCheck]:
        """The checks that the run made of itself."""
        return checks_of(self.run, self.invariants)


def render(judgement: Judgement, folder: RunFolder | None = None) -> str:
    """The whole page."""
    return assembled(fitting(page_data(judgement, folder or RunFolder())))


def fitting(data: dict[str, Any]) -> dict[str, Any]:
    """The data of a page that is not too large.

    For a hostile or enormous history the pictures shrink; the verdict stays.
    """
    for shrink in (_drop_messages, _drop_cells, _drop_bars, _drop_run):
        if len(assembled(data).encode("utf-8", "replace")) < REPORT_BYTES_MAX:
            break
        shrink(data)
    return data


def assembled(data: Mapping[str, Any]) -> str:
    """The page of these data."""
    page = files(_PAGE)
    template = (page / "page.html").read_text(encoding="utf-8")
    style = (page / "page.css").read_text(encoding="utf-8")
    script = "\n".join((page / name).read_text(encoding="utf-8") for name in _SCRIPTS)
    before, rest = template.split("/*STYLE*/")
    middle, rest = rest.split("/*DATA*/")
    late, after = rest.split("/*SCRIPT*/")
    return "".join((before, style, middle, as_block(data), late, script, after))


def as_block(data: Any) -> str:
    """JSON that may stand inside a script element: no `<`, so neither its end nor a comment."""
    text = json.dumps(data, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def page_data(judgement: Judgement, folder: RunFolder) -> dict[str, Any]:
    """Everything that the page shows, as JSON. No text in it holds an invisible character."""
    return visible_everywhere(_page_data(judgement, folder))  # type: ignore[no-any-return]


def _page_data(judgement: Judgement, folder: RunFolder) -> dict[str, Any]:
    faults = faults_of(judgement.nemesis)
    events, strange = trace_lines(folder.trace)
    checks = folder.checks()
    # A simulated run ends in the turn that breaks an invariant; other runs are checked at the end.
    ended_by_it = bool(violated(checks)) and judgement.header.source == "sim"
    window = window_of(judgement, faults, [event.instant for event in events], broken=ended_by_it)
    picture = picture_of(events, window.start_ns, window.end_ns)
    operations = judgement.operations
    span = [
        min((op.start_ns for op in operations), default=window.start_ns),
        max((op.end_ns for op in operations if op.end_ns < OPEN), default=window.end_ns),
    ]
    return {
        "version": 1,
        "proof": proof_of(judgement, folder.history_sha256),
        "summary": _summary(judgement, folder, span),
        "claims": claims_of(judgement),
        "run_claims": claims_of_checks(checks),
        "idle": [check.name for check in idle(checks)],
        "cost": cost_of(judgement, faults),
        "story": [*_broken_checks(folder), *story_of(judgement, faults, window)][:6],
        "classes": _classes(judgement),
        "not_checked": [result.name for result in judgement.verdict.lacking],
        "commands": _commands(judgement, folder),
        "window": {
            "start": window.start_ns,
            "end": window.end_ns,
            "shown": len(window.operations),
            "total": window.total,
            "note": window.note,
            "focus": window.focus_ns,
        },
        "span": span,
        "accused": [op.index for op in window.accused],
        "bars": bars_of(judgement, window),
        "lanes": _lanes(judgement, picture, faults, window),
        "messages": _nearest(picture.messages, "start", window, _MESSAGES_MAX),
        "ticks": _nearest(picture.ticks, "at", window, _TICKS_MAX),
        "trace": {
            "events": len(events),
            "strange": strange,
            "given": bool(folder.trace),
            "messages": len(picture.messages),
            "ticks": len(picture.ticks),
        },
        "faults": [fault.document() for fault in faults[:_FAULTS_MAX]],
        "strips": strips_of(folder.run, operations),
        "partitions": partitions_of(judgement, window),
        "invariants": _table(exercised(folder.invariants)),
        "probes": _counts(folder.run.get("probes")),
        "buggify": _counts(folder.run.get("buggify")),
        "plots": plots_of(operations, judgement.verdict.metrics),
        "shrink": _shrink(folder.run.get("shrink")),
        "manifest": _manifest(judgement, folder),
    }


def _nearest(
    marks: Sequence[dict[str, Any]], at: str, window: Window, most: int
) -> list[dict[str, Any]]:
    """At most `most` marks of a trace, those nearest to the instant that matters most."""
    if len(marks) <= most:
        return list(marks)
    focus = window.focus_ns
    chosen = sorted(range(len(marks)), key=lambda n: (abs(marks[n][at] - focus), n))[:most]
    return [marks[n] for n in sorted(chosen)]


# --- verdict bar ----------------------------------------------------------------------------------


def _summary(judgement: Judgement, folder: RunFolder, span: Sequence[int]) -> dict[str, Any]:
    verdict, header, run = judgement.verdict, judgement.header, folder.run
    metrics = run.get("metrics") if isinstance(run.get("metrics"), dict) else {}
    assert isinstance(metrics, dict)
    facts = [
        ("seed", header.seed if header.seed is not None else run.get("seed")),
        ("commit", header.commit or run.get("commit")),
        ("source", header.source),
        ("reads", verdict.mode),
        ("model", verdict.model),
        ("operations", f"{verdict.operations:,}"),
        ("options digest", _digest(header.options)),
        ("trace hash", run.get("trace_hash") or metrics.get("trace_hash")),
        ("events", metrics.get("events")),
        ("time in the history", moment(max(0, span[1] - span[0]))),
        ("simulated time", _duration(metrics.get("simulated_ns"))),
        ("real time", _duration(metrics.get("real_ns"))),
    ]
    names = [result.name for result in verdict.failures()]
    broken = [check.name for check in violated(folder.checks()) if check.name not in names]
    shown = whole(verdict, folder.checks())
    return {
        "headline": _HEADLINES[shown],
        "verdict": shown,
        "history": verdict.verdict,
        "failing": names + broken,
        "unknown": [r.note for r in verdict.classes.values() if r.status == UNKNOWN],
        "facts": [
            [name, str(shortened(value))] for name, value in facts if value not in (None, "")
        ],
        "notes": list(verdict.notes),
        "name": folder.name,
    }


def _digest(options: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(options, sort_keys=True).encode()).hexdigest()[:12]


def _duration(value: Any) -> str | None:
    return moment(value) if type(value) is int else None


def _commands(judgement: Judgement, folder: RunFolder) -> dict[str, Any]:
    """The fields of the commands that the page offers."""
    place = folder.place or (f"runs/{folder.name}" if folder.name else "")
    seed = judgement.header.seed if judgement.header.seed is not None else folder.run.get("seed")
    found = commands_of(judgement.header.source, seed, folder.run, place)
    return {**found, "folder": bool(folder.run or folder.name)}


# --- words ----------------------------------------------------------------------------------------


def story_of(judgement: Judgement, faults: Sequence[Fault], window: Window) -> list[str]:
    """Three to six sentences, made from the smallest evidence only."""
    verdict = judgement.verdict
    processes = len(dict.fromkeys(op.process for op in judgement.operations))
    keys = len(judgement.facts.keys)
    pipelined = judgement.header.options.get("pipelined")
    who = amount(processes, "client", grouped=True)
    if pipelined:
        who = amount(processes, "process", plural="processes", grouped=True)
        who += " (one for each send in flight)"
    where = f" on {amount(keys, 'partition')}" if keys else ""
    made = f"{who} made {amount(verdict.operations, 'operation', grouped=True)}{where}"
    if not judgement.operations:
        made = "No client did anything"
    sentences = [
        made
        + (f" while {_faults(len(faults))} injected." if faults else "; no fault was recorded.")
    ]
    failures = verdict.failures()
    if failures:
        names = ", ".join(f"{result.name} ({result.count})" for result in failures)
        sentences.append(f"The history is invalid: {names}.")
        sentences += [result.witness.text for result in failures[:1] if result.witness is not None]
        sentences += _fate(judgement, window) + _meanwhile(faults, window)
    elif verdict.judged_nothing:
        sentences.append("Nothing in it could be judged, and that is not a pass.")
    elif verdict.verdict == UNKNOWN:
        notes = [r.note for r in verdict.classes.values() if r.status == UNKNOWN]
        sentences.append(f"It could not be decided: {'; '.join(notes)}. That is not a pass.")
    else:
        sentences.append(_nothing_found(verdict))
    return sentences[:6]


def _nothing_found(verdict: Verdict) -> str:
    checked = [r for r in verdict.classes.values() if r.status != NOT_CHECKED]
    if verdict.model != LOG:
        return (
            "On every object there is an order of the operations that is legal for the model "
            f"{verdict.model}."
        )
    allowed = [f"{r.name} ({r.count})" for r in checked if r.count]
    return (
        f"None of the {amount(len(checked), 'class', plural='classes')} of anomaly that this "
        "history can show was found"
        + (f", but for what is allowed here: {', '.join(allowed)}." if allowed else ".")
    )


def _faults(count: int) -> str:
    return f"{amount(count, 'fault')} {'was' if count == 1 else 'were'}"


def _broken_checks(folder: RunFolder) -> list[str]:
    """A sentence for each check of the run that did not hold, at most two."""
    return [check.sentence()[:_TEXT_MAX] for check in violated(folder.checks())[:2]]


def _fate(judgement: Judgement, window: Window) -> list[str]:
    """When a lost record was acknowledged, and when it was missed; empty for other failures."""
    if "lost-write" not in [result.name for result in judgement.verdict.failures()][:1]:
        return []
    if len(window.accused) != 2:
        return []
    send, read = window.accused
    begin = min(op.start_ns for op in judgement.operations)
    promised = "never answered"
    if send.end_ns < OPEN:
        who = f" by {send.node}" if send.node is not None else ""
        promised = f"acknowledged{who} {moment(send.end_ns - begin)} into the run"
    where = f" from {read.node}" if read.node is not None else ""
    return [
        f"The lost record was {promised}; the read{where} that had to show it returned "
        f"{moment(read.end_ns - begin)} into the run."
    ]


def _meanwhile(faults: Sequence[Fault], window: Window) -> list[str]:
    """The faults that were on between the first call and the last return of the witness."""
    if not window.accused:
        return []
    start = min(op.start_ns for op in window.accused)
    end = max((op.end_ns for op in window.accused if op.end_ns < OPEN), default=start)
    active = [
        fault.label
        for fault in faults
        if fault.start_ns <= end and (fault.end_ns is None or fault.end_ns >= start)
    ]
    if not active:
        return []
    return [f"Meanwhile: {', '.join(active[:6])}" + (" and more." if len(active) > 6 else ".")]


def _classes(judgement: Judgement) -> list[dict[str, Any]]:
    """The rows of classes that the history has evidence for; the others are in `not_checked`."""
    found = []
    for name, result in judgement.verdict.classes.items():
        if result.status == NOT_CHECKED:
            continue
        document = result.document()
        witness = document["witness"]
        if witness is not None:
            witness["text"] = witness["text"][:_TEXT_MAX]
            witness["operations"] = witness["operations"][:8]
        found.append({"name": name, "definition": DEFINITIONS[name], **document})
    return found


# --- lanes ----------------------------------------------------------------------------------------


def _lanes(
    judgement: Judgement, picture: Picture, faults: Sequence[Fault], window: Window
) -> list[dict[str, Any]]:
    """The lanes of the page: nodes first, then the clients of the window."""
    nodes = dict.fromkeys(judgement.header.nodes)
    nodes.update(dict.fromkeys(op.node for op in window.operations if op.node is not None))
    nodes.update(dict.fromkeys(picture.roles))
    nodes.update(dict.fromkeys(picture.boots))
    lanes: list[dict[str, Any]] = [
        {
            "id": node,
            "kind": "node",
            "segments": segments_of(node, picture, faults, window.start_ns, window.end_ns),
        }
        for node in nodes
    ]
    clients = dict.fromkeys(op.process for op in window.accused)
    clients.update(dict.fromkeys(op.process for op in window.operations))
    return lanes + [{"id": process, "kind": "client", "segments": []} for process in clients]


# --- small tables ---------------------------------------------------------------------------------


def _table(entries: Any) -> list[dict[str, str]]:
    """A mapping as rows of text."""
    if not isinstance(entries, dict):
        return []
    rows = []
    for name, entry in list(entries.items())[:200]:
        fields = entry if isinstance(entry, dict) else {"status": entry}
        row = {str(key): str(shortened(value))[:300] for key, value in fields.items()}
        rows.append({"name": str(name), **row})
    return rows


def _counts(entries: Any) -> list[list[Any]]:
    if not isinstance(entries, dict):
        return []
    return [[str(name), hits] for name, hits in sorted(entries.items()) if type(hits) is int]


def _shrink(entry: Any) -> dict[str, Any] | None:
    if not isinstance(entry, dict):
        return None
    found = {name: _points(entry.get(name)) for name in ("steps", "p_bug")}
    return found if any(found.values()) else None


def _points(points: Any) -> list[list[float]]:
    if not isinstance(points, list):
        return []
    return [
        list(point)
        for point in points[:1000]
        if isinstance(point, list)
        and len(point) == 2
        and all(type(x) in (int, float) and abs(x) < _POINT_MAX for x in point)
    ]


def _manifest(judgement: Judgement, folder: RunFolder) -> list[list[str]]:
    run = folder.run
    rows: list[list[str]] = []
    for name in ("command", "started", "ended"):
        if name in run:
            value = run[name]
            text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
            rows.append([name, text[:_TEXT_MAX]])
    for what, entries in (
        ("version", run.get("versions")),
        ("option", {**_dict(run.get("options")), **judgement.header.options}),
        ("metric", run.get("metrics")),
        ("budget", judgement.verdict.budget),
    ):
        for name, value in list(_dict(entries).items())[:200]:
            text = value if isinstance(value, str) else json.dumps(shortened(value, 40))
            rows.append([f"{what}: {name}", text[:_TEXT_MAX]])
    return rows


def _dict(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, dict) else {}


# --- what goes when the page would be too large ---------------------------------------------------


def _drop_messages(data: dict[str, Any]) -> None:
    for name in ("messages", "ticks"):
        data[name] = data[name][:200]
    data["faults"] = data["faults"][:100]


def _drop_cells(data: dict[str, Any]) -> None:
    data["partitions"] = data["partitions"][:1]


def _drop_bars(data: dict[str, Any]) -> None:
    accused = [bar for bar in data["bars"] if bar["accused"]]
    others = [bar for bar in data["bars"] if not bar["accused"]]
    data["bars"] = [*accused[:10], *others[:50]]
    for bar in data["bars"]:
        bar["text"], bar["label"] = bar["text"][:_TEXT_MAX], bar["label"][:200]


def _drop_run(data: dict[str, Any]) -> None:
    data["manifest"], data["invariants"], data["strips"] = [], [], []
    data["partitions"], data["plots"] = [], []
    for entry in data["classes"]:
        if entry["witness"] is not None:
            entry["witness"] = {"text": entry["witness"]["text"][:_TEXT_MAX], "operations": []}

"""`raftlog verify`: judge a history, ours or another system's."""

import json
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, Final, final

import attrs
import click

from raftlog.base.amounts import amount
from raftlog.base.errors import FutureFormat, RaftlogError
from raftlog.base.limits import HOLE_STEPS_DEFAULT, SEARCH_STEPS_DEFAULT
from raftlog.base.printable import visible
from raftlog.cli.output.check_report import check_report
from raftlog.cli.output.render import format_option, progress
from raftlog.verify import (
    MODELS,
    BadHistory,
    HistoryReader,
    Judgement,
    Model,
    intervals,
    judge,
    judge_operations,
)
from raftlog.verify.imports.jepsen_edn import header_for
from raftlog.verify.imports.public_logs import is_public, read_public
from raftlog.verify.judging.check import LOG, MODES, JudgeOptions
from raftlog.verify.judging.classes import NAMES, allowed_by_default
from raftlog.verify.judging.linearizability import COMMITTED_PREFIX
from raftlog.verify.judging.run_checks import RunCheck, exercised, idle, violated, whole
from raftlog.verify.judging.verdict import (
    EXIT_CODES,
    INVALID,
    NOT_CHECKED,
    UNKNOWN,
    VALID,
    ClassResult,
)
from raftlog.verify.report.claims import claims_of, claims_of_checks
from raftlog.verify.report.junit import junit
from raftlog.verify.report.page import RunFolder, render
from raftlog.verify.report.proof import digest_of, proof_of

_HISTORY: Final = "history.jsonl"
_VERDICT: Final = "verdict.json"
_NAMES_MAX: Final = 12
"""The most names of checks that held; of more only the number is printed, verdict.json has all."""
_LOOKED_AT: Final = 4_096
"""The bytes of a file that tell its format."""


@click.command(
    epilog="Example: raftlog verify runs/latest --report report.html",
    context_settings={"max_content_width": 100},
)
@click.argument("path", metavar="HISTORY|RUNFOLDER", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--model",
    metavar="NAME",
    help=f"Judge by another model than the header's: {LOG}, {', '.join(MODELS)}, or your own as "
    "module:attribute.",
)
@click.option(
    "--reads",
    type=click.Choice(MODES),
    help="The read consistency to hold the history to, instead of the header's.",
)
@click.option(
    "--allow",
    multiple=True,
    metavar="CLASS",
    type=click.Choice(NAMES),
    help="Count this class of anomaly, but call the history valid all the same. Repeatable.",
)
@click.option(
    "--search-steps",
    type=click.IntRange(min=1),
    default=SEARCH_STEPS_DEFAULT,
    show_default=True,
    help="Budget of the general search; when it is spent, the verdict is unknown.",
)
@click.option(
    "--report", metavar="FILE", type=click.Path(path_type=Path), help="Write the HTML report here."
)
@click.option(
    "--junit",
    "junit_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write JUnit XML here.",
)
@click.option(
    "--check-report",
    "checked_report",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Judge again by the options of this report, and say whether it says the same.",
)
@format_option()
def verify(
    path: Path,
    model: str | None,
    reads: str | None,
    allow: tuple[str, ...],
    search_steps: int,
    report: Path | None,
    junit_file: Path | None,
    checked_report: Path | None,
    form: str,
) -> int:
    """Judge a history of operations: what was lost, doubled, reordered, or read too early.

    HISTORY is a history.jsonl, EDN of Jepsen or Knossos, or one of Porcupine's logs. A RUNFOLDER
    has a history.jsonl, and what the run found out about itself: invariants of the simulator,
    whether brokers stayed alive and replicas agree. One that was violated makes the run invalid,
    whatever the history says. The folder gets a verdict.json. Exit code 0: valid; 1: invalid, with
    a witness; 2: unknown, a budget ran out or nothing was judged; 64: not a history.
    """
    history = path / _HISTORY if path.is_dir() else path
    if checked_report is not None:
        return _check_report(checked_report, path, history, model, form)
    settings = _Settings(reads=reads, allow=allow, search_steps=search_steps)
    try:
        judgement = _judged(history, model, settings)
    except (BadHistory, FutureFormat) as error:
        raise click.UsageError(f"{history}: {visible(str(error))}") from None
    verdict = judgement.verdict
    folder = _folder_of(path, history)
    checks = folder.checks()
    concluded = whole(verdict, checks)
    document = verdict.document(exercised(folder.invariants), whole=concluded)
    document["judged"] = proof_of(judgement, folder.history_sha256)
    if path.is_dir():
        _write(path / _VERDICT, json.dumps(document, indent=1) + "\n")
    if report is not None:
        _write(report, render(judgement, folder))
    if junit_file is not None:
        _write(junit_file, junit(verdict, str(path), checks))
    if form == "json":
        print(json.dumps(document, indent=1))
    else:
        print_judgement(judgement, checks, path, report)
    return EXIT_CODES[concluded]


@final
@attrs.frozen(kw_only=True)
class _Settings:
    """The way to judge: from the command line, or from a report."""

    reads: str | None = None
    allow: tuple[str, ...] = ()
    search_steps: int = SEARCH_STEPS_DEFAULT
    hole_steps: int = HOLE_STEPS_DEFAULT
    allowed: frozenset[str] | None = None
    """Everything that a report allows; None lets `allow` add to the classes that the header allows.
    """

    def keywords(self, header: Any, model: str | Model | None) -> JudgeOptions:
        """The settings as keyword arguments of the judge."""
        allowed = self.allowed
        if allowed is None:
            allowed = allowed_by_default(header.source, header.options) | frozenset(self.allow)
        return {
            "model": model,
            "allowed": allowed,
            "always": self.allow,
            "search_steps": self.search_steps,
            "hole_steps": self.hole_steps,
        }


def _check_report(report: Path, path: Path, history: Path, own: str | None, form: str) -> int:
    def again(options: dict[str, Any], model: str | None) -> Judgement:
        settings = _Settings(
            reads=options["reads"] if options["model"] == LOG else None,
            search_steps=options["search_steps"],
            hole_steps=options["hole_steps"],
            allowed=frozenset(options["allowed"]),
            allow=tuple(options["always"]),
        )
        return _judged(history, model or options["model"], settings)

    try:
        return check_report(report, path, _folder_of(path, history), again, own, form)
    except (BadHistory, FutureFormat) as error:
        raise click.UsageError(f"{history}: {visible(str(error))}") from None


def _folder_of(path: Path, history: Path) -> RunFolder:
    folder = _run_folder(path) if path.is_dir() else RunFolder(place=str(path))
    try:
        with history.open("rb") as stream:
            return attrs.evolve(folder, history_sha256=digest_of(stream))
    except OSError as error:
        raise click.UsageError(f"{history}: {error.strerror}") from None


def _judged(history: Path, model: str | None, settings: _Settings) -> Judgement:
    chosen = _model(model)
    try:
        stream = history.open("rb")
    except OSError as error:
        raise click.UsageError(f"{history}: {error.strerror}") from None
    with stream, progress("reading", history.stat().st_size) as advance:
        try:
            public = _public_text(history, stream)
            if public is not None:
                ops = list(read_public(public))
                operations, nemesis = intervals(ops)
                header = _held_to(header_for(ops), settings.reads)
                options = settings.keywords(header, chosen)
                return judge_operations(header, operations, nemesis, **options)
            reader = HistoryReader(_Advancing(stream, advance))
            reader.header = _held_to(reader.header, settings.reads)
            return judge(reader, **settings.keywords(reader.header, chosen))
        except UnicodeDecodeError:
            raise BadHistory("not UTF-8 text", on=str(history)) from None


def _public_text(history: Path, stream: BinaryIO) -> str | None:
    """The text of a history in a public format; None for a history.jsonl."""
    begin = stream.read(_LOOKED_AT)
    stream.seek(0)
    if history.suffix != ".edn" and not is_public(begin.decode(errors="replace")):
        return None
    return stream.read().decode()


@final
class _Advancing:
    """A file that reports how far it was read."""

    def __init__(self, file: BinaryIO, advance: Callable[[int], None]) -> None:
        self._file = file
        self._advance = advance

    def read(self, size: int, /) -> bytes:
        """Read like the file."""
        found = self._file.read(size)
        self._advance(len(found))
        return found

    def readline(self, size: int = -1, /) -> bytes:
        """Read a line like the file."""
        found = self._file.readline(size)
        self._advance(len(found))
        return found


def _held_to(header: Any, reads: str | None) -> Any:
    """The header, with the read consistency to judge the history by, where that is another one."""
    claimed = header.options.get("read_consistency", COMMITTED_PREFIX)
    if reads is None or reads == (COMMITTED_PREFIX if claimed == "committed" else claimed):
        return header
    return attrs.evolve(header, options={**header.options, "read_consistency": reads})


def _model(name: str | None) -> str | Model | None:
    """A name of ours, or the user's own `module:attribute`, which is code that the user names."""
    if name is None or ":" not in name:
        if name is not None and name != LOG and name not in MODELS:
            known = ", ".join([LOG, *MODELS])
            raise click.UsageError(f"unknown model {name!r}; use {known}, or module:attribute")
        return name
    module, _, attribute = name.partition(":")
    try:
        model = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise click.UsageError(f"--model {name}: {error}") from None
    if not isinstance(model, Model):
        raise click.UsageError(f"--model {name}: not a raftlog.verify.Model")
    return model


def _run_folder(path: Path) -> RunFolder:
    """The other files of the run: run.json, the trace, and the simulator's invariants."""
    before = _json(path / _VERDICT)
    trace = path / "trace.txt"
    return RunFolder(
        name=path.resolve().name,
        place=str(path),
        run=_json(path / "run.json"),
        invariants=_mapping(before.get("invariants")),
        trace=_text(trace, errors="replace") if trace.exists() else "",
    )


def _json(path: Path) -> Mapping[str, Any]:
    if not path.exists():
        return {}
    try:
        document = json.loads(_text(path))
    except (ValueError, RecursionError):
        raise click.UsageError(f"{path} is not JSON") from None
    return _mapping(document)


def _text(path: Path, errors: str = "strict") -> str:
    try:
        return path.read_text(encoding="utf-8", errors=errors)
    except OSError as error:
        raise click.UsageError(f"{path}: {error.strerror}") from None


def _mapping(document: Any) -> Mapping[str, Any]:
    return document if isinstance(document, dict) else {}


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RaftlogError(f"cannot write: {error.strerror}", on=str(path)) from None


def print_judgement(
    judgement: Judgement, checks: Sequence[RunCheck], path: Path, report: Path | None
) -> None:
    """Print the verdict first, then the smallest evidence or what was proved, then the rest.

    `path` is the file or folder that was judged.
    """
    verdict = judgement.verdict
    _say(
        f"{whole(verdict, checks).upper()}  {path}: "
        f"{amount(verdict.operations, 'operation', grouped=True)}, "
        f"model {verdict.model}, reads {verdict.mode}"
    )
    results = list(verdict.classes.values())
    if whole(verdict, checks) == VALID:
        for claim in claims_of(judgement):
            _say(f"  {claim}")
    for result in results:
        if result.status == INVALID:
            text = result.witness.text if result.witness is not None else ""
            _say(f"{result.name} ({result.count}): {text}", apart=True)
    broken = violated(checks)
    for check in broken:
        _say(f"{check.sentence()}", apart=True)
    if broken and verdict.verdict != INVALID:
        _say(f"The history alone is {verdict.verdict}.", apart=True)
    for result in results:
        if result.status == UNKNOWN:
            _say(f"{result.name} is unknown: {result.note}", apart=True)
    print()
    _print_names("allowed, counted", [r for r in results if r.allowed and r.count], counts=True)
    checked = [r for r in results if not r.count and r.status not in (NOT_CHECKED, UNKNOWN)]
    _print_names("none found", checked)
    _print_names(f"{len(verdict.lacking)} not checked, no evidence", verdict.lacking)
    still = idle(checks)
    held = [check.name for check in checks if check not in broken and check not in still]
    if len(held) > _NAMES_MAX:
        _say(
            "; ".join(claims_of_checks(checks))
            or f"{amount(len(held), 'check')} of the run's own recorded"
        )
    elif held:
        _say(f"the run's own checks that held: {', '.join(held)}")
    if still:
        _say(f"not exercised, compared 0 times: {', '.join(check.name for check in still)}")
    for note in verdict.notes:
        _say(f"note: {note}")
    if report is not None:
        _say(f"report: {report}")


def _say(text: str, *, apart: bool = False) -> None:
    """Print a line, `apart` from those before.

    Names and values of the history can neither make a terminal do anything nor make lines of their
    own.
    """
    print(f"\n{visible(text)}" if apart else visible(text))


def _print_names(what: str, results: list[ClassResult], *, counts: bool = False) -> None:
    if results:
        names = [f"{r.name} {r.count}" if counts else r.name for r in results]
        print(f"{what}: {', '.join(names)}")

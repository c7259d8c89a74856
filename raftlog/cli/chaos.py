"""`raftlog chaos run`: a scenario of the simulator on real brokers, beside a program of the user's.

Only the simulator can read scenarios, and the product never imports it: `raftlog sim steps` runs as
a process and prints the content of a file, line by line.
"""

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import attrs
import click

from raftlog.base.amounts import amount
from raftlog.base.errors import OperatingError
from raftlog.base.printable import visible
from raftlog.cli.output.render import format_option, print_json

if TYPE_CHECKING:
    from raftlog.embed.chaos.plan import ChaosPlan
    from raftlog.embed.chaos.run import ChaosFindings
    from raftlog.verify import Judgement
    from raftlog.verify.report.page import RunFolder

_CONTEXT: Final[dict[str, Any]] = {"max_content_width": 100}
_READ_SECONDS: Final = 60
_CLUSTER: Final = "cluster"


@click.group(
    epilog="Example: raftlog chaos run leader-dies.txt --command 'python shop.py'",
    context_settings=_CONTEXT,
)
def chaos() -> None:
    """Play scenarios of faults on real brokers."""


@chaos.command(
    "run",
    epilog="""\b
Examples:
  raftlog chaos run leader-dies.txt
  raftlog chaos run leader-dies.txt --command 'python shop.py' --junit chaos.xml""",
    context_settings=_CONTEXT,
)
@click.argument("scenario", type=click.Path(path_type=Path))
@click.option(
    "--command",
    metavar="PROGRAM",
    help="Your program, for the shell. It must end with 0.",
)
@click.option(
    "--warm-up",
    type=click.FloatRange(0, 3600),
    default=3.0,
    show_default=True,
    metavar="SECONDS",
    help="How long the program runs before the scenario begins.",
)
@click.option(
    "--time-limit",
    type=click.FloatRange(1, 86_400),
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="How long all of it may take.",
)
@click.option(
    "--seed", type=click.IntRange(0, 2**63 - 1), help="In place of the scenario's `set seed`."
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The run's folder, new or empty; by default one below runs/.",
)
@click.option(
    "--junit", "junit_file", type=click.Path(path_type=Path), metavar="FILE", help="JUnit XML too."
)
@format_option()
def run_command(
    scenario: Path,
    command: str | None,
    warm_up: float,
    time_limit: float,
    seed: int | None,
    out: Path | None,
    junit_file: Path | None,
    form: str,
) -> int:
    """Play a scenario on broker processes, judge it, and report.

    SCENARIO is a text as `raftlog sim replay` plays it. A cluster of processes is founded in the
    run's folder. Faults strike at the scenario's instants, in real milliseconds; then everything is
    undone, and the cluster must become healthy. The built-in workload sends and reads throughout,
    as the scenario says or else to every partition; the judge judges its history.

    The program finds RAFTLOG_BOOTSTRAP_SERVER, RAFTLOG_TOPIC (the topic that `leader:0` means),
    RAFTLOG_SEED and RAFTLOG_HISTORY in its environment: a history that it records there by
    raftlog.verify.recording is judged as well. Its output is shown on standard error.

    A step that real processes cannot do is refused, with its line, before anything starts. Exit
    code 0: valid; 1: invalid; 2: unknown; 64: a scenario that cannot be played.
    """
    plan, text = _plan(scenario, seed)
    least = plan.lasts_ms / 1000 + (warm_up if command is not None else 0.0)
    if least > time_limit:
        raise click.UsageError(f"the scenario lasts {least:g} s: raise --time-limit")
    from raftlog.cli.output.run_folder import make_run_folder, utc_text, write_json
    from raftlog.runtime.real_ports import SystemClock

    if out is not None and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise OperatingError("it is not empty", on=str(out), do="name a new folder")
    clock = SystemClock()
    with _interrupted_by_signals():
        folder = make_run_folder("chaos", plan.seed, out, clock)
        (folder / "scenario.txt").write_text(text, encoding="utf-8")
        told = {"scenario": plan.name, "seed": plan.seed, "program": command}
        write_json(folder / "run.json", {"version": 1, "started": utc_text(clock), **told})
        found = _played(plan, folder, command, warm_up, time_limit)
        return _conclude(plan, folder, found, junit_file, form)


def _plan(path: Path, seed: int | None) -> "tuple[ChaosPlan, str]":
    """Read a file by the simulator's reader: the plan, and the file's text."""
    from raftlog.embed.chaos.plan import PlanRefused, plan_of

    if find_spec("raftlog_sim") is None:
        raise OperatingError("the simulator is not installed", do="pip install raftlog, whole")
    asked = [sys.executable, "-m", "raftlog_sim", "steps", "--format", "json", "--", str(path)]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=_READ_SECONDS, check=False)
    if done.returncode != 0:
        try:
            error = json.loads(done.stderr)["error"]
        except (ValueError, LookupError, TypeError):
            last = done.stderr.strip().splitlines()[-1:]
            error = {"what": f"it cannot be read: {''.join(last)}", "on": str(path), "do": ""}
        raise click.UsageError(str(OperatingError(**error)))
    try:
        plan = plan_of(json.loads(done.stdout), str(path), seed)
    except PlanRefused as refused:
        raise click.UsageError(str(refused)) from None
    return plan, path.read_text(encoding="utf-8")


def _played(
    plan: "ChaosPlan", folder: Path, command: str | None, warm_up: float, time_limit: float
) -> "ChaosFindings":
    from raftlog.embed.chaos.run import ChaosRun, run

    return run(
        ChaosRun(
            plan=plan,
            folder=folder,
            command=command,
            warm_up_seconds=warm_up,
            limit_seconds=time_limit,
            shown=sys.stderr.buffer,
        )
    )


@contextmanager
def _interrupted_by_signals() -> Iterator[None]:
    """Treat SIGTERM as Ctrl-C: every process that was started ends.

    A shell starts a command behind `&` with SIGINT ignored, and Python leaves that so.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise KeyboardInterrupt

    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(number, interrupt) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _conclude(
    plan: "ChaosPlan", folder: Path, found: "ChaosFindings", junit_file: Path | None, form: str
) -> int:
    """Judge the history and the run's own checks, write everything down, and print the verdict."""
    from raftlog.cli.output.run_folder import write_json
    from raftlog.cli.verify import print_judgement
    from raftlog.embed.chaos.run import HISTORY_FILE
    from raftlog.verify.judging.run_checks import exercised, whole
    from raftlog.verify.judging.verdict import EXIT_CODES, VALID
    from raftlog.verify.report.junit import junit
    from raftlog.verify.report.page import render

    judgement, about = _judged(folder, folder / HISTORY_FILE, found)
    checks = about.checks()
    concluded = whole(judgement.verdict, checks)
    document = judgement.verdict.document(exercised(about.invariants), whole=concluded)
    write_json(folder / "verdict.json", document)
    report = folder / "report.html"
    report.write_text(render(judgement, about), encoding="utf-8")
    if junit_file is not None:
        junit_file.write_text(junit(judgement.verdict, plan.name, checks), encoding="utf-8")
    if concluded == VALID:
        shutil.rmtree(folder / _CLUSTER, ignore_errors=True)
    if form == "json":
        print_json(
            {
                **document,
                "scenario": plan.name,
                "seed": plan.seed,
                "folder": str(folder),
                "report": str(report),
                "struck": dict(sorted(found.struck.items())),
                "struck_nothing": found.in_vain,
                "used": found.used,
                "program_exit_code": found.exit_code,
            }
        )
        return EXIT_CODES[concluded]
    print_judgement(judgement, checks, folder, report)
    for line in _told(found):
        print(visible(line))
    return EXIT_CODES[concluded]


def _judged(folder: Path, history: Path, found: "ChaosFindings") -> "tuple[Judgement, RunFolder]":
    from raftlog.verify import judge
    from raftlog.verify.report.page import RunFolder
    from raftlog.verify.report.proof import digest_of

    with history.open("rb") as stream:
        judgement = judge(stream)
    about = RunFolder(name=folder.name, place=str(folder), invariants=found.checks)
    with history.open("rb") as stream:
        return judgement, attrs.evolve(about, history_sha256=digest_of(stream))


def _told(found: "ChaosFindings") -> Iterator[str]:
    kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(found.struck.items()))
    yield f"faults: {kinds or 'none'}"
    yield from (f"  {line}" for line in found.used)
    if found.in_vain:
        yield f"struck nothing: {amount(len(found.in_vain), 'step')}"
        yield from (f"  {line}" for line in found.in_vain)
    if found.exit_code is not None:
        yield f"your program ended with {found.exit_code}; what it printed is in program.txt"

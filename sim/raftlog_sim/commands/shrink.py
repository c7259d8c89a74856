"""`raftlog sim shrink`: the fewest faults and operations that fail in the same way."""

import argparse
import sys
import time
from functools import partial
from pathlib import Path
from typing import Final

from raftlog.base.amounts import amount
from raftlog.base.errors import OperatingError
from raftlog_sim.base.minimise import Effort
from raftlog_sim.base.outcome import Outcome
from raftlog_sim.commands import common
from raftlog_sim.hunting import mutation
from raftlog_sim.hunting.shrink import TIME_LIMIT_S, shrink_case
from raftlog_sim.hunting.trials import Helpers
from raftlog_sim.playing.cases import Case
from raftlog_sim.playing.run_folder import Circumstances, new_folder, utc_text, write

SHOWN_STEPS_MAX: Final = 40
JOBS: Final = 2


def add(parsers: common.Parsers) -> None:
    """Add `shrink` to the commands."""
    shrink = common.add_command(
        parsers, "shrink", _shrink, "find the smallest part of a failing case that fails alike",
        "shrink --seed 2 --mutant 4",
    )  # fmt: skip
    common.add_source(shrink)
    shrink.add_argument(
        "--time-limit", type=common.seconds, default=TIME_LIMIT_S, metavar="SECONDS",
        help=f"give the best found when so much time is over; default: {TIME_LIMIT_S:g}",
    )  # fmt: skip
    shrink.add_argument(
        "--jobs", type=common.jobs, default=JOBS, metavar="J",
        help=f"play so many candidates at a time, in processes; default: {JOBS}",
    )  # fmt: skip
    shrink.add_argument(
        "--out", type=Path, metavar="DIR",
        help="the run folder to write; default: a new one below runs/",
    )  # fmt: skip


def _shrink(options: argparse.Namespace) -> int:
    case = common.case_of(options)
    common.check_folder(options.out)
    began = utc_text()
    original = case.play()
    if not original.failure:
        raise common.UsageError(f"seed {case.seed} does not fail: there is nothing to shrink")
    if options.format == "text":
        print(f"{original.failure}\n{_size(case, original)}")
    deadline = common.Deadline(options.time_limit)
    progress: list[list[int]] = []

    def told(tried: int, left: int) -> None:
        progress.append([tried, left])
        if sys.stderr.isatty():
            line = f"\r{tried} tried, {amount(left, 'part')} left, {deadline.spent:.0f} s "
            print(line, end="", file=sys.stderr, flush=True)

    effort = Effort(out_of_time=deadline.passed, told=told)
    helpers = Helpers(options.jobs, partial(mutation.switch_on_if, options.mutant))
    small = shrink_case(case, original, effort, helpers)
    seconds = deadline.spent
    if sys.stderr.isatty():
        print(file=sys.stderr)
    start = time.perf_counter_ns()
    outcome = small.play(trace=True)
    folder = new_folder("shrink", case.seed, options.out)
    circumstances = Circumstances(
        command=("raftlog", "sim", *sys.argv[1:]),
        began=began,
        real_ns=time.perf_counter_ns() - start,
        mutant=options.mutant,
        shrink={"steps": [[original.events, case.size], [outcome.events, small.size]]},
    )
    write(folder, small, outcome, circumstances)
    _tell(options, (case, original), (small, outcome), effort, seconds, folder)
    if outcome.signature != original.signature:
        what = "it failed as before in another process, and does not here"
        error = OperatingError(what, on=str(folder), do="replay it with --double-check")
        common.print_error(error, as_json=options.format == "json")
        return common.DISAGREED
    return common.DONE


def _tell(
    options: argparse.Namespace,
    before: tuple[Case, Outcome],
    after: tuple[Case, Outcome],
    effort: Effort,
    seconds: float,
    folder: Path,
) -> None:
    small, outcome = after
    file = folder / small.file_name
    if options.format == "json":
        common.print_json(
            {
                "failure": outcome.failure,
                "signature": outcome.signature,
                "steps": [before[0].size, small.size],
                "events": [before[1].events, outcome.events],
                "tried": effort.tried,
                "seconds": round(seconds, 1),
                "finished": not effort.stopped,
                "stopped": effort.stopped,
                "file": str(file),
            }
        )
        return
    lines = small.text().splitlines()
    for line in lines[:SHOWN_STEPS_MAX]:
        print(f"  {line}")
    if len(lines) > SHOWN_STEPS_MAX:
        print(f"  ... {len(lines) - SHOWN_STEPS_MAX} more")
    for line in outcome.story[: common.STORY_LINES_MAX]:
        print(f"  {line}")
    stopped = f"; {effort.stopped}" if effort.stopped else ""
    steps = amount(before[0].size, "step")
    events = amount(before[1].events, "event")
    print(
        f"{outcome.failure}\n{steps} became {small.size}, {events} {outcome.events}: "
        f"{amount(effort.tried, 'run')} in {seconds:.0f} s{stopped}"
    )
    print(f"replay: raftlog sim replay {file}")


def _size(case: Case, outcome: Outcome) -> str:
    return f"{amount(case.size, 'step')}, {amount(outcome.events, 'event')}"

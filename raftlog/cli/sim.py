"""`raftlog sim`: becomes the simulator's process; the product never imports it."""

import os
import sys
from importlib.util import find_spec
from typing import NoReturn

import click

from raftlog.base.errors import OperatingError


@click.command(
    "sim",
    short_help="Run whole clusters from a seed.",
    epilog="Example: raftlog sim run --seed 42 --double-check",
    context_settings={
        "max_content_width": 100,
        "ignore_unknown_options": True,
        "allow_interspersed_args": False,
    },
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="COMMAND [OPTIONS]...")
def sim(arguments: tuple[str, ...]) -> NoReturn:
    """Run whole clusters from a seed, and look into what fails.

    \b
    run        one seed; a run folder with history, trace and verdict
    sweep      many seeds; failures grouped, each with the line that replays it
    replay     a schedule, a plan or a run folder again
    shrink     the smallest part of a failing case that fails alike
    debug      step through a run, forwards and backwards
    turns      a line a turn of a run, to compare two
    scenarios  named ones and your own, each against what it should give
    steps      what a scenario says, line by line
    mutants    planted bugs that must be caught
    incident   recordings of brokers; `raftlog incident` is the same
    gate       releases of another library that must fail and pass

    All arguments go to the simulator unchanged; `raftlog sim run --help` is its own help. Exit
    codes: 0 all well, 1 something failed, 2 runs of one seed differ or nothing could be decided,
    64 wrong usage, a file that is no case or a folder that cannot be written, 130 interrupted.
    """
    if find_spec("raftlog_sim") is None:
        raise OperatingError("the simulator is not installed", do="pip install raftlog, whole")
    # This process is replaced: the simulator gets the signals, and a kill leaves no process behind.
    os.execv(sys.executable, [sys.executable, "-m", "raftlog_sim", *arguments])

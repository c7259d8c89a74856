"""`raftlog sim`: the simulator, as a process of its own; the product never imports it."""

import subprocess
import sys
from importlib.util import find_spec

import click

from raftlog.base.errors import OperatingError


@click.command(
    "sim",
    epilog="Example: raftlog sim run --seed 42 --double-check",
    context_settings={
        "max_content_width": 100,
        "ignore_unknown_options": True,
        "allow_interspersed_args": False,
    },
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="COMMAND [OPTIONS]...")
def sim(arguments: tuple[str, ...]) -> int:
    """Run whole clusters from a seed: run, sweep, mutants.

    What follows goes to the simulator as it is; `raftlog sim run --help` is its own help.
    """
    if find_spec("raftlog_sim") is None:
        raise OperatingError("the simulator is not installed", do="pip install raftlog, whole")
    done = subprocess.run([sys.executable, "-m", "raftlog_sim", *arguments], check=False)
    return done.returncode

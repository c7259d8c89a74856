"""`raftlog incident`: becomes the simulator's process, which plays recordings of brokers."""

import os
import sys
from importlib.util import find_spec
from typing import NoReturn

import click

from raftlog.base.errors import OperatingError


@click.command(
    "incident",
    short_help="Look into recordings of brokers, and play them again.",
    epilog="Example: raftlog incident replay raftlog-failures/test_orders/recordings",
    context_settings={
        "max_content_width": 100,
        "ignore_unknown_options": True,
        "allow_interspersed_args": False,
    },
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="ACTION DIR [BOOT]...")
def incident(arguments: tuple[str, ...]) -> NoReturn:
    """Look into the recordings that `Cluster(record=DIR)` has left, and play them again.

    \b
    show         the recordings: turns, events, how they ended
    replay       play each broker again, alone, and compare every turn
    step         step through the replay of one broker, forwards and backwards
    to-scenario  write a scenario of the same shape for the simulator

    BOOT is n1 for all boots of broker 1, or n1-boot2; without one all are meant. Exit codes: 0
    every broker did the same again, 1 one did not or a recording is damaged, 64 wrong usage.
    """
    if find_spec("raftlog_sim") is None:
        raise OperatingError("the simulator is not installed", do="pip install raftlog, whole")
    # This process is replaced, as in `raftlog sim`.
    os.execv(sys.executable, [sys.executable, "-m", "raftlog_sim", "incident", *arguments])

"""`raftlog sim debug`: a prompt over the debugger; commands may come from a pipe, one a line."""

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Final

from raftlog.base.amounts import amount
from raftlog.base.errors import OperatingError
from raftlog_sim.commands import common
from raftlog_sim.hunting.debugger import Debugger
from raftlog_sim.playing.cases import BrokerCase

PROMPT: Final = "(sim) "
HELP: Final = """\
next [N]         N turns on
back [N]         N turns back (a new run to there)
until GOAL       on until: turn N, time MS, phase NAME, node nK, event TYPE, leader nK, fault, end
show             the events and effects of this turn
state [nK]       the replicas of all nodes, or of one
diff             what the last movement changed
queue [N]        what happens next
where            this turn, on one line
steps            the steps of the schedule
quit"""


def add(parsers: common.Parsers) -> None:
    """Add `debug` to the commands."""
    debug = common.add_command(
        parsers, "debug", _debug, "step through a run, forwards and backwards",
        "debug --seed 42",
    )  # fmt: skip
    common.add_source(debug)


def _debug(options: argparse.Namespace) -> int:
    case = common.case_of(options)
    if not isinstance(case, BrokerCase):
        raise common.UsageError("only runs of our own brokers can be stepped; see trace.txt")
    if options.format == "text":
        print(f"{amount(case.size, 'step')}, seed {case.seed}; `help` lists the commands")
    with closing(Debugger(case.schedule)) as debugger:
        _converse(debugger, options.format)
    return common.DONE


def _converse(debugger: Debugger, form: str) -> None:
    for line in lines_of(prompt=form == "text"):
        words = line.split()
        if words in (["quit"], ["exit"]):
            break
        try:
            answer = obey(debugger, words)
        except OperatingError as error:
            answer = [f"{error.what}: {error.do}"]
        if form == "json":
            common.print_json({"command": line, "turn": debugger.position, "answer": answer})
        else:
            print("\n".join(answer), flush=True)


def lines_of(*, prompt: bool) -> Iterator[str]:
    """Yields the typed or piped lines, without empty ones and comments."""
    while True:
        if prompt and sys.stdin.isatty():
            print(PROMPT, end="", flush=True)
        line = sys.stdin.readline()
        if not line:
            return
        line = line.strip()
        if line and not line.startswith("#"):
            yield line


def obey(debugger: Debugger, words: list[str]) -> list[str]:
    """Perform the command of one line; returns the lines to print.

    Raises `OperatingError` for a line without sense.
    """
    name, *rest = words
    moves: dict[str, Callable[[], None]] = {
        "next": lambda: debugger.next(_number(rest)),
        "back": lambda: debugger.back(_number(rest)),
        "until": lambda: debugger.until(rest),
    }
    looks: dict[str, Callable[[], list[str]]] = {
        "show": debugger.show,
        "state": lambda: [f"{key}: {line}" for key, line in debugger.state(*rest[:1]).items()],
        "diff": lambda: debugger.diff() or ["nothing changed"],
        "queue": lambda: debugger.queue(_number(rest, 10)),
        "where": lambda: [debugger.where()],
        "steps": lambda: [str(step) for step in debugger.schedule.steps],
        "help": HELP.splitlines,
    }
    if name in moves:
        moves[name]()
        return [debugger.where(), *([f"ended: {debugger.ended}"] if debugger.ended else [])]
    if name not in looks:
        raise OperatingError(f"no command {name!r}", do="`help` lists them")
    return looks[name]()


def _number(words: list[str], default: int = 1) -> int:
    if not words:
        return default
    if len(words) > 1 or not words[0].isdigit():
        raise OperatingError(f"{' '.join(words)!r} is no number", do="give how many")
    return int(words[0])

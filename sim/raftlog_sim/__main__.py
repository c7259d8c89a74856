"""`python -m raftlog_sim`: whole clusters from a seed. `raftlog sim` runs this as a process.

Exit codes:

    0    all well
    1    something failed
    2    a determinism check disagreed, or nothing could be decided
    64   wrong usage, a file that is no case, or a folder that cannot be written
    130  interrupted by Ctrl-C or SIGTERM; the processes that it started end too

Errors go to standard error in the form that every command uses: what failed, on what, and what to
do. With `--format json` an error is one document in one line.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from functools import partial
from itertools import pairwise

from raftlog.base.errors import OperatingError
from raftlog_sim.commands import (
    common,
    debug,
    gate,
    incident,
    mutants,
    run,
    scenarios,
    shrink,
    steps,
    sweep,
)
from raftlog_sim.hunting import interrupts, mutation


def main(arguments: list[str]) -> int:
    """Run a command; returns its exit code."""
    try:
        options = parser().parse_args(arguments)
        if not getattr(options, "mutant", ""):
            options.mutant = os.environ.get(mutation.VARIABLE, "")
        common.settle(options)
        with interrupts.heard():
            return int(options.run(options))
    except common.UsageError as error:
        told = OperatingError(str(error), on=error.on, do=f"see {error.on} --help")
        common.print_error(told, as_json=_wants_json(arguments))
        return common.USAGE
    except OperatingError as error:
        common.print_error(error, as_json=_wants_json(arguments))
        return common.USAGE if isinstance(error, common.RefusedError) else common.FAILED
    except KeyboardInterrupt:
        return common.INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()
        return common.DONE


def _wants_json(arguments: Sequence[str]) -> bool:
    return "--format=json" in arguments or ("--format", "json") in pairwise(arguments)


def parser() -> argparse.ArgumentParser:
    """Build the parser of all commands; the reference page is made from it."""
    whole = argparse.ArgumentParser(
        prog="raftlog sim",
        description="Whole clusters from a seed: the product's own brokers in virtual time.",
        epilog="Example: raftlog sim run --seed 42 --double-check",
    )
    whole.error = partial(common.usage_error, whole.prog)  # type: ignore[method-assign, assignment]
    commands = whole.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in (run, sweep, shrink, debug, scenarios, steps, mutants, gate, incident):
        module.add(commands)
    return whole


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

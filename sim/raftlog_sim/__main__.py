"""`python -m raftlog_sim`: whole clusters from a seed. `raftlog sim` runs this as a process.

Exit codes: 0 all well, 1 something failed, 2 a determinism check disagreed, 64 wrong usage, 130
interrupted. Errors are one line of JSON on standard error.
"""

import argparse
import os
import sys

from raftlog.base.errors import OperatingError
from raftlog_sim import mutation
from raftlog_sim.commands import common, debug, gate, mutants, run, scenarios, shrink, sweep


def main(arguments: list[str]) -> int:
    """Run a command; its exit code."""
    try:
        options = parser().parse_args(arguments)
        if not getattr(options, "mutant", ""):
            options.mutant = os.environ.get(mutation.VARIABLE, "")
        return int(options.run(options))
    except common.UsageError as error:
        print(f"raftlog sim: {error}", file=sys.stderr)
        return common.USAGE
    except OperatingError as error:
        print(common.error_line(error), file=sys.stderr)
        return common.FAILED
    except KeyboardInterrupt:
        return common.INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()
        return common.DONE


def parser() -> argparse.ArgumentParser:
    """All commands; the reference page is made from it."""
    whole = argparse.ArgumentParser(
        prog="raftlog sim",
        description="Whole clusters from a seed: the product's own brokers in virtual time.",
        epilog="Example: raftlog sim run --seed 42 --double-check",
    )
    whole.error = common.usage_error  # type: ignore[method-assign, assignment]
    commands = whole.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in (run, sweep, shrink, debug, scenarios, mutants, gate):
        module.add(commands)
    return whole


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

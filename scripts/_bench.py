"""Runs `scripts/bench` inside the environment that it prepares."""

import argparse
import subprocess
import sys
from pathlib import Path

CHECK = """
import sys
from pathlib import Path

from raftlog_sim.hunting import compiled_build

try:
    compiled_build.check(Path(sys.argv[1]))
except compiled_build.UnusableBuildError as error:
    sys.exit(f"bench: {error}")
"""


def import_compiled() -> None:
    """Make later imports take compiled modules, when that is asked for.

    Call it before anything is imported from elsewhere. The process that checks the build imports
    the sources.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--compiled", type=Path)
    asked, _ = parser.parse_known_args()
    if asked.compiled is None:
        return
    folder = str(asked.compiled.resolve())
    if told := subprocess.run([sys.executable, "-c", CHECK, folder], check=False).returncode:
        sys.exit(told)
    sys.path.insert(0, folder)


if __name__ == "__main__":
    import_compiled()
    from benches import main

    sys.exit(main.main(sys.argv[1:]))

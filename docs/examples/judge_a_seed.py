"""Run a cluster under faults from a seed, and judge what its clients saw.

python docs/examples/judge_a_seed.py
"""

import subprocess
import sys
import tempfile


def main() -> None:
    """Play seed 42 and judge its history, with the two commands that a shell would use."""
    with tempfile.TemporaryDirectory() as folder:
        raftlog = [sys.executable, "-m", "raftlog"]
        subprocess.run(
            [*raftlog, "sim", "run", "--seed", "42", "--out", f"{folder}/run"], check=True
        )
        subprocess.run([*raftlog, "verify", f"{folder}/run"], check=True)


if __name__ == "__main__":
    main()

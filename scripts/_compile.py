"""Runs `scripts/compile` inside the environment that it prepares."""

import sys

from compiling import build

if __name__ == "__main__":
    sys.exit(build.main(sys.argv[1:]))

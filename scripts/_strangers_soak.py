"""Runs `scripts/soak strangers` inside the environment that it prepares."""

import sys

from outsiders.running import end_whole
from outsiders.soaking import main

if __name__ == "__main__":
    end_whole()
    sys.exit(main(sys.argv[1:]))

"""Runs `scripts/strangers` inside the environment that it prepares."""

import sys

from outsiders.main import main
from outsiders.running import end_whole

if __name__ == "__main__":
    end_whole()
    sys.exit(main(sys.argv[1:]))

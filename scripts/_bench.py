"""What `scripts/bench` runs inside the environment that it prepares."""

import sys
from pathlib import Path

if "--compiled" in sys.argv[:-1]:
    # Before anything is imported from there.
    sys.path.insert(0, str(Path(sys.argv[sys.argv.index("--compiled") + 1]).resolve()))

from benches import main

if __name__ == "__main__":
    sys.exit(main.main(sys.argv[1:]))

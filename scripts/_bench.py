"""What `scripts/bench` runs inside the environment that it prepares."""

import sys

from benches import main

if __name__ == "__main__":
    sys.exit(main.main(sys.argv[1:]))

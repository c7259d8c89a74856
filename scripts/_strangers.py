"""What `scripts/strangers` runs inside the environment that it prepares."""

import sys

from outsiders.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""What `scripts/soak strangers` runs."""

import sys

from outsiders.soaking import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

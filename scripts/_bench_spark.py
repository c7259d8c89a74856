"""Runs `scripts/bench_spark` inside the virtual environment."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from benches.spark_source import main  # noqa: E402

if __name__ == "__main__":
    main()

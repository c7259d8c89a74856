"""Judge the public corpora of histories, and compare with the verdicts that their owners published.

    scripts/corpora FOLDER...

FOLDER is a checkout (or any folder inside one) of
* anishathalye/porcupine: `test_data/jepsen/etcd_*.log` and `test_data/kv/*.txt` (MIT; the data come
  from ahorn/linearizability-checker);
* jepsen-io/knossos: `data/*/good` and `bad` (EPL): registers, a lock, registers in transactions.

The verdict on each file is that of `raftlog verify FILE`. Nothing of the corpora is in this
repository. Exit code 0 when every verdict agrees, 1 when one differs, 2 when a budget ran out, 64
when no known file is found.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from raftlog.verify import intervals, judge_operations  # noqa: E402
from raftlog.verify.imports.jepsen_edn import header_for  # noqa: E402
from raftlog.verify.imports.public_logs import read_public  # noqa: E402

ETCD_LINEARIZABLE = (
    *(2, 5, 7, 18, 25, 31, 38, 45, 48, 49),
    *(51, 53, 56, 67, 75, 76, 80, 87, 92, 98, 100, 101, 102),
)
ETCD_UNJUDGED = (95,)


def cases(folder: Path) -> Iterator[tuple[Path, bool, str]]:
    """Yields each file with its published verdict and its corpus."""
    for path in sorted(folder.rglob("etcd_*.log")):
        number = int(path.stem.split("_")[1])
        if number not in ETCD_UNJUDGED:
            yield path, number in ETCD_LINEARIZABLE, "etcd"
    for path in sorted(folder.rglob("kv/c*-*.txt")):
        yield path, path.stem.endswith("-ok"), "kv"
    for verdict in ("good", "bad"):
        for path in sorted(folder.rglob(f"data/*/{verdict}/*.edn")):
            yield path, verdict == "good", "knossos"


def judged(path: Path, steps: int) -> str:
    """Returns the verdict on one of `cases`.

    It is `nothing` where all operations failed, so that none could show anything (four of Knossos'
    good histories).
    """
    ops = list(read_public(path.read_text(encoding="utf-8")))
    operations, _ = intervals(ops)
    verdict = judge_operations(header_for(ops), operations, search_steps=steps).verdict
    return "nothing" if verdict.judged_nothing else verdict.verdict


def agrees(verdict: str, valid: bool) -> bool:
    """Whether the verdict of `judged` is the published one; an unknown verdict agrees with
    neither."""
    return verdict != "unknown" and (verdict in ("valid", "nothing")) == valid


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--steps", type=int, default=50_000_000, help="budget of one search")
    options = parser.parse_args()
    counts: dict[str, list[int]] = {}
    differ = unknown = 0
    for folder in options.folders:
        for path, expected, kind in cases(folder):
            begin = time.process_time()
            verdict = judged(path, options.steps)
            spent = time.process_time() - begin
            count = counts.setdefault(kind, [0, 0])
            count[0] += 1
            if verdict == "unknown":
                unknown += 1
                print(f"UNKNOWN  {path.name}: {spent:.2f} s")
            elif not agrees(verdict, expected):
                differ += 1
                print(f"DIFFERS  {path.name}: published {expected}, judged {verdict}")
            else:
                count[1] += 1
            if spent > 2:
                print(f"slow     {path.name}: {spent:.2f} s")
    for kind, (total, right) in counts.items():
        print(f"{kind}: {right} of {total} verdicts agree")
    if not counts:
        print("no known history in these folders", file=sys.stderr)
        return 64
    return 1 if differ else 2 if unknown else 0


if __name__ == "__main__":
    sys.exit(main())

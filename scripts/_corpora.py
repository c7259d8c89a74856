"""Judge the public corpora of histories, and compare with the verdicts that their owners published.

    scripts/corpora FOLDER...

FOLDER is a checkout (or any folder inside one) of
* anishathalye/porcupine: `test_data/jepsen/etcd_*.log` and `test_data/kv/*.txt` (MIT; the data come
  from ahorn/linearizability-checker);
* jepsen-io/knossos: `data/cas-register/good` and `bad` (EPL).

Nothing of them is in this repository. Exit code 0 when every verdict agrees, 1 when one differs, 2
when a budget ran out, 64 when no known file is found.
"""

import argparse
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from raftlog.verify import Call, Header, Model, Op, intervals, judge_operations  # noqa: E402
from raftlog.verify.edn import read_all  # noqa: E402
from raftlog.verify.jepsen_edn import read_ops  # noqa: E402

ETCD_LINEARIZABLE = (
    *(2, 5, 7, 18, 25, 31, 38, 45, 48, 49),
    *(51, 53, 56, 67, 75, 76, 80, 87, 92, 98, 100, 101, 102),
)
ETCD_UNJUDGED = (95,)
ETCD_LINE = re.compile(r"INFO\s+jepsen\.util - (\d+)\s+:(\w+)\s+:(\w+)\s+(.*)")
PRIME = (1 << 127) - 1
BASE = 1_000_003


def etcd_ops(text: str) -> Iterator[Op]:
    """A compare that failed is a fact about the register; a read that failed says nothing."""
    for index, line in enumerate(text.splitlines()):
        match = ETCD_LINE.match(line)
        if match is None:
            continue
        process, kind, f, rest = match.groups()
        value = next(read_all(rest))
        if kind == "fail" and f == "cas":
            kind, value = "ok", False
        elif value == "timed-out":
            value = None
        yield Op(index, index, int(process), kind, f, "register", value)


def kv_ops(text: str) -> Iterator[Op]:
    for index, document in enumerate(read_all(text)):
        value = document.get("value")
        yield Op(
            index,
            index,
            document["process"],
            str(document["type"]),
            str(document["f"]),
            document["key"],
            value,
        )


def digest(text: str) -> tuple[int, int]:
    """(polynomial hash, length): two of them join in constant time, so a state never grows."""
    value = 0
    for byte in text.encode():
        value = (value * BASE + byte + 1) % PRIME
    return value, len(text.encode())


def kv_call(op: Any) -> Call | None:
    if op.f == "get":
        answer = digest(op.value or "") if op.type == "ok" else None
        return Call(op.start_ns, op.end_ns, ("get",), answer, op)
    return Call(op.start_ns, op.end_ns, (op.f, *digest(op.asked)), None, op)


def kv_step(state: Any, asked: Any, answer: Any) -> tuple[bool, Any]:
    if asked[0] == "get":
        return answer is None or answer == state, state
    if asked[0] == "put":
        return True, (asked[1], asked[2])
    joined = (state[0] * pow(BASE, asked[2], PRIME) + asked[1]) % PRIME
    return True, (joined, state[1] + asked[2])


KV = Model(
    name="key-value",
    init=lambda: (0, 0),
    step=kv_step,
    call_of=kv_call,
    functions=("get", "put", "append"),
)


def knossos_ops(text: str) -> Iterator[Op]:
    for op in read_ops(text):
        op.key = "register"
        yield op


def cases(folder: Path) -> Iterator[tuple[Path, bool, str, Any, Any]]:
    """(file, published verdict, kind, reader, model)."""
    for path in sorted(folder.rglob("etcd_*.log")):
        number = int(path.stem.split("_")[1])
        if number not in ETCD_UNJUDGED:
            yield path, number in ETCD_LINEARIZABLE, "etcd", etcd_ops, "cas-register"
    for path in sorted(folder.rglob("kv/c*-*.txt")):
        yield path, path.stem.endswith("-ok"), "kv", kv_ops, KV
    for verdict in ("good", "bad"):
        for path in sorted(folder.rglob(f"cas-register/{verdict}/*.edn")):
            yield path, verdict == "good", "knossos", knossos_ops, "cas-register"


def judged(path: Path, reader: Any, model: Any, steps: int) -> str:
    """The verdict on one of `cases`."""
    operations, _ = intervals(reader(path.read_text(encoding="utf-8")))
    header = Header(source="import", model="cas-register")
    return judge_operations(header, operations, model=model, search_steps=steps).verdict.verdict


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
        for path, expected, kind, reader, model in cases(folder):
            begin = time.process_time()
            verdict = judged(path, reader, model, options.steps)
            spent = time.process_time() - begin
            count = counts.setdefault(kind, [0, 0])
            count[0] += 1
            if verdict == "unknown":
                unknown += 1
                print(f"UNKNOWN  {path.name}: {spent:.2f} s")
            elif (verdict == "valid") != expected:
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

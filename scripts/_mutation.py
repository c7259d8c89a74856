"""The work of `scripts/soak mutation`: a random sample of small changes to consensus, partitions
and storage, hunted by the tests that run the changed line, and then by seeds of the simulator.

    python scripts/_mutation.py --minutes 60                hunt; a later run goes on
    python scripts/_mutation.py --minutes 60 --sample 400   so many in all
    python scripts/_mutation.py --tell                      the score, and the survivors' diffs

The sample is stratified: each folder has its share of the places that can be changed. The state
(`build/mutation`) keeps which lines each test runs and what came of each mutant; a mutant counts as
long as its file is as it was.
"""

import argparse
import difflib
import hashlib
import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT)]

import coverage  # noqa: E402
from mutation import hook, noting  # noqa: E402
from mutation.mutants import Mutant, mutants_of  # noqa: E402

FOLDERS = ("raftlog/raft", "raftlog/partition", "raftlog/storage")
TESTS = ("tests/raft", "tests/partition", "tests/storage")
SEEDS, SEEDS_AT_ONCE = 50, 10
CPU_SECONDS = 300
"""A mutant with which the tests, or ten seeds, use more CPU time is caught: it loops."""
WAIT_SECONDS = 20 * CPU_SECONDS
"""How long a process may take that waits and uses no CPU time."""
TESTS_FAILED = SEEDS_FAILED = 1


def main() -> int:
    options = parsed()
    state = State(options.state)
    drawn = sample(options.sample, options.seed)
    if not options.tell:
        lines = state.lines(drawn)
        hunt(drawn, lines, state, options)
    tell(drawn, state)
    return 0


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="mutation", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--sample", type=int, default=400, help="mutants in all; default: 400")
    parser.add_argument("--seed", type=int, default=1, help="which sample; default: 1")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--state", type=Path, default=ROOT / "build" / "mutation")
    parser.add_argument("--tell", action="store_true", help="hunt nothing, tell what is known")
    options = parser.parse_args()
    if options.sample < len(FOLDERS) or options.jobs < 1 or not options.minutes > 0:
        parser.error("--sample, --jobs and --minutes are at least 3, 1 and above 0")
    return options


def sample(size: int, seed: int) -> list[Mutant]:
    """Returns a random sample, each folder with its share, in a random order.

    Any beginning of it is a sample too.
    """
    places = {folder: _places(folder) for folder in FOLDERS}
    whole = sum(map(len, places.values()))
    draws, drawn = random.Random(seed), []
    for found in places.values():
        drawn += draws.sample(found, min(len(found), round(size * len(found) / whole)))
    draws.shuffle(drawn)
    return drawn


def _places(folder: str) -> list[Mutant]:
    files = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / folder).rglob("*.py"))
    return [mutant for path in files for mutant in mutants_of(ROOT, path)]


class State:
    """The results so far, in a folder: `results.jsonl` and the lines that tests run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.results: dict[str, dict] = {}
        self._file = folder / "results.jsonl"
        for line in self._file.read_text().splitlines() if self._file.exists() else ():
            result = json.loads(line)
            self.results[result["key"]] = result

    def of(self, mutant: Mutant) -> dict | None:
        return self.results.get(key_of(mutant))

    def note(self, mutant: Mutant, came: str, by: str) -> None:
        result = {"key": key_of(mutant), "name": mutant.name, "came": came, "by": by}
        self.results[result["key"]] = result
        with self._file.open("a") as file:
            file.write(json.dumps(result) + "\n")

    def lines(self, drawn: list[Mutant]) -> dict[tuple[str, int], list[str]]:
        """Returns the tests that run each (file, line), the quickest first.

        It is measured once for a state of the sources and tests.
        """
        known = self.folder / f"lines-{_digest_of_tree()}.json"
        if not known.exists():
            known.write_text(json.dumps(measured(self.folder)))
        told = json.loads(known.read_text())
        wanted = {mutant.path for mutant in drawn}
        return {
            (path, int(line)): tests
            for path, lines in told.items()
            if path in wanted
            for line, tests in lines.items()
        }


def key_of(mutant: Mutant) -> str:
    """Returns a key for the change and the file that it changes."""
    text = (ROOT / mutant.path).read_bytes() + repr(tuple(mutant)).encode()
    return hashlib.sha256(text).hexdigest()[:24]


def _digest_of_tree() -> str:
    digest = hashlib.sha256()
    for folder in (*FOLDERS, *TESTS):
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def measured(folder: Path) -> dict[str, dict[str, list[str]]]:
    """Run the tests once, and note which lines each runs."""
    data, durations = folder / "coverage.data", folder / "durations.jsonl"
    durations.unlink(missing_ok=True)
    settings = folder / "coverage.ini"
    settings.write_text("[run]\nsource =\n" + "".join(f"    {each}\n" for each in FOLDERS))
    print("mutation: which lines does each test run?", flush=True)
    subprocess.run(
        [
            *(sys.executable, "-m", "coverage", "run"),
            *(f"--rcfile={settings}", f"--data-file={data}", "-m"),
            *("pytest", "-q", "-p", "no:xdist", "-p", "mutation.noting", *TESTS),
        ],
        cwd=ROOT,
        env=_environment({noting.DURATIONS: str(durations)}),
        check=True,
        stdout=subprocess.DEVNULL,
    )
    took = dict(json.loads(line) for line in durations.read_text().splitlines())
    read = coverage.CoverageData(str(data))
    read.read()
    found = {}
    for path in read.measured_files():
        name = Path(path).relative_to(ROOT).as_posix()
        found[name] = {
            str(line): sorted((test for test in tests if test in took), key=lambda t: took[t])
            for line, tests in read.contexts_by_lineno(path).items()
        }
    return found


def hunt(drawn, lines, state: State, options) -> None:
    """Judge the mutants that have no result yet, until the time is over."""
    deadline = time.monotonic() + 60 * options.minutes
    check_control(drawn[0].path, lines, state.folder)
    left = [mutant for mutant in drawn if state.of(mutant) is None]
    print(f"mutation: {len(left)} of {len(drawn)} are left", flush=True)

    def one(mutant: Mutant) -> None:
        if time.monotonic() > deadline:
            return
        at = range(mutant.first, mutant.last + 1)
        tests = {test: None for line in at for test in lines.get((mutant.path, line), ())}
        came, by = judged(mutant, list(tests), state.folder)
        state.note(mutant, came, by)
        done = sum(state.of(each) is not None for each in drawn)
        print(f"{done:4} {came:16} {mutant.name}  {by}", flush=True)

    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(one, left))


def check_control(path: str, lines: dict, folder: Path) -> None:
    """A mutant that changes nothing must survive. Else every verdict would be "killed"."""
    nothing = Mutant(path, "control", 0, 0, "", 0, 0)
    tests = next(tests for (file, _), tests in lines.items() if file == path and tests)
    came, by = judged(nothing, tests[:1], folder)
    if came != "survived":
        raise SystemExit(f"mutation: the unchanged source is {came}: {by}")


def judged(mutant: Mutant, tests: list[str], folder: Path) -> tuple[str, str]:
    """Returns the fate of a mutant, and the test or the seeds that caught it."""
    source = (ROOT / mutant.path).read_text()
    module = mutant.path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
    told = folder / f"mutant-{key_of(mutant)}.json"
    arguments = folder / f"tests-{key_of(mutant)}.txt"
    told.write_text(
        json.dumps(
            {
                "module": module,
                "path": mutant.path,
                "source": mutant.applied(source),
                "cpu_seconds": CPU_SECONDS,
            }
        )
    )
    arguments.write_text("\n".join(tests))
    try:
        if tests and (by := _by_tests(told, arguments)):
            return "killed by tests", by
        by = _by_seeds(told)
        return ("killed by seeds", by) if by else ("survived", f"{len(tests)} tests run it")
    finally:
        told.unlink()
        arguments.unlink()


def _by_tests(told: Path, arguments: Path) -> str:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--tb=no", "-p", "no:xdist"]
    command += ["-p", "no:cacheprovider", "-p", "mutation.hook", f"@{arguments}"]
    ended = _run(command, told)
    if ended is None:
        return "tests that do not end"
    if ended.returncode == 0:
        return ""
    failed = [line for line in ended.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    if ended.returncode == TESTS_FAILED and failed:
        return failed[0].split(" - ")[0].partition(" ")[2]
    if failed or "Error" in ended.stderr:
        return "an error while it is imported"
    raise SystemExit(f"pytest ended with {ended.returncode}: {ended.stdout}{ended.stderr}")


def _by_seeds(told: Path) -> str:
    program = "import mutation.hook, sys; from raftlog_sim.__main__ import main"
    program += "; sys.exit(main(sys.argv[1:]))"
    for first in range(1, SEEDS + 1, SEEDS_AT_ONCE):
        seeds = f"{first}..{first + SEEDS_AT_ONCE - 1}"
        command = [sys.executable, "-c", program, "sweep", "--seeds", seeds, "--jobs", "1"]
        ended = _run([*command, "--check-every", "0", "--no-folders"], told)
        if ended is None or ended.returncode == SEEDS_FAILED:
            return f"seeds {seeds}"
        if ended.returncode:
            raise SystemExit(f"the sweep ended with {ended.returncode}: {ended.stderr}")
    return ""


def _run(command, told: Path) -> subprocess.CompletedProcess | None:
    """Run a command; returns None when it took too long."""
    try:
        ended = subprocess.run(
            command,
            cwd=ROOT,
            env=_environment({hook.MUTANT: str(told)}),
            capture_output=True,
            text=True,
            timeout=WAIT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
    return None if -ended.returncode in (signal.SIGXCPU, signal.SIGKILL) else ended


def _environment(more: dict[str, str]) -> dict[str, str]:
    path = os.pathsep.join([str(ROOT / "scripts"), str(ROOT), str(ROOT / "sim")])
    return {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", **more}


def tell(drawn: list[Mutant], state: State) -> None:
    """Print the score with its margin, and each survivor with its diff."""
    known = [(mutant, found) for mutant in drawn if (found := state.of(mutant))]
    if not known:
        print("nothing is judged yet")
    for mutant, found in known:
        if found["came"] == "survived":
            print(f"\n{mutant.name}: survived; {found['by']}")
            print(_diff(mutant))
    for folder in (*FOLDERS, ""):
        came = Counter(
            found["came"] for mutant, found in known if mutant.path.startswith(folder or "raftlog/")
        )
        if total := came.total():
            share = 1 - came["survived"] / total
            margin = 1.96 * math.sqrt(max(share * (1 - share), 0.25 / total) / total)
            told = ", ".join(f"{number} {name}" for name, number in sorted(came.items()))
            print(
                f"{folder or 'all'}: {100 * share:.1f} % (+-{100 * margin:.1f}) of {total}: {told}"
            )


def _diff(mutant: Mutant) -> str:
    before = (ROOT / mutant.path).read_text()
    lines = difflib.unified_diff(
        before.splitlines(),
        mutant.applied(before).splitlines(),
        mutant.path,
        mutant.path,
        "",
        "",
        n=2,
        lineterm="",
    )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())

"""Compiled code is the same program: rewritten modules are compared with their sources."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import attrs
import pytest
from raftlog_sim.base.outcome import Outcome
from raftlog_sim.commands import sweep
from raftlog_sim.commands.sweep import ONLY_COMPILED
from raftlog_sim.hunting import compiled_build
from raftlog_sim.playing.seeds import drawn

from raftlog.base.errors import OperatingError
from scripts.compiling.forms import refused
from scripts.compiling.rewriting import HELPERS, HELPERS_TEXT, RewritingError, Tree

ROOT = Path(__file__).resolve().parents[3]
SHAPES = '''
from typing import ClassVar, NamedTuple, Generic, TypeVar, final

import attrs

T = TypeVar("T")


class Point(NamedTuple):
    """Where."""

    x: int
    label: object = "a  b"


@final
@attrs.define(eq=False)
class Queue:
    """Documented."""

    limit: int
    _held: list[int] = (
        attrs.Factory(list)
    )
    """Of a field; the formatter puts brackets around what is long."""
    places: "dict[int, Point]" = attrs.field(factory=dict, init=False)
    ways: list[Point] = attrs.field(factory=lambda: [Point(0)], init=False)
    closed: bool = attrs.field(default=False, init=False)
    KINDS: ClassVar[int] = 3
    late: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.late = self.limit + 1


@attrs.define(eq=False, kw_only=True)
class Box(Generic[T]):
    item: T
    times: int = 2


@attrs.frozen
class Options:
    name: str
    steps: tuple[int, ...] = attrs.field(converter=tuple)
    note: str = attrs.field(default="none", eq=False, repr=False)
    table: dict[str, int] = attrs.field(init=False, eq=False)

    @table.default
    def _by_name(self) -> dict[str, int]:
        return {self.name: len(self.steps)}
'''
USES = """
import attrs

from shapes import Options, Point
from shapes import Point as Place
import shapes


def moved(options: Options) -> Options:
    return attrs.evolve(options, name="moved")


def points() -> list[Point]:
    given = (3, "c")
    return [Point(1), Place(label="b", x=2), shapes.Point(*given), Point._make(given)]


def among(value: int, more: list[int], unused: int) -> bool:
    del unused
    return value in (0, *more)


def caught(what: object) -> str:
    try:
        return str(int(what))
    except ValueError as error:
        return f"value {error.args[0][:7]}"
    except TypeError as error:
        said = {"error": error}
        return f"type {type(said['error']).__name__} {error!r:.9} error" + str(error)[:3]


def shown(what: object, *, error: object = None) -> str:
    try:
        return [1][what]
    except IndexError as error:
        return shown("ä", error=error)
    except TypeError as error:
        said = f"ä{type(error).__name__}: {error!r:.9} {{error}} {error.args[0]:>{len(str(error))}}"
        more = f"{what} {str(error)==repr(error)}" "error" f" {'error'} {[error][0]}"; given = error
        return "ä" + repr(given) + said + more if what else shown(9, error=error)
"""


def imported(folder: Path, text_of) -> dict[str, ModuleType]:
    """`shapes` and `uses` as they are in a folder, which no later import finds."""
    folder.mkdir()
    for name in ("shapes", "uses"):
        (folder / f"{name}.py").write_text(text_of(name))
    sys.path.insert(0, str(folder))
    try:
        return {name: importlib.import_module(name) for name in ("shapes", "uses")}
    finally:
        sys.path.remove(str(folder))
        for name in ("shapes", "uses"):
            sys.modules.pop(name, None)


@pytest.fixture
def both(tmp_path, monkeypatch):
    """The modules as written and as rewritten."""
    helpers = ModuleType(HELPERS)
    exec(HELPERS_TEXT, helpers.__dict__)
    monkeypatch.setitem(sys.modules, HELPERS, helpers)
    monkeypatch.setattr("raftlog.base._compiled", helpers, raising=False)
    texts = {"shapes": SHAPES, "uses": USES}
    sources = {}
    for name, text in texts.items():
        sources[name] = tmp_path / f"{name}.txt"
        sources[name].write_text(text)
    tree = Tree(sources)
    return (
        imported(tmp_path / "written", texts.__getitem__),
        imported(tmp_path / "rewritten", tree.rewritten),
    )


def told(modules: dict[str, ModuleType]) -> list[object]:
    """Returns everything that a user can see of these modules."""
    shapes, uses = modules["shapes"], modules["uses"]
    queue, other = shapes.Queue(4), shapes.Queue(limit=4, held=[1])
    queue.places[1] = shapes.Point(1)
    options = shapes.Options("n", [1, 2])
    same, else_ = shapes.Options("n", (1, 2), note="x"), shapes.Options("m", (1,))
    moved = uses.moved(options)
    seen = [
        repr(queue), repr(other), queue == other, queue.late, shapes.Queue.KINDS,
        shapes.Queue(1)._held is shapes.Queue(1)._held, queue.closed,
        repr(shapes.Box(item="i")), repr(options), options == same, hash(options) == hash(same),
        options == else_, options == ("n", (1, 2)), moved.name, moved.steps, moved.note,
        moved.table, uses.points(), [type(each).__name__ for each in uses.points()],
        uses.among(0, [], 1), uses.among(7, [7], 1), uses.among(8, [7], 1),
        uses.caught("1"), uses.caught("one"), uses.caught(None),
        [(each.name, str(each.type), each.init) for each in attrs.fields(shapes.Options)],
        [each.default for each in attrs.fields(shapes.Options)][:-1], attrs.asdict(options),
        attrs.fields(shapes.Options).name.type is str,
        uses.shown("a"), uses.shown(""), uses.shown(0),
    ]  # fmt: skip
    for call in (lambda: shapes.Box("i"), shapes.Queue, shapes.Point):
        with pytest.raises(TypeError):
            call()
    return seen


def test_rewritten_classes_do_what_attrs_made_them_do(both):
    written, rewritten = both
    assert told(rewritten) == told(written)
    assert not hasattr(rewritten["shapes"].Queue, "__attrs_attrs__")
    assert hasattr(rewritten["shapes"], "_new_Point")


def test_what_attrs_is_told_and_nobody_knows_is_refused(tmp_path):
    path = tmp_path / "odd.py"
    for told_, what in (
        ("@attrs.define(eq=False, order=True)\nclass Odd:\n    x: int\n", "order"),
        ("@attrs.frozen\nclass Odd:\n    x: int = attrs.field(validator=print)\n", "validator"),
    ):
        path.write_text(f"import attrs\n\n\n{told_}")
        with pytest.raises(RewritingError, match=what):
            Tree({"odd": path}).rewritten("odd")


HANDLERS = """
def f():
    try:
        g()
    except KeyError as error:
        pass
    except ValueError as error:
        {}
"""


@pytest.mark.parametrize(
    "body",
    [
        "g(lambda error: error)",
        "import error",
        'g(f"{error=}")',
        'g(f"{len(error)=}")',
        'g(f"{1:error} {error}")',
        "g(f\"{f'{error}'}\")",
    ],
)
def test_a_handler_that_cannot_be_renamed_is_refused(tmp_path, body):
    path = tmp_path / "odd.py"
    path.write_text(HANDLERS.format(body))
    with pytest.raises(RewritingError, match=r"odd:7: .* name it otherwise"):
        Tree({"odd": path}).rewritten("odd")


REFUSED = {
    "for x in xs:\n    xs = [x]": "xs is bound again",
    "for x in xs:\n    if x:\n        xs += [x]": "xs is bound again",
    "for xs in xs:\n    pass": "xs is bound again",
    "for x in xs:\n    del xs": "xs is bound again",
    "for x in xs:\n    try:\n        f()\n    except E as xs:\n        pass": "xs is bound again",
    "for i in range(0, n):\n    n -= 1": "n is bound again",
    "for i, x in enumerate(xs):\n    f(xs := [])": "xs is bound again",
    "for x, (i, y) in zip(xs, enumerate(reversed(ys))):\n    ys = xs": "ys is bound again",
    "for x in cast(T, xs):\n    xs = f()": "xs is bound again",
    "for x in d.items():\n    with f() as d:\n        pass": "d is bound again",
    "[(i, n := n - 1) for i in range(n)]": "n is bound again",
    "{i: j for i in range(n) if i for j in f(n := 3)}": "n is bound again",
    "f(x, (x := 5))": "x is read before",
    "f(a=x + 1, b=g(x := 5))": "x is read before",
    "x.f((x := 5))": "x is read before",
    "a = x + (x := 5)": "x is read before",
    "if x < (x := 5):\n    pass": "x is read before",
    "x += (x := 5)": "x is read before",
    "f([x, (x := 5)])": "x is read before",
    "f({1: x, 2: (x := 5)})": "x is read before",
    "def g(it):\n    yield next(it)": "next(...) in a generator",
    "f(next(it) for x in xs)": "next(...) in a generator",
    "def g():\n    try:\n        yield 1\n    finally:\n        f()": "a generator that is left",
    "def g():\n    with f():\n        yield from h()": "a generator that is left",
}
TAKEN = (
    "for x in xs:\n    f(xs)\nxs = []",
    "for x in f(xs):\n    xs = x",
    "for x in xs.copy():\n    xs = x",
    "for x in [*xs]:\n    xs = x",
    "for x in xs:\n    f(xs.y)\n    xs.y = 3\nelse:\n    xs = []",
    "[y for x in xs if (y := x * 2) > 3]",
    "f((x := 5), x)",
    "a = x is None or (x := f(x))",
    "a = x if (x := f()) else None",
    "f(y, (x := 5), [x for x in y])",
    "def g(it):\n    yield next(it, None)",
    "def g(it):\n    return next(it)",
    "def g(it):\n    def h():\n        yield 1\n    return next(it)",
    "@contextmanager\ndef g():\n    try:\n        yield 1\n    finally:\n        f()",
    "def g():\n    try:\n        yield 1\n    except E:\n        f()",
    "def g():\n    with f() as file:\n        x = h(file)\n    yield x",
)


@pytest.mark.parametrize("text", REFUSED)
def test_what_compiles_to_something_else_is_refused(text):
    found = refused(f"\n{text}\n")
    assert [each.what.startswith(REFUSED[text]) for each in found] == [True]
    assert found[0].line > 1


@pytest.mark.parametrize("text", TAKEN)
def test_what_compiles_to_what_it_says_is_not_refused(text):
    assert refused(text) == []


def test_no_compiled_module_says_what_compiles_to_something_else():
    compiling("build.check_forms()")


def compiling(code: str, *arguments: str) -> None:
    """Runs code of the scripts, which import each other as no test can."""
    subprocess.run(
        [sys.executable, "-c", f"import sys; from compiling import build; {code}", *arguments],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'scripts'}:{ROOT}:{ROOT / 'sim'}"},
        check=True,
    )


def rewritten_tree(folder: Path) -> None:
    """Product and simulator, rewritten."""
    code = "from pathlib import Path; build.copy_rewritten(Path(sys.argv[1]))"
    compiling(code, str(folder))


@pytest.mark.slow
def test_the_rewritten_product_gives_the_same_traces(tmp_path):
    """As Python: what the rewriting alone would change, without a compiler."""
    rewritten_tree(tmp_path / "tree")
    for seed in (3, 5, 9):
        command = ["run", "--seed", str(seed), "--no-folder", "--format", "json"]
        done = subprocess.run(
            [sys.executable, "-m", "raftlog_sim", *command],
            env={**os.environ, "PYTHONPATH": str(tmp_path / "tree")},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert json.loads(done.stdout)["trace_hash"] == drawn(seed, "swarm").play().trace_hash


TOY_SUMS = """
def less(one: int, other: int) -> int:
    return one - 1 if one > other else one
"""
TOY_USES = """
import sums

def total(count: int) -> int:
    return sum([sums.less(each, 900) for each in range(count)])
"""
TUNING = """
import subprocess, sys
from compiling import build

extensions = build.c_sources(["sums.py", "uses.py"], "0")
for more in (build.COUNTING, build.COUNTED):
    build.compile_c(extensions, more)
    told = subprocess.run([sys.executable, "-c", "import uses; print(uses.total(1000), uses)"])
    assert told.returncode == 0
"""


@pytest.mark.slow
@pytest.mark.needs_command("cc")
@pytest.mark.needs_command("Python.h")
def test_a_tuned_build_counts_and_uses_what_it_counted(tmp_path):
    (tmp_path / "mypy.ini").write_text("[mypy]\n")
    (tmp_path / "sums.py").write_text(TOY_SUMS)
    (tmp_path / "uses.py").write_text(TOY_USES)
    done = subprocess.run(
        [sys.executable, "-c", TUNING],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'scripts'}:{ROOT}:{ROOT / 'sim'}"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["499401", "499401"]
    assert "cpython" in done.stdout
    assert {path.name for path in (tmp_path / ".build").rglob("*.gcda")} >= {
        "__native_sums.gcda",
        "__native_uses.gcda",
    }


@pytest.mark.soak
@pytest.mark.timeout(3000)
@pytest.mark.needs_command("cc")
@pytest.mark.needs_command("Python.h")
def test_the_compiled_product_gives_the_same_traces(tmp_path):
    """Each seed is played again by the sources, under another hash seed."""
    script = [sys.executable, str(ROOT / "scripts" / "compile")]
    subprocess.run([*script, "--optimise", "0", "--out", str(tmp_path / "compiled")], check=True)
    sweep = ["sweep", "--seeds", "1..24", "--jobs", "1", "--check-every", "1", "--format", "json"]
    done = subprocess.run(
        [sys.executable, "-m", "raftlog_sim", *sweep, "--compiled", str(tmp_path / "compiled")],
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'sim'}"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    told_ = json.loads(done.stdout)
    assert (told_["seeds"], told_["failed"], told_["disagreed"]) == (24, 0, []), done.stdout


def test_only_a_build_of_these_sources_is_used(tmp_path):
    with pytest.raises(OperatingError, match="no compiled build") as raised:
        compiled_build.check(tmp_path)
    assert str(tmp_path) not in raised.value.do, "it may be anybody's folder"
    (tmp_path / "one.so").touch()
    compiled_build.say_what(tmp_path, compiled_build.sources_digest(), 1)
    compiled_build.check(tmp_path)
    (tmp_path / "one.so").unlink()
    with pytest.raises(OperatingError, match="has 0 libraries of 1"):
        compiled_build.check(tmp_path)
    compiled_build.say_what(tmp_path, "of others", 1)
    with pytest.raises(OperatingError, match="other sources") as raised:
        compiled_build.check(tmp_path)
    assert raised.value.do == f"run scripts/compile --out {tmp_path}"
    said = json.loads((tmp_path / "compiled.json").read_text())
    for content in ("", "[]", json.dumps({**said, "python": "cpython-27"})):
        (tmp_path / "compiled.json").write_text(content)
        with pytest.raises(OperatingError, match=r"no compiled build|compiled for cpython-27"):
            compiled_build.check(tmp_path)


@pytest.mark.parametrize("tool", ["_compile.py", "_bench.py"])
def test_what_is_no_compiled_build_is_neither_removed_nor_measured(tool, tmp_path):
    """`scripts/compile --out ~` emptied the home folder, and an error message had advised it."""
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "thesis.txt").write_text("years of work")
    (tmp_path / "link").symlink_to(kept)
    (tmp_path / "file").touch()
    words = ["--out"] if tool == "_compile.py" else ["simulator", "--rounds", "1", "--compiled"]
    for name in ("kept", "link", "file"):
        done = subprocess.run(
            [sys.executable, str(ROOT / "scripts" / tool), *words, str(tmp_path / name)],
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'scripts'}:{ROOT}:{ROOT / 'sim'}"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout) == (64 if tool == "_compile.py" else 1, "")
        assert str(tmp_path) in done.stderr
        assert len(done.stderr.splitlines()) <= 2, "no traceback"
    assert (kept / "thesis.txt").read_text() == "years of work"
    assert {each.name for each in tmp_path.iterdir()} == {"kept", "link", "file"}


class Told:
    """A case that gives this outcome."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome

    def play(self) -> Outcome:
        return self.outcome


@pytest.mark.parametrize(
    ("compiled", "sources", "failure", "agreed"),
    [
        ("", "", "", True),
        ("", "history-lost: x", "", False),  # hidden by compiled code
        ("order: 1 after 2", "order: 3 after 4", "order: 3 after 4", True),
        ("TypeError: int object expected", "", f"{ONLY_COMPILED}: TypeError: int object expected",
         False),
    ],
)  # fmt: skip
def test_what_compiled_code_says_is_held_against_the_sources(
    compiled, sources, failure, agreed, monkeypatch
):
    def outcome(failure: str) -> Outcome:
        return Outcome(seed=1, failure=failure, trace_hash="same", events=9, simulated_ns=9,
                       document={"failure": failure}, verdict={}, history="")  # fmt: skip

    monkeypatch.setattr(sweep, "drawn", lambda *_: Told(outcome(compiled)))
    monkeypatch.setattr(
        sweep,
        "played_elsewhere",
        lambda *_: {"digest": outcome(sources).digest, "failure": sources},
    )
    row = sweep.run_seed(1, "swarm", "brokers", "", True, True)
    assert (row.failure, row.agreed) == (failure, agreed)
    unchecked = sweep.run_seed(1, "swarm", "brokers", "", False, True)
    assert unchecked.failure == failure


def test_runs_are_the_same_when_all_that_is_seen_of_them_is():
    one = drawn(3, "swarm").play()
    others = [
        attrs.evolve(one, history=one.history + "\n"),
        attrs.evolve(one, verdict={**one.verdict, "verdict": "invalid"}),
        attrs.evolve(one, document={**one.document, "acknowledged": 0}),
        attrs.evolve(one, probes={}),
        attrs.evolve(one, failure="order: 1 after 2"),
        attrs.evolve(one, failure="stuck: nothing"),
    ]
    assert len({each.digest for each in (one, *others)}) == 7
    named = [attrs.evolve(one, failure=f"order: {line} after 2").digest for line in (1, 77)]
    assert named[0] == named[1]

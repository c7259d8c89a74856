"""The page in a real browser: every failing class, a passing run, a long run; no error in the
console.

One headless Chromium opens a driver page that loads every report in a frame of its own, reads it
back, presses keys in it, and writes what it found as JSON. Screenshots go to build/screenshots.
"""

import json
import re
import subprocess
from pathlib import Path

import pytest

from raftlog.base.limits import REPORT_BYTES_MAX
from raftlog.verify import Header, judge
from raftlog.verify.report.page import RunFolder, render
from tests.verify.sample_runs import black_box, hostile, long_run, nobody, simulated
from tests.verify.test_classes import CASES
from tests.verify.writing import op, written

pytestmark = [pytest.mark.slow, pytest.mark.needs_command("chromium")]

SHOTS = Path(__file__).resolve().parents[2] / "build" / "screenshots"
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--enable-logging=stderr",
    "--virtual-time-budget=20000",
    "--run-all-compositor-stages-before-draw",
]
DRIVER = Path(__file__).with_name("report_driver.html")


def chromium(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    profile = tmp_path / f"profile-{len(list(tmp_path.iterdir()))}"
    command = ["chromium", *FLAGS, f"--user-data-dir={profile}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)


def errors_in(output: str) -> list[str]:
    """Console lines of the pages; Chromium's own chatter about the machine is not ours."""
    return [line for line in output.splitlines() if "CONSOLE" in line]


def pages(folder: Path) -> dict[str, str]:
    """File name -> class or kind."""
    made = {}

    def add(kind, text, run=None, **more):
        page = render(judge(text.splitlines(keepends=True), **more), run or RunFolder(name=kind))
        assert len(page.encode()) < REPORT_BYTES_MAX
        name = re.sub(r"\W", "-", kind) + ".html"
        (folder / name).write_text(page, encoding="utf-8")
        made[name] = kind

    for name, (options, operations, _, _, _) in CASES.items():
        add(name, written(*operations, **options), allowed=())
    wrong = [op(0, "write", (1, 2), 5, 5, key="x"), op(1, "read", (3, 4), None, None, key="x")]
    add("model", written(*wrong, header=Header(source="sim", seed=3, model="register")))
    for kind, lose in (("passing", False), ("simulated", True)):
        text, run = simulated(lose=lose)
        add(kind, text, run)
    add("blackbox", *black_box())
    add("nobody", *nobody())
    add("hostile", *hostile())
    add("long", long_run(100_000))
    return made


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    made = pages(folder)
    driver = folder / "driver.html"
    text = DRIVER.read_text(encoding="utf-8")
    driver.write_text(text.replace("NAMES", json.dumps(list(made))), encoding="utf-8")
    run = chromium(folder, "--allow-file-access-from-files", "--dump-dom", driver.as_uri())
    assert errors_in(run.stderr) == []
    match = re.search(r'<pre id="found">(.*?)</pre>', run.stdout, re.S)
    assert match, run.stdout[-2000:] + run.stderr[-2000:]
    text = match.group(1)
    for escaped, plain in (("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")):
        text = text.replace(escaped, plain)
    SHOTS.mkdir(parents=True, exist_ok=True)
    for name in ("simulated.html", "passing.html", "blackbox.html", "long.html"):
        shot = SHOTS / name.replace(".html", ".png")
        chromium(
            folder, "--window-size=1300,4000", f"--screenshot={shot}", (folder / name).as_uri()
        )
        assert shot.stat().st_size > 50_000
    return {made[name]: result for name, result in json.loads(text).items()}


@pytest.mark.parametrize("name", [*CASES, "model"])
def test_each_failing_class_is_on_its_page(name, found):
    page = found[name]
    assert page["ready"] == "yes"
    assert "FAIL" in page["headline"]
    assert name in page["classes"]
    assert name in page["text"]
    assert page["operations"], "the witness"
    assert page["accused"] >= 1
    assert any(line.startswith("raftlog sim replay runs/") for line in page["commands"])


def test_the_passing_run(found):
    page = found["passing"]
    assert "PASS" in page["headline"]
    assert page["classes"] == []
    assert page["accused"] == 0
    assert page["sections"][0] == "proved"
    assert page["sections"][-1] == "grids"
    assert page["open"] == 0, "grids are folded"
    assert any("acknowledged records: none lost" in line for line in page["claims"])


def test_the_failing_simulated_run_has_every_section(found):
    page = found["simulated"]
    assert page["sections"] == [
        "story",
        "diagram",
        "strips",
        "partitions",
        "classes",
        "proved",
        "invariants",
        "plots",
        "shrink",
        "manifest",
    ]
    assert "raftlog sim replay runs/20261121T100000-sim-42" in page["commands"]


def test_a_black_box_run_shows_its_faults_behind_each_partitions_clients(found):
    page = found["blackbox"]
    assert "PASS" in page["headline"]
    assert page["sections"] == [
        *("proved", "story", "diagram", "partitions", "classes", "plots", "manifest", "grids")
    ]
    assert page["bands"] == 2 * ["fault: kill n1", "fault: isolate n2 n3"]
    assert page["beyond"] >= 1, "a send that hangs runs to the edge"
    assert page["commands"] == [
        "python -m jepsen_style_tests run --workload append --nemesis isolate --time-limit 12 "
        "--seed 7 --client confluent --linearizable --set raftlog.lease.enable=true",
        "raftlog verify elsewhere/blackbox",
        "raftlog verify --check-report report.html elsewhere/blackbox",
    ]


def test_commands_are_never_a_runs_own_words(found):
    page = found["hostile"]
    assert "FAIL" in page["headline"]
    assert page["commands"] == [
        "raftlog verify RUNFOLDER",
        "raftlog verify --check-report report.html RUNFOLDER",
    ]
    assert "\u202e" not in page["text"]
    assert r"\u202e" in page["text"]
    assert page["title"] != "owned"


def test_a_failing_run_without_clients_has_its_picture(found):
    page = found["nobody"]
    assert "FAIL: election-safety" in page["headline"]
    assert page["sections"][:2] == ["story", "diagram"]
    assert "no client did anything" in page["text"]
    assert page["marks"] >= 4
    assert "n1: down" in " ".join(page["roles"])


def test_the_long_run_is_windowed(found):
    page = found["long"]
    assert "PASS" in page["headline"]
    assert page["bars"] == 300
    assert "300 of 100,003 operations" in page["text"]


def test_keys_work_and_everything_that_takes_focus_has_a_name(found):
    for name, page in found.items():
        assert page["unlabelled"] == 0, name
        assert page["zoomed"], name
        assert page["themes"] == ["dark", "light"], name
        assert page["jumped"] == "H2", name
        if page["accused"]:
            assert page["focused"], name
            assert page["tip"], name
            assert (page["kept"], page["letGo"]) == (1, 0), name


def test_a_picture_is_one_stop_for_tab_and_arrows_walk_in_it(found):
    """Every bar, arrow and tick was a stop of its own: thousands before the next section."""
    for name, page in found.items():
        if page["accused"]:
            last = page["marks"] - 1
            there = [0, 0, min(1, last), last, last, max(0, last - 1)]
            assert page["walk"][1:] == there, name
            assert page["stops"] == 1, name


def test_what_is_accused_is_in_sight_at_once(found):
    """A box began at its top, and the failure lay below, or to the right, out of sight."""
    for name, page in found.items():
        assert page["inView"], name
    assert found["duplicate"]["twice"] >= 2
    assert max(found["long"]["grids"]) > 3, "columns of which much is said"


def test_nothing_sticks_out_sideways(found):
    assert {name: page["width"] for name, page in found.items() if page["width"] > 1300} == {}


def test_no_text_of_a_history_became_markup(found):
    for page in found.values():
        assert page["scripts"] == 2
        assert page["images"] == 0

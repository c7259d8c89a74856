"""The content of the report, before any browser draws it."""

import json
import re

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.limits import REPORT_BYTES_MAX
from raftlog.verify import Header, Op, judge
from raftlog.verify.report.page import RunFolder, as_block, page_data, render
from raftlog.verify.report.plots import unavailability
from raftlog.verify.report.strips import first_divergence, strips_of
from raftlog.verify.report.trace import faults_of, picture_of, trace_lines
from raftlog.verify.report.window import OPERATIONS_MAX
from tests.verify.sample_runs import MS, black_box, long_run, simulated
from tests.verify.test_classes import CASES
from tests.verify.writing import KEY, length, op, poll, send, written


def judgement_of(text, **more):
    return judge(text.splitlines(keepends=True), **more)


def block_text(page):
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    return text


def block_of(page):
    return json.loads(block_text(page))


@pytest.mark.parametrize("name", CASES)
def test_a_failing_run_names_its_class_its_witness_and_how_to_judge_again(name):
    options, operations, _, _, _ = CASES[name]
    judgement = judgement_of(written(*operations, **options), allowed=())
    data = block_of(render(judgement, RunFolder(name="20261121T1000-sim-1")))
    assert data["summary"]["headline"] == "FAIL"
    assert name in data["summary"]["failing"]
    entry = next(entry for entry in data["classes"] if entry["name"] == name)
    assert entry["witness"]["text"]
    assert entry["witness"]["operations"]
    assert data["commands"] == {
        "place": "runs/20261121T1000-sim-1", "kind": "sim", "seed": "1", "folder": True
    }  # fmt: skip
    assert 3 <= len(data["story"]) <= 6
    shown = [bar["index"] for bar in data["bars"]]
    assert all(index in shown for index in data["accused"])


def test_a_passing_run_says_what_was_checked_and_what_was_not():
    text, folder = simulated(lose=False)
    data = page_data(judgement_of(text), folder)
    assert data["summary"]["headline"] == "PASS"
    assert data["accused"] == []
    assert "None of the" in data["story"][1]
    assert "fork" in [entry["name"] for entry in data["classes"]]
    assert "hw-regression" in data["not_checked"]
    assert not {entry["name"] for entry in data["classes"]} & set(data["not_checked"])


def test_a_valid_register_is_told_in_the_words_of_its_model():
    """`None of the 1 classes`, and 32 classes of logs were `not checked`."""
    good = [op(0, "write", (1, 2), 5, 5, key="x"), op(1, "read", (3, 4), None, 5, key="x")]
    text = written(*good, header=Header(source="sim", model="register"))
    story = page_data(judgement_of(text), RunFolder())["story"]
    order = "there is an order of the operations that is legal for the model register."
    assert story[1:] == [f"On every object {order}"]


def test_processes_of_pipelining_producers_are_not_called_clients():
    sends = [send(number, (1, 2), f"k#{number}", number) for number in range(3)]
    for pipelined, who in (
        (True, "3 processes (one for each send in flight)"),
        (False, "3 clients"),
    ):
        story = page_data(judgement_of(written(*sends, pipelined=pipelined)), RunFolder())["story"]
        assert story[0].startswith(f"{who} made 3 operations")


def test_a_history_of_nothing_is_not_told_as_a_success():
    story = page_data(judgement_of(written()), RunFolder())["story"]
    assert story[1] == "Nothing in it could be judged, and that is not a pass."


def test_a_run_that_failed_its_own_check_does_not_pass_for_its_history():
    """A black-box run whose brokers did not come back had a report that said PASS: only the
    history was asked, and a value that was never read accuses no broker."""
    text, folder = black_box()
    checks = {
        "recovered": {"status": "violated", "note": "broker 2 is not ready"},
        "brokers-run": {"status": "held"},
    }
    data = page_data(judgement_of(text), attrs.evolve(folder, invariants=checks))
    assert data["summary"]["headline"] == "FAIL"
    assert data["summary"]["verdict"] == "invalid"
    assert data["summary"]["failing"] == ["recovered"]
    assert data["story"][0] == (
        "recovered, a check of the run's own, was violated. broker 2 is not ready"
    )
    held = {name: {"status": "held"} for name in checks}
    data = page_data(judgement_of(text), attrs.evolve(folder, invariants=held))
    assert data["summary"]["headline"] == "PASS"


def test_what_ended_a_run_is_told_once_and_in_full():
    """The simulator marks the invariant and says in `failure` what was wrong with it."""
    text, folder = black_box()
    run = {**folder.run, "failure": "committed-durable: entry 23 is on 1 of 3 voters"}
    checks = {"committed-durable": {"status": "violated"}}
    for invariants in (checks, {}):
        broken = attrs.evolve(folder, run=run, invariants=invariants)
        data = page_data(judgement_of(text), broken)
        assert data["summary"]["failing"] == ["committed-durable"]
        assert data["story"][0] == (
            "committed-durable, a check of the run's own, was violated. "
            "entry 23 is on 1 of 3 voters"
        )


def test_a_simulated_run_shows_everything_it_knows():
    text, folder = simulated(lose=True)
    data = page_data(judgement_of(text), folder)
    assert [fault["label"] for fault in data["faults"]] == ["kill n1", "partition n1 | n2 n3"]
    facts = dict(data["summary"]["facts"])
    assert (facts["seed"], facts["trace hash"], facts["events"]) == ("42", "9f2c33aa", "1842")
    assert facts["simulated time"] == "3000.000 ms"
    fates = {message["fate"] for message in data["messages"]}
    assert fates == {"delivered", "dropped"}
    roles = {lane["id"]: [one["role"] for one in lane["segments"]] for lane in data["lanes"]}
    assert roles["n1"] == ["leader", "down", "follower"]
    assert data["strips"][0]["divergence"] == 29
    assert data["invariants"] == [{"name": "ElectionSafety", "status": "held", "checked": "1842"}]
    assert data["probes"] == [["install-late", 0], ["vote-split", 3]]
    assert data["shrink"]["steps"][0] == [1842, 12]
    assert {plot["title"] for plot in data["plots"]} == {
        "Latency",
        "Unavailability",
        "Realtime lag",
        "Unseen",
    }
    grid = data["partitions"][0]
    assert grid["conflicts"] == [20]
    assert any(row["accused"] for row in grid["rows"])


def test_a_long_run_is_windowed_and_small():
    judgement = judgement_of(long_run(20_000))
    assert judgement.verdict.verdict == "valid"
    page = render(judgement, RunFolder(name="long"))
    data = block_of(page)
    assert len(page.encode()) < REPORT_BYTES_MAX / 2
    assert data["window"]["shown"] == len(data["bars"]) == OPERATIONS_MAX
    assert data["window"]["total"] == 20_003
    assert data["window"]["note"] == "around the first fault"


def test_the_window_is_around_the_failure():
    sends = [send(0, (10 * n, 10 * n + 5), f"#{n}", n) for n in range(2_000)]
    stale = length(1, "end", (15_000, 15_001), 700)
    text = written(*sends, stale, read_consistency="linearizable")
    data = page_data(judgement_of(text), RunFolder())
    assert data["window"]["note"] == "around the first failure"
    assert len(data["bars"]) == OPERATIONS_MAX
    accused = [bar for bar in data["bars"] if bar["accused"]]
    assert [bar["f"] for bar in accused] == ["send", "end"]


def test_points_lie_inside_their_intervals_and_follow_the_log():
    text, folder = simulated(lose=False)
    bars = page_data(judgement_of(text), folder)["bars"]
    sends = [bar for bar in bars if bar["f"] == "send"]
    assert all(bar["start"] <= bar["point"] <= bar["end"] for bar in sends)
    in_log = sorted(sends, key=lambda bar: int(bar["label"].split("@")[1]))
    assert [bar["point"] for bar in in_log] == sorted(bar["point"] for bar in sends)


@given(st.text(max_size=200))
def test_data_can_never_end_its_script(text):
    block = as_block({"x": text})
    assert "<" not in block
    assert ">" not in block
    assert json.loads(block) == {"x": text}


@pytest.mark.parametrize(
    "evil", ["</script><script>alert(1)</script>", "<!--<script>", "\ud800", "\u2028", "]]>"]
)
def test_a_hostile_history_stays_text(evil):
    judgement = judgement_of(written(send(0, (1, 2), evil, 0), poll(1, (3, 4), (0, evil + "!"))))
    clean = judgement_of(written(send(0, (1, 2), "#1", 0), poll(1, (3, 4), (0, "#2"))))
    folder = RunFolder(name=evil, run={"commands": {evil: evil}, "command": evil})
    page = render(judgement, folder)
    page.encode("utf-8")
    for opening in ("<script", "</script", "<!--"):
        assert page.count(opening) == render(clean).count(opening)


def test_an_enormous_history_still_gives_a_small_page():
    huge = "x" * 900_000
    operations = [send(n, (n, n + 3), f"{huge}#{n}", n) for n in range(6)]
    operations.append(poll(9, (20, 21), (5, f"{huge}#5")))
    folder = RunFolder(
        name="huge",
        run={"options": {str(n): huge for n in range(50)}, "commands": {"replay": "short"}},
        invariants={str(n): {"note": huge} for n in range(500)},
    )
    page = render(judgement_of(written(*operations)), folder)
    assert len(page.encode()) < REPORT_BYTES_MAX
    data = block_of(page)
    assert data["summary"]["headline"] == "FAIL"
    assert data["commands"]["place"] == "runs/huge"


def test_unknown_is_not_called_a_pass():
    calls = [op(p, "write", (0, 90), p, p, key="x") for p in range(12)]
    calls.append(op(99, "read", (91, 92), None, 77, key="x"))
    text = written(*calls, header=Header(source="import", model="register"))
    data = page_data(judgement_of(text, search_steps=50), RunFolder())
    assert data["summary"]["headline"] == "UNKNOWN"
    assert "not a pass" in data["story"][1]


def test_the_page_asks_nothing_of_the_network():
    text, folder = simulated(lose=True)
    page = render(judgement_of(text), folder)
    assert "default-src 'none'" in page
    rest = page.replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?://|@import|src=|<link[^>]+href=\"(?!data:)", rest)


def nemesis(f, at, value=None):
    return Op(at, at, "nemesis", "info", f, None, value)


@pytest.mark.parametrize(
    ("ops", "bands"),
    [
        ([nemesis("kill", 1, "n1"), nemesis("restart", 5, "n1")], [("kill n1", 1, 5)]),
        ([nemesis("kill", 1, "n1"), nemesis("restart", 5, "n2")], [("kill n1", 1, None)]),
        (
            [nemesis("kill", 1, {"nodes": ["n1", "n2"]}), nemesis("start", 5, {"node": "n2"})],
            [("kill n1 n2", 1, 5)],
        ),
        ([nemesis("start-slow", 1), nemesis("stop-slow", 3)], [("slow", 1, 3)]),
        ([nemesis("pause", 1, ["n1"]), nemesis("heal", 2)], [("pause n1", 1, None)]),
        ([nemesis("partition", 1, "n1"), nemesis("heal", 2)], [("partition n1", 1, 2)]),
        ([nemesis("clock-jump", 4, {"by": 5})], [("clock-jump by=5", 4, 4)]),
        ([nemesis("resume", 4, "n1")], []),
    ],
)
def test_faults_become_bands(ops, bands):
    assert [(one.label, one.start_ns, one.end_ns) for one in faults_of(ops)] == bands


@pytest.mark.parametrize(
    ("flows", "label"),
    [
        ([[1, 2], [2, 1], [1, 3], [3, 1]], "isolate n1"),
        ([[1, 2], [1, 3]], "isolate n1 to n2, n1 to n3"),
        ([[1, 2], [2, 1]], "isolate n1 to n2, n2 to n1"),
        ([[1, 2], [3, 1], "x"], "isolate n1 to n2, n3 to n1"),
        ([], "isolate"),
    ],
)
def test_links_that_are_cut_are_named(flows, label):
    """The band said `isolate {'flows': [[1, 2], ...`."""
    lines = [Op(0, 5, "nemesis", "info", "start-isolate", None, {"flows": flows})]
    assert [one.label for one in faults_of(lines)] == [label]


def test_no_page_has_a_number_that_a_browser_cannot_read():
    """NaN in an error, or in run.json, left the whole page empty: Python writes it into JSON."""
    lines = written(send(0, (1, 2), "k#1", 0), poll(1, (3, 4), (1, "k#1"), error="HERE"))
    strange = {"shrink": {"steps": [[float("nan"), 1], [5, 2]], "p_bug": [[1, float("inf")]]}}
    metrics = {"metrics": {"events": float("nan"), "simulated_ns": float("inf")}}
    for value in ("NaN", "[-Infinity]", '{"a": Infinity}'):
        judgement = judgement_of(lines.replace('"HERE"', value))
        page = render(judgement, RunFolder(run={**strange, **metrics}))
        for text in (block_text(page), json.dumps(judgement.verdict.document())):
            json.loads(text, parse_constant=pytest.fail)
        assert block_of(page)["shrink"]["steps"] == [[5, 2]]


def test_the_marks_nearest_to_the_witness_are_drawn():
    """The first 1,500 were, and of a long run none was left at the failure."""
    text, run = simulated(lose=True)
    last = max(op.end_ns for op in judge(text.splitlines(keepends=True)).operations)
    sends = [f"{at} n1 send to=n2 id={at} what=append" for at in range(last - 6000, last, 2)]
    page = page_data(judgement_of(text), attrs.evolve(run, trace="\n".join(sends)))
    assert page["trace"]["messages"] > len(page["messages"]) == 1500
    witness = [bar["end"] for bar in page["bars"] if bar["accused"]]
    middle = max(end for end in witness if end is not None)
    drawn = [message["start"] for message in page["messages"]]
    left = [at for at in range(last - 6000, last, 2) if at not in drawn and at <= last]
    reach = max(abs(at - middle) for at in drawn)
    assert drawn == sorted(drawn)
    assert all(abs(at - middle) >= reach - 2 for at in left)


def test_a_trace_is_read_line_by_line_and_nothing_is_guessed():
    lines, strange = trace_lines(
        "# comment\n\n5 n1 send to=n2 id=1 what=vote\n6 n2 deliver id=1\n7 n2 deliver id=1\n"
        "8 n1 send to=n3 id=2\n9 * drop id=2\n9 n3 deliver id=99\n10 n1 sync\nnonsense\n-3 n1 x\n"
        + "9" * 30
        + " n1 x\n"
    )
    assert strange == 3
    picture = picture_of(lines, 0, 100)
    assert [(m["what"], m["end"], m["fate"]) for m in picture.messages] == [
        ("vote", 6, "delivered"),
        ("vote", 7, "duplicate"),
        ("message", 9, "dropped"),
    ]
    assert [tick["name"] for tick in picture.ticks] == ["sync"]
    assert picture_of(lines, 50, 100).messages == []


def test_divergence_is_a_difference_of_terms_not_of_length():
    assert first_divergence([[[0, 5, 1]], [[0, 9, 1]]]) is None
    assert first_divergence([[[0, 5, 1], [5, 8, 2]], [[0, 4, 1], [4, 8, 2]]]) == 4


def test_strips_from_answers_say_where_nodes_disagree():
    judgement = judgement_of(
        written(
            send(0, (1, 2), "#1", 0, node="n1", term=3),
            poll(1, (3, 4), (0, "#1"), (1, "#2"), node="n1"),
            poll(2, (3, 4), (0, "#1"), (1, "#3"), node="n2"),
        )
    )
    (strip,) = strips_of({}, judgement.operations)
    assert strip["divergence"] == 1
    assert strip["nodes"][0] == {"node": "n1", "runs": [[0, 1, 3], [1, 2, None]], "committed": None}


@pytest.mark.parametrize(
    "run",
    [
        {"replicas": 5},
        {"replicas": {"a": 5}},
        {"replicas": {"a": {"n1": {"runs": [[1], "x", [1, 2, "3"]]}}}},
        {"shrink": {"steps": [[1], "x"]}},
        {"probes": {"a": "b"}, "buggify": []},
        {"metrics": [], "versions": 3, "commands": []},
        {"metrics": {"simulated_ns": "soon"}, "command": 7},
    ],
)
def test_a_strange_run_folder_costs_a_section_not_the_report(run):
    text, _ = simulated(lose=True)
    assert page_data(judgement_of(text), RunFolder(run=run))["summary"]["headline"] == "FAIL"


def test_unavailability_is_the_gap_between_acknowledged_sends():
    judgement = judgement_of(
        written(
            send(0, (0, 1 * MS), "#1", 0),
            send(0, (2 * MS, 300 * MS), "#2", 1),
            send(1, (301 * MS, 302 * MS), "#3", 2),
            send(2, 900 * MS, "#4"),
        )
    )
    assert unavailability(judgement.operations) == [[MS, 299 * MS], [302 * MS, 598 * MS]]


def test_operations_without_a_partition_do_not_break_the_page():
    data = page_data(judgement_of(written(op(0, "crash", (1, 2), None, key=None))), RunFolder())
    assert data["partitions"] == []
    assert data["bars"][0]["keys"] == []
    assert KEY not in json.dumps(data)

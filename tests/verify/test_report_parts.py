"""Parts of the report: what nodes were, what was proved, which commands are offered, windows."""

import attrs
import pytest

from raftlog.verify import Header, judge
from raftlog.verify.report.claims import claims_of, cost_of
from raftlog.verify.report.commands import commands_of
from raftlog.verify.report.lanes import segments_of
from raftlog.verify.report.page import RunFolder, page_data
from raftlog.verify.report.trace import Fault, picture_of, trace_lines
from raftlog.verify.report.window import EVENTS_MAX
from tests.verify.sample_runs import MS, black_box, hostile, nobody, simulated
from tests.verify.writing import length, op, poll, send, written


def judgement_of(text, **more):
    return judge(text.splitlines(keepends=True), **more)


def fault(name, start, end, *nodes):
    return Fault(name=name, nodes=nodes, start_ns=start, end_ns=end, label=name)


# --- lanes ----------------------------------------------------------------------------------------

TRACE = """0 n1 boot number=1
10 n1 role role=follower term=0
20 n1 role role=leader term=1
60 n1 boot number=2
70 n1 role role=follower term=2
"""


def told(*faults, trace=TRACE, window=(0, 100)):
    picture = picture_of(trace_lines(trace)[0], *window)
    found = segments_of("n1", picture, faults, *window)
    return [(one["from"], one["to"], one["role"], one["term"]) for one in found]


def test_a_killed_node_leads_nothing():
    """Its last role was drawn until the next one, so that two nodes led at once."""
    for name in ("kill", "power-loss", "wipe", "stop"):
        assert told(fault(name, 40, 60, "n1")) == [
            (0, 10, "starting", None),
            (10, 20, "follower", "0"),
            (20, 40, "leader", "1"),
            (40, 60, "down", None),
            (60, 70, "starting", None),
            (70, 100, "follower", "2"),
        ]


def test_a_paused_node_is_what_it_was_afterwards():
    trace = "10 n1 role role=leader term=3\n"
    assert told(fault("pause", 30, 50, "n1"), trace=trace)[1:] == [
        (10, 30, "leader", "3"), (30, 50, "paused", None), (50, 100, "leader", "3")
    ]  # fmt: skip


def test_a_node_that_never_came_back_is_down_to_the_end():
    assert told(fault("kill", 40, None, "n1"), trace="10 n1 role role=leader term=1\n")[-1] == (
        40, 100, "down", None
    )  # fmt: skip
    assert told(fault("kill", 40, None, "n2"), trace="10 n1 role role=leader term=1\n")[-1] == (
        10, 100, "leader", "1"
    )  # fmt: skip


def test_without_a_trace_the_nemesis_still_knows():
    assert told(fault("kill", 40, 60, "n1"), trace="") == [
        (0, 40, "unknown", None), (40, 60, "down", None), (60, 100, "unknown", None)
    ]  # fmt: skip


def test_a_window_shows_its_part_without_gaps():
    found = told(fault("kill", 40, 60, "n1"), window=(30, 65))
    assert found == [
        (30, 40, "leader", "1"), (40, 60, "down", None), (60, 65, "starting", None)
    ]  # fmt: skip


# --- windows --------------------------------------------------------------------------------------


def test_a_run_without_clients_shows_what_its_nodes_did():
    data = page_data(judgement_of(nobody()[0]), nobody()[1])
    assert data["summary"]["headline"] == "FAIL"
    assert (data["window"]["start"], data["window"]["end"]) == (0, 90 * MS)
    assert data["window"]["focus"] == 90 * MS
    assert data["story"][1] == "No client did anything while 1 fault was injected."
    assert len(data["messages"]) == 1
    lanes = {lane["id"]: [one["role"] for one in lane["segments"]] for lane in data["lanes"]}
    assert lanes["n1"] == ["starting", "leader", "down", "starting", "follower"]


def test_of_a_long_trace_without_clients_the_end_is_shown_where_the_run_failed():
    text, folder = nobody()
    trace = "".join(f"{at * MS} n1 sync\n" for at in range(2_000))
    ended = attrs.evolve(folder, trace=trace)
    assert page_data(judgement_of(text), ended)["window"]["end"] == 1_999 * MS
    assert page_data(judgement_of(text), ended)["window"]["start"] == (2_000 - EVENTS_MAX) * MS
    fine = attrs.evolve(ended, run={}, invariants={})
    assert page_data(judgement_of(text), fine)["window"]["start"] == 0


def test_the_silence_before_the_end_is_left_out():
    text, folder = nobody()
    trace = "0 n1 boot number=1\n5 n1 sync\n" + "".join(f"{900 + n} n1 sync\n" for n in range(9))
    data = page_data(judgement_of(text), attrs.evolve(folder, trace=trace))
    assert (data["window"]["start"], data["window"]["end"]) == (900, 908)


def test_a_run_that_failed_its_own_check_is_shown_at_its_end():
    sends = [send(0, (10 * n, 10 * n + 5), f"#{n}", n) for n in range(2_000)]
    folder = RunFolder(run={"failure": "order: broken"}, trace="25000 n1 sync\n")
    data = page_data(judgement_of(written(*sends, final_read=False)), folder)
    assert data["bars"][-1]["start"] == 19_990
    assert data["window"]["end"] == data["window"]["focus"] == 25_000
    header = Header(source="demo", options={"final_read": False})
    afterwards = page_data(judgement_of(written(*sends, header=header)), folder)
    assert afterwards["bars"][0]["start"] == 0, "its end is no more telling than its beginning"


# --- claims ---------------------------------------------------------------------------------------


def test_a_pass_says_what_was_proved_with_counts():
    text, _ = black_box()
    claims = claims_of(judgement_of(text))
    assert claims[:3] == [
        "59 acknowledged records: none lost, up to the last offset that anybody read",
        "59 acknowledged records: each was read before the end",
        "59 offsets on 2 partitions: one value each, and no value twice",
    ]
    assert "59 records read: each was sent" in claims
    assert "1 poll by 1 reader: none skipped a record, none went back" in claims


def test_what_was_found_or_not_checked_is_no_claim():
    lost = [send(0, (1, 2), "k#1", 0), send(0, (3, 4), "k#2", 1), poll(1, (5, 6), (1, "k#2"))]
    claims = claims_of(judgement_of(written(*lost)))
    assert not any("none lost" in claim or "before the end" in claim for claim in claims)
    assert any(claim.startswith("2 offsets on 1 partition") for claim in claims)
    sends = claims_of(judgement_of(written(*lost[:2])))
    assert not any("read" in claim for claim in sends)


def test_what_is_allowed_and_found_is_no_claim():
    twice = [send(0, (1, 2), "#1", 0), poll(1, (3, 4), (0, "#1")), poll(1, (5, 6), (0, "#1"))]
    allowed = judgement_of(written(*twice), allowed=["nonmonotonic-poll"])
    assert allowed.verdict.verdict == "valid"
    assert not any("none went back" in claim for claim in claims_of(allowed))


def test_a_failed_send_that_nobody_read_is_counted():
    failed = [
        send(0, (1, 2), "#1", 0),
        send(2, (1, 2), "#2", kind="fail"),
        poll(1, (3, 4), (0, "#1")),
    ]
    claims = claims_of(judgement_of(written(*failed)))
    assert "1 record read: each was sent, none of them by 1 send that failed" in claims


def test_a_models_claim_names_its_objects():
    header = Header(source="import", model="register")
    calls = [op(0, "write", (1, 2), 5, 5, key=key) for key in "x"]
    calls += [op(1, "read", (3, 4), None, 5, key="x"), op(2, "read", (3, 4), None, None, key="y")]
    assert claims_of(judgement_of(written(*calls, header=header))) == [
        "3 operations on 2 objects: each object has an order that is legal for a register"
    ]


# --- costs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "end", "wait"),
    [
        (0, 1, 5),  # the first call waits
        (5, 20, None),  # no call waits until 25
        (26, 40, 65),  # a call of 25 is answered at 90
        (95, 96, None),  # no call waits any more
        (200, None, None),
    ],
)
def test_a_fault_costs_the_longest_wait_around_it(start, end, wait):
    calls = [send(0, (0, 5), "#1", 0), send(0, (25, 90), "#2", 1)]
    judgement = judgement_of(written(*calls, final_read=False))
    cost = cost_of(judgement, [fault("kill", start, end, "n1")])
    assert cost["faults"][0]["unavailable"] == wait


def test_many_who_wait_at_once_are_served_when_one_is():
    calls = [send(0, (0, 100), "#1", 0), send(1, (10, 40), "#2", 1), send(2, (20, 60), "#3", 2)]
    cost = cost_of(judgement_of(written(*calls)), [fault("cut", 0, 100, "n1")])
    assert cost["faults"][0]["unavailable"] == 40
    assert cost["speed"][0]["count"] == "3"
    assert cost["speed"][0]["most"] == "100 ns"


def test_the_partition_that_waited_longest_is_named():
    """One of many partitions may stand still while the others are served."""
    calls = [send(0, (n * 10, n * 10 + 5), f"#{n}", n) for n in range(20)]
    calls += [send(1, (0, 1), "#a", 0, key="t/1"), send(1, (20, 180), "#b", 1, key="t/1")]
    cost = cost_of(judgement_of(written(*calls, final_read=False)), [fault("kill", 30, 90, "n1")])
    assert cost["faults"][0]["unavailable"] == 10
    assert cost["faults"][0]["worst"] == (160, "t/1")


def test_a_call_that_nobody_answers_waits_to_the_end():
    calls = [send(0, (0, 5), "#1", 0), send(1, 10, "#2"), length(2, "end", (300, 301), 1)]
    cost = cost_of(judgement_of(written(*calls)), [fault("cut", 50, 60, "n1")])
    assert cost["faults"][0]["unavailable"] == 291


# --- commands -------------------------------------------------------------------------------------


def test_commands_are_fields_of_known_form():
    run = {"mutant": "9b", "commands": {"replay": "rm -rf ~"}}
    assert commands_of("sim", 7, run, "runs/x-1") == {
        "place": "runs/x-1", "kind": "sim", "seed": "7", "mutant": "9b"
    }  # fmt: skip
    demo = {"command": ["raftlog", "demo", "--rows", "5000"]}
    assert commands_of("demo", 1, demo, "") == {"place": None, "kind": "demo", "rows": 5000}


@pytest.mark.parametrize(
    "place", ["-rf", "a b", "a;id", "$(id)", "a\nb", "`id`", "", "x" * 201, "é"]
)
def test_a_place_that_cannot_be_typed_safely_is_none(place):
    assert commands_of("import", None, {}, place) == {"place": None}


@pytest.mark.parametrize(
    ("source", "run"),
    [
        ("sim", {"mutant": "3; id"}),
        ("sim", {"mutant": ["3"]}),
        ("demo", {"command": ["raftlog", "demo", "--rows", "1; id"]}),
        ("demo", {"command": ["sh", "demo", "--rows", "1"]}),
        ("demo", {"command": "raftlog demo --rows 1"}),
        ("blackbox", {"options": {"workload": "a b", "nemesis": "x", "client": "y", "seconds": 1}}),
        ("blackbox", {"options": {"workload": "a", "nemesis": "x", "client": "y", "seconds": "1"}}),
        (
            "blackbox",
            {"options": {"workload": "a", "nemesis": "x", "client": "y", "seconds": 1,
                         "settings": {"a": "b;id"}}},
        ),
        ("blackbox", {"options": {"workload": "--x", "nemesis": "x", "client": "y", "seconds": 1}}),
        ("import", {"commands": {"replay": "id"}}),
    ],
)  # fmt: skip
def test_fields_of_another_form_give_no_command(source, run):
    assert "kind" not in commands_of(source, 7, run, "runs/x")


def test_a_hostile_folder_gives_no_command_and_shows_no_hidden_character():
    text, folder = hostile()
    data = page_data(judgement_of(text), folder)
    assert data["commands"] == {"place": None, "folder": True}
    assert "\u202e" not in str(data)
    assert "\x1b" not in str(data)
    assert r"\u202e\x1b[31m" in str(data["partitions"][0]["key"])


def test_the_passing_sample_begins_with_claims_and_keeps_its_grid():
    text, folder = simulated(lose=False)
    data = page_data(judgement_of(text), folder)
    assert data["claims"]
    assert data["run_claims"] == ["1 check of the run's own held, compared 1,842 times"]
    assert data["partitions"][0]["rows"]

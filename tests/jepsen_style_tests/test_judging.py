"""The judge's input from black-box runs: histories of many threads, lies that must be found, topics
as objects, registers as folds, and the contents of replicas."""

import json
import threading

import pytest

from jepsen_style_tests import control, replicas
from jepsen_style_tests.clients.face import Unknown
from jepsen_style_tests.recorder import Actor, HistoryRecorder
from jepsen_style_tests.workloads.register import Fold, partition_of
from raftlog.base.errors import OperatingError
from raftlog.verify import Header, HistoryReader, check_history

KEY = "log/0"


def recorded(tmp_path, model="log", **options):
    path = tmp_path / "history.jsonl"
    return HistoryRecorder(path, Header(source="blackbox", model=model, options=options)), path


def test_threads_share_a_history_and_info_retires_a_process(tmp_path):
    recorder, path = recorded(tmp_path, final_read=False)

    def work(number):
        actor = Actor(recorder)
        for count in range(50):
            actor.invoke("send", f"{KEY}{number}", f"#{number}-{count}")
            if count % 7 == 3:
                actor.info("lost")
            elif count % 7 == 5:
                actor.fail("refused")
            else:
                actor.ok([None, f"#{number}-{count}"])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    recorder.nemesis("kill", {"node": "n1"})
    recorder.close()
    with path.open() as lines:
        operations = list(HistoryReader(lines))
    assert [op.index for op in operations] == list(range(401))
    assert len({op.process for op in operations if op.type == "info"} - {"nemesis"}) == 4 * 7
    assert recorder.operations == 200
    assert recorder.counts["send fail"] == 4 * 7
    with path.open() as lines:
        assert check_history(lines).verdict == "unknown", "nobody was told where anything lies"


def test_gaps_are_counted_from_the_beginning_of_the_load(tmp_path):
    recorder, _ = recorded(tmp_path)
    actor = Actor(recorder)
    recorder.last_ok_ns -= 10**12
    recorder.begin()
    actor.invoke("send", KEY, "#1")
    actor.ok([0, "#1"])
    recorder.acknowledged(KEY, 0)
    recorder.load_ends()
    recorder.last_ok_ns -= 10**12
    actor.invoke("end", KEY)
    actor.ok(1)
    recorder.close()
    assert recorder.longest_gap_ns < 10**11
    assert recorder.ends == {KEY: 1}


@pytest.fixture
def healthy(tmp_path):
    """A valid history of ten records that two readers saw."""
    recorder, path = recorded(tmp_path, consumer="assign", retention="none")
    writer = Actor(recorder)
    for number in range(10):
        writer.invoke("send", KEY, f"#{number}")
        writer.ok([number, f"#{number}"])
    for _ in range(2):
        reader = Actor(recorder)
        reader.invoke("poll")
        reader.ok({KEY: [[number, f"#{number}"] for number in range(10)]})
    recorder.close()
    return path.read_text().splitlines(keepends=True)


def test_the_healthy_history_is_valid(healthy):
    assert check_history(healthy).verdict == "valid"


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        ("lost", {"lost-write", "unseen"}),
        ("doubled", {"duplicate"}),
        ("reordered", {"inconsistent-offsets", "duplicate"}),
        ("invented", {"phantom"}),
    ],
)
def test_each_lie_is_found(healthy, kind, named):
    verdict = check_history(control.corrupted(healthy, kind))
    assert verdict.verdict == "invalid"
    assert named & {result.name for result in verdict.failures()}


# --- topics ---------------------------------------------------------------------------------------


def topics(*steps):
    """A history of one topic: (f, asked, answer or None for an answer that was lost)."""
    lines = [json.dumps(Header(source="blackbox", model="topic").document())]
    for at, (f, asked, answer) in enumerate(steps):
        for kind, value in (("invoke", asked), ("info" if answer is None else "ok", answer)):
            lines.append(
                json.dumps(
                    {
                        "index": len(lines) - 1,
                        "time_ns": 10 * at + (kind != "invoke"),
                        "process": at,
                        "type": kind,
                        "f": f,
                        "key": "t",
                        "value": asked if kind == "info" else value,
                    }
                )
            )
    return check_history([line + "\n" for line in lines]).verdict


@pytest.mark.parametrize(
    "steps",
    [
        [("create", 2, "done"), ("create", 3, "exists"), ("look", None, 2)],
        [("delete", None, "missing"), ("grow", 2, "missing"), ("look", None, 0)],
        [("create", 1, "done"), ("grow", 3, "done"), ("grow", 2, "too few"), ("look", None, 3)],
        [("create", 1, "done"), ("delete", None, "done"), ("create", 4, "done")],
        [("create", 1, None), ("look", None, 1)],
        [("create", 1, None), ("look", None, 0)],
        [("create", 1, "done"), ("delete", None, None), ("create", 2, "done")],
    ],
)
def test_what_topics_may_answer(steps):
    assert topics(*steps) == "valid"


@pytest.mark.parametrize(
    "steps",
    [
        [("create", 1, "done"), ("create", 1, "done")],
        [("create", 1, "exists")],
        [("create", 1, "done"), ("delete", None, "missing")],
        [("delete", None, "done")],
        [("create", 3, "done"), ("grow", 2, "done")],
        [("create", 1, "done"), ("grow", 2, "too few")],
        [("create", 1, "done"), ("look", None, 0)],
        [("create", 1, "done"), ("delete", None, "done"), ("look", None, 1)],
        [("create", 1, "done"), ("look", None, 2)],
        [("create", 1, "nonsense")],
    ],
)
def test_what_topics_may_not_answer(steps):
    assert topics(*steps) == "invalid"


def two_deletions(*, second_begins):
    """One topic, created; two deletions that both say done, the first from 20 to 30."""
    lines = [json.dumps(Header(source="blackbox", model="topic").document())]
    events = [
        (0, 0, "invoke", "create", 1),
        (1, 0, "ok", "create", "done"),
        (20, 1, "invoke", "delete", None),
        (30, 1, "ok", "delete", "done"),
        (second_begins, 2, "invoke", "delete", None),
        (40, 2, "ok", "delete", "done"),
    ]
    for at, process, kind, f, value in sorted(events, key=lambda event: event[0]):
        fields = {"process": process, "type": kind, "f": f, "key": "t", "value": value}
        lines.append(json.dumps({"index": len(lines) - 1, "time_ns": at, **fields}))
    return check_history([line + "\n" for line in lines]).verdict


def test_two_deletions_at_once_may_both_be_done_and_one_after_the_other_not():
    """A broker that had to ask twice says done when the topic is gone, whichever request was
    faster."""
    assert two_deletions(second_begins=25) == "valid"
    assert two_deletions(second_begins=31) == "invalid"


# --- registers ------------------------------------------------------------------------------------


def record(*fields):
    return "#" + json.dumps([0, *fields])


def test_a_fold_writes_and_compares():
    fold = Fold()
    for offset, text in enumerate(
        [
            record("x", "w", 1),
            record("x", "c", 1, 2),
            record("x", "c", 1, 3),
            record("y", "c", None, 4),
        ]
    ):
        fold.take(offset, text)
    assert fold.values == {"x": 2, "y": 4}
    assert fold.matched == {1: True, 2: False, 3: True}
    assert fold.position == 4


@pytest.mark.parametrize("offset", [0, 2])
def test_a_fold_takes_no_record_twice_and_skips_none(offset):
    fold = Fold(position=1)
    with pytest.raises(Unknown, match="1 was next"):
        fold.take(offset, record("x", "w", 1))


def test_a_register_lives_in_one_partition():
    assert {partition_of(f"r{number}") for number in range(50)} == {0, 1, 2}


# --- replicas -------------------------------------------------------------------------------------


class Directories:
    """Three brokers, of which only the directories are looked at."""

    nodes = (1, 2, 3)

    @staticmethod
    def data_path(node):
        return node


def looked_at(monkeypatch, rows, *, lost_copies=False, topics=()):
    def inspect(node):
        if rows[node] is None:
            raise OperatingError("not a data directory", on=f"broker{node}")
        return {"groups": rows[node]}

    monkeypatch.setattr(replicas, "inspect", inspect)
    return replicas.compare(Directories(), lost_copies, topics)


def compared(monkeypatch, rows, *, lost_copies=False):
    found = looked_at(monkeypatch, rows, lost_copies=lost_copies)
    return {name: check["status"] for name, check in found.checks.items()}


def row(index, chain, fault=None, term=1, terms=(), committed=0, topic="aa11", partition=0):
    """A replica's log. `terms` are (term, first offset, end offset, last index, chain)."""
    named = ("term", "first_offset", "end_offset", "last_index", "end_chain")
    return {
        "group": 1 + partition,
        "path": f"groups/{topic}-{partition}-8",
        "damaged": fault is not None,
        "fault": fault,
        "last_index": index,
        "last_term": term,
        "chain": chain,
        "commit_offset": committed,
        "terms": [dict(zip(named, each, strict=True)) for each in terms],
    }


HELD = {"replicas-agree": "held", "nothing-damaged": "held"}


def test_replicas_that_end_alike_hold_the_same(monkeypatch):
    rows = {1: [row(7, "aa")], 2: [row(7, "aa")], 3: [row(6, "bb")]}
    assert compared(monkeypatch, rows) == HELD
    rows[2] = [row(7, "cc", term=2)]
    assert compared(monkeypatch, rows) == HELD, "an entry of another term may lie there"
    rows[2] = [row(7, "cc")]
    assert compared(monkeypatch, rows)["replicas-agree"] == "violated"


def test_terms_that_end_alike_hold_the_same(monkeypatch):
    """Two logs that end elsewhere once were not compared at all."""
    first = (1, 0, 5, 6, "aa")
    rows = {
        1: [row(9, "x1", term=2, terms=[first, (2, 5, 7, 9, "x1")])],
        2: [row(8, "x2", term=2, terms=[first, (2, 5, 6, 8, "x2")])],
        3: [row(6, "aa", terms=[first])],
    }
    assert compared(monkeypatch, rows) == HELD
    rows[2][0]["terms"][0]["end_chain"] = "forged"
    found = looked_at(monkeypatch, rows).checks["replicas-agree"]
    assert (found["status"], found["checked"]) == ("violated", 3)
    assert "up to index 6, term 1, n1 has chain aa and n2 forged" in found["note"]


@pytest.mark.parametrize(("committed", "status"), [((7, 6), "violated"), ((7, 5), "held")])
def test_what_is_committed_twice_has_one_term(committed, status, monkeypatch):
    """Offset 5 in term 2 here and in term 3 there: a fork once both know it to be committed."""
    one, other = committed
    rows = {
        1: [row(9, "x1", term=2, terms=[(1, 0, 5, 6, "aa"), (2, 5, 7, 9, "x1")], committed=one)],
        2: [row(8, "x2", term=3, terms=[(1, 0, 5, 6, "aa"), (3, 5, 6, 8, "x2")], committed=other)],
        3: [],
    }
    found = looked_at(monkeypatch, rows).checks["replicas-agree"]
    assert found["status"] == status
    if status == "violated":
        assert "n1 and n2 hold committed offset 5 in different terms" in found["note"]


def test_damage_counts_unless_it_was_made(monkeypatch):
    rows = {1: [row(7, "aa")], 2: [row(7, "aa", "bad CRC")], 3: None}
    assert compared(monkeypatch, rows)["nothing-damaged"] == "violated"
    assert "nothing-damaged" not in compared(monkeypatch, rows, lost_copies=True)


def test_what_replicas_hold_is_kept_for_the_report(monkeypatch):
    terms = [(1, 0, 5, 6, "aa"), (2, 5, 5, 7, "bb"), (3, 5, 9, 9, "cc")]
    held = row(9, "cc", term=3, terms=terms, committed=8)
    rows = {1: [held], 2: [row(6, "aa", terms=terms[:1], committed=5)], 3: None}
    logs = looked_at(monkeypatch, rows, topics=["log"]).logs
    assert logs == {
        "log/0": {
            "n1": {"committed": 8, "runs": [[0, 5, 1], [5, 9, 3]], "fault": None},
            "n2": {"committed": 5, "runs": [[0, 5, 1]], "fault": None},
        }
    }
    rows[3] = [row(1, "dd", topic="bb22", partition=1)]
    assert list(looked_at(monkeypatch, rows, topics=["log"]).logs) == [
        "topic aa11/0",
        "topic bb22/1",
    ]

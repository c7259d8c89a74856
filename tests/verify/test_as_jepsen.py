"""Histories that Jepsen's checker of logs fails, ours fails: transactions, and ends that are not
ok.

Four kinds passed for valid: sends that a completion names otherwise than its call, offsets that the
end of an `info` names, reads of operations that failed or may have, and histories of nothing. The
histories here are our own; what must be found follows from Jepsen's rules (the table of classes in
docs/reference/anomalies.md).
"""

import pytest

from raftlog.verify import BadHistory, intervals, judge_operations
from raftlog.verify.imports.jepsen_edn import header_for, read_ops


def judged(text):
    ops = list(read_ops(text))
    operations, nemesis = intervals(ops)
    return judge_operations(header_for(ops), operations, nemesis).verdict


def counts(text):
    found = judged(text).classes.items()
    return {name: result.count for name, result in found if result.count}


def history(*lines):
    """Each line: process, type, f, value as EDN."""
    return "\n".join(
        f"{{:index {at} :time {at} :process {process} :type :{kind} :f :{f} :value {value}}}"
        for at, (process, kind, f, value) in enumerate(lines)
    )


def both(process, f, asked, value, kind="ok"):
    return [(process, "invoke", f, asked), (process, kind, f, value)]


# --- completions that name other sends ------------------------------------------------------------

TWO = both(0, "send", "[[:send :x 1] [:send :x 2]]", "[[:send :x [5 1]] [:send :x [6 2]]]")


@pytest.mark.parametrize("more", ["", " [:poll]"])
def test_values_that_a_completion_names_are_those_that_were_sent(more):
    done = more.replace("[:poll]", "[:poll {}]")
    again = both(0, "txn", f"[[:send :x 3]{more}]", f"[[:send :x [2 :late]]{done}]")
    assert counts(history(*TWO, *again))["nonmonotonic-send"] == 1
    notes = judged(history(*TWO, *again)).notes
    assert any("operation 2" in note and "other keys or values" in note for note in notes)


def test_keys_that_a_completion_names_are_those_that_were_sent_to():
    """Value 9 was asked of y, and the completion has it in x, where another value lies."""
    moved = both(1, "txn", "[[:send :y 9] [:poll]]", "[[:send :x [5 9]] [:poll {}]]")
    assert counts(history(*TWO, *moved))["inconsistent-offsets"] == 1
    single = both(1, "send", "[[:send :y 9]]", "[[:send :x [5 9]]]")
    assert counts(history(*TWO, *single))["inconsistent-offsets"] == 1


def test_what_was_asked_and_not_completed_is_a_phantom():
    sent = both(0, "send", "[[:send :x 1]]", "[[:send :x [0 2]]]")
    read = both(1, "poll", "[[:poll]]", "[[:poll {:x [[0 1]]}]]")
    found = counts(history(*sent, *read))
    assert found["phantom"] == 1
    assert found["inconsistent-offsets"] == 1


def test_a_completion_like_its_call_gives_no_note():
    assert judged(history(*TWO)).notes == []


# --- offsets of info ------------------------------------------------------------------------------

INFO = both(0, "send", "[[:send :x 1] [:send :y 2]]", "[[:send :x [0 1]] [:send :y 2]]", "info")
OTHER = both(1, "send", "[[:send :x 3]]", "[[:send :x [0 3]]]")
SEEN = both(2, "poll", "[[:poll]]", "[[:poll {:y [[4 2]]}]]")


def test_an_info_that_was_read_lies_where_its_end_says():
    assert counts(history(*INFO, *OTHER, *SEEN))["inconsistent-offsets"] == 1


def test_an_info_that_nobody_read_lies_nowhere():
    assert "inconsistent-offsets" not in counts(history(*INFO, *OTHER))


def test_a_failed_send_lies_nowhere_whatever_its_end_says():
    failed = [(p, "fail" if k == "info" else k, f, v) for p, k, f, v in INFO]
    assert "inconsistent-offsets" not in counts(history(*failed, *OTHER))


def test_an_info_and_a_read_that_disagree_about_its_place():
    sent = both(0, "send", "[[:send :x 1]]", "[[:send :x [0 1]]]", "info")
    read = both(1, "poll", "[[:poll]]", "[[:poll {:x [[3 1]]}]]")
    assert counts(history(*sent, *read))["duplicate"] == 1


def test_a_transaction_happened_as_a_whole():
    """A read of x shows that the info transaction happened, so y happened as well, and a reader
    skipped it."""
    y = both(1, "send", "[[:send :y 5]]", "[[:send :y 5]]", "info")
    sent = both(0, "send", "[[:send :x 1] [:send :y 2]]", "[[:send :x 1] [:send :y [0 2]]]", "info")
    later = both(3, "poll", "[[:poll]]", "[[:poll {:y [[1 5]]}]]")
    seen = both(2, "poll", "[[:poll]]", "[[:poll {:x [[0 1]]}]]")
    assert "lost-write" not in counts(history(*sent, *y, *later))
    assert counts(history(*sent, *y, *later, *seen))["lost-write"] == 1


# --- reads of what did not complete ---------------------------------------------------------------

SIX = both(
    0,
    "send",
    "[" + " ".join(f"[:send :x {n}]" for n in range(6)) + "]",
    "[" + " ".join(f"[:send :x [{n} {n}]]" for n in range(6)) + "]",
)


def polled(process, kind, f, *offsets):
    pairs = " ".join(f"[{n} {n}]" for n in offsets)
    step = "[:poll]" if f == "poll" else f'[:poll] [:send :y "{kind} {offsets}"]'
    done = f"[:poll {{:x [{pairs}]}}]" + step.removeprefix("[:poll]")
    return both(process, f, f"[{step}]", f"[{done}]", kind)


@pytest.mark.parametrize("f", ["poll", "txn"])
@pytest.mark.parametrize("kind", ["fail", "info"])
def test_a_read_that_came_to_nothing_goes_on_from_the_last_that_did(f, kind):
    begin = polled(1, "ok", f, 0)
    assert counts(history(*SIX, *begin, *polled(1, kind, f, 3, 4)))["poll-skip"] == 1
    assert counts(history(*SIX, *begin, *polled(1, kind, f, 0)))["nonmonotonic-poll"] == 1
    fine = counts(history(*SIX, *begin, *polled(1, kind, f, 1, 2)))
    assert "poll-skip" not in fine
    assert "nonmonotonic-poll" not in fine


@pytest.mark.parametrize("f", ["poll", "txn"])
def test_after_a_failed_read_the_next_one_begins_where_it_did(f):
    begin = [*SIX, *polled(1, "ok", f, 0), *polled(1, "fail", f, 1, 2)]
    assert "poll-skip" not in counts(history(*begin, *polled(1, "ok", f, 1, 2, 3)))
    assert counts(history(*begin, *polled(1, "ok", f, 3)))["poll-skip"] == 1


@pytest.mark.parametrize("kind", ["ok", "fail", "info"])
def test_a_transaction_that_reads_its_own_send(kind):
    text = history(*both(0, "txn", "[[:send :x 1] [:poll]]",
                         "[[:send :x [0 1]] [:poll {:x [[0 1]]}]]", kind))  # fmt: skip
    assert counts(text)["precommitted-read"] == 1


@pytest.mark.parametrize(("keys", "count"), [("[:x :y]", 1), ("[:y]", None)])
def test_an_assign_that_leaves_a_key_out_begins_its_sends_anew(keys, count):
    assign = both(0, "assign", keys, keys)
    late = both(0, "txn", "[[:send :x 7] [:poll]]", "[[:send :x [2 7]] [:poll {}]]")
    assert counts(history(*TWO, *assign, *late)).get("nonmonotonic-send") == count


# --- cycles ---------------------------------------------------------------------------------------

MUTUAL = [
    (0, "invoke", "txn", "[[:send :x 1] [:poll]]"),
    (1, "invoke", "txn", "[[:send :y 2] [:poll]]"),
    (0, "ok", "txn", "[[:send :x [0 1]] [:poll {:y [[0 2]]}]]"),
    (1, "ok", "txn", "[[:send :y [0 2]] [:poll {:x [[0 1]]}]]"),
]
BY_WRITES = [
    (0, "invoke", "txn", "[[:send :x 1] [:send :y 3]]"),
    (1, "invoke", "txn", "[[:poll] [:send :y 2]]"),
    (0, "ok", "txn", "[[:send :x [0 1]] [:send :y [2 3]]]"),
    (1, "ok", "txn", "[[:poll {:x [[0 1]]}] [:send :y [1 2]]]"),
]


def test_a_cycle_of_reads_alone_is_not_excused_by_the_order_of_writes():
    """Jepsen allows G1c where write order is part of it; it was allowed altogether."""
    found = judged(history(*MUTUAL)).classes["G1c"]
    assert (found.status, found.count, found.allowed) == ("invalid", 1, False)
    assert found.witness.detail["edges"] == ["wr", "wr"]
    fine = judged(history(*BY_WRITES)).classes["G1c"]
    assert (fine.status, fine.count, fine.allowed) == ("valid", 1, True)


def test_who_reads_what_is_not_committed_may_allow_it():
    ops = list(read_ops(history(*MUTUAL)))
    operations, nemesis = intervals(ops)
    verdict = judge_operations(header_for(ops), operations, nemesis, always=["G1c"]).verdict
    assert verdict.classes["G1c"].allowed
    assert verdict.classes["G1c"].status == "valid"


# --- histories of nothing -------------------------------------------------------------------------


def test_a_history_of_assigns_is_unknown():
    verdict = judged(history(*both(0, "assign", "[:x]", "[:x]")))
    assert (verdict.verdict, verdict.exit_code) == ("unknown", 2)


# --- registers by key -----------------------------------------------------------------------------

KEYED = [
    *both(0, "write", "[0 3]", "[0 3]"),
    *both(0, "write", "[1 5]", "[1 5]"),
    *both(0, "cas", "[1 [5 6]]", "[1 [5 6]]"),
]


def test_a_register_for_each_key():
    verdict = judged(history(*KEYED, *both(1, "read", "[0 nil]", "[0 3]")))
    assert (verdict.verdict, verdict.budget["objects"]) == ("valid", 2)
    wrong = judged(history(*KEYED, *both(1, "read", "[1 nil]", "[1 5]")))
    assert wrong.verdict == "invalid"
    assert wrong.classes["model"].witness.key == "1"


@pytest.mark.parametrize("value", ["nil", ":timed-out", "[0 nil]"])
def test_a_completion_that_names_no_key_is_of_its_calls(value):
    lost = both(2, "write", "[0 4]", value, "info")
    verdict = judged(history(*KEYED, *lost, *both(1, "read", "[0 nil]", "[0 4]")))
    assert verdict.verdict == "valid", "it may have happened"
    assert verdict.budget["objects"] == 2


@pytest.mark.parametrize(
    "line",
    [both(1, "read", "nil", "3"), both(1, "write", "3", "3"), both(1, "write", "[0 1 2]", "nil")],
)
def test_keys_for_some_are_refused(line):
    with pytest.raises(BadHistory, match="key"):
        judged(history(*KEYED, *both(2, "read", "[0 nil]", "[0 3]"), *line))


def test_one_register_of_pairs_stays_one():
    pairs = [*both(0, "write", "[0 3]", "[0 3]"), *both(1, "read", "nil", "[0 3]")]
    verdict = judged(history(*pairs))
    assert (verdict.verdict, verdict.budget["objects"]) == ("valid", 1)

"""Where a class applies and where it does not: modes, allowances, retention, restarts, evidence."""

import pytest

from raftlog.base.errors import LocalMisuse
from raftlog.verify import BadHistory, Header
from raftlog.verify.judging.classes import CLASSES, NAMES, allowed_by_default
from tests.verify.writing import KEY, invalid, judged, length, op, poll, send, txn, witness

A, B, C, D = "k#1", "k#2", "k#3", "k#4"
OPEN_ENDED = {"final_read": False}
LINEAR = OPEN_ENDED | {"read_consistency": "linearizable"}
FOUR = [send(0, (1, 2), A, 0), send(0, (3, 4), B, 1), send(0, (5, 6), C, 2), send(0, (7, 8), D, 3)]


def status(verdict, name):
    return verdict.classes[name].status


@pytest.mark.parametrize(
    "operations",
    [
        (),
        (op(0, "assign", (1, 2), [KEY], [KEY], key=None),),
        (op(0, "crash", (1, 2), None, key=None),),
        (send(0, 1, "a"),),
        (send(0, (1, 2), "a", kind="fail"), poll(1, (3, 4))),
    ],
    ids=["empty", "assigned", "crashed", "unknown send", "failed send and empty poll"],
)
def test_a_history_that_could_show_nothing_is_unknown(operations):
    """It was valid: a run that failed before its first operation passed for a good one."""
    verdict = judged(*operations)
    assert (verdict.verdict, verdict.exit_code) == ("unknown", 2)
    assert {result.status for result in verdict.classes.values()} == {"not checked"}
    assert verdict.notes[-1].startswith("nothing was judged")


def test_one_answer_is_enough_to_judge():
    assert judged(send(0, (1, 2), "a", 0)).verdict == "valid"


def test_a_history_of_strangers_is_no_pass():
    """A register's history whose header named no model was called valid."""
    strange = [op(0, "write", (1, 2), 5, 5), op(0, "read", (3, 4), None, 6)]
    with pytest.raises(BadHistory, match="model log does not know 'write'"):
        judged(*strange)
    verdict = judged(*FOUR, *[op(9, "ping", (20 + n, 20 + n), None) for n in range(2)])
    assert verdict.exit_code == 0
    assert verdict.notes == ["operations that model log does not know were not judged: 'ping' 2"]


def test_no_polls_no_verdict_on_what_needs_them():
    verdict = judged(*FOUR)
    for name in ("lost-write", "unseen", "poll-skip", "G1a", "G1c"):
        assert status(verdict, name) == "not checked", name
    for name in ("linearizability", "duplicate", "G0"):
        assert status(verdict, name) == "valid", name


def test_a_history_that_says_it_read_everything_has_read_something():
    verdict = judged(*FOUR, final_read=True)
    assert invalid(verdict) == ["unseen"]
    assert status(verdict, "lost-write") == "not checked"
    unsure = judged(send(0, (1, 2), A, kind="info"), final_read=True)
    assert status(unsure, "unseen") == "not checked"
    assert unsure.judged_nothing


class TestModes:
    stale = (*FOUR, length(1, "end", (9, 10), 2), op(2, "empty", (9, 10), 1, 1))

    def test_lagging_reads_are_fine_where_reads_may_lag(self):
        assert invalid(judged(*self.stale, **OPEN_ENDED)) == []
        assert invalid(judged(*self.stale, **OPEN_ENDED, read_consistency="committed")) == []

    def test_and_wrong_where_they_may_not(self):
        verdict = judged(*self.stale, **LINEAR)
        assert invalid(verdict) == ["linearizability"]
        assert verdict.classes["linearizability"].count == 3, "B, C and D had returned"

    def test_a_poll_of_the_past_is_no_promise(self):
        assert invalid(judged(*FOUR, poll(1, (9, 10), (0, A)), **LINEAR)) == []

    def test_an_unknown_mode_is_refused(self):
        with pytest.raises(BadHistory, match="dirty"):
            judged(read_consistency="dirty")


class TestSessions:
    def test_another_process_may_lag_behind(self):
        verdict = judged(*FOUR, length(1, "end", (9, 10), 1), **OPEN_ENDED)
        assert status(verdict, "read-your-writes") == "valid"

    def test_a_crash_begins_a_new_session(self):
        crash = op(0, "crash", (9, 10), None, key=None)
        assert invalid(judged(*FOUR, crash, length(0, "end", (11, 12), 1), **OPEN_ENDED)) == []

    def test_empty_at_ones_own_record(self):
        verdict = judged(*FOUR, op(0, "empty", (9, 10), 3, 3), **OPEN_ENDED)
        assert invalid(verdict) == ["read-your-writes"]

    def test_a_poll_shows_how_far_the_log_reaches(self):
        reads = [poll(1, (9, 10), (0, A), (1, B), (2, C)), length(1, "end", (11, 12), 2)]
        verdict = judged(*FOUR, *reads, **OPEN_ENDED)
        assert invalid(verdict) == ["monotonic-reads"]
        assert witness(verdict, "monotonic-reads") == (2, [1, 1])

    def test_pipelining_producers_have_no_session(self):
        verdict = judged(*FOUR, length(0, "end", (9, 10), 1), **OPEN_ENDED, pipelined=True)
        assert status(verdict, "read-your-writes") == "not checked"
        assert status(verdict, "nonmonotonic-send") == "not checked"


class TestRetention:
    reads = (poll(1, (9, 10), (0, A)), length(2, "start", (11, 12), 3), poll(1, (13, 14), (3, D)))

    def test_what_log_start_passed_is_neither_lost_nor_unseen_nor_skipped(self):
        verdict = judged(*FOUR, *self.reads)
        assert invalid(verdict) == []
        assert status(verdict, "lost-write") == status(verdict, "unseen") == "valid"

    def test_what_it_did_not_pass_is(self):
        reads = [self.reads[0], length(2, "start", (11, 12), 2), self.reads[2]]
        assert invalid(judged(*FOUR, *reads)) == ["lost-write", "unseen", "poll-skip"]

    def test_log_start_as_evidence_counts_too(self):
        reads = [self.reads[0], poll(1, (13, 14), (3, D), log_start={KEY: 3})]
        assert invalid(judged(*FOUR, *reads)) == []

    def test_holes_below_log_start_still_need_a_writer(self):
        verdict = judged(send(0, (1, 2), A, 2), length(1, "start", (3, 4), 2), **OPEN_ENDED)
        assert invalid(verdict) == ["linearizability"]
        assert verdict.classes["linearizability"].count == 2

    def test_log_start_moved_back(self):
        back = [
            length(1, "start", (9, 10), 3, node="n1"),
            length(1, "start", (11, 12), 2, node="n1"),
        ]
        assert invalid(judged(*FOUR, *back, **OPEN_ENDED)) == ["log-start-overrun"]
        other = [back[0], length(1, "start", (11, 12), 2, node="n2")]
        assert invalid(judged(*FOUR, *other, **OPEN_ENDED)) == []

    def test_log_start_beyond_the_high_watermark(self):
        read = poll(1, (9, 10), log_start={KEY: 3}, hw={KEY: 2})
        assert invalid(judged(*FOUR, read, **OPEN_ENDED)) == ["log-start-overrun"]

    def test_compaction_hides_what_it_may_have_removed(self):
        reads = [poll(1, (9, 10), (0, A)), poll(1, (13, 14), (3, D))]
        verdict = judged(*FOUR, *reads, compaction=True)
        assert invalid(verdict) == []
        for name in ("lost-write", "unseen", "poll-skip", "int-poll-skip"):
            assert status(verdict, name) == "not checked"


class TestSparse:
    gaps = (send(0, (1, 2), A, 0), send(0, (3, 4), B, 5))

    def test_control_records_take_offsets(self):
        reads = [poll(1, (5, 6), (0, A)), poll(1, (7, 8), (5, B))]
        assert invalid(judged(*self.gaps, *reads, dense=False)) == []

    def test_in_a_dense_log_they_are_holes(self):
        verdict = judged(*self.gaps, **OPEN_ENDED)
        assert invalid(verdict) == ["linearizability"]
        found = verdict.classes["linearizability"]
        assert found.count == 4
        assert found.witness.detail["kind"] == "hole"
        assert (found.witness.offset, [one.process for one in found.witness.operations]) == (1, [0])

    def test_a_hole_names_the_sends_that_came_too_late(self):
        verdict = judged(send(0, (1, 2), A, 0), send(0, (3, 4), B, 2), send(9, 7, C), **OPEN_ENDED)
        assert [one.process for one in verdict.classes["linearizability"].witness.operations] == [
            0,
            9,
        ]
        late = judged(send(0, (1, 2), A, 0), send(0, (3, 4), B, 2), send(9, 4, C), **OPEN_ENDED)
        assert invalid(late) == []


class TestPolls:
    def test_a_new_assignment_restarts_the_rules_for_keys_that_left(self):
        reads = [
            poll(1, (9, 10), (0, A), (1, B)),
            poll(1, (13, 14), (0, A), (1, B), (2, C), (3, D)),
        ]
        away = op(1, "assign", (11, 12), ["t/9"], ["t/9"], key=None)
        same = op(1, "assign", (11, 12), [KEY, "t/9"], [KEY, "t/9"], key=None)
        assert invalid(judged(*FOUR, reads[0], away, reads[1])) == []
        assert invalid(judged(*FOUR, reads[0], same, reads[1])) == ["nonmonotonic-poll"]

    def test_a_poll_that_failed_moved_nothing(self):
        reads = [
            poll(1, (9, 10), (0, A)),
            poll(1, (11, 12), (1, B), kind="fail"),
            poll(1, (13, 14), (1, B), (2, C), (3, D)),
        ]
        assert invalid(judged(*FOUR, *reads)) == []

    def test_subscribed_consumers_are_allowed_what_a_rebalance_does(self):
        subscribe = op(1, "subscribe", (8, 9), [KEY], [KEY], key=None)
        reads = [poll(1, (9, 10), (0, A)), poll(1, (11, 12), (0, A), (1, B), (2, C), (3, D))]
        verdict = judged(*FOUR, subscribe, *reads, consumer="subscribe")
        assert invalid(verdict) == []
        assert verdict.classes["nonmonotonic-poll"].count == 1
        assert verdict.metrics["consumed_twice"] == 1


def evidence(process, times, value, base, producer, **more):
    return send(process, times, value, base, producer=producer, **more)


class TestEvidence:
    def test_a_new_epoch_comes_after_the_old_one(self):
        old = evidence(0, (1, 9), A, 1, [7, 0, 5])
        new = evidence(1, (1, 9), B, 0, [7, 1, 0])
        assert invalid(judged(old, new, **OPEN_ENDED)) == ["ack-regression"]
        assert invalid(judged(old, evidence(1, (1, 9), B, 0, [8, 0, 6]), **OPEN_ENDED)) == []

    def test_two_sends_of_one_sequence(self):
        sends = [evidence(0, (1, 9), A, 0, [7, 0, 5]), evidence(1, (1, 9), B, 1, [7, 0, 5])]
        assert invalid(judged(*sends, **OPEN_ENDED)) == ["duplicate-sequence"]

    def test_watermarks_of_one_node_in_real_time_only(self):
        def at(times, mark, node):
            return length(times[0], "end", times, 4, hw=mark, node=node)

        for times, node, found in (
            ((11, 12), "n1", ["hw-regression"]),
            ((10, 12), "n1", []),  # concurrent with the first
            ((11, 12), "n2", []),
        ):
            verdict = judged(*FOUR, at((9, 10), 4, "n1"), at(times, 3, node), **OPEN_ENDED)
            assert invalid(verdict) == found, (times, node)

    def test_a_watermark_that_lagged_while_asked_is_concurrent(self):
        reads = [
            length(1, "end", (9, 12), 4, hw=4, node="n1"),
            length(2, "end", (10, 11), 4, hw=2, node="n1"),
        ]
        assert invalid(judged(*FOUR, *reads, **OPEN_ENDED)) == []

    def test_another_value_below_a_reported_watermark(self):
        reads = [
            poll(1, (9, 10), (0, A), (1, B), hw={KEY: 2}),
            poll(2, (11, 12), (0, A), (1, "k#9"), hw={KEY: 2}),
        ]
        verdict = judged(*FOUR[:2], send(5, 1, "k#9"), *reads, **OPEN_ENDED)
        assert "truncated-below-hw" in invalid(verdict)
        assert witness(verdict, "truncated-below-hw") == (1, [0, 1, 2])

    def test_a_leader_may_change_within_no_term(self):
        sends = [send(0, (1, 2), A, 0, node="n1", term=1), send(0, (3, 4), B, 1, node="n2", term=2)]
        assert invalid(judged(*sends, **OPEN_ENDED)) == []

    @pytest.mark.parametrize("producer", ["x", [1, 2], [1, 2, "3"], {}])
    def test_evidence_of_the_wrong_shape(self, producer):
        with pytest.raises(BadHistory, match="producer"):
            judged(send(0, (1, 2), A, 0, producer=producer))


def commit(process, times, offset, kind="ok"):
    value = {KEY: offset} if kind == "ok" else None
    return op(process, "offset_commit", times, ["g", {KEY: offset}], value, key=None, kind=kind)


def fetch(process, times, offset):
    return op(process, "offset_fetch", times, ["g", [KEY]], {KEY: offset}, key=None)


@pytest.mark.parametrize(
    ("operations", "found"),
    [
        ([commit(0, (1, 2), 5), fetch(1, (3, 4), 5)], False),
        ([commit(0, (1, 2), 5), fetch(1, (3, 4), None)], True),
        ([commit(0, (1, 2), 5), fetch(1, (2, 4), None)], False),
        ([commit(0, (1, 2), 5), commit(0, (3, 4), 2), fetch(1, (5, 6), 2)], False),
        ([commit(0, (1, 2), 2), commit(0, (3, 4), 5), fetch(1, (5, 6), 2)], True),
        ([commit(0, (1, 9), 2), commit(1, (3, 4), 5), fetch(2, (5, 6), 2)], False),
        ([commit(0, 1, 2), commit(1, (3, 4), 5), fetch(2, (5, 6), 2)], False),
        ([commit(0, (1, 2), 2, "fail"), commit(1, (3, 4), 5), fetch(2, (5, 6), 2)], True),
        # The highest commit is excused by a lower one, the last one is not.
        (
            [
                commit(0, (1, 2), 9),
                commit(0, (3, 4), 3),
                commit(0, (5, 6), 8),
                fetch(1, (7, 8), 4),
            ],
            True,
        ),
    ],
)
def test_offset_commits(operations, found):
    verdict = judged(*operations)
    assert invalid(verdict) == (["offset-commit-regression"] if found else [])


class TestAllowances:
    def test_what_is_allowed_where(self):
        assert allowed_by_default("demo", {}) == {"int-send-skip", "owner-overlap"}
        assert "poll-skip" in allowed_by_default("sim", {"consumer": "subscribe"})
        assert "G0" in allowed_by_default("import", {})
        assert "G1c" not in allowed_by_default("import", {})
        assert "G1c-realtime" in allowed_by_default("import", {"transactions": True})

    def test_allowed_is_counted_with_its_witness(self):
        verdict = judged(*FOUR, poll(1, (9, 10), (1, B)), allowed=("lost-write", "unseen"))
        found = verdict.classes["lost-write"]
        assert (found.count, found.allowed, found.status) == (1, True, "valid")
        assert found.witness is not None
        assert verdict.exit_code == 0

    def test_an_allowed_conflict_alone_breaks_no_linearizability(self):
        operations = [send(0, (1, 2), A, 0), poll(1, (3, 4), (0, A), (1, A))]
        assert invalid(judged(*operations, allowed=())) == ["duplicate", "linearizability"]
        assert invalid(judged(*operations, allowed=("duplicate",))) == []

    def test_an_unknown_class_is_a_mistake(self):
        with pytest.raises(LocalMisuse, match="everything"):
            judged(allowed=("everything",))


def test_names_are_unique_and_every_class_is_defined():
    assert len(dict.fromkeys(NAMES)) == len(NAMES)
    assert all(entry.definition.endswith(".") and entry.needs for entry in CLASSES)


@pytest.mark.parametrize("ends", [[], {KEY: -1}, {KEY: "3"}, 5])
def test_first_ends_are_checked(ends):
    with pytest.raises(BadHistory, match="first_end"):
        judged(first_end=ends)


def test_values_are_unique_in_a_key():
    with pytest.raises(BadHistory, match="sent twice"):
        judged(send(0, (1, 2), A, 0), send(1, (3, 4), A, 1))


def test_a_value_read_from_another_partition_is_a_phantom_there():
    verdict = judged(*FOUR, poll(1, (9, 10), (0, A), key="t/1"), **OPEN_ENDED)
    assert "phantom" in invalid(verdict)
    assert verdict.classes["phantom"].witness.key == "t/1"


def test_budgets_are_named():
    sends = [send(n, 0, [f"#{n}.{at}" for at in range(2 + n % 4)]) for n in range(24)]
    last = send(90, (1, 2), "#x", 61)
    verdict = judged(*sends, last, **OPEN_ENDED)
    assert verdict.verdict in ("valid", "invalid", "unknown")
    from raftlog.verify import check_history
    from tests.verify.writing import written

    lines = written(*sends, last, **OPEN_ENDED).splitlines()
    small = check_history(lines, hole_steps=3)
    assert small.verdict == "unknown"
    assert small.exit_code == 2
    assert "3 steps" in small.classes["linearizability"].note
    assert small.document()["budget"]["exhausted"]


def test_realtime_lag_is_how_long_the_next_record_had_been_there():
    reads = [poll(1, (20, 21), (0, A)), poll(1, (30, 31), (1, B), (2, C), (3, D))]
    verdict = judged(*FOUR, *reads)
    lag = verdict.metrics["realtime_lag"]
    assert lag["series"] == [(20, 20 - 4), (30, 0)]
    assert (lag["worst_ns"], lag["median_ns"]) == (16, 16)
    unseen = verdict.metrics["unseen"]
    assert unseen["series"] == [(2, 1), (4, 2), (6, 3), (8, 4), (21, 3), (31, 0)]
    assert verdict.metrics["counts"] == {"send": {"ok": 4}, "poll": {"ok": 2}}


def test_a_transaction_counts_as_one_operation_in_several_places():
    sends = [["send", "x/0", A], ["send", "y/0", B]]
    done = [["send", "x/0", [0, A]], ["send", "y/0", [0, B]]]
    header = Header(source="import", options={"transactions": True, "final_read": False})
    verdict = judged(txn(0, (1, 9), sends, done), header=header)
    assert verdict.exit_code == 0
    assert verdict.operations == 1

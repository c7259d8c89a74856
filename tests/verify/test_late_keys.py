"""Sends to `topic/?`: the client chooses the partition, and only an answer tells it.

The story: an application that produces by key names no partition. Its calls are recorded before
they are sent, so the history cannot name one either.
"""

import pytest

from raftlog.base.errors import LocalMisuse
from raftlog.verify import BadHistory, check_history
from tests.verify.writing import judged, poll, send, written

LATE = "t/?"


def sent(process, times, value, base=None, *, to="t/0", kind="ok"):
    """A send to a partition that its answer names."""
    more = {"key": to} if kind == "ok" else {}
    one = send(process, times, value, base, key=LATE, kind=kind)
    one.fields.update(more)
    return one


def test_the_answer_names_the_partition():
    verdict = judged(
        sent(0, (1, 2), "#1", 0, to="t/3"),
        sent(0, (3, 4), "#2", 0, to="t/1"),
        poll(1, (5, 6), (0, "#1"), key="t/3"),
        poll(2, (5, 6), (0, "#2"), key="t/1"),
    )
    assert verdict.verdict == "valid"
    assert verdict.classes["lost-write"].status == "valid"


def test_a_loss_is_seen_in_the_partition_that_was_chosen():
    verdict = judged(
        sent(0, (1, 2), "#1", 0, to="t/3"),
        sent(0, (3, 4), "#2", 1, to="t/3"),
        poll(1, (5, 6), (1, "#2"), key="t/3"),
    )
    assert [each.name for each in verdict.failures()] == ["lost-write", "unseen"]


@pytest.mark.parametrize("end", [2, None])
def test_a_read_shows_where_an_unanswered_send_lies(end):
    times = (1, end) if end else 1
    verdict = judged(
        sent(0, times, "#1", kind="info"),
        poll(1, (5, 6), (0, "#1"), key="t/2"),
    )
    assert verdict.verdict == "valid"
    assert verdict.classes["phantom"].status == "valid"


def test_an_unanswered_send_may_fill_a_hole_of_any_partition():
    """Offset 0 of both partitions is claimed by no send; each has one send that may lie there."""
    both = [sent(0, (1, 2), "#1", kind="info"), sent(1, (1, 2), "#2", kind="info")]
    acked = [sent(2, (1, 2), "#3", 1, to="t/0"), sent(3, (1, 2), "#4", 1, to="t/1")]
    assert judged(*both, *acked, final_read=False).verdict == "valid"
    alone = judged(*acked, final_read=False)
    assert [each.name for each in alone.failures()] == ["linearizability"]


def test_a_failed_send_that_is_read_is_an_aborted_read():
    verdict = judged(
        sent(0, (1, 2), "#1", kind="fail"),
        poll(1, (5, 6), (0, "#1"), key="t/2"),
    )
    assert "G1a" in [each.name for each in verdict.failures()]


def test_a_value_lies_in_one_partition():
    verdict = judged(
        sent(0, (1, 2), "#1", kind="info"),
        poll(1, (5, 6), (0, "#1"), key="t/2"),
        poll(2, (5, 6), (0, "#1"), key="t/1"),
    )
    assert verdict.exit_code == 1


@pytest.mark.parametrize("to", ["u/0", "t/x", "t/", "t"])
def test_another_topic_is_no_choice(to):
    with pytest.raises(LocalMisuse, match="no partition of 't/\\?'"):
        written(sent(0, (1, 2), "#1", 0, to=to))
    text = written(sent(0, (1, 2), "#1", 0)).replace('"t/0"', f'"{to}"')
    with pytest.raises(BadHistory, match="key differ"):
        check_history(text.splitlines())


def test_a_call_that_names_its_partition_is_held_to_it():
    text = written(send(0, (1, 2), "#1", 0)).replace('"ok","f":"send","key":"t/0"', "\0")
    text = text.replace("\0", '"ok","f":"send","key":"t/1"')
    assert '"t/1"' in text
    with pytest.raises(BadHistory, match="key differ"):
        check_history(text.splitlines())

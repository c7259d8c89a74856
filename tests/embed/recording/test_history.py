"""The history itself: threads, seats, what is refused at the door, and what is still open."""

import threading

import pytest

from raftlog import verify
from raftlog.base.errors import LocalMisuse, OperatingError, WrongType, WrongValue
from raftlog.embed.recording.door import SeenRecord, by_value, identity_of
from raftlog.embed.recording.operations import Seats
from tests.embed.recording.applications import lines_of


def told(history):
    """All lines; a completion leaves with the next call, or when the judge asks."""
    history.judge()
    return lines_of(history.path)


@pytest.fixture
def history(tmp_path):
    with verify.recording(tmp_path / "history.jsonl") as history:
        yield history


def test_a_call_is_in_the_file_before_it_returns(history):
    history.begin_send(Seats(), "t", 0, "a")
    (line,) = lines_of(history.path)
    assert (line["type"], line["f"], line["key"], line["value"]) == ("invoke", "send", "t/0", "a")


def test_a_seat_is_used_again_unless_it_ended_in_info(history):
    seats = Seats()
    one = history.begin_send(seats, "t", 0, "a")
    other = history.begin_send(seats, "t", 0, "b")
    assert one.process != other.process
    one.sent("t", 0, 0)
    other.info("timeout")
    third = history.begin_send(seats, "t", 0, "c")
    fourth = history.begin_send(seats, "t", 0, "d")
    assert third.process == one.process
    assert fourth.process not in (one.process, other.process)


def test_an_operation_ends_once(history):
    one = history.begin_send(Seats(), "t", 0, "a")
    one.sent("t", 0, 0)
    one.info("timeout")
    one.sent("t", 0, 1)
    assert [line["type"] for line in told(history)] == ["invoke", "ok"]


def test_what_the_client_refused_may_be_tried_again(history):
    seats = Seats()
    one = history.begin_send(seats, "t", None, "a")
    one.fail(BufferError("queue full"))
    again = history.begin_send(seats, "t", None, "a")
    assert again is one
    again.sent("t", 2, 0)
    assert [line["type"] for line in told(history)] == ["invoke", "ok"]


def test_what_was_refused_for_good_is_fail(history):
    history.begin_send(Seats(), "t", 0, "a").fail(BufferError("queue full"))
    history.judge()
    assert [line["type"] for line in lines_of(history.path)] == ["invoke", "fail"]


def test_a_send_that_is_tried_again_is_one_send(history):
    """The application of the guide's reader tries again after a timeout. Both attempts may have
    been written, and then the record is there twice: that is for the judge to say."""
    seats = Seats()
    one = history.begin_send(seats, "t", 0, "a")
    one.info("timeout")
    history.begin_send(seats, "t", 0, "a").sent("t", 0, 1)
    history.begin(seats, "poll").ok({"t/0": [[0, "a"], [1, "a"]]})
    verdict = history.judge()
    assert [line["type"] for line in lines_of(history.path)][:2] == ["invoke", "ok"]
    assert "duplicate" in [each.name for each in verdict.failures()]


def test_a_refusal_after_a_timeout_is_not_a_refusal(history):
    seats = Seats()
    history.begin_send(seats, "t", 0, "a").info("timeout")
    history.begin_send(seats, "t", 0, "a").fail("queue full")
    (_, line) = told(history)
    assert (line["type"], line["error"]) == ("info", "timeout")


def test_an_answer_that_comes_late_counts(history):
    one = history.begin_send(Seats(), "t", 0, "a")
    one.info("the wait was cancelled")
    one.sent("t", 0, 0)
    assert [line["type"] for line in told(history)] == ["invoke", "ok"]


@pytest.mark.parametrize("end", ["ok", "open"])
def test_a_value_is_sent_once(history, end):
    one = history.begin_send(Seats(), "t", 0, "a")
    if end == "ok":
        one.sent("t", 0, 0)
    with pytest.raises(WrongValue, match=r"'a' was sent before.*identity="):
        history.begin_send(Seats(), "t", 0, "a")
    history.begin_send(Seats(), "u", 0, "a")


def test_the_end_of_the_block_is_the_end(tmp_path):
    history = verify.recording(tmp_path / "history.jsonl")
    with pytest.raises(LocalMisuse, match="with raftlog"):
        history.begin(Seats(), "poll")
    with history:
        late = history.begin_send(Seats(), "t", 0, "a")
    late.sent("t", 0, 0)  # a callback that comes too late
    assert [line["type"] for line in lines_of(history.path)] == ["invoke"]
    with pytest.raises(LocalMisuse):
        history.begin(Seats(), "poll")
    with pytest.raises(LocalMisuse, match="once"), history:
        pass
    assert history.judge().exit_code in (0, 2)


def test_where_it_cannot_be_written(tmp_path):
    with (
        pytest.raises(OperatingError, match="cannot be written"),
        verify.recording(tmp_path / "no" / "h"),
    ):
        pass


def test_many_threads_write_one_history(history):
    def work(number):
        seats = Seats()
        for at in range(50):
            one = history.begin_send(seats, "t", number, f"{number}-{at}")
            one.sent("t", number, at)
            reading = history.begin(seats, "poll")
            reading.ok({f"t/{number}": [[at, f"{number}-{at}"]]})

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    verdict = history.check()
    assert verdict.operations == 800


def test_a_failed_check_says_what_and_where(history, tmp_path):
    seats = Seats()
    for at, value in enumerate("ab"):
        history.begin_send(seats, "t", 0, value).sent("t", 0, at)
    history.begin(seats, "poll").ok({"t/0": [[1, "b"]]})
    report = tmp_path / "report.html"
    with pytest.raises(AssertionError) as caught:
        history.check(report=report)
    told = str(caught.value)
    assert told.startswith("the history is invalid\nlost-write (1): ")
    assert str(report) in told
    assert str(history.path) in told
    assert report.exists()


def test_a_test_that_reads_nothing_back_is_told_so(history):
    history.begin_send(Seats(), "t", 0, "a").sent("t", 0, 0)
    with pytest.raises(AssertionError, match=r"unseen \(1\)(.|\n)*history\.read_back\("):
        history.check()


def test_an_application_that_is_not_to_read_everything_says_so(tmp_path):
    with verify.recording(tmp_path / "history.jsonl", final_read=False) as history:
        history.begin_send(Seats(), "t", 0, "a").sent("t", 0, 0)
    assert str(history.check()) == "valid: 1 operation"


def test_a_producer_that_is_not_recorded_shows_as_a_phantom_and_is_told(history):
    history.begin(Seats(), "poll").ok({"t/0": [[0, "a"]]})
    with pytest.raises(AssertionError, match=r"phantom \(1\)(.|\n)*record every producer"):
        history.check()
    assert str(history.judge()) == "invalid: 1 operation; phantom 1, linearizability 1"


def test_clients_that_are_not_recorded_are_told(history):
    with pytest.raises(AssertionError, match=r"use the clients that raftlog\.verify\.record"):
        history.check()


# --- what tells records apart ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"abc", "abc"),
        ("abc", "abc"),
        (bytearray(b"abc"), "abc"),
        (7, 7),
        (b"\xff\x00", "bytes ff00"),
        ({"b": 1, "a": [2]}, '{"a":[2],"b":1}'),
        (True, "true"),
    ],
)
def test_values_become_texts(value, text):
    assert identity_of(SeenRecord("t", None, value, None), by_value) == text


def test_long_values_stay_different():
    one, other = (
        identity_of(SeenRecord("t", None, "x" * 500 + end, None), by_value) for end in "ab"
    )
    assert one != other
    assert len(one) < 200


@pytest.mark.parametrize(("value", "error"), [(None, WrongValue), (object(), WrongType)])
def test_what_has_no_text_is_refused_with_advice(value, error):
    with pytest.raises(error, match=r"identity=lambda record"):
        identity_of(SeenRecord("t", None, value, None), by_value)


def test_lone_surrogates_are_written(history):
    value = identity_of(SeenRecord("t", None, "\ud800", None), by_value)
    history.begin_send(Seats(), "t", 0, value).sent("t", 0, 0)
    assert told(history)[-1]["value"] == [0, value]


@pytest.mark.parametrize("client", [object(), None, "producer", dict])
def test_another_object_is_refused_by_name(history, client):
    with pytest.raises(WrongType, match="confluent-kafka, kafka-python, aiokafka or raftlog"):
        verify.record(client, history)


def test_arguments_are_checked(history, tmp_path):
    with pytest.raises(WrongType, match="history"):
        verify.record(object(), tmp_path)
    with pytest.raises(WrongType, match="identity"):
        verify.record(object(), history, identity=3)
    with pytest.raises(LocalMisuse, match="consumer"):
        verify.recording(tmp_path / "h", consumer="nobody")

"""A request is answered exactly once, or its connection has ended."""

import pytest

from raftlog.broker.front.requests import Connection, KafkaRequest
from raftlog.kafka.connection import ServerConnection
from raftlog.kafka.messages.metadata import MetadataRequest, MetadataResponse


class FakeAnswers:
    def __init__(self):
        self.replies = []
        self.hangups = []

    def reply(self, request, parts):
        self.replies.append((request.request_no, parts))

    def hang_up(self, connection, why):
        connection.end()
        self.hangups.append(why)


@pytest.fixture
def answers():
    return FakeAnswers()


@pytest.fixture
def connection():
    return Connection(1, "PLAINTEXT", "ANONYMOUS", "here", ServerConnection())


@pytest.fixture
def request_(connection, answers):
    made = KafkaRequest(connection, 0, 3, 12, 7, "c", MetadataRequest(), 100, answers)
    connection.waiting[0] = made
    return made


def test_an_answer_is_a_whole_frame_with_the_correlation_id(request_, answers):
    request_.answer(MetadataResponse())
    ((number, parts),) = answers.replies
    frame = b"".join(bytes(part) for part in parts)
    assert number == 0
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert int.from_bytes(frame[4:8], "big") == 7
    assert request_.dead


@pytest.mark.parametrize("first", ["answer", "answer_nothing", "hang_up"])
@pytest.mark.parametrize("second", ["answer", "answer_nothing", "hang_up"])
def test_two_answers_are_a_bug(request_, first, second):
    arguments = {"answer": [MetadataResponse()], "answer_nothing": [], "hang_up": ["why"]}
    getattr(request_, first)(*arguments[first])
    with pytest.raises(AssertionError):
        getattr(request_, second)(*arguments[second])


def test_an_answer_to_nobody_is_dropped(request_, connection, answers):
    connection.end()
    assert request_.dead
    request_.answer(MetadataResponse())
    assert answers.replies == []


def test_acks_0_has_a_reply_without_bytes(request_, answers):
    request_.answer_nothing()
    assert answers.replies == [(0, None)]


def test_a_hang_up_is_a_reply_without_bytes_and_the_end(request_, connection, answers):
    request_.hang_up("failed")
    assert answers.replies == [(0, None)]
    assert answers.hangups == ["failed"]
    assert connection.closed


def test_who_waits_is_told_when_the_client_goes_and_only_then(request_, connection):
    told = []
    request_.on_close(lambda: told.append("left"))
    connection.end()
    connection.end()
    assert told == ["left"]


def test_who_was_answered_is_not_told(request_, connection):
    told = []
    request_.on_close(lambda: told.append("left"))
    request_.answer(MetadataResponse())
    del connection.waiting[0]
    connection.end()
    assert told == []

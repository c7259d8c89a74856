"""Our error table against two other implementations of it."""

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode

from raftlog.kafka.error_codes import ErrorCode, error_name, is_retriable
from tests.kafka import oracles


def test_same_numbers_names_and_retriable_flags_as_kio():
    ours = {(code.value, code.name.lower(), code.retriable) for code in ErrorCode}
    theirs = {(int(code.value), code.name, code.retriable) for code in KioErrorCode}
    assert ours == theirs


def test_same_numbers_as_kafka_python():
    theirs = {code for code in oracles.KAFKA_PYTHON_ERRORS if code is not None and code >= -1}
    missing = theirs - {code.value for code in ErrorCode}
    assert not missing


def test_a_code_is_the_integer_that_goes_on_the_wire():
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER == 6
    assert int(ErrorCode.UNKNOWN_TOPIC_ID) == 100
    assert ErrorCode(6) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_every_message_is_short_plain_and_its_own():
    messages = [code.message for code in ErrorCode]
    assert len(set(messages)) == len(messages)
    assert all(0 < len(message) <= 80 and not message.endswith(".") for message in messages)


@pytest.mark.parametrize(("code", "name"), [(6, "NOT_LEADER_OR_FOLLOWER"), (9999, "error 9999")])
def test_names_of_known_and_unknown_codes(code, name):
    assert error_name(code) == name


def test_a_code_from_the_future_is_not_retried():
    assert is_retriable(6)
    assert not is_retriable(9999)
    assert not is_retriable(ErrorCode.INVALID_REQUEST)

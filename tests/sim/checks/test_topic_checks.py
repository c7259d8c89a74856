"""The checks of topics and of answers to administrators fail on wrong ones.

They keep silent where two requests are under way.
"""

from types import SimpleNamespace

import pytest
from raftlog_sim.checks.topic_checks import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    KEYS,
    TopicChecks,
)
from raftlog_sim.playing import scenario_files
from raftlog_sim.playing.simulation import simulate

from raftlog.broker.control import controller
from raftlog.kafka.codec import encode_request, encode_response
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from raftlog.kafka.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from raftlog.kafka.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from raftlog.metadata.requests import OnceRequest

NONE, EXISTS, UNKNOWN, INVALID, LATE = (
    ErrorCode.NONE,
    ErrorCode.TOPIC_ALREADY_EXISTS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.INVALID_PARTITIONS,
    ErrorCode.REQUEST_TIMED_OUT,
)
VERSIONS = {CREATE_TOPICS: 5, DELETE_TOPICS: 6, CREATE_PARTITIONS: 3}


def image(version, **counts):
    """A cluster with these topics, and how many partitions they have."""
    topics = {
        name: SimpleNamespace(name=name, topic_id=name.encode(), partitions=(None,) * count)
        for name, count in counts.items()
    }
    return SimpleNamespace(version=version, topics=topics)


def asks(checks, key, count=1, name="a", validate_only=False):
    if key == CREATE_TOPICS:
        body = CreateTopicsRequest([CreatableTopic(name, count, 1)], 0, validate_only)
    elif key == DELETE_TOPICS:
        body = DeleteTopicsRequest([DeleteTopicState(name)])
    else:
        body = CreatePartitionsRequest([CreatePartitionsTopic(name, count, None)], 0, validate_only)
    parts = encode_request(key, VERSIONS[key], 1, "c", body)
    return checks.asked(b"".join(map(bytes, parts))[4:])


def answers(checks, request, code):
    """Returns the error of `denied-rightly` in an answer of this code; None when it is not
    judged."""
    return judged(checks, request, code).get("denied-rightly")


def judged(checks, request, code):
    """Returns what each invariant finds in an answer of this code."""
    key, name = request.key, request.changes[0].name
    body = {
        CREATE_TOPICS: CreateTopicsResponse(0, [CreatableTopicResult(name, error_code=code)]),
        DELETE_TOPICS: DeleteTopicsResponse(0, [DeletableTopicResult(name, error_code=code)]),
        CREATE_PARTITIONS: CreatePartitionsResponse(0, [CreatePartitionsTopicResult(name, code)]),
    }[key]
    parts = encode_response(key, VERSIONS[key], 1, body)
    return dict(checks.answered(request, b"".join(map(bytes, parts))[4:]))


def cluster(**counts):
    checks = TopicChecks()
    for name, count in counts.items():
        asks(checks, CREATE_TOPICS, count, name)
    assert checks.show(image(1, **counts)) == ""
    checks.under_way.clear()
    return checks


@pytest.mark.parametrize(
    ("key", "there", "count", "right", "wrong"),
    [
        (CREATE_TOPICS, {}, 1, NONE, EXISTS),
        (DELETE_TOPICS, {"a": 1}, 0, NONE, UNKNOWN),
        (CREATE_PARTITIONS, {"a": 1}, 3, NONE, UNKNOWN),
        (CREATE_PARTITIONS, {"a": 1}, 3, NONE, INVALID),
    ],
)
def test_who_asks_alone_is_not_denied_what_it_did_itself(key, there, count, right, wrong):
    checks = cluster(**there)
    assert answers(checks, asks(checks, key, count), right) == ""
    assert wrong.name in answers(checks, asks(checks, key, count), wrong)


@pytest.mark.parametrize(
    ("key", "there", "count", "code"),
    [
        (CREATE_TOPICS, {"a": 1}, 1, EXISTS),
        (DELETE_TOPICS, {}, 0, UNKNOWN),
        (CREATE_PARTITIONS, {}, 3, UNKNOWN),
        (CREATE_PARTITIONS, {"a": 3}, 3, INVALID),
        (CREATE_PARTITIONS, {"a": 4}, 3, INVALID),
    ],
)
def test_what_was_so_before_may_be_said(key, there, count, code):
    checks = cluster(**there)
    assert answers(checks, asks(checks, key, count), code) == ""


def test_two_requests_at_a_time_are_not_judged():
    checks = cluster(a=1)
    first, second = asks(checks, DELETE_TOPICS), asks(checks, DELETE_TOPICS)
    assert answers(checks, first, NONE) is None
    assert answers(checks, second, UNKNOWN) is None
    assert answers(checks, asks(checks, DELETE_TOPICS, name="b"), UNKNOWN) == ""


def test_what_nobody_knows_the_end_of_is_under_way_for_ever():
    checks = cluster(a=1)
    assert answers(checks, asks(checks, DELETE_TOPICS), LATE) is None
    assert answers(checks, asks(checks, DELETE_TOPICS), UNKNOWN) is None
    assert checks.show(image(2)) == ""


def test_what_only_asks_changes_nothing():
    checks = cluster()
    for key in KEYS - {DELETE_TOPICS}:
        assert asks(checks, key, 2, validate_only=True).changes == ()
    assert checks.asked(b"\0\x13\0\5") is None
    assert "topic a was made" in checks.show(image(2, a=2))


@pytest.mark.parametrize(
    ("key", "before", "after", "what"),
    [
        (CREATE_TOPICS, {}, {"a": 2}, "made"),
        (DELETE_TOPICS, {"a": 1}, {}, "deleted"),
        (CREATE_PARTITIONS, {"a": 1}, {"a": 2}, "grown"),
    ],
)
def test_a_topic_changes_for_who_waits_for_that(key, before, after, what):
    checks = cluster(**before)
    assert f"topic a was {what} in version 2" in checks.show(image(2, **after))
    checks = cluster(**before)
    for other in KEYS - {key}:
        asks(checks, other)
    assert f"topic a was {what} in version 2" in checks.show(image(2, **after))
    checks = cluster(**before)
    request = asks(checks, key, 2)
    assert checks.show(image(2, **after)) == ""
    assert answers(checks, request, NONE) == ""
    assert checks.show(image(1, **before)) == "", "an older image is no news"
    checks.show(image(3, **before))
    assert f"topic a was {what} in version 4" in checks.show(image(4, **after))


@pytest.mark.parametrize("name", ["deleted-twice", "grown-twice"])
def test_a_controller_that_performs_again_what_it_performed(monkeypatch, name):
    def serve(self, sender, request):
        return self._serve_submit(sender, request.request)

    monkeypatch.setitem(controller._SERVE, OnceRequest, serve)
    result = simulate(scenario_files.load(name).case.schedule)
    assert result.failure_class == "denied-rightly"


@pytest.mark.parametrize(
    ("key", "there", "count", "code", "later"),
    [
        (CREATE_TOPICS, {}, 1, EXISTS, {"a": 1}),
        (CREATE_TOPICS, {}, 1, NONE, {"a": 1}),
        (DELETE_TOPICS, {"a": 1}, 0, UNKNOWN, {}),
        (DELETE_TOPICS, {"a": 1}, 0, NONE, {}),
        (CREATE_PARTITIONS, {"a": 1}, 3, UNKNOWN, {}),
        (CREATE_PARTITIONS, {"a": 1}, 3, INVALID, {"a": 3}),
        (CREATE_PARTITIONS, {"a": 1}, 3, NONE, {"a": 3}),
    ],
)
def test_who_asks_is_told_only_of_what_an_image_has_shown(key, there, count, code, later):
    """Others ask for the same and for its end at the same time; nothing is committed yet."""
    checks = cluster(**there)
    asks(checks, key, count)
    asks(checks, DELETE_TOPICS)
    assert code.name in judged(checks, asks(checks, key, count), code)["told-of-committed"]
    asked = asks(checks, key, count)
    assert checks.show(image(2, **later)) == ""
    assert judged(checks, asked, code)["told-of-committed"] == ""


def test_images_that_nobody_showed_may_have_had_anything():
    checks = cluster()
    asks(checks, CREATE_TOPICS)
    asked = asks(checks, CREATE_TOPICS)
    assert checks.show(image(3)) == ""
    assert judged(checks, asked, EXISTS)["told-of-committed"] == ""


def test_an_answer_may_say_what_was_so_when_it_was_asked():
    checks = cluster(a=1)
    asks(checks, DELETE_TOPICS)
    asked = asks(checks, CREATE_TOPICS)
    assert checks.show(image(2)) == ""
    assert judged(checks, asked, EXISTS)["told-of-committed"] == ""

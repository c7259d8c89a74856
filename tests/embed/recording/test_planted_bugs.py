"""Recorders that lie are caught: bugs are planted, and the same checks that ours passes fail.

The client is confluent-kafka's own, and no broker listens at its address.
"""

from functools import partial

import pytest
from confluent_kafka import Producer

from raftlog import verify
from raftlog.embed.recording import confluent, history, operations
from raftlog.runtime.local.ports import free_ports
from tests.embed.recording.applications import sends_of


class WatchingProducer(Producer):
    """Looks at the history at the moment in which it is asked to send."""

    def watch(self, path):
        self.path, self.found = path, []

    def produce(self, topic, value, **more):
        self.found.append([line["type"] for line in sends_of(self.path).get(value, [])])
        super().produce(topic, value, **more)


def lies_of(path):
    """Returns the untrue lines that the recorder wrote about sends that time out."""
    lies = []
    producer = WatchingProducer(
        {
            "bootstrap.servers": f"127.0.0.1:{free_ports(1)[0]}",
            "log_level": 0,
            "message.timeout.ms": 300,
        }
    )
    producer.watch(path)
    with verify.recording(path) as recording:
        recorded = verify.record(producer, recording)
        for value in ("one", "two", "three"):
            recorded.produce("orders", value)
            assert recorded.flush(30) == 0
    if producer.found != [["invoke"]] * 3:
        lies.append(f"the calls were not written before they were sent: {producer.found}")
    sends = sends_of(path)
    if any(line["type"] == "fail" for each in sends.values() for line in each):
        lies.append("a timeout was called a failure")
    if len({each[0]["process"] for each in sends.values()}) < len(sends):
        lies.append("a process went on after info")
    return lies


def test_ours_tells_the_truth(tmp_path):
    assert lies_of(tmp_path / "history.jsonl") == []


def a_timeout_is_called_a_failure(patch):
    patch.setattr(operations.RecordedCall, "info", operations.RecordedCall.fail)


def a_timeout_is_called_definite(patch):
    patch.setattr(confluent, "DEFINITE", (*confluent.DEFINITE, "_MSG_TIMED_OUT"))


def the_call_is_written_when_it_returns(patch):
    """Hold the call back, as a recorder would that calls the client first."""
    begin = history.Recording.begin_send

    class Late:
        def __init__(self, begin_now):
            self.begin_now = begin_now

        def info(self, error):
            self.begin_now().info(error)

    patch.setattr(
        history.Recording, "begin_send", lambda self, *args: Late(partial(begin, self, *args))
    )


@pytest.mark.parametrize(
    ("plant", "lie"),
    [
        (a_timeout_is_called_a_failure, "a timeout was called a failure"),
        (a_timeout_is_called_definite, "a timeout was called a failure"),
        (the_call_is_written_when_it_returns, "not written before"),
    ],
)
def test_a_planted_bug_is_caught(plant, lie, tmp_path, monkeypatch):
    plant(monkeypatch)
    lies = lies_of(tmp_path / "history.jsonl")
    assert any(lie in each for each in lies), lies

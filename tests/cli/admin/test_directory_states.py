"""Tells where replicas are that a plan wants in directories, in the words of Kafka's tool."""

import pytest

from raftlog.cli.admin.directory_states import DirectoryState
from raftlog.client.core.values import TopicPartition

ON = "Partition orders-3 on broker 1 is"


@pytest.mark.parametrize(
    ("current", "future", "state", "over", "says"),
    [
        ("/b", None, "done", True, "Reassignment of replica orders-3-1 completed successfully."),
        ("/a", "/b", "moving", False, "Reassignment of replica orders-3-1 is still in progress."),
        ("/a", "/c", "differs", False, f"{ON} being moved to log dir /c instead of /b."),
        ("/a", None, "differs", True, f"{ON} not being moved from log dir /a to /b."),
        (
            None,
            None,
            "offline",
            False,
            "Partition orders-3 is not found in any live log dir on broker 1. "
            "There is likely an offline log directory on the broker.",
        ),
    ],
)
def test_a_state_has_the_words_of_kafka(current, future, state, over, says):
    found = DirectoryState(TopicPartition("orders", 3), 1, "/b", current, future)
    assert (found.state, found.is_over, found.as_kafka_says()) == (state, over, says)

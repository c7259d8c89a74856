import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.client.blocking import BlockingClient
from raftlog.embed.pytest_plugin import (  # noqa: F401 - fixtures, as a conftest would have them
    raftlog_cluster,
    raftlog_topic,
    topic_name,
)
from raftlog.metadata.topic_names import topic_name_problem

SEEN: list[str] = []


@pytest.mark.processes
@pytest.mark.parametrize("turn", [1, 2])
def test_a_cluster_and_a_topic_of_ones_own(turn, raftlog_cluster, raftlog_topic):  # noqa: F811
    assert raftlog_topic not in SEEN
    SEEN.append(raftlog_topic)
    with BlockingClient(raftlog_cluster.bootstrap_servers) as client:
        client.create_topic(raftlog_topic)
        assert client.produce(raftlog_topic, b"%d" % turn).offset == 0


@given(st.text(max_size=300), st.text(max_size=300))
def test_names_are_allowed_and_differ(one, other):
    assert topic_name_problem(topic_name(one)) is None
    assert (topic_name(one) == topic_name(other)) == (one == other)

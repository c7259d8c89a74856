"""The witness of groups tells commits that are there from others and from none."""

import pytest
from confluent_kafka import Consumer, TopicPartition
from outsiders import topics
from outsiders.features import COMMITTED_OFFSET, FILLED_PARTITIONS, FILLED_RECORDS
from outsiders.topics import Topics

import raftlog


@pytest.fixture(scope="module")
def place():
    """The topics and groups of one client, on a cluster of three brokers."""
    with raftlog.Cluster(brokers=3) as cluster:
        made = Topics(cluster.bootstrap_servers, "kcat")
        made.make([])
        yield cluster.bootstrap_servers, made


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """Nothing is on its way here."""
    monkeypatch.setattr(topics, "PATIENCE_SECONDS", 0.0)


def commit(bootstrap, group, offsets):
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    asked = [TopicPartition("kcat-filled", number, offset) for number, offset in offsets.items()]
    consumer.commit(offsets=asked, asynchronous=False)
    consumer.close()


def test_a_group_that_stored_nothing_is_wrong(place):
    """Regression: a broker that answered OffsetCommit and stored nothing passed every cell."""
    _, seen = place
    assert seen.denial_of("group").outcome == "wrong"
    assert "committed {}, not {0: 20, 1: 20, 2: 20}" in seen.denial_of("group").said
    assert "committed {}, not {0: 4}" in seen.denial_of("commit").said


def test_a_group_that_stored_its_end_works(place):
    bootstrap, seen = place
    commit(bootstrap, "kcat-group-group", dict.fromkeys(range(FILLED_PARTITIONS), FILLED_RECORDS))
    commit(bootstrap, "kcat-commit-group", {0: COMMITTED_OFFSET})
    assert seen.denial_of("group") is None
    assert seen.denial_of("commit") is None


def test_a_group_that_stored_less_is_wrong(place):
    bootstrap, seen = place
    commit(bootstrap, "kcat-commit-group", {0: COMMITTED_OFFSET - 1})
    assert "committed {0: 3}, not {0: 4}" in seen.denial_of("commit").said


def test_a_client_that_never_commits_is_not_asked_for_commits(place):
    bootstrap, _ = place
    assert Topics(bootstrap, "kcat", commits=False).denial_of("group") is None


def test_a_group_that_was_not_deleted_is_wrong(place):
    _, seen = place
    assert seen.denial_of("delete-groups") == ("wrong", "group kcat-doomed is there")
    [deleted] = seen.admin.delete_consumer_groups(["kcat-doomed"]).values()
    deleted.result(20)
    assert seen.denial_of("delete-groups") is None


def test_the_new_protocol_in_name_alone_falls_back(place):
    """Regression: franz-go reads by the classic protocol, in silence, and the cell said works."""
    bootstrap, seen = place
    commit(bootstrap, "kcat-kip-848-group", {0: 1})
    cell = seen.denial_of("kip-848")
    assert cell.outcome == "falls back"
    assert "classic protocol" in cell.said

"""`raftlog topics export` and `import`, and `raftlog up --from`."""

import pytest

from raftlog.client.blocking import BlockingClient
from raftlog.client.core.asks import delete_records
from raftlog.client.core.values import TopicPartition
from raftlog.embed.cluster import Cluster
from tests.cli.test_local_cluster import started
from tests.embed.topic_files.exports import batch_of, write_export

pytestmark = pytest.mark.processes


@pytest.fixture
def filled(cluster):
    with BlockingClient(cluster.bootstrap_servers) as client:
        for name in ("dense", "gap"):
            client.create_topic(name, partitions=2, replication_factor=3)
            for number in range(10):
                client.send_soon(name, b"%d" % number, partition=0)
        client.flush()
        client.ask(delete_records(TopicPartition("gap", 0), 4))
        yield
        for name in ("dense", "gap"):
            client.delete_topic(name)


@pytest.mark.usefixtures("filled")
def test_what_people_and_programs_are_told(on_cluster, raftlog, tmp_path):
    done = on_cluster("topics", "export", tmp_path / "one", "dense")
    told = "exported topic dense: 2 partitions, 10 records\n"
    assert (done.code, done.out, done.err) == (0, told, "")
    both = on_cluster("topics", "export", tmp_path / "two", "dense", "gap", "--format", "json").json
    assert [(each["name"], each["records"]) for each in both["exported"]] == [
        ("dense", 10),
        ("gap", 6),
    ]
    again = on_cluster("topics", "export", tmp_path / "two", "--format", "json")
    assert (again.code, again.out) == (1, "")
    assert again.json_error["what"] == "it exists already"
    there = on_cluster("topics", "import", tmp_path / "two")
    assert (there.code, there.out) == (1, "")
    assert "topic dense" in there.err

    with Cluster(brokers=1) as another:
        servers = ("-b", another.bootstrap_servers)
        made = raftlog("topics", "import", tmp_path / "two", *servers)
        assert (made.code, made.out) == (
            0,
            "imported topic dense: 2 partitions, 10 records\n"
            "imported topic gap: 2 partitions, 6 records\n"
            "warning: offsets of gap-0 are counted from 0\n",
        )
        raftlog("topics", "delete", "dense", "gap", *servers)
        made = raftlog("topics", "import", tmp_path / "two", *servers, "--format", "json")
        renumbered = {each["name"]: each["renumbered"] for each in made.json["imported"]}
        assert renumbered == {"dense": [], "gap": [0]}
        raftlog("topics", "delete", "dense", "gap", *servers)
        nothing = raftlog("topics", "export", tmp_path / "none", *servers)
        assert (nothing.code, nothing.out) == (0, "there is no topic to export\n")
        assert raftlog("topics", "import", tmp_path / "none", *servers).code == 0


def test_a_bad_folder_is_one_clear_error(on_cluster, tmp_path):
    missing = on_cluster("topics", "import", tmp_path / "nowhere", "--format", "json")
    assert (missing.code, missing.json_error["what"]) == (1, "there is no such folder")
    folder = write_export(tmp_path / "export", {"t": [batch_of(b"v")]})
    (folder / "topics/t/0.batches").write_bytes(b"?")
    damaged = on_cluster("topics", "import", folder)
    assert damaged.code == 1
    assert "damaged" in damaged.err
    assert "t\n" not in on_cluster("topics", "list").out


def test_up_begins_with_the_topics_of_a_folder(raftlog, tmp_path):
    folder = write_export(tmp_path / "export", {"t": [batch_of(b"a", b"b")]})
    data = ("--dir", tmp_path / "data")
    up = ("up", "--brokers", 1, "--port", 0, "--detach", "--from", folder, *data)
    servers = started(*up)["bootstrap_servers"]
    try:
        assert raftlog("consume", "t", "-e", "-b", servers).out == "a\nb\n"
        twice = raftlog(*up)
        assert twice.code == 1
        assert "a cluster already" in twice.err
    finally:
        assert raftlog("down", *data).code == 0


def test_up_from_a_bad_folder_makes_nothing(raftlog, tmp_path):
    wrong = raftlog("up", "--dir", tmp_path / "data", "--from", tmp_path)
    assert wrong.code == 1
    assert "no topics were exported" in wrong.err
    assert not (tmp_path / "data").exists()
    usage = raftlog("up", "--dir", tmp_path / "data", "--from", tmp_path, "--add-broker")
    assert usage.code == 64

"""From one cluster into files, and from there into another one."""

from functools import partial
from pathlib import Path

import pytest
import trio

from raftlog.base.errors import LocalMisuse, OperatingError
from raftlog.client.blocking import BlockingClient
from raftlog.client.core.asks import delete_records, describe_configs, metadata
from raftlog.client.core.errors import KafkaError
from raftlog.client.core.values import TopicPartition
from raftlog.client.trio_driver import Client
from raftlog.embed.cluster import Cluster
from raftlog.embed.topic_files.exporting import export_topics
from raftlog.embed.topic_files.folder import Export, batches_name
from raftlog.embed.topic_files.importing import import_topics
from raftlog.records.batch import CODEC_MASK, read_header
from raftlog.records.compression import CODEC_NAMES
from tests.embed.topic_files.exports import batch_of, topic_of, write_export

pytestmark = pytest.mark.processes

HEADERS = (("trace", b"1"), ("none", None), ("trace", b""))


@pytest.fixture(scope="module")
def cluster():
    with Cluster(brokers=1, settings={"auto.create.topics.enable": "false"}) as running:
        yield running


def exported(cluster: Cluster, folder: Path, *names: str):
    async def main():
        async with Client(cluster.bootstrap_servers) as client:
            return await export_topics(client, folder, names)

    return trio.run(main)


def imported(cluster: Cluster, folder: Path):
    async def main():
        async with Client(cluster.bootstrap_servers) as client:
            return await import_topics(client, Export.open(folder))

    return trio.run(main)


def records(cluster: Cluster, topic: str, partitions: int) -> dict[int, list[tuple]]:
    """Offset, timestamp, key, value and headers of every record, by partition."""
    found: dict[int, list[tuple]] = {number: [] for number in range(partitions)}
    with BlockingClient(cluster.bootstrap_servers) as client:
        ends = client.offsets(topic, -1)
        client.assign(dict(client.offsets(topic, -2)))
        left = sum(ends.values()) - sum(client.offsets(topic, -2).values())
        while left:
            for piece in client.poll(seconds=9.0):
                for each in piece.records():
                    row = (each.offset, each.timestamp_ms, each.key, each.value, each.headers)
                    found[each.partition].append(row)
                    left -= 1
    return found


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize("codec", sorted(CODEC_NAMES))
def test_every_codec_comes_back_byte_for_byte(cluster, tmp_path, codec):
    number, topic = CODEC_NAMES[codec], f"codec-{codec}"
    options = {"compression": number, "batch_bytes": 2_000}
    with BlockingClient(cluster.bootstrap_servers, **options) as client:
        client.create_topic(topic, partitions=3, configs={"retention.ms": "-1"})
        for at in range(300):
            value = None if at % 7 == 0 else b"value %d " % at * 9
            client.send_soon(topic, value, key=b"k%d" % (at % 5), headers=HEADERS, partition=at % 2)
        client.flush()
    before = records(cluster, topic, 3)
    exported(cluster, tmp_path / "first", topic)
    codecs = {
        read_header(batch).attributes & CODEC_MASK
        for export in [Export.open(tmp_path / "first")]
        for batch in export.batches(export.manifest.topics[0], 0)
    }
    assert codecs == {number}
    with Cluster(brokers=1, fixture=tmp_path / "first") as another:
        assert records(another, topic, 3) == before
        exported(another, tmp_path / "second")
    assert files(tmp_path / "second") == files(tmp_path / "first")


def test_settings_replicas_and_partitions_are_those_of_the_topic(tmp_path):
    with Cluster(brokers=3) as three, BlockingClient(three.bootstrap_servers) as client:
        configs = {"min.insync.replicas": "2", "max.message.bytes": "5000"}
        client.create_topic("t", partitions=2, replication_factor=3, configs=configs)
        client.create_topic("u", partitions=1, replication_factor=1)
        manifest = exported(three, tmp_path / "export")
    assert [(each.name, each.replication_factor) for each in manifest.topics] == [
        ("t", 3),
        ("u", 1),
    ]
    assert manifest.topics[0].settings == configs
    with (
        Cluster(brokers=1, fixture=tmp_path / "export") as one,
        BlockingClient(one.bootstrap_servers) as client,
    ):
        (told,) = client.ask(metadata(["t"])).topics
        assert [len(each.replica_nodes) for each in told.partitions] == [1, 1]
        settings = client.ask(describe_configs(["t"]))["t"]
        own = {each.name: each.value for each in settings.values() if each.overridden}
        assert own == {"min.insync.replicas": "1", "max.message.bytes": "5000"}
        assert client.produce("t", b"taken", partition=0).offset == 0


def test_records_before_the_start_stay_behind_and_offsets_count_from_0(cluster, tmp_path):
    with BlockingClient(cluster.bootstrap_servers) as client:
        client.create_topic("gap", partitions=1)
        for number in range(20):
            client.send_soon("gap", b"%d" % number)
        client.flush()
        client.ask(delete_records(TopicPartition("gap", 0), 7))
    (topic,) = exported(cluster, tmp_path / "export", "gap").topics
    part = topic.partitions[0]
    assert (part.start_offset, part.end_offset, part.records) == (7, 20, 13)
    with Cluster(brokers=1, fixture=tmp_path / "export") as another:
        rows = records(another, "gap", 1)[0]
    assert [(row[0], row[3]) for row in rows] == [(n, b"%d" % (n + 7)) for n in range(13)]


def test_an_existing_folder_is_not_written_to(cluster, tmp_path):
    (tmp_path / "mine").write_text("precious")
    for taken in (tmp_path, tmp_path / "mine"):
        with pytest.raises(OperatingError, match="exists already"):
            exported(cluster, taken)
    assert (tmp_path / "mine").read_text() == "precious"
    with pytest.raises(OperatingError, match="cannot be written"):
        exported(cluster, tmp_path / "not" / "there")


def test_an_export_that_fails_leaves_no_folder(cluster, tmp_path):
    with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        exported(cluster, tmp_path / "export", "nowhere")
    with pytest.raises(OperatingError, match="brokers only"):
        exported(cluster, tmp_path / "export", "__consumer_offsets")
    with BlockingClient(cluster.bootstrap_servers) as client:
        client.create_topic("x" * 249)
        client.produce("x" * 249, b"v")
        (tmp_path / "deep").mkdir()
        exported(cluster, tmp_path / "deep" / "export", "x" * 249)
        client.delete_topic("x" * 249)
    assert [each.name for each in tmp_path.iterdir()] == ["deep"]


def test_a_topic_that_exists_is_refused_and_nothing_is_made(cluster, tmp_path):
    folder = write_export(tmp_path / "export", {"new": [b""], "old": [b""]})
    with BlockingClient(cluster.bootstrap_servers) as client:
        client.create_topic("old")
        with pytest.raises(OperatingError, match="exists already"):
            imported(cluster, folder)
        assert "new" not in client.topics()


def test_a_setting_that_the_cluster_refuses_makes_nothing(cluster, tmp_path):
    topics = [topic_of("fine", b""), topic_of("wrong", b"", settings={"retention.ms": "soon"})]
    manifest = {"format": "raftlog-topics", "version": 1, "topics": topics}
    folder = write_export(tmp_path / "export", {"fine": [b""], "wrong": [b""]}, manifest)
    with pytest.raises(KafkaError, match="INVALID_CONFIG"):
        imported(cluster, folder)
    with BlockingClient(cluster.bootstrap_servers) as client:
        assert not {"fine", "wrong"} & set(client.topics())


def test_an_import_that_fails_takes_back_what_it_made(cluster, tmp_path):
    large = batch_of(bytes(2_000_000))
    folder = write_export(tmp_path / "export", {"a": [batch_of(b"v")], "b": [large]})
    with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
        imported(cluster, folder)
    with BlockingClient(cluster.bootstrap_servers) as client:
        assert not {"a", "b"} & set(client.topics())


def test_a_bad_fixture_or_a_directory_with_a_cluster_founds_nothing(tmp_path):
    folder = write_export(tmp_path / "export", {"t": [batch_of(b"v")]})
    with Cluster(brokers=1, directory=tmp_path / "data", fixture=folder) as first:
        assert len(records(first, "t", 1)[0]) == 1
    with pytest.raises(OperatingError, match="a cluster already"):
        Cluster(brokers=1, directory=tmp_path / "data", fixture=folder).start()
    with Cluster(brokers=1, directory=tmp_path / "data") as again:
        assert len(records(again, "t", 1)[0]) == 1
    (folder / batches_name("t", 0)).write_bytes(b"")
    with pytest.raises(OperatingError, match="damaged"):
        Cluster(brokers=1, directory=tmp_path / "other", fixture=folder).start()
    assert not (tmp_path / "other").exists()


async def test_inside_an_event_loop(tmp_path):
    folder = write_export(tmp_path / "export", {"t": [batch_of(b"v")]})
    for processes in (False, True):
        with pytest.raises(LocalMisuse, match="async with"):
            Cluster(brokers=1, processes=processes, fixture=folder).start()
    async with Cluster(brokers=1, fixture=folder) as cluster:
        rows = await trio.to_thread.run_sync(partial(records, cluster, "t", 1))
    assert [row[3] for row in rows[0]] == [b"v"]


def test_processes_begin_with_the_topics_too(tmp_path):
    folder = write_export(tmp_path / "export", {"t": [batch_of(b"a", b"b", codec=4)]})
    with Cluster(brokers=1, processes=True, fixture=folder) as cluster:
        assert [row[3] for row in records(cluster, "t", 1)[0]] == [b"a", b"b"]

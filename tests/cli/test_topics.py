"""`raftlog topics` and `raftlog kafka-topics` against a cluster of three."""

import re

import pytest

from raftlog.cli.output.topic_view import COLLISION_WARNING, id_of_text, id_text
from raftlog.client.blocking import BlockingClient
from raftlog.client.core.asks import delete_records
from raftlog.client.core.values import TopicPartition
from raftlog.embed.cluster import Cluster

pytestmark = pytest.mark.processes

HEADER = re.compile(
    r"Topic: (\S+)\tTopicId: ([A-Za-z0-9_-]{22})\tPartitionCount: (\d+)"
    r"\tReplicationFactor: (\d+)\tConfigs: (\S*)"
)
LINE = re.compile(
    r"\tTopic: (\S+)\tPartition: (\d+)\tLeader: (\d+|none)"
    r"\tReplicas: ([\d,]+)\tIsr: ([\d,]+)\tElr: \tLastKnownElr: "
)
ENDS = re.compile(r"\tStartOffset: (\d+|-)\tEndOffset: (\d+|-)\tRecords: (\d+|-)")
LEGACY = re.compile(
    r"Topic:(\S+) PartitionCount:(\d+) ReplicationFactor:(\d+) IsInternal:(true|false)"
    r" MinInsyncReplicas:(\d+)"
)


@pytest.fixture
def kafka_topics(raftlog, cluster):
    def command(*arguments):
        servers = cluster.bootstrap_servers
        return raftlog("kafka-topics", "--bootstrap-server", servers, *arguments)

    return command


# --- topics ---------------------------------------------------------------------------------------


def test_under_format_json_there_is_one_document(on_cluster):
    """A topic that was there gave an empty list on stdout and an error on stderr."""
    form = ("--format", "json")
    assert on_cluster("topics", "create", "once", *form).json["created"][0]["name"] == "once"
    again = on_cluster("topics", "create", "once", *form)
    assert (again.code, again.out) == (1, "")
    assert "TOPIC_ALREADY_EXISTS" in again.json_error["what"]
    both = on_cluster("topics", "create", "once", "twice", *form)
    assert (both.code, both.err) == (1, "")
    assert [each["name"] for each in both.json["created"]] == ["twice"]
    assert [each["error"] for each in both.json["refused"]] == ["TOPIC_ALREADY_EXISTS"]
    fine = on_cluster("topics", "create", "once", "--if-not-exists", *form)
    assert (fine.code, fine.json["created"]) == (0, [])
    gone = on_cluster("topics", "delete", "once", "nowhere", *form)
    assert (gone.code, gone.err, gone.json["deleted"]) == (1, "", ["once"])
    assert [each["name"] for each in gone.json["refused"]] == ["nowhere"]
    assert on_cluster("topics", "delete", "twice", *form).json == {
        "version": 1,
        "deleted": ["twice"],
    }


def test_create_list_describe_alter_delete(on_cluster):
    made = on_cluster(
        "topics", "create", "life", "--partitions", 2, "--config", "min.insync.replicas=2"
    )
    assert (made.code, made.out) == (0, "created topic life\n")
    assert "life\n" in on_cluster("topics", "list").out
    told = on_cluster("topics", "describe", "life").out.splitlines()
    header = HEADER.fullmatch(told[0])
    assert header is not None
    assert header.group(1, 3, 4, 5) == ("life", "2", "3", "min.insync.replicas=2")
    assert len(told) == 3
    for line in told[1:]:
        kafkas = LINE.match(line)
        assert kafkas is not None
        assert ENDS.fullmatch(line[kafkas.end() :]).groups() == ("0", "0", "0")
    grown = on_cluster("topics", "alter", "life", "--partitions", 5)
    assert grown.code == 0
    described = on_cluster("topics", "describe", "life", "--format", "json").json["topics"][0]
    assert described["partition_count"] == 5
    assert described["overrides"] == {"min.insync.replicas": "2"}
    assert described["configs"]["cleanup.policy"] == "delete"
    assert [each["partition"] for each in described["partitions"]] == [0, 1, 2, 3, 4]
    for each in described["partitions"]:
        assert each["leader"] is None or each["leader"] in each["replicas"]
    gone = on_cluster("topics", "delete", "life", "--format", "json")
    assert gone.json["deleted"] == ["life"]
    assert "life" not in on_cluster("topics", "list", "--format", "json").json["topics"]


def test_describe_tells_where_partitions_begin_and_end(on_cluster, kafka_topics, cluster):
    """How many records lie between the ends, beside what Kafka's tool prints."""
    on_cluster("topics", "create", "ends", "--partitions", 2)
    on_cluster("produce", "ends", "--partition", 1, stdin=b"a\nb\nc\n")
    with BlockingClient(cluster.bootstrap_servers) as client:
        client.ask(delete_records(TopicPartition("ends", 1), 1))
    told = on_cluster("topics", "describe", "ends").out.splitlines()[1:]
    assert [ENDS.search(line).groups() for line in told] == [("0", "0", "0"), ("1", "3", "2")]
    (topic,) = on_cluster("topics", "describe", "ends", "--format", "json").json["topics"]
    fields = ("start_offset", "end_offset", "records")
    assert [tuple(each[field] for field in fields) for each in topic["partitions"]] == [
        (0, 0, 0),
        (1, 3, 2),
    ]
    # The shim and the older layout stay as programs know them.
    assert "Offset" not in kafka_topics("--describe", "--topic", "ends").out
    assert "Offset" not in on_cluster("topics", "describe", "ends", "--format", "legacy").out


def test_a_partition_without_a_leader_has_no_ends(raftlog):
    """It is waited for a short time, and the other partitions are told all the same."""
    with Cluster(brokers=3) as cluster:
        servers = cluster.bootstrap_servers
        made = raftlog(
            "kafka-topics", "--bootstrap-server", servers, "--create", "--topic", "half",
            "--replica-assignment", "1,2",
        )  # fmt: skip
        assert made.code == 0
        cluster.kill(1)
        told = raftlog("topics", "describe", "half", "-b", servers)
        assert told.code == 0
        ends = [ENDS.search(line).groups() for line in told.out.splitlines()[1:]]
        assert ends == [("-", "-", "-"), ("0", "0", "0")]
        json = raftlog("topics", "describe", "half", "-b", servers, "--format", "json").json
        assert [each["end_offset"] for each in json["topics"][0]["partitions"]] == [None, 0]


def test_the_older_layout(on_cluster):
    on_cluster("topics", "create", "older")
    told = on_cluster("topics", "describe", "older", "--format", "legacy").out.splitlines()
    header = LEGACY.fullmatch(told[0])
    assert header is not None
    assert header.groups() == ("older", "1", "3", "false", "1")
    assert re.fullmatch(r"\tTopic: older\tPartition: 0\tLeader: \d\tReplicas: .*\tIsr: .*", told[1])
    assert "Elr" not in told[1]


def test_created_json(on_cluster):
    (made,) = on_cluster(
        "topics", "create", "j", "--partitions", 4, "--replication-factor", 1, "--format", "json"
    ).json["created"]
    assert (made["name"], made["partition_count"], made["replication_factor"]) == ("j", 4, 1)
    assert id_text(id_of_text(made["topic_id"])) == made["topic_id"]


def test_a_compacted_topic_warns_when_it_is_made_and_described(on_cluster, kafka_topics):
    """The warning of describe goes to stderr: programs read Kafka's layout on stdout."""
    told = "cleanup.policy=compact: compaction does not run yet; every record is kept"
    config = ("--replication-factor", 3, "--config", "cleanup.policy=compact")
    made = on_cluster("topics", "create", "changes", *config)
    assert (made.code, made.out) == (0, f"created topic changes\nwarning: {told}\n")
    described = on_cluster("topics", "describe", "changes")
    assert described.err == f"warning: topic changes: {told}\n"
    assert len(described.out.splitlines()) == 2
    (topic,) = on_cluster("topics", "describe", "changes", "--format", "json").json["topics"]
    assert topic["warnings"] == [told]
    by_shim = kafka_topics("--describe", "--topic", "changes")
    assert by_shim.err == f"WARNING: topic changes: {told}\n"
    on_cluster("topics", "create", "plain-one")
    assert on_cluster("topics", "describe", "plain-one").err == ""


def test_what_is_there_or_not_is_an_error_unless_said_otherwise(on_cluster):
    on_cluster("topics", "create", "twice")
    again = on_cluster("topics", "create", "twice")
    assert again.code == 1
    assert "TOPIC_ALREADY_EXISTS" in again.err
    assert on_cluster("topics", "create", "twice", "--if-not-exists").code == 0
    missing = on_cluster("topics", "delete", "never", "--format", "json")
    assert missing.code == 1
    assert "UNKNOWN_TOPIC_OR_PARTITION" in missing.json_error["what"]
    assert on_cluster("topics", "delete", "never", "--if-exists").code == 0
    assert on_cluster("topics", "describe", "never").code == 1


@pytest.mark.parametrize("name", ["a/b", "..", "x" * 250, "", "a\0b", "é"])
def test_impossible_names_are_refused(name, on_cluster, raftlog):
    assert on_cluster("topics", "create", name).code == 1
    assert on_cluster("topics", "describe", name).code == 1


@pytest.mark.parametrize(
    "wrong",
    [
        ("--replication-factor", 4),
        ("--config", "no.such.setting=1"),
        ("--config", "min.insync.replicas=x"),
        ("--config", "unclean.leader.election.enable=true"),
    ],
)
def test_impossible_topics_are_refused(wrong, on_cluster):
    ran = on_cluster("topics", "create", "impossible", *wrong)
    assert ran.code == 1
    assert "impossible" in ran.err


def test_shrinking_is_refused(on_cluster):
    on_cluster("topics", "create", "wide", "--partitions", 3)
    for number in (1, 3):
        ran = on_cluster("topics", "alter", "wide", "--partitions", number)
        assert ran.code == 1
        assert "INVALID_PARTITIONS" in ran.err


def test_wrong_usage(on_cluster, raftlog):
    assert on_cluster("topics", "create").code == 64
    assert on_cluster("topics", "create", "t", "--partitions", 0).code == 64
    assert on_cluster("topics", "create", "t", "--config", "novalue").code == 64
    assert raftlog("topics", "list", "-b", "host:port:x").code == 1


# --- kafka-topics ---------------------------------------------------------------------------------


def test_kafkas_own_words(kafka_topics):
    made = kafka_topics(
        "--create", "--topic", "orders", "--partitions", "10", "--replication-factor", "3"
    )
    assert (made.code, made.out) == (0, "Created topic orders.\n")
    told = kafka_topics("--describe", "--topic", "orders")
    assert told.code == 0
    lines = told.out.splitlines()
    header = HEADER.fullmatch(lines[0])
    assert header is not None
    assert header.group(1, 3, 4) == ("orders", "10", "3")
    assert [LINE.fullmatch(line).group(1, 2) for line in lines[1:]] == [
        ("orders", str(at)) for at in range(10)
    ]
    by_id = kafka_topics("--describe", "--topic-id", header[2]).out.splitlines()
    assert (by_id[0], len(by_id)) == (lines[0], len(lines))
    again = kafka_topics("--create", "--topic", "orders")
    assert again.code == 1
    assert again.out == ("Error while executing topic command : Topic 'orders' already exists.\n")
    assert kafka_topics("--create", "--topic", "orders", "--if-not-exists").out == ""
    grown = kafka_topics("--alter", "--topic", "orders", "--partitions", "12")
    assert (grown.code, grown.out) == (0, "")
    shrunk = kafka_topics("--alter", "--topic", "orders", "--partitions", "5")
    assert shrunk.code == 1
    assert shrunk.out.startswith("Error while executing topic command : ")
    assert "orders" in kafka_topics("--list").out.splitlines()
    gone = kafka_topics("--delete", "--topic", "orders")
    assert (gone.code, gone.out) == (0, "")
    missing = kafka_topics("--describe", "--topic", "orders")
    assert missing.code == 1
    assert missing.out == (
        "Error while executing topic command : Topic 'orders' does not exist as expected\n"
    )
    assert kafka_topics("--delete", "--topic", "orders", "--if-exists").code == 0


def test_json_of_kafkas_tool_is_json_when_it_fails_too(kafka_topics):
    missing = kafka_topics("--describe", "--topic", "nowhere", "--format", "json")
    assert (missing.code, missing.out) == (1, "")
    assert missing.json_error == {
        "what": "Topic 'nowhere' does not exist as expected",
        "on": "nowhere",
        "do": "",
    }


def test_names_that_could_collide_are_warned_of(kafka_topics):
    made = kafka_topics("--create", "--topic", "my_topic.x")
    assert made.out.splitlines() == [COLLISION_WARNING, "Created topic my_topic.x."]


def test_topics_by_regular_expression(kafka_topics):
    for name in ("re-one", "re-two", "other"):
        kafka_topics("--create", "--topic", name)
    assert kafka_topics("--list", "--topic", "re-.*").out == "re-one\nre-two\n"
    assert kafka_topics("--list", "--topic", "re-one,other").out == "other\nre-one\n"
    assert kafka_topics("--list", "--topic", "nothing.*").out == ""
    bad = kafka_topics("--list", "--topic", "re-(")
    assert bad.code == 1
    assert "invalid regex" in bad.out


def test_replicas_by_hand(kafka_topics):
    made = kafka_topics("--create", "--topic", "hand", "--replica-assignment", "3:1,2:3")
    assert made.code == 0
    lines = kafka_topics("--describe", "--topic", "hand").out.splitlines()
    assert [LINE.fullmatch(line)[4] for line in lines[1:]] == ["3,1", "2,3"]
    grown = kafka_topics(
        "--alter",
        "--topic",
        "hand",
        "--partitions",
        "3",
        "--replica-assignment",
        "3:1,2:3,1:2",
    )
    assert grown.code == 0
    lines = kafka_topics("--describe", "--topic", "hand").out.splitlines()
    assert LINE.fullmatch(lines[3])[4] == "1,2"


def test_filters_of_describe(kafka_topics, cluster):
    kafka_topics("--create", "--topic", "plain")
    kafka_topics("--create", "--topic", "special", "--config", "retention.ms=1000")
    overridden = kafka_topics("--describe", "--topics-with-overrides").out
    assert "Topic: special" in overridden
    assert "Topic: plain" not in overridden
    for name in ("under-replicated", "unavailable", "under-min-isr", "at-min-isr"):
        ran = kafka_topics("--describe", "--topic", "plain", f"--{name}-partitions")
        assert (ran.code, ran.out) == (0, "")
    shown = kafka_topics("--describe", "--topic", "plain", "--format", "json").json["topics"]
    assert [topic["name"] for topic in shown] == ["plain"]


def test_internal_topics_may_be_left_out(kafka_topics):
    assert kafka_topics("--list", "--exclude-internal").code == 0


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--list", "--describe"),
        ("--create",),
        ("--alter", "--topic", "t"),
        ("--alter", "--topic", "t", "--partitions", "2", "--config", "a=b"),
        ("--list", "--under-replicated-partitions"),
        ("--describe", "--unavailable-partitions", "--at-min-isr-partitions"),
        ("--create", "--topic", "t", "--config", "novalue"),
        ("--create", "--topic", "t", "--replica-assignment", "1:x"),
        ("--create", "--topic", "t", "--replica-assignment", "1:2", "--partitions", "1"),
        ("--describe", "--topic-id", "short"),
        ("--create", "--topic", "t", "--partitions", "many"),
        ("--list", "--command-config", "/no/such/file"),
    ],
    ids=" ".join,
)
def test_wrong_usage_of_kafkas_tool_is_1(arguments, kafka_topics):
    ran = kafka_topics(*arguments)
    assert ran.code == 1
    assert ran.out == ""
    assert ran.err


def test_without_a_server(raftlog):
    ran = raftlog("kafka-topics", "--list")
    assert (ran.code, ran.out) == (1, "")
    assert "bootstrap-server" in ran.err


def test_security_that_is_not_served_is_refused_not_ignored(kafka_topics, tmp_path):
    settings = tmp_path / "client.properties"
    settings.write_text("security.protocol=SASL_SSL\n")
    ran = kafka_topics("--list", "--command-config", settings)
    assert ran.code == 1
    assert "SASL_SSL" in ran.err
    for line in ("security.protocol: ssl", "ssl.truststore.location=/x", "sasl.jaas.config = a b"):
        settings.write_text(line + "\n")
        ran = kafka_topics("--list", "--command-config", settings)
        assert (ran.code, ran.out) == (1, "")
        assert re.split("[ =:]", line)[0] in ran.err
    settings.write_text("security.protocol=PLAINTEXT\nclient.id=x\n")
    assert kafka_topics("--list", "--command-config", settings).code == 0


@pytest.mark.parametrize("text", ["", "a", "!" * 22, "A" * 23, "é" * 22])
def test_ids_that_are_none(text):
    assert id_of_text(text) is None

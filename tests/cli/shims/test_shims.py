"""The commands with the flags of Kafka's tools, against a cluster of three.

Their output was compared with that of Kafka's own tools for the same cluster.
"""

import json
import os
import subprocess

import pytest

from raftlog.cli.shims.written import TOOLS

pytestmark = pytest.mark.processes

FORM = ("--format", "json")


@pytest.fixture
def tool(raftlog, cluster):
    """Runs a tool: `tool("kafka-configs", "--describe", ...)`."""

    def command(name, *arguments):
        return raftlog(name, "--bootstrap-server", cluster.bootstrap_servers, *arguments)

    return command


@pytest.fixture
def file(tmp_path):
    """Writes JSON to a file: its path."""

    def write(document):
        path = tmp_path / "file.json"
        path.write_text(json.dumps(document))
        return path

    return write


def moves(*entries):
    return {
        "version": 1,
        "partitions": [
            {"topic": topic, "partition": at, "replicas": nodes} for topic, at, nodes in entries
        ],
    }


def replicas(on_cluster, topic):
    (told,) = on_cluster("topics", "describe", topic, *FORM).json["topics"]
    return [each["replicas"] for each in told["partitions"]]


# --- kafka-configs --------------------------------------------------------------------------------


def test_settings_in_kafkas_words(tool, on_cluster):
    on_cluster("topics", "create", "worded")
    alter = ("kafka-configs", "--alter", "--entity-type", "topics", "--entity-name", "worded")
    done = tool(*alter, "--add-config", "retention.ms=5000,cleanup.policy=[compact,delete]")
    assert (done.code, done.out) == (0, "Completed updating config for topic worded.\n")
    told = tool("kafka-configs", "--describe", "--topic", "worded").out.splitlines()
    assert told[0] == "Dynamic configs for topic worded are:"
    assert told[1].startswith(
        "  cleanup.policy=compact,delete sensitive=false "
        "synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact,delete, "
    )
    assert told[2].startswith("  retention.ms=5000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:")
    assert len(told) == 3
    gone = tool(*alter, "--delete-config", "retention.ms,cleanup.policy")
    assert (gone.code, gone.out) == (0, "Completed updating config for topic worded.\n")
    again = tool(*alter, "--delete-config", "retention.ms")
    assert (again.code, again.err) == (1, "Invalid config(s): retention.ms\n")
    every = tool("kafka-configs", "--describe", "--entity-type", "topics", "--all").out
    assert "All configs for topic worded are:\n" in every
    assert "  retention.ms=" in every


def test_settings_of_brokers_in_kafkas_words(tool, on_cluster):
    every = tool("kafka-configs", "--describe", "--entity-type", "brokers")
    assert every.out.splitlines() == [
        "Dynamic configs for broker 1 are:",
        "Dynamic configs for broker 2 are:",
        "Dynamic configs for broker 3 are:",
        "Default configs for brokers in the cluster are:",
    ]
    default = tool("kafka-configs", "--describe", "--entity-type", "brokers", "--entity-default")
    assert default.out == "Default configs for brokers in the cluster are:\n"
    loggers = tool("kafka-configs", "--describe", "--broker-logger", "1")
    assert loggers.out == "Dynamic configs for broker-logger 1 are:\n"
    one = tool("kafka-configs", "--describe", "--broker", "2", "--all").out
    assert "  node.id=2 sensitive=false synonyms={" in one
    away = tool("kafka-configs", "--describe", "--broker", "9")
    assert away.out == "The broker '9' doesn't exist and doesn't have dynamic config.\n"
    refused = tool("kafka-configs", "--alter", "--broker", "1", "--add-config", "log.dirs=x")
    assert refused.code == 1
    assert refused.err.startswith("Error while executing config command\nINVALID_REQUEST: ")


def test_settings_from_a_file(tool, on_cluster, tmp_path):
    on_cluster("topics", "create", "filed")
    path = tmp_path / "settings.properties"
    path.write_text("retention.ms=7000\n# more\nsegment.bytes=1048576\n")
    done = tool("kafka-configs", "--alter", "--topic", "filed", "--add-config-file", path)
    assert done.code == 0
    told = tool("kafka-configs", "--describe", "--topic", "filed", *FORM).json["entities"]
    assert [each["name"] for each in told[0]["configs"]] == ["retention.ms", "segment.bytes"]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ((), "exactly one action"),
        (("--describe", "--alter"), "exactly one action"),
        (("--describe",), "At least one entity type"),
        (("--describe", "--entity-type", "planets"), "Invalid entity type planets"),
        (("--describe", "--entity-name", "t"), "go with --entity-type"),
        (("--describe", "--topic", "a/b"), "letters"),
        (("--describe", "--broker", "one"), "must be a valid integer broker id, found: one"),
        (("--describe", "--user", "bob"), "not served"),
        (("--describe", "--topic", "t", "--add-config", "a=b"), "can't be used"),
        (("--alter", "--topic", "t"), "At least one of --add-config"),
        (("--alter", "--topic", "t", "--add-config", "a"), "key=val"),
        (("--alter", "--topic", "t", "--add-config", "a b=c"), "Invalid character"),
        (("--alter", "--entity-type", "topics", "--add-config", "a=b"), "must be specified"),
        (("--alter", "--topic", "t", "--add-config-file", "none"), "none"),
    ],
)
def test_wrong_flags_of_configs(tool, flags, said):
    done = tool("kafka-configs", *flags)
    assert (done.code, done.out) == (1, "")
    assert said in done.err


# --- kafka-reassign-partitions --------------------------------------------------------------------


def test_moves_in_kafkas_words(tool, on_cluster, file):
    on_cluster("topics", "create", "walks", "--replication-factor", 1)
    (now,) = replicas(on_cluster, "walks")
    then = [node for node in (1, 2, 3) if node not in now]
    path = file(moves(("walks", 0, then)))
    name, flag = "kafka-reassign-partitions", "--reassignment-json-file"
    before = tool(name, "--verify", flag, path)
    assert before.code == 0
    assert before.out.splitlines() == [
        "Status of partition reassignment:",
        "There is no active reassignment of partition walks-0, but replica set is "
        f"{now[0]} rather than {then[0]},{then[1]}.",
        "",
        "Clearing broker-level throttles on brokers 1,2,3",
        "Clearing topic-level throttles on topic walks",
    ]
    begun = tool(name, "--execute", flag, path)
    assert begun.code == 0
    current = (
        '{"version":1,"partitions":[{"topic":"walks","partition":0,'
        f'"replicas":[{now[0]}],"log_dirs":["any"]}}]}}'
    )
    assert begun.out.splitlines() == [
        "Current partition replica assignment",
        "",
        current,
        "",
        "Save this to use as the --reassignment-json-file option during rollback",
        "Successfully started partition reassignment for walks-0",
    ]
    assert on_cluster("reassign", "verify", path, "--watch", "--timeout", 60).code == 0
    after = tool(name, "--verify", flag, path, "--preserve-throttles")
    assert after.out.splitlines() == [
        "Status of partition reassignment:",
        "Reassignment of partition walks-0 is completed.",
        "",
    ]
    assert tool(name, "--list").out == "No partition reassignments found.\n"
    cancelled = tool(name, "--cancel", flag, path, "--preserve-throttles")
    assert cancelled.out.splitlines() == [
        "None of the specified partition reassignments are active.",
        "None of the specified partition moves are active.",
    ]


def test_a_throttled_move_in_kafkas_words(tool, on_cluster, file):
    on_cluster("topics", "create", "slow-walks", "--replication-factor", 1)
    (now,) = replicas(on_cluster, "slow-walks")
    then = [now[0] % 3 + 1]
    path = file(moves(("slow-walks", 0, then)))
    name, flag = "kafka-reassign-partitions", "--reassignment-json-file"
    begun = tool(name, "--execute", flag, path, "--throttle", "1000000")
    assert begun.code == 0, begun.err
    assert begun.out.splitlines()[-3:] == [
        "Warning: You must run --verify periodically, until the reassignment completes, to ensure "
        "the throttle is removed.",
        "The inter-broker throttle limit was set to 1000000 B/s",
        "Successfully started partition reassignment for slow-walks-0",
    ]
    lists = on_cluster("configs", "describe", "topic", "slow-walks").out
    assert f"0:{now[0]}" in lists
    assert f"0:{then[0]}" in lists
    assert "1000000" in on_cluster("configs", "describe", "broker", str(then[0])).out
    done = on_cluster("reassign", "verify", path, "--watch", "--timeout", 60, "--format", "json")
    assert (done.code, done.json["throttles_removed"]) == (0, True)
    again = on_cluster("reassign", "verify", path, "--format", "json")
    assert (again.code, again.json["throttles_removed"]) == (0, False)
    assert "throttled" not in on_cluster("configs", "describe", "topic", "slow-walks").out


def test_plans_in_kafkas_words(tool, on_cluster, file):
    on_cluster("topics", "create", "planned", "--replication-factor", 1)
    (now,) = replicas(on_cluster, "planned")
    topics = file({"version": 1, "topics": [{"topic": "planned"}]})
    generate = ("kafka-reassign-partitions", "--generate", "--topics-to-move-json-file", topics)
    told = tool(*generate, "--broker-list", now[0] % 3 + 1).out.splitlines()
    assert told[0] == "Current partition replica assignment"
    assert json.loads(told[1])["partitions"][0]["replicas"] == now
    assert told[2:4] == ["", "Proposed partition reassignment configuration"]
    assert json.loads(told[4])["partitions"][0]["replicas"] == [now[0] % 3 + 1]
    twice = tool(*generate, "--broker-list", "1,1")
    assert (twice.code, twice.out) == (1, "Error: Broker list contains duplicate entries: [1]\n")


def test_moves_that_are_refused_in_kafkas_words(tool, on_cluster, file):
    on_cluster("topics", "create", "firm-place", "--replication-factor", 1)
    execute = ("kafka-reassign-partitions", "--execute", "--reassignment-json-file")
    unknown = tool(*execute, file(moves(("firm-place", 0, [9]))))
    assert (unknown.code, unknown.out) == (1, "Error: Unknown broker id 9\n")
    nowhere = tool(*execute, file(moves(("nowhere", 0, [1]))))
    assert (nowhere.code, "Topic nowhere not found." in nowhere.out) == (1, True)
    for flags in ((), ("--list", "--verify"), ("--verify",), ("--generate",)):
        assert tool("kafka-reassign-partitions", *flags).code == 1


# --- kafka-get-offsets ----------------------------------------------------------------------------


def test_offsets_in_kafkas_words(tool, on_cluster):
    on_cluster("topics", "create", "off", "--partitions", 3)
    on_cluster("topics", "create", "offer")
    on_cluster("produce", "off", "-p", 1, stdin=b"a\nb\n")
    name = "kafka-get-offsets"
    assert tool(name, "--topic", "off").out == "off:0:0\noff:1:2\noff:2:0\n"
    assert tool(name, "--topic", "off", "--time", "earliest").out == "off:0:0\noff:1:0\noff:2:0\n"
    # Both records may be of one millisecond: the first of the newest is told.
    assert tool(name, "--topic", "off", "--time", "-3").out in ("off:1:0\n", "off:1:1\n")
    assert tool(name, "--topic", "off", "--partitions", "1,2").out == "off:1:2\noff:2:0\n"
    assert tool(name, "--topic-partitions", "off:1-,offer:0").out == (
        "off:1:2\noff:2:0\noffer:0:0\n"
    )
    assert tool(name, "--topic-partitions", "off:-2").out == "off:0:0\noff:1:2\n"
    assert tool(name, "--topic-partitions", ":2").out == "off:2:0\n"
    assert tool(name, "--topic", "off.*", *FORM).json["offsets"][1] == {
        "topic": "off", "partition": 1, "offset": 2
    }  # fmt: skip
    none = tool(name, "--topic", "nothing")
    assert none.code == 1
    assert none.err == (
        "Error occurred: Could not match any topic-partitions with the specified filters\n"
    )


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--topic", "t", "--topic-partitions", "t"), "cannot be used with"),
        (("--time", "noon"), "Malformed time argument noon"),
        (("--time", "-9"), "Malformed time argument -9"),
        (("--partitions", "x"), "comma separated list"),
        (("--topic-partitions", "t:x"), "Invalid rule specification: t:x"),
        (("--topic", "t("), "invalid regex"),
    ],
)
def test_wrong_flags_of_get_offsets(tool, flags, said):
    done = tool("kafka-get-offsets", *flags)
    assert (done.code, done.out) == (1, "")
    assert said in done.err


# --- kafka-log-dirs, kafka-leader-election, kafka-delete-records ----------------------------------


def test_disks_in_kafkas_words(tool, on_cluster):
    on_cluster("topics", "create", "heavy")
    told = tool("kafka-log-dirs", "--describe", "--topic-list", "heavy", "--broker-list", "1,2")
    lines = told.out.splitlines()
    assert lines[:2] == [
        "Querying brokers for log directories information",
        "Received log directory information from brokers 1,2",
    ]
    document = json.loads(lines[2])
    assert (document["version"], [each["broker"] for each in document["brokers"]]) == (1, [1, 2])
    (directory,) = document["brokers"][0]["logDirs"]
    (partition,) = directory["partitions"]
    assert directory["error"] is None
    assert (partition["partition"], partition["isFuture"]) == ("heavy-0", False)
    assert partition["size"] > 0
    assert json.loads(tool("kafka-log-dirs", "--describe", *FORM).out)["version"] == 1
    away = tool("kafka-log-dirs", "--describe", "--broker-list", "9")
    assert (away.code, away.err) == (
        1,
        "ERROR: The given brokers do not exist from --broker-list: 9. "
        "Current existent brokers: 1,2,3\n",
    )
    assert tool("kafka-log-dirs").code == 1
    assert tool("kafka-log-dirs", "--describe", "--broker-list", "x").code == 1


def test_elections_in_kafkas_words(tool, on_cluster, file):
    on_cluster("topics", "create", "voted")
    elect = ("kafka-leader-election", "--election-type", "preferred")
    one = tool(*elect, "--topic", "voted", "--partition", "0")
    assert (one.code, one.out) == (0, "Valid replica already elected for partitions voted-0\n")
    path = file({"partitions": [{"topic": "voted", "partition": 0}]})
    assert tool(*elect, "--path-to-json-file", path).out == one.out
    assert tool(*elect, "--all-topic-partitions").code == 0
    nowhere = tool(*elect, "--topic", "nowhere", "--partition", "0")
    assert nowhere.code == 1
    assert nowhere.out.startswith(
        "Error completing leader election (PREFERRED) for partition: nowhere-0: "
        "UNKNOWN_TOPIC_OR_PARTITION"
    )
    assert nowhere.err == "1 replica(s) could not be elected\n"
    unclean = tool(
        "kafka-leader-election", "--election-type", "UNCLEAN", "--topic", "voted", "--partition", 0
    )
    assert (unclean.code, "would lose acknowledged records" in unclean.out) == (1, True)
    for flags in ((), ("--topic", "t"), ("--partition", "0", "--all-topic-partitions")):
        assert tool(*elect, *flags).code == 1
    assert tool("kafka-leader-election", "--all-topic-partitions").code == 1
    assert tool("kafka-leader-election", "--election-type", "x", "--all-topic-partitions").code == 1


def test_deletions_in_kafkas_words(tool, on_cluster, file):
    on_cluster("topics", "create", "cut")
    on_cluster("produce", "cut", stdin=b"a\nb\nc\n")
    offsets = [{"topic": "cut", "partition": 0, "offset": 2}]
    told = tool("kafka-delete-records", "--offset-json-file", file({"partitions": offsets}))
    assert (told.code, told.out.splitlines()) == (
        0,
        [
            "Executing records delete operation",
            "Records delete operation completed:",
            "partition: cut-0\tlow_watermark: 2",
        ],
    )
    offsets[0]["offset"] = 99
    beyond = tool("kafka-delete-records", "--offset-json-file", file({"partitions": offsets}))
    assert beyond.code == 0
    assert beyond.out.splitlines()[2].startswith("partition: cut-0\terror: ")
    assert tool("kafka-delete-records").code == 1


# --- shims ----------------------------------------------------------------------------------------


@pytest.fixture
def scripts(raftlog, tmp_path):
    """A folder of Kafka's scripts."""
    folder = tmp_path / "bin"
    written = raftlog("shims", folder)
    assert written.out.splitlines() == [str(folder / f"{name}.sh") for name in TOOLS]
    return folder


def sh(folder, line):
    done = subprocess.run(
        ["sh", "-c", line],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"},
    )
    return done.returncode, done.stdout, done.stderr


def test_the_two_lines_of_every_tutorial(scripts, cluster):
    """They run unchanged, but for the port that the cluster of this test has."""
    lines = (
        "kafka-topics.sh --create --bootstrap-server localhost:9092 "
        "--replication-factor 3 --partitions 10 --topic orders",
        "kafka-topics.sh --describe --bootstrap-server localhost:9092 --topic orders",
    )
    port = cluster.bootstrap_servers.split(",")[0].rpartition(":")[2]
    create, describe = (line.replace("9092", port) for line in lines)
    assert sh(scripts, create) == (0, "Created topic orders.\n", "")
    code, out, err = sh(scripts, describe)
    told = out.splitlines()
    assert (code, err, len(told)) == (0, "", 11)
    assert told[0].startswith("Topic: orders\tTopicId: ")
    assert "\tPartitionCount: 10\tReplicationFactor: 3\t" in told[0]
    assert [line.split("\t")[2] for line in told[1:]] == [f"Partition: {at}" for at in range(10)]


def test_every_script_runs_and_passes_its_flags_on(scripts):
    for name in TOOLS:
        code, out, _ = sh(scripts, f"{name}.sh --help")
        assert (code, f"raftlog {name}" in out) == (0, True), name
    code, _, err = sh(scripts, "kafka-configs.sh --describe --topic 'two words'")
    assert (code, "letters and digits" in err) == (1, True)


def test_files_of_others_stay(raftlog, tmp_path):
    folder = tmp_path / "theirs"
    folder.mkdir()
    theirs = folder / "kafka-topics.sh"
    theirs.write_text("#!/bin/sh\necho kafka\n")
    refused = raftlog("shims", folder, *FORM)
    assert (refused.code, refused.json_error["on"]) == (1, str(theirs))
    assert [each.name for each in folder.iterdir()] == ["kafka-topics.sh"]
    theirs.unlink()
    for _ in range(2):
        assert len(raftlog("shims", folder, *FORM).json["written"]) == len(TOOLS)

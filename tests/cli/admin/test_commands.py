"""Commands of administration against a cluster of three."""

import json
import time

import pytest

from raftlog.cli.admin import reassign
from raftlog.client.core.results import PartitionResult
from raftlog.client.core.values import TopicPartition
from raftlog.kafka.error_codes import ErrorCode

pytestmark = pytest.mark.processes

FORM = ("--format", "json")


@pytest.fixture
def plan(tmp_path):
    """Writes a plan of moves: `plan(("t", 0, [1, 2]), ...)` gives its path."""

    def write(*entries):
        path = tmp_path / "plan.json"
        partitions = [
            {"topic": topic, "partition": partition, "replicas": nodes}
            for topic, partition, nodes in entries
        ]
        path.write_text(json.dumps({"version": 1, "partitions": partitions}))
        return path

    return write


def replicas(on_cluster, topic):
    (told,) = on_cluster("topics", "describe", topic, *FORM).json["topics"]
    return [each["replicas"] for each in told["partitions"]]


# --- configs --------------------------------------------------------------------------------------


def test_settings_of_a_topic_are_changed_and_shown(on_cluster):
    on_cluster("topics", "create", "set-here")
    assert on_cluster("configs", "describe", "topic", "set-here").out == (
        "topic set-here: no settings of its own\n"
    )
    asked = ("configs", "alter", "topic", "set-here", "--set", "retention.ms=5000")
    dry = on_cluster(*asked, "--dry-run")
    assert dry.out.splitlines() == [
        "topic set-here: may be changed",
        "nothing was changed: it was a dry run",
    ]
    assert "no settings" in on_cluster("configs", "describe", "topic", "set-here").out
    assert on_cluster(*asked).out == "topic set-here: changed\n"
    assert on_cluster("configs", "describe", "topic", "set-here").out.splitlines() == [
        "topic set-here:",
        "SETTING       VALUE  SOURCE                READ-ONLY",
        "retention.ms  5000   DYNAMIC_TOPIC_CONFIG  no",
    ]
    told = on_cluster("configs", "describe", "topic", "set-here", "--synonyms").out
    assert "DYNAMIC_TOPIC_CONFIG:retention.ms=5000, " in told
    gone = on_cluster(
        "configs", "alter", "topic", "set-here", "--delete", "retention.ms", *FORM
    ).json
    assert gone["altered"] == [{"kind": "topic", "name": "set-here"}]
    assert gone["dry_run"] is False
    (resource,) = on_cluster("configs", "describe", "topic", "set-here", *FORM).json["resources"]
    assert resource == {"kind": "topic", "name": "set-here", "settings": []}


def test_lists_grow_and_shrink(on_cluster):
    on_cluster("topics", "create", "listed")
    on_cluster("configs", "alter", "topic", "listed", "--append", "cleanup.policy=compact")
    described = ("configs", "describe", "topic", "listed", *FORM)
    (resource,) = on_cluster(*described).json["resources"]
    (setting,) = resource["settings"]
    assert (setting["name"], setting["value"]) == ("cleanup.policy", "delete,compact")
    on_cluster("configs", "alter", "topic", "listed", "--subtract", "cleanup.policy=compact")
    (resource,) = on_cluster(*described).json["resources"]
    assert resource["settings"][0]["value"] == "delete"


def test_every_setting_is_shown_on_demand(on_cluster):
    on_cluster("topics", "create", "whole")
    (topic,) = on_cluster("configs", "describe", "topic", "whole", "--all", *FORM).json["resources"]
    sources = {each["name"]: each["source"] for each in topic["settings"]}
    assert sources["segment.bytes"] == "DEFAULT_CONFIG"
    (broker,) = on_cluster("configs", "describe", "broker", 2, "--all", *FORM).json["resources"]
    values = {each["name"]: each["value"] for each in broker["settings"]}
    assert values["node.id"] == "2"
    everywhere = on_cluster("configs", "describe", "broker", *FORM).json["resources"]
    assert [each["name"] for each in everywhere] == ["1", "2", "3", ""]
    names = [each["name"] for each in on_cluster("configs", "describe", "topic", *FORM).json[
        "resources"
    ]]  # fmt: skip
    assert "whole" in names


def test_settings_of_brokers_change_while_they_run(on_cluster):
    asked = ("configs", "alter", "broker", "--brokers-default")
    done = on_cluster(*asked, "--set", "log.retention.ms=700000")
    assert (done.code, done.out) == (0, "every broker: changed\n")
    one = on_cluster("configs", "alter", "broker", 2, "--set", "log.retention.ms=800000")
    assert (one.code, one.out) == (0, "broker 2: changed\n")
    assert on_cluster("configs", "describe", "broker", 2).out.splitlines() == [
        "broker 2:",
        "SETTING           VALUE   SOURCE                 READ-ONLY",
        "log.retention.ms  800000  DYNAMIC_BROKER_CONFIG  no",
    ]
    told = on_cluster("configs", "describe", "broker", 1, "--all", *FORM).json["resources"]
    (retention,) = [each for each in told[0]["settings"] if each["name"] == "log.retention.ms"]
    sources = [each["source"] for each in retention["synonyms"]]
    assert sources[0] == retention["source"] == "DYNAMIC_DEFAULT_BROKER_CONFIG"
    on_cluster("configs", "alter", "broker", 2, "--delete", "log.retention.ms")
    on_cluster(*asked, "--delete", "log.retention.ms")
    assert "log.retention.ms" not in on_cluster("configs", "describe", "broker").out


def test_settings_that_are_refused(on_cluster):
    on_cluster("topics", "create", "firm")
    unknown = on_cluster("configs", "alter", "topic", "firm", "--set", "retention.mss=1", *FORM)
    assert (unknown.code, unknown.out) == (1, "")
    assert "did you mean retention.ms?" in unknown.json_error["what"]
    broker = on_cluster("configs", "alter", "broker", 1, "--set", "log.cleaner.threads=2")
    assert broker.code == 1
    assert "Cannot update these configs dynamically" in broker.err
    group = on_cluster("configs", "alter", "group", "g", "--set", "consumer.session.timeout.ms=1")
    assert (group.code, "settings of groups are not served" in group.err) == (1, True)


@pytest.mark.parametrize(
    "wrong",
    [
        ("describe", "planet"),
        ("describe", "topic", "t", "--brokers-default"),
        ("describe", "broker", "one"),
        ("describe", "topic", ""),
        ("alter", "topic", "t"),
        ("alter", "topic", "--set", "a=b"),
        ("alter", "topic", "t", "--set", "a"),
        ("alter", "topic", "t", "--set", "a=b", "--delete", "a"),
    ],
)
def test_wrong_usage_of_configs(on_cluster, wrong):
    assert on_cluster("configs", *wrong).code == 64


# --- reassign -------------------------------------------------------------------------------------


def test_a_partition_moves_and_moves_back(on_cluster, plan, tmp_path):
    on_cluster("topics", "create", "moved", "--replication-factor", 1)
    (before,) = replicas(on_cluster, "moved")
    on_cluster("produce", "moved", stdin=b"a\nb\n")
    wanted = [node for node in (1, 2, 3) if node not in before]
    path = plan(("moved", 0, wanted))
    dry = on_cluster("reassign", "execute", path, "--dry-run")
    assert dry.code == 0
    assert "nothing was moved" in dry.out
    assert replicas(on_cluster, "moved") == [before]
    rollback = tmp_path / "rollback.json"
    begun = on_cluster("reassign", "execute", path, "--rollback-file", rollback)
    assert (begun.code, "the move of 1 partition began" in begun.out) == (0, True)
    watched = on_cluster("reassign", "verify", path, "--watch", "--timeout", 60, *FORM)
    assert watched.code == 0
    assert watched.json["done"] is True
    (told,) = watched.json["partitions"]
    assert (told["state"], told["current"], told["wanted"]) == ("done", wanted, wanted)
    assert replicas(on_cluster, "moved") == [wanted]
    back = on_cluster("reassign", "execute", rollback, *FORM).json
    assert back["moves"] == [{"topic": "moved", "partition": 0, "now": wanted, "then": before}]
    assert back["rollback"]["partitions"][0]["replicas"] == wanted
    assert on_cluster("reassign", "verify", rollback, "--watch", "--timeout", 60).code == 0
    assert on_cluster("consume", "moved", "-o", "beginning", "-e").out == "a\nb\n"


def test_a_plan_that_is_not_there_differs(on_cluster, plan):
    on_cluster("topics", "create", "apart", "--replication-factor", 1)
    (now,) = replicas(on_cluster, "apart")
    other = [node for node in (1, 2, 3) if node not in now]
    verified = on_cluster("reassign", "verify", plan(("apart", 0, other), ("gone", 0, [1])))
    assert verified.code == 1
    lines = [line.split() for line in verified.out.splitlines()]
    assert lines[1][:3] == ["apart", "0", "differs"]
    assert lines[2][:4] == ["gone", "0", "differs", "-"]
    listed = on_cluster("reassign", "list")
    assert (listed.code, listed.out) == (0, "no partition is moving\n")
    nothing = on_cluster("reassign", "cancel", plan(("apart", 0, other)))
    assert (nothing.code, nothing.out) == (0, "none of these partitions is moving\n")


def test_a_move_that_ended_meanwhile_is_not_an_error(raftlog, monkeypatch):
    """Regression: `cancel --all` failed when a move ended between its list and its request."""
    places = [TopicPartition("t", number) for number in range(2)]
    over = PartitionResult(places[1], ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "not reassigned")
    told = (places, [], [PartitionResult(places[0]), over])
    monkeypatch.setattr(reassign, "with_client", lambda *_: told)
    ran = raftlog("reassign", "cancel", "--all")
    assert (ran.code, ran.out, ran.err) == (0, "t-0: taken back\nt-1: has moved already\n", "")
    shown = raftlog("reassign", "cancel", "--all", *FORM)
    assert shown.code == 0
    assert shown.json == {
        "version": 1,
        "dry_run": False,
        "cancelled": [{"topic": "t", "partition": 0}],
        "moved_already": [{"topic": "t", "partition": 1}],
        "directories": [],
        "refused": [],
    }


def test_plans_are_generated(on_cluster, tmp_path, plan):
    on_cluster("topics", "create", "spread", "--partitions", 4, "--replication-factor", 1)
    made = on_cluster("reassign", "generate", "--topic", "spread", "--brokers", "1,2")
    assert (made.code, made.err) == (0, "")
    wanted = [each["replicas"] for each in json.loads(made.out)["partitions"]]
    assert sorted(wanted) == [[1], [1], [2], [2]]
    topics = tmp_path / "topics.json"
    topics.write_text('{"version": 1, "topics": [{"topic": "spread"}]}')
    options = ("--topics-file", topics, "--brokers", "1,2,3", "--replication-factor", 3)
    both = on_cluster("reassign", "generate", *options, *FORM).json
    assert all(sorted(each["replicas"]) == [1, 2, 3] for each in both["proposed"]["partitions"])
    now = replicas(on_cluster, "spread")
    assert [each["replicas"] for each in both["current"]["partitions"]] == now


def test_moves_that_are_refused(on_cluster, plan):
    on_cluster("topics", "create", "stays", "--replication-factor", 1)
    away = on_cluster("reassign", "execute", plan(("stays", 0, [9])))
    assert (away.code, "no such broker is alive: 9" in away.err) == (1, True)
    nowhere = on_cluster("reassign", "execute", plan(("nowhere", 0, [1])), *FORM)
    assert nowhere.code == 1
    assert nowhere.json_error["what"] == "Topic nowhere not found."
    beyond = on_cluster("reassign", "execute", plan(("stays", 7, [1])))
    assert (beyond.code, "Unable to find partition: stays-7" in beyond.err) == (1, True)
    elsewhere = json.loads(plan(("stays", 0, [1])).read_text())
    elsewhere["partitions"][0]["log_dirs"] = ["/no/such/disk"]
    path = plan()
    path.write_text(json.dumps(elsewhere))
    disk = on_cluster("reassign", "execute", path)
    assert (disk.code, "broker 1 has no directory /no/such/disk" in disk.err) == (1, True)
    missing = on_cluster("reassign", "generate", "--topic", "stays", "--brokers", "1,9")
    assert (missing.code, "no such broker is alive: 9" in missing.err) == (1, True)
    assert on_cluster("reassign", "execute", "no-such-file.json").code == 1
    assert on_cluster("reassign", "generate", "--brokers", "1").code == 64
    assert on_cluster("reassign", "generate", "--topic", "stays", "--brokers", "1,x").code == 64
    assert on_cluster("reassign", "cancel").code == 64


SETTINGS = ("--set", "retention.ms=1")
AWAY = [
    (("configs", "describe", "topic", "nowhere"), "Topic nowhere not found."),
    (("configs", "describe", "group", "nobody"), "Group nobody not found."),
    (("configs", "alter", "topic", "nowhere", *SETTINGS), "Topic nowhere not found."),
    (("configs", "describe", "broker", 9), "no such broker is alive: 9"),
    (("configs", "alter", "broker", 9, "--set", "log.retention.ms=1"), "no such broker is alive"),
    (("log-dirs", "--topic", "nowhere"), "Topic nowhere not found."),
    (("log-dirs", "--broker", 9), "no such broker is alive: 9"),
    (("elect-leaders", "nowhere"), "UNKNOWN_TOPIC_OR_PARTITION"),
    (("delete-records", "nowhere", "--everything"), "UNKNOWN_TOPIC_OR_PARTITION"),
    (("quorum", "remove", 9), "broker 9 is not in the quorum's view"),
    (("quorum", "add", 9), "a broker must run to be added"),
    (("brokers", "unregister", 9), "BROKER_ID_NOT_REGISTERED"),
]


@pytest.mark.parametrize(("command", "told"), AWAY)
def test_what_is_not_there_is_told_at_once(on_cluster, command, told):
    """No command tries again until its time is up, and each says what is missing."""
    began = time.monotonic()
    answer = on_cluster(*command)
    assert (answer.code, told in answer.err, answer.out) == (1, True, ""), answer
    assert time.monotonic() - began < 8
    error = on_cluster(*command, *FORM).json_error
    assert told in f"{error['what']} {error['do']}", error


# --- elect-leaders, log-dirs, quorum, brokers -----------------------------------------------------


def test_preferred_leaders_are_elected(on_cluster):
    on_cluster("topics", "create", "led", "--partitions", 3)
    named = on_cluster("elect-leaders", "led:0,2", *FORM).json
    assert [each["partition"] for each in named["partitions"]] == [0, 2]
    assert all(each["outcome"] in ("leads already", "elected") for each in named["partitions"])
    every = on_cluster("elect-leaders", "--all")
    assert every.code == 0
    assert on_cluster("elect-leaders", "--all", "--dry-run").code == 0
    missing = on_cluster("elect-leaders", "led:9")
    assert (missing.code, "UNKNOWN_TOPIC_OR_PARTITION" in missing.err) == (1, True)
    assert on_cluster("elect-leaders").code == 64
    assert on_cluster("elect-leaders", "led", "--all").code == 64
    assert on_cluster("elect-leaders", "led:x").code == 64


def test_disks_are_shown(on_cluster):
    on_cluster("topics", "create", "weighed")
    on_cluster("produce", "weighed", stdin=b"abc\n" * 100)
    told = on_cluster("log-dirs", "--topic", "weighed", "--replicas")
    assert told.code == 0
    lines = [line.split() for line in told.out.splitlines()]
    assert [line[0] for line in lines] == ["BROKER", "1", "2", "3", "BROKER", "1", "2", "3"]
    assert all(line[1:3] == ["weighed", "0"] for line in lines[5:])
    found = on_cluster("log-dirs", "--broker", 2, *FORM).json
    (broker,) = found["brokers"]
    (directory,) = broker["directories"]
    assert broker["broker"] == 2
    assert directory["total_bytes"] > directory["size_bytes"] > 0
    assert "weighed" in [each["topic"] for each in directory["replicas"]]
    away = on_cluster("log-dirs", "--broker", 9)
    assert (away.code, "no such broker is alive: 9" in away.err) == (1, True)


def test_the_quorum_is_shown(on_cluster):
    told = on_cluster("quorum", *FORM).json
    assert told["leader"] in (1, 2, 3)
    roles = {each["node"]: each["role"] for each in told["replicas"]}
    assert sorted(roles.values()) == ["leader", "voter", "voter"]
    assert roles[told["leader"]] == "leader"
    lines = on_cluster("quorum").out.splitlines()
    assert lines[0].startswith(f"leader {told['leader']}, epoch ")
    assert lines[1].split()[:4] == ["NODE", "ROLE", "LOG-END", "LAG"]
    assert len(lines) == 5


def voters(on_cluster):
    told = on_cluster("quorum", *FORM).json["replicas"]
    return sorted(each["node"] for each in told if each["role"] != "observer")


def test_a_controller_is_taken_out_and_put_back(on_cluster):
    leader = on_cluster("quorum", *FORM).json["leader"]
    node = leader % 3 + 1
    others = sorted({1, 2, 3} - {node})
    gone = on_cluster("quorum", "remove", node)
    assert (gone.code, gone.out) == (0, f"controllers: {others[0]}, {others[1]}\n")
    assert voters(on_cluster) == others
    twice = on_cluster("quorum", "remove", node)
    assert (twice.code, "VOTER_NOT_FOUND" in twice.err) == (1, True)
    back = on_cluster("quorum", "add", node, *FORM)
    assert (back.code, len(back.json["replicas"])) == (0, 3)
    assert voters(on_cluster) == [1, 2, 3]
    again = on_cluster("quorum", "add", node)
    assert (again.code, "DUPLICATE_VOTER" in again.err) == (1, True)
    unknown = on_cluster("quorum", "add", 9)
    assert (unknown.code, "broker 9 is not in the quorum's view" in unknown.err) == (1, True)


def test_brokers_are_listed(on_cluster):
    on_cluster("topics", "create", "counted", "--partitions", 3)
    told = on_cluster("brokers", "list", *FORM).json["brokers"]
    assert [each["node"] for each in told] == [1, 2, 3]
    assert [each["controller"] for each in told].count(True) == 1
    assert not any(each["fenced"] for each in told)
    assert all(each["replicas"] >= 3 for each in told)
    assert [(each["level_min"], each["level_max"]) for each in told] == [(1, 1)] * 3
    table = on_cluster("brokers", "list").out.splitlines()
    assert table[0].split()[:5] == ["NODE", "HOST", "PORT", "RACK", "STATE"]
    gone = on_cluster("brokers", "unregister", 9)
    assert (gone.code, "BROKER_ID_NOT_REGISTERED" in gone.err) == (1, True)
    alive = on_cluster("brokers", "unregister", 1, *FORM)
    assert (alive.code, alive.out) == (1, "")
    assert alive.json_error["on"] == "broker 1"


# --- delete-records -------------------------------------------------------------------------------


def starts(on_cluster, topic):
    (told,) = on_cluster("topics", "describe", topic, *FORM).json["topics"]
    return [each["start_offset"] for each in told["partitions"]]


def test_records_are_deleted_on_demand(on_cluster, tmp_path):
    on_cluster("topics", "create", "trimmed")
    on_cluster("produce", "trimmed", stdin=b"a\nb\nc\nd\n")
    shown = on_cluster("delete-records", "trimmed:0", "--before-offset", 2)
    assert shown.out.splitlines() == [
        "TOPIC    PARTITION  START  END  NEW-START  RECORDS",
        "trimmed  0          0      4    2          2",
        "nothing was deleted: --execute does it",
    ]
    assert starts(on_cluster, "trimmed") == [0]
    done = on_cluster("delete-records", "trimmed", "--before-offset", 2, "--execute", *FORM).json
    assert done["executed"] is True
    assert done["partitions"][0]["records"] == 2
    assert starts(on_cluster, "trimmed") == [2]
    old = on_cluster("delete-records", "trimmed", "--before-datetime", "2001-01-01", "--execute")
    assert old.code == 0
    assert starts(on_cluster, "trimmed") == [2]
    offsets = tmp_path / "offsets.json"
    offsets.write_text('{"partitions": [{"topic": "trimmed", "partition": 0, "offset": 3}]}')
    assert on_cluster("delete-records", "--file", offsets, "--execute").code == 0
    assert starts(on_cluster, "trimmed") == [3]
    assert on_cluster("delete-records", "trimmed", "--everything", "--execute").code == 0
    assert starts(on_cluster, "trimmed") == [4]


def test_more_than_there_is_is_refused_before_anything_goes(on_cluster):
    on_cluster("topics", "create", "short")
    for more in ((), ("--execute",)):
        beyond = on_cluster("delete-records", "short", "--before-offset", 1, *more)
        assert beyond.code == 1
        assert "OFFSET_OUT_OF_RANGE: offset 1 lies behind the end, which is 0" in beyond.err
    nowhere = on_cluster("delete-records", "nowhere:0", "--everything")
    assert (nowhere.code, "nowhere-0" in nowhere.err) == (1, True)


@pytest.mark.parametrize(
    "wrong",
    [
        ("t",),
        ("--everything",),
        ("t", "--everything", "--before-offset", "1"),
        ("t", "--file", "f"),
        ("t", "--before-datetime", "yesterday"),
        ("t", "--before-offset", "-1"),
        ("t:x", "--everything"),
    ],
)
def test_wrong_usage_of_delete_records(on_cluster, wrong):
    assert on_cluster("delete-records", *wrong).code == 64

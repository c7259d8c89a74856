"""Commands of consumer groups, against a scripted coordinator on real sockets."""

import pytest

from raftlog.client.core.group.protocol import encode_assignment
from raftlog.client.core.values import TopicPartition
from tests.client.fake_cluster import FakeCluster
from tests.client.group.fake_groups import FakeGroups, Member
from tests.client.test_blocking import served
from tests.client.test_fetcher import fill


@pytest.fixture
def cluster():
    """Group `g` has committed 2 of 6 in t-0, and nothing of the 6 in t-1."""
    cluster = FakeCluster()
    cluster.groups = FakeGroups(cluster)
    for each in cluster.topic("t", 2):
        fill(each, 2)
    cluster.groups.groups["g"].offsets[("t", 0)] = (2, "")
    return cluster


@pytest.fixture
def run(raftlog, cluster):
    with served(cluster) as bootstrap:
        yield lambda *arguments: raftlog(*arguments, "--bootstrap-server", bootstrap)


def with_member(cluster):
    group = cluster.groups.groups["g"]
    given = encode_assignment([TopicPartition("t", 0), TopicPartition("t", 1)])
    group.members["m1"] = Member("m1", "i1", [("range", b"")], assignment=given)
    group.state, group.protocol = "Stable", "range"


def offsets(cluster):
    return {place: offset for place, (offset, _) in cluster.groups.groups["g"].offsets.items()}


# --- consume --------------------------------------------------------------------------------------


def test_consume_in_a_group_commits_what_it_wrote(run, cluster):
    assert run("consume", "t", "--group", "new", "-c", "5", "-f", "%p:%o\n").code == 0
    committed = cluster.groups.groups["new"].offsets
    assert sum(offset for offset, _ in committed.values()) == 5
    done = run("consume", "t", "--group", "new", "-c", "7", "--format", "json")
    assert len(done.json_lines) == 7
    assert {place: offset for place, (offset, _) in committed.items()} == {("t", 0): 6, ("t", 1): 6}
    assert cluster.groups.groups["new"].members == {}


@pytest.mark.parametrize("more", [("-p", "0"), ("-e",), ("-o", "5"), ("-o", "-5")])
def test_what_does_not_go_with_a_group_is_wrong_usage(run, more):
    done = run("consume", "t", "--group", "g", *more)
    assert done.code == 64
    assert "--group" in done.err


def test_consume_of_a_topic_that_is_not_there_says_so(run):
    done = run("consume", "nope", "--group", "g")
    assert done.code == 1
    assert "UNKNOWN_TOPIC_OR_PARTITION" in done.err


def test_a_group_that_is_not_allowed_ends_the_command(run, cluster):
    cluster.refuse(11, 30)
    done = run("consume", "t", "--group", "g")
    assert done.code == 1
    assert "GROUP_AUTHORIZATION_FAILED" in done.err


# --- raftlog groups -------------------------------------------------------------------------------


def test_list(run):
    assert run("groups", "list").out == "GROUP  STATE\ng      Empty\n"
    found = run("groups", "list", "--format", "json").json
    assert found["groups"] == [{"group": "g", "state": "Empty"}]
    assert found["silent_brokers"] == []


@pytest.mark.parametrize("command", ["groups list", "groups list --format json", "shim"])
def test_a_broker_that_does_not_tell_its_groups_is_named_and_the_others_are_listed(
    run, cluster, command
):
    """The whole list failed with that one."""
    asked = []

    def refused_by_the_last(body):
        asked.append(body)
        return body._replace(error_code=30, groups=()) if len(asked) == cluster.nodes else body

    cluster.changed[16] = refused_by_the_last
    words = ["kafka-consumer-groups", "--list"] if command == "shim" else command.split()
    done = run(*words)
    assert done.code == 1
    assert "the groups of some brokers are missing" in done.err
    (silent,) = {node for node in "123" if f"broker {node}: " in done.err}
    assert "GROUP_AUTHORIZATION_FAILED" in done.err
    if "json" in command:
        assert done.json["silent_brokers"] == [int(silent)]
    else:
        assert "GROUP" in done.out or done.out in ("g\n", "")


def test_describe_shows_members_offsets_and_lag(run, cluster):
    with_member(cluster)
    done = run("groups", "describe", "g")
    assert done.out.splitlines() == [
        "group g: Stable, coordinator broker 1, lag 4 (1 partition without a committed offset)",
        "MEMBER  INSTANCE  CLIENT   HOST        PARTITIONS",
        "m1      i1        raftlog  /127.0.0.1  t-0 t-1",
        "TOPIC  PARTITION  COMMITTED  END  LAG  MEMBER",
        "t      0          2          6    4    m1",
        "t      1          -          6    -    m1",
    ]
    (group,) = run("groups", "describe", "g", "--format", "json").json["groups"]
    assert (group["lag"], group["uncommitted"], group["assignor"]) == (4, 1, "range")
    assert group["members"][0]["instance_id"] == "i1"
    assert group["offsets"][1] == {
        "topic": "t", "partition": 1, "committed": None, "end": 6, "lag": None, "member_id": "m1"
    }  # fmt: skip


def test_a_group_that_has_committed_nothing_has_no_lag(run, cluster):
    """Regression: it said 'lag 0', with every record unread."""
    with_member(cluster)
    cluster.groups.groups["g"].offsets.clear()
    told = run("groups", "describe", "g").out.splitlines()[0]
    assert told.endswith(", lag - (2 partitions without a committed offset)")
    (group,) = run("groups", "describe", "g", "--format", "json").json["groups"]
    assert (group["lag"], group["uncommitted"]) == (None, 2)


def test_describe_of_what_is_not_there(run):
    done = run("groups", "describe", "nope", "--format", "json")
    assert done.code == 1
    assert done.json_error["what"].startswith("GROUP_ID_NOT_FOUND")
    assert done.json_error["on"] == "group nope"


def test_reset_is_shown_first_and_done_on_demand(run, cluster):
    done = run("groups", "reset-offsets", "g", "--topic", "t", "--to-latest")
    assert done.code == 0
    assert done.out.splitlines() == [
        "TOPIC  PARTITION  BEFORE  AFTER",
        "t      0          2       6",
        "t      1          -       6",
        "nothing was changed: --execute does it",
    ]
    assert offsets(cluster) == {("t", 0): 2}
    done = run("groups", "reset-offsets", "g", "--topic", "t:1", "--to-offset", "3", "--execute")
    assert done.code == 0
    assert "nothing was changed" not in done.out
    assert offsets(cluster) == {("t", 0): 2, ("t", 1): 3}


@pytest.mark.parametrize(
    ("target", "after"),
    [
        (["--to-earliest"], 0),
        (["--to-latest"], 6),
        (["--to-current"], 2),
        (["--to-offset", "4"], 4),
        (["--to-offset", "400"], 6),
        (["--shift-by", "3"], 5),
        (["--shift-by", "-100"], 0),
        (["--to-datetime", "2026-01-31T12:00:00.000"], 6),
        (["--by-duration", "P1DT2H"], 6),
    ],
)
def test_every_target_of_a_reset(run, target, after):
    done = run("groups", "reset-offsets", "g", "--all-topics", *target, "--format", "json")
    assert done.json["executed"] is False
    assert done.json["offsets"] == [{"topic": "t", "partition": 0, "before": 2, "after": after}]


@pytest.mark.parametrize(
    "wrong",
    [
        ["--topic", "t"],
        ["--to-earliest"],
        ["--topic", "t", "--to-earliest", "--to-latest"],
        ["--topic", "t", "--all-topics", "--to-earliest"],
        ["--topic", "t:x", "--to-earliest"],
        ["--topic", "t", "--by-duration", "3 days"],
        ["--topic", "t", "--to-datetime", "yesterday"],
    ],
)
def test_wrong_usage_of_a_reset(run, wrong):
    assert run("groups", "reset-offsets", "g", *wrong).code == 64


def test_a_group_with_members_is_not_reset(run, cluster):
    with_member(cluster)
    done = run("groups", "reset-offsets", "g", "--topic", "t", "--to-earliest", "--execute")
    assert done.code == 1
    assert "no members, and it is Stable" in done.err
    assert offsets(cluster) == {("t", 0): 2}


def test_a_reset_founds_a_group(run, cluster):
    done = run("groups", "reset-offsets", "new", "--topic", "t", "--to-latest", "--execute")
    assert done.code == 0
    assert cluster.groups.groups["new"].offsets == {("t", 0): (6, ""), ("t", 1): (6, "")}


def test_delete(run, cluster):
    done = run("groups", "delete", "g", "nope")
    assert done.code == 1
    assert done.out == "deleted group g\n"
    assert "GROUP_ID_NOT_FOUND" in done.err
    assert "g" not in cluster.groups.groups
    with_member(cluster)
    assert "NON_EMPTY_GROUP" in run("groups", "delete", "g").err


def test_delete_offsets(run, cluster):
    done = run("groups", "delete-offsets", "g", "--topic", "t:0")
    assert (done.code, done.out) == (0, "deleted the offset of t-0\n")
    assert offsets(cluster) == {}


# --- kafka-consumer-groups ------------------------------------------------------------------------


def test_the_shim_prints_what_kafkas_tool_prints(run, cluster):
    """The expected text is that of Kafka 4.4's own tool, for the same group."""
    done = run("kafka-consumer-groups", "--describe", "--group", "g")
    assert done.code == 0
    assert done.err == "\nConsumer group 'g' has no active members.\n"
    assert done.out == (
        "\n"
        "GROUP           TOPIC           PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  "
        "LAG             CONSUMER-ID     HOST            CLIENT-ID\n"
        "g               t               0          2               6               "
        "4               -               -               -\n"
    )
    done = run("kafka-consumer-groups", "--describe", "--group", "g", "--state")
    assert done.out.splitlines()[1] == (
        "GROUP           COORDINATOR (ID)          "
        "ASSIGNMENT-STRATEGY  STATE                #MEMBERS"
    )
    assert done.out.splitlines()[2].split()[3:] == ["-", "Empty", "0"]
    with_member(cluster)
    done = run("kafka-consumer-groups", "--describe", "--all-groups", "--members", "--verbose")
    assert done.out == (
        "\n"
        "GROUP           CONSUMER-ID     GROUP-INSTANCE-ID HOST            CLIENT-ID       "
        "#PARTITIONS     CURRENT-EPOCH   CURRENT-ASSIGNMENT   "
        "TARGET-EPOCH    TARGET-ASSIGNMENT   \n"
        "g               m1              i1                /127.0.0.1      raftlog         "
        "2               -               t(0,1)               "
        "-               -                   \n"
    )
    assert run("kafka-consumer-groups", "--list").out == "g\n"
    listed = run("kafka-consumer-groups", "--list", "--state", "stable").out.splitlines()
    assert [line.split() for line in listed] == [["GROUP", "STATE"], ["g", "Stable"]]


def test_the_shim_resets_and_deletes(run, cluster):
    reset = ["kafka-consumer-groups", "--group", "g", "--reset-offsets", "--topic", "t"]
    done = run(*reset, "--to-earliest")
    assert "--execute option is missing" in done.err
    assert done.out == (
        "\n"
        "GROUP           TOPIC           PARTITION  NEW-OFFSET\n"
        "g               t               0          0\n"
        "g               t               1          0\n"
    )
    assert offsets(cluster) == {("t", 0): 2}
    assert run(*reset, "--to-latest", "--export").out == "t,0,6\nt,1,6\n"
    assert run(*reset, "--to-latest", "--execute").code == 0
    assert offsets(cluster) == {("t", 0): 6, ("t", 1): 6}
    done = run("kafka-consumer-groups", "--group", "g", "--delete-offsets", "--topic", "t:1")
    assert done.out.splitlines()[0] == "Request succeeded for deleting offsets from group g."
    with_member(cluster)
    done = run(*reset, "--to-earliest", "--execute")
    assert done.code == 1
    assert "is inactive, but the current state is Stable." in done.err
    done = run("kafka-consumer-groups", "--group", "g", "--group", "x", "--delete")
    assert done.code == 1
    assert "Deletion of some consumer groups failed" in done.err
    cluster.groups.groups["g"].members.clear()
    done = run("kafka-consumer-groups", "--group", "g", "--delete")
    assert done.out == "Deletion of requested consumer groups ('g') was successful.\n"


@pytest.mark.parametrize(
    "wrong", [[], ["--list", "--describe"], ["--describe"], ["--reset-offsets", "--group", "g"]]
)
def test_wrong_usage_of_the_shim_is_exit_code_1_as_with_kafkas(run, wrong):
    assert run("kafka-consumer-groups", *wrong).code == 1


def test_kafkas_flags_print_json_when_asked(run, cluster):
    shim = ("kafka-consumer-groups", "--format", "json")
    assert run(*shim, "--list").json["groups"] == [{"group": "g", "state": "Empty"}]
    (described,) = run(*shim, "--describe", "--group", "g").json["groups"]
    assert described["group"] == "g"
    done = run(*shim, "--group", "g", "--reset-offsets", "--topic", "t:0", "--to-earliest").json
    moved = {"group": "g", "topic": "t", "partition": 0, "after": 0}
    assert (done["executed"], done["offsets"]) == (False, [moved])
    done = run(*shim, "--group", "g", "--delete-offsets", "--topic", "t:0").json
    assert done["offsets"] == [{"topic": "t", "partition": 0, "error": "NONE"}]
    done = run(*shim, "--group", "g", "--group", "x", "--delete")
    assert (done.code, done.json["deleted"]) == (1, ["g"])
    assert [each["group"] for each in done.json["refused"]] == ["x"]

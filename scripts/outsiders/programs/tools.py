"""Kafka's own command-line tools, by their own flags.

    tools.py JARS BOOTSTRAP PREFIX FEATURE...

JARS is the folder that holds the tools' release.
"""

import functools
import json
import re
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

import speaking
from tool_calls import CALLS

SECONDS = 30
JARS = Path(sys.argv.pop(1))
[LOGGER] = JARS.glob("slf4j-simple-*.jar")
# The tools log an error and end with 0. Their logger comes first: 3.9 brings one of its own.
JAVA = [
    *("java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
    *("-cp", f"{LOGGER}:{JARS}/*"),
]
[RELEASE] = re.findall(r"kafka-tools-([\d.]+)\.jar", " ".join(map(str, JARS.iterdir())))
# The new names that 4.2 gave to these flags; it warns of the old ones in the output.
[MAJOR, MINOR] = map(int, RELEASE.split(".")[:2])
RENAMED = (MAJOR, MINOR) >= (4, 2)
PRODUCER_PROPERTY = "--command-property" if RENAMED else "--producer-property"
CONSUMER_PROPERTY = "--command-property" if RENAMED else "--consumer-property"
PRODUCING = "--command-property" if RENAMED else "--producer-props"
COUNT = "--num-records" if RENAMED else "--messages"
ENDLESS_SECONDS = 10


# Settings have such words in their names, and JSON has a field `"error":null`.
ERROR = re.compile(r"Exception|(?<![.\w\"])(?:error|failed)\b(?![.=])", re.IGNORECASE)


@functools.cache
def classes():
    """Returns the class of each tool, by name: releases move tools between packages and JARs."""
    found = {}
    for jar in (f"kafka_2.13-{RELEASE}.jar", f"kafka-tools-{RELEASE}.jar"):
        with zipfile.ZipFile(JARS / jar) as archive:
            names = [name.removesuffix(".class") for name in archive.namelist()]
        found.update({name.rpartition("/")[2]: name.replace("/", ".") for name in names})
    return found


def run(tool, *arguments, text="", endless=False):
    """Returns the output of one tool; when it failed or printed an error, its words.

    An `endless` tool is ended after a while.
    """
    if tool not in classes():
        raise speaking.AbsentError(f"Kafka {RELEASE} has no {tool}")
    try:
        done = subprocess.run(
            [*JAVA, classes()[tool], *arguments],
            check=False,
            input=text,
            capture_output=True,
            text=True,
            timeout=ENDLESS_SECONDS if endless else SECONDS,
        )
    except subprocess.TimeoutExpired as expired:
        if endless:
            return _decoded(expired.stdout)
        told = error_in(_decoded(expired.stdout) + "\n" + _decoded(expired.stderr))
        raise RuntimeError(told) if told else TimeoutError("no output") from expired
    # Some tools tell of an error and end with 0.
    if (told := error_in(done.stdout + "\n" + done.stderr)) or done.returncode:
        raise RuntimeError(told or f"it ended with {done.returncode}: {_last_lines(done.stderr)}")
    return done.stdout


def _decoded(output):
    return (output or b"").decode(errors="replace")


def _last_lines(output):
    """Returns the last lines without those that the logger prints about itself."""
    return " ".join([line for line in output.splitlines() if "SLF4J" not in line][-3:])


def error_in(output):
    """Returns the first lines that tell of an error, without the stacks."""
    lines = [
        line.strip()
        for line in output.splitlines()
        if ERROR.search(line) and not re.match(r"\s+at |SLF4J", line)
    ]
    return " ".join(lines[:2])


def server(place):
    return ["--bootstrap-server", place.bootstrap]


def create(place):
    shape = ["--partitions", "2", "--replication-factor", "3", "--config", "retention.ms=3600000"]
    run("TopicCommand", *server(place), "--create", "--topic", place.topic, *shape)


def grow(place):
    run("TopicCommand", *server(place), "--alter", "--topic", place.topic, "--partitions", "3")


def describe(place):
    told = run("TopicCommand", *server(place), "--describe", "--topic", place.topic)
    replicas = [sorted(each.split(",")) for each in re.findall(r"Replicas: ([\d,]+)", told)]
    speaking.expect(replicas, [["1", "2", "3"]] * 2, "replicas")


def delete(place):
    run("TopicCommand", *server(place), "--delete", "--topic", place.topic)


def describe_configs(place):
    told = run("ConfigCommand", *server(place), "--describe", "--topic", place.topic)
    speaking.expect("retention.ms=3600000" in told, True, f"retention.ms in {told!r}")


def alter_configs(place):
    change = ["--alter", "--topic", place.topic, "--add-config", "retention.ms=7200000"]
    run("ConfigCommand", *server(place), *change)


def produce(*flags):
    """Returns a function that writes the feature's records with these flags."""

    def function(place):
        lines = [f"{place.feature}-{number}\n" for number in range(speaking.WRITTEN_RECORDS)]
        run("ConsoleProducer", *server(place), "--topic", place.topic, *flags, text="".join(lines))

    return function


def codec(name):
    return produce("--compression-codec", name)


def acks(value):
    # The tool's own flag is stronger than a property.
    plain = [PRODUCER_PROPERTY, "enable.idempotence=false"]
    return produce("--request-required-acks", value, *plain)


def consume(place):
    found = []
    for partition in range(speaking.FILLED_PARTITIONS):
        begin = ["--partition", str(partition), "--offset", "earliest", "--timeout-ms", "15000"]
        count = ["--max-messages", str(speaking.FILLED_RECORDS)]
        found += run(
            "ConsoleConsumer", *server(place), "--topic", place.filled, *begin, *count
        ).split()
    speaking.expect(sorted(found), speaking.FILLED_VALUES, "records")


def consume_time(place):
    """Read from a time: GetOffsetShell finds the offset, since the consumer has no flag for a
    time."""
    asked = ["--topic-partitions", f"{place.filled}:1", "--time", str(speaking.TIME)]
    offset = run("GetOffsetShell", *server(place), *asked).strip().rpartition(":")[2]
    begin = ["--topic", place.filled, "--partition", "1", "--offset", offset]
    found = run(
        "ConsoleConsumer", *server(place), *begin, "--max-messages", "1", "--timeout-ms", "15000"
    )
    speaking.expect(found.split(), ["1:5"], "the first record")


def with_plan(tool, place, plan, *flags):
    """Run a tool that takes a JSON file: the last flag is the one that names the file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.json"
        path.write_text(json.dumps({"version": 1, "partitions": [plan]}))
        return run(tool, *server(place), *flags, str(path))


def delete_records(place):
    plan = {"topic": place.topic, "partition": 0, "offset": 5}
    with_plan("DeleteRecordsCommand", place, plan, "--offset-json-file")


def reassign(place):
    plan = {"topic": place.topic, "partition": 0, "replicas": [2]}
    with_plan("ReassignPartitionsCommand", place, plan, "--execute", "--reassignment-json-file")


def list_groups(place):
    listed = run("ConsumerGroupCommand", *server(place), "--list").split()
    speaking.expect_among(place.known_group, listed, "groups")


def group(*flags):
    """Returns a function that reads as a member of a group."""

    def function(place):
        count = ["--max-messages", str(len(speaking.FILLED_VALUES)), "--timeout-ms", "15000"]
        member = ["--topic", place.filled, "--group", place.group, "--from-beginning"]
        found = run("ConsoleConsumer", *server(place), *member, *count, *flags)
        speaking.expect(sorted(found.split()), speaking.FILLED_VALUES, "records")

    return function


def transaction(place):
    """Write inside transactions by ProducerPerformance, the tool that can.

    It draws from the lines of a file, so each record has a file, and a transaction, of its own.
    """
    settings = [f"bootstrap.servers={place.bootstrap}", "max.block.ms=8000"]
    properties = [PRODUCING, *settings]
    with tempfile.TemporaryDirectory() as folder:
        payload = Path(folder) / "payload"
        for number in range(speaking.WRITTEN_RECORDS):
            payload.write_text(f"{place.feature}-{number}\n")
            run(
                "ProducerPerformance",
                *("--topic", place.topic, "--num-records", "1", "--throughput", "-1"),
                *("--payload-file", str(payload), "--transactional-id", place.group),
                *("--transaction-duration-ms", "5000", *properties),
            )


def broker_directories(place):
    """Returns the log directories of broker 1, by Kafka's tool, which prints JSON behind two
    lines."""
    told = run("LogDirsCommand", *server(place), "--describe", "--broker-list", "1")
    [broker] = json.loads(told[told.index("{") :])["brokers"]
    return {
        each["logDir"]: [replica["partition"] for replica in each["partitions"]]
        for each in broker["logDirs"]
    }


def log_dirs_several(place):
    """Check that each of broker 1's two log directories holds some of this topic."""
    shape = ["--partitions", "4", "--replication-factor", "3", "--if-not-exists"]
    run("TopicCommand", *server(place), "--create", "--topic", place.topic, *shape)
    found = broker_directories(place)
    speaking.expect(len(found), 2, "log directories")
    own = [any(place.topic in each for each in names) for names in found.values()]
    speaking.expect(own, [True, True], "a part of the topic in each")


def to_other_directory(place):
    """Returns the plan that moves broker 1's replica of partition 0 to its other directory, and
    this directory."""
    name = f"{place.topic}-0"
    [target] = [path for path, names in broker_directories(place).items() if name not in names]
    plan = {"topic": place.topic, "partition": 0, "replicas": [1, 2, 3]}
    return {**plan, "log_dirs": [target, "any", "any"]}, target


def verify_until_moved(place, plan, target):
    """Wait until --verify says that the replica has moved; its directory must say so as well."""
    deadline = time.monotonic() + SECONDS
    moved = False
    while not moved and time.monotonic() < deadline:
        told = with_plan(
            "ReassignPartitionsCommand", place, plan, "--verify", "--reassignment-json-file"
        )
        moved = "completed successfully" in told.partition("replica")[2]
    names = broker_directories(place)[target]
    speaking.expect_among(f"{place.topic}-0", names, "replicas of the other directory")


def reassign_log_dirs(place):
    """Move a replica to another directory; --verify tells when it has moved."""
    log_dirs_several(place)
    plan, target = to_other_directory(place)
    with_plan("ReassignPartitionsCommand", place, plan, "--execute", "--reassignment-json-file")
    verify_until_moved(place, plan, target)


def reassign_log_dirs_throttle(place):
    """Move a replica of 3 MB at 100 kB a second.

    The throttle is there while it moves, and --verify takes it away at the end.
    """
    log_dirs_several(place)
    plan, target = to_other_directory(place)
    run(
        "ProducerPerformance",
        *("--topic", place.topic, "--num-records", "12000", "--record-size", "1000"),
        *("--throughput", "-1", PRODUCING, f"bootstrap.servers={place.bootstrap}"),
    )
    tool = ("ReassignPartitionsCommand", place, plan)
    throttle = ["--replica-alter-log-dirs-throttle", "100000"]
    with_plan(*tool, "--execute", *throttle, "--reassignment-json-file")
    rate = "replica.alter.log.dirs.io.max.bytes.per.second=100000"
    told = run("ConfigCommand", *server(place), "--describe", "--broker", "1")
    speaking.expect(rate in told, True, f"the throttle in {told!r}")
    told = with_plan(*tool, "--verify", "--reassignment-json-file")
    speaking.expect("is still in progress" in told, True, f"a move under way in {told!r}")
    # The same flag with another number sends the rest faster.
    more = ["--additional", "--execute", "--replica-alter-log-dirs-throttle", "10000000"]
    with_plan(*tool, *more, "--reassignment-json-file")
    verify_until_moved(place, plan, target)
    told = run("ConfigCommand", *server(place), "--describe", "--broker", "1")
    speaking.expect("io.max.bytes" in told, False, f"a throttle in {told!r}")


def remove_controller(place):
    """Make broker 3 no controller; our own command lets it vote again, for other clients."""
    quorum = ("MetadataQuorumCommand", *server(place))
    rows = [line.split() for line in run(*quorum, "describe", "--replication").splitlines()]
    [directory] = [row[1] for row in rows if row and row[0] == "3"]
    voter = ["--controller-id", "3", "--controller-directory-id", directory]
    try:
        run(*quorum, "remove-controller", *voter)
        deadline = time.monotonic() + SECONDS
        roles = []
        while roles != ["Observer"] and time.monotonic() < deadline:
            rows = [line.split() for line in run(*quorum, "describe", "--replication").splitlines()]
            roles = [row[-1] for row in rows if row and row[0] == "3"]
        speaking.expect(roles, ["Observer"], "what broker 3 is")
    finally:
        add = ["-m", "raftlog", "quorum", "add", "3", "--bootstrap-server", place.bootstrap]
        subprocess.run([sys.executable, *add], check=True, capture_output=True)


def call(wanted):
    """Returns a function for one of `CALLS`."""

    def function(place):
        with tempfile.TemporaryDirectory() as folder:
            plan = Path(folder) / "plan.json"
            names = {
                "{filled}": place.filled,
                "{work}": f"{place.prefix}-work",
                "{prefix}": place.prefix,
                "{plan}": str(plan),
                "{bootstrap}": place.bootstrap,
                "{producing}": PRODUCING,
                "{count}": COUNT,
            }

            def filled_in(text):
                for name, value in names.items():
                    text = text.replace(name, value)
                return text

            plan.write_text(filled_in(wanted.plan))
            flags = filled_in(wanted.flags).split()
            # ClusterTool takes the server behind its command, the others before theirs.
            behind = wanted.tool == "ClusterTool"
            if "{bootstrap}" not in wanted.flags:
                flags = [*flags, *server(place)] if behind else [*server(place), *flags]
            _called(wanted, flags, filled_in(wanted.shows), filled_in(wanted.refused))

    return function


def _called(wanted, flags, shows, refused):
    try:
        told = run(wanted.tool, *flags, endless=wanted.endless)
    except RuntimeError as error:
        if refused and re.search(refused, str(error)):
            return
        if re.search(r"invalid\s+choice|Invalid entity type", str(error)):
            raise speaking.AbsentError(f"Kafka {RELEASE}: {error}") from error
        raise
    if refused:
        raise ValueError(f"it was not refused: {told[:200]!r}")
    if not re.search(shows, told):
        raise ValueError(f"no {shows!r} in {told[:200]!r}")


FEATURES = {
    **{name: call(each) for name, each in CALLS.items()},
    "produce-sync": produce("--sync"),
    "create": create,
    "grow": grow,
    "describe": describe,
    "delete": delete,
    "describe-configs": describe_configs,
    "alter-configs": alter_configs,
    **{f"produce-{name}": codec(name) for name in ("none", "gzip", "snappy", "lz4", "zstd")},
    **{f"acks-{value}": acks(value) for value in ("0", "1", "all")},
    "idempotent": produce(PRODUCER_PROPERTY, "enable.idempotence=true"),
    "consume": consume,
    "consume-time": consume_time,
    "delete-records": delete_records,
    "reassign": reassign,
    "list-groups": list_groups,
    "group": group(),
    "transaction": transaction,
    "log-dirs-several": log_dirs_several,
    "reassign-log-dirs": reassign_log_dirs,
    "reassign-log-dirs-throttle": reassign_log_dirs_throttle,
    "remove-controller": remove_controller,
    "kip-848": group(CONSUMER_PROPERTY, "group.protocol=consumer"),
}

if __name__ == "__main__":
    speaking.main(RELEASE, FEATURES.__getitem__)

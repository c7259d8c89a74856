"""kafka-console (kcli), a tool of the command line on the client @platformatic/kafka.

    kafka_console.py TOOL BOOTSTRAP PREFIX FEATURE...

It speaks JSON, a line for each thing that it shows.
"""

import json
import subprocess
import sys

import speaking

SECONDS = 14
TOOL = sys.argv.pop(1)


def kcli(place, *arguments, text=""):
    """Returns the values that one call shows; raises its error when it failed."""
    done = subprocess.run(
        [TOOL, "--brokers", place.bootstrap, "--timeout", str(SECONDS * 1000), *arguments],
        check=False,
        input=text,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    if done.returncode or done.stderr.strip():
        raise RuntimeError(f"ended with {done.returncode}: {done.stderr.strip()}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def read(place, *flags):
    """Returns what a new group reads of the filled topic, until the end that it had."""
    shown = ["--group", place.group, "--data-format", "raw", "--snapshot"]
    return kcli(place, "consume", place.filled, *shown, *flags)


def list_topics(place):
    listed = kcli(place, "list")
    speaking.expect_among(place.filled, listed, "topics")
    speaking.expect([name for name in listed if name.startswith("__")], [], "internal topics")


def describe_cluster(place):
    [shown] = kcli(place, "metadata")
    nodes = {each["nodeId"]: f"{each['host']}:{each['port']}" for each in shown["brokers"]}
    speaking.expect(sorted(nodes), [1, 2, 3], "brokers")
    speaking.expect(sorted(nodes.values()), sorted(place.bootstrap.split(",")), "addresses")
    speaking.expect(shown["controllerId"] in nodes, True, f"controller {shown['controllerId']}")


def describe(place):
    [shown] = kcli(place, "metadata")
    [topic] = [each for each in shown["topicMetadata"] if each["topic"] == place.topic]
    for key in ("replicas", "isr"):
        found = [sorted(each[key]) for each in topic["partitionMetadata"]]
        speaking.expect(found, [[1, 2, 3]] * 2, key)


def delete(place):
    kcli(place, "topic:delete", place.topic)


def settings(place, kind, name):
    """Returns the settings of a topic or broker by name."""
    [shown] = kcli(place, "config", "--resource", kind, "--resourceName", name)
    return {each["name"]: each["value"] for each in shown["configs"]}


def describe_configs(place):
    found = settings(place, "topic", place.topic)
    speaking.expect(found["retention.ms"], "3600000", "retention.ms")


def describe_broker(place):
    speaking.expect(settings(place, "broker", "1")["node.id"], "1", "node.id")


def offsets(place):
    shown = kcli(place, "topic:offsets", place.filled)
    wanted = {str(number): ("0", str(speaking.FILLED_RECORDS)) for number in range(3)}
    found = {str(each["partition"]): (each["low"], each["high"]) for each in shown}
    speaking.expect(found, wanted, "start and end by partition")


def group_offsets(place):
    [shown] = kcli(place, "topic:offsets", place.filled, "--group", place.known_group)
    found = {each["partition"]: each["offset"] for each in shown["partitions"]}
    speaking.expect(found[0], str(speaking.KNOWN_OFFSET), "the committed offset")


def produce(codec):
    """Returns a function that writes the feature's records with this codec."""

    def function(place):
        values = [f"{place.feature}-{number}" for number in range(speaking.WRITTEN_RECORDS)]
        text = "".join(f"{json.dumps({'value': value})}\n" for value in values)
        flags = ["--data-format", "raw", "--compression", codec]
        kcli(place, "produce", place.topic, *flags, text=text)

    return function


def produce_zstd(place):
    """Write with the codec that Node.js itself has since 22.15."""
    script = "process.exit(require('zlib').zstdCompressSync ? 0 : 1)"
    if subprocess.run(["node", "-e", script], check=False).returncode:
        raise speaking.AbsentError("this release of Node.js has no zstd")
    produce("zstd")(place)


def consume(place):
    found = [each["value"] for each in read(place, "--from", "0")]
    speaking.expect(sorted(found), speaking.FILLED_VALUES, "records")


def consume_time(place):
    found = read(place, "--from", str(speaking.TIME))
    wanted = [value for value in speaking.FILLED_VALUES if int(value.split(":")[1]) >= 5]
    speaking.expect(sorted(each["value"] for each in found), wanted, "records")


FEATURES = {
    "create": speaking.absent("it gives a new topic no settings"),
    "describe": describe,
    "delete": delete,
    "describe-configs": describe_configs,
    **{f"produce-{name}": produce(name) for name in ("none", "gzip", "snappy", "lz4")},
    "produce-zstd": produce_zstd,
    "consume": consume,
    "consume-time": consume_time,
    "group": consume,
    "list-topics": list_topics,
    "describe-cluster": describe_cluster,
    "describe-broker-configs": describe_broker,
    "end-offsets": offsets,
    "group-offsets": group_offsets,
}
NO_COMMAND = speaking.absent("it has no command or flag for this")

if __name__ == "__main__":
    told = subprocess.run([TOOL, "--version"], check=True, capture_output=True, text=True).stdout
    speaking.main(told.strip(), lambda name: FEATURES.get(name, NO_COMMAND))

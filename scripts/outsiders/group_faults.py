"""Drives other people's clients as members of consumer groups, through faults of the brokers.

Brokers are killed, paused and restarted in turn.

Each client has a topic, a group and two members, which are programs of the client's own language:

    PROGRAM BOOTSTRAP TOPIC GROUP

A member prints each value that it processed on a line, commits it after that, and runs until it is
killed. Every broker has its turn of each fault, so each group's coordinator and each partition's
leader has one. One member of each group is killed. For each group these must hold:

* every acknowledged record is processed by some member, and committed, once the brokers are well;
* no committed offset ever goes back;
* no member ends by itself.
"""

import itertools
import os
import re
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from outsiders import clients, preparing
from raftlog.base.errors import RaftlogError
from raftlog.base.units import millis
from raftlog.client.blocking import BlockingClient
from raftlog.client.core.group_asks import fetch_offsets
from raftlog.runtime.local import cluster as local_cluster

PARTITIONS = 4
MEMBERS = 2
BROKERS = 3
SEND_EVERY_SECONDS = 0.1
LOOK_EVERY_SECONDS = 0.5
DOWN_SECONDS = 3.0
PAUSE_SECONDS = 8.0
"""The length of a pause, in seconds. It is longer than a session: the group has another coordinator
when this one wakes."""
BETWEEN_SECONDS = 3.0
BEGIN_SECONDS = 120.0
"""How long members may take to begin: virtual machines of five members start beside three
brokers."""
SETTLE_SECONDS = 150.0
ASK_MILLIS = 5000
TAIL_BYTES = 500
VALUE = re.compile(rb"\bv\d+-\d+\b")
SETTINGS = {
    "offsets.topic.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "500",
}


class Member(NamedTuple):
    """A client and how its program is prepared; the command takes bootstrap, topic and group."""

    name: str
    command: Callable[[], Callable[[str, str, str], list[str]]]


def program(made: Callable[[], list[str]]):
    """Returns the preparation of a program that takes the three as its arguments."""

    def prepared():
        command = made()
        return lambda *place: [*command, *place]

    return prepared


def go(source, *modules):
    return program(lambda: preparing.go(source, *modules, beside=("member.go",)))


def java_tool(tool, flags):
    """Returns the preparation of one of Kafka's own command-line tools."""

    def prepared():
        command = [*preparing.JAVA, "-cp", f"{clients.kafka_jars(clients.KAFKA_4)}/*", tool]

        def of(bootstrap, topic, group):
            words = flags.format(topic=topic, group=group).split()
            return [*command, "--bootstrap-server", bootstrap, *words]

        return of

    return prepared


MEMBERS_OF = [
    Member("confluent-kafka", program(lambda: preparing.own_python("member_confluent.py"))),
    Member("franz-go", go("member_franz.go", *clients.FRANZ_GO)),
    Member("sarama", go("member_sarama.go", clients.SARAMA)),
    Member("kafka-go", go("member_segment.go", clients.SEGMENT)),
    Member("kafkajs", program(lambda: preparing.npm("member_kafkajs.js", *clients.KAFKAJS))),
    Member(
        "faststream",
        program(lambda: preparing.virtual_environment("member_faststream.py", *clients.FASTSTREAM)),
    ),
    Member(
        "console-consumer",
        java_tool(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            "--topic {topic} --group {group} --from-beginning "
            "--command-property session.timeout.ms=6000 "
            "--command-property heartbeat.interval.ms=1000 "
            "--command-property auto.commit.interval.ms=200",
        ),
    ),
    Member(
        "verifiable-consumer",
        java_tool(
            "org.apache.kafka.tools.VerifiableConsumer",
            "--topic {topic} --group-id {group} --reset-policy earliest --verbose "
            "--session-timeout 6000",
        ),
    ),
]
NAMES = [member.name for member in MEMBERS_OF]


class Watched:
    """One client's group: its sent records, the words of its members, its committed offsets."""

    def __init__(self, name, command, bootstrap):
        self.name, self.command, self.bootstrap = name, command, bootstrap
        self.topic = self.group = f"faults-{name}"
        self.sent = itertools.count()
        self.acknowledged = {}
        self.processed = Counter()
        self.committed = {}
        self.wrong = []
        self.running = []
        self.lock = threading.Lock()
        self.members_lock = threading.Lock()

    # --- members ----------------------------------------------------------------------------------

    def start(self):
        """Start one more member."""
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - until it ended
        process = subprocess.Popen(
            self.command(self.bootstrap, self.topic, self.group),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
        reader = threading.Thread(target=self.read, args=(process,), daemon=True)
        reader.start()
        self.running.append((process, errors, reader))

    def read(self, process):
        for line in process.stdout:
            for value in VALUE.findall(line):
                with self.lock:
                    self.processed[value.decode()] += 1

    def kill_one(self):
        """Kill the member that has lived longest, as a crash would; another takes its place."""
        with self.members_lock:
            self.end(*self.running.pop(0))
            self.start()

    def look_at_members(self):
        """Note members that ended by themselves, and put others in their place."""
        with self.members_lock:
            for each in [each for each in self.running if each[0].poll() is not None]:
                process, errors, _ = each
                size = errors.seek(0, os.SEEK_END)
                errors.seek(max(0, size - TAIL_BYTES))
                told = " ".join(errors.read().decode(errors="replace").split())
                self.wrong.append(f"a member ended with {process.returncode}: {told}")
                self.running.remove(each)
                self.end(*each)
                self.start()

    def end(self, process, errors, reader):
        process.kill()
        process.wait()
        reader.join()
        process.stdout.close()
        errors.close()

    def end_all(self):
        while self.running:
            self.end(*self.running.pop())

    # --- records and offsets ----------------------------------------------------------------------

    def send(self, producer):
        number = next(self.sent)
        partition = number % PARTITIONS
        value = f"v{partition}-{number}"

        def delivered(error, message):
            if error is None:
                self.acknowledged[value] = (partition, message.offset())

        producer.produce(self.topic, value, partition=partition, on_delivery=delivered)

    def look_at_offsets(self, admin):
        """Compare the committed offsets with earlier ones. Brokers that are down say nothing."""
        # It does not ask through librdkafka, which answers a coordinator that dies under the
        # question with a segmentation fault (2.16.1, ListConsumerGroupOffsets).
        try:
            found = admin.ask(fetch_offsets(self.group, timeout_ns=millis(ASK_MILLIS)))
        except RaftlogError:
            return
        offsets = {place.partition: each.offset for place, each in found.items()}
        for partition in range(PARTITIONS):
            before, now = self.committed.get(partition, -1), offsets.get(partition, -1)
            if now < before:
                self.wrong.append(f"partition {partition}: {before} was committed, then {now}")
            self.committed[partition] = now

    def lacks(self):
        """Returns the records that are not processed or not committed yet; "" when all are."""
        with self.lock:
            missing = [value for value in self.acknowledged if value not in self.processed]
        ends = dict.fromkeys(range(PARTITIONS), 0)
        for partition, offset in self.acknowledged.values():
            ends[partition] = max(ends[partition], offset + 1)
        behind = {at: end for at, end in ends.items() if max(0, self.committed.get(at, 0)) < end}
        told = []
        if missing:
            told.append(f"{len(missing)} records never processed, the first is {missing[0]}")
        if behind:
            told.append(f"committed {self.committed} of {ends}")
        return "; ".join(told)

    def summary(self):
        twice = sum(count > 1 for count in self.processed.values())
        return f"{len(self.acknowledged)} records acknowledged, {twice} processed more than once"


def run(names: Sequence[str], say) -> tuple[list[str], dict[str, str]]:
    """Run these clients through all faults at once; returns the errors, a line each.

    It also returns the clients that cannot be prepared here, with the reason.
    """
    commands, skipped = {}, {}
    for member in MEMBERS_OF:
        if member.name in names:
            try:
                commands[member.name] = member.command()
            except (preparing.PreparationError, OSError) as error:
                skipped[member.name] = str(error)
    if not commands:
        return [], skipped
    with tempfile.TemporaryDirectory(prefix="raftlog-groups-") as folder:
        cluster = local_cluster.found(Path(folder), brokers=BROKERS, settings=SETTINGS)
        try:
            cluster.start_all()
            say(f"{len(commands)} clients, {MEMBERS} members each, {BROKERS} brokers")
            return _faults(cluster, commands, say), skipped
        finally:
            cluster.stop()


def _faults(cluster, commands, say):
    bootstrap = cluster.bootstrap_servers
    groups = [Watched(name, command, bootstrap) for name, command in commands.items()]
    topics = [NewTopic(group.topic, PARTITIONS, BROKERS) for group in groups]
    maker = AdminClient({"bootstrap.servers": bootstrap})
    for future in maker.create_topics(topics).values():
        future.result(60)
    try:
        for group in groups:
            for _ in range(MEMBERS):
                group.start()
        with BlockingClient(bootstrap) as admin:
            _through_faults(cluster, groups, bootstrap, admin, say)
    finally:
        for group in groups:
            group.end_all()
    return [f"{group.name}: {line}" for group in groups for line in dict.fromkeys(group.wrong)]


def _through_faults(cluster, groups, bootstrap, admin, say):
    with _load(groups, bootstrap, admin):
        _until(lambda: all(group.processed for group in groups), BEGIN_SECONDS)
        for group in groups:
            if not group.processed:
                group.wrong.append("its members processed nothing before the first fault")
        for step, fault in enumerate(_steps(cluster, groups), 1):
            say(f"{step}: {fault}")
            time.sleep(BETWEEN_SECONDS)
    _until(lambda: not any(_left(group, admin) for group in groups), SETTLE_SECONDS)
    for group in groups:
        if lacking := group.lacks():
            group.wrong.append(lacking)
        say(f"{group.name}: {group.summary()}" + ("" if not group.wrong else ", see below"))


def _steps(cluster, groups):
    """Perform the faults, each undone before the next; yields what was done."""
    nodes = [place.node for place in cluster.places]
    for node in nodes:
        cluster.kill(node)
        time.sleep(DOWN_SECONDS)
        cluster.restart(node)
        yield f"broker {node} was killed and is back"
    for node in nodes:
        cluster.pause(node)
        time.sleep(PAUSE_SECONDS)
        cluster.resume(node)
        cluster.wait_ready(node)
        yield f"broker {node} was paused for {PAUSE_SECONDS:.0f} s"
    for group in groups:
        group.kill_one()
    yield "a member of each group was killed and replaced"
    for node in nodes:
        cluster.terminate(node)
        cluster.restart(node)
        yield f"broker {node} was restarted"


@contextmanager
def _load(groups, bootstrap, admin):
    """Send records for every group, and look at members and offsets now and then."""
    stopping = threading.Event()
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "log_level": 0,
            "enable.idempotence": True,
            "message.timeout.ms": 120_000,
            "linger.ms": 0,
        }
    )

    def produce():
        while not stopping.wait(SEND_EVERY_SECONDS):
            for group in groups:
                with suppress(BufferError):
                    group.send(producer)
            producer.poll(0)

    def look():
        while not stopping.wait(LOOK_EVERY_SECONDS):
            for group in groups:
                group.look_at_members()
                group.look_at_offsets(admin)

    threads = [threading.Thread(target=each, daemon=True) for each in (produce, look)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopping.set()
        for thread in threads:
            thread.join()
        producer.flush(SETTLE_SECONDS)


def _left(group, admin):
    group.look_at_members()
    group.look_at_offsets(admin)
    return group.lacks()


def _until(done, seconds):
    deadline = time.monotonic() + seconds
    while not done() and time.monotonic() < deadline:
        time.sleep(LOOK_EVERY_SECONDS)

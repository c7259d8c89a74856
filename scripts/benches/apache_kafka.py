"""Apache Kafka beside us: three brokers of it on this machine, from the JARs of its tools.

The JARs come by Maven, as for the tools that `scripts/strangers` runs; without Java or Maven there
is no Kafka to compare with, and a benchmark says so.
"""

import contextlib
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from confluent_kafka.admin import AdminClient
from outsiders.clients import KAFKA_4, kafka_jars

START_SECONDS = 120
STOP_SECONDS = 20
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
SETTINGS = """\
process.roles=broker,controller
node.id={node}
controller.quorum.voters={voters}
listeners=PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{client}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={directory}/data
offsets.topic.replication.factor=3
min.insync.replicas=2
"""


class KafkaCluster(NamedTuple):
    """The parts of a cluster that benchmarks need: `bootstrap_servers`, and processes by node."""

    bootstrap_servers: str
    processes: dict[int, subprocess.Popen]


def jars() -> Path | None:
    """Returns the folder of Kafka's JARs; None where they cannot be had."""
    if shutil.which("java") is None:
        return None
    try:
        return kafka_jars(KAFKA_4)
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        print(f"  no Apache Kafka here: {error}")
        return None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def cluster(where: Path, more: dict[str, str], brokers: int = 3) -> Iterator[KafkaCluster]:
    """Start brokers, which are controllers too, with the settings of a comparison."""
    directory = Path(tempfile.mkdtemp(prefix="kafka-bench-"))
    nodes = range(1, brokers + 1)
    client, controller = ({node: free_port() for node in nodes} for _ in range(2))
    voters = ",".join(f"{node}@127.0.0.1:{controller[node]}" for node in nodes)
    java = ["java", "-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
    java += ["-cp", f"{where}/*"]
    processes: dict[int, subprocess.Popen] = {}
    try:
        for node in nodes:
            home = directory / str(node)
            home.mkdir()
            text = SETTINGS.format(
                node=node,
                voters=voters,
                client=client[node],
                controller=controller[node],
                directory=home,
            )
            text += "".join(f"{name}={value}\n" for name, value in more.items())
            (home / "server.properties").write_text(text)
            format_command = [*java, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID]
            format_command += ["-c", str(home / "server.properties")]
            subprocess.run(format_command, check=True, capture_output=True)
            with (home / "log").open("wb") as log:
                command = [*java, "kafka.Kafka", str(home / "server.properties")]
                processes[node] = subprocess.Popen(command, stdout=log, stderr=log)
        bootstrap = ",".join(f"127.0.0.1:{client[node]}" for node in nodes)
        wait_until_all_live(bootstrap, brokers)
        yield KafkaCluster(bootstrap, processes)
    finally:
        for process in processes.values():
            process.terminate()
        for process in processes.values():
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(directory, ignore_errors=True)


def wait_until_all_live(bootstrap: str, brokers: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(Exception):
            if len(admin.list_topics(timeout=2).brokers) == brokers:
                return
        time.sleep(0.5)
    raise SystemExit(f"Apache Kafka did not start within {START_SECONDS} s")

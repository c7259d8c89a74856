"""Three real brokers of the last release are upgraded one by one under load, change their short
secret for a long one, and require seals in the end. Nothing that was acknowledged is lost.

Brokers of the last release are this one's, without the protocols that seal.
"""

import contextlib
import re
import threading

import pytest

from raftlog.base.errors import RaftlogError
from raftlog.client.blocking import BlockingClient
from raftlog.client.core.fetched import FetchedBatches
from raftlog.client.core.values import TopicPartition
from raftlog.runtime.local import cluster as local_cluster

pytestmark = [pytest.mark.processes, pytest.mark.slow]

LAST_RELEASE = """
from raftlog.broker import peer_codec
for version in [each for each in peer_codec.PROTOCOLS if each >= peer_codec.SEALED_FROM]:
    del peer_codec.PROTOCOLS[version]
"""
SHORT, LONG = "sixteen-bytes-ok", "a secret of thirty-two bytes or more"


class Load(threading.Thread):
    """Produces numbers until it is told to stop; `acknowledged` are those that were."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.bootstrap = bootstrap
        self.ending = threading.Event()
        self.acknowledged: list[int] = []

    def run(self) -> None:
        with BlockingClient(self.bootstrap) as client:
            number = 0
            while not self.ending.is_set():
                number += 1
                with contextlib.suppress(RaftlogError):
                    client.produce("t", b"%d" % number)
                    self.acknowledged.append(number)


@pytest.fixture
def cluster(tmp_path):
    (tmp_path / "last").mkdir()
    (tmp_path / "last" / "sitecustomize.py").write_text(LAST_RELEASE)
    directory = tmp_path / "cluster"
    directory.mkdir()
    secret = directory / local_cluster.SECRET_FILE
    secret.touch(mode=0o600)
    secret.write_text(SHORT + "\n")
    found = local_cluster.found(
        directory,
        brokers=3,
        port=0,
        settings={"raftlog.peer.seal": "allowed"},
        environment={"PYTHONPATH": str(tmp_path / "last")},
    )
    try:
        yield found
    finally:
        found.stop()


def set_lines(cluster, node: int, **lines: str) -> None:
    """Other values in the configuration of a broker; None takes a line out."""
    path = cluster.directory / f"broker{node}.properties"
    text = path.read_text()
    for name, value in lines.items():
        key = name.replace("_", ".")
        text = re.sub(rf"^{re.escape(key)} = .*\n", "", text, flags=re.MULTILINE)
        text += "" if value is None else f"{key} = {value}\n"
    path.write_text(text)


def restart(cluster, node: int) -> None:
    assert cluster.terminate(node) == 0
    cluster.start(node)
    cluster.wait_ready(node)


def read_to_the_end(cluster) -> list[bytes]:
    values: list[bytes] = []
    with BlockingClient(cluster.bootstrap_servers) as client:
        client.produce("t", b"end")
        client.assign({TopicPartition("t", 0): 0})
        while values[-1:] != [b"end"]:
            found = client.poll(seconds=20)
            assert found, "nothing more is read"
            for piece in found:
                if isinstance(piece, FetchedBatches):
                    values += [each.value for each in piece.records()]
    return values


def test_an_upgrade_a_new_secret_and_seals_under_load(cluster):
    cluster.start_all()
    with BlockingClient(cluster.bootstrap_servers) as client:
        client.create_topic("t", partitions=1, replication_factor=3)
    load = Load(cluster.bootstrap_servers)
    load.start()
    cluster.environment.clear()
    for node in (1, 2, 3):
        restart(cluster, node)
    old = cluster.directory / local_cluster.SECRET_FILE
    new = cluster.directory / "secret.new"
    new.touch(mode=0o600)
    new.write_text(LONG + "\n")
    both = {"raftlog_cluster_secret_file": str(new)}
    for node in (1, 2, 3):
        set_lines(cluster, node, **both, raftlog_cluster_secret_other_file=str(old))
        restart(cluster, node)
    for node in (1, 2, 3):
        set_lines(
            cluster, node, raftlog_cluster_secret_other_file=None, raftlog_peer_seal="required"
        )
        restart(cluster, node)
    load.ending.set()
    load.join(60)
    assert not load.is_alive()
    values = read_to_the_end(cluster)
    assert len(load.acknowledged) > 10
    assert {b"%d" % number for number in load.acknowledged} - set(values) == set()
    for node in (1, 2, 3):
        said = cluster.log_path(node).read_text().count('"secret-too-short"')
        assert said == 3, "of the last release (as played here), upgraded, and with both secrets"

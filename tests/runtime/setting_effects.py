"""Clusters in virtual time whose brokers are told what a properties file says, and what a user of
such a cluster sees. A setting is honoured when two values of it make a difference here."""

import attrs

from raftlog.base.errors import ProtocolError
from raftlog.records.batch import split
from raftlog.records.record import records_of
from raftlog.runtime.settings import config_file
from raftlog.runtime.settings.config_file import parse_properties
from tests.broker.cluster import Cluster
from tests.broker.handlers.data_path import fetch_later

BASE = """
node.id = 1
log.dirs = /data
raftlog.peer.listener = 127.0.0.1:9192
controller.quorum.voters = 1@127.0.0.1:9192
default.replication.factor = 3
"""


def judged(secret, settings):
    """The server configuration that these settings make, over a plain file. None as a value takes
    a setting out of the file."""
    lines = parse_properties(f"{BASE}raftlog.cluster.secret.file = {secret}\n", "file")
    told = "".join(f"{key} = {value}\n" for key, value in settings.items() if value is not None)
    lines |= parse_properties(told, "settings")
    left_out = [key for key, value in settings.items() if value is None]
    return config_file.judge({k: v for k, v in lines.items() if k not in left_out}, "file")


def cluster_of(secret, settings, brokers=1, controllers=1):
    """Start brokers with these settings; the world gives them their identities."""
    told = judged(secret, settings).broker

    def configure(config):
        world = {"node": config.node, "peer": config.peer, "listeners": config.listeners}
        if "controller.quorum.voters" not in settings:
            world["controllers"] = config.controllers
        return attrs.evolve(told, **world)

    return Cluster(brokers, controllers, configure=configure).ready()


def records(answer):
    """Returns the records of a fetched partition, as (offset, timestamp, value)."""
    found = []
    for part in split(answer.records or b"", ProtocolError, "fetched"):
        read = records_of(part, ProtocolError, "fetched")
        found += [(each.offset, each.timestamp_ms, bytes(each.value)) for each in read]
    return found


def is_answered(cluster, node, name, within, offset=0):
    """Whether a fetch of a record that is there is answered with it in so many seconds."""
    pending = fetch_later(cluster, node, offset, name=name)
    cluster.run(within)
    if not pending.done:
        return False
    partition = pending.answer.responses[0].partitions[0]
    return partition.error_code == 0 and bool(partition.records)


def seconds_until(cluster, reached, limit, step=0.05):
    """How long it takes until a user sees this."""
    waited = 0.0
    while not reached():
        assert waited < limit, f"not within {limit} s"
        cluster.run(step)
        waited += step
    return waited

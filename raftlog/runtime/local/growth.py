"""One more broker for a local cluster that runs, or one less: `raftlog up --add-broker` and
`--remove-broker`.

The new broker gets the next number, an empty data directory, and ports behind those of the others,
or any free ones. It asks the controllers and joins. It holds nothing until partitions move to it. A
broker that is removed keeps its data directory, and its number is not given again.
"""

from pathlib import Path

import attrs

from raftlog.base.errors import LocalMisuse, OperatingError
from raftlog.runtime.disks.locks import is_locked
from raftlog.runtime.local.cluster import BrokerPlace, LocalCluster, write_properties
from raftlog.runtime.local.ports import kept_or_free
from raftlog.runtime.local.state import load_state

BROKERS_MAX = 9


def grown(directory: Path) -> tuple[LocalCluster, BrokerPlace]:
    """The cluster with one more broker, which is not started yet. `OperatingError` when the cluster
    of this directory does not run, `LocalMisuse` when it has as many brokers as there may be."""
    state = load_state(directory)
    names = [field.name for field in attrs.fields(BrokerPlace)]
    before = [BrokerPlace(**{name: int(each[name]) for name in names}) for each in state["brokers"]]
    if not any(is_locked(f"{directory}/broker{place.node}") for place in before):
        raise OperatingError(
            "the cluster does not run", on=str(directory), do=f"raftlog up --dir {directory} first"
        )
    if len(before) >= BROKERS_MAX:
        raise LocalMisuse(f"a local cluster has at most {BROKERS_MAX} brokers", on=str(directory))
    client, peer, admin = kept_or_free(
        max(ports) + 1 for ports in zip(*(place.ports for place in before), strict=True)
    )
    node = max(place.node for place in before) + 1
    while (directory / f"broker{node}").exists():  # of one that was removed
        node += 1
    place = BrokerPlace(node=node, client_port=client, peer_port=peer, admin_port=admin)
    cluster = LocalCluster(directory, (*before, place), dict(state["settings"]), detached=True)
    cluster.others = {each["node"]: each["pid"] for each in state["brokers"] if each["pid"]}
    write_properties(cluster, place)
    return cluster, place


def without(directory: Path, node: int) -> LocalCluster:
    """The cluster of the state file without this broker, whose process has been stopped. Saved:
    `raftlog up` and `down` know it no more."""
    state = load_state(directory)
    names = [field.name for field in attrs.fields(BrokerPlace)]
    left = [each for each in state["brokers"] if each["node"] != node]
    places = tuple(BrokerPlace(**{name: int(each[name]) for name in names}) for each in left)
    cluster = LocalCluster(directory, places, dict(state["settings"]), detached=True)
    cluster.others = {each["node"]: each["pid"] for each in left if each["pid"]}
    cluster.save()
    return cluster

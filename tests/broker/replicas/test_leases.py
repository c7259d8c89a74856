"""Leases hold while brokers of one cluster are restarted with other settings and other releases.

The tests in tests/raft cover promises in one group. Here are the parts of brokers: what they hand
to their replicas, keep in their directories, and say to each other.
"""

import attrs

from raftlog.base import probes
from raftlog.base.ids import METADATA_GROUP
from raftlog.broker.peer_codec import PROTOCOLS
from raftlog.storage.directories.data_dir import peek_directory
from tests.broker.handlers.data_path import batch_of, fetch, led_topic, produce

LINEARIZABLE = (("raftlog.read.consistency", "linearizable"),)


def leased(*, on, encode=True):
    """A cluster of three whose brokers in `on` have leases on."""
    cluster = led_topic(
        configs=LINEARIZABLE,
        configure=lambda config: attrs.evolve(config, lease=config.node in on),
    )
    cluster.world.network.encode = encode
    relink(cluster)
    return cluster


def relink(cluster):
    """Codecs are fixed when a link begins."""
    for one, other in ((1, 2), (1, 3), (2, 3)):
        cluster.world.network.reset(one, other)
    cluster.run(1.0)


def reads_by_lease(cluster):
    """How often a second linearizable fetch, right after a first one, was answered by a lease."""
    leader = cluster.leader("t").number
    produce(cluster, leader, batch_of(b"a"))
    fetch(cluster, leader, 0)
    probes.reset()
    fetch(cluster, leader, 0)
    return probes.fired().get("read-by-lease", 0)


def restart(cluster, number, **settings):
    node = cluster.world.nodes[number]
    cluster.kill(number)
    node.config = attrs.evolve(node.config, **settings)
    cluster.restart(number)
    cluster.ready()
    cluster.leader("t")
    return node


def raft_of(node):
    """The options of the replica that runs there."""
    return node.broker.context.router.replica("t", 0).node._state.options


def test_promises_cross_the_wire():
    assert reads_by_lease(leased(on={1, 2, 3})) == 1


def test_a_broker_that_alone_has_leases_on_has_none():
    """Leases were being switched on by a rolling restart. The broker that was first counted on its
    own setting: its reads could miss what others had committed meanwhile."""
    cluster = leased(on=set())
    leader = cluster.leader("t").number
    others = [number for number in (1, 2, 3) if number != leader]
    restart(cluster, leader, lease=True)
    cluster.run(2.0)
    for number in others:
        assert reads_by_lease(cluster) == 0
        restart(cluster, number, lease=True)
        cluster.run(2.0)
    assert reads_by_lease(cluster) == 1


def test_a_voter_of_a_release_that_says_nothing_counts_for_nothing():
    cluster = leased(on={1, 2, 3})
    leader = cluster.leader("t").number
    older = {1: PROTOCOLS[1]}
    for number in (1, 2, 3):
        if number != leader:
            node = cluster.world.nodes[number]
            release = attrs.evolve(node.config.release, codecs=older)
            node.config = attrs.evolve(node.config, release=release)
    relink(cluster)
    assert cluster.leader("t").number == leader
    assert reads_by_lease(cluster) == 0


def test_a_broker_restarted_without_leases_keeps_what_it_promised_before():
    """Its replicas promised nothing at boot, and forgot what an earlier boot had promised."""
    cluster = leased(on={1, 2, 3}, encode=False)
    node = cluster.world.nodes[2]
    lasts = node.config.election_ns
    restart(cluster, 2, lease=False)
    options = raft_of(node)
    assert (options.lease_ns, options.earlier_lease_ns) == (0, lasts)
    metadata = node.broker.manager._raft_of(METADATA_GROUP)
    assert (metadata.lease_ns, metadata.earlier_lease_ns) == (0, 0)
    for _ in range(4):
        produce(cluster, cluster.leader("t").number, batch_of(b"a"))
        cluster.run(0.5)
    assert peek_directory(node.disk).promised_ns == 0
    restart(cluster, 2)
    assert raft_of(node).earlier_lease_ns == 0

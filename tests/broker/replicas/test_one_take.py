"""A turn takes every replica at most once: a second take under one io_id would mix two rounds.

Seen in a random run of four brokers: the take of group 0 brought a commit and a membership step of
its own. The loader applied the commit, and the controller proposed (an unfenced broker). So group 0
was touched again and taken a second time in the same turn, under the io_id that its node had just
used. Consequences of a take must wait for the next turn, which is due at once.
"""

import pytest

from raftlog.base import probes
from raftlog.partition.replica import PartitionReplica
from tests.broker.cluster import Cluster


@pytest.mark.parametrize(("brokers", "controllers"), [(1, 1), (3, 1), (3, 3)])
def test_no_replica_is_taken_twice_under_one_io_id(monkeypatch, brokers, controllers):
    taken = {}
    take = PartitionReplica.take

    def counting(self, io_id, now, wall_ms):
        key = (self, io_id)
        taken[key] = taken.get(key, 0) + 1
        return take(self, io_id, now, wall_ms)

    monkeypatch.setattr(PartitionReplica, "take", counting)
    probes.reset()
    cluster = Cluster(brokers=brokers, controllers=controllers).ready()
    cluster.create("orders", partitions=4, factor=brokers)
    cluster.run(1.0)
    assert max(taken.values()) == 1
    assert probes.fired()["metadata-group-waits-for-the-next-turn"] > 0

"""A broker whose data directory is poisoned stays up to say so, and does nothing else."""

from raftlog.base.errors import DiskError
from raftlog.base.units import NEVER
from raftlog.broker.events import WriteFailed
from tests.broker.cluster import Cluster


def test_a_poisoned_broker_with_a_mark_to_write_does_not_spin():
    """Seed 256: marks of the last round waited for the next one when the store's write failed.
    There was none any more, and every turn asked for another at once: a busy loop until somebody
    came."""
    cluster = Cluster(1).ready()
    cluster.create("t", 1, 1)
    node = cluster.world.nodes[1]
    store = node.broker.volume.store
    cluster.produce("t", [b"x"])
    cluster.wait(lambda: store.deadline != NEVER, what="a mark that waits")
    now = node.live.clock.now(cluster.world.now)
    failed = WriteFailed(0, node.directory, None, DiskError("gone"))
    node.broker.handle([failed], now, 0)
    assert node.broker.volume.poisoned is not None
    later = max(now, store.deadline) + 1
    assert store.deadline != NEVER
    assert node.broker.handle([], later, 0).wake_at > later

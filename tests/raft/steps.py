"""Small steps that several scenario files share."""

from raftlog.raft.messages import (
    Install,
)
from tests.raft.cluster import (
    GROUP,
    Cluster,
    rid,
)


def install(c: Cluster, position, total: int, chunk: bytes, start: int = 0, to: int = 2):
    return Install(GROUP, rid(1), rid(to), c.node(1).term, position, total, start, chunk)


def step(c: Cluster) -> None:
    """One exchange: every peer takes and syncs, then all that is on the wire arrives."""
    for number, peer in c.peers.items():
        c.flush(number)
        while peer.persist(c.now):
            c.flush(number)
    c.deliver()

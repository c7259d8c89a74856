"""Produce while the leader dies: no acknowledged record is lost.

python docs/examples/kill_the_leader.py
"""

import raftlog
from raftlog.client.blocking import BlockingClient
from raftlog.client.core.asks import EARLIEST
from raftlog.client.core.fetcher import Trouble


def main() -> None:
    """Write before and after the death of the leader, then read both records."""
    with raftlog.Cluster(brokers=3) as cluster, BlockingClient(cluster.bootstrap_servers) as client:
        client.create_topic("orders", partitions=1, replication_factor=3)
        client.produce("orders", b"before")
        leader = cluster.leader_of("orders", 0)
        cluster.kill(leader)  # as kill -9 does
        client.produce("orders", b"after")
        assert cluster.leader_of("orders", 0) != leader
        client.assign(client.offsets("orders", EARLIEST))
        values: list[bytes | None] = []
        while len(values) < 2:
            for piece in client.poll():
                if isinstance(piece, Trouble):
                    raise piece.error
                values += [record.value for record in piece.records()]
        print(values)


if __name__ == "__main__":
    main()

"""The headers by which every answer of the admin listener says whose it is.

A port alone proves nothing: it may have become another broker's. Broker and askers both read the
names here, so an asker loads no broker.
"""

from typing import Final

CLUSTER_HEADER: Final = "Raftlog-Cluster"
NODE_HEADER: Final = "Raftlog-Node"
PROCESS_HEADER: Final = "Raftlog-Process"

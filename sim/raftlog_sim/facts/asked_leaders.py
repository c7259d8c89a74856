"""Asks a broker who leads, as a client would, and leaves the broker as it is.

A router remembers what it told. A check that asks it directly makes it remember something that no
client was told. The broker then answers otherwise than without the check: a replay of the broker
alone showed that (wide seed 108). So the check keeps its own memory here.
"""

from typing import TYPE_CHECKING

from raftlog.base.ids import GroupId
from raftlog.broker.front.router import KnownLeader, Router

if TYPE_CHECKING:
    from raftlog.metadata.topic_image import PartitionImage

Told = dict[GroupId, KnownLeader]


def newest_leader(router: Router, partition: "PartitionImage", told: Told) -> KnownLeader | None:
    """Returns the leader that the router would name to a caller who was `told` of leaders before.

    The caller also knows all that clients were told. `told` then holds the answer too.
    """
    own = router._told
    for group, leader in own.items():
        before = told.get(group)
        if before is None or before.epoch < leader.epoch:
            told[group] = leader
    router._told = told
    try:
        return router.newest(partition)
    finally:
        router._told = own

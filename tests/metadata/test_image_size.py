"""How large a snapshot of group 0 is at PARTITIONS_MAX, beside its bound.

Only partitions and topics are many. Their sizes do not depend on their number, so two images of
few give the size of one, and the sum for as many as are allowed; a third image says that the sum is
right.
"""

import attrs
import pytest

from raftlog.base.entries import Membership
from raftlog.base.ids import ReplicaId
from raftlog.base.limits import (
    PARTITIONS_MAX,
    SNAPSHOT_BYTES_MAX,
    TOPIC_NAME_CHARS_MAX,
    TOPICS_MAX,
)
from raftlog.metadata.image import EMPTY_IMAGE, encode_snapshot
from raftlog.metadata.topic_image import PartitionImage, Reported, TopicImage

OVERRIDES = (("min.insync.replicas", "2"), ("retention.ms", "604800000"))


def partition(group, factor, *, moving):
    here = tuple(ReplicaId(node, 2**63 + node, 10**6) for node in range(1, factor + 1))
    there = tuple(ReplicaId(each.node + 9, each.directory, each.epoch) for each in here)
    return PartitionImage(
        group=group,
        founding=here,
        target=there if moving else here,
        target_version=1,
        replicas=here + there if moving else here,
        reported=Reported(
            term=5,
            membership_index=9,
            serial=1,
            membership=Membership(there, here) if moving else Membership(here),
            leader=here[0],
            in_sync=here + there if moving else here,
            target_version=1,
        ),
    )


def snapshot_bytes(topics, each, factor, *, moving=False):
    found = {}
    for number in range(topics):
        topic_id = number.to_bytes(16, "big")
        name = f"{number:0{TOPIC_NAME_CHARS_MAX}d}"
        parts = tuple(partition(number * each + n, factor, moving=moving) for n in range(each))
        found[topic_id] = TopicImage(
            topic_id=topic_id, name=name, internal=False, configs=OVERRIDES, partitions=parts
        )
    return len(encode_snapshot(attrs.evolve(EMPTY_IMAGE, topics=found)))


def computed(factor, *, moving=False, topics=TOPICS_MAX, partitions=PARTITIONS_MAX):
    """The size with so many topics and partitions of the longest names."""
    empty = snapshot_bytes(0, 0, factor)
    topic = snapshot_bytes(1, 0, factor) - empty
    one = snapshot_bytes(1, 1, factor, moving=moving) - topic - empty
    assert snapshot_bytes(7, 5, factor, moving=moving) == empty + 7 * topic + 35 * one
    return empty + topics * topic + partitions * one


def test_three_replicas_fit():
    size = computed(3)
    assert 40 * 2**20 < size <= SNAPSHOT_BYTES_MAX, size


@pytest.mark.parametrize(
    ("factor", "moving", "partitions"),
    [(5, False, 73_000), (3, True, 75_000)],
    ids=["five replicas", "all of three replicas at once on the move"],
)
def test_beyond_three_settled_replicas_fewer_partitions_fit(factor, moving, partitions):
    """So many fit and 2,000 more do not: the numbers stand in the limit's reason."""
    assert computed(factor, moving=moving, partitions=partitions) <= SNAPSHOT_BYTES_MAX
    assert computed(factor, moving=moving, partitions=partitions + 2_000) > SNAPSHOT_BYTES_MAX

"""ClusterImage: canonical bytes, digest, snapshots, sharing."""

import hashlib

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.errors import CorruptData, FutureFormat
from raftlog.base.ids import GroupId, NodeId, ReplicaEpoch, ReplicaId
from raftlog.base.limits import PARTITIONS_MAX
from raftlog.metadata import commands as c
from raftlog.metadata.broker_image import Removal
from raftlog.metadata.image import (
    DIGEST_BYTES,
    EMPTY_IMAGE,
    decode_snapshot,
    encode_image,
    encode_snapshot,
)
from raftlog.metadata.rules.apply import apply
from raftlog.metadata.settings.broker_settings import EVERY_BROKER
from tests.metadata.clusters import (
    FLIGHTS,
    ORDERS,
    cluster,
    directory,
    do,
    fence,
    part,
    report,
    retarget,
    topic,
)


def rich():
    """An image in which every list has something."""
    image = cluster(1, 2, 3, 4, racks={1: "a", 2: "b"})
    image = do(image, topic(image, (1, 2, 3), (2, 3, 4)))
    image = do(image, topic(image, (1,), name="flights", topic_id=FLIGHTS))
    image = do(image, report(image), retarget(image, 1, 2, 4))
    image = do(image, report(image, index=4, voters=part(image).target))
    alter = c.AlterTopicConfigs(topic_id=ORDERS, changed=(("retention.ms", "5"),), removed=())
    image = do(image, alter, c.DeleteTopic(topic_id=FLIGHTS))
    ids = c.AllocateProducerIds(node=NodeId(1), count=7)
    return do(image, ids, c.CondemnDirectory(node=NodeId(4), directory=directory(4)))


def test_a_snapshot_gives_the_image_back():
    image = rich()
    read = decode_snapshot(encode_snapshot(image))
    assert read == image
    assert read.digest() == image.digest()
    assert encode_image(read) == encode_image(image)
    assert read.places == image.places
    assert read.names == image.names


def test_settings_of_brokers_lie_behind_the_rest():
    """An image without them has the bytes that older releases read."""
    image = rich()
    settings = {EVERY_BROKER: (("log.retention.ms", "1"),), NodeId(2): (("a", "b"), ("c", "d"))}
    held = attrs.evolve(image, settings=dict(reversed(settings.items())))
    assert decode_snapshot(encode_snapshot(held)) == held
    assert encode_image(held)[8:12] == b"\0\3\0\3"
    assert held.digest() != image.digest()
    assert encode_image(image)[8:12] == b"\0\1\0\1"


@pytest.mark.parametrize(
    "wrong",
    [
        {NodeId(1): ()},
        {NodeId(1): (("b", ""), ("a", ""))},
        {NodeId(1): (("a", ""), ("a", ""))},
    ],
)
def test_settings_that_are_not_canonical_are_refused(wrong):
    with pytest.raises(CorruptData):
        decode_snapshot(encode_snapshot(attrs.evolve(rich(), settings=wrong)))


def test_the_empty_image_too():
    assert decode_snapshot(encode_snapshot(EMPTY_IMAGE)) == EMPTY_IMAGE


def test_the_order_of_dictionaries_does_not_show():
    image = rich()
    shuffled = attrs.evolve(
        image,
        brokers=dict(reversed(image.brokers.items())),
        topics=dict(reversed(image.topics.items())),
        removals=dict(reversed(image.removals.items())),
    )
    assert encode_image(shuffled) == encode_image(image)


def test_any_difference_shows_in_the_digest():
    image = rich()
    others = [
        attrs.evolve(image, version=image.version + 1),
        attrs.evolve(image, next_group=GroupId(99)),
        attrs.evolve(image, removals={}),
        attrs.evolve(image, brokers={}),
        do(image, fence(image, 1)),
        do(image, report(image, number=1)),
    ]
    digests = [one.digest() for one in (image, *others)]
    assert len(set(digests)) == len(digests)


def test_what_did_not_change_is_shared():
    image = rich()
    after = do(image, report(image, number=1))
    assert after.topics[ORDERS].partitions[0] is image.topics[ORDERS].partitions[0]
    assert after.brokers is image.brokers
    assert after.places is image.places


def test_cached_bytes_are_never_those_of_an_older_value():
    """The cache lives in the value: a changed copy must not take it along."""
    image = rich()
    image.digest()
    after = do(image, report(image, number=1))
    fresh = decode_snapshot(encode_snapshot(after))
    assert after.digest() == fresh.digest() != image.digest()


@given(st.data())
def test_a_damaged_snapshot_is_corrupt(data):
    whole = bytearray(encode_snapshot(RICH))
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises((CorruptData, FutureFormat)):
        decode_snapshot(bytes(whole))


@given(st.integers(0, 3000))
def test_a_cut_snapshot_is_corrupt(size):
    whole = encode_snapshot(RICH)
    with pytest.raises(CorruptData):
        decode_snapshot(whole[: min(size, len(whole) - 1)])


@given(st.data())
def test_content_is_checked_even_under_a_right_digest(data):
    """A digest only says that no bit flipped; what a writer with a bug wrote is refused, or
    is an image whose bytes are the same again."""
    body = bytearray(encode_image(RICH))
    place = data.draw(st.integers(12, len(body) - 1))
    body[place] ^= data.draw(st.integers(1, 255))
    digest = hashlib.blake2b(bytes(body), digest_size=DIGEST_BYTES).digest()
    try:
        read = decode_snapshot(bytes(body) + digest)
    except CorruptData:
        return
    assert encode_image(read) == bytes(body)


def test_a_snapshot_of_the_future_names_both_versions():
    whole = bytearray(encode_snapshot(EMPTY_IMAGE))
    whole[9], whole[11] = 5, 4
    with pytest.raises(FutureFormat, match="version 5, readable from 4; this release reads 3"):
        decode_snapshot(bytes(whole))


def test_repeated_names_and_groups_are_refused():
    image = rich()
    orders = image.topics[ORDERS]
    twin = attrs.evolve(orders, topic_id=FLIGHTS)
    for topics in ({ORDERS: orders, FLIGHTS: twin},):
        broken = attrs.evolve(image, topics=topics)
        with pytest.raises(CorruptData, match="repeats"):
            decode_snapshot(encode_snapshot(broken))


def test_golden_digest():
    """Released: an image after these commands has this digest in every release. A change means that
    mixed releases would stop each other."""
    image = rich()
    assert len(encode_image(image)) == 1627
    assert (
        image.digest().hex() == "3de53a4490b4e28de6680d14cc74438405a4620f6a404dd56e8c97fa8cdc8a0e"
    )


def test_lookups():
    image = rich()
    assert image.partition(ORDERS, 2) is None
    assert image.partition(ORDERS, -1) is None
    assert image.partition(FLIGHTS, 0) is None
    assert image.partition_of_group(GroupId(0)) is None
    assert image.is_live(part(image).target[0])
    assert not image.is_live(part(image, 1).target[2])
    assert image.directory_of(NodeId(9)) is None


def test_a_refused_command_leaves_the_object():
    image = rich()
    assert apply(image, c.DeleteTopic(topic_id=FLIGHTS)).image is image


RICH = rich()


def test_a_snapshot_with_more_removals_than_there_may_be_partitions_is_read():
    """Removals that wait for an absent broker have no bound of their own."""
    image = cluster(1, 2)
    replica = ReplicaId(NodeId(2), directory(2), ReplicaEpoch(7))
    waiting = Removal(group=GroupId(1), replica=replica, topic_id=ORDERS, partition=0)
    image = attrs.evolve(image, removals={NodeId(2): (waiting,) * (PARTITIONS_MAX + 1)})
    assert len(decode_snapshot(encode_snapshot(image)).removals[NodeId(2)]) == PARTITIONS_MAX + 1

"""ClusterImage: everything that the metadata group knows, as one immutable value.

A new image shares what did not change with the one before it. Its canonical bytes are the same on
every replica that applied the same commands; the digest over them travels in periodic comparisons,
and a replica that differs stops. Dictionaries are never changed after the image was
made.

Format (big-endian; fields in the order of the tables in this folder):

    0 magic "RLIMAGE1"   8 format version u16   10 minimum reader version u16, the same
    12 the fields of ClusterImage; brokers by node, topics by topic id, removals by node
    version 2, written when there are any: performed requests by node
    version 3, written when there are any: behind those, settings by broker, which change while it
    runs; those of every broker first

A snapshot is these bytes followed by their 32-byte BLAKE2b digest.
"""

import hashlib
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, final

import attrs

from raftlog.base.binary import Buffer, Reader, Writer
from raftlog.base.errors import CorruptData, FutureFormat
from raftlog.base.ids import ClusterId, DirectoryId, GroupId, NodeId, ReplicaId, TopicId
from raftlog.base.limits import BROKERS_MAX, TOPICS_MAX
from raftlog.metadata import fields as f
from raftlog.metadata.broker_image import BROKER, REMOVALS, BrokerImage, Removal
from raftlog.metadata.performed import PERFORMED, Performed
from raftlog.metadata.settings.broker_settings import SETTINGS, BrokerSettings
from raftlog.metadata.topic_image import TOPIC_IMAGE, PartitionImage, TopicImage

_MAGIC: Final = b"RLIMAGE1"
_VERSION: Final = 3
_VERSION_OF_PERFORMED: Final = 2
_VERSION_OF_SETTINGS: Final = 3
DIGEST_BYTES: Final = 32


@final
@attrs.frozen(kw_only=True)
class ClusterImage:
    """`version` counts the commands that changed the image; it places replicas and orders images.

    `founders` are the controllers as formatted, the membership of group 0 at raft index 0;
    `controllers` are the voters wanted now. `names` and `places` are derived. `removals` are
    replicas that left and whose node has not yet confirmed that their files are gone. `performed`
    are requests of brokers that may be asked again. `settings` are those of brokers that change
    while they run; no owner has an empty tuple of them.
    """

    cluster_id: ClusterId | None
    version: int
    feature_level: int
    founders: tuple[ReplicaId, ...]
    controllers: tuple[ReplicaId, ...]
    next_group: GroupId
    next_producer_id: int
    brokers: Mapping[NodeId, BrokerImage]
    topics: Mapping[TopicId, TopicImage]
    removals: Mapping[NodeId, tuple[Removal, ...]]
    performed: Mapping[NodeId, Performed]
    settings: BrokerSettings
    names: Mapping[str, TopicId]
    places: Mapping[GroupId, tuple[TopicId, int]]
    _digest: list[bytes] = attrs.field(factory=list, init=False, eq=False, repr=False)

    def topic(self, name: str) -> TopicImage | None:
        """The topic of that name."""
        topic_id = self.names.get(name)
        return None if topic_id is None else self.topics[topic_id]

    def partition(self, topic_id: TopicId, number: int) -> PartitionImage | None:
        """That partition of that topic."""
        topic = self.topics.get(topic_id)
        if topic is None or not 0 <= number < len(topic.partitions):
            return None
        return topic.partitions[number]

    def partition_of_group(self, group: GroupId) -> PartitionImage | None:
        """The partition that is this Raft group; None for group 0 and for groups that are gone."""
        place = self.places.get(group)
        return None if place is None else self.partition(place[0], place[1])

    def live_brokers(self) -> list[BrokerImage]:
        """Brokers that clients may be sent to, by node."""
        return [broker for _, broker in sorted(self.brokers.items()) if not broker.fenced]

    def is_live(self, replica: ReplicaId) -> bool:
        """Whether the replica lies on the present directory of a broker that is not fenced."""
        broker = self.brokers.get(replica.node)
        return broker is not None and not broker.fenced and broker.directory == replica.directory

    def directory_of(self, node: NodeId) -> DirectoryId | None:
        """The directory on which that node may hold replicas."""
        broker = self.brokers.get(node)
        return None if broker is None or broker.condemned else broker.directory

    def digest(self) -> bytes:
        """32 bytes over the canonical bytes; computed once."""
        if not self._digest:
            self._digest.append(hashlib.blake2b(encode_image(self), digest_size=32).digest())
        return self._digest[0]


EMPTY_IMAGE: Final = ClusterImage(
    cluster_id=None,
    version=0,
    feature_level=0,
    founders=(),
    controllers=(),
    next_group=GroupId(1),
    next_producer_id=0,
    brokers={},
    topics={},
    removals={},
    performed={},
    settings={},
    names={},
    places={},
)

_SCALARS: Final[f.Fields] = (
    ("cluster_id", f.optional(f.CLUSTER)),
    ("version", f.U64),
    ("feature_level", f.U16),
    ("founders", f.REPLICAS),
    ("controllers", f.REPLICAS),
    ("next_group", f.U64),
    ("next_producer_id", f.U64),
)
_BROKERS: Final = f.many(BROKER, BROKERS_MAX)
_TOPICS: Final = f.many(TOPIC_IMAGE, TOPICS_MAX)
_REMOVALS: Final = f.many(f.pair(f.NODE, REMOVALS), BROKERS_MAX)


def encode_image(image: ClusterImage) -> bytes:
    """Canonical bytes: equal images give equal bytes on every machine and release."""
    version = _VERSION_OF_PERFORMED if image.performed else 1
    if image.settings:
        version = _VERSION_OF_SETTINGS
    writer = Writer().raw(_MAGIC).u16(version).u16(version)
    f.write_fields(writer, image, _SCALARS)
    _BROKERS.write(writer, [image.brokers[node] for node in sorted(image.brokers)])
    _TOPICS.write(writer, [image.topics[topic_id] for topic_id in sorted(image.topics)])
    _REMOVALS.write(writer, sorted(image.removals.items()))
    if version >= _VERSION_OF_PERFORMED:
        PERFORMED.write(writer, sorted(image.performed.items()))
    if version >= _VERSION_OF_SETTINGS:
        SETTINGS.write(writer, sorted(image.settings.items()))
    return writer.bytes()


def encode_snapshot(image: ClusterImage) -> bytes:
    """Canonical bytes and their digest: what a snapshot file and an install carry."""
    return encode_image(image) + image.digest()


def decode_snapshot(data: Buffer, on: str = "metadata snapshot") -> ClusterImage:
    """The image of a snapshot.

    Raises CorruptData for anything but whole canonical bytes with their digest, FutureFormat for a
    version that this release does not read.
    """
    view = memoryview(data)
    if len(view) < len(_MAGIC) + 4 + DIGEST_BYTES or bytes(view[: len(_MAGIC)]) != _MAGIC:
        raise CorruptData("not a metadata snapshot", on=on)
    reader = Reader(view[:-DIGEST_BYTES], CorruptData, on, position=len(_MAGIC))
    version, minimum = reader.u16(), reader.u16()
    if minimum > _VERSION:
        raise FutureFormat(
            f"metadata snapshot of version {version}, readable from {minimum}; this release reads"
            f" {_VERSION}",
            on=on,
            do="start the newer release",
        )
    digest = hashlib.blake2b(view[:-DIGEST_BYTES], digest_size=DIGEST_BYTES).digest()
    if digest != bytes(view[-DIGEST_BYTES:]):
        raise CorruptData("digest of the metadata snapshot does not match", on=on)
    return _read_body(reader, version)


def _read_body(reader: Reader, version: int) -> ClusterImage:
    scalars = f.read_fields(reader, _SCALARS)
    brokers = {broker.node: broker for broker in _BROKERS.read(reader)}
    topics = {topic.topic_id: topic for topic in _TOPICS.read(reader)}
    removals = dict(_REMOVALS.read(reader))
    performed = PERFORMED.read(reader) if version >= _VERSION_OF_PERFORMED else ()
    settings = SETTINGS.read(reader) if version >= _VERSION_OF_SETTINGS else ()
    reader.end()
    if version >= _VERSION_OF_SETTINGS:
        lists = [settings, *(configs for _, configs in settings)]
        if not all(each and _rises([key for key, _ in each]) for each in lists):
            raise reader.fail("settings of a metadata snapshot are missing or not in order")
    image = ClusterImage(
        **scalars,
        brokers=brokers,
        topics=topics,
        removals=removals,
        performed=dict(performed),
        settings=dict(settings),
        names={topic.name: topic.topic_id for topic in topics.values()},
        places={
            partition.group: (topic.topic_id, number)
            for topic in topics.values()
            for number, partition in enumerate(topic.partitions)
        },
    )
    _check_canonical(reader, image, version)
    return image


def _rises(keys: Sequence[Any]) -> bool:
    return all(one < other for one, other in pairwise(keys))


def _check_canonical(reader: Reader, image: ClusterImage, version: int) -> None:
    """Keys must have come in order and once, or two images would share one digest's meaning."""
    performed = [[done.number for done in known.done] for known in image.performed.values()]
    keyed: list[list[Any]] = [
        list(image.brokers),
        list(image.topics),
        list(image.removals),
        list(image.performed),
        *performed,
    ]
    if any(keys != sorted(keys) for keys in keyed):
        raise reader.fail("keys of a metadata snapshot are not in order")
    partitions = sum(len(topic.partitions) for topic in image.topics.values())
    if version == _VERSION_OF_PERFORMED and not performed:
        raise reader.fail("a metadata snapshot of version 2 has no performed requests")
    if any(len(numbers) != len(dict.fromkeys(numbers)) for numbers in performed):
        raise reader.fail("a metadata snapshot repeats a performed request")
    if any(not k.done or k.done[0].number < k.settled for k in image.performed.values()):
        raise reader.fail("a metadata snapshot has performed requests that were answered")
    if len(image.names) != len(image.topics) or len(image.places) != partitions:
        raise reader.fail("a metadata snapshot repeats a topic name or a group")

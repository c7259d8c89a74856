"""A registered broker as the image knows it, and what waits to be deleted on it."""

from typing import Final, final

import attrs

from raftlog.base.ids import (
    BootNumber,
    DirectoryId,
    GroupId,
    NodeId,
    ReplicaId,
    TopicId,
)
from raftlog.base.limits import (
    FORMER_DIRECTORIES_MAX,
    HOST_BYTES_MAX,
    LISTENERS_MAX,
    RACK_BYTES_MAX,
)
from raftlog.metadata import fields as f


@final
@attrs.frozen(kw_only=True)
class BrokerListener:
    """Where clients find a broker under one listener name: the advertised address."""

    name: str
    host: str
    port: int
    protocol: str


@final
@attrs.frozen(kw_only=True)
class BrokerImage:
    """One broker. `epoch` is the metadata version of its present registration (Kafka: broker
    epoch); it changes with every boot. `condemned` means that `directory` was found rolled back:
    the broker must come with a new directory. `former` are directories that may never take part
    again.

    `fenced` brokers are not named to clients and take no new replicas; the flag rises by silence
    and falls when the registered boot has caught up with its own registration.
    """

    node: NodeId
    directory: DirectoryId
    boot: BootNumber
    incarnation: int
    epoch: int
    listeners: tuple[BrokerListener, ...]
    peer_host: str
    peer_port: int
    rack: str
    level_min: int
    level_max: int
    fenced: bool
    condemned: bool
    former: tuple[DirectoryId, ...]
    metadata_replica: ReplicaId

    def listener(self, name: str) -> BrokerListener | None:
        """The listener of that name."""
        return next((listener for listener in self.listeners if listener.name == name), None)


@final
@attrs.frozen(kw_only=True)
class Removal:
    """A replica that left the image and whose files its node has not yet confirmed to be gone."""

    group: GroupId
    replica: ReplicaId
    topic_id: TopicId
    partition: int


LISTENER_FIELDS: Final[f.Fields] = (
    ("name", f.text(HOST_BYTES_MAX)),
    ("host", f.text(HOST_BYTES_MAX)),
    ("port", f.U16),
    ("protocol", f.text(HOST_BYTES_MAX)),
)
LISTENERS: Final = f.many(f.record(BrokerListener, LISTENER_FIELDS), LISTENERS_MAX)

BROKER: Final = f.record(
    BrokerImage,
    (
        ("node", f.NODE),
        ("directory", f.DIRECTORY),
        ("boot", f.U64),
        ("incarnation", f.U64),
        ("epoch", f.U64),
        ("listeners", LISTENERS),
        ("peer_host", f.text(HOST_BYTES_MAX)),
        ("peer_port", f.U16),
        ("rack", f.text(RACK_BYTES_MAX)),
        ("level_min", f.U16),
        ("level_max", f.U16),
        ("fenced", f.FLAG),
        ("condemned", f.FLAG),
        ("former", f.many(f.DIRECTORY, FORMER_DIRECTORIES_MAX)),
        ("metadata_replica", f.REPLICA),
    ),
)

_AS_MANY_AS_THERE_ARE: Final = 2**32 - 1
"""No bound by number: each element has a length of its own, so the bytes of the field bound them.
Removals that wait for a node that is away have no other bound, for topics come and go meanwhile."""
REMOVALS: Final = f.many(
    f.record(
        Removal,
        (("group", f.U64), ("replica", f.REPLICA), ("topic_id", f.TOPIC), ("partition", f.U32)),
    ),
    _AS_MANY_AS_THERE_ARE,
)

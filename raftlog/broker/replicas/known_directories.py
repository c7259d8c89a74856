"""Lets a partition's group hear only data directories that the cluster is known to have.

A term that was taken is never given back, and there are only 2^31 of them. So a message reaches a
partition's replica only when the image names the directory of its sender as that of the broker at
the other end. A membership in the group's own log may name it instead, committed or not. The image
of a replica that was away may be older than that of the sender. Then:

1. The newest campaign of each kind is kept for each peer and group, and is heard once the image
   names the directory. A broker takes part in partitions only when its own image names it, so an
   image that is as new as the sender's does.
2. All else is dropped, because its sender repeats it: a leader sends a heartbeat until it is
   answered, and answers follow heartbeats.

The metadata group hears every directory of the cluster. Its image comes from its own log, so a
replica that was away could never learn from it who leads now (Raft demands the same).
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, final

import attrs

from raftlog.base.ids import METADATA_GROUP, GroupId, NodeId
from raftlog.broker.events import LinkUp
from raftlog.broker.turn import Turn
from raftlog.partition.replica import PartitionReplica
from raftlog.raft.messages import PreVoteRequest, TimeoutNow, VoteRequest

_KEPT: Final = frozenset((PreVoteRequest, VoteRequest, TimeoutNow))
"""Sent once by each campaign, and small: at most these three wait for each peer and group."""


@final
@attrs.define(eq=False)
class KnownDirectories:
    """Asked about every Raft message that comes over a link; the module has the rules."""

    turn: Turn
    _waiting: dict[tuple[NodeId, GroupId, type], Any] = attrs.Factory(dict)

    def named(self, link: LinkUp) -> bool:
        """Whether the image names the directory at the other end as its node's."""
        broker = self.turn.image.brokers.get(link.peer)
        return broker is not None and broker.directory == link.directory

    def heard(self, link: LinkUp, replica: PartitionReplica, messages: Sequence[Any]) -> list[Any]:
        """The messages that count at once, of a link whose directory the image does not name. All
        senders of `messages` lie on that directory."""
        if replica.group == METADATA_GROUP:
            return list(messages)
        found = []
        for message in messages:
            if replica.node.names(message.sender):
                found.append(message)
            elif type(message) in _KEPT:
                self._waiting[link.peer, replica.group, type(message)] = message
        return found

    def take(self, link: LinkUp) -> Iterator[tuple[GroupId, list[Any]]]:
        """Take out the messages that waited for the image to name the directory of this link."""
        for key in [key for key in self._waiting if key[0] == link.peer]:
            yield key[1], [self._waiting.pop(key)]

    def forget(self, peer: NodeId) -> None:
        """Drop what waited from this peer: its session ended."""
        for key in [key for key in self._waiting if key[0] == peer]:
            del self._waiting[key]

    def __bool__(self) -> bool:
        """Whether any message waits."""
        return bool(self._waiting)

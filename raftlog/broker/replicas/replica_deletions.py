"""Deletes replicas of this broker, as the image asks, and tells the controller when they are gone.

1. The registration is removed, durably.
2. The files are deleted, in every directory. A deletion that fails is tried again after a pause.
3. The controller hears that the replica is gone, only after its files are.
"""

from functools import partial
from typing import Protocol, final

import attrs

from raftlog.base.ids import GroupId, ReplicaEpoch, ReplicaId
from raftlog.base.limits import REOPEN_BACKOFF_MS_MAX
from raftlog.base.units import Instant, millis
from raftlog.broker.replicas.volume import Volume
from raftlog.broker.turn import Turn
from raftlog.metadata.broker_image import Removal
from raftlog.storage.boot.recovery import delete_replica
from raftlog.storage.ops import CloseGroup
from raftlog.storage.replica import replica_path


class RemovalWatcher(Protocol):
    """Hears which replicas are gone."""

    def confirm_removed(self, removed: list[tuple[GroupId, ReplicaEpoch]]) -> None: ...


@final
@attrs.define(eq=False)
class ReplicaDeletions:
    """Deletes replicas that no longer run here; the module has the order."""

    turn: Turn
    volume: Volume
    reports: RemovalWatcher

    def begin(self, removal: Removal, *, close: bool) -> None:
        """Forget the replica and delete its files. With `close` the writer closes the group's
        files, too: no younger replica of the group runs here."""
        group, replica = removal.group, removal.replica
        if close:
            self.volume.ops.append(CloseGroup(group))
        if group in self.volume.store.registrations and not self._has_others(removal):
            self.volume.records.append(self.volume.store.unregister(group))
        plain = replica_path(removal.topic_id, removal.partition, replica.epoch)
        paths = self.turn.log_directories.to_delete(plain)
        self.volume.when_durable(partial(self._delete_files, group, replica, paths))

    def _has_others(self, removal: Removal) -> bool:
        """Whether the image still lists another id of the group on this directory.

        Then the last registration stays even though its replica is gone. It keeps an older replica
        from starting again, and gives a younger one the term in which it goes on.
        """
        topic = self.turn.image.topics.get(removal.topic_id)
        if topic is None:
            return False
        partition = topic.partitions[removal.partition]
        here = (self.turn.node, self.volume.directory)
        return any(
            (each.node, each.directory) == here and each != removal.replica
            for each in partition.replicas
        )

    def _delete_files(self, group: GroupId, replica: ReplicaId, paths: tuple[str, ...]) -> None:
        done = partial(self._deleted, group, replica, paths)
        self.turn.job(self.volume.directory, delete_replica, paths, done)

    def _deleted(
        self, group: GroupId, replica: ReplicaId, paths: tuple[str, ...], value: object
    ) -> None:
        if isinstance(value, Exception):
            self.turn.trace("delete-failed", paths[0], why=str(value))
            retry = partial(self._delete_files, group, replica, paths)
            self.turn.at(Instant(self.turn.now + millis(REOPEN_BACKOFF_MS_MAX)), retry)
            return
        self.reports.confirm_removed([(group, replica.epoch)])

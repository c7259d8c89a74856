"""Deletes replicas of this broker, as the image asks, and tells the controller when they are gone.

The registration goes first, durably; then the files, wherever they lie; then the word of it. What
cannot be deleted is tried again, with a pause, and is not confirmed.
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


class Removals(Protocol):
    """Hears of what is gone."""

    def confirm_removed(self, removed: list[tuple[GroupId, ReplicaEpoch]]) -> None: ...


@final
@attrs.define(eq=False)
class ReplicaDeletions:
    """See the module. The replica does not run here any more."""

    turn: Turn
    volume: Volume
    reports: Removals

    def begin(self, removal: Removal, *, close: bool) -> None:
        """Forget the replica and delete its files. `close`: no younger one of the group has its
        place, so the writer forgets its files, too."""
        group, replica = removal.group, removal.replica
        if close:
            self.volume.ops.append(CloseGroup(group))
        if group in self.volume.store.registrations and not self._has_others(removal):
            self.volume.records.append(self.volume.store.unregister(group))
        plain = replica_path(removal.topic_id, removal.partition, replica.epoch)
        paths = self.turn.log_directories.to_delete(plain)
        self.volume.when_durable(partial(self._delete_files, group, replica, paths))

    def _has_others(self, removal: Removal) -> bool:
        """Whether the image still lists another id of the group on this directory. The last
        registration then stays, be its replica gone: it says that no older one may begin again, and
        in which term a younger one goes on."""
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

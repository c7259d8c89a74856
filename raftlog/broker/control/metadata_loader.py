"""Applies committed commands to the image: so every broker learns the state of the cluster.

Each committed record is decoded and applied in order. The controller sees each of them. The broker
gets one image and one delta for all of them together.

A record that cannot be understood is never skipped. Damage, a command of a later release, or an
image that differs from the controller's stops the loader. That also stops this broker's replica of
the metadata group, loudly; the other brokers go on.
"""

from collections.abc import Callable, Sequence
from typing import Final, Protocol, final

import attrs

from raftlog.base.errors import CorruptData, FutureFormat
from raftlog.base.ids import METADATA_GROUP
from raftlog.base.probes import probe
from raftlog.broker.control.metadata_log import CommittedRecord, MetadataLog
from raftlog.broker.turn import Turn
from raftlog.metadata.command_codec import Proposal
from raftlog.metadata.commands import SnapshotImage
from raftlog.metadata.delta import ClusterDelta, delta_between
from raftlog.metadata.image import EMPTY_IMAGE, ClusterImage
from raftlog.metadata.refusals import Refusal
from raftlog.metadata.rules.applied import Applied
from raftlog.metadata.rules.apply import apply

_ON: Final = "metadata log"


class Duties(Protocol):
    """The controller, active or not."""

    def applied(self, proposal: Proposal, applied: Applied, position: int) -> None: ...

    def advance(self) -> None: ...


@final
@attrs.define(eq=False)
class MetadataLoader:
    """Reads the metadata log and keeps the image.

    `image` is the last one applied, `next_position` the position of the next record. `stopped` says
    why nothing is applied any more. `skipping`: the log was trimmed beyond the records applied
    here, and the next records mean nothing before a snapshot of the image.
    """

    turn: Turn
    log: MetadataLog
    controller: Duties
    image_changed: Callable[[ClusterImage, ClusterDelta], None]
    image: ClusterImage = EMPTY_IMAGE
    next_position: int = 0
    stopped: str | None = None
    skipping: bool = False

    def advance(self) -> None:
        """Apply committed records; call after every take of group 0 that moved something."""
        before = self.image
        for record in self._records():
            if not self._apply(record):
                break
        if self.image is not before:
            turn = self.turn
            delta = delta_between(before, self.image, turn.node, turn.directory)
            self.image_changed(self.image, delta)
        self.controller.advance()

    def _records(self) -> Sequence[CommittedRecord]:
        if self.stopped is not None:
            return ()
        try:
            return self.log.committed()
        except CorruptData as error:
            self._stop(f"{error}")
            return ()

    def _apply(self, record: CommittedRecord) -> bool:
        on = f"{_ON} record {record.position}"
        try:
            commands = self.turn.config.release.commands
            proposal = commands.decode(record.value, CorruptData, on)
        except (CorruptData, FutureFormat) as error:
            self._stop(f"{error}")
            return False
        if record.position != self.next_position:
            assert record.position > self.next_position, (record.position, self.next_position)
            self.skipping = True
        self.next_position = record.position + 1
        snapshot = isinstance(proposal.command, SnapshotImage)
        if self.skipping and not snapshot:
            return True
        image = EMPTY_IMAGE if self.skipping else self.image
        applied = apply(image, proposal.command, proposal.once)
        if applied.refusal is Refusal.DIGEST_DIFFERS or (snapshot and not applied.done):
            self._stop(applied.message)
            return False
        if self.skipping:
            probe("metadata-taken-over-from-a-snapshot")
            self.skipping = False
        self.image = applied.image
        self.turn.count("metadata_commands")
        self.controller.applied(proposal, applied, record.position)
        return True

    def _stop(self, why: str) -> None:
        """Stop for good: a wrong image is worse than an old one."""
        probe("metadata-loader-stopped")
        self.stopped = why
        turn = self.turn
        turn.trace("metadata-stopped", f"node {turn.node}", why=why)
        turn.count("metadata_stopped")
        self.look()

    def look(self) -> None:
        """Stop the replica of the metadata group, also a new one, once the loader has stopped.

        Its image would stay old, and so would its knowledge of other brokers' boots.
        """
        turn = self.turn
        replica = turn.replicas.get(METADATA_GROUP)
        if self.stopped is not None and replica is not None and not replica.stopped:
            replica.stop(turn.now)
            turn.touch(METADATA_GROUP)

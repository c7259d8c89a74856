"""Committed commands -> image -> delta: how every broker learns what the cluster is.

Each committed record is decoded and applied in order; the controller is shown every one of them,
and the broker gets one image and one delta for all of them together. What cannot be understood is
never skipped: damage, a command of a later release, or an image that differs from the
controller's stops the loader and with it this broker's replica of the metadata group, loudly; the
other brokers go on (DESIGN 7; LESSONS review-22).
"""

from collections.abc import Sequence
from typing import Final, Protocol, final

import attrs

from raftlog.base.errors import CorruptData, FutureFormat
from raftlog.base.ids import METADATA_GROUP, DirectoryId, GroupId, NodeId
from raftlog.base.probes import probe
from raftlog.base.trace import TraceValue
from raftlog.base.units import Instant
from raftlog.metadata.applied import Applied
from raftlog.metadata.apply import apply
from raftlog.metadata.command_codec import Proposal, decode_proposal
from raftlog.metadata.delta import ClusterDelta, delta_between
from raftlog.metadata.engine import Committed, MetadataEngine
from raftlog.metadata.image import EMPTY_IMAGE, ClusterImage
from raftlog.metadata.refusals import Refusal
from raftlog.partition.replica import PartitionReplica

_ON: Final = "metadata log"


class Services(Protocol):
    """What of the broker's context this needs."""

    now: Instant
    directory: DirectoryId
    replicas: dict[GroupId, PartitionReplica]

    @property
    def node(self) -> NodeId: ...

    def touch(self, group: GroupId) -> None: ...

    def image_changed(self, image: ClusterImage, delta: ClusterDelta) -> None: ...

    def trace(self, name: str, where: str, **fields: TraceValue) -> None: ...

    def count(self, name: str, add: int = 1) -> None: ...


class Duties(Protocol):
    """The controller, active or not."""

    def applied(self, proposal: Proposal, applied: Applied) -> None: ...

    def advance(self) -> None: ...


@final
@attrs.define(eq=False)
class MetadataLoader:
    """`image` is the last one applied. `stopped` says why nothing is applied any more, once."""

    services: Services
    engine: MetadataEngine
    controller: Duties
    image: ClusterImage = EMPTY_IMAGE
    stopped: str | None = None

    def advance(self) -> None:
        """Apply what is committed; call after every take of group 0 that moved something."""
        before = self.image
        for record in self._records():
            if not self._apply(record):
                break
        if self.image is not before:
            services = self.services
            delta = delta_between(before, self.image, services.node, services.directory)
            services.image_changed(self.image, delta)
        self.controller.advance()

    def _records(self) -> Sequence[Committed]:
        if self.stopped is not None:
            return ()
        try:
            return self.engine.committed()
        except CorruptData as error:
            self._stop(f"{error}")
            return ()

    def _apply(self, record: Committed) -> bool:
        on = f"{_ON} record {record.position}"
        try:
            proposal = decode_proposal(record.value, CorruptData, on)
        except (CorruptData, FutureFormat) as error:
            self._stop(f"{error}")
            return False
        applied = apply(self.image, proposal.command)
        if applied.refusal is Refusal.DIGEST_DIFFERS:
            self._stop(applied.message)
            return False
        self.image = applied.image
        self.services.count("metadata_commands")
        self.controller.applied(proposal, applied)
        return True

    def _stop(self, why: str) -> None:
        """Follow no further: a wrong image is worse than an old one."""
        probe("metadata-loader-stopped")
        self.stopped = why
        services = self.services
        services.trace("metadata-stopped", f"node {services.node}", why=why)
        services.count("metadata_stopped")
        replica = services.replicas.get(METADATA_GROUP)
        if replica is not None:
            replica.stop(services.now)
            services.touch(METADATA_GROUP)

"""Recordings of a simulated run: every boot of every broker, in memory, payloads once for all.

One seed of fifty is recorded. When its run is over each boot is played again, alone, and must do
the same: that proves the recorder, the codecs of all jobs, and that a broker is decided by what
`Broker.handle` is given. Runs in trio mode and those of compiled code are not recorded.
"""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, final

import attrs

from raftlog.base import probes
from raftlog.base.binary import Buffer
from raftlog.base.errors import CorruptData
from raftlog.base.ids import NodeId
from raftlog.base.limits import RECORDED_PAYLOADS_BYTES_MAX
from raftlog.base.ports import Entropy
from raftlog.base.units import MIB, Instant
from raftlog.broker.incident.reading import BrokerRecording
from raftlog.broker.incident.recorder import Recorder
from raftlog.storage.directories.data_dir import DirectoryImage
from raftlog.storage.directories.log_directories import FurtherImage
from raftlog_sim.incidents.incident_replay import Difference, Replay
from raftlog_sim.world.releases import RELEASES

if TYPE_CHECKING:
    from raftlog_sim.world.faces import SimNode

ONE_SEED_IN: Final = 50
_RECORDED: Final = 17
"""The recorded seed of every fifty."""
COMPILED: Final = find_spec("raftlog.base._compiled") is not None
"""A compiled class has no list of its fields, so its values cannot be recorded."""
ROWS_BYTES_MAX: Final = 16 * MIB
KNOWN: Final[dict[str, object]] = {
    f"release {number}": release for number, release in enumerate(RELEASES)
}


@final
class KeptPayloads:
    """Payloads in memory."""

    def __init__(self) -> None:
        self._kept: dict[bytes, bytes] = {}
        self._size = 0

    def keep(self, digest: bytes, content: Buffer) -> bool:
        """See `Payloads`."""
        if digest in self._kept:
            return True
        if self._size + len(content) > RECORDED_PAYLOADS_BYTES_MAX:
            return False
        self._kept[digest] = bytes(content)
        self._size += len(content)
        return True

    def content(self, digest: bytes, size: int) -> bytes:
        """See `Payloads`."""
        found = self._kept.get(digest)
        if found is None:
            raise CorruptData(f"payload {digest.hex()} of {size} bytes is not there")
        return found


@final
@attrs.define(eq=False)
class RecordedBoot:
    """The recording of one boot; a `RecordingSink`."""

    node: NodeId
    boot: int
    rows: bytearray = attrs.field(factory=bytearray, repr=False)
    recorder: Recorder | None = None

    def append(self, row: bytes) -> bool:
        """See `RecordingSink`."""
        self.rows += row
        return True


@final
class SimRecordings:
    """All recordings of one run."""

    def __init__(self) -> None:
        self.payloads = KeptPayloads()
        self.boots: list[RecordedBoot] = []

    def of_boot(
        self,
        node: "SimNode",
        image: DirectoryImage,
        further: Sequence[FurtherImage],
        entropy: Entropy,
        now: Instant,
    ) -> Recorder:
        """Make the broker of a boot and record it."""
        kept = RecordedBoot(node.number, node.boots)
        self.boots.append(kept)
        kept.recorder = Recorder(
            config=node.config,
            directories=[image],
            further=further,
            entropy=entropy,
            tracer=node.world.tracer,
            now=now,
            sink=kept,
            payloads=self.payloads,
            known=KNOWN,
            bytes_max=ROWS_BYTES_MAX,
            about={"node": str(node.number), "boot": str(node.boots), "by": "the simulator"},
        )
        return kept.recorder

    def replay(self, kept: RecordedBoot) -> Replay:
        """Returns the replay of a boot, before its first turn."""
        on = f"recording of n{kept.node}, boot {kept.boot}"
        return Replay(BrokerRecording(bytes(kept.rows), self.payloads, known=KNOWN, on=on))

    def first_difference(self) -> tuple[RecordedBoot, Difference] | None:
        """Replay every boot alone; returns the first difference, with its boot."""
        for kept in self.boots:
            difference = self.replay(kept).run()
            if difference is not None:
                return kept, difference
        return None


def recording_of(seed: int) -> SimRecordings | None:
    """Returns the recordings for a seed; None when its run is not recorded."""
    return SimRecordings() if seed % ONE_SEED_IN == _RECORDED and not COMPILED else None


def complaint(recordings: SimRecordings | None) -> str:
    """Returns the failure, `<class>: <what>`, of a run that replays otherwise or could not be
    recorded.

    It is empty when all is well.
    """
    if recordings is None:
        return ""
    for kept in recordings.boots:
        if kept.recorder is not None and kept.recorder.refused is not None:
            return f"replay-differs: n{kept.node}, boot {kept.boot}, {kept.recorder.over}"
    counts = probes.fired()
    found = recordings.first_difference()
    # The replayed brokers pass rare paths a second time; the run has passed them once.
    probes.reset(counts)
    if found is None:
        return ""
    kept, difference = found
    return f"replay-differs: n{kept.node}, boot {kept.boot}, {difference}"

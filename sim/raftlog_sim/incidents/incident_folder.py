"""A folder of recordings, as `Cluster(record=DIR)` leaves it: found, opened, replayed.

Brokers that are processes have a folder each for every boot, with payloads of their own.
"""

import mmap
import re
from pathlib import Path
from typing import Final, final

import attrs

from raftlog.base.errors import OperatingError
from raftlog.broker.incident import payload_file
from raftlog.broker.incident.payload_file import PayloadFile
from raftlog.broker.incident.reading import BrokerRecording
from raftlog_sim.incidents.incident_replay import Replay

SUFFIX: Final = ".recording"
_NAME: Final = re.compile(r"n(\d+)-boot(\d+)")


@final
@attrs.frozen
class BootFiles:
    """One recording of a folder."""

    name: str
    """Its name on the command line: n1-boot1."""
    node: int
    boot: int
    path: Path


@final
class IncidentFolder:
    """See the module. Raises `OperatingError` when there is no recording, `CorruptData` when the
    payloads are no such file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.boots = sorted(_found(path), key=lambda each: (each.node, each.boot))
        if not self.boots:
            raise OperatingError(
                "no recordings lie there",
                on=str(path),
                do="give a folder that Cluster(record=DIR) has filled",
            )
        self._payloads: dict[Path, PayloadFile] = {}
        for boot in self.boots:
            file = boot.path.parent / payload_file.NAME
            if file not in self._payloads:
                self._payloads[file] = PayloadFile(_content(file), str(file))

    def chosen(self, names: list[str]) -> list[BootFiles]:
        """The recordings of these names, n1 or n1-boot2; without names all of them."""
        if not names:
            return self.boots
        chosen = [each for each in self.boots if {each.name, f"n{each.node}"} & {*names}]
        for name in names:
            if not any(name in (each.name, f"n{each.node}") for each in chosen):
                known = ", ".join(each.name for each in self.boots)
                raise OperatingError(f"no recording is called {name}", on=str(self.path), do=known)
        return chosen

    @property
    def payload_count(self) -> int:
        """Returns how many payloads lie beside the recordings."""
        return sum(map(len, self._payloads.values()))

    def recording(self, boot: BootFiles) -> BrokerRecording:
        """Read one recording."""
        payloads = self._payloads[boot.path.parent / payload_file.NAME]
        return BrokerRecording(_content(boot.path), payloads, on=str(boot.path))

    def replay(self, boot: BootFiles) -> Replay:
        """Returns the replay of one recording, before its first turn."""
        return Replay(self.recording(boot))


def _found(path: Path) -> list[BootFiles]:
    try:
        files = sorted((*path.glob(f"*{SUFFIX}"), *path.glob(f"n*-boot*/*{SUFFIX}")))
    except OSError as error:
        raise OperatingError(f"cannot be read: {error.strerror}", on=str(path)) from error
    matched = [(file, _NAME.fullmatch(file.name.removesuffix(SUFFIX))) for file in files]
    return [
        BootFiles(match.group(), int(match.group(1)), int(match.group(2)), file)
        for file, match in matched
        if match is not None
    ]


def _content(path: Path) -> memoryview:
    """Map a file of the folder without copying it: payloads may be a gigabyte."""
    try:
        with path.open("rb") as file:
            if path.stat().st_size == 0:
                return memoryview(b"")
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except OSError as error:
        raise OperatingError(
            f"cannot be read: {error.strerror}", on=str(path), do="give a folder of recordings"
        ) from error

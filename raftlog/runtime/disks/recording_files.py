"""Files of recordings: one for each boot of each broker of this process, and one of payloads.

    DIR/n1-boot1.recording   DIR/n2-boot1.recording   ...   DIR/payloads

A broker with a process of its own has a folder for each boot, DIR/n1-boot1/, with the same files.

Brokers share one folder, on one trio thread. A thread of its own writes, so that a slow disk holds
up no turn. Its backlog is bounded. When the backlog exceeds the bound, or the disk fails,
recordings end and the brokers go on.

To wake a thread costs more than to record a turn. So the thread looks for rows by itself, every
tenth of a second, and is woken only when many bytes wait. A process that is killed loses that much.
"""

import os
import platform
import shutil
import threading
from collections import deque
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final, final

from raftlog.base.binary import Buffer
from raftlog.base.errors import OperatingError
from raftlog.base.limits import (
    RECORDED_BOOTS_MAX,
    RECORDED_PAYLOADS_BYTES_MAX,
    RECORDING_BEHIND_BYTES_MAX,
)
from raftlog.base.ports import Entropy, Tracer
from raftlog.base.units import KIB, Instant
from raftlog.broker.config import BrokerConfig
from raftlog.broker.incident import payload_file
from raftlog.broker.incident.recorder import Recorder
from raftlog.storage.directories.data_dir import DirectoryImage
from raftlog.storage.directories.log_directories import FurtherImage

SUFFIX: Final = ".recording"
_MODE: Final = 0o600
_JOIN_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 0.1
_WAKE_BYTES: Final = 256 * KIB
_Item = tuple[int, bytes] | threading.Event | None


@final
class RecordingFolder:
    """See the module. The folder is made, or has to be empty: recordings of two clusters in one
    folder could not be told apart."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._queue: deque[_Item] = deque()
        self._wake = threading.Event()
        self._queued_bytes = self._written_bytes = 0
        """Each is changed by one thread only."""
        self._failed = ""
        self._kept: dict[bytes, None] = {}
        self._kept_bytes = 0
        self._recorders: list[Recorder] = []
        self._files: list[int] = []
        try:
            path.mkdir(parents=True, exist_ok=True)
            if any(path.iterdir()):
                raise OperatingError(
                    "the folder for recordings is not empty", on=str(path), do="name another one"
                )
            self._payloads = self._open(payload_file.NAME)
        except OSError as error:
            raise _unusable(path, error) from error
        self._put(self._payloads, payload_file.HEAD)
        self._thread = threading.Thread(target=self._write, name="recordings", daemon=True)
        self._thread.start()

    def __enter__(self) -> "RecordingFolder":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- on the loop ------------------------------------------------------------------------------

    def of_boot(
        self,
        config: BrokerConfig,
        image: DirectoryImage,
        further: Sequence[FurtherImage],
        entropy: Entropy,
        tracer: Tracer,
        now: Instant,
    ) -> Recorder:
        """The broker of a boot, made and recorded."""
        try:
            file = self._open(f"n{config.node}-boot{image.boot}{SUFFIX}")
        except OSError as error:
            raise _unusable(self.path, error) from error
        recorder = Recorder(
            config=config,
            directories=[image],
            further=further,
            entropy=entropy,
            tracer=tracer,
            now=now,
            sink=_FileSink(self, file),
            payloads=self,
            about={
                "raftlog": version("raftlog"),
                "python": platform.python_version(),
                "node": str(config.node),
                "boot": str(image.boot),
            },
        )
        self._recorders.append(recorder)
        return recorder

    def keep(self, digest: bytes, content: Buffer) -> bool:
        """See `Payloads`."""
        if digest in self._kept:
            return True
        if self._kept_bytes + len(content) > RECORDED_PAYLOADS_BYTES_MAX:
            return False
        self._kept[digest] = None
        self._kept_bytes += len(content)
        return self._put(self._payloads, payload_file.entry(digest, content))

    def content(self, digest: bytes, size: int) -> bytes:
        """Not here: who records reads nothing back."""
        raise AssertionError((digest, size))

    def put(self, file: int, row: bytes) -> bool:
        """Queue bytes for a file; False when they are dropped."""
        return self._put(file, row)

    def _put(self, file: int, content: bytes) -> bool:
        behind = self._queued_bytes - self._written_bytes
        if self._failed or behind > RECORDING_BEHIND_BYTES_MAX:
            return False
        self._queued_bytes += len(content)
        self._queue.append((file, content))
        if behind > _WAKE_BYTES:
            self._wake.set()
        return True

    def _open(self, name: str) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        file = os.open(self.path / name, flags, _MODE)
        self._files.append(file)
        return file

    # --- from any thread --------------------------------------------------------------------------

    @property
    def failed(self) -> str:
        """Why nothing more is written; empty while it is."""
        return self._failed

    def flush(self) -> None:
        """Return when everything handed in before is in the files."""
        done = threading.Event()
        self._queue.append(done)
        self._wake.set()
        done.wait(_JOIN_SECONDS)

    def copy_to(self, folder: Path) -> list[Path]:
        """Copy everything as far as it is recorded; brokers may go on meanwhile."""
        self.flush()
        folder.mkdir(parents=True, exist_ok=True)
        # Rows refer to payloads that were written before them: so payloads are copied last.
        files = sorted(self.path.iterdir(), key=lambda file: file.name == payload_file.NAME)
        return [Path(shutil.copy(file, folder / file.name)) for file in files]

    def close(self) -> None:
        """End all recordings, and the thread. No broker may take a turn any more."""
        for recorder in self._recorders:
            recorder.end("the cluster was stopped")
        self._queue.append(None)
        self._wake.set()
        self._thread.join(_JOIN_SECONDS)
        for file in self._files:
            os.close(file)
        self._files.clear()

    # --- the thread -------------------------------------------------------------------------------

    def _write(self) -> None:
        while True:
            self._wake.wait(_LOOK_SECONDS)
            self._wake.clear()
            # A row that is appended after the last look waits for the next one.
            while self._queue:
                item = self._queue.popleft()
                if item is None:
                    return
                if isinstance(item, threading.Event):
                    item.set()
                else:
                    self._write_out(*item)

    def _write_out(self, file: int, content: bytes) -> None:
        """These bytes and those behind them of the same file, in one call."""
        parts = [content]
        while self._queue and isinstance(item := self._queue[0], tuple) and item[0] == file:
            parts.append(item[1])
            self._queue.popleft()
        joined = b"".join(parts)
        try:
            left = memoryview(joined)
            while left and not self._failed:
                left = left[os.write(file, left) :]
        except OSError as error:
            self._failed = f"{error.strerror}"
        self._written_bytes += len(joined)


@final
class BootFolders:
    """The recordings of a broker with a process of its own: a folder in `directory` for each boot.
    The oldest boots are deleted first."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._open: list[RecordingFolder] = []

    def of_boot(
        self,
        config: BrokerConfig,
        image: DirectoryImage,
        further: Sequence[FurtherImage],
        entropy: Entropy,
        tracer: Tracer,
        now: Instant,
    ) -> Recorder:
        """See `Recordings`. Raises `OperatingError` when the folder cannot be made."""
        try:
            self._make_room(config.node)
        except OSError as error:
            raise _unusable(self._directory, error) from error
        folder = RecordingFolder(self._directory / f"n{config.node}-boot{image.boot}")
        self._open.append(folder)
        return folder.of_boot(config, image, further, entropy, tracer, now)

    def close(self) -> None:
        """Write everything. The broker may take no turn any more."""
        for folder in self._open:
            folder.close()

    def _make_room(self, node: int) -> None:
        found = [(_boot_of(path, node), path) for path in self._directory.glob(f"n{node}-boot*")]
        earlier = [path for boot, path in sorted(found) if boot > 0]
        for path in earlier[: max(0, len(earlier) - RECORDED_BOOTS_MAX + 1)]:
            for file in (*path.glob(f"*{SUFFIX}"), path / payload_file.NAME):
                file.unlink(missing_ok=True)
            path.rmdir()


def _boot_of(path: Path, node: int) -> int:
    """The boot whose folder that is; 0 for what is none."""
    number = path.name.removeprefix(f"n{node}-boot")
    return int(number) if number.isdecimal() and path.is_dir() else 0


@final
class _FileSink:
    """The `RecordingSink` of one boot."""

    __slots__ = ("_file", "_folder")

    def __init__(self, folder: RecordingFolder, file: int) -> None:
        self._folder = folder
        self._file = file

    def append(self, row: bytes) -> bool:
        """See `RecordingSink`."""
        return self._folder.put(self._file, row)


def _unusable(path: Path, error: OSError) -> OperatingError:
    return OperatingError(
        f"recordings cannot be written: {error.strerror}",
        on=str(path),
        do="name a folder that can be written",
    )

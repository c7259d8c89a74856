"""Several log directories of one broker process: read from the settings, locked, opened, joined.

The first is the data directory. A further one that fails while the broker starts is told, and the
broker goes on without its replicas; one that belongs to another broker stops the start.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Protocol, final

import attrs

from raftlog.base.errors import ConfigError, DiskError, OperatingError
from raftlog.base.ids import DirectoryId
from raftlog.base.limits import LOG_DIRECTORIES_MAX
from raftlog.base.ports import Disk, Entropy, Tracer
from raftlog.base.trace import TraceEvent
from raftlog.runtime.disks.locks import lock_directory
from raftlog.runtime.disks.open_files import Descriptors
from raftlog.runtime.settings.settings_file import SettingsFile
from raftlog.storage.directories.data_dir import DirectoryImage
from raftlog.storage.directories.directory_move import settle_moves
from raftlog.storage.directories.log_directories import (
    FurtherImage,
    LogDirectories,
    directory_of,
    open_further,
)
from raftlog.storage.replica import GROUPS_DIRECTORY


def log_dirs(settings: SettingsFile) -> tuple[str, ...]:
    """The data directory, then the further log directories; `ConfigError` for one named twice."""
    key = "log.dirs" if settings.text("log.dirs") else "log.dir"
    paths = tuple(each.strip() for each in settings.required("log.dirs", "log.dir").split(","))
    where = settings.where(key)
    if "" in paths:
        raise ConfigError(f"a path of {key} is empty", on=where, do="write path,path,path")
    if len(paths) > LOG_DIRECTORIES_MAX:
        problem = f"{len(paths)} log directories, and at most {LOG_DIRECTORIES_MAX} are served"
        raise ConfigError(problem, on=where, do="name fewer directories")
    seen: dict[str, str] = {}
    for path in paths:
        real = os.path.realpath(path)
        if real in seen:
            problem = f"{seen[real]!r} and {path!r} are one directory"
            raise ConfigError(problem, on=where, do="name each directory once")
        seen[real] = path
    return paths


@final
@attrs.frozen(kw_only=True)
class FurtherDisk:
    """A further log directory of a machine. `disk` and `descriptors` are None when it failed before
    it was opened, and `error` says why; `descriptors` also when files are read through `disk`."""

    name: str
    disk: Disk | None = None
    descriptors: Descriptors | None = None
    error: DiskError | None = None


def take_further(
    paths: Sequence[str],
    stack: ExitStack,
    tracer: Tracer,
    over: Callable[[str], tuple[Disk, Descriptors | None]],
) -> tuple[FurtherDisk, ...]:
    """Lock the further directories; `over` gives the disk of a path, and how its files are sent."""
    found: list[FurtherDisk] = []
    for path in paths:
        name = os.path.abspath(path)
        try:
            lock_directory(path, stack, tracer)
        except DiskError as error:
            found.append(FurtherDisk(name=name, error=error))
        except OSError as error:
            why = DiskError(os.strerror(error.errno or 0), on=path, do="check the disk")
            found.append(FurtherDisk(name=name, error=why))
        else:
            disk, descriptors = over(path)
            found.append(FurtherDisk(name=name, disk=disk, descriptors=descriptors))
    return tuple(found)


@final
@attrs.frozen
class OpenedDirectories:
    """All log directories of this boot as one disk, the further ones by prefix."""

    disk: Disk
    further: Mapping[str, Disk]
    images: Sequence[FurtherImage]
    descriptors: Descriptors | None


class DirectoryPorts(Protocol):
    """The part of `raftlog.runtime.machine.Machine` that this module needs."""

    @property
    def disk(self) -> Disk: ...
    @property
    def descriptors(self) -> Descriptors | None: ...
    @property
    def further(self) -> Sequence[FurtherDisk]: ...
    @property
    def entropy(self) -> Entropy: ...


def open_directories(
    machine: DirectoryPorts, name: str, image: DirectoryImage, tracer: Tracer
) -> OpenedDirectories:
    """Open the further directories of a broker whose data directory is `image`, at the path `name`.
    Raises what `open_further` raises, and `OperatingError` for a replica in two directories."""
    first, descriptors = machine.disk, machine.descriptors
    disks: dict[str, Disk] = {}
    senders: dict[str, Descriptors] = {}
    images: list[FurtherImage] = []
    for each in machine.further:
        found = _opened(each, image, machine.entropy)
        images.append(found)
        _tell_failure(found, tracer)
        if found.prefix and each.disk is not None:
            if found.prefix in disks:
                raise OperatingError(
                    "two log directories have one identity, so one is a copy of the other",
                    on=each.name,
                    do="take the copy out of log.dirs",
                )
            disks[found.prefix] = each.disk
            if each.descriptors is not None:
                senders[found.prefix] = each.descriptors
    if not machine.further:
        return OpenedDirectories(first, {}, (), descriptors)
    disk = LogDirectories(first, disks)
    here = FurtherImage(name=name, replicas=tuple(first.list(GROUPS_DIRECTORY)))
    registered = [each.path for each in image.registrations.values()]
    settled = settle_moves(disk, registered, [here, *images])
    for path in settled.deleted:
        tracer.emit(TraceEvent("move-settled", path, (("deleted", path),)))
    before, images = images, settled.directories[1:]
    for was, found in zip(before, images, strict=True):
        if was.error is None:
            _tell_failure(found, tracer)
    everything = descriptors if descriptors is None else _AllDescriptors(descriptors, senders)
    if len(senders) < len(disks):
        everything = None
    return OpenedDirectories(disk, disks, images, everything)


def _tell_failure(image: FurtherImage, tracer: Tracer) -> None:
    if image.error is not None:
        about = (("why", str(image.error)),)
        tracer.emit(TraceEvent("log-directory-failed", image.name, about))


def _opened(directory: FurtherDisk, image: DirectoryImage, entropy: Entropy) -> FurtherImage:
    if directory.disk is None:
        return FurtherImage(name=directory.name, error=directory.error)
    new_id = DirectoryId(1 + entropy.below(2**64 - 1))
    return open_further(directory.disk, image.identity, directory.name, new_id)


@final
@attrs.frozen
class _AllDescriptors:
    """`raftlog.runtime.disks.open_files.Descriptors` over all log directories."""

    first: Descriptors
    further: Mapping[str, Descriptors]

    def open(self, path: str) -> int:
        """See `Descriptors`."""
        prefix = directory_of(path)
        if not prefix:
            return self.first.open(path)
        if prefix not in self.further:
            raise DiskError(f"log directory {prefix} is not there", on=path)
        return self.further[prefix].open(path[len(prefix) + 1 :])

    def close(self, fd: int) -> None:
        self.first.close(fd)

    def is_removed(self, fd: int) -> bool:
        return self.first.is_removed(fd)

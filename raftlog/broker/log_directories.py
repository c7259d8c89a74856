"""Tells in which log directory of this broker a replica lies, and which of them failed.

Laws (docs/decisions/0074-several-log-directories.md):

1. A registered replica lies where its registration says. It is never begun a second time elsewhere,
   whatever happens to that directory: its broker would forget its votes.
2. A new replica goes where a client asked for, else to the healthy directory with the fewest
   replicas, the first of them on a tie. Files that a crash left elsewhere before the replica was
   registered have no record; a later boot deletes them (`directory_move.settle_moves`).
3. Group 0 lies in the data directory.
"""

from collections.abc import Mapping, Sequence
from typing import final

import attrs

from raftlog.base.errors import DiskError, RaftlogError
from raftlog.base.ids import METADATA_GROUP, GroupId, ReplicaId
from raftlog.storage.directories.log_directories import FurtherImage, directory_of
from raftlog.storage.replica import Registration


@final
@attrs.define(eq=False)
class LogDirectory:
    """One log directory.

    `prefix` begins the paths of its replicas and is "" for the data directory. `name` is its path
    for operators. `error`: it failed, and nothing of it is used in this boot.
    """

    prefix: str
    name: str
    error: RaftlogError | None = None
    known: bool = True
    """Whether the directory could say at boot which one it is."""


@final
@attrs.define(eq=False)
class BrokerDirectories:
    """All directories of this broker, the data directory first."""

    all: list[LogDirectory]
    offline: dict[GroupId, None] = attrs.Factory(dict)
    """Groups whose replica here lies in a directory that failed."""
    moving: dict[GroupId, str] = attrs.Factory(dict)
    """Group whose replica moves -> the prefix of its new directory."""
    _preferred: dict[GroupId, str] = attrs.Factory(dict)
    """Group without a replica here yet -> the prefix of the directory that a client asked for."""
    _paths: dict[GroupId, str] = attrs.Factory(dict)
    """Group -> the path of its replica that runs, or waits to run, here."""

    @staticmethod
    def of_boot(first: str, further: Sequence[FurtherImage]) -> "BrokerDirectories":
        """The directories as a boot found them."""
        others = [
            LogDirectory(image.prefix, image.name, image.error, bool(image.prefix))
            for image in further
        ]
        return BrokerDirectories([LogDirectory("", first), *others])

    @property
    def further(self) -> list[LogDirectory]:
        """All log directories except the data directory."""
        return self.all[1:]

    def error_of(self, path: str) -> RaftlogError | None:
        """The reason why a replica at that path cannot be opened in this boot; None when it can."""
        prefix = directory_of(path)
        if not prefix:
            return None
        for each in self.further:
            if each.known and each.prefix == prefix:
                return each.error
        return DiskError(
            f"log directory {prefix} is not among log.dirs, or cannot be read",
            on=path,
            do="name it and restart the broker, or reassign its replicas",
        )

    def named(self, name: str) -> LogDirectory | None:
        """The directory with that path; None when this broker has none."""
        wanted = name.rstrip("/")
        return next((each for each in self.all if each.name.rstrip("/") == wanted), None)

    def fail(self, prefix: str, error: RaftlogError) -> bool:
        """Take note that a directory failed; returns whether this is news."""
        for each in self.further:
            if each.known and each.prefix == prefix and each.error is None:
                each.error = error
                return True
        return False

    def path_of(
        self,
        group: GroupId,
        replica: ReplicaId,
        plain: str,
        registrations: Mapping[GroupId, Registration],
    ) -> str:
        """The path where this replica lies or begins; `plain` is its path in the data directory."""
        known = registrations.get(group)
        if known is not None and known.replica == replica:
            path = known.path
        else:
            path = self._new_path(group, plain, registrations)
        self._paths[group] = path
        self.offline.pop(group, None)
        return path

    def moved(self, group: GroupId, path: str) -> None:
        """Take note that the group's replica is registered at another path."""
        self._paths[group] = path

    def prefer(self, group: GroupId, prefix: str) -> None:
        """Let a replica of the group that is placed here later begin in that directory."""
        self._preferred[group] = prefix

    def directory_of(self, group: GroupId) -> str:
        """The prefix of the directory in which the group's replica lies, if it has one here."""
        return directory_of(self._paths.get(group, ""))

    def forget(self, group: GroupId) -> None:
        """Forget the group, which has no replica here any more."""
        self._paths.pop(group, None)
        self.offline.pop(group, None)

    def _new_path(
        self, group: GroupId, plain: str, registrations: Mapping[GroupId, Registration]
    ) -> str:
        if group == METADATA_GROUP or len(self.all) == 1:
            return plain
        wanted = self._preferred.pop(group, None)
        if wanted is not None and self.error_of(f"{wanted}/{plain}") is None:
            return f"{wanted}/{plain}" if wanted else plain
        counts = {each.prefix: 0 for each in self.all if each.error is None}
        paths = {other: each.path for other, each in registrations.items()}
        for path in (paths | self._paths).values():
            prefix = directory_of(path)
            if prefix in counts:
                counts[prefix] += 1
        prefix = min(counts, key=lambda each: counts[each])
        return f"{prefix}/{plain}" if prefix else plain

    def to_delete(self, plain: str) -> tuple[str, ...]:
        """Every path at which files of a replica may lie, in directories that are present.

        Failed ones are among them: files that cannot be deleted are not confirmed as gone.
        """
        further = (f"{each.prefix}/{plain}" for each in self.further if each.known)
        return (plain, *further)

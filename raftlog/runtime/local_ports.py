"""Ports of this machine: which are free, and which process listens on one that is not.

Brokers listen with SO_REUSEADDR, so a port counts as free when nothing listens there; connections
of an earlier broker that the kernel still remembers do not matter.
"""

import contextlib
import os
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from raftlog.base.errors import OperatingError

HOST: Final = "127.0.0.1"
_LISTENING: Final = "0A"
_COMMAND_CHARACTERS_SHOWN: Final = 80
_PROC: Final = Path("/proc")


def free_ports(count: int) -> list[int]:
    """Ports that are free now. Another process may take one before we do; the start then says
    so."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((HOST, 0))
        return [int(each.getsockname()[1]) for each in sockets]


def is_free(port: int) -> bool:
    """Whether a broker could listen here now."""
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((HOST, port))
            trial.listen(1)
        except OSError:
            return False
    return True


def kept_or_free(ports: Iterable[int | None]) -> list[int]:
    """Each of these ports as far as it is free, and a free one in place of every other (None: there
    was none before)."""
    wanted = list(ports)
    kept = [port if port is not None and is_free(port) else None for port in wanted]
    fresh = iter(free_ports(kept.count(None)))
    return [port if port is not None else next(fresh) for port in kept]


class Holder(NamedTuple):
    """The process that listens on a port. `directory` is that of its cluster when it is a broker
    that `raftlog up` started."""

    process: int
    command: tuple[str, ...]

    @property
    def directory(self) -> Path | None:
        command = self.command
        if "serve" not in command or "--config" not in command[:-1]:
            return None
        return Path(command[command.index("--config") + 1]).parent

    def __str__(self) -> str:
        if self.directory is not None:
            return f"process {self.process}, a broker of the cluster in {self.directory}"
        text = " ".join(self.command)
        shown = "".join(each if each.isprintable() else "?" for each in text)
        return f"process {self.process}: {shown[:_COMMAND_CHARACTERS_SHOWN]}"


def refuse_taken(ports: Iterable[int], *, for_whom: str) -> None:
    """Raise `OperatingError` that names who listens on the first of these ports that is taken."""
    for port in ports:
        if is_free(port):
            continue
        holder = holder_of(port)
        whose = "it is taken" if holder is None else f"it is taken by {holder}"
        stop = "choose other ports"
        if holder is not None and holder.directory is not None:
            stop = f"raftlog down --dir {holder.directory}, or choose other ports"
        raise OperatingError(f"{for_whom} cannot listen: {whose}", on=f"{HOST}:{port}", do=stop)


def holder_of(port: int) -> Holder | None:
    """The process that listens on a port, as far as we may see it: on Linux, of the same user."""
    sockets = {f"socket:[{inode}]" for inode in _listening_inodes(port)}
    if not sockets:
        return None
    for process in sorted(int(each) for each in os.listdir(_PROC) if each.isdigit()):
        try:
            files = (_PROC / str(process) / "fd").iterdir()
            if any(os.readlink(each) in sockets for each in files):
                command = (_PROC / str(process) / "cmdline").read_bytes()
                texts = command.decode(errors="replace").split("\0")
                return Holder(process, tuple(each for each in texts if each))
        except OSError:
            continue  # it ended meanwhile, or belongs to another user
    return None


def _listening_inodes(port: int) -> Iterator[str]:
    """Of the sockets that listen on this port at any address. Nothing where there is no /proc."""
    for table in ("tcp", "tcp6"):
        try:
            lines = (_PROC / "net" / table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            # sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode
            fields = line.split()
            if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                yield fields[9]

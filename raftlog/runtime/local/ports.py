"""Ports of this machine: which are free, and which process listens on one that is not.

Brokers listen with SO_REUSEADDR, so a port counts as free when nothing listens there; connections
of an earlier broker that the kernel still remembers do not matter.
"""

import contextlib
import os
import socket
import sys
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple, final

from raftlog.base.errors import OperatingError
from raftlog.runtime.local.state import STATE_FILE
from raftlog.runtime.real_ports import OsEntropy

HOST: Final = "127.0.0.1"
PORTS_FROM: Final = 20_000
"""Above the ports that services usually have."""
_ROOM_MIN: Final = 1_000
_TRIES_PER_PORT: Final = 20
_NO_PROCESS: Final = "0"
_COMMAND_CHARACTERS_SHOWN: Final = 80
_PROC: Final = Path("/proc")


def free_ports(count: int, *, besides: Collection[int] = ()) -> list[int]:
    """Ports that are free now and that no running cluster holds (`HeldPorts`), and none of
    `besides`. Another process may take one before we do; the start then says so.

    They lie below those that the kernel gives to outgoing connections, if there is room. Such a
    connection could take the port of a broker that is dead for a while, which then cannot return.
    """
    entropy, found = OsEntropy(), dict[int, None]()
    room = _first_outgoing_port() - PORTS_FROM
    for _ in range(_TRIES_PER_PORT * count if room >= _ROOM_MIN else 0):
        port = PORTS_FROM + entropy.below(room)
        if len(found) < count and port not in besides and _is_nobodys(port):
            found[port] = None
    return [*found, *_ports_of_the_kernel(count - len(found))]


def _first_outgoing_port() -> int:
    """From here on the kernel takes the local ports of connections; 0 when it does not say."""
    try:
        return int((_PROC / "sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except OSError:
        return 0


def _ports_of_the_kernel(count: int) -> list[int]:
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


def _is_nobodys(port: int) -> bool:
    """Whether no process has a socket here, be it one that does not listen. A port that the kernel
    still remembers counts as somebody's: a cluster that comes up again may want it back."""
    with socket.socket() as trial:
        try:
            trial.bind((HOST, port))
        except OSError:
            return False
    return True


@final
class HeldPorts:
    """The ports of a running cluster, which `free_ports` gives to no other one, dead broker or not.

    A holder binds each port and does not listen: a client is refused as by a dead broker, and the
    broker can listen beside it. Only Linux lets two sockets share a port like that; elsewhere
    nothing is held.
    """

    def __init__(self) -> None:
        self._sockets: dict[int, socket.socket] = {}

    def hold(self, ports: Iterable[int]) -> None:
        """Hold these ports too, as far as nobody listens there."""
        for port in ports:
            if port in self._sockets or sys.platform != "linux":
                continue
            holding = socket.socket()
            try:
                holding.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                holding.bind((HOST, port))
            except OSError:
                holding.close()  # who tries to listen here tells what is wrong
            else:
                self._sockets[port] = holding

    def release(self) -> None:
        """Hold none any more."""
        while self._sockets:
            self._sockets.popitem()[1].close()


def kept_or_free(ports: Iterable[int | None]) -> list[int]:
    """Each of these ports as far as it is free, and a free one in place of every other (None: there
    was none before)."""
    wanted = list(ports)
    kept = [port if port is not None and is_free(port) else None for port in wanted]
    fresh = iter(free_ports(kept.count(None), besides=[port for port in kept if port is not None]))
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
        directory = Path(command[command.index("--config") + 1]).parent
        # A broker that was started by hand has a configuration anywhere, and `raftlog down` does
        # not stop it. A relative path is relative to a directory that is not ours.
        found = directory.is_absolute() and (directory / STATE_FILE).is_file()
        return directory if found else None

    def __str__(self) -> str:
        if self.directory is not None:
            return f"process {self.process}, a broker of the cluster in {self.directory}"
        text = " ".join(self.command)
        shown = "".join(each if each.isprintable() else "?" for each in text)
        return f"process {self.process}: {shown[:_COMMAND_CHARACTERS_SHOWN]}"


def refuse_taken(ports: Iterable[int], *, for_whom: str) -> None:
    """Raise `OperatingError` that names who has the first of these ports that is taken."""
    for port in ports:
        if not is_free(port):
            holder, do = whose(port)
            raise OperatingError(
                f"{for_whom} cannot listen: the port is taken by {holder}",
                on=f"{HOST}:{port}",
                do=do,
            )


def whose(port: int) -> tuple[str, str]:
    """The holder of a port that is taken, and what to do about it."""
    holder = holder_of(port)
    if holder is None and set(_inodes(port)) == {_NO_PROCESS}:
        return "a connection that ended a moment ago", "try again in a minute, or at other ports"
    if holder is None:
        return "a process that we may not see", "choose other ports"
    if holder.directory is None:
        return str(holder), "choose other ports"
    return str(holder), f"raftlog down --dir {holder.directory}, or choose other ports"


def holder_of(port: int) -> Holder | None:
    """The process that has a port, as far as we may see it: on Linux, of the same user. It listens
    there, or has a connection whose own port this is."""
    sockets = {f"socket:[{inode}]" for inode in _inodes(port)}
    if not sockets:
        return None
    for process in sorted(int(each) for each in os.listdir(_PROC) if each.isdigit()):
        try:
            files = (_PROC / str(process) / "fd").iterdir()
            if any(_link(each) in sockets for each in files):
                command = (_PROC / str(process) / "cmdline").read_bytes()
                texts = command.decode(errors="replace").split("\0")
                return Holder(process, tuple(each for each in texts if each))
        except OSError:
            continue  # it ended meanwhile, or belongs to another user
    return None


def _link(file: Path) -> str:
    """The target of a descriptor; empty when its process has closed it since it was listed."""
    try:
        return os.readlink(file)
    except OSError:
        return ""


def _inodes(port: int) -> Iterator[str]:
    """The inodes of the sockets at this port, at any address; none where there is no /proc."""
    for table in ("tcp", "tcp6"):
        try:
            lines = (_PROC / "net" / table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            # sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode
            fields = line.split()
            if int(fields[1].rpartition(":")[2], 16) == port:
                yield fields[9]

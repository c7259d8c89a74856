"""Each broker in a network namespace of its own, joined by a bridge: a real network that can drop.

A direction is cut by giving the sender a wrong hardware address for the receiver: its packets
leave, and nobody takes them. The addresses are from the range that is reserved for measuring
(RFC 2544); nothing is forwarded, so nothing leaves the machine. Needs root.
"""

import os
import shutil
import subprocess
from collections.abc import Iterable
from typing import Final, final

from raftlog.base.errors import OperatingError

_NOBODY: Final = "02:00:00:00:00:99"
_BASE: Final = 198 << 24 | 18 << 16
_SUBNET_BITS: Final = 4
_SUBNETS: Final = 1 << 13
_GATE: Final = 14


def missing() -> str:
    """Why there can be no namespaces here, or nothing."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "there is no ip command"
    name = f"raftlog-try-{os.getpid()}"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode:
        return "this machine does not allow network namespaces"
    subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    return ""


@final
class Namespaces:
    """The network of one run."""

    def __init__(self, number: int | None = None) -> None:
        """`number` tells runs of one machine apart; the process id when not given."""
        self._number = (os.getpid() if number is None else number) % 100_000
        self._bridge = f"rlb{self._number}"
        self._cut: set[tuple[int, int]] = set()
        self._nodes: list[int] = []

    def address(self, node: int) -> str:
        """Where a broker listens."""
        assert 0 < node <= _GATE, node
        place = _BASE + (self._number % _SUBNETS << _SUBNET_BITS) + node
        return ".".join(str(place >> shift & 255) for shift in (24, 16, 8, 0))

    def prefix(self, node: int) -> list[str]:
        """The beginning of a broker's command line."""
        return ["ip", "netns", "exec", self._name(node)]

    def _name(self, node: int) -> str:
        return f"rl{self._number}-{node}"

    def up(self, nodes: Iterable[int]) -> None:
        """Make bridge and namespaces; `OperatingError` where that is not allowed."""
        _ip("link", "add", self._bridge, "type", "bridge")
        _ip("addr", "add", f"{self.address(_GATE)}/{32 - _SUBNET_BITS}", "dev", self._bridge)
        _ip("link", "set", self._bridge, "up")
        for node in nodes:
            self._nodes.append(node)
            name, outside = self._name(node), f"rlv{self._number}{node}"
            _ip("netns", "add", name)
            _ip("link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("link", "set", outside, "master", self._bridge, "up")
            _ip(
                "-n",
                name,
                "addr",
                "add",
                f"{self.address(node)}/{32 - _SUBNET_BITS}",
                "dev",
                "eth0",
            )
            _ip("-n", name, "link", "set", "eth0", "up")
            _ip("-n", name, "link", "set", "lo", "up")

    def drop(self, flows: Iterable[tuple[int, int]]) -> None:
        """No packet arrives any more on these (from, to)."""
        for start, to in flows:
            self._cut.add((start, to))
            self._neighbour(start, to, "replace", "lladdr", _NOBODY, "nud", "permanent")

    def heal(self) -> None:
        """All packets arrive again; connections go on where TCP has not given up."""
        for start, to in sorted(self._cut):
            self._neighbour(start, to, "del")
        self._cut.clear()

    def _neighbour(self, start: int, to: int, what: str, *more: str) -> None:
        _ip("-n", self._name(start), "neigh", what, self.address(to), *more, "dev", "eth0")

    def down(self) -> None:
        """Remove everything that `up` made, as far as it was made."""
        for node in self._nodes:
            _try("link", "del", f"rlv{self._number}{node}")
            _try("netns", "del", self._name(node))
        if self._nodes:
            _try("link", "del", self._bridge)
        self._nodes.clear()


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OperatingError(f"ip {' '.join(arguments)} failed", do=done.stderr.strip())


def _try(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], capture_output=True, check=False)

"""Broker processes of one run: found, start, kill, pause, stop, wipe, and ask how they are.

Everything goes through what a user has: `python -m raftlog format` and `serve`, signals, files, the
admin port. A cluster is one directory, with the files that `broker_processes` names.
"""

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final, final

import attrs

from raftlog.base.errors import OperatingError
from raftlog.runtime.local.broker_processes import (
    AdminAnswer,
    BrokerFiles,
    BrokerProcess,
    ask_admin,
    kill,
    terminate,
)

HOST: Final = "127.0.0.1"
READY_SECONDS: Final = 120.0
_LOWEST_PORT: Final = 10_240
_HIGHEST_PORT: Final = 32_768


@final
@attrs.frozen
class ProcessPlace:
    """Where one broker listens."""

    node: int
    client_port: int
    peer_port: int
    admin_port: int
    host: str = HOST


@final
@attrs.define(eq=False)
class ProcessCluster:
    """The brokers of one run. `routes` are (from, to) -> port of the proxy between two brokers, or
    none; `advertised` node -> port that clients are told."""

    directory: Path
    places: tuple[ProcessPlace, ...]
    settings: Mapping[str, str] = attrs.field(factory=dict)
    routes: Mapping[tuple[int, int], int] = attrs.field(factory=dict)
    advertised: Mapping[int, int] = attrs.field(factory=dict)
    environment: dict[int, dict[str, str]] = attrs.field(factory=dict)
    prefix: dict[int, list[str]] = attrs.field(factory=dict)
    """Node -> the beginning of its broker's command line (`ip netns exec ...`)."""
    processes: dict[int, BrokerProcess] = attrs.field(factory=dict, init=False)
    paused: list[int] = attrs.field(factory=list, init=False)
    unexpected: dict[int, int] = attrs.field(factory=dict, init=False)
    """Brokers that ended although nobody ended them: node -> exit code."""
    files: BrokerFiles = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.files = BrokerFiles(self.directory)

    @property
    def nodes(self) -> list[int]:
        """All node ids."""
        return [place.node for place in self.places]

    @property
    def bootstrap(self) -> str:
        """The addresses to which clients connect first."""
        ports = {each: self.advertised.get(each.node, each.client_port) for each in self.places}
        return ",".join(f"{place.host}:{port}" for place, port in ports.items())

    def place(self, node: int) -> ProcessPlace:
        """The place of a node."""
        return next(each for each in self.places if each.node == node)

    # --- founding ---------------------------------------------------------------------------------

    def found(self) -> None:
        """Write every broker's configuration and format every data directory."""
        self.directory.mkdir(parents=True, exist_ok=True)
        secret = self.directory / "secret"
        secret.touch(mode=0o600)
        secret.write_text(os.urandom(32).hex() + "\n")
        for place in self.places:
            self.files.config_path(place.node).write_text(self._properties(place))
        ids = json.loads(_raftlog("format", "--random", "--format", "json").stdout)
        directories = [f"{place.node}:{os.urandom(8).hex()}" for place in self.places]
        for node in self.nodes:
            config = str(self.files.config_path(node))
            arguments = ["--config", config, "--cluster-id", ids["cluster_id"]]
            for each in directories:
                arguments += ["--controller", each]
            _raftlog("format", *arguments)

    def _properties(self, place: ProcessPlace) -> str:
        node = place.node
        routes = ",".join(
            f"{to}@{HOST}:{port}"
            for (start, to), port in sorted(self.routes.items())
            if start == node
        )
        advertised = self.advertised.get(node)
        settings = {
            "node.id": str(node),
            "log.dirs": str(self.data_path(node)),
            "listeners": f"PLAINTEXT://{place.host}:{place.client_port}",
            "raftlog.peer.listener": f"{place.host}:{place.peer_port}",
            "raftlog.admin.listener": f"{place.host}:{place.admin_port}",
            "raftlog.cluster.secret.file": str(self.directory / "secret"),
            "controller.quorum.voters": ",".join(
                f"{each.node}@{each.host}:{each.peer_port}" for each in self.places
            ),
            "auto.create.topics.enable": "false",
            "default.replication.factor": str(len(self.places)),
            **({"raftlog.peer.routes": routes} if routes else {}),
            **({"advertised.listeners": f"PLAINTEXT://{HOST}:{advertised}"} if advertised else {}),
            **self.settings,
        }
        return "".join(f"{key} = {value}\n" for key, value in settings.items())

    # --- processes --------------------------------------------------------------------------------

    def start(self, node: int) -> None:
        """Start a broker that does not run; `wait_ready` tells when it serves."""
        if self.running(node):
            return
        self.processes[node] = self.files.start(
            node, prefix=self.prefix.get(node, []), environment=self.environment.get(node)
        )

    def running(self, node: int) -> bool:
        """Whether the broker's process lives. One that ended by itself is noted."""
        process = self.processes.get(node)
        if process is None:
            return False
        code = process.poll()
        if code is not None:
            self.unexpected[node] = code
            del self.processes[node]
        return code is None

    def live(self) -> list[int]:
        """The nodes whose processes live, paused ones among them."""
        return [node for node in self.nodes if self.running(node)]

    def kill(self, node: int) -> None:
        """SIGKILL: the process ends between any two instructions."""
        self.kill_all([node])

    def kill_all(self, nodes: Sequence[int]) -> None:
        """SIGKILL to all before any of them is waited for."""
        kill([self.processes.pop(node) for node in nodes if self.running(node)])
        self.paused = [node for node in self.paused if node not in nodes]

    def pause(self, node: int) -> None:
        """SIGSTOP: the process stands still, its sockets stay open."""
        if self.running(node) and node not in self.paused:
            self.processes[node].send_signal(signal.SIGSTOP)
            self.paused.append(node)

    def resume(self, node: int) -> None:
        """SIGCONT."""
        if node in self.paused:
            self.paused.remove(node)
            if self.running(node):
                self.processes[node].send_signal(signal.SIGCONT)

    def stop(self, node: int) -> int | None:
        """SIGTERM, and wait: the broker hands over leadership first. Its exit code."""
        self.resume(node)
        if not self.running(node):
            return None
        return terminate([self.processes.pop(node)])[0]

    def stop_all(self) -> None:
        """SIGTERM to all, together; who does not end in time is killed."""
        self.paused = []
        terminate([self.processes.pop(node) for node in self.live()])

    def wipe(self, node: int) -> None:
        """Remove a dead broker's data directory."""
        assert not self.running(node), node
        path = self.data_path(node)
        for each in list(path.iterdir()):  # the directory itself may be a mount point
            shutil.rmtree(each) if each.is_dir() else each.unlink()

    # --- asking -----------------------------------------------------------------------------------

    def wait_ready(self, nodes: Sequence[int], seconds: float = READY_SECONDS) -> None:
        """Wait until these brokers serve; `OperatingError` with a broker's last lines if one does
        not."""
        self.files.wait(nodes, self._lacking, seconds)

    def _lacking(self, node: int) -> str | None:
        if self.ready(node):
            return None
        if not self.running(node):
            raise self.files.trouble(node, "ended")
        return "it does not answer that it is"

    def ready(self, node: int) -> bool:
        """Whether the broker says that it can serve."""
        answer = self._ask(node, "/readyz")
        return answer is not None and answer.good

    def status(self, node: int) -> dict[str, Any] | None:
        """The answer of `/status`; None from a broker that is down, paused or stuck."""
        if node in self.paused:
            return None
        answer = self._ask(node, "/status")
        return dict(json.loads(answer.body)) if answer is not None and answer.good else None

    def _ask(self, node: int, path: str) -> AdminAnswer | None:
        place = self.place(node)
        return ask_admin(place.host, place.admin_port, path)

    def leaders(self) -> dict[str, int]:
        """Partition name -> node, of those who say that they lead with a quorum behind them."""
        found: dict[str, tuple[int, int]] = {}
        for node in self.live():
            for group in (self.status(node) or {}).get("groups", ()):
                if group.get("role") == "leader" and group.get("ready"):
                    found[group["name"]] = max(
                        found.get(group["name"], (-1, -1)), (group["term"], node)
                    )
        return {name: node for name, (_, node) in found.items()}

    def in_sync(self) -> bool:
        """Whether every group has a leader that counts every broker in sync."""
        full: dict[str, bool] = {}
        for node in self.live():
            for group in (self.status(node) or {}).get("groups", ()):
                whole = bool(group.get("ready")) and len(group.get("in_sync", ())) == len(
                    self.places
                )
                full[group["name"]] = full.get(group["name"], False) or whole
        return bool(full) and all(full.values())

    # --- files ------------------------------------------------------------------------------------

    def log_path(self, node: int) -> Path:
        """The file with a broker's output."""
        return self.files.log_path(node)

    def data_path(self, node: int) -> Path:
        """A broker's data directory."""
        return self.files.data_path(node)


def _raftlog(*arguments: str) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run(
        [sys.executable, "-m", "raftlog", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    if done.returncode != 0:
        raise OperatingError(f"raftlog {arguments[0]} failed", do=done.stderr.strip())
    return done


def inspect(path: Path) -> dict[str, Any]:
    """The findings of `raftlog inspect` in a data directory; damage is part of the answer."""
    command = [sys.executable, "-m", "raftlog", "inspect", str(path), "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if not done.stdout:
        raise OperatingError("raftlog inspect failed", on=str(path), do=done.stderr.strip())
    return dict(json.loads(done.stdout))


def free_places(count: int) -> tuple[ProcessPlace, ...]:
    """Places on ports that are free now, and that no system hands out by itself.

    A broker that is killed must find its port free when it comes back. So none may be from the
    range from which outgoing connections and listeners without a port of their own are served (on
    Linux from 32768, elsewhere from 49152). Another run may still draw the same; the start says so.
    """
    with ExitStack() as stack:
        ports: list[int] = []
        while len(ports) < 3 * count:
            drawn = _LOWEST_PORT + secrets.randbelow(_HIGHEST_PORT - _LOWEST_PORT)
            each = stack.enter_context(socket.socket())
            with suppress(OSError):
                each.bind((HOST, drawn))
                ports.append(drawn)
    return tuple(
        ProcessPlace(at + 1, ports[3 * at], ports[3 * at + 1], ports[3 * at + 2])
        for at in range(count)
    )

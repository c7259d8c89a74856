"""Broker processes that share one directory: start them, ask them, wait for them, end them.

    brokerN.properties   configuration      brokerN.log   output      brokerN/   data directory

`LocalCluster` and the black-box tests run their brokers by this module. It knows of a broker only
what a user knows: its command line, its files, signals and the admin port.

May be imported by: the floors above, and by the black-box tests, which see nothing else of the
runtime. Imports: base only.
"""

import http.client
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, final

import attrs

from raftlog.base.errors import OperatingError

BrokerProcess = subprocess.Popen[bytes]

STOP_SECONDS: Final = 15.0
"""The time that a broker has to end after SIGTERM. It hands its leaderships over first."""
ANSWER_SECONDS: Final = 2.0
LOG_LINES_SHOWN: Final = 15
_ENDING_SECONDS_MIN: Final = 0.1
_POLL_SECONDS: Final = 0.02
_BODY_BYTES_MAX: Final = 16 << 20


@final
@attrs.frozen
class BrokerFiles:
    """The files of the brokers in one directory, and the processes that use them."""

    directory: Path

    def config_path(self, node: int) -> Path:
        """The file with a broker's configuration."""
        return self.directory / f"broker{node}.properties"

    def log_path(self, node: int) -> Path:
        """The file with a broker's output."""
        return self.directory / f"broker{node}.log"

    def data_path(self, node: int) -> Path:
        """A broker's data directory."""
        return self.directory / f"broker{node}"

    def last_lines(self, node: int) -> str:
        """The end of a broker's output."""
        try:
            text = self.log_path(node).read_text(errors="replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.splitlines()[-LOG_LINES_SHOWN:])

    def trouble(self, node: int, what: str) -> OperatingError:
        """An error about a broker that shows the end of its output."""
        return OperatingError(
            f"broker {node} {what}", on=str(self.log_path(node)), do="\n" + self.last_lines(node)
        )

    def start(
        self,
        node: int,
        *options: str,
        prefix: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        standard_input: int = subprocess.DEVNULL,
        own_session: bool = False,
    ) -> BrokerProcess:
        """Start a broker's process, which appends to the broker's output. `options` follow the
        command, `prefix` stands before it, and `environment` is added to that of this process."""
        command = [sys.executable, "-m", "raftlog", "serve", "--config"]
        with self.log_path(node).open("ab") as output:
            return subprocess.Popen(
                [*prefix, *command, str(self.config_path(node)), *options],
                stdin=standard_input,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                start_new_session=own_session,
            )

    def wait(
        self, nodes: Collection[int], lacking: Callable[[int], str | None], seconds: float
    ) -> None:
        """Wait until `lacking` returns None for each of these brokers. `OperatingError` when one is
        not ready after `seconds`: it says what the broker still lacks. `lacking` raises the error
        for a broker that has ended."""
        deadline = time.perf_counter() + seconds
        for node in nodes:
            while (what := lacking(node)) is not None:
                if time.perf_counter() > deadline:
                    raise self.trouble(node, f"is not ready after {seconds:g} s: {what}")
                time.sleep(_POLL_SECONDS)


def kill(processes: Collection[BrokerProcess]) -> None:
    """SIGKILL: the processes end between any two instructions. All are killed before any of them is
    waited for."""
    for process in processes:
        process.kill()
    for process in processes:
        process.wait()


def terminate(processes: Collection[BrokerProcess], seconds: float = STOP_SECONDS) -> list[int]:
    """SIGTERM to all together, to paused ones too. One that does not end in time is killed. Their
    exit codes."""
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.terminate()
    deadline = time.perf_counter() + seconds
    codes = []
    for process in processes:
        try:
            codes.append(process.wait(max(_ENDING_SECONDS_MIN, deadline - time.perf_counter())))
        except subprocess.TimeoutExpired:
            process.kill()
            codes.append(process.wait())
    return codes


class AdminAnswer(NamedTuple):
    """An answer of a broker's admin port."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def good(self) -> bool:
        """Whether the status is OK."""
        return self.status == http.HTTPStatus.OK


def ask_admin(host: str, port: int, path: str) -> AdminAnswer | None:
    """The answer to a GET of this path; None from a broker that is down, paused or stuck."""
    connection = http.client.HTTPConnection(host, port, timeout=ANSWER_SECONDS)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read(_BODY_BYTES_MAX)
        return AdminAnswer(answer.status, dict(answer.getheaders()), body)
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()

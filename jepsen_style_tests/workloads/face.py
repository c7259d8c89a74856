"""The interface of a workload, and the values that it is given."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Protocol, final

import attrs

from jepsen_style_tests.clients.choice import Commands, client_name, open_client
from jepsen_style_tests.clients.confluent import ConfluentAdmin
from jepsen_style_tests.clients.face import (
    CallRefused,
    ClientSettings,
    SubjectAdmin,
    SubjectClient,
    TopicExists,
    Unknown,
)
from jepsen_style_tests.recorder import Actor, HistoryRecorder
from raftlog.base.errors import OperatingError

SETTLE_SECONDS = 40.0
"""How long a healed cluster may take until it answers everything."""


@final
@attrs.define(eq=False)
class RunStage:
    """One run as its workers see it."""

    bootstrap: Callable[[], str]
    recorder: HistoryRecorder
    seed: int
    client: str
    """A client's name, or mixed."""
    linearizable: bool
    folder: Path
    commands: Commands = attrs.field(factory=dict)
    """The commands of clients in other languages."""
    stopping: threading.Event = attrs.field(factory=threading.Event, init=False)
    names: set[str] = attrs.field(factory=set, init=False)
    """The names that the workload has used, for its last reads."""
    topics: list[str] = attrs.field(factory=list, init=False)
    """The topics that `make_topic` made, to name the replicas' logs in the report."""
    broken: list[str] = attrs.field(factory=list, init=False)
    """Errors in the harness's own threads. A run with such an error has no result."""

    def dice(self, worker: int) -> Random:
        """The worker's own stream."""
        return Random(f"{self.seed} worker {worker}")

    def open(
        self, worker: int, *, idempotent: bool, retries: bool, seconds: float, client: str = ""
    ) -> SubjectClient:
        """The worker's client, or one of kind `client`; tries until somebody answers or the run
        stops."""
        name = client_name(client or self.client, worker, self.commands)
        settings = ClientSettings(
            bootstrap=self.bootstrap(),
            idempotent=idempotent,
            retries=retries,
            seconds=seconds,
            name=f"worker-{worker}",
        )
        while True:
            try:
                return open_client(name, settings, self.commands)
            except Unknown:
                if self.stopping.is_set():
                    raise
                self.stopping.wait(0.2)

    def admin(self, seconds: float = 5.0) -> SubjectAdmin:
        """For topics; always librdkafka's, whose answers tell outcomes apart best."""
        return ConfluentAdmin(ClientSettings(bootstrap=self.bootstrap(), seconds=seconds))

    def make_topic(self, topic: str, partitions: int, **configs: str) -> None:
        """Create a topic before anything breaks."""
        self.topics.append(topic)
        admin = self.admin()
        deadline = time.monotonic() + SETTLE_SECONDS
        while True:
            try:
                admin.create(topic, partitions, configs)
                break
            except TopicExists:
                break
            except (CallRefused, Unknown) as error:
                if time.monotonic() > deadline:
                    raise OperatingError(f"cannot be created: {error}", on=topic) from error
                time.sleep(0.2)
        admin.close()

    def actor(self) -> Actor:
        """A place in the history."""
        return Actor(self.recorder)


class RunWorkload(Protocol):
    """A kind of load. Its methods run in threads of the runner."""

    @property
    def name(self) -> str:
        """The workload's name on the command line."""

    @property
    def about(self) -> str:
        """One line."""

    @property
    def model(self) -> str:
        """The judge of its history: `log`, or the name of a model of `raftlog verify`."""

    @property
    def workers(self) -> int:
        """How many clients."""

    @property
    def linearizable(self) -> bool:
        """Whether it needs linearizable reads."""

    @property
    def settings(self) -> Mapping[str, str]:
        """Settings of all brokers; those of the nemesis and of the run count first."""

    @property
    def clients(self) -> Sequence[str]:
        """The clients that it can use."""

    def options(self) -> Mapping[str, Any]:
        """The history's options beside the run's own."""

    def prepare(self, stage: RunStage) -> None:
        """Before faults begin."""

    def work(self, stage: RunStage, worker: int) -> None:
        """One worker, until `stage.stopping`."""

    def finish(self, stage: RunStage) -> None:
        """After everything is healed: the last reads."""

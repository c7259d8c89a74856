"""The append-only log: records sent one by one, read back by assigned consumers, ends asked for.

After the faults, a fresh consumer reads every partition from the beginning to the highest offset
that was ever acknowledged: what is missing then is lost.
"""

import time
from collections.abc import Mapping
from typing import Any, Final, final

from jepsen_style_tests.clients.choice import NAMES as CLIENT_NAMES
from jepsen_style_tests.clients.face import CallRefused, SubjectClient, Unknown, key_of
from jepsen_style_tests.recorder import Actor
from jepsen_style_tests.workloads.face import SETTLE_SECONDS, RunStage

TOPIC: Final = "log"
PARTITIONS: Final = 3
CALL_SECONDS: Final = 4.0
POLL_SECONDS: Final = 0.02
LOOK_BACK: Final = 300
"""A new reader begins at most so many records before the end."""


@final
class AppendWorkload:
    """A `face.Workload`."""

    name: Final = "append"
    about: Final = "append-only log: single sends without retries, polls, ends"
    model: Final = "log"
    workers: Final = 6
    linearizable: Final = False
    settings: Final[dict[str, str]] = {}
    clients: Final = CLIENT_NAMES

    def options(self) -> Mapping[str, Any]:
        return {"consumer": "assign", "retention": "none"}

    def prepare(self, stage: RunStage) -> None:
        stage.make_topic(TOPIC, PARTITIONS, **{"min.insync.replicas": "2"})

    def work(self, stage: RunStage, worker: int) -> None:
        _Appender(stage, worker).run()

    def finish(self, stage: RunStage) -> None:
        read_everything(stage, TOPIC, PARTITIONS)


@final
class _Appender:
    """One worker."""

    def __init__(self, stage: RunStage, worker: int) -> None:
        self.stage = stage
        self.worker = worker
        self.dice = stage.dice(worker)
        self.actor: Actor = stage.actor()
        self.sent = 0
        self.positions: dict[int, int] = {}
        self.client: SubjectClient = self._open()

    def _open(self) -> SubjectClient:
        client = self.stage.open(self.worker, idempotent=False, retries=False, seconds=CALL_SECONDS)
        self.positions = {}
        self.client = client
        self.assign(list(range(PARTITIONS)))
        return client

    def run(self) -> None:
        while not self.stage.stopping.is_set():
            drawn = self.dice.random()
            if drawn < 0.60:
                self.send()
            elif drawn < 0.94:
                self.poll()
            elif drawn < 0.98:
                self.end()
            elif drawn < 0.985:
                count = self.dice.randint(1, PARTITIONS)
                self.assign(sorted(self.dice.sample(range(PARTITIONS), count)))
            elif drawn < 0.987:
                self.crash()
        self.client.close()

    def send(self) -> None:
        partition = self.dice.randrange(PARTITIONS)
        value = f"#{self.worker}-{self.sent}"
        self.sent += 1
        key = key_of(TOPIC, partition)
        self.actor.invoke("send", key, value)
        try:
            offset = self.client.send(TOPIC, partition, value)
        except CallRefused as error:
            self.actor.fail(str(error))
        except Unknown as error:
            self.actor.info(str(error))
            if self.dice.random() < 0.3:
                self.crash()
        else:
            self.actor.ok([offset, value])
            self.stage.recorder.acknowledged(key, offset)

    def end(self) -> None:
        partition = self.dice.randrange(PARTITIONS)
        self.actor.invoke("end", key_of(TOPIC, partition))
        try:
            end = self.client.end(TOPIC, partition)
        except (CallRefused, Unknown) as error:
            self.actor.fail(str(error))
        else:
            self.actor.ok(end)

    def assign(self, partitions: list[int]) -> None:
        """Read these. A partition that was read before goes on where it stopped; a new one begins a
        little before the end."""
        known = self.stage.recorder.ends
        self.positions = {
            number: self.positions.get(
                number,
                max(0, known.get(key_of(TOPIC, number), 0) - self.dice.randrange(LOOK_BACK)),
            )
            for number in partitions
        }
        assign(self.client, self.actor, TOPIC, self.positions)

    def poll(self) -> None:
        for key, pairs in poll(self.client, self.actor).items():
            self.positions[int(key.rpartition("/")[2])] = pairs[-1][0] + 1

    def crash(self) -> None:
        """The client is torn down and replaced."""
        self.actor.invoke("crash")
        self.client.close()
        self.actor.ok()
        try:
            self.client = self._open()
        except Unknown:
            self.stage.stopping.wait()


def assign(client: SubjectClient, actor: Actor, topic: str, positions: Mapping[int, int]) -> None:
    """Read these partitions from these offsets."""
    keys = [key_of(topic, number) for number in positions]
    actor.invoke("assign", None, keys)
    try:
        client.assign({(topic, number): offset for number, offset in positions.items()})
    except (CallRefused, Unknown) as error:
        actor.info(str(error))
    else:
        actor.ok(keys)


def poll(client: SubjectClient, actor: Actor, seconds: float = POLL_SECONDS) -> dict[str, Any]:
    """One poll; what it found."""
    actor.invoke("poll")
    try:
        found = client.poll(seconds)
    except (CallRefused, Unknown) as error:
        actor.fail(str(error))
        return {}
    actor.ok(found)
    return found


def read_everything(stage: RunStage, topic: str, partitions: int) -> None:
    """Fresh consumers read from the beginning, in rounds, until all that was acknowledged was
    reached or the time is up; the judge says what is missing then."""
    deadline = time.monotonic() + SETTLE_SECONDS
    reader = 0
    while not _read_once(stage, topic, partitions, reader, deadline):
        reader += 1
        if time.monotonic() > deadline:
            stage.broken.append(f"the last reads of {topic} did not reach every acknowledged end")
            return


def _read_once(stage: RunStage, topic: str, partitions: int, reader: int, deadline: float) -> bool:
    actor = stage.actor()
    try:
        client = stage.open(reader, idempotent=False, retries=False, seconds=CALL_SECONDS)
    except Unknown:
        return False
    reached: dict[str, int] = {}
    try:
        assign(client, actor, topic, dict.fromkeys(range(partitions), 0))
        round_end = min(deadline, time.monotonic() + 10.0)
        while time.monotonic() < round_end:
            for key, pairs in poll(client, actor, 0.5).items():
                reached[key] = max(reached.get(key, 0), pairs[-1][0] + 1)
                round_end = min(deadline, time.monotonic() + 10.0)
            wanted = stage.recorder.ends
            if all(reached.get(key, 0) >= end for key, end in wanted.items()):
                return True
    finally:
        client.close()
    return False

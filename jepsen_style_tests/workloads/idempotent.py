"""Idempotent producers with several sends in flight, retried for as long as an outage lasts.

These must hold: no record twice, none missing, and each producer's records in the order of its
sends. Clients do not say which producer id and sequence they used, so the history's `producer` is
what an idempotent client promises: one number per client and partition, counted by us.
"""

import queue
import time
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any, Final, final

from jepsen_style_tests.clients.choice import NAMES as CLIENT_NAMES
from jepsen_style_tests.clients.face import CallRefused, SubjectClient, key_of
from jepsen_style_tests.recorder import Actor
from jepsen_style_tests.workloads.append import assign, poll, read_everything
from jepsen_style_tests.workloads.face import RunStage

TOPIC: Final = "idempotent"
PARTITIONS: Final = 2
IN_FLIGHT: Final = 8
MESSAGE_SECONDS: Final = 120.0
"""Longer than any outage of a run: a send that its client gave up on may come back under another
sequence, and the client says so itself."""
SETTLE_SECONDS: Final = 60.0
_READER_EVERY: Final = 40


@final
class IdempotentWorkload:
    """A `face.Workload`."""

    name: Final = "idempotent"
    about: Final = "idempotent producers, eight sends in flight, retried across every outage"
    model: Final = "log"
    workers: Final = 4
    linearizable: Final = False
    settings: Final[dict[str, str]] = {}
    clients: Final = CLIENT_NAMES

    def options(self) -> Mapping[str, Any]:
        return {"consumer": "assign", "retention": "none", "pipelined": True}

    def prepare(self, stage: RunStage) -> None:
        stage.make_topic(TOPIC, PARTITIONS, **{"min.insync.replicas": "2"})

    def work(self, stage: RunStage, worker: int) -> None:
        _Pipeline(stage, worker).run()

    def finish(self, stage: RunStage) -> None:
        read_everything(stage, TOPIC, PARTITIONS)


@final
class _Pipeline:
    """One worker: a producer with slots, and now and then a poll."""

    def __init__(self, stage: RunStage, worker: int) -> None:
        self.stage = stage
        self.worker = worker
        self.dice = stage.dice(worker)
        self.sent: Counter[int] = Counter()
        self.slots: queue.SimpleQueue[Actor] = queue.SimpleQueue()
        for _ in range(IN_FLIGHT):
            self.slots.put(stage.actor())
        self.reader = stage.actor()
        self.client: SubjectClient = stage.open(
            worker, idempotent=True, retries=True, seconds=MESSAGE_SECONDS
        )
        assign(self.client, self.reader, TOPIC, dict.fromkeys(range(PARTITIONS), 0))

    def run(self) -> None:
        count = 0
        while not self.stage.stopping.is_set():
            count += 1
            if count % _READER_EVERY == 0:
                poll(self.client, self.reader)
            try:
                slot = self.slots.get(timeout=0.02)
            except queue.Empty:
                self.client.settle(0.01)
                continue
            self.send(slot)
        self.drain()
        self.client.close()

    def send(self, slot: Actor) -> None:
        partition = self.dice.randrange(PARTITIONS)
        sequence = self.sent[partition]
        self.sent[partition] += 1
        value = f"#{self.worker}-{partition}-{sequence}"
        producer = [self.worker, 0, sequence]
        slot.invoke("send", key_of(TOPIC, partition), value, producer=producer)
        done = partial(self.done, slot, partition, value, producer)
        self.client.send_soon(TOPIC, partition, value, done)

    def done(
        self,
        slot: Actor,
        partition: int,
        value: str,
        producer: list[int],
        offset: int | None,
        error: Exception | None,
    ) -> None:
        """A record's fate, in whichever thread the client tells it."""
        if offset is not None:
            slot.ok([offset, value], producer=producer)
            self.stage.recorder.acknowledged(key_of(TOPIC, partition), offset)
        elif isinstance(error, CallRefused):
            slot.fail(str(error))
        else:
            slot.info(str(error))
        self.slots.put(slot)

    def drain(self) -> None:
        """Give what is in flight the time to arrive."""
        deadline = time.monotonic() + SETTLE_SECONDS
        while self.slots.qsize() < IN_FLIGHT and time.monotonic() < deadline:
            self.client.settle(0.2)

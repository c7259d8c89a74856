"""Registers as folds over the log: writes and compare-and-sets are records, reads replay them.

A write appends `[name, "w", value]`; a compare-and-set appends `[name, "c", old, new]` and matched
if the fold just before it holds `old`. A read asks the leader for the end of the log and folds up
to it. With linearizable reads each register must be linearizable, which the general search decides;
names change every sixteen operations of each, so that each search stays small though calls of
unknown end stay open in it until its last.
"""

import json
import time
from collections.abc import Mapping
from typing import Any, Final, final

import attrs

from jepsen_style_tests.clients.choice import NAMES as CLIENT_NAMES
from jepsen_style_tests.clients.face import CallRefused, Found, SubjectClient, Unknown, key_of
from jepsen_style_tests.workloads.face import RunStage

TOPIC: Final = "registers"
PARTITIONS: Final = 3
NAMES: Final = 5
OPERATIONS_PER_NAME: Final = 16
CALL_SECONDS: Final = 4.0


@final
class RegisterWorkload:
    """A `face.Workload`."""

    name: Final = "register"
    about: Final = "per-key registers with compare-and-set, folded from the log; WGL judges"
    model: Final = "cas-register"
    workers: Final = 5
    linearizable: Final = True
    settings: Final[dict[str, str]] = {}
    clients: Final = CLIENT_NAMES

    def options(self) -> Mapping[str, Any]:
        return {}

    def prepare(self, stage: RunStage) -> None:
        stage.make_topic(TOPIC, PARTITIONS, **{"min.insync.replicas": "2"})

    def work(self, stage: RunStage, worker: int) -> None:
        _Registers(stage, worker).run()

    def finish(self, stage: RunStage) -> None:
        """One more read of the registers in use, through a healed cluster."""
        final_reader = _Registers(stage, self.workers)
        for name in final_reader.names():
            final_reader.read(name)
        final_reader.client.close()


@final
@attrs.define(eq=False)
class Fold:
    """The registers of one partition, as the log up to `position` makes them."""

    values: dict[str, int] = attrs.field(factory=dict)
    position: int = 0
    matched: dict[int, bool] = attrs.field(factory=dict)
    """Offset of a compare-and-set -> whether it matched."""

    def take(self, offset: int, text: str) -> None:
        """The next record. Records come in order and without gaps, or something is very wrong."""
        if offset != self.position:
            raise Unknown(f"record {offset} came, {self.position} was next")
        name, kind, *values = json.loads(text.partition("#")[2])[1:]
        if kind == "w":
            self.values[name] = values[0]
        else:
            old, new = values
            self.matched[offset] = self.values.get(name) == old
            if self.matched[offset]:
                self.values[name] = new
        self.position = offset + 1


@final
class _Registers:
    """One worker with a fold per partition."""

    def __init__(self, stage: RunStage, worker: int) -> None:
        self.stage = stage
        self.worker = worker
        self.dice = stage.dice(worker)
        self.actor = stage.actor()
        self.numbers = 0
        self.folds = {number: Fold() for number in range(PARTITIONS)}
        self.client: SubjectClient = self._open()

    def _open(self) -> SubjectClient:
        client = self.stage.open(self.worker, idempotent=False, retries=False, seconds=CALL_SECONDS)
        client.assign({(TOPIC, number): fold.position for number, fold in self.folds.items()})
        return client

    def names(self) -> list[str]:
        """The registers in use now."""
        age = self.stage.recorder.operations // (NAMES * OPERATIONS_PER_NAME)
        return [f"r{age}-{number}" for number in range(NAMES)]

    def run(self) -> None:
        while not self.stage.stopping.is_set():
            name, drawn = self.dice.choice(self.names()), self.dice.random()
            if drawn < 0.4:
                self.read(name)
            elif drawn < 0.75:
                self.write(name)
            else:
                self.cas(name)
        self.client.close()

    def number(self) -> int:
        """A value that nobody else writes."""
        self.numbers += 1
        return self.worker * 1_000_000 + self.numbers

    def write(self, name: str) -> None:
        value = self.number()
        self.actor.invoke("write", name, value)
        if self.append(name, "w", value) is not None:
            self.actor.ok(value)

    def cas(self, name: str) -> None:
        """Half of the time from the value last seen, so that some succeed."""
        fold = self.folds[partition_of(name)]
        old = fold.values.get(name) if self.dice.random() < 0.7 else self.number()
        new = self.number()
        self.actor.invoke("cas", name, [old, new])
        offset = self.append(name, "c", old, new)
        if offset is None:
            return
        try:
            self.fold_to(partition_of(name), offset + 1)
        except (CallRefused, Unknown) as error:
            self.actor.info(str(error))
            self.replace()
        else:
            self.actor.ok([old, new] if fold.matched[offset] else False)

    def read(self, name: str) -> None:
        partition = partition_of(name)
        self.actor.invoke("read", name)
        try:
            self.fold_to(partition, self.client.end(TOPIC, partition))
        except (CallRefused, Unknown) as error:
            self.actor.fail(str(error))
            self.replace()
        else:
            self.actor.ok(self.folds[partition].values.get(name))

    def append(self, name: str, *record: Any) -> int | None:
        """Send a record; None after the operation was completed as failed or unknown."""
        text = "#" + json.dumps([self.number(), name, *record], separators=(",", ":"))
        try:
            offset = self.client.send(TOPIC, partition_of(name), text)
        except CallRefused as error:
            self.actor.fail(str(error))
        except Unknown as error:
            self.actor.info(str(error))
        else:
            self.stage.recorder.acknowledged(key_of(TOPIC, partition_of(name)), offset)
            return offset
        return None

    def fold_to(self, partition: int, end: int) -> None:
        """Read on until this end; `Unknown` when it does not come in time."""
        fold = self.folds[partition]
        deadline = time.monotonic() + CALL_SECONDS
        while fold.position < end:
            if time.monotonic() > deadline:
                raise Unknown(f"read up to {fold.position} of {end}")
            self.take(self.client.poll(0.02))

    def take(self, found: Found) -> None:
        for key, pairs in found.items():
            fold = self.folds[int(key.rpartition("/")[2])]
            for offset, text in pairs:
                if offset >= fold.position:
                    fold.take(offset, text)

    def replace(self) -> None:
        """A client that does not get on is replaced; the folds stay."""
        self.client.close()
        try:
            self.client = self._open()
        except Unknown:
            self.stage.stopping.wait()


def partition_of(name: str) -> int:
    """Where a register lives."""
    return sum(name.encode()) % PARTITIONS

"""One seed, from founding a cluster to the verdict over everything that its clients saw.

found, create the topic -> safety: clients and faults together, invariants after every turn
-> liveness: heal; everybody must elect, commit and converge within a bound
-> read everything back -> the judge
"""

import hashlib
import io
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, final

import attrs

from raftlog.base import probes
from raftlog.base.ids import METADATA_GROUP
from raftlog.base.units import NANOS_PER_MICRO, millis
from raftlog.broker.events import Effects, Event
from raftlog.verify import Verdict, check_history
from raftlog_sim.invariants import Invariants, Violation
from raftlog_sim.nemesis import Nemesis
from raftlog_sim.node import Node
from raftlog_sim.options import SimOptions
from raftlog_sim.workload import TOPIC, Workload
from raftlog_sim.world import StuckError, World, seconds

SETUP_SECONDS: Final = 30
LIVENESS_SECONDS: Final = 60
FINAL_READER: Final = 2_000_000
HASH_EVERY: Final = 64


@final
@attrs.frozen(kw_only=True)
class Result:
    """What became of a seed. `failure` is empty when all is well: `<class>: <what>` otherwise."""

    options: SimOptions
    failure: str
    trace_hash: str
    events: int
    simulated_ns: int
    sent: int
    acknowledged: int
    unknown: int
    faults: dict[str, int]
    invariants: dict[str, object]
    verdict: Verdict | None
    history: str
    probes: dict[str, int]

    @property
    def failure_class(self) -> str:
        return self.failure.partition(":")[0]

    def document(self) -> dict[str, Any]:
        """For run.json and `--format json`."""
        return {
            "seed": self.options.seed,
            "failure": self.failure,
            "trace_hash": self.trace_hash,
            "events": self.events,
            "simulated_ns": self.simulated_ns,
            "sent": self.sent,
            "acknowledged": self.acknowledged,
            "unknown": self.unknown,
            "faults": self.faults,
            "options": self.options.document(),
        }


@final
@attrs.define(eq=False)
class _Onlooker:
    """Feeds invariants and the trace hash. The hash covers who took a turn when, on what, with
    which effects: equal hashes mean equal runs."""

    invariants: Invariants
    digest: Any = attrs.Factory(hashlib.blake2b)
    events: int = 0
    _pending: list[str] = attrs.Factory(list)

    def after_turn(self, node: Node, events: Sequence[Event], effects: Effects) -> None:
        self.events += len(events)
        self._pending.append(
            f"{node.world.now} {node.number} {len(events)} "
            f"{','.join(type(event).__name__ for event in events)} "
            f"{len(effects.writes)} {len(effects.replies)} {len(effects.jobs)} "
            f"{';'.join(_named(send.messages) for send in effects.sends)}\n"
        )
        if len(self._pending) >= HASH_EVERY:
            self.flush()
        self.invariants.after_turn(node, effects)

    def flush(self) -> None:
        self.digest.update("".join(self._pending).encode())
        self._pending.clear()

    def trace_hash(self) -> str:
        self.flush()
        return str(self.digest.hexdigest()[:16])


def _named(messages: Sequence[Any]) -> str:
    return ",".join(
        f"{type(each).__name__}{getattr(each, 'group', '')}.{getattr(each, 'term', '')}"
        for each in messages
    )


def simulate(options: SimOptions) -> Result:
    """Run one seed. The same options give the same result, byte for byte."""
    probes.reset()
    world = World(options.seed)
    world.sync_ns = options.sync_us * NANOS_PER_MICRO
    world.network.encode = options.encode
    onlooker = world.observer = _Onlooker(Invariants())
    run = _Run(world, options, onlooker)
    failure = ""
    try:
        run.play()
    except Violation as violation:
        failure = str(violation)
    except StuckError as stuck:
        failure = f"liveness: {stuck}"
    except AssertionError as bug:
        failure = f"assertion: {bug}"
    verdict = None
    if not failure:
        verdict = check_history(io.StringIO(run.workload.text.getvalue()))
        failure = run.lost() or _complaint(verdict)
    violated = failure.partition(":")[0]
    return Result(
        options=options,
        failure=failure,
        trace_hash=onlooker.trace_hash(),
        events=onlooker.events,
        simulated_ns=world.now,
        sent=run.workload.sent,
        acknowledged=len(run.workload.acknowledged),
        unknown=run.workload.unknown,
        faults=dict(sorted(run.nemesis.done.items())),
        invariants=onlooker.invariants.document(violated),
        verdict=verdict,
        history=run.workload.text.getvalue(),
        probes=probes.fired(),
    )


def _complaint(verdict: Verdict) -> str:
    failures = verdict.failures()
    return f"history-{failures[0].name}: {failures[0].witness}" if failures else ""


@final
class _Run:
    """The phases of one seed."""

    def __init__(self, world: World, options: SimOptions, onlooker: _Onlooker) -> None:
        self.world = world
        self.options = options
        self.onlooker = onlooker
        world.found(options.brokers, options.controllers)
        self.workload = Workload(world, options)
        self.nemesis = Nemesis(world, options, self.workload)
        self._created: list[Any] = []
        self._final: dict[int, int] = {}
        self._read: dict[tuple[int, int], str] = {}

    def play(self) -> None:
        """All phases. Raises `Violation` or `StuckError`."""
        self._set_up()
        self.workload.start()
        self.nemesis.start()
        end = self.world.now + millis(self.options.safety_ms)
        while self.world.now < end and self.onlooker.events < self.options.events_max:
            self.world.run_for(millis(50))
        self.nemesis.stop()
        self.nemesis.heal()
        self.workload.stop()
        self._converge()
        self._read_everything()
        self.onlooker.invariants.finish(self.world.running())

    def _set_up(self) -> None:
        limit = seconds(SETUP_SECONDS)
        wanted = self.options.brokers

        def registered() -> bool:
            return all(
                len(node.broker.context.image.live_brokers()) == wanted
                for node in self.world.running()
            )

        self.world.run_until(registered, limit, "brokers registered")
        self.workload.create_topic(self._created.append)
        self.world.run_until(lambda: bool(self._created), limit, "topic created")
        if isinstance(self._created[0], Exception):
            raise StuckError(f"the topic was not created: {self._created[0]}")
        for result in self._created[0]:
            result.check()
        self.world.run_until(self._all_led, limit, "every partition led")

    def _converge(self) -> None:
        limit = seconds(LIVENESS_SECONDS)
        self.world.run_until(lambda: self.workload.busy == 0, limit, "every call answered")
        self.world.run_until(self._converged, limit, "all replicas converged")

    def _groups(self) -> dict[int, list[Any]]:
        groups: dict[int, list[Any]] = {}
        for node in self.world.running():
            for group, replica in node.broker.context.replicas.items():
                groups.setdefault(group, []).append(replica)
        return groups

    def _all_led(self) -> bool:
        groups = self._groups()
        led = sum(
            any(replica.is_leader and replica.node.ready for replica in replicas)
            for group, replicas in groups.items()
            if group != METADATA_GROUP
        )
        return led == self.options.partitions

    def _converged(self) -> bool:
        if not self._all_led():
            return False
        for group, replicas in self._groups().items():
            wanted = self.options.brokers if group == METADATA_GROUP else self.options.replication
            ends = {(each.log.last_index, each.log.last_term, each.commit) for each in replicas}
            whole = all(each.log.durable_index == each.log.last_index for each in replicas)
            if len(replicas) != wanted or len(ends) != 1 or not whole:
                return False
        return True

    def _read_everything(self) -> None:
        """A last reader reads every partition to its end; what it saw is in the history."""
        ends = self._ends()
        for partition, offset in self.workload.read_everything():
            self._final[partition] = offset
            while self._final[partition] < ends[partition]:
                before = self._final[partition]
                done: list[int] = []
                then = partial(self._advance, done)
                self.workload.fetch(FINAL_READER, partition, before, then)
                limit = seconds(LIVENESS_SECONDS)
                self.world.run_until(partial(bool, done), limit, "final read answered")

    def _advance(self, done: list[int], partition: int, following: int | None) -> None:
        if following is not None:
            self._final[partition] = following
        done.append(1)

    def _ends(self) -> dict[int, int]:
        ends: dict[int, int] = {}
        for node in self.world.running():
            image = node.broker.context.image
            topic = image.topic(TOPIC)
            assert topic is not None, node.number
            for number, partition in enumerate(topic.partitions):
                replica = node.broker.context.replicas.get(partition.group)
                if replica is not None and replica.is_leader:
                    ends[number] = replica.high_watermark
        return ends

    def lost(self) -> str:
        """An acknowledged record whose offset lies beyond what the cluster has in the end."""
        ends = self._ends()
        for partition, offset in sorted(self.workload.acknowledged):
            if offset >= ends.get(partition, 0):
                return f"lost-acknowledged: offset {offset} of partition {partition}"
        return ""

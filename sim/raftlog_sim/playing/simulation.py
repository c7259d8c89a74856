"""Plays one schedule, from founding a cluster to the verdict over all that its clients saw.

found, create the topic -> safety: clients and faults together, invariants after every turn ->
liveness: heal; all nodes must elect, commit and converge within a bound -> read everything back ->
the judge

In half of the seeds a core must do that alone before all is healed. `last_writes` says which
records must be committed then.
"""

import io
from collections.abc import Collection, Iterator
from functools import partial
from typing import Any, Final, final

from raftlog.base import probes
from raftlog.base.buggify import arm
from raftlog.base.ids import NodeId
from raftlog.base.ports import Tracer
from raftlog.base.trace import NoTracer
from raftlog.base.units import millis
from raftlog.verify import Verdict, check_history
from raftlog_sim.base.failures import told
from raftlog_sim.base.stuck import StuckError
from raftlog_sim.checks import file_checks
from raftlog_sim.checks.invariants import Invariants
from raftlog_sim.checks.onlooker import Onlooker, Watch
from raftlog_sim.facts.convergence import (
    do_lead,
    is_converged,
    is_core_alive,
    is_led,
    misreported,
)
from raftlog_sim.facts.targets import group_of, log_start_of
from raftlog_sim.faults.atlas import planned_places
from raftlog_sim.faults.fault_kinds import FAULT_KINDS
from raftlog_sim.faults.nemesis import SimNemesis
from raftlog_sim.incidents.recordings import complaint, recording_of
from raftlog_sim.playing import endings, group_phase
from raftlog_sim.playing.goals import Goal
from raftlog_sim.playing.last_writes import LastWrites
from raftlog_sim.playing.result import NOT_DRAWN, NOT_ENOUGH, NOT_REACHED, RAN, Result
from raftlog_sim.schedules.buggify import Buggify
from raftlog_sim.schedules.drawing import draw_schedule
from raftlog_sim.schedules.options import DEAF, STALLED, SimOptions
from raftlog_sim.schedules.schedule import Schedule
from raftlog_sim.schedules.sizes import configured, shape
from raftlog_sim.schedules.step_kinds import CHURN, is_fault
from raftlog_sim.workloads.callers import TOPIC
from raftlog_sim.workloads.members import Members
from raftlog_sim.workloads.questions import Questions
from raftlog_sim.workloads.workload import SimWorkload
from raftlog_sim.world.world import World, seconds

SETUP_SECONDS: Final = 30
_LINKED_AGAIN_NS: Final = millis(100)
"""The time after healing until all cut links are back, in nanoseconds."""
LIVENESS_SECONDS: Final = 60
FINAL_READER: Final = 2_000_000


def simulate(
    what: SimOptions | Schedule,
    *,
    tracer: Tracer | None = None,
    watch: Watch | None = None,
    liveness_seconds: int = LIVENESS_SECONDS,
) -> Result:
    """Run a schedule, or the one that these options draw.

    The same schedule gives the same result, byte for byte. `watch` sees every turn, after the
    invariants; when one of them fails, before the run ends. `liveness_seconds` is how long the
    cluster may take to come to rest.
    """
    schedule = what if isinstance(what, Schedule) else draw_schedule(what)
    probes.reset()
    if schedule.options.trio:
        from raftlog_sim.shell import trio_run  # noqa: PLC0415  (the runtime is not always needed)

        begin = partial(in_world, schedule, watch, liveness_seconds)
        run, failure = trio_run.play(schedule, begin, tracer=tracer)
    else:
        run = Run(schedule, tracer=tracer, watch=watch, liveness_seconds=liveness_seconds)
        failure = run.play() or complaint(run.recordings)
    verdict = None
    if not failure:
        verdict = check_history(io.StringIO(run.workload.text.getvalue()))
        failure = run.lost() or _complaint(verdict)
    return run.result(failure, verdict)


def in_world(schedule: Schedule, watch: Watch | None, liveness_seconds: int, world: World) -> "Run":
    """Make a run in a world that its caller makes and moves."""
    return Run(schedule, watch=watch, world=world, liveness_seconds=liveness_seconds)


def _complaint(verdict: Verdict) -> str:
    failures = verdict.failures()
    if not failures:
        return ""
    witness = failures[0].witness
    return f"history-{failures[0].name}: {witness.text if witness is not None else ''}".strip()


@final
class Run:
    """One schedule under way. `advance` performs one action, so that a debugger can stop anywhere.
    `play` goes to the end. A `world` that is not one of heaps is moved by its caller, and only
    `look` is called."""

    def __init__(
        self,
        schedule: Schedule,
        *,
        tracer: Tracer | None = None,
        watch: Watch | None = None,
        world: World | None = None,
        liveness_seconds: int = LIVENESS_SECONDS,
    ) -> None:
        options = schedule.options
        self.schedule = schedule
        self.liveness_ns = seconds(liveness_seconds)
        self.options = options
        self.recordings = recording_of(options.seed) if world is None else None
        if world is None:
            world = World(options.seed, tracer or NoTracer(), recordings=self.recordings)
            shape(world, schedule)
        self.world = world
        world.configure = partial(configured, options)
        self.onlooker = world.observer = Onlooker(Invariants(), watch)
        world.boot_checks = self.onlooker.invariants.recovered
        world.found(options.brokers, options.controllers)
        asked = any(each.kind == "trim" for each in schedule.steps)
        trims, ages = bool(options.retention_bytes) or asked, self.onlooker.invariants.ages
        ages.retention_ms = 0 if trims else options.retention_ms
        ages.retention_bytes = 0 if asked or options.retention_ms else options.retention_bytes
        self.workload = SimWorkload(world, options, shrinks=trims or bool(options.retention_ms))
        self.workload.on_acknowledged = self._acknowledged
        self.workload.on_read = self._read_answered if options.linearizable else None
        self.workload.questions = Questions(self.workload, self.onlooker.invariants, TOPIC)
        self.members = Members(world, options, self.onlooker.invariants)
        self.workload.members = None if options.trio else self.members
        churn = any(step.kind in CHURN for step in schedule.steps)
        self.nemesis = SimNemesis(
            world, self.workload, FAULT_KINDS, churn, planned_places(schedule.steps)
        )
        self.onlooker.invariants.damaged = self.nemesis.atlas.damaged
        self.onlooker.invariants.hearing.urged = self.nemesis.urged
        self.phase = "set-up"
        self.buggify = Buggify(options.seed) if options.buggify else None
        self.buggified = {} if self.buggify is None else self.buggify.fired
        self.core = NOT_REACHED
        self.last_writes = LastWrites(world, self.workload)
        self._look_at = 0
        self._created: list[Any] = []
        self._final: dict[int, int] = {}
        self._plan = self._phases()
        self._goal: Goal | None = next(self._plan)
        self._deadline = world.now + self._goal.limit_ns

    # --- running ----------------------------------------------------------------------------------

    def play(self) -> str:
        """Play to the end; returns the failure, `<class>: <what>`, or ""."""
        try:
            while self.advance():
                pass
        except Exception as error:  # whatever a broken broker raises is a finding
            return told(error)
        finally:
            arm(None)
        return ""

    def advance(self) -> bool:
        """Perform one event of the world, or one step to the next phase; returns False at the end.

        Raises the errors that `play` turns into a failure.
        """
        if self._goal is None:
            return False
        if self.look():
            return not self.over
        due = self.world.next_at()
        if due is None or due > self._deadline:  # no further event in time: a last look
            self._look_at = 0
            if not self.look():
                raise self._stuck()
            return not self.over
        self.world.step()
        return True

    @property
    def over(self) -> bool:
        """Whether the run has gone through all phases."""
        return self._goal is None

    def look(self) -> bool:
        """Whether the goal of this phase is reached; if so, begin the next phase.

        Raises the errors that `play` turns into a failure.
        """
        goal = self._goal
        assert goal is not None, "the run is over"
        arm(self.buggify)
        now = self.world.now
        if now >= self._look_at:
            if goal.reached():
                self._next_phase()
                return True
            if goal.look_ms:
                self._look_at = now + millis(goal.look_ms)
        if now > self._deadline:
            raise self._stuck()
        return False

    def _next_phase(self) -> None:
        self._look_at = 0
        self._goal = next(self._plan, None)
        if self._goal is not None:
            self._deadline = self.world.now + self._goal.limit_ns

    def _stuck(self) -> StuckError:
        assert self._goal is not None, "the run is over"
        goal = self._goal
        more = f"; {goal.why_not()}" if goal.why_not is not None else ""
        return StuckError(f"not reached within {goal.limit_ns / 1e9} s: {goal.what}{more}")

    # --- phases -----------------------------------------------------------------------------------

    def _phases(self) -> Iterator[Goal]:
        yield from self._set_up()
        self.phase = "safety"
        self._schedule_steps()
        yield Goal(self._safety_over, millis(self.options.safety_ms) + seconds(1), "safety phase")
        self.workload.stop()
        self.buggify = None
        limit = self.liveness_ns
        yield from self._core_alone()
        self.phase = "liveness"
        self.nemesis.heal()
        yield Goal(lambda: self.workload.busy == 0, limit, "every call answered")
        yield Goal(lambda: is_converged(self.world), limit, "all replicas converged", 1)
        yield from group_phase.settle(self.members, self.workload, limit)
        yield from self._commit(self.world.nodes)
        yield Goal(lambda: is_converged(self.world), limit, "all replicas converged again", 1)
        self.phase = "final read"
        yield from self._read_everything(FINAL_READER)
        yield Goal(self._rest(), limit, "all at rest", 1)
        yield from endings.scrubbed(self.world, self.options.scrub_ms, limit)
        self._finish(scrubbed=self.options.scrub_ms > 0)
        yield from self._read_from_each()
        reboots = endings.REBOOTS if self.options.reboot else ()
        for number, kind in enumerate(reboots, 1):
            yield from self._reboot(kind, FINAL_READER + number)
        self.phase = "over"

    def _core_alone(self) -> Iterator[Goal]:
        """Let a majority work alone, if the seed has a core and enough of it is left."""
        core = tuple(NodeId(number) for number in self.options.core)
        if not core:
            self.core = NOT_DRAWN
        elif not self.nemesis.atlas.is_core(core):
            self.core = NOT_ENOUGH
        else:
            self.phase, self.core = "core", RAN
            self.nemesis.heal_core(core, self.options.rest)
            if self.options.rest == DEAF:
                linked = self.world.now + _LINKED_AGAIN_NS
                self.world.at(linked, endings.nothing)
                yield Goal(lambda: self.world.now >= linked, self.liveness_ns, "links are back")
                self.nemesis.deafen(core)
            if self.options.rest != STALLED:
                alive = partial(is_core_alive, self.world, core)
                yield Goal(alive, self.liveness_ns, f"the core {core} works", 1)
            yield from self._commit(core)
            if self.options.rest == STALLED:  # a leader with nothing to write sees no stall
                led = partial(do_lead, self.world, core, TOPIC, self.last_writes.committed)
                yield Goal(led, self.liveness_ns, f"the core {core} leads what was written to", 1)

    def _commit(self, members: Collection[NodeId]) -> Iterator[Goal]:
        """Yields the goal that every partition in which these nodes can commit acknowledges a
        record."""
        last = self.last_writes
        last.begin(self.phase, members)
        yield Goal(last.done, self.liveness_ns, "all committed a record", 1, last.refusals)
        last.end()

    def _read_from_each(self) -> Iterator[Goal]:
        """Let some nodes lead, as far as they can, and read all from each.

        Rotten bytes are repaired or given up, but never served.
        """
        partitions, limit = self.options.partitions, self.liveness_ns
        for number in endings.read_last(self.world, self.nemesis.atlas.damaged):
            self.phase = "read from each"
            endings.hand_over(self.nemesis, number, partitions)
            led = partial(endings.leads, self.world, number, partitions)
            until = endings.patience(self.world)
            yield Goal(lambda led=led, until=until: led() or until(), limit, "handed over", 1)  # type: ignore[misc]
            yield from self._read_everything(FINAL_READER + 10 + number)
            yield Goal(lambda: is_converged(self.world), limit, "all at rest", 1)

    def _reboot(self, kind: str, reader: int) -> Iterator[Goal]:
        """Boot all nodes once more; all must be as before, and work."""
        self.phase, limit = "reboot", self.liveness_ns
        before = endings.standings(self.world)
        endings.begin_reboot(self.nemesis, kind)
        until = endings.patience(self.world)
        yield Goal(lambda: not self.world.running() or until(), limit, "all stopped", 1)
        endings.end_reboot(self.nemesis)
        yield Goal(self._rest(), limit, "all replicas converged", 1)
        problem = endings.lost_by_reboot(before, endings.standings(self.world))
        self.onlooker.invariants.judge((("same-after-reboot", problem),))
        yield from self._commit(self.world.nodes)
        yield Goal(lambda: is_converged(self.world), limit, "all replicas converged again", 1)
        yield from self._read_everything(reader)
        yield from group_phase.audit(self.members, limit)
        yield Goal(self._rest(), limit, "all at rest", 1)
        self._finish()

    def _rest(self) -> endings.Rest:
        owed = self.onlooker.invariants.answers.unanswered
        return endings.Rest(self.world, None if self.options.trio else owed)

    def _finish(self, *, scrubbed: bool = False) -> None:
        invariants, running = self.onlooker.invariants, self.world.running()
        invariants.finish(running)
        invariants.judge(file_checks.rot_found(running) if scrubbed else ())
        invariants.judge(("membership-reported", wrong) for wrong in misreported(running))
        if not self.options.trio:  # there a consumer polls to the very end
            invariants.at_rest(running)

    def _set_up(self) -> Iterator[Goal]:
        limit = seconds(SETUP_SECONDS)
        yield Goal(self._registered, limit, "brokers registered")
        self.workload.create_topic(self._created.append)
        yield Goal(lambda: bool(self._created), limit, "topic created")
        if isinstance(self._created[0], Exception):
            raise StuckError(f"the topic was not created: {self._created[0]}")
        for result in self._created[0]:
            result.check()
        led = partial(is_led, self.world, TOPIC, self.options.partitions)
        yield Goal(led, limit, "every partition led", 1)

    def _registered(self) -> bool:
        brokers, running = self.options.brokers, self.world.running()
        return len(running) == brokers and all(
            len(node.broker.context.image.live_brokers()) == brokers for node in running
        )

    def _acknowledged(self, partition: int, offset: int) -> None:
        group = group_of(self.world, TOPIC, partition)
        if group is not None:
            self.onlooker.invariants.acknowledged(group, offset)

    def _read_answered(self, partition: int, floor: int, high_watermark: int) -> None:
        group = group_of(self.world, TOPIC, partition)
        if group is not None:
            self.onlooker.invariants.read(group, floor, high_watermark)

    def _schedule_steps(self) -> None:
        world, begin = self.world, self.world.now
        self.workload.start()
        for step in self.schedule.steps:
            if step.at_ms >= self.options.safety_ms:
                self.nemesis.in_vain.append(f"{step} (after safety_ms)")
                continue
            perform = self.nemesis.strike if is_fault(step.kind) else self.workload.perform
            world.at(begin + millis(step.at_ms), perform, step)
            self.nemesis.due.append((begin + millis(step.at_ms), step))
        self._end = begin + millis(self.options.safety_ms)
        world.at(self._end, endings.nothing)

    def _safety_over(self) -> bool:
        return self.world.now >= self._end or self.onlooker.events >= self.options.events_max

    # --- the end ----------------------------------------------------------------------------------

    def _read_everything(self, reader: int) -> Iterator[Goal]:
        """Let a last reader read every partition to its end; the history has what it saw.

        The history also has the beginning of a log that moves. Raises `StuckError` when the reader
        gets nothing more for too long.
        """
        limit = self.liveness_ns
        # A leadership may be on its way from one broker to another at this moment.
        yield Goal(self._all_led, limit, "every partition is led", 1)
        ends = self._ends()
        for partition, offset in self.workload.read_everything():
            self._final[partition] = max(offset, log_start_of(self.world, TOPIC, partition))
            tell, stuck_at = self.workload.shrinks, self.world.now + limit
            while tell or self._final[partition] < ends[partition]:
                tell = False
                done: list[int] = []
                then = partial(self._advance, done)
                self.workload.fetch(reader, partition, self._final[partition], then)
                before = self._final[partition]
                yield Goal(partial(bool, done), limit, "final read answered")
                if self._final[partition] > before:
                    stuck_at = self.world.now + limit
                elif self.world.now > stuck_at:
                    raise StuckError(f"partition {partition} cannot be read beyond {before}")

    def _advance(self, done: list[int], partition: int, following: int | None) -> None:
        known = log_start_of(self.world, TOPIC, partition)
        self._final[partition] = max(following or 0, known, self._final[partition])
        done.append(1)

    def _all_led(self) -> bool:
        topics = [node.broker.context.image.topic(TOPIC) for node in self.world.running()]
        return len(self._ends()) == max(len(topic.partitions) for topic in topics if topic)

    def _ends(self) -> dict[int, int]:
        """The high watermark of each partition that a running broker leads."""
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
        """Returns an acknowledged record whose offset lies beyond the final end of its
        partition."""
        ends = self._ends()
        for partition, offset in sorted(self.workload.acknowledged):
            if offset >= ends.get(partition, 0):
                return f"lost-acknowledged: offset {offset} of partition {partition}"
        return ""

    def result(self, failure: str, verdict: Verdict | None) -> Result:
        """Returns the result of the run."""
        world, onlooker, last = self.world, self.onlooker, self.last_writes
        onlooker.invariants.checked["peer-protocol"] = world.network.frames_read
        return Result(
            options=self.options,
            schedule=self.schedule,
            failure=failure,
            phase=self.phase,
            trace_hash=onlooker.trace_hash(),
            events=onlooker.events,
            turns=onlooker.turns,
            simulated_ns=world.now,
            sent=self.workload.sent - last.sent,
            acknowledged=len(self.workload.acknowledged) - last.acknowledged,
            unknown=self.workload.unknown - last.unknown,
            faults=dict(sorted(self.nemesis.done.items())),
            in_vain=(*self.nemesis.in_vain, *self.members.in_vain),
            near_faults=tuple(self.nemesis.near.pairs),
            invariants=onlooker.invariants.document(failure.partition(":")[0]),
            verdict=verdict,
            history=self.workload.text.getvalue(),
            probes=probes.fired(),
            buggified=dict(sorted(self.buggified.items())),
            core=self.core,
            demanded=last.demanded,
        )

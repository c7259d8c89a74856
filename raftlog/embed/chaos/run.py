"""One run: a cluster, the plan's faults, the workloads beside them, and the findings.

1. A cluster of processes is founded, with the topic to which targets like `leader:0` refer.
2. The user's program starts and has the warm-up without faults.
3. Faults and the built-in workload begin together.
4. When the plan is over, everything is undone. The cluster must become healthy.
5. The program must end with 0, within the time limit. Then the built-in workload's topic is read
   from its beginning, for the judge.

The run's own findings become its checks, as `raftlog.verify.judging.run_checks` reads them. The
judge judges its history.
"""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final, final

import attrs

from raftlog.base.errors import OperatingError, RaftlogError
from raftlog.client.blocking import BlockingClient
from raftlog.embed.chaos.plan import ChaosPlan, default_load
from raftlog.embed.chaos.program import Program, interrupts_held
from raftlog.embed.chaos.stage import ChaosStage, TimeIsUp, Wait, now
from raftlog.embed.chaos.workload import ChaosWorkload
from raftlog.embed.cluster import Cluster
from raftlog.embed.recording.recording import recording
from raftlog.verify import judge
from raftlog.verify.judging.run_checks import HELD, VIOLATED

TOPIC: Final = "work"
BUILT_IN_TOPIC: Final = "raftlog-chaos"
"""The built-in workload's topic when there is a user's program, which then has the other topic for
itself."""
HISTORY_FILE: Final = "history.jsonl"
PROGRAM_HISTORY: Final = "program.jsonl"
PROGRAM_OUTPUT: Final = "program.txt"
_SEND_EVERY_MS: Final = 20
_READ_EVERY_MS: Final = 100
_READ_BACK_SECONDS: Final = 60.0
_WAIT_SECONDS: Final = 0.2


@final
@attrs.define(eq=False)
class ChaosFindings:
    """The findings of a run. `checks` are those of `raftlog.verify.judging.run_checks`."""

    checks: dict[str, dict[str, Any]] = attrs.field(factory=dict)
    struck: Counter[str] = attrs.field(factory=Counter)
    in_vain: list[str] = attrs.field(factory=list)
    used: list[str] = attrs.field(factory=list)
    """For each fault of the network or a disk, a line that says how often it did something."""
    exit_code: int | None = None
    """The exit code of the user's program; None without a program."""

    def check(self, name: str, problem: str, checked: int = 1) -> None:
        """Note the result of a check. It passed if `problem` is empty."""
        status = VIOLATED if problem else HELD
        self.checks[name] = {"status": status, "checked": checked, "note": problem}


@final
@attrs.frozen(kw_only=True)
class ChaosRun:
    """How a plan is played. `command` is the user's program; `shown` is where its output goes."""

    plan: ChaosPlan
    folder: Path
    command: str | None
    warm_up_seconds: float
    limit_seconds: float
    shown: BinaryIO


def run(asked: ChaosRun) -> ChaosFindings:
    """Play a plan. Afterwards the folder has the history and all output. `OperatingError` when the
    cluster does not start."""
    found, plan = ChaosFindings(), asked.plan
    deadline = now() + asked.limit_seconds
    with ExitStack() as stack:
        cluster = stack.enter_context(
            Cluster(
                plan.brokers,
                processes=True,
                directory=asked.folder / "cluster",
                controllers=1 if plan.controllers == 1 else None,
            )
        )
        client = stack.enter_context(BlockingClient(cluster.bootstrap_servers))
        own = TOPIC if asked.command is None else BUILT_IN_TOPIC
        for name in dict.fromkeys((TOPIC, own)):
            client.create_topic(
                name,
                partitions=plan.partitions,
                replication_factor=plan.replication,
                configs={"min.insync.replicas": str(plan.min_in_sync), "retention.ms": "-1"},
            )
        cluster.wait_until_healthy()
        history = stack.enter_context(
            recording(
                asked.folder / HISTORY_FILE,
                consumer="assign",
                options={"chaos": plan.name, "seed": plan.seed},
            )
        )
        program = stack.enter_context(_program(asked, cluster.bootstrap_servers))
        steps = [each for each in plan.steps if each.of_clients]
        work = ChaosWorkload(
            cluster.bootstrap_servers,
            own,
            steps or default_load(plan, _SEND_EVERY_MS, _READ_EVERY_MS),
            plan.seed,
            history,
        )
        stack.callback(work.stop)
        began = now() + (asked.warm_up_seconds if program is not None else 0.0)
        work.start(began)
        wait = _waiting(deadline)
        stage = ChaosStage(cluster, client, history, TOPIC, wait)
        try:
            stage.play(plan.faults, began)
            wait(began + plan.lasts_ms / 1000)
        except TimeIsUp:
            found.check("time-limit", f"not all was played within {asked.limit_seconds:g} s")
            work.stop()
        _finish(asked, found, stage, work, program, deadline)
        try:
            history.read_back(cluster.bootstrap_servers, seconds=_READ_BACK_SECONDS)
        except RaftlogError as error:
            found.check("read-back", str(error))
    if asked.command is not None:
        _judge_program(asked.folder / PROGRAM_HISTORY, found)
    return found


def _waiting(deadline: float) -> Wait:
    """A `Wait` that ends the run at the deadline. It sleeps in short pieces, so that Python handles
    signals in between."""

    def wait(until: float) -> None:
        while (left := until - now()) > 0:
            if now() > deadline:
                raise TimeIsUp
            time.sleep(min(left, _WAIT_SECONDS))

    return wait


def _finish(
    asked: ChaosRun,
    found: ChaosFindings,
    stage: ChaosStage,
    work: ChaosWorkload,
    program: Program | None,
    deadline: float,
) -> None:
    """Undo the faults, wait for both workloads, and note every problem."""
    died = stage.died()
    found.check("brokers-alive", f"brokers that ended by themselves: {died}" if died else "")
    try:
        found.used = stage.recover()
        found.check("recovered", "")
    except OperatingError as error:
        found.check("recovered", str(error))
    try:
        work.join(deadline)
        found.check("workload", "")
    except RaftlogError as error:
        found.check("workload", str(error))
    if program is not None:
        problem = program.wait(deadline - now())
        found.exit_code = program.code
        found.check("program", problem and f"{problem}: {asked.command}")
    found.struck, found.in_vain = stage.struck, stage.in_vain
    found.check("faults-struck", "", checked=found.struck.total())


@contextmanager
def _program(asked: ChaosRun, servers: str) -> Iterator[Program | None]:
    if asked.command is None:
        yield None
        return
    environment = {
        "RAFTLOG_BOOTSTRAP_SERVER": servers,
        "RAFTLOG_TOPIC": TOPIC,
        "RAFTLOG_HISTORY": str(asked.folder / PROGRAM_HISTORY),
        "RAFTLOG_SEED": str(asked.plan.seed),
    }
    output, program = asked.folder / PROGRAM_OUTPUT, None
    try:
        with interrupts_held():
            program = Program(asked.command, environment, output, asked.shown)
        yield program
    finally:
        if program is not None:
            program.end()


def _judge_program(path: Path, found: ChaosFindings) -> None:
    """Judge the history that the program itself recorded, if there is one."""
    if not path.exists():
        return
    try:
        with path.open("rb") as stream:
            verdict = judge(stream).verdict
    except (RaftlogError, OSError, UnicodeDecodeError) as error:
        # The program wrote the file, perhaps only half of it. So this is a failed check of the
        # program, and not an error of the run.
        found.check("program-history", f"it is no history that can be judged: {error}")
        return
    failures = [
        f"{each.name}: {'' if each.witness is None else each.witness.text}"
        for each in verdict.failures()
    ]
    problem = "" if verdict.exit_code == 0 else "; ".join(failures) or verdict.verdict
    found.check("program-history", problem, checked=verdict.operations)

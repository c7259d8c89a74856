"""One run: brokers, clients, a nemesis, a history; then healed, read to the end, and judged.

    start --> prepare --> workers ---------------------------> stop --> last reads --> judge
                          nemesis: break, wait, repair, ...    heal

The verdict is the judge's over the history. It is worse when the brokers themselves failed a check:
a broker ended by itself, the cluster did not come back after everything was healed, or replicas of
one log have different bytes.
"""

import shutil
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, Final, final

import attrs

from jepsen_style_tests import mounts, replicas, run_folder
from jepsen_style_tests.clients.choice import Commands, check_choice, read_commands
from jepsen_style_tests.clients.face import Unknown
from jepsen_style_tests.clients.lines import LineProtocolError
from jepsen_style_tests.namespaces import Namespaces
from jepsen_style_tests.nemeses import clocks
from jepsen_style_tests.nemeses.all import NEMESES
from jepsen_style_tests.processes import ProcessCluster, free_places
from jepsen_style_tests.proxy import CLIENTS, ProxyLinks
from jepsen_style_tests.recorder import HistoryRecorder
from jepsen_style_tests.workloads.all import WORKLOADS
from jepsen_style_tests.workloads.face import RunStage, RunWorkload
from jepsen_style_tests.world import CONTROL, EVERYBODY, Nemesis, ProcessWorld
from raftlog.base.amounts import amount
from raftlog.base.errors import OperatingError
from raftlog.verify import Header, judge
from raftlog.verify.judging.run_checks import exercised
from raftlog.verify.judging.verdict import INVALID, VALID
from raftlog.verify.report.page import RunFolder, render
from raftlog.verify.report.proof import digest_of

BROKERS: Final = 3
HEAL_SECONDS: Final = 120.0
HISTORY: Final = "history.jsonl"
REPORT: Final = "report.html"
_JOIN_SECONDS: Final = 60.0
_TICK_SECONDS: Final = 0.1


@final
@attrs.frozen(kw_only=True)
class RunPlan:
    """The settings of a run."""

    workload: str
    nemesis: str
    seconds: float
    seed: int
    client: str = "mixed"
    programs: Path | None = None
    """The commands of clients in other languages, as `choice.read_commands` reads them."""
    brokers: int = BROKERS
    linearizable: bool = False
    settings: dict[str, str] = attrs.field(factory=dict)
    keep: bool = False
    command: str = ""


@final
@attrs.frozen(kw_only=True)
class RunOutcome:
    """The result of a run."""

    plan: RunPlan
    folder: Path
    verdict: str
    failing: tuple[str, ...]
    checks: dict[str, dict[str, Any]]
    operations: int
    counts: dict[str, int]
    faults: int
    seconds: float
    longest_gap_ms: int

    @property
    def exit_code(self) -> int:
        """0 valid, 1 invalid, 2 unknown."""
        return {VALID: 0, INVALID: 1}.get(self.verdict, 2)


def run(
    plan: RunPlan, folder: Path, say: Callable[[str], None], nemesis: Nemesis | None = None
) -> RunOutcome:
    """Run a plan into a folder, under the nemesis that it names, or the one given (a scenario's).

    Raises `OperatingError` when the nemesis cannot work on this machine, or the client that was
    chosen has no program.
    """
    chosen = nemesis or NEMESES[plan.nemesis]
    workload = WORKLOADS[plan.workload]
    if plan.client not in workload.clients:
        raise OperatingError(
            f"is no client of workload {workload.name}",
            on=f"--client {plan.client}",
            do=f"use one of {', '.join(workload.clients)}",
        )
    missing = chosen.setup.missing()
    if missing:
        raise OperatingError(f"{chosen.name} cannot run here", do=missing)
    commands = read_commands(plan.programs) if plan.programs else {}
    check_choice(plan.client, commands)
    return _Run(plan, workload, chosen, folder, say, commands).run()


@final
class _Run:
    """The parts of one run."""

    def __init__(
        self,
        plan: RunPlan,
        workload: RunWorkload,
        nemesis: Nemesis,
        folder: Path,
        say: Callable[[str], None],
        commands: Commands,
    ) -> None:
        self.plan = plan
        self.workload = workload
        self.nemesis = nemesis
        self.folder = folder
        self.say = say
        self.links = ProxyLinks()
        self.namespaces = Namespaces() if nemesis.setup.namespaces else None
        self.linearizable = plan.linearizable or workload.linearizable
        self.cluster = self._cluster()
        self.header = self._header()
        self.recorder = HistoryRecorder(folder / HISTORY, self.header)
        self.stage = RunStage(
            bootstrap=lambda: self.cluster.bootstrap,
            recorder=self.recorder,
            seed=plan.seed,
            client=plan.client,
            linearizable=self.linearizable,
            folder=folder,
            commands=commands,
        )
        dice = Random(f"{plan.seed} nemesis")
        self.world = ProcessWorld(
            self.cluster, self.links, self.recorder, dice, folder, self.namespaces
        )
        self.checks: dict[str, dict[str, Any]] = {}
        self.replicas = replicas.ReplicaFindings({}, {})
        self.faults = 0

    def _cluster(self) -> ProcessCluster:
        plan, setup = self.plan, self.nemesis.setup
        settings = {**self.workload.settings, **setup.settings, **plan.settings}
        if self.linearizable:
            settings["raftlog.read.consistency"] = "linearizable"
        places = free_places(plan.brokers)
        prefix: dict[int, list[str]] = {}
        if (network := self.namespaces) is not None:
            places = tuple(attrs.evolve(each, host=network.address(each.node)) for each in places)
            prefix = {each.node: network.prefix(each.node) for each in places}
        cluster = ProcessCluster(self.folder / "cluster", places, settings, prefix=prefix)
        test_disk = setup.test_disk
        for node in cluster.nodes:
            control = cluster.directory / f"disk{node}.control"
            if test_disk:
                environment = cluster.environment.setdefault(node, {})
                environment["RAFTLOG_TEST_DISK"] = test_disk.replace(CONTROL, str(control))
            if setup.fake_clock:
                environment = cluster.environment.setdefault(node, {})
                environment |= clocks.environment(cluster.directory, node)
        return cluster

    def _header(self) -> Header:
        plan = self.plan
        nodes: Any = tuple(f"n{node}" for node in self.cluster.nodes)
        consistency = "linearizable" if self.linearizable else "committed-prefix"
        return Header(
            source="blackbox",
            seed=plan.seed,
            model=self.workload.model,
            options={
                **self.workload.options(),
                "read_consistency": consistency,
                "swarm": {"workload": plan.workload, "nemesis": plan.nemesis},
            },
            nodes=nodes,
        )

    # --- the run ----------------------------------------------------------------------------------

    def run(self) -> RunOutcome:
        """Everything, in order; brokers, proxies and mounts are gone afterwards in any case."""
        started, began = run_folder.utc_now(), time.monotonic()
        try:
            self._start()
            self._load()
            if self._heal():
                self.say("reading everything back")
                self._finish()
        finally:
            self.recorder.close()
            self.world.heal_quietly()
            self.cluster.stop_all()
            self.links.stop()
            if self.namespaces is not None:
                self.namespaces.down()
            self.replicas = replicas.compare(
                self.cluster, self.nemesis.setup.lost_copies, self.stage.topics
            )
            self.checks |= self.replicas.checks
            mounts.unmount(self.cluster)
        seconds = time.monotonic() - began
        return self._judge(started, seconds)

    def _start(self) -> None:
        setup, cluster = self.nemesis.setup, self.cluster
        targets: dict[tuple[int, int], int] = {}
        for place in cluster.places if setup.proxies else ():
            for node in cluster.nodes:
                if node != place.node:
                    targets[node, place.node] = place.peer_port
            if setup.proxies == EVERYBODY:
                targets[CLIENTS, place.node] = place.client_port
        self.links.start(targets)
        cluster.routes = {pair: self.links.ports[pair] for pair in targets if CLIENTS not in pair}
        cluster.advertised = {
            node: port for (start, node), port in self.links.ports.items() if start == CLIENTS
        }
        self.say(
            f"starting {amount(len(cluster.nodes), 'broker process', plural='broker processes')}"
        )
        shutil.rmtree(cluster.directory, ignore_errors=True)  # an older run's, below the same --out
        if self.namespaces is not None:
            self.namespaces.up(cluster.nodes)
        if setup.small_disk_megabytes:
            mounts.mount(cluster, setup.small_disk_megabytes)
        cluster.found()
        for node in cluster.nodes if setup.fake_clock else ():
            clocks.set_clock(self.world, node, 0)
        for node in cluster.nodes:
            cluster.start(node)
        cluster.wait_ready(cluster.nodes)
        self.workload.prepare(self.stage)

    def _load(self) -> None:
        """Workers and the nemesis, until the time is up."""
        self.recorder.begin()
        self.say(f"{amount(self.workload.workers, 'client')}, {self.plan.seconds:.0f} s of faults")
        threads = [
            threading.Thread(target=self._work, args=(number,), name=f"worker {number}")
            for number in range(self.workload.workers)
        ]
        for thread in threads:
            thread.daemon = True
            thread.start()
        try:
            self._break(time.monotonic() + self.plan.seconds)
        finally:
            self._heal_faults()
            self.recorder.load_ends()
            self.stage.stopping.set()
            deadline = time.monotonic() + _JOIN_SECONDS
            for thread in threads:
                thread.join(max(0.1, deadline - time.monotonic()))
        stuck = [thread.name for thread in threads if thread.is_alive()]
        if stuck:
            self.stage.broken.append(f"clients do not return: {', '.join(stuck)}")

    def _work(self, worker: int) -> None:
        try:
            self.workload.work(self.stage, worker)
        except Exception:
            # Once the run is over its clients are closed under the calls that are still out.
            if not self.stage.stopping.is_set():
                self.stage.broken.append(traceback.format_exc())

    def _break(self, deadline: float) -> None:
        """Step the nemesis until the deadline, or until a scenario's steps end."""
        steps: Iterator[float] = self.nemesis.steps(self.world)
        for wait in steps:
            self.faults += 1
            until = min(deadline, time.monotonic() + wait)
            while time.monotonic() < until:
                time.sleep(min(_TICK_SECONDS, max(0.0, until - time.monotonic())))
                self.cluster.live()  # notes who ended by itself
            if time.monotonic() >= deadline:
                return

    def _heal_faults(self) -> None:
        self.say("healing")
        self.world.heal()

    def _finish(self) -> None:
        try:
            self.workload.finish(self.stage)
        except (Unknown, LineProtocolError) as error:
            self.stage.broken.append(f"the last reads failed: {error}")

    def _heal(self) -> bool:
        """Everybody must come back and serve; whether they did."""
        try:
            self.cluster.wait_ready(self.cluster.nodes, HEAL_SECONDS)
            self.checks["recovered"] = {"status": "held", "note": "every broker serves again"}
            return True
        except OperatingError as error:
            self.checks["recovered"] = {"status": "violated", "note": str(error)}
            return False

    # --- the verdict ------------------------------------------------------------------------------

    def _judge(self, started: str, seconds: float) -> RunOutcome:
        self.say("judging")
        ended = self.cluster.unexpected
        self.checks["brokers-run"] = {
            "status": "violated" if ended else "held",
            "note": f"ended by themselves, with exit code: {ended}" if ended else "",
        }
        broken = self.stage.broken
        self.checks["test-ran"] = {
            "status": "violated" if broken else "held",
            "note": broken[0] if broken else "",
        }
        with (self.folder / HISTORY).open("rb") as lines:
            judgement = judge(lines)
        violated = [name for name, check in self.checks.items() if check["status"] == "violated"]
        verdict = judgement.verdict.verdict
        if violated:
            verdict = INVALID
        failing = (*(result.name for result in judgement.verdict.failures()), *violated)
        self._write(judgement, started, seconds, verdict)
        return RunOutcome(
            plan=self.plan,
            folder=self.folder,
            verdict=verdict,
            failing=failing,
            checks=self.checks,
            operations=judgement.verdict.operations,
            counts=dict(self.recorder.counts),
            faults=self.faults,
            seconds=seconds,
            longest_gap_ms=self.recorder.longest_gap_ns // 1_000_000,
        )

    def _write(self, judgement: Any, started: str, seconds: float, verdict: str) -> None:
        plan = self.plan
        document = judgement.verdict.document(exercised(self.checks), whole=verdict)
        command = plan.command or (
            f"python -m jepsen_style_tests run --workload {plan.workload} "
            f"--nemesis {plan.nemesis} --time-limit {plan.seconds:.0f} --seed {plan.seed} "
            f"--client {plan.client}"
            + (f" --programs {plan.programs}" if plan.programs else "")
            + (" --linearizable" if plan.linearizable else "")
            + "".join(f" --set {key}={value}" for key, value in plan.settings.items())
        )
        run_json = {
            "version": 1,
            "command": command,
            "commands": {
                "replay": command,
                "judge again": f"raftlog verify {_shown(self.folder)}",
            },
            "seed": plan.seed,
            "options": {
                "workload": plan.workload,
                "nemesis": plan.nemesis,
                "client": plan.client,
                "brokers": plan.brokers,
                "seconds": int(plan.seconds),
                "linearizable": plan.linearizable,
                "settings": dict(plan.settings),
            },
            "started": started,
            "ended": run_folder.utc_now(),
            "versions": run_folder.versions(),
            "nodes": list(self.header.nodes),
            "replicas": self.replicas.logs,
            "metrics": {
                "real_ns": int(seconds * 1e9),
                "longest_gap_ms": self.recorder.longest_gap_ns // 1_000_000,
                **dict(sorted(self.recorder.counts.items())),
            },
        }
        run_folder.write_json(self.folder / "run.json", run_json)
        run_folder.write_json(self.folder / "verdict.json", document)
        with (self.folder / HISTORY).open("rb") as file:
            sha256 = digest_of(file)
        beside = RunFolder(
            name=self.folder.name,
            place=str(_shown(self.folder)),
            run=run_json,
            invariants=self.checks,
            history_sha256=sha256,
        )
        (self.folder / REPORT).write_text(render(judgement, beside), encoding="utf-8")
        if not plan.keep and verdict == VALID:
            shutil.rmtree(self.cluster.directory, ignore_errors=True)


def _shown(folder: Path) -> Path:
    """A folder as somebody types it who stands where the run was started."""
    here = Path.cwd()
    return folder.relative_to(here) if folder.is_relative_to(here) else folder

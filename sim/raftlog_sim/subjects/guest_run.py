"""Plays a plan of guests and judges it: the promises to clients against the final state.

After the last step the cluster has time to settle. Then the leader of the highest term says what
the final state is; an acknowledged value that is not in it is lost. Every run is also written in
the common history format, so that the judge of our own brokers judges guests.
"""

import io
import tempfile
from pathlib import Path
from typing import Any, Final, final

import attrs

from raftlog.base.amounts import amount
from raftlog.verify import Header, HistoryWriter, Verdict, check_history
from raftlog_sim.base.streams import Stream
from raftlog_sim.subjects.guest_cluster import GuestCluster
from raftlog_sim.subjects.guest_plan import GuestPlan
from raftlog_sim.subjects.guest_view import Conviction, GuestView
from raftlog_sim.subjects.pysyncobj import VERSION, driven

KEY: Final = "log/0"
LOST: Final = "lost-acknowledged"
DIVERGED: Final = "diverged"
STUCK: Final = "stuck"
_READER: Final = 1_000_000
_FAULTS: Final = {
    "isolate": "isolate",
    "rejoin": "rejoin",
    "cut": "start-cut",
    "join": "stop-cut",
    "reset": "reset",
    "kill": "kill",
    "killall": "kill",
    "revert": "power-loss",
    "start": "restart",
    "heal": "heal",
}
"""Verb -> its name in histories."""


@final
@attrs.frozen(kw_only=True)
class GuestResult:
    """The result of a plan. `failure` is `<class>: <what>`, or empty."""

    plan: GuestPlan
    failure: str
    convictions: tuple[Conviction, ...]
    lost: tuple[str, ...]
    acknowledged: int
    sent: int
    events: int
    simulated_ns: int
    trace_hash: str
    trace: tuple[str, ...]
    history: str

    @property
    def failure_class(self) -> str:
        return self.failure.partition(":")[0]

    def verdict(self) -> Verdict:
        """Returns the verdict of the judge of histories."""
        return check_history(io.StringIO(self.history))

    def document(self) -> dict[str, Any]:
        """Returns the result for run.json and `--format json`."""
        return {
            "seed": self.plan.seed,
            "subject": f"pysyncobj {VERSION}",
            "failure": self.failure,
            "violated": [str(each) for each in self.convictions],
            "lost": list(self.lost),
            "acknowledged": self.acknowledged,
            "sent": self.sent,
            "events": self.events,
            "simulated_ns": self.simulated_ns,
            "trace_hash": self.trace_hash,
        }

    def story(self) -> list[str]:
        """Returns the run for people: steps, changes of role, truncations, promises, broken
        rules."""
        lines = [
            f"pysyncobj {VERSION}, {amount(self.plan.nodes, 'node')}, "
            f"{amount(len(self.plan.steps), 'step')}"
        ]
        for line in self.trace:
            instant, where, *rest = line.split()
            lines.append(f"{int(instant) / 1e9:8.3f} s  {where:8} {' '.join(rest)}")
        lines.append(f"in the end: {self.failure or 'nothing acknowledged is lost'}")
        return lines


def play(plan: GuestPlan) -> GuestResult:
    """Run a plan. The same plan gives the same result."""
    if not plan.settings.journal:
        return _play(plan, None)
    with tempfile.TemporaryDirectory(prefix="raftlog-guest-") as folder:
        return _play(plan, Path(folder))


def _play(plan: GuestPlan, folder: Path | None) -> GuestResult:
    view = GuestView(plan.nodes)
    cluster = GuestCluster(plan.nodes, plan.settings, folder, view)
    with driven(cluster.clock, Stream(plan.seed, "guest/dice")):
        cluster.start_all()
        for step in plan.steps:
            cluster.run_until(step.at_ms * 1000)
            view.note(cluster.clock.now_us, "plan", step.verb, what=",".join(step.arguments))
            getattr(cluster, f"do_{step.verb}")(*step.arguments)
        last = plan.steps[-1].at_ms if plan.steps else 0
        cluster.run_until((last + plan.settle_ms) * 1000)
        result = _judged(plan, cluster, view)
        for number in sorted(cluster.nodes):
            cluster.kill(number)
    return result


def _judged(plan: GuestPlan, cluster: GuestCluster, view: GuestView) -> GuestResult:
    leader = cluster.leader()
    reached = cluster.reachable(leader.number) if leader is not None else []
    states = {number: cluster.nodes[number].values for number in reached}
    final = states[leader.number] if leader is not None else []
    whole = 2 * len(reached) > plan.nodes
    lost = tuple(value for value in view.acknowledged if value not in final) if leader else ()
    failure = ""
    if lost and whole:
        failure = f"{LOST}: {len(lost)} of {len(view.acknowledged)} acknowledged values are lost"
    elif leader is not None and (what := _differing(states, final)):
        failure = f"{DIVERGED}: {what}"
    elif view.convictions:
        failure = str(view.convictions[0])
    elif what := _stuck(cluster, reached):
        failure = f"{STUCK}: {what}"
    return GuestResult(
        plan=plan,
        failure=failure,
        convictions=tuple(view.convictions),
        lost=lost,
        acknowledged=len(view.acknowledged),
        sent=len(view.submitted_values),
        events=view.events,
        simulated_ns=cluster.clock.now_us * 1000,
        trace_hash=view.trace_hash(),
        trace=tuple(view.lines),
        history=_history(
            plan, view, {leader.number: final} if leader and whole else {}, cluster.clock.now_us
        ),
    )


def _differing(states: dict[int, list[str]], final: list[str]) -> str:
    for number, state in states.items():
        if state[: len(final)] != final[: len(state)]:
            return f"the state of n{number} is no beginning of the leader's"
    return ""


def _stuck(cluster: GuestCluster, reached: list[int]) -> str:
    leader = cluster.leader()
    if leader is None:
        return "nobody leads"
    behind = [f"n{number}" for number in reached if cluster.nodes[number].applied < leader.last]
    return f"{', '.join(behind)} did not catch up" if behind else ""


def _history(plan: GuestPlan, view: GuestView, states: dict[int, list[str]], now_us: int) -> str:
    """Returns the history: every write is a process of its own, and a last process reads the
    leader."""
    text = io.StringIO()
    names: Any = tuple(f"n{number}" for number in range(1, plan.nodes + 1))
    options = {"consumer": "assign", "read_consistency": "linearizable"}
    header = Header(source="sim", seed=plan.seed, options=options, nodes=names)
    writer = HistoryWriter(text, header)
    moments: list[tuple[int, int, str, Any]] = []
    for process, (value, (at_us, _)) in enumerate(view.submitted_values.items(), 1):
        moments.append((at_us, process, "invoke", value))
        if value in view.acknowledged:
            moments.append((view.acknowledged[value][0], process, "ok", value))
    moments += [
        (step.at_ms * 1000, 0, step.verb, step.arguments)
        for step in plan.steps
        if step.verb in _FAULTS
    ]
    for at_us, process, kind, value in sorted(moments, key=lambda moment: moment[0]):
        stamped = f"k#{value}"
        if kind in _FAULTS:
            named = [f"n{each}" for each in value if each.isdigit()] or list(names)
            writer.nemesis(_FAULTS[kind], time_ns=at_us * 1000, value={"nodes": named})
        elif kind == "invoke":
            writer.invoke(process, "send", time_ns=at_us * 1000, key=KEY, value=stamped)
        else:
            position = view.acknowledged[value][1]
            writer.complete(process, "ok", time_ns=at_us * 1000, value=[position, stamped])
    for number, state in states.items():
        process, now_ns = _READER + number, now_us * 1000
        pairs = [[position, f"k#{value}"] for position, value in enumerate(state)]
        _read(writer, process, "poll", now_ns, {KEY: 0}, {KEY: pairs} if pairs else {})
        _read(writer, process, "end", now_ns, None, len(state))
    return text.getvalue()


def _read(writer: HistoryWriter, process: int, f: str, now_ns: int, asked: Any, got: Any) -> None:
    key = KEY if f == "end" else None
    writer.invoke(process, f, time_ns=now_ns, key=key, value=asked)
    writer.complete(process, "ok", time_ns=now_ns, value=got)

"""A run of guests as text: a few settings, then steps with their instants in milliseconds.

    subject pysyncobj
    nodes 3
    seed 7
    set batch_bytes 120
    1000 write leader a 5
    1040 reset 1 2

A plan can be cut to any subset of its steps and still means something: shrinking needs that.
"""

from collections.abc import Iterator
from inspect import signature
from typing import Any, Final, NamedTuple, final

import attrs

from raftlog.base.errors import OperatingError
from raftlog_sim.base.streams import Stream
from raftlog_sim.schedules.bounds import BOUNDS, TIME_MAX_MS
from raftlog_sim.subjects import GUEST_PROFILES, GUEST_SUBJECT
from raftlog_sim.subjects.guest_cluster import VERBS, GuestCluster
from raftlog_sim.subjects.pysyncobj import NO_COMPACTION, GuestSettings

SUBJECT: Final = GUEST_SUBJECT
PROFILES: Final = GUEST_PROFILES
SETTLE_MS: Final = 8_000
_WARM_MS: Final = 2_000
_STEP_MS: Final = 60
_STEPS: Final = 240
_ROUNDS: Final = 6
_LINES_MAX: Final = 20_000
_WRITE_PARTS: Final = 6
_BURST_MAX: Final = 6
_OF_NODES: Final = ("one", "other", "target")
"""The names of verb arguments that name a node."""
_BOUNDS: Final = {
    "nodes": (1, 9),
    "seed": BOUNDS["seed"],
    "settle": (0, TIME_MAX_MS),
    "set": (0, 1 << 40),
}


@final
class GuestStep(NamedTuple):
    """A verb of `GuestCluster` with its arguments, at an instant."""

    at_ms: int
    verb: str
    arguments: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join([str(self.at_ms), self.verb, *self.arguments])


@final
@attrs.frozen(kw_only=True)
class GuestPlan:
    """Everything that decides a run."""

    nodes: int = 3
    seed: int = 1
    settings: GuestSettings = attrs.Factory(GuestSettings)
    settle_ms: int = SETTLE_MS
    """How long the cluster has after the last step before it is judged, in milliseconds."""
    steps: tuple[GuestStep, ...] = ()
    story: tuple[str, ...] = ()
    """The comment at the head of the file."""

    def text(self) -> str:
        """Returns the plan as a file that `parse` reads."""
        lines = [f"# {line}".rstrip() for line in self.story]
        lines += [f"subject {SUBJECT}", f"nodes {self.nodes}", f"seed {self.seed}"]
        if self.settle_ms != SETTLE_MS:
            lines.append(f"settle {self.settle_ms}")
        standard = attrs.asdict(GuestSettings())
        for name, value in attrs.asdict(self.settings).items():
            if value != standard[name]:
                lines.append(f"set {name} {int(value)}")
        return "\n".join([*lines, *(str(step) for step in self.steps)]) + "\n"

    def document(self) -> dict[str, Any]:
        """Returns the plan for run.json."""
        return {
            "subject": SUBJECT,
            "nodes": self.nodes,
            "settle_ms": self.settle_ms,
            **attrs.asdict(self.settings),
            "steps": len(self.steps),
        }


def parse(text: str) -> GuestPlan:
    """Read a plan. Raises `OperatingError` naming the line that makes no sense."""
    reader = _Reader()
    for number, line in enumerate(text.splitlines(), 1):
        try:
            reader.line(line.strip())
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise OperatingError(
                f"a plan's line makes no sense: {line.strip()[:80]!r} ({error})",
                on=f"line {number}",
                do="see docs/guides/simulate.md for what a plan holds",
            ) from error
        if number > _LINES_MAX:
            raise OperatingError("the plan is too long", on=f"line {number}")
    plan = reader.plan()
    for step in plan.steps:
        _check_nodes(step, plan.nodes)
    return plan


def _check_nodes(step: GuestStep, nodes: int) -> None:
    """Refuse a step for a node that does not exist: it would silently do nothing."""
    names = list(signature(getattr(GuestCluster, f"do_{step.verb}")).parameters)[1:]
    for name, value in zip(names, step.arguments, strict=False):
        if name in _OF_NODES and value.isdecimal() and not 1 <= int(value) <= nodes:
            raise OperatingError(
                f"there is no node {value[:20]}: this run has 1 to {nodes}",
                on=str(step)[:80],
                do="name one that there is, or say how many: `nodes 5`",
            )


@final
@attrs.define(eq=False)
class _Reader:
    fields: dict[str, Any] = attrs.Factory(dict)
    settings: dict[str, Any] = attrs.Factory(dict)
    steps: list[GuestStep] = attrs.Factory(list)
    story: list[str] = attrs.Factory(list)

    def line(self, line: str) -> None:
        words = line.split()
        if not words:
            return
        if line.startswith("#"):
            if not self.fields:
                self.story.append(line.removeprefix("#").strip())
        elif words[0] == "subject":
            if words[1:] != [SUBJECT]:
                raise ValueError("another subject")
            self.fields.setdefault("nodes", 3)
        elif words[0] in ("nodes", "seed", "settle"):
            name = "settle_ms" if words[0] == "settle" else words[0]
            self.fields[name] = _within(words[0], int(words[1]))
        elif words[0] == "set":
            default = attrs.asdict(GuestSettings())[words[1]]
            self.settings[words[1]] = type(default)(_within("set", int(words[2])))
        else:
            self._step(words)

    def _step(self, words: list[str]) -> None:
        at_ms = _within("settle", int(words[0]))
        if words[1] not in VERBS:
            raise ValueError(f"no verb {words[1]}; there are {', '.join(VERBS)}")
        if self.steps and at_ms < self.steps[-1].at_ms:
            raise ValueError("earlier than the step before it")
        self.steps.append(GuestStep(at_ms, words[1], tuple(words[2:])))

    def plan(self) -> GuestPlan:
        return GuestPlan(
            **self.fields,
            settings=GuestSettings(**self.settings),
            steps=tuple(self.steps),
            story=tuple(self.story),
        )


def _within(name: str, value: int) -> int:
    low, high = _BOUNDS[name]
    if not low <= value <= high:
        raise ValueError(f"{name} is a number from {low} to {high}")
    return value


# --- drawing one ----------------------------------------------------------------------------------


def draw_plan(seed: int, profile: str = "resets") -> GuestPlan:
    """Returns the plan of a seed.

    * `resets` breaks links and nothing else.
    * `kills` adds kill -9 of processes that keep a journal.
    * `restarts` kills all nodes at once, brings back a part, and swaps one of it for one that
      stayed
      away, on a network without faults.
    """
    stream = Stream(seed, f"guest/{profile}")
    settings = GuestSettings(
        batch_bytes=stream.between(100, 300),
        chunk_bytes=stream.between(64, 256),
        compaction_entries=stream.between(10, 40) if profile == "resets" else NO_COMPACTION,
        journal=profile != "resets",
    )
    drawn = _restarts(stream) if profile == "restarts" else _steps(stream, profile)
    steps = tuple(drawn)
    heal = GuestStep(steps[-1].at_ms + _STEP_MS, "heal")
    return GuestPlan(seed=seed, settings=settings, steps=(*steps, heal))


def _steps(stream: Stream, profile: str) -> Iterator[GuestStep]:
    now, written = _WARM_MS, 0
    for _ in range(_STEPS):
        now += stream.between(1, 2 * _STEP_MS)
        verb, arguments = _draw(stream, profile)
        if verb == "write":
            written += 1
            count = str(stream.between(1, _BURST_MAX))
            arguments = (*arguments, f"v{written}", count)
        yield GuestStep(now, verb, arguments)


def _draw(stream: Stream, profile: str) -> tuple[str, tuple[str, ...]]:
    one = stream.between(1, 3)
    other = (one + stream.below(2)) % 3 + 1
    choice = stream.below(12)
    if choice < _WRITE_PARTS:
        return "write", ("leader" if stream.chance(3, 4) else str(one),)
    if profile == "resets" or choice < 8:
        verbs = ("cut", "join", "join", "reset", "reset", "isolate", "rejoin")
        verb = verbs[stream.below(len(verbs))]
        single = verb in ("isolate", "rejoin")
        return verb, (str(one),) if single else (str(one), str(other))
    return ("start" if stream.chance(2, 3) else "kill"), (str(one),)


def _restarts(stream: Stream) -> Iterator[GuestStep]:
    """Draw rounds: elections, all nodes die, two return and work, one of them is swapped."""
    now = _WARM_MS
    for number in range(_ROUNDS):
        for _ in range(stream.below(4)):
            yield GuestStep(now, "elect", (str(stream.between(1, 3)),))
            now += stream.between(20, 300)
        yield GuestStep(now, "killall")
        away = stream.between(1, 3)
        staying = [each for each in (1, 2, 3) if each != away]
        for each in staying:
            now += stream.between(10, 200)
            yield GuestStep(now, "start", (str(each),))
        for part in range(3):
            now += stream.between(500, 1500)
            yield GuestStep(now, "write", ("leader", f"r{number}p{part}", "2"))
        now += stream.between(200, 600)
        yield GuestStep(now, "kill", (str(staying[stream.below(2)]),))
        yield GuestStep(now + 10, "start", (str(away),))
        now += stream.between(1500, 4000)
        yield GuestStep(now, "write", ("leader", f"r{number}s", "2"))
        now += stream.between(200, 600)
        yield GuestStep(now, "start", (str(staying[0]),))
        yield GuestStep(now, "start", (str(staying[1]),))
        now += stream.between(500, 2000)

"""A scenario as a plan for real processes, made from what `raftlog sim steps` prints of it.

A step or setting that real processes cannot play is refused before anything starts; the error names
it and its line. All other steps are played at the scenario's instants, in milliseconds of real
time.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, final

import attrs

from raftlog.base.amounts import amount
from raftlog.base.errors import OperatingError

Arguments = Mapping[str, Any]
BROKERS_MAX: Final = 9
_SILENT: Final = "silent"
_CLIENTS: Final = ("produce", "load", "read", "reads")
_SETTINGS: Final = (
    "seed",
    "brokers",
    "controllers",
    "partitions",
    "replication",
    "min_in_sync",
    "producers",
    "safety_ms",
)
_TARGETS: Final = ("node", "side", "hub", "sender", "receiver")


def _as_is(arguments: Arguments) -> str:
    del arguments
    return ""


def _silently(arguments: Arguments) -> str:
    """Refuse a cut that breaks links: between processes a cut only holds back what is sent."""
    return "" if arguments["how"] == _SILENT else f"how={arguments['how']}: write how=silent"


def _wholly(arguments: Arguments) -> str:
    left = arguments["bytes"]
    return "" if left == 0 else f"bytes={left}: a disk is full or not, write bytes=0"


PLAYED: Final[Mapping[str, Callable[[Arguments], str]]] = {
    "crash": _as_is,
    "stop": _as_is,
    "pause": _as_is,
    "partition": _silently,
    "one-way": _as_is,
    "bridge": _silently,
    "ring": _silently,
    "clog": _as_is,
    "slow-link": _as_is,
    "slow-disk": _as_is,
    "disk-full": _wholly,
    "failed-sync": _as_is,
    **dict.fromkeys(_CLIENTS, _as_is),
}
"""Kinds of steps that real processes play -> what they cannot do of a step's arguments."""
_INSTEAD: Final = {
    "power": "a machine cannot lose its power here; `crash` kills the process",
    "clock-jump": "all brokers share this machine's clock",
    "clock-drift": "all brokers share this machine's clock",
    "clock-wave": "all brokers share this machine's clock",
    "elect": "`crash` or `pause` the leader",
    "stall": "`slow-disk` makes each sync take up to 999 ms longer",
}


@final
class PlanRefused(OperatingError):
    """A scenario that real processes cannot play; the text names each line."""


@final
@attrs.frozen(kw_only=True)
class PlannedStep:
    """One step. For a kind that lasts, `for_ms` 0 means until everything is healed."""

    line: int
    at_ms: int
    for_ms: int
    kind: str
    arguments: Arguments

    @property
    def of_clients(self) -> bool:
        """Whether the built-in workload plays the step."""
        return self.kind in _CLIENTS

    def __str__(self) -> str:
        words = "".join(f" {name}={value}" for name, value in self.arguments.items())
        lasting = f" for {self.for_ms}" if self.for_ms else ""
        return f"{self.at_ms} {self.kind}{words}{lasting}"


@final
@attrs.frozen(kw_only=True)
class ChaosPlan:
    """The steps of a scenario, and the cluster that they need."""

    name: str
    seed: int
    brokers: int
    controllers: int | None
    partitions: int
    replication: int
    min_in_sync: int
    safety_ms: int
    steps: tuple[PlannedStep, ...]

    @property
    def faults(self) -> list[PlannedStep]:
        return [each for each in self.steps if not each.of_clients]

    @property
    def lasts_ms(self) -> int:
        """How long the plan lasts: until its last step is over, and at least `safety_ms`."""
        ends = [each.at_ms + each.for_ms + _spread_ms(each) for each in self.steps]
        return max([self.safety_ms, *ends])


def _spread_ms(step: PlannedStep) -> int:
    """How long a step goes on that repeats something many times."""
    every: int = step.arguments.get("every_ms", 0)
    return every * int(step.arguments.get("count", 0)) if every else 0


def plan_of(document: Mapping[str, Any], on: str, seed: int | None = None) -> ChaosPlan:
    """The plan for the output of `raftlog sim steps --format json`. `PlanRefused` names every line
    that real processes cannot play. `seed` replaces the scenario's."""
    settings: dict[str, int] = {}
    refused: list[str] = []
    for each in document["settings"]:
        if each["name"] in _SETTINGS:
            settings[each["name"]] = each["value"]
        else:
            refused.append(f"line {each['line']}: set {each['name']}")
    steps = [_step_of(each) for each in document["steps"]]
    for step in steps:
        refused += [f"line {step.line}: {step.kind}{why}" for why in _problems(step)]
    if refused:
        raise PlanRefused(
            "real processes cannot do this:\n  " + "\n  ".join(refused),
            on=on,
            do="leave these lines out, or play it by `raftlog sim replay`; steps that real "
            f"processes do: {', '.join(PLAYED)}",
        )
    brokers = settings.get("brokers", 3)
    if brokers > BROKERS_MAX:
        raise PlanRefused(
            f"{amount(brokers, 'broker')}: at most {BROKERS_MAX} fit on one machine", on=on
        )
    return ChaosPlan(
        name=document["name"],
        seed=settings.get("seed", 1) if seed is None else seed,
        brokers=brokers,
        controllers=settings.get("controllers"),
        partitions=settings.get("partitions", 1),
        replication=min(brokers, settings.get("replication", 3)),
        min_in_sync=settings.get("min_in_sync", 1),
        safety_ms=settings.get("safety_ms", 0),
        steps=tuple(steps),
    )


def _step_of(row: Mapping[str, Any]) -> PlannedStep:
    own = ("line", "at", "for", "kind")
    return PlannedStep(
        line=row["line"],
        at_ms=row["at"],
        for_ms=row.get("for", 0),
        kind=row["kind"],
        arguments={name: value for name, value in row.items() if name not in own},
    )


def _problems(step: PlannedStep) -> Iterator[str]:
    judge = PLAYED.get(step.kind)
    if judge is None:
        instead = _INSTEAD.get(step.kind)
        yield f": {instead}" if instead else ""
        return
    if why := judge(step.arguments):
        yield f" {why}"
    for name in _TARGETS:
        if "coordinator" in str(step.arguments.get(name, "")):
            yield f" {name}={step.arguments[name]}: no group is played, name a node or a leader"


def default_load(plan: ChaosPlan, every_ms: int, reads_ms: int) -> Sequence[PlannedStep]:
    """Client steps for a scenario that has none: a producer and a reader for each partition, until
    the scenario is over."""
    found: list[PlannedStep] = []
    for partition in range(plan.partitions):
        for kind, ms in (("load", every_ms), ("reads", reads_ms)):
            arguments: dict[str, int] = {
                **({"slot": partition} if kind == "load" else {}),
                "partition": partition,
                "count": max(1, plan.lasts_ms // ms),
                "every_ms": ms,
            }
            found.append(PlannedStep(line=0, at_ms=0, for_ms=0, kind=kind, arguments=arguments))
    return found

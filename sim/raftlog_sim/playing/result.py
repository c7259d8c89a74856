"""The result of a run in a simulated cluster."""

from typing import Any, Final, final

import attrs

from raftlog.verify import Verdict
from raftlog_sim.schedules.options import SimOptions
from raftlog_sim.schedules.schedule import Schedule

RAN: Final = "ran"
NOT_DRAWN: Final = "not drawn"
NOT_ENOUGH: Final = "not enough is left"
NOT_REACHED: Final = "not reached"
CORES: Final = (RAN, NOT_DRAWN, NOT_ENOUGH, NOT_REACHED)
"""The outcomes of the core phase: it ran; the seed has none; damage and moves left no majority of
every group within the core; the run failed before."""


@final
@attrs.frozen(kw_only=True)
class Result:
    """The result of a seed. `failure` is `<class>: <what>`; it is empty when all is well."""

    options: SimOptions
    schedule: Schedule
    failure: str
    phase: str
    """The phase in which the run ended: set-up, safety, core, liveness, final read, read from each,
    reboot, over."""
    trace_hash: str
    events: int
    turns: int
    simulated_ns: int
    sent: int
    acknowledged: int
    unknown: int
    faults: dict[str, int]
    in_vain: tuple[str, ...]
    """Steps of faults and members that did nothing. Steps of any kind that were due after the
    safety phase come first."""
    near_faults: tuple[tuple[str, str], ...]
    invariants: dict[str, object]
    verdict: Verdict | None
    history: str
    probes: dict[str, int]
    buggified: dict[str, int]
    """How often each unusual path was taken on purpose."""
    core: str
    """The outcome of the core phase: one of `CORES`."""
    demanded: dict[str, dict[str, int]]
    """Counts of the records that had to be committed when faults were over (`last_writes`). They
    are not counted in `sent`, `acknowledged` and `unknown`."""

    @property
    def failure_class(self) -> str:
        return self.failure.partition(":")[0]

    def document(self) -> dict[str, Any]:
        """Returns the result for run.json and `--format json`."""
        return {
            "seed": self.options.seed,
            "failure": self.failure,
            "trace_hash": self.trace_hash,
            "phase": self.phase,
            "events": self.events,
            "turns": self.turns,
            "simulated_ns": self.simulated_ns,
            "sent": self.sent,
            "acknowledged": self.acknowledged,
            "unknown": self.unknown,
            "faults": self.faults,
            "struck_nothing": list(self.in_vain),
            "core": self.core,
            "demanded": self.demanded,
            "buggified": self.buggified,
            "options": self.options.document(),
        }

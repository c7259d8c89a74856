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
"""What may become of the core phase: the seed has none; damage and moves left no majority of every
group within the core; the run failed before."""


@final
@attrs.frozen(kw_only=True)
class Result:
    """What became of a seed. `failure` is empty when all is well: `<class>: <what>` otherwise."""

    options: SimOptions
    schedule: Schedule
    failure: str
    phase: str
    """In which the run ended: set-up, safety, core, liveness, final read, read from each,
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
    """Steps of faults and members that did nothing, first those that came after the safety
    phase, of whatever kind."""
    near_faults: tuple[tuple[str, str], ...]
    invariants: dict[str, object]
    verdict: Verdict | None
    history: str
    probes: dict[str, int]
    buggified: dict[str, int]
    """How often each unusual path was taken on purpose."""
    core: str
    """What became of the core phase: one of `CORES`."""
    demanded: dict[str, dict[str, int]]
    """What had to be committed when faults were over, see `last_writes`; none of these records is
    in `sent`, `acknowledged` and `unknown`."""

    @property
    def failure_class(self) -> str:
        return self.failure.partition(":")[0]

    def document(self) -> dict[str, Any]:
        """For run.json and `--format json`."""
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

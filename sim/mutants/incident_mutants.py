"""Planted bugs of the recorder: a replay of the broker alone must see each (`replay-differs`).

One seed of fifty is recorded. The other seeds count as run and catch nothing.
"""

from collections.abc import Sequence

from raftlog.broker.events import Drained, Event, JobDone
from raftlog.broker.incident.recorder import Recorder


def drains_are_not_recorded() -> None:
    """100: the recorder leaves out the answers that clients' machines have taken."""
    _leave_out(Drained)


def results_of_jobs_are_not_recorded() -> None:
    """100b: the recorder leaves out the results of jobs on the disk."""
    _leave_out(JobDone)


def _leave_out(kind: type) -> None:
    turn = Recorder._turn

    def without(self: Recorder, events: Sequence[Event], now_ns: int, wall_ms: int) -> None:
        turn(self, [each for each in events if type(each) is not kind], now_ns, wall_ms)

    Recorder._turn = without  # type: ignore[method-assign]


MUTANTS = (
    ("100", "drains-are-not-recorded", drains_are_not_recorded, ("replay-differs",)),
    ("100b", "results-of-jobs-are-not-recorded", results_of_jobs_are_not_recorded,
     ("replay-differs",)),
)  # fmt: skip

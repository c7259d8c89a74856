"""Shows the running step of a Spark job, its time, and how many of its tasks are done.

It is one line on standard error, where that is a terminal.
"""

import sys
import threading
from types import TracebackType
from typing import Any, Final, Self, final

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from raftlog.base.amounts import amount

LOOK_SECONDS: Final = 0.5


@final
class SparkSteps:
    """Shown while the block runs. `say` and `follow` may be called from any thread."""

    def __init__(self, *, shown: bool | None = None) -> None:
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            TextColumn("{task.fields[tasks]}"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
            disable=not (sys.stderr.isatty() if shown is None else shown),
        )
        self._task = self._progress.add_task("", tasks="")
        self._tracker: Any = None
        self._ended = threading.Event()
        self._looking = threading.Thread(target=self._look, name="spark progress", daemon=True)

    def say(self, step: str) -> None:
        """Begin a step."""
        self._progress.reset(self._task, description=step, tasks="")

    def follow(self, tracker: Any) -> None:
        """Show the tasks of this session's `StatusTracker` from now on; None to show none."""
        self._tracker = tracker

    def __enter__(self) -> Self:
        self._progress.start()
        if not self._progress.disable:
            self._looking.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        del kind, error, trace
        self._ended.set()
        if self._looking.ident is not None:
            self._looking.join()
        self._progress.stop()

    def _look(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            tracker = self._tracker
            if tracker is not None:
                self._progress.update(self._task, tasks=tasks_of(tracker))


def tasks_of(tracker: Any) -> str:
    """`3 of 8 tasks` of the running stages; an empty text where no stage runs."""
    try:
        found = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    except Exception:  # the session ends, and its connection with it: there is nothing to show
        return ""
    stages = [stage for stage in found if stage is not None]
    if not stages:
        return ""
    done = sum(stage.numCompletedTasks for stage in stages)
    return f"{done} of {amount(sum(stage.numTasks for stage in stages), 'task')}"

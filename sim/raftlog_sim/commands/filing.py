"""Files the failing seeds of a sweep: as run folders, or as folders of the bug base."""

import argparse
import sys
import time
from functools import partial
from pathlib import Path
from typing import Final, final

import attrs

from raftlog_sim.base.minimise import Effort
from raftlog_sim.base.outcome import failure_class
from raftlog_sim.commands import common
from raftlog_sim.hunting import mutation
from raftlog_sim.hunting.bug import Bug
from raftlog_sim.hunting.bug_base import BugBase, commit
from raftlog_sim.hunting.shrink import TIME_LIMIT_S
from raftlog_sim.hunting.trials import Helpers
from raftlog_sim.playing.run_folder import Circumstances, new_folder, utc_text, write
from raftlog_sim.playing.seeds import drawn

SHRINK_LEAST_S: Final = 30.0
"""How many seconds shrinking gets at least, even when the time of the sweep is over."""
NO_RUN: Final = "worker-"
"""The beginning of the classes of seeds that brought no outcome."""


@final
@attrs.define(eq=False)
class Filing:
    """Files failures. `base` is None when run folders are wanted."""

    options: argparse.Namespace
    base: BugBase | None = None
    _commit: str = ""

    def file(self, seed: int, failure: str) -> str:
        """File a failure; returns its folder, or "" when it has none."""
        options = self.options
        common.switch_on(options.mutant)
        case = drawn(seed, options.profile, options.subject)
        circumstances = self._circumstances()
        dead = failure.startswith(NO_RUN)
        if self.base is not None:
            play = None if dead else lambda: case.play(trace=True)
            bug = Bug(case=case, failure=failure, circumstances=circumstances, play=play)
            return str(self.base.file(bug))
        if dead:
            return ""  # playing the seed may end this process too
        start = time.perf_counter_ns()
        outcome = case.play(trace=True)
        circumstances = attrs.evolve(circumstances, real_ns=time.perf_counter_ns() - start)
        name = f"{failure_class(failure)}-{seed}"
        folder = new_folder("sweep", seed, None if options.out is None else options.out / name)
        write(folder, case, outcome, circumstances)
        return str(folder)

    def _circumstances(self) -> Circumstances:
        if self.base is not None and not self._commit:
            self._commit = commit()
        return Circumstances(
            command=("raftlog", "sim", *sys.argv[1:]),
            began=utc_text(),
            real_ns=0,
            mutant=self.options.mutant,
            commit=self._commit,
        )

    def shrink(self, deadline: common.Deadline) -> list[Path]:
        """Shrink the first bug of each signature; returns the folders."""
        if self.base is None:
            return []
        left = common.Deadline(max(SHRINK_LEAST_S, deadline.seconds - deadline.spent))

        def effort() -> Effort:
            each = common.Deadline(self.options.shrink_limit)
            return Effort(out_of_time=lambda: each.passed() or left.passed())

        prepare = partial(mutation.switch_on_if, self.options.mutant)
        return self.base.shrink(effort, Helpers(self.options.jobs, prepare))


def filing_of(options: argparse.Namespace) -> Filing:
    """Returns the `Filing` that the options ask for."""
    return Filing(options, None if options.bugs is None else BugBase(options.bugs))


def add_to(sweep: argparse.ArgumentParser) -> None:
    """Add the options that say where failures go."""
    sweep.add_argument(
        "--out", type=Path, metavar="DIR",
        help="where run folders of failures go; default: runs/",
    )  # fmt: skip
    sweep.add_argument("--no-folders", action="store_true", help="write no run folders")
    sweep.add_argument(
        "--bugs", type=Path, metavar="DIR",
        help="file failures into a bug base instead: plan, shrunk plan and story",
    )  # fmt: skip
    sweep.add_argument(
        "--shrink-limit", type=common.seconds, default=TIME_LIMIT_S, metavar="SECONDS",
        help="how long to shrink the first failure of each kind for the bug base; default: "
        f"{TIME_LIMIT_S:g}",
    )  # fmt: skip

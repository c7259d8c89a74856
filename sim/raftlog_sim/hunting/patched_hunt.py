"""Hunts a user's patch: plays seeds and scenarios against a patched copy of the product.

A failure with the patch is played once more without it, and is a kill only if it passes then. A
seed that fails either way says nothing of the patch.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, final

import attrs

import raftlog
from raftlog_sim.base.outcome import failure_class
from raftlog_sim.hunting.mutation import Hunt, Mutant, hunted_here, own_process, run_within
from raftlog_sim.hunting.patching import patched_product
from raftlog_sim.playing.cases import BROKERS, case_from_text
from raftlog_sim.playing.scenario_files import Scenario, read
from raftlog_sim.playing.seeds import drawn

NUMBER: Final = "patch"
"""Stands for the number of a mutant."""
RUN_SECONDS: Final = 300.0
"""The CPU time in seconds that a run may take; the longest seeds of the product take a tenth."""
Advance = Callable[[int], None]


def hunt(
    patch: Path, plan: Hunt, scenarios: Sequence[Scenario], *, scenarios_first: bool
) -> dict[str, Any]:
    """Play the seeds of the plan, and the scenarios in turn, until one fails; returns the patch's
    row.

    `scenarios` says by name which failed, `played` how many were played, and `without_patch` what
    failed without the patch too. Raises `OperatingError` when the patch does not apply.
    """
    plan = plan._replace(run_seconds=RUN_SECONDS)
    brokers = [each for each in scenarios if each.subject == BROKERS]
    with patched_product(patch) as home, own_process("", home) as ask:
        product = ask(_product_here)
        assert product == str(Path(home).resolve()), (product, home)  # not the checkout's
        row = _Row(patch, home, ask, plan)
        if scenarios_first:
            row.by_scenarios(brokers)
        if not row.killed:
            row.by_seeds()
        if not row.killed and not scenarios_first:
            row.by_scenarios(brokers)
        return row.document()


def is_decided(row: dict[str, Any]) -> bool:
    """Whether the row decides about the patch: it was caught, or nothing failed at all."""
    return bool(row["killed"] or not row["without_patch"])


@final
@attrs.define(eq=False)
class _Row:
    """The findings about a patch so far."""

    patch: Path
    home: str
    ask: Callable[..., Any]
    plan: Hunt
    seeds: dict[str, Any] = attrs.Factory(dict)
    scenarios: dict[str, str] = attrs.Factory(dict)
    played: int = 0
    without_patch: list[str] = attrs.Factory(list)
    what: str = ""

    @property
    def killed(self) -> bool:
        return bool(self.seeds.get("seeds") or self.scenarios)

    def by_seeds(self) -> None:
        self.seeds = self.ask(_seeds_here, self.plan)
        failed = list(self.seeds["seeds"])
        with _unpatched() as ask:
            also = [seed for seed in failed if ask(_seed_fails_here, seed, self.plan.profile)]
        self.without_patch += [f"seed {seed}" for seed in also]
        self.seeds["seeds"] = [seed for seed in failed if seed not in also]
        if also and not self.seeds["seeds"]:
            self.seeds["by"] = {}
        if "shrunk" in self.seeds:
            with own_process("", self.home) as ask:
                again = ask(_signature_here, self.seeds["shrunk"]["text"])
            self.seeds["shrunk"]["replays"] = again == self.seeds["by_signature"]

    def by_scenarios(self, scenarios: Sequence[Scenario]) -> None:
        """Play the scenarios in turn, until one fails that passes without the patch."""
        for scenario in scenarios:
            text = "\n".join(scenario.lines)
            self.played += 1
            failure = self.ask(_scenario_here, scenario.name, text)
            if failure_class(failure) == scenario.fails_as:
                continue  # it passes, or fails as its file says that it must
            with _unpatched() as ask:
                also = ask(_scenario_here, scenario.name, text)
            if also:
                self.without_patch.append(f"scenario {scenario.name}")
                continue
            self.scenarios[scenario.name] = failure_class(failure)
            self.what = failure[:300]
            return

    def document(self) -> dict[str, Any]:
        row = {"tried": 0, "expected": [], "by": {}, "seeds": [], "seconds": 0.0, "what": ""}
        row |= {"profile": self.plan.profile, **self.seeds}
        row |= {"number": NUMBER, "name": self.patch.stem, "patch": str(self.patch)}
        row |= {"killed": self.killed, "what": self.what or row["what"], "played": self.played}
        row |= {"scenarios": self.scenarios, "without_patch": self.without_patch}
        row.pop("by_signature", None)
        return row


def _unpatched() -> AbstractContextManager[Callable[..., Any]]:
    return own_process("")


def _product_here(_: str) -> str:
    return str(Path(raftlog.__file__).resolve().parent.parent)


def _signature_here(_: str, text: str) -> str:
    return case_from_text(text).play().signature


def _seeds_here(_: str, plan: Hunt) -> dict[str, Any]:
    return hunted_here(Mutant("", "", lambda: None), plan)


def _seed_fails_here(_: str, seed: int, profile: str) -> bool:
    return bool(drawn(seed, profile).play().failure)


def _scenario_here(_: str, name: str, text: str) -> str:
    with run_within(RUN_SECONDS):
        return read(name, text).case.play().failure

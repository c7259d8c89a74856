"""Planted bugs: each is a patch of the product, outside the product, that some seed must catch.

The patches lie in `sim/mutants/` of a checkout and are in no installed package. A mutant is
hunted in a process of its own, so that the patch cannot outlive the hunt.
"""

import importlib.util
import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from raftlog.base.errors import OperatingError
from raftlog_sim.options import draw_options
from raftlog_sim.simulation import simulate

FOLDER: Final = Path(__file__).resolve().parent.parent / "mutants"


class Mutant(NamedTuple):
    """One planted bug. `apply` patches the product in this process, for good."""

    number: int
    name: str
    apply: Callable[[], None]


def load() -> dict[int, Mutant]:
    """All mutants of this checkout."""
    path = FOLDER / "mutants.py"
    if not path.exists():
        raise OperatingError(
            "mutants are in a checkout only", on=str(path), do="clone the repository"
        )
    spec = importlib.util.spec_from_file_location("raftlog_mutants", path)
    assert spec is not None, path
    assert spec.loader is not None, path
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {mutant.number: mutant for mutant in (Mutant(*each) for each in module.MUTANTS)}


def hunt(mutant: Mutant, budget: int) -> dict[str, Any]:
    """Run seeds until one fails: number, name, the failing seed and what caught it (empty:
    none)."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(_hunt_here, (mutant.number, budget))


def _hunt_here(number: int, budget: int) -> dict[str, Any]:
    mutant = load()[number]
    mutant.apply()
    row: dict[str, Any] = {"number": number, "name": mutant.name, "seed": None, "by": ""}
    for seed in range(1, budget + 1):
        try:
            failure = simulate(draw_options(seed)).failure
        except Exception as error:  # a broken broker may raise anything; that counts as caught
            failure = f"{type(error).__name__}: {error}"
        if failure:
            return row | {"seed": seed, "by": failure.partition(":")[0], "what": failure[:300]}
    return row

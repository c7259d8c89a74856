"""`raftlog sim sweep`: many seeds; failures grouped by class and signature, each with a run folder.

Memory stays bounded: workers are replaced after some seeds, only a few seeds wait for them, and of
each group of failures only the first few are kept. A seed whose worker dies fails as `worker-died`,
and the sweep goes on.
"""

import argparse
import gc
import os
import sys
from collections.abc import Generator, Iterator
from contextlib import closing
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from raftlog.base.amounts import amount
from raftlog_sim.base.outcome import failure_class, signature
from raftlog_sim.commands import common, filing
from raftlog_sim.commands.run import played_elsewhere
from raftlog_sim.commands.tally import SweepTally, TallyGroup, TallyRow
from raftlog_sim.hunting import compiled_build, interrupts, mutation, scenarios, spark_sweep
from raftlog_sim.hunting.workers import Call, Lost, SeedWorkers
from raftlog_sim.playing import scenario_files
from raftlog_sim.playing.cases import BROKERS
from raftlog_sim.playing.last_writes import NO_MAJORITY, RECORDS
from raftlog_sim.playing.result import RAN
from raftlog_sim.playing.seeds import drawn
from raftlog_sim.schedules.bounds import BOUNDS
from raftlog_sim.schedules.fault_pairs import PairCounts
from raftlog_sim.schedules.options import VARIED, draw_options

KEPT_A_GROUP: Final = 3
ONLY_COMPILED: Final = "only-compiled"
"""The class of failures that compiled code has and the sources do not."""
FOLDERS_MAX: Final = 30
JOBS: Final = 2
CHECK_EVERY: Final = 20


class _GaveUpError(Exception):
    """Too many processes died: the machine has too little memory, or the interpreter crashes."""


def add(parsers: common.Parsers) -> None:
    """Add `sweep` to the commands."""
    sweep = common.add_command(
        parsers, "sweep", _sweep, "run many seeds", "sweep --seeds 1..200 --jobs 2"
    )
    sweep.add_argument(
        "--seeds", type=common.seeds, required=True, metavar="A..B", help="which, both included"
    )
    sweep.add_argument(
        "--jobs", type=common.jobs, default=JOBS, metavar="J",
        help=f"play so many at a time, in processes; 1: in this one; default: {JOBS}",
    )  # fmt: skip
    sweep.add_argument(
        "--spark", metavar="MASTER", help="play the seeds on Spark, such as local[4] or spark://..."
    )
    sweep.add_argument(
        "--compiled", metavar="DIR", type=Path,
        help="play the seeds that are not of trio mode by what scripts/compile made there",
    )  # fmt: skip
    sweep.add_argument(
        "--time-limit", type=common.seconds, default=float("inf"), metavar="SECONDS",
        help="begin no more seeds when so much time is over; default: no limit",
    )  # fmt: skip
    sweep.add_argument(
        "--until-failure", action="store_true",
        help="go on beyond the last seed, until one fails or --time-limit is over, and stop there",
    )  # fmt: skip
    filing.add_to(sweep)
    sweep.add_argument(
        "--check-every", type=common.count, default=CHECK_EVERY, metavar="N",
        help="run every Nth seed again in a process under another hash seed; 0: none; "
        f"default: {CHECK_EVERY}",
    )  # fmt: skip
    sweep.add_argument(
        "--scenarios", action="store_true",
        help="play the named scenarios too, and count the rare paths that they reach",
    )  # fmt: skip
    sweep.add_argument(
        "--pairs", action="store_true",
        help="tell which kinds of faults never struck, and in how many seeds each two of them did",
    )  # fmt: skip
    common.add_probes(sweep, ", and unusual ones that nothing took on purpose")
    common.add_drawing(sweep)


def _sweep(options: argparse.Namespace) -> int:
    if options.compiled is not None:
        _check_compiled(options)
    if options.bugs or not options.no_folders:
        common.check_folder(options.bugs or options.out)
    if options.until_failure:
        _endless(options)
    deadline = common.Deadline(options.time_limit)
    tally, files = _new_tally(options), filing.filing_of(options)
    try:
        total = None if options.until_failure else len(options.seeds)
        with common.bar("seeds", total) as advance:
            played = _on_spark if options.spark else _rows
            with closing(played(options, deadline)) as rows:
                for row in rows:
                    interrupts.raise_a_lost_one()
                    group = tally.add(row)
                    advance(1)
                    if group is not None:
                        _failed(options, row, group, files, tally.folders)
                    if options.until_failure and (group is not None or not row.agreed):
                        break
        _shrink(files, deadline, tally)
    except KeyboardInterrupt:
        tally.interrupted = True
    except _GaveUpError as error:
        tally.gave_up = str(error)
    if options.scenarios and not tally.interrupted:
        _play_scenarios(options, tally)
    _tell(options, tally, deadline.spent)
    if tally.interrupted:
        return common.INTERRUPTED
    lacking = options.probes == "require" and (tally.probes_missed or tally.places_missed)
    if tally.failed or tally.scenarios_failed or not tally.seeds or lacking:
        return common.FAILED
    return common.DISAGREED if tally.disagreed else common.DONE


def _endless(options: argparse.Namespace) -> None:
    """Extend the seeds to all from the first on. Raises for Spark, which gets all its seeds at
    once."""
    if options.spark:
        raise common.UsageError("--until-failure does not go with --spark", "raftlog sim sweep")
    options.seeds = range(options.seeds.start, BOUNDS["seed"][1])


def _new_tally(options: argparse.Namespace) -> SweepTally:
    """Returns an empty tally. Raises `UsageError` for pairs of faults of a subject without
    faults."""
    of_brokers = options.subject == BROKERS
    if options.pairs and not of_brokers:
        raise common.UsageError(f"--pairs counts faults of {BROKERS} only", "raftlog sim sweep")
    return SweepTally(of_brokers, PairCounts(options.profile) if options.pairs else None)


def _check_compiled(options: argparse.Namespace) -> None:
    """Raise for options that compiled code cannot play, and for a folder built from other
    sources."""
    for name, given in (("--mutant", options.mutant), ("--spark", options.spark)):
        if given:
            raise common.UsageError(f"--compiled does not go with {name}", "raftlog sim sweep")
    if options.subject != BROKERS:
        raise common.UsageError(f"--compiled plays {BROKERS} only", "raftlog sim sweep")
    if options.profile == VARIED:
        what = "--compiled has no scenarios, and varied seeds begin with one"
        raise common.UsageError(what, "raftlog sim sweep")
    try:
        compiled_build.check(options.compiled)
    except compiled_build.UnusableBuildError as error:
        raise common.refused(error) from None


# --- running --------------------------------------------------------------------------------------


def run_seed(
    seed: int, profile: str, subject: str, mutant: str, check: bool, compiled: bool
) -> TallyRow:
    """Play one seed in a worker; returns its row.

    A seed that fails by compiled code is played by the sources as well, and their result counts. A
    failure of compiled code alone is no bug of the product.
    """
    gc.disable()
    case = drawn(seed, profile, subject)
    outcome = case.play()
    gc.enable()
    gc.collect()
    gc.freeze()  # only modules and tables are left; walking them took 50 ms a seed
    agreed, failure = True, outcome.failure
    if check or (compiled and failure):
        hash_seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
        other = played_elsewhere(case, mutant, hash_seed)
        agreed = other["digest"] == outcome.digest
        if compiled and failure:
            failure = other["failure"] or f"{ONLY_COMPILED}: {failure}"
    in_core = outcome.document.get("demanded", {}).get("core", {})
    return TallyRow(
        seed,
        failure,
        failure_class(failure),
        signature(failure),
        outcome.trace_hash,
        outcome.events,
        outcome.simulated_ns,
        outcome.probes,
        dict(outcome.document.get("faults", {})),
        dict(outcome.document.get("buggified", {})),
        outcome.document.get("core", ""),
        in_core.get(RECORDS, 0),
        in_core.get(NO_MAJORITY, 0),
        agreed,
        outcome.near_faults,
    )


def _calls(options: argparse.Namespace) -> Iterator[Call]:
    """Returns the arguments of `run_seed` for each seed."""
    every = options.check_every
    return (
        (seed, options.profile, options.subject, options.mutant,
         bool(every) and number % every == 0, _is_compiled(options, seed))
        for number, seed in enumerate(options.seeds)
    )  # fmt: skip


def _on_spark(
    options: argparse.Namespace, deadline: common.Deadline
) -> Generator[TallyRow, None, None]:
    """Yields the rows of `_rows`, played by Spark's workers; prints the costs on standard error."""
    if find_spec("pyspark") is None:
        raise common.UsageError("--spark needs pyspark: pip install 'raftlog[spark]'")
    costs = spark_sweep.Costs()
    prepare = partial(mutation.switch_on_if, options.mutant)
    yield from spark_sweep.rows(
        options.spark, _calls(options), run_seed, prepare, deadline.passed, costs
    )
    print(costs.text(), file=sys.stderr)


def _rows(
    options: argparse.Namespace, deadline: common.Deadline
) -> Generator[TallyRow, None, None]:
    calls = _calls(options)
    if options.jobs == 1 and options.compiled is None:
        common.switch_on(options.mutant)
        for call in calls:
            if deadline.passed():
                return
            yield run_seed(*call)
        return
    workers = SeedWorkers(
        jobs=options.jobs,
        play=run_seed,
        prepare=partial(mutation.switch_on_if, options.mutant),
        may_go_on=lambda: not deadline.passed(),
        home_of=partial(_home, options.compiled),
    )
    with closing(workers.answers(calls)) as answers:
        for call, answer in answers:
            yield _lost_row(call[0], answer.why) if isinstance(answer, Lost) else answer
    if workers.gave_up:
        raise _GaveUpError(
            f"gave up: {amount(workers.deaths, 'process', plural='processes')} died; see "
            "worker-died"
        )


def _is_compiled(options: argparse.Namespace, seed: int) -> bool:
    """Whether compiled code plays this seed.

    It does not play trio mode, whose own world and nodes compiled code does not take for its own.
    """
    return options.compiled is not None and not draw_options(seed, options.profile).trio


def _home(compiled: Path | None, call: Call) -> str:
    """Returns the folder from which the player of a seed is imported; "" for the sources."""
    *_, by_compiled = call
    return str(compiled.resolve()) if compiled is not None and by_compiled else ""


def _lost_row(seed: int, why: str) -> TallyRow:
    """Returns the row of a seed for which no worker answered."""
    return TallyRow(
        seed, why, failure_class(why), signature(why), "", 0, 0, {}, {}, {}, "", 0, 0, True
    )


def _play_scenarios(options: argparse.Namespace, tally: SweepTally) -> None:
    """Play the brokers' scenarios; each must give what its file expects of the plain run."""
    common.switch_on(options.mutant)
    wanted = [scenario_files.load(name) for name in scenario_files.names()]
    for scenario in (each for each in wanted if each.subject == BROKERS):
        played = scenarios.play(scenario)
        tally.probes.update(played.probes)
        if played.lines != scenario.expected_plain:
            tally.scenarios_failed.append(scenario.name)


# --- telling --------------------------------------------------------------------------------------


def _failed(
    options: argparse.Namespace,
    row: TallyRow,
    group: TallyGroup,
    files: filing.Filing,
    folders: int,
) -> None:
    if options.format == "text" and group.count <= KEPT_A_GROUP:
        print(f"seed {row.seed}: {row.failure[:300]}", flush=True)
    if files.base is None and (group.count > KEPT_A_GROUP or folders >= FOLDERS_MAX):
        return
    if options.no_folders and files.base is None:
        return
    if row.failure_class == ONLY_COMPILED:
        return  # a filed failure is replayed by the sources
    folder = files.file(row.seed, row.failure)
    if folder and folder not in group.folders and len(group.folders) < KEPT_A_GROUP:
        group.folders.append(folder)


def _shrink(files: filing.Filing, deadline: common.Deadline, tally: SweepTally) -> None:
    if files.base is not None and tally.groups:
        tally.shrunk = [str(folder) for folder in files.shrink(deadline)]


def _tell(options: argparse.Namespace, tally: SweepTally, seconds: float) -> None:
    asked = tally.seeds if options.until_failure else len(options.seeds)
    if options.format == "json":
        common.print_json(tally.document(asked, seconds))
        return
    _tell_failed(options, tally)
    found = tally.document(asked, seconds)
    print(
        f"{amount(tally.seeds, 'seed')}, {tally.failed} failed, {seconds:.1f} s: "
        f"{amount(found['seeds_per_hour'], 'seed')} an hour, "
        f"{amount(found['events_per_second'], 'event')} a second, "
        f"{found['simulated_seconds']:.0f} simulated s"
    )
    if tally.cores:
        print(_of_cores(tally))
    if tally.time_is_up(asked):
        print(f"time is up: {tally.seeds} of {amount(asked, 'seed')}")
    if tally.interrupted or tally.gave_up:
        print("interrupted: this is what was done so far" if tally.interrupted else tally.gave_up)
    for name in tally.scenarios_failed:
        print(f"scenario {name} gave something else: raftlog sim scenarios {name}")
    if tally.pairs is not None:
        print("\n".join(tally.pairs.lines()))
    if tally.power_told:
        print(tally.power_told)
    common.tell_missed(options, tally.probes_missed)
    common.tell_untaken(options, tally.places_missed)


def _tell_failed(options: argparse.Namespace, tally: SweepTally) -> None:
    """Print the failures by kind, the shrunk folders, and the seeds that gave two different
    runs."""
    for alike, group in tally.by_count():
        print(f"\n{group.count} x {alike}")
        print(f"  seeds {', '.join(map(str, group.seeds))}")
        mutant = f" --mutant {options.mutant}" if options.mutant else ""
        print(
            f"  replay: raftlog sim run --seed {group.seeds[0]} --profile {options.profile} "
            f"--subject {options.subject}{mutant}"
        )
        for folder in group.folders:
            print(f"  folder: {folder}")
    for folder in tally.shrunk:
        print(f"shrunk: {folder}")
    subject = options.subject
    for seed in tally.disagreed:
        again = f"raftlog sim run --seed {seed} --profile {options.profile} --subject {subject}"
        print(
            f"seed {seed}: compiled code and the sources gave other runs; by the sources: {again}"
            if _is_compiled(options, seed)
            else f"seed {seed} gave another run: {again} --double-check"
        )


def _of_cores(tally: SweepTally) -> str:
    """Returns in how many seeds the core phase ran, and its outcome in the others."""
    others = [f"{what} {count}" for what, count in sorted(tally.cores.items()) if what != RAN]
    unable = f" ({tally.core_unable} without a majority)" if tally.core_unable else ""
    return (
        f"the core phase ran in {amount(tally.cores[RAN], 'seed')}, with "
        f"{amount(tally.core_records, 'record')}{unable}; "
        f"in others: {', '.join(others) or 'none'}"
    )

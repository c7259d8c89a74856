"""`python -m jepsen_style_tests`: run one, run the matrix, list what there is.

Exit codes: 0 valid, 1 invalid, 2 unknown, 64 wrong usage, 130 interrupted.
"""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from jepsen_style_tests import run_folder, runner, suite
from jepsen_style_tests.clients.choice import MIXED, NAMES, OWN
from jepsen_style_tests.nemeses.all import NEMESES
from jepsen_style_tests.runner import RunOutcome, RunPlan
from jepsen_style_tests.scenarios import SCENARIOS
from jepsen_style_tests.workloads.all import WORKLOADS
from raftlog.base.amounts import amount
from raftlog.base.errors import RaftlogError
from raftlog.verify.empty_folders import removed_if_empty

_USAGE: Final = 64
_INTERRUPTED: Final = 130
_CONTEXT: Final[dict[str, Any]] = {"max_content_width": 100}


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], **_CONTEXT},
    epilog="Example: python -m jepsen_style_tests run --workload append --nemesis kill-leader",
)
def cli() -> None:
    """Black-box tests: real brokers, other people's clients, faults, and the judge."""


_Function = TypeVar("_Function", bound=Callable[..., Any])


def _programs() -> Callable[[_Function], _Function]:
    return click.option(
        "--programs",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Commands of the clients in Java and Go, from `scripts/strangers --subjects`.",
    )


def _format() -> Callable[[_Function], _Function]:
    return click.option(
        "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True
    )


@cli.command(
    context_settings=_CONTEXT,
    epilog="""\b
Example: python -m jepsen_style_tests run --workload append --nemesis isolate \\
    --time-limit 60 --seed 7""",
)
@click.option("--workload", type=click.Choice(list(WORKLOADS)), default="append")
@click.option("--nemesis", type=click.Choice(list(NEMESES)), default="kill-one")
@click.option("--time-limit", type=click.FloatRange(min=1), default=30.0, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--client", type=click.Choice([*NAMES, OWN]), default=MIXED, show_default=True)
@_programs()
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="A setting of all brokers."
)
@click.option("--linearizable", is_flag=True, help="Reads are confirmed by the leader.")
@click.option("--out", type=click.Path(path_type=Path), help="Instead of a folder under runs/.")
@click.option("--keep", is_flag=True, help="Keep the brokers' data even when all is well.")
@_format()
def run(
    workload: str,
    nemesis: str,
    time_limit: float,
    seed: int,
    client: str,
    programs: Path | None,
    settings: tuple[str, ...],
    linearizable: bool,
    out: Path | None,
    keep: bool,
    form: str,
) -> int:
    """One workload under one kind of fault; a run folder with history, verdict and report."""
    plan = RunPlan(
        workload=workload,
        nemesis=nemesis,
        seconds=time_limit,
        seed=seed,
        client=client,
        programs=programs,
        linearizable=linearizable,
        settings=_settings(settings),
        keep=keep,
    )
    folder = run_folder.make(f"blackbox-{workload}-{nemesis}", seed, out)
    with removed_if_empty(folder):
        outcome = runner.run(plan, folder, _say)
    return _finish(outcome, form)


@cli.command(
    context_settings=_CONTEXT,
    epilog="Example: python -m jepsen_style_tests scenario nats-7567 --time-limit 60",
)
@click.argument("name", type=click.Choice(list(SCENARIOS)))
@click.option("--time-limit", type=click.FloatRange(min=1), help="Instead of the scenario's own.")
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--client", type=click.Choice(NAMES), default=MIXED, show_default=True)
@_programs()
@click.option("--out", type=click.Path(path_type=Path), help="Instead of a folder under runs/.")
@_format()
def scenario(
    name: str,
    time_limit: float | None,
    seed: int,
    client: str,
    programs: Path | None,
    out: Path | None,
    form: str,
) -> int:
    """A case that broke other systems in the field, by its name."""
    chosen = SCENARIOS[name]
    seconds = chosen.seconds if time_limit is None else time_limit
    plan = RunPlan(
        workload=chosen.workload,
        nemesis=name,
        seconds=seconds,
        seed=seed,
        client=client,
        programs=programs,
        brokers=chosen.brokers,
        linearizable=chosen.linearizable,
        command=f"python -m jepsen_style_tests scenario {name} --time-limit {seconds:.0f} "
        f"--seed {seed} --client {client}" + (f" --programs {programs}" if programs else ""),
    )
    folder = run_folder.make(f"blackbox-{name}", seed, out)
    with removed_if_empty(folder):
        outcome = runner.run(plan, folder, _say, chosen.nemesis())
    return _finish(outcome, form)


@cli.command(
    "suite",
    context_settings=_CONTEXT,
    epilog="Example: python -m jepsen_style_tests suite --minutes 120",
)
@click.option("--minutes", type=click.FloatRange(min=0.1), default=60.0, show_default=True)
@click.option("--run-seconds", type=click.FloatRange(min=1), default=20.0, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--workload", "workloads", multiple=True, type=click.Choice(list(WORKLOADS)))
@click.option("--nemesis", "nemeses", multiple=True, type=click.Choice(list(NEMESES)))
@click.option("--client", type=click.Choice(NAMES), default=MIXED, show_default=True)
@_programs()
@click.option("--no-controls", is_flag=True, help="Leave out the runs that must fail.")
@click.option("--out", type=click.Path(path_type=Path), help="Instead of a folder under runs/.")
@_format()
def suite_command(
    minutes: float,
    run_seconds: float,
    seed: int,
    workloads: tuple[str, ...],
    nemeses: tuple[str, ...],
    client: str,
    programs: Path | None,
    no_controls: bool,
    out: Path | None,
    form: str,
) -> int:
    """Every workload under every nemesis, until the time is up; a line a run, then a table."""
    orders = suite.Orders(
        minutes=minutes,
        seconds=run_seconds,
        seed=seed,
        workloads=workloads or list(WORKLOADS),
        nemeses=nemeses or list(NEMESES),
        client=client,
        programs=programs,
        controls=not no_controls,
        folder=run_folder.make("blackbox-suite", seed, out),
    )
    with removed_if_empty(orders.folder):
        result = suite.run(orders, lambda line: click.echo(line, err=True))
    if form == "json":
        click.echo(json.dumps(result.document(), indent=1))
    else:
        for line in suite.table(result):
            click.echo(line)
    run_folder.write_json(orders.folder / "suite.json", result.document())
    return result.exit_code


@cli.command("list", context_settings=_CONTEXT)
@_format()
def list_command(form: str) -> None:
    """Workloads, nemeses and scenarios."""
    if form == "json":
        found = {
            "version": 1,
            "workloads": {each.name: each.about for each in WORKLOADS.values()},
            "nemeses": {each.name: each.about for each in NEMESES.values()},
            "scenarios": {each.name: each.about for each in SCENARIOS.values()},
        }
        click.echo(json.dumps(found, indent=1))
        return
    _print_table("workloads", {each.name: each.about for each in WORKLOADS.values()})
    _print_table("nemeses", {each.name: each.about for each in NEMESES.values()})
    _print_table("scenarios", {each.name: each.about for each in SCENARIOS.values()})


def _print_table(title: str, table: Mapping[str, str]) -> None:
    click.echo(f"{title}:")
    for name, about in table.items():
        click.echo(f"  {name:31} {about}")


def _settings(pairs: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise click.BadParameter(f"{pair!r} is not KEY=VALUE", param_hint="--set")
        found[key.strip()] = value.strip()
    return found


def _finish(outcome: RunOutcome, form: str) -> int:
    if form == "json":
        click.echo(json.dumps({"version": 1, **document(outcome)}, indent=1))
    else:
        _print(outcome)
    return outcome.exit_code


def document(outcome: RunOutcome) -> dict[str, Any]:
    """An outcome for programs."""
    return {
        "workload": outcome.plan.workload,
        "nemesis": outcome.plan.nemesis,
        "seed": outcome.plan.seed,
        "client": outcome.plan.client,
        "verdict": outcome.verdict,
        "failing": list(outcome.failing),
        "checks": outcome.checks,
        "operations": outcome.operations,
        "counts": outcome.counts,
        "faults": outcome.faults,
        "longest_gap_ms": outcome.longest_gap_ms,
        "seconds": round(outcome.seconds, 1),
        "folder": str(outcome.folder),
    }


def _print(outcome: RunOutcome) -> None:
    click.echo(
        f"{outcome.verdict.upper()}  {outcome.plan.workload} under {outcome.plan.nemesis}, "
        f"seed {outcome.plan.seed}: {amount(outcome.operations, 'operation', grouped=True)}, "
        f"longest gap {outcome.longest_gap_ms:,} ms"
    )
    for name in outcome.failing:
        note = outcome.checks.get(name, {}).get("note", "")
        click.echo(f"  {name} {note}".rstrip())
    counts = ", ".join(f"{name} {count:,}" for name, count in sorted(outcome.counts.items()))
    click.echo(f"  {counts}")
    click.echo(f"report: {outcome.folder / runner.REPORT}")


def _say(step: str) -> None:
    click.echo(f"{step} ...", err=True)


def main(arguments: list[str]) -> int:
    """Run the command line; its exit code."""
    try:
        result = cli.main(
            args=arguments, prog_name="python -m jepsen_style_tests", standalone_mode=False
        )
    except click.UsageError as error:
        click.echo(f"{error.format_message()}\n  see --help", err=True)
        return _USAGE
    except (click.Abort, KeyboardInterrupt):
        return _INTERRUPTED
    except RaftlogError as error:
        click.echo(str(error), err=True)
        return 1
    return result if isinstance(result, int) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

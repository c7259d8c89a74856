"""The command `raftlog demo`."""

import sys
from functools import partial
from pathlib import Path

import click
import trio

from raftlog.base.amounts import amount
from raftlog.cli.demo import flights, spark_ending
from raftlog.cli.demo import run as demo
from raftlog.cli.demo.run import DemoOutcome
from raftlog.cli.output.render import format_option, print_json
from raftlog.cli.output.run_folder import make_run_folder
from raftlog.runtime.real_ports import SystemClock
from raftlog.verify.empty_folders import removed_if_empty


@click.command(
    "demo",
    epilog="Example: raftlog demo --rows 50000 --out demo-run",
    context_settings={"max_content_width": 100},
)
@click.option(
    "--rows",
    type=click.IntRange(1000, flights.ROWS),
    default=flights.ROWS,
    show_default=True,
    help="How many departures to stream.",
)
@click.option(
    "--out", type=click.Path(path_type=Path), help="The run's folder, instead of one under runs/."
)
@click.option("--keep", is_flag=True, help="Keep the brokers' data directories.")
@click.option("--no-spark", is_flag=True, help="Leave out the last part, which Spark does.")
@format_option()
def demo_command(rows: int, out: Path | None, keep: bool, no_spark: bool, form: str) -> int:
    """Stream the flights of 2013 through three brokers, break two of them, prove what survived.

    At the end Spark reads the topic from the brokers, checks it against the history, and answers
    two questions about the flights.

    Exit code 0 when every claim holds and the judge calls the history valid, 1 when not.
    """
    folder = make_run_folder("demo", demo.SEED, out, SystemClock())
    with removed_if_empty(folder):
        outcome = trio.run(partial(demo.run, folder, rows, _say, with_spark=not no_spark))
    if not keep:
        demo.remove_data(folder)
    if form == "json":
        print_json(_document(outcome))
    else:
        _print(outcome)
    return outcome.exit_code


def _say(step: str) -> None:
    print(f"{step} ...", file=sys.stderr, flush=True)


def _document(outcome: DemoOutcome) -> dict[str, object]:
    return {
        "verdict": outcome.verdict,
        "claims": {claim.name: claim.as_json() for claim in outcome.claims},
        "metrics": outcome.metrics,
        "spark": outcome.spark.document(),
        "folder": str(outcome.folder),
        "report": str(outcome.folder / demo.REPORT),
    }


def _print(outcome: DemoOutcome) -> None:
    for fault in outcome.faults:
        print(
            f"{fault.name} of broker {fault.node}: {amount(len(fault.moved()), 'partition')} "
            "moved, "
            f"unavailable for {fault.unavailable_ms:.0f} ms, "
            f"{amount(fault.acks_after, 'acknowledgement', grouped=True)} after it"
        )
    for claim in outcome.claims:
        print(f"{'PROVED' if claim.holds else 'FAILED'}  {claim.says}")
        if not claim.holds:
            print(f"        {claim.evidence}")
    _print_spark(outcome)
    metrics = outcome.metrics
    print(
        f"{amount(metrics['acknowledged'], 'record', grouped=True)} in {metrics['seconds']:.1f} s: "
        f"{metrics['records_per_second']:,} a second, faults included"
    )
    print(f"the judge calls the history {outcome.verdict}")
    print(f"report: {outcome.folder / demo.REPORT}")


def _print_spark(outcome: DemoOutcome) -> None:
    answers = outcome.spark
    if answers.skipped:
        print(f"Spark was skipped: {answers.skipped}")
        return
    if answers.carriers:
        worst = ", ".join(f"{name} {delay:.1f}" for name, delay, _ in answers.carriers)
        print(f"worst carriers by mean arrival delay, in minutes: {worst}")
    if answers.hours:
        busiest = ", ".join(f"{hour} ({count})" for hour, count, _ in answers.hours[:3])
        print(f"busiest hours, counted by the stream: {busiest}")
    if (outcome.folder / spark_ending.TABLE).exists():
        print(f"table: {outcome.folder / spark_ending.TABLE}")

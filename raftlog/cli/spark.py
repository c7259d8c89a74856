"""`raftlog spark`: jobs that run on Spark."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from raftlog.base.amounts import amount
from raftlog.base.errors import OperatingError
from raftlog.base.printable import visible
from raftlog.cli.output.render import bootstrap_option, format_option, print_json
from raftlog.client.core.errors import KafkaError
from raftlog.kafka.error_codes import ErrorCode

if TYPE_CHECKING:
    from raftlog.cli.output.spark_progress import SparkSteps
    from raftlog.client.trio_driver import Client
    from raftlog.spark.jobs.verify_report import SparkReport


_WORDS = {"valid": "holds", "invalid": "FAILED", "not exercised": "not exercised"}


@click.group(
    "spark",
    epilog="Example: raftlog spark verify --topic orders --history runs/latest",
    context_settings={"max_content_width": 100},
)
def spark() -> None:
    """Jobs that run on Spark; they need Java 17 and pip install 'raftlog[spark]'."""


@spark.command(
    "verify",
    epilog="Example: raftlog spark verify -b localhost:9092 --topic orders --history runs/latest",
    context_settings={"max_content_width": 100},
)
@bootstrap_option()
@click.option("--topic", required=True, help="The topic that the history is about.")
@click.option(
    "--history",
    required=True,
    type=click.Path(path_type=Path, exists=True),
    help="A run's folder, a history.jsonl, or a history as Parquet.",
)
@click.option(
    "--report",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the verdict to a file: HTML, or JSON where its name ends in .json.",
)
@click.option(
    "--name-sql",
    metavar="SQL",
    help="How a record's value in the history follows from the columns key and value; its text "
    "by default.",
)
@click.option(
    "--master", default="local[*]", show_default=True, help="Spark's master, local or a cluster."
)
@click.option("--memory", default="2g", show_default=True, help="The driver's memory.")
@format_option()
def verify(
    bootstrap: str,
    topic: str,
    history: Path,
    report: Path | None,
    name_sql: str | None,
    master: str,
    memory: str,
    form: str,
) -> int:
    """Judge a topic and the history of its users together.

    Reads the topic twice and checks that it is dense, unchanged, and holds each acknowledged
    record once and in order; judges the history like `raftlog verify`, from any number of cores.
    Exit code 0 valid, 1 invalid, 2 unknown.
    """
    from raftlog.spark.requirements import missing

    error = missing()
    if error is not None:
        raise error
    from raftlog.cli.connect import with_client
    from raftlog.cli.output.spark_progress import SparkSteps
    from raftlog.spark.jobs.verify_report import write_report

    # Spark takes seconds to start, and then minutes to find that no broker answers.
    with_client(bootstrap, partial(_find, topic=topic))
    with SparkSteps() as steps:
        found = _judged(steps, bootstrap, topic, history, name_sql, master, memory)
    if report is not None:
        try:
            write_report(found, report)
        except OSError as cause:
            raise OperatingError(f"cannot write: {cause.strerror}", on=str(report)) from None
    if form == "json":
        print_json(found.document())
    else:
        _print(found, report)
    return found.exit_code


async def _find(client: "Client", topic: str) -> None:
    try:
        await client.describe(topic)
    except KafkaError as error:
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        do = f"raftlog topics create {topic}, or name the history's with --topic"
        raise OperatingError("the topic does not exist", on=topic, do=do) from None


def _judged(
    steps: "SparkSteps",
    bootstrap: str,
    topic: str,
    history: Path,
    name_sql: str | None,
    master: str,
    memory: str,
) -> "SparkReport":
    from raftlog.spark.connector.one_line import as_ours
    from raftlog.spark.jobs.log_job import NAME_SQL
    from raftlog.spark.session import local_session
    from raftlog.spark.verify_job import QUICK_TO_BEGIN, is_small, verify

    steps.say("starting Spark")
    quick = QUICK_TO_BEGIN if is_small(history) else {}
    session = local_session(master, memory=memory, spark_ui_showConsoleProgress="false", **quick)
    try:
        # Errors are raised here. The log would print each failed task three times before that.
        session.sparkContext.setLogLevel("OFF")
        steps.follow(session.sparkContext.statusTracker())
        with as_ours():
            return verify(
                session,
                history,
                bootstrap=bootstrap,
                topic=topic,
                name_sql=name_sql or NAME_SQL,
                say=steps.say,
            )
    finally:
        steps.follow(None)
        session.stop()


def _print(found: "SparkReport", report: Path | None) -> None:
    """Print the verdict first, then what failed, then what holds."""
    operations = found.history.operations
    _say(
        f"{found.verdict.upper()}  {found.topic}: "
        f"{amount(operations, 'operation', grouped=True)} in its history"
    )
    for check in found.log:
        _say(f"{_WORDS[check.status]:6}  {check.name}: {check.says}")
        if not check.holds:
            _say(f"        {amount(check.failures, 'time')}; {check.evidence}")
    for result in found.history.failures():
        text = result.witness.text if result.witness is not None else ""
        _say(f"FAILED  {result.name} ({result.count}): {text}")
    none = [result.name for result in found.history.classes.values() if result.status == "valid"]
    print(f"none found: {', '.join(none)}")
    for note in found.history.notes:
        _say(f"note: {note}")
    if report is not None:
        print(f"report: {report}")


def _say(text: str) -> None:
    """Print a line; names and values of the history cannot make a terminal do anything."""
    print(visible(text))

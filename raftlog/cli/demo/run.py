"""The demo, step by step: cluster, stream, faults, reading back, proof, run folder."""

import platform
import shutil
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, TextIO, cast, final

import attrs
import trio

from raftlog.base.amounts import amount
from raftlog.base.errors import OperatingError
from raftlog.base.units import NANOS_PER_SECOND
from raftlog.cli.demo import flights, group_reading, proof, reading, spark_ending
from raftlog.cli.demo.faults import DemoFaults
from raftlog.cli.demo.proof import Claim, DemoFault
from raftlog.cli.demo.spark_ending import SparkAnswers
from raftlog.cli.demo.stream import RecordStream
from raftlog.cli.output.render import FAILED_CODE, UNKNOWN_CODE, progress
from raftlog.cli.output.run_folder import utc_text, write_json
from raftlog.client.trio_driver import Client
from raftlog.runtime.local import cluster as local_cluster
from raftlog.runtime.local import state as local_state
from raftlog.runtime.local.cluster import LocalCluster
from raftlog.runtime.real_ports import SystemClock
from raftlog.verify import Header, HistoryWriter, Judgement, judge
from raftlog.verify.judging.run_checks import checks_of, whole
from raftlog.verify.judging.verdict import INVALID, VALID
from raftlog.verify.report.page import RunFolder, render
from raftlog.verify.report.proof import digest_of

TOPIC: Final = "flights"
PARTITIONS: Final = 6
BROKERS: Final = 3
SEED: Final = 0
HISTORY: Final = "history.jsonl"
REPORT: Final = "report.html"
_WATCH_SECONDS: Final = 0.1


@final
@attrs.frozen(kw_only=True)
class DemoOutcome:
    """The findings of the demo. `verdict` is the judge's word over the whole history."""

    folder: Path
    claims: tuple[Claim, ...]
    faults: tuple[DemoFault, ...]
    verdict: str
    metrics: dict[str, Any]
    spark: SparkAnswers = attrs.field(factory=SparkAnswers)

    @property
    def exit_code(self) -> int:
        """0 proved, 1 disproved, 2 when only the judge's budget ran out."""
        if self.verdict == INVALID or not all(claim.holds for claim in self.claims):
            return FAILED_CODE
        return 0 if self.verdict == VALID else UNKNOWN_CODE


async def run(
    folder: Path, rows: int, say: Callable[[str], None], *, with_spark: bool = True
) -> DemoOutcome:
    """Run the demo into `folder`; `say` is told each step. The cluster is stopped in any case."""
    archive = flights.archive_path()
    clock = SystemClock()
    began = utc_text(clock)
    say(f"starting {BROKERS} broker processes")
    cluster = local_cluster.found(folder / "cluster", brokers=BROKERS, ends_with_parent=True)
    try:
        await trio.to_thread.run_sync(cluster.start_all)
        demo = _Demo(folder, cluster, clock, rows, say, with_spark, began)
        outcome = await demo.run(archive)
    finally:
        await trio.to_thread.run_sync(cluster.stop)
        _keep_outputs(cluster, folder)
    return outcome


@final
class _Demo:
    """One run over a cluster that serves."""

    def __init__(
        self,
        folder: Path,
        cluster: LocalCluster,
        clock: SystemClock,
        rows: int,
        say: Callable[[str], None],
        with_spark: bool,
        began: str,
    ) -> None:
        self.folder = folder
        self.cluster = cluster
        self.clock = clock
        self.rows = rows
        self.say = say
        self.with_spark = with_spark
        self.began = began

    async def run(self, archive: Path) -> DemoOutcome:
        """Stream, break, read back, prove."""
        async with Client(self.cluster.bootstrap_servers, client_id="demo") as client:
            await client.create_topic(
                TOPIC,
                partitions=PARTITIONS,
                replication_factor=BROKERS,
                configs={"min.insync.replicas": "2"},
            )
            nodes: list[Any] = [f"n{place.node}" for place in self.cluster.places]
            header = Header(
                source="demo",
                seed=SEED,
                model="log",
                options={"consumer": "assign", "pipelined": True, "retention": "none"},
                nodes=tuple(nodes),
            )
            with self._history_file("w") as file:
                history = HistoryWriter(file, header)
                stream, faults, seconds = await self._stream(client, history, archive)
                self.say("reading everything back")
                read, ends = await reading.read_all(client, history, self.clock, TOPIC)
                history.close()
            topic_id = bytes((await client.describe(TOPIC)).topic_id)
        self.say(f"a group of {group_reading.MEMBERS} processes reads it, and loses one by kill -9")
        by_group = await group_reading.read_by_group(self.cluster.bootstrap_servers, TOPIC, ends)
        self.say("comparing the replicas' files")
        logs = await reading.replica_logs(self.cluster, topic_id, ends)
        self.say("judging the history")
        judgement = await trio.to_thread.run_sync(self._judge)
        answers = await self._spark(stream.sent)
        claims = (
            _all_settled(stream),
            proof.exactly_once(stream.acknowledged, read),
            proof.nothing_invented(stream.sent, read),
            proof.key_order(read),
            proof.dense(read, ends),
            proof.replicas_equal(logs, BROKERS),
            proof.faults_took_effect(faults.happened),
            by_group.claim(),
            *answers.claims,
        )
        metrics = {
            "records": stream.sent,
            "acknowledged": len(stream.acknowledged),
            "seconds": round(seconds, 3),
            "records_per_second": round(len(stream.acknowledged) / seconds),
            "processed_twice": by_group.twice,
            "unavailable_ms": {
                fault.name: round(fault.unavailable_ms) for fault in faults.happened
            },
        }
        verdict = judgement.verdict.verdict
        outcome = DemoOutcome(
            folder=self.folder,
            claims=claims,
            faults=tuple(faults.happened),
            verdict=verdict,
            metrics=metrics,
            spark=answers,
        )
        self._write_verdict(judgement, outcome)
        return outcome

    async def _spark(self, records: int) -> SparkAnswers:
        if not self.with_spark:
            return SparkAnswers(skipped="--no-spark was given")
        self.say("Spark: the log as a table and a stream, joined with the history")
        servers = self.cluster.bootstrap_servers
        return await trio.to_thread.run_sync(spark_ending.run, servers, TOPIC, self.folder, records)

    async def _stream(
        self, client: Client, history: HistoryWriter, archive: Path
    ) -> tuple[RecordStream, DemoFaults, float]:
        stream = RecordStream(
            client, history, self.clock, TOPIC, PARTITIONS, limit=self.rows * 30 // 100
        )
        faults = DemoFaults(
            self.cluster, client, stream, history, self.clock, TOPIC, self.rows, BROKERS
        )
        await faults.recovered()
        self.say(
            f"streaming {amount(self.rows, 'departure', grouped=True)}; kill -9, then "
            "SIGSTOP, on the way"
        )
        began = self.clock.now()
        with progress("acknowledged", self.rows) as advance:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_watch, stream, advance)
                nursery.start_soon(stream.run, flights.read_flights(archive, self.rows))
                await faults.run()
        return stream, faults, (self.clock.now() - began) / NANOS_PER_SECOND

    def _history_file(self, mode: str) -> TextIO:
        return cast("TextIO", (self.folder / HISTORY).open(mode, encoding="utf-8"))

    def _judge(self) -> Judgement:
        with self._history_file("r") as file:
            return judge(file)

    def _write_verdict(self, judgement: Judgement, outcome: DemoOutcome) -> None:
        invariants = {
            claim.name: {"status": "held" if claim.holds else "violated", "note": _note(claim)}
            for claim in outcome.claims
        }
        found = judgement.verdict
        verdict = found.document(invariants, whole=whole(found, checks_of({}, invariants)))
        write_json(self.folder / "verdict.json", verdict)
        manifest = _manifest(outcome, self.began, utc_text(self.clock), self.rows)
        write_json(self.folder / "run.json", manifest)
        with (self.folder / HISTORY).open("rb") as file:
            sha256 = digest_of(file)
        beside = RunFolder(
            name=self.folder.name,
            history_sha256=sha256,
            place=str(self.folder),
            run=manifest,
            invariants=invariants,
        )
        page = render(judgement, beside)
        (self.folder / REPORT).write_text(page, encoding="utf-8")


def _note(claim: Claim) -> str:
    return claim.says if claim.holds else f"{claim.says}: {claim.evidence}"


def _all_settled(stream: RecordStream) -> Claim:
    """Check that every record was acknowledged: idempotent retries outlast both faults."""
    left = stream.sent - len(stream.acknowledged)
    evidence = f"{len(stream.unknown)} unknown, {len(stream.refused)} refused" if left else ""
    return Claim(
        "acknowledged",
        f"all {amount(stream.sent, 'record', grouped=True)} were acknowledged",
        left == 0,
        evidence,
    )


async def _watch(stream: RecordStream, advance: Callable[[int], None]) -> None:
    shown = 0
    while not stream.done:
        await trio.sleep(_WATCH_SECONDS)
        advance(len(stream.acknowledged) - shown)
        shown = len(stream.acknowledged)


def _keep_outputs(cluster: LocalCluster, folder: Path) -> None:
    """Keep the brokers' output with the run."""
    for place in cluster.places:
        log = cluster.log_path(place.node)
        if log.exists():
            target = folder / "nodes" / f"n{place.node}"
            target.mkdir(parents=True, exist_ok=True)
            shutil.copy(log, target / "output.log")


def _manifest(outcome: DemoOutcome, began: str, ended: str, rows: int) -> dict[str, Any]:
    """The content of run.json, which the report shows as well."""
    return {
        "version": 1,
        "command": ["raftlog", "demo", "--rows", str(rows)],
        "seed": SEED,
        "options": {"rows": rows, "partitions": PARTITIONS, "replication": BROKERS},
        "started": began,
        "ended": ended,
        "versions": {
            "raftlog": version("raftlog"),
            "python": platform.python_version(),
            "platform": sys.platform,
        },
        "nodes": [f"n{node}" for node in range(1, BROKERS + 1)],
        "metrics": outcome.metrics,
        "spark": outcome.spark.document(),
        "faults": [
            {
                "name": fault.name,
                "node": f"n{fault.node}",
                "partitions_moved": fault.moved(),
                "acks_after": fault.acks_after,
                "unavailable_ms": round(fault.unavailable_ms, 1),
            }
            for fault in outcome.faults
        ],
    }


def remove_data(folder: Path) -> None:
    """Remove the brokers' data directories, which are large and proved equal; keep all else."""
    cluster = folder / "cluster"
    if not (cluster / local_state.STATE_FILE).exists():
        raise OperatingError("no cluster's directory", on=str(cluster))
    shutil.rmtree(cluster)

"""Runs the measurements of `scripts/bench_spark`."""

import argparse
import contextlib
import json
import os
import struct
import threading
import time
from pathlib import Path
from typing import Self

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benches.measuring import cluster, cpu_seconds, hardware, resident_bytes, shown, summary
from raftlog.base.units import WallMillis
from raftlog.records.builder import RecordBatchBuilder
from raftlog.spark.decoding import compiled, plain, vectors
from raftlog.spark.decoding.columns import COLUMNS, ColumnsWanted
from raftlog.spark.jobs.chain_job import Tables, judge_tables
from raftlog.spark.session import local_session

VALUE_BYTES = 100
TOPIC = "bench"
PARTITIONS = 8
DECODED_BYTES = 16 << 20
PIECE_BYTES = 4 << 20  # the largest answer that a task gets at a time


def batches(batch_bytes: int, *, keyed: bool, total: int) -> list[bytes]:
    """Returns batches of about this size, back to back in their offsets."""
    builder = RecordBatchBuilder()
    number = 0
    while builder.size < batch_bytes:
        key = b"key-%04d" % (number % 1000) if keyed else None
        builder.append(
            b"%0100d" % number, key=key, timestamp_ms=WallMillis(1_700_000_000_000 + number)
        )
        number += 1
    one = builder.build()
    found = []
    for at in range(max(1, total // len(one))):
        batch = bytearray(one)
        struct.pack_into(">q", batch, 0, at * number)
        found.append(bytes(batch))
    return found


def decode_rate(module, made: list[bytes], runs: int) -> list[float]:
    """Returns millions of records a CPU second, decoded in pieces as a task gets them."""
    wanted = ColumnsWanted(TOPIC, 0, COLUMNS, 0, 2**62)
    per_piece = max(1, PIECE_BYTES // len(made[0]))
    rates = []
    for _ in range(runs + 1):
        began, rows = time.process_time(), 0
        for at in range(0, len(made), per_piece):
            rows += module.decode(made[at : at + per_piece], wanted).num_rows
        rates.append(rows / (time.process_time() - began) / 1e6)
    return rates[1:]  # the first one warms up


def decoder(runs: int) -> dict[str, object]:
    """Measure the compiled decoder on batches of all sizes, the others on those of 16 KiB."""
    found = {}
    for batch_bytes in (16 << 10, 256 << 10, 1 << 20):
        for keyed in (False, True):
            name = f"{batch_bytes >> 10} KiB batches, {'keyed' if keyed else 'no key'}"
            made = batches(batch_bytes, keyed=keyed, total=DECODED_BYTES)
            found[name] = decoded(name, compiled, made, runs)
    made = batches(16 << 10, keyed=True, total=DECODED_BYTES)
    found["numpy"] = decoded("numpy, 16 KiB batches, keyed", vectors, made, runs)
    found["plain"] = decoded("plain, 16 KiB batches, keyed", plain, made[: len(made) // 8], runs)
    return found


def decoded(name: str, module, made: list[bytes], runs: int) -> dict[str, float]:
    rates = decode_rate(module, made, runs)
    print(f"decoder, {name}: {shown(rates)} M records/s and core", flush=True)
    return summary(rates)


def fill(bootstrap: str, records: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(60)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 20,
            "batch.size": 64 << 10,
            "batch.num.messages": 10_000,
            "queue.buffering.max.messages": 1_000_000,
            "log_level": 3,
        }
    )
    value = b"v" * VALUE_BYTES
    for number in range(records):
        while True:
            try:
                producer.produce(TOPIC, value, partition=number // 500 % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 10_000 == 0:
            producer.poll(0)
    if producer.flush(300):
        raise SystemExit("not all records were written")


def count(records: int, runs: int) -> dict[str, object]:
    with cluster(brokers=1) as running:
        fill(running.bootstrap_servers, records)
        spark = local_session("local[2]", spark_ui_showConsoleProgress="false")

        def table(part: int = 1):
            """Returns a table of the first `part`-th of each partition.

            Each query is planned again, since Spark would remember what it has shuffled.
            """
            ends = {str(each): records // PARTITIONS // part for each in range(PARTITIONS)}
            return (
                spark.read.format("raftlog")
                .option("kafka.bootstrap.servers", running.bootstrap_servers)
                .option("subscribe", TOPIC)
                .option("endingOffsets", json.dumps({TOPIC: ends}))
                .load()
            )

        queries = {
            "count": (records, lambda: table().count()),
            "aggregate by partition": (
                records,
                lambda: table().groupBy("partition").agg({"offset": "max"}).collect(),
            ),
            "count of a quarter": (records // 4, lambda: table(4).count()),
        }
        broker = running.processes[1].pid
        found = {
            name: measure(name, query, broker, size, runs)
            for name, (size, query) in queries.items()
        }
        spark.stop()
        return {**found, "split": split(records, found)}


def split(records: int, found: dict[str, dict[str, object]]) -> dict[str, float]:
    """Returns the fixed cost of a query and the rate beyond it, from the two medians."""
    whole = records / found["count"]["median"] / 1e6
    quarter = records / 4 / found["count of a quarter"]["median"] / 1e6
    rate = records * 0.75 / (whole - quarter) / 1e6
    fixed = (4 * quarter - whole) / 3
    print(
        f"count: {fixed:.2f} s a query and {rate:.2f} M records/s beyond them; load average "
        f"{os.getloadavg()[0]:.1f}",
        flush=True,
    )
    return {"fixed_seconds": fixed, "marginal_rate": rate}


def measure(name: str, query, broker: int, records: int, runs: int) -> dict[str, object]:
    """Returns rates by the clock, by the CPU seconds of Spark's processes, and the broker's CPU
    seconds."""
    rates, cores, brokers = [], [], []
    for _ in range(runs + 1):
        before = cpu_seconds(broker), spark_cpu_seconds()
        began = time.perf_counter()
        query()
        rates.append(records / (time.perf_counter() - began) / 1e6)
        brokers.append(cpu_seconds(broker) - before[0])
        cores.append(records / (spark_cpu_seconds() - before[1]) / 1e6)
    rates, cores, brokers = rates[1:], cores[1:], brokers[1:]  # the first one warms up
    print(
        f"{name} of {records:,}: {shown(rates)} M records/s; {shown(cores)} M records a "
        f"core-second of Spark; the broker took {shown(brokers, ' s')} of CPU",
        flush=True,
    )
    return {
        **summary(rates),
        "per_core_second": summary(cores),
        "broker_cpu_seconds": summary(brokers),
    }


def spark_cpu_seconds() -> float:
    """Returns the CPU seconds of this process's JVM and its Python workers, ended ones included."""
    return sum(spark_processes().values())


class PeakMemory:
    """Measures, in a thread, the most memory that Spark's processes had at once, every second."""

    def __init__(self) -> None:
        self.bytes = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(1.0):
            now = 0
            for pid in (os.getpid(), *spark_processes()):
                with contextlib.suppress(OSError):
                    now += resident_bytes(pid)
            self.bytes = max(self.bytes, now)


def spark_processes() -> dict[int, float]:
    """Returns the CPU seconds of this process's JVM and of its Python workers, by process."""
    parents: dict[int, int] = {}
    times: dict[int, float] = {}
    names: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            text = (entry / "stat").read_text()
        except OSError:
            continue
        fields = text.rpartition(")")[2].split()
        pid = int(entry.name)
        parents[pid], names[pid] = int(fields[1]), text[text.index("(") + 1 : text.rindex(")")]
        times[pid] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    java = [
        pid for pid, name in names.items() if name == "java" and _below(pid, os.getpid(), parents)
    ]
    return {
        pid: time for pid, time in times.items() if any(_below(pid, top, parents) for top in java)
    }


def _below(pid: int, top: int, parents: dict[int, int]) -> bool:
    while pid > 1:
        if pid == top:
            return True
        pid = parents.get(pid, 0)
    return False


def history(rows: int) -> dict[str, object]:
    """Judge a valid history of sends and of one reader, from tables that Spark makes itself."""
    spark = local_session(
        "local[2]",
        memory="4g",
        spark_ui_showConsoleProgress="false",
        spark_sql_shuffle_partitions=str(max(8, rows // 1_500_000)),
    )
    half = rows // 2
    key = "concat('t/', id % 8)"
    sends = spark.range(half).selectExpr(
        f"{key} AS key",
        "id AS op",
        "0 AS number",
        "0 AS place",
        "concat('\"k#', id, '\"') AS value",
        "'ok' AS kind",
        "id * 10 AS start_ns",
        "id * 10 + 35 AS end_ns",
        "1 AS size",
        "id DIV 8 AS base",
    )
    reads = spark.range(half).selectExpr(
        f"{key} AS key",
        f"{half} + id DIV 160 AS op",
        "'ok' AS kind",
        f"{half * 10}L + 100 + id DIV 160 AS end_ns",
        "id DIV 8 AS offset",
        "concat('\"k#', id, '\"') AS value",
        f"least((id DIV 160 + 1) * 20, {half} DIV 8) AS gap",
    )
    none = spark.range(0)
    lengths = none.selectExpr(
        "'' AS key", "id AS op", "'' AS f", "id AS position", "id AS start_ns", "id AS end_ns"
    )
    starts = none.selectExpr("'' AS key", "id AS log_start")
    began, cores = time.perf_counter(), spark_cpu_seconds()
    with PeakMemory() as memory:
        found = judge_tables(spark, Tables(sends, reads, lengths, starts), mode="linearizable")
    seconds, cores = time.perf_counter() - began, spark_cpu_seconds() - cores
    wrong = {key: result.counts for key, result in found.items() if any(result.counts.values())}
    if wrong:
        raise SystemExit(f"the synthetic history is not valid: {wrong}")
    print(
        f"history of {rows:,} rows: {seconds:.1f} s, {rows / seconds / 1e6:.2f} M rows/s; "
        f"{cores:.1f} s of CPU; at most {memory.bytes / 2**30:.1f} GiB of memory; load average "
        f"{os.getloadavg()[0]:.1f}",
        flush=True,
    )
    spark.stop()
    return {
        "history": {
            "rows": rows,
            "seconds": seconds,
            "cpu_seconds": cores,
            "memory_bytes_max": memory.bytes,
        }
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", type=int, default=16_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", choices=["decoder", "count", "history"])
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    results: dict[str, object] = {"hardware": hardware()}
    if chosen.only in (None, "decoder"):
        results.update(decoder(chosen.runs))
    if chosen.only in (None, "count"):
        results.update(count(chosen.records, chosen.runs))
    if chosen.only == "history":
        results.update(history(chosen.records))
    if chosen.out is not None:
        chosen.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""Measures a consumer from page cache, and the same client reading the same bytes from a static
responder."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

from confluent_kafka import Consumer, TopicPartition

from benches import measuring, producing

RECORD_BYTES = 1024
TOTAL_BYTES = 400_000_000


def consume_rate(bootstrap: str, count: int) -> float:
    """Returns MB/s of values for `count` records of partition 0."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.max.bytes": 52_428_800,
            "max.partition.fetch.bytes": 8_388_608,
            "fetch.queue.backoff.ms": 1,
            "queued.max.messages.kbytes": 65_536,
            "check.crcs": False,
            "log_level": 3,
        }
    )
    consumer.assign([TopicPartition(producing.TOPIC, 0, 0)])
    got = 0
    deadline = time.perf_counter() + 120
    began = None
    while got < count:
        messages = consumer.consume(10_000, 1.0)
        if messages and began is None:
            began = time.perf_counter()
        for message in messages:
            if message.error() is not None:
                raise SystemExit(f"consumer: {message.error()}")
        got += len(messages)
        if time.perf_counter() > deadline:
            raise SystemExit(f"only {got} of {count} records arrived")
    seconds = time.perf_counter() - began
    consumer.close()
    return got * RECORD_BYTES / producing.MEGABYTE / seconds


def log_bytes(directory: Path) -> Path:
    """Returns the largest segment of the largest replica, which the responder serves."""
    segments = sorted(
        directory.glob("broker*/groups/*/*.log"), key=lambda path: path.stat().st_size
    )
    return segments[-1]


def compare(rounds: int) -> dict:
    ours: list[float] = []
    static: list[float] = []
    with measuring.cluster() as cluster:
        producing.make_topic(cluster.bootstrap_servers)
        settings = {
            **producing.producer_settings(1_000_000),
            "bootstrap.servers": cluster.bootstrap_servers,
        }
        producing.produce_rate(settings, RECORD_BYTES, TOTAL_BYTES)
        count = TOTAL_BYTES // RECORD_BYTES
        segment = log_bytes(cluster.directory)
        with Responder(segment) as responder:
            for _ in range(rounds):
                static.append(consume_rate(responder.bootstrap, count))
                ours.append(consume_rate(cluster.bootstrap_servers, count))
                print(f"  ours {ours[-1]:.0f} MB/s, static responder {static[-1]:.0f} MB/s")
    ratios = [mine / theirs for mine, theirs in zip(ours, static, strict=True)]
    print(f"consume: ours {measuring.shown(ours, ' MB/s')}")
    print(f"consume: ratio to the static responder {measuring.shown(ratios, 'x')}")
    return {
        "ours_mb_s": measuring.summary(ours),
        "static_mb_s": measuring.summary(static),
        "ratio": measuring.summary(ratios),
    }


class Responder:
    """A process that serves one segment file by sendfile and knows nothing else."""

    def __init__(self, segment: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.bootstrap = f"127.0.0.1:{self.port}"
        script = Path(__file__).with_name("responder.py")
        self._process = subprocess.Popen(
            [sys.executable, str(script), str(segment), str(self.port)],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )

    def __enter__(self) -> Self:
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return self
            except OSError:
                time.sleep(0.05)
        raise SystemExit("the static responder did not start")

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

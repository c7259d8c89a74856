"""The streaming read: triggers, new partitions, restarts, and each record once across kill -9."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from raftlog.client.blocking_consumer import BlockingConsumer
from raftlog.client.core.group_asks import fetch_offsets
from raftlog.spark.connector.offsets import DataLoss, TopicPlace
from raftlog.spark.connector.options import Mode, read_options
from raftlog.spark.connector.stream import StreamReader
from tests.spark.conftest import append
from tests.spark.test_source import grid

pytestmark = [
    pytest.mark.processes,
    pytest.mark.needs_command("java"),
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture
def run(spark, cluster, tmp_path: Path):
    """Run an AvailableNow query on the same checkpoint until it ends; its progress."""

    def go(**options: object):
        source = (
            spark.readStream.format("raftlog")
            .option("kafka.bootstrap.servers", cluster.bootstrap_servers)
            .options(**{name: str(value) for name, value in options.items()})
        )
        query = (
            source.load()
            .select("topic", "partition", "offset")
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .option("path", str(tmp_path / "out"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)
        assert not query.isActive
        return [each for each in query.recentProgress if each.numInputRows]

    return go


@pytest.fixture
def written(spark, tmp_path: Path):
    """Returns how to look at the sink's output: each (partition, offset) as often as it was
    written."""

    def look():
        rows = spark.read.parquet(str(tmp_path / "out")).collect()
        return sorted((row.partition, row.offset) for row in rows)

    return look


def test_triggers_restarts_and_new_partitions(run, written, fill, topic, client, grow):
    fill(topic, partitions=2, count=20)
    taken = run(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=16)
    assert [each.numInputRows for each in taken] == [16, 16, 8]
    assert written() == grid([0, 1], range(20))
    assert run(subscribe=topic, startingOffsets="earliest") == []
    grow(topic, 3)
    append(client, topic, partitions=3, count=4, start=20)
    taken = run(subscribe=topic, startingOffsets="earliest")
    assert sum(each.numInputRows for each in taken) == 12
    assert written() == sorted(grid([0, 1], range(24)) + grid([2], range(4)))


def test_a_group_is_told_after_each_trigger(run, fill, topic, client):
    """Spark tells of a trigger when it plans the next, so the last one may be missing."""
    fill(topic, partitions=2, count=20)
    more = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 16, "commitGroup": topic}
    assert len(run(subscribe=topic, **more)) == 3
    committed = client.ask(fetch_offsets(topic))
    assert [place.partition for place in committed] == [0, 1]
    assert sum(each.offset for each in committed.values()) in (32, 40)


def test_a_group_that_cannot_be_told_is_a_warning(cluster, fill, topic):
    """The checkpoint counts alone: a query does not fail for a tool's sake."""
    fill(topic, partitions=1, count=3)
    options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": topic}
    settings = {"group_id": topic, "heartbeat_interval_ms": 100, "session_timeout_ms": 6_000}
    with BlockingConsumer(cluster.bootstrap_servers, **settings) as member:
        member.subscribe([topic])
        while not member.assignment():
            member.poll(seconds=0.1)
        reader = StreamReader(
            read_options(options | {"commitGroup": topic}, Mode.STREAM), ("value",)
        )
        end = reader.initialOffset()
        with pytest.warns(UserWarning, match="was not told"):
            reader.commit(end)
        reader.stop()


def test_a_start_at_the_end_is_kept_across_restarts(run, written, fill, topic, client):
    """`latest` is kept with the first trigger, here one without records: what comes afterwards is
    read, also by a query that is started again."""
    fill(topic, partitions=1, count=5)
    assert run(subscribe=topic) == []
    append(client, topic, partitions=1, count=3, start=5)
    assert sum(each.numInputRows for each in run(subscribe=topic)) == 3
    assert written() == grid([0], [5, 6, 7])


def test_a_topic_created_again_stops_the_query(run, fill, topic, delete):
    fill(topic, partitions=1, count=5)
    run(subscribe=topic, startingOffsets="earliest")
    delete(topic)
    fill(topic, partitions=1, count=9)
    with pytest.raises(Exception, match="created again"):
        run(subscribe=topic, startingOffsets="earliest")
    lenient = run(subscribe=topic, startingOffsets="earliest", failOnDataLoss="false")
    assert sum(each.numInputRows for each in lenient) == 9


SCRIPT = """
import sys, time
from raftlog.spark import local_session
servers, topic, folder = sys.argv[1:]
spark = local_session(memory="512m", spark_driver_extraJavaOptions="-XX:TieredStopAtLevel=1")

def dawdle(batches):
    for batch in batches:
        time.sleep(0.7)
        yield batch

(
    spark.readStream.format("raftlog")
    .option("kafka.bootstrap.servers", servers)
    .option("subscribe", topic)
    .option("startingOffsets", "earliest")
    .option("maxOffsetsPerTrigger", "400")
    .load()
    .select("partition", "offset")
    .mapInArrow(dawdle, "partition INT, offset LONG")
    .writeStream.format("parquet")
    .option("checkpointLocation", folder + "/checkpoint")
    .option("path", folder + "/out")
    .trigger(availableNow=True)
    .start()
    .awaitTermination()
)
"""


def _planned(folder: Path) -> int:
    """How many triggers the checkpoint has planned, and how many it has finished."""
    return len([each for each in _names(folder / "checkpoint" / "offsets") if each.isdigit()])


def _finished(folder: Path) -> int:
    return len([each for each in _names(folder / "checkpoint" / "commits") if each.isdigit()])


def _names(folder: Path) -> list[str]:
    return [each.name for each in folder.iterdir()] if folder.is_dir() else []


def _killed_in(trigger: int, command: list[str], folder: Path) -> None:
    """Run a query until this trigger is planned and not finished, then kill its whole group."""
    process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 180
        while not _finished(folder) < _planned(folder) == trigger:
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.01)
        time.sleep(0.1)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert (_planned(folder), _finished(folder)) == (trigger, trigger - 1)


LONG = [pytest.mark.soak, pytest.mark.timeout(1_200)]


@pytest.mark.parametrize("triggers", [[2], pytest.param([1, 2], marks=LONG)], ids=["once", "twice"])
def test_each_record_once_across_kill_9_in_mid_batch(
    written, run, fill, topic, cluster, tmp_path: Path, triggers
):
    """A query's whole process group is killed between the plan of its second trigger and its end;
    another session goes on from the checkpoint. The sink has each (partition, offset) once. The
    long way a query is killed in its first trigger before, when nothing is committed yet."""
    fill(topic, partitions=2, count=600)
    command = [sys.executable, "-c", SCRIPT, cluster.bootstrap_servers, topic, str(tmp_path)]
    for trigger in triggers:
        _killed_in(trigger, command, tmp_path)
    taken = run(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=400)
    assert [each.numInputRows for each in taken] == [400, 400]
    assert written() == grid([0, 1], range(600))


# --- the reader itself, without Spark -------------------------------------------------------------


@pytest.fixture
def reader(cluster, topic):
    """Stream readers of this test's topic."""
    opened = []

    def make(**options: str) -> StreamReader:
        given = {"bootstrap.servers": cluster.bootstrap_servers, "subscribe": topic} | options
        found = StreamReader(read_options(given, Mode.STREAM), ("offset",))
        opened.append(found)
        return found

    yield make
    for each in opened:
        each.stop()


def at(offset, partition="0"):
    (found,) = offset.values()
    return found["offsets"][partition]


def test_a_minimum_holds_a_trigger_back_but_not_for_ever(reader, fill, topic, client):
    fill(topic, partitions=1, count=5)
    slow = reader(startingOffsets="earliest", minOffsetsPerTrigger="8", maxTriggerDelay="1h")
    start = slow.initialOffset()
    limit = slow.getDefaultReadLimit()
    assert at(slow.latestOffset(start, limit)) == 0
    append(client, topic, partitions=1, count=3, start=5)
    assert at(slow.latestOffset(start, limit)) == 8
    quick = reader(startingOffsets="earliest", minOffsetsPerTrigger="99", maxTriggerDelay="1ms")
    start = quick.initialOffset()
    quick.latestOffset(start, limit)
    time.sleep(0.01)
    assert at(quick.latestOffset(start, limit)) == 8


def test_available_now_fixes_the_end(reader, fill, topic, client):
    fill(topic, partitions=1, count=5)
    now = reader(startingOffsets="earliest", minOffsetsPerTrigger="99")
    start = now.initialOffset()
    now.prepareForTriggerAvailableNow()
    append(client, topic, partitions=1, count=3, start=5)
    assert at(now.latestOffset(start, now.getDefaultReadLimit())) == 5
    assert at(now.reportLatestOffset()) == 8


def test_the_same_borders_give_the_same_ranges(reader, fill, topic):
    fill(topic, partitions=2, count=9)
    one = reader(startingOffsets="earliest", minPartitions="5")
    start, end = one.initialOffset(), one.reportLatestOffset()
    ranges = [part.part for part in one.partitions(start, end)]
    assert ranges == [part.part for part in reader(minPartitions="5").partitions(start, end)]
    assert sum(each.size for each in ranges) == 18
    assert json.loads(json.dumps(end)) == end


def test_a_new_partition_begins_at_its_earliest(reader, fill, topic, client, grow):
    fill(topic, partitions=1, count=2)
    one = reader(startingOffsets="latest")
    start = one.initialOffset()
    begun = one.latestOffset(start, one.getDefaultReadLimit())
    assert at(begun) == at(start) == 2
    assert one.latestOffset(begun, one.getDefaultReadLimit()) == begun
    grow(topic, 2)
    client.produce(topic, b"new", partition=1)
    end = one.latestOffset(start, one.getDefaultReadLimit())
    assert (at(end), at(end, "1")) == (2, 1)
    (part,) = one.partitions(start, end)
    assert (part.part.place, part.part.start, part.part.stop) == (TopicPlace(topic, 1), 0, 1)


def test_what_is_gone_is_said(reader, fill, topic, client):
    fill(topic, partitions=1, count=2)
    one = reader(startingOffsets="earliest")
    start = one.initialOffset()
    ahead = json.loads(json.dumps(start))
    ahead[topic]["offsets"]["0"] = 9
    with pytest.raises(Exception, match="ends before the offsets"):
        one.latestOffset(ahead, one.getDefaultReadLimit())
    ahead[topic]["offsets"] = {"0": 0, "7": 3}
    with pytest.raises(Exception, match="are gone"):
        one.latestOffset(ahead, one.getDefaultReadLimit())
    with pytest.raises(Exception, match="goes back"):
        one.partitions(one.reportLatestOffset(), start | {topic: start[topic]})


@pytest.mark.parametrize("given", ["latest", "earliest", '{"%s": {"0": -1}}'])
def test_the_first_triggers_start_is_told_by_its_end(reader, fill, topic, client, given):
    """A query that is killed in its first trigger is asked again where it begins, when `latest`, in
    JSON too, is another offset: what the trigger was planned with has to count. It did not for -1,
    and records between the two were never read."""
    fill(topic, partitions=1, count=5)
    options = {"startingOffsets": given % topic if "%" in given else given}
    first = reader(**options)
    start = first.initialOffset()
    append(client, topic, partitions=1, count=3, start=5)
    end = json.loads(json.dumps(first.latestOffset(start, first.getDefaultReadLimit())))
    planned = [part.part for part in first.partitions(start, end)]
    assert [(each.start, each.stop) for each in planned] == [(at(start), 8)]
    append(client, topic, partitions=1, count=4, start=8)
    second = reader(**options)
    again = second.initialOffset()
    assert at(again) == (0 if given == "earliest" else 12)
    assert [part.part for part in second.partitions(again, end)] == planned
    assert at(second.latestOffset(end, second.getDefaultReadLimit())) == 12


def test_available_now_does_not_wait_for_what_is_gone(reader, fill, topic, delete):
    """A topic is created again, shorter, after the end was fixed: where loss is accepted the query
    goes to the new end, not to one that may never come."""
    fill(topic, partitions=1, count=9)
    now = reader(startingOffsets="earliest", failOnDataLoss="false")
    start = now.initialOffset()
    now.prepareForTriggerAvailableNow()
    delete(topic)
    fill(topic, partitions=1, count=2)
    with pytest.warns(UserWarning, match="created again"):
        end = now.latestOffset(start, now.getDefaultReadLimit())
    assert at(end) == 2


def test_a_partition_that_comes_back_is_not_read_again(reader, fill, topic):
    """A broker that was behind did not name a partition; where loss is accepted its place is kept,
    or it would be read from its beginning once it is named again."""
    fill(topic, partitions=2, count=4)
    one = reader(startingOffsets="earliest", failOnDataLoss="false")
    limit = one.getDefaultReadLimit()
    end = one.latestOffset(one.initialOffset(), limit)
    whole = one._known()
    behind = whole._replace(
        **{
            name: {place: at for place, at in getattr(whole, name).items() if place.partition == 0}
            for name in ("first", "end")
        }
    )
    one._known = lambda: behind
    with pytest.warns(UserWarning, match="are gone"):
        less = one.latestOffset(end, limit)
    assert (at(less), at(less, "1")) == (4, 4)
    one._known = lambda: whole
    assert one.partitions(less, one.latestOffset(less, limit)) == []


def test_a_new_partition_without_its_beginning_is_loss(reader, fill, topic):
    """Also where retention has taken all that was in it."""
    fill(topic, partitions=2, count=4)
    one = reader(startingOffsets="earliest")
    whole = one._known()
    sevens = dict.fromkeys(whole.end, 7)
    one._known = lambda: whole._replace(first=sevens, end=sevens)
    before = _with_offsets(one.reportLatestOffset(), {"0": 7})
    with pytest.raises(DataLoss, match="already begins at 7"):
        one.partitions(before, _with_offsets(before, {"0": 7, "1": 7}))


def _with_offsets(offset, offsets):
    (topic,) = offset
    return {topic: {"id": offset[topic]["id"], "offsets": offsets}}


def test_a_leader_that_is_one_no_more_is_asked_again(reader, fill, topic):
    """It knows of fewer records than were read: no loss, as soon as another one answers."""
    fill(topic, partitions=1, count=4)
    one = reader(startingOffsets="earliest")
    limit = one.getDefaultReadLimit()
    end = one.latestOffset(one.initialOffset(), limit)
    whole = one._known()
    said = [whole._replace(end=dict.fromkeys(whole.end, 3))]
    one._known = lambda: said.pop() if said else whole
    assert one.latestOffset(end, limit) == end
    assert not said

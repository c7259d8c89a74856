"""Every broker of a simulated run, recorded and played again alone, does the same; a recorder that
leaves out one kind of event is caught."""

from functools import cache

import pytest
from raftlog_sim.hunting import mutation
from raftlog_sim.incidents.incident_replay import Replay
from raftlog_sim.incidents.recordings import (
    KNOWN,
    RecordedBoot,
    SimRecordings,
    complaint,
    recording_of,
)
from raftlog_sim.playing import simulation
from raftlog_sim.playing.scenario_files import read
from raftlog_sim.playing.simulation import Run, simulate
from raftlog_sim.schedules.options import SimOptions
from raftlog_sim.schedules.sizes import shape
from raftlog_sim.world.more_disks import add_disks
from raftlog_sim.world.world import World, seconds

from raftlog.base.errors import CorruptData
from raftlog.broker import events as e
from raftlog.broker.incident import value_writer
from raftlog.broker.incident.classes import classes
from raftlog.broker.incident.reading import BrokerRecording
from raftlog.broker.incident.recorder import Recorder
from raftlog.broker.incident.rows import HEAD, ROW_HEAD_BYTES, RowKind, RowReader, RowWriter
from raftlog.broker.incident.value_reader import ValueReader
from raftlog.broker.incident.value_writer import ValueWriter
from raftlog.broker.incident.values import Tag

SEED = 17  # of those that every sweep records
EVERY_KIND = """
# What brings about events of every kind.
set seed 17
set segment_bytes 5500
set safety_ms 3000
100 produce slot=0 partition=0 count=20
300 crash node=n2 for 200
700 disk-error node=n1 call=write count=1
800 produce slot=1 partition=0 count=20
900 reset one=n1 other=n3
1000 hangup node=n1+n2+n3
1100 stop node=n3 for 400
1600 produce slot=0 partition=0 count=20
"""
UNUSED = {"ReadDone"}  # no handler asks for a Read: cold reads are jobs


@cache
def run_of(*, recorded: bool) -> tuple[Run, str]:
    schedule = read("every kind", EVERY_KIND).case.schedule
    world = World(SEED, recordings=SimRecordings() if recorded else None)
    shape(world, schedule)
    run = Run(schedule, world=world)
    failure = run.play()
    for node in world.running():
        node.deliver(e.AdminCall(1, "livez", ()))
    world.run_for(seconds(1))
    return run, failure


def recordings() -> SimRecordings:
    run, failure = run_of(recorded=True)
    assert failure == ""
    return run.world.recordings


def test_every_broker_of_a_run_plays_again_alone_with_equal_digests():
    assert recordings().boots
    assert [boot.recorder.over for boot in recordings().boots if boot.recorder.over] == []
    assert recordings().first_difference() is None


def test_a_recorded_run_is_the_run_that_is_not_recorded():
    hashes = [
        run.result("", None).trace_hash
        for run, _ in (run_of(recorded=True), run_of(recorded=False))
    ]
    assert hashes[0] == hashes[1]


def test_the_run_of_a_recorded_seed_is_replayed_at_its_end(monkeypatch):
    recorded = simulate(SimOptions(seed=SEED))
    assert recorded.failure == ""
    with monkeypatch.context() as patched:
        patched.setattr(simulation, "recording_of", lambda seed: None)
        assert simulate(SimOptions(seed=SEED)).probes == recorded.probes
    monkeypatch.setattr(Recorder, "_event", recorded_as_nothing)
    failure = simulate(SimOptions(seed=SEED)).failure
    assert failure.startswith("replay-differs: n1, boot 1, turn ")


def test_a_run_that_could_not_be_recorded_whole_fails(monkeypatch):
    """Compiled code has classes without lists of fields: each recording ended in its second turn,
    and what was left of it replayed."""
    known = {cls: each for cls, each in classes().items() if cls.__name__ != "RecoveredReplica"}
    monkeypatch.setattr(value_writer, "classes", lambda: known)
    failure = simulate(SimOptions(seed=SEED)).failure
    assert failure.startswith(
        "replay-differs: n1, boot 1, an event cannot be recorded: a recording"
    )


def recorded_as_nothing(recorder, event):
    """The planted bug: acknowledgements of clients' machines are forgotten."""
    told = e.Drained(event.connection, 0) if type(event) is e.Drained else event
    if type(event) is e.JobDone:
        return recorder._job_done(event)
    writer = ValueWriter(recorder._payloads)
    writer.value(told)
    return writer.buffer


def test_one_seed_of_fifty_is_recorded():
    assert recording_of(SEED) is not None
    assert sum(recording_of(seed) is not None for seed in range(100)) == 2
    assert complaint(None) == ""


def longest() -> RecordedBoot:
    return max(recordings().boots, key=lambda boot: len(boot.rows))


def kinds_of(turns) -> dict[str, int]:
    found: dict[str, int] = {}
    for turn in turns:
        for raw in turn.raw_events:
            found[kind_of(raw)] = found.get(kind_of(raw), 0) + 1
    return found


TABLE = list(classes().values())


def kind_of(raw: memoryview) -> str:
    if raw[0] == Tag.TUPLE:
        return "JobDone"
    assert raw[0] in (Tag.NAMED_TUPLE, Tag.PACKED)
    return TABLE[ValueReader(raw[1:], TABLE, None).varint()].cls.__name__


def without(kind: str, rows: bytes) -> bytes:
    """The recording of a recorder that never writes that kind of event."""
    reader, writer = RowReader(rows), RowWriter()
    found = [HEAD]
    while (row := reader.next()) is not None:
        body = bytes(row.body)
        if row.kind is RowKind.TURN:
            values = ValueReader(body, TABLE, None)
            now, wall = values.varint(), values.value()
            raws = [values.reader.take(values.varint()) for _ in range(values.varint())]
            kept = [raw for raw in raws if kind_of(raw) != kind]
            rewritten = ValueWriter(None)
            rewritten.varint(now)
            rewritten.value(wall)
            rewritten.varint(len(kept))
            for raw in kept:
                rewritten.varint(len(raw))
                rewritten.buffer += raw
            body = bytes(rewritten.buffer)
        found.append(writer.row(row.kind, body))
    return b"".join(found)


def replay_of(rows: bytes) -> Replay:
    return Replay(BrokerRecording(rows, recordings().payloads, known=KNOWN))


KINDS = [each.__name__ for each in e.Event.__args__ if each.__name__ not in UNUSED]


@pytest.mark.parametrize("kind", KINDS)
def test_a_recorder_that_leaves_out_one_kind_of_event_is_caught(kind):
    boots = [
        boot
        for boot in recordings().boots
        if kind in kinds_of(recordings().replay(boot).recording.turns())
    ]
    assert boots
    assert replay_of(without(kind, bytes(boots[0].rows))).run() is not None


def test_a_replay_steps_back_and_forth():
    replay = recordings().replay(longest())
    for _ in range(200):
        replay.next()
    at_200 = (replay.position, replay.turn.effects.wake_at, replay.broker.context.now)
    for _ in range(20):
        replay.next()
    replay.back(20)
    assert (replay.position, replay.turn.effects.wake_at, replay.broker.context.now) == at_200
    replay.back(10_000)
    assert replay.position == 0
    replay.next()
    assert replay.position == 1


def test_a_recording_that_was_cut_short_is_played_as_far_as_it_goes():
    rows = bytes(longest().rows)
    replay = replay_of(rows[: len(rows) // 2])
    assert replay.run() is None
    assert 0 < replay.position < longest().recorder.turns


def test_a_changed_byte_is_corrupt_data():
    reader, places = RowReader(bytes(longest().rows)), []
    while (row := reader.next()) is not None:
        places.append((row.position, len(row.body)))
    position, size = places[len(places) // 2]
    assert size > 0
    body = position + ROW_HEAD_BYTES
    for at in (*range(position, body), body + size // 2):
        rows = bytearray(longest().rows)
        rows[at] ^= 1
        with pytest.raises(CorruptData):
            replay_of(bytes(rows)).run()


# --- laws of the recorder -------------------------------------------------------------------------


def one_broker() -> tuple[World, RecordedBoot]:
    world = World(1, recordings=SimRecordings())
    world.found(1)
    world.run_for(seconds(1))
    return world, world.recordings.boots[0]


def test_the_turn_that_breaks_a_broker_is_the_last_of_its_recording():
    world, boot = one_broker()
    opened = e.ConnectionOpened(7, "PLAINTEXT", "ANONYMOUS", "client")
    world.running()[0].deliver(opened)
    world.running()[0].deliver(opened)
    with pytest.raises(AssertionError):
        world.run_for(seconds(1))
    assert boot.recorder.over == "the turn raised"
    replay = world.recordings.replay(boot)
    assert replay.run() is None
    assert replay.position == boot.recorder.turns + 1
    assert "raises, as recorded: AssertionError" in replay.ended


def test_what_cannot_be_recorded_ends_the_recording_and_not_the_turn():
    world, boot = one_broker()
    node = world.running()[0]
    node.deliver(e.AdminCall(1, "livez", (("what", object()),)))
    world.run_for(seconds(1))
    assert node.live.admin[1] is not None
    assert "builtins.object" in boot.recorder.over
    before = len(boot.rows)
    world.run_for(seconds(1))
    assert len(boot.rows) == before
    replay = world.recordings.replay(boot)
    assert replay.run() is None
    assert boot.recorder.over in replay.ended


def test_a_full_recording_ends():
    world = World(1, recordings=SimRecordings())
    world.found(1)
    boot = world.recordings.boots[0]
    boot.recorder._bytes_max = len(boot.rows) + 1000
    world.run_for(seconds(2))
    assert boot.recorder.over.startswith("it is full")
    replay = world.recordings.replay(boot)
    assert replay.run() is None
    assert 0 < replay.position == boot.recorder.turns


def test_a_sink_that_drops_rows_ends_the_recording(monkeypatch):
    world, boot = one_broker()
    monkeypatch.setattr(RecordedBoot, "append", lambda sink, row: False)
    world.run_for(seconds(1))
    assert boot.recorder.over == "its disk is full, or far behind"
    assert world.running()
    assert world.recordings.replay(boot).run() is None


@pytest.mark.parametrize("number", ["100", "100b"])
def test_planted_bugs_of_the_recorder_are_caught(number):
    row = mutation.hunt(number, mutation.Hunt(budget=1, first=SEED))
    assert row["by"] == {"replay-differs": 1}, row


def test_a_broker_with_a_further_log_directory_plays_again():
    world, _ = one_broker()
    node = world.running()[0]
    node.crash()
    add_disks(node, 1)
    node.start()
    world.run_for(seconds(1))
    boot = world.recordings.boots[-1]
    assert boot.recorder.refused is None
    replay = world.recordings.replay(boot)
    assert [each.name for each in replay.recording.further] == ["further-0"]
    assert replay.run() is None
    assert replay.position > 5

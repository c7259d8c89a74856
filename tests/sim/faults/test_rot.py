"""Files that end early, sectors of an earlier day, one batch rotten everywhere."""

import pytest
from raftlog_sim.faults import rot_faults
from raftlog_sim.faults.rot_faults import _batches, _ends_below_marks
from raftlog_sim.playing.simulation import Run, simulate
from raftlog_sim.schedules.options import SimOptions
from raftlog_sim.schedules.schedule import Schedule, step
from raftlog_sim.world.inode import SECTOR

from raftlog.base.ids import NodeId
from raftlog.base.units import millis
from raftlog.storage.directories.store_file import STORE_FILES

WRITES = tuple(step(at, "produce", slot=0, partition=0, count=3) for at in range(0, 600, 30))


def schedule(*some, brokers=3, **options):
    values = {"seed": 21, "safety_ms": 1_000, "brokers": brokers, "value_bytes": 700, **options}
    return Schedule(SimOptions(**values), (*WRITES, *some))


def until(run, at_ms):
    while run.phase == "set-up":
        run.advance()
    end = run.world.now + millis(at_ms)
    while run.world.now < end and run.advance():
        pass
    return run


def rot(at, file, how, node="n2"):
    return step(at, "rot", node=node, file=file, how=how)


def strike(run, what):
    """Whether it struck, and the files before and after."""
    disk = run.world.nodes[NodeId(2)].disk
    before = {path: disk.content(path) for path in disk.paths()}
    run.nemesis.strike(what)
    return before, {path: disk.content(path) for path in disk.paths()}


def changed(before, after):
    return [path for path in before if before[path] != after[path]]


@pytest.mark.parametrize("down", [True, False])
@pytest.mark.parametrize("file", ["segment", "index", "snapshot"])
def test_a_file_that_ends_early_is_survived(file, down):
    crash = [step(890, "crash", 60, node="n2")] * down
    options = {"segment_bytes": 12_000, "snapshot_every": 4}
    moves = [step(at, "create-topic", topic=at // 200, partitions=2) for at in (150, 350, 550)]
    result = simulate(schedule(*moves, *crash, rot(900, file, "cut"), **options))
    assert result.failure == ""
    assert result.faults["rot"] == 1


@pytest.mark.parametrize("seed", range(6))
def test_a_segment_is_cut_in_a_batch_or_where_one_ends(seed):
    run = until(Run(schedule(seed=seed, segment_bytes=12_000)), 900)
    run.world.nodes[NodeId(2)].stop_process()  # else it is killed, boots, and writes
    before, after = strike(run, rot(0, "segment", "cut"))
    (path,) = changed(before, after)
    assert before[path].startswith(after[path])
    borders = [start for start, _ in _batches(before[path])]
    assert 4_096 <= len(after[path]) < len(before[path])
    assert borders[0] <= len(after[path])


def test_what_no_mark_covers_is_not_cut(monkeypatch):
    """Bytes younger than the mark are protected by replication alone."""
    run = until(Run(schedule()), 900)
    ends = _ends_below_marks(run.world.nodes[NodeId(2)].disk)
    monkeypatch.setattr(rot_faults, "_ends_below_marks", lambda disk: [(p, e - 1) for p, e in ends])
    before, after = strike(run, rot(0, "segment", "cut"))
    assert before == after
    assert run.nemesis.done == {}


@pytest.mark.parametrize("down", [True, False])
@pytest.mark.parametrize("file", ["segment", "store"])
def test_sectors_of_an_earlier_day_are_survived(file, down):
    crash = [step(890, "crash", 60, node="n2")] * down
    remember = step(200, "remember", node="n2")
    result = simulate(schedule(remember, *crash, rot(900, file, "old-chunk")))
    assert result.failure == ""
    assert result.faults["rot"] == 1


@pytest.mark.parametrize("file", ["segment", "store"])
def test_an_old_chunk_is_what_was_there(file):
    run = until(Run(schedule(step(200, "remember", node="n2"))), 900)
    old = run.nemesis.remembered[NodeId(2)]
    ends = dict(_ends_below_marks(run.world.nodes[NodeId(2)].disk))
    before, after = strike(run, rot(0, file, "old-chunk"))
    (path,) = changed(before, after)
    places = [at for at in range(len(after[path])) if before[path][at] != after[path][at]]
    start, end = places[0] // SECTOR * SECTOR, places[-1] + 1
    assert after[path][start:end] == old[path][start:end].ljust(end - start, b"\0")
    if file == "store":
        assert path in STORE_FILES
        assert end - start <= SECTOR, "a frame lies twice, in sectors of its own"
    else:
        assert end <= ends[path], "below the durable mark"


def test_without_a_memory_nothing_old_comes_back():
    run = until(Run(schedule()), 900)
    before, after = strike(run, rot(0, "segment", "old-chunk"))
    assert before == after
    assert run.nemesis.atlas.damaged == {}


def test_the_atlas_refuses_a_second_node():
    run = until(Run(schedule(step(200, "remember", node="all"))), 900)
    assert run.nemesis.atlas.allow(NodeId(1))
    for how in ("cut", "old-chunk"):
        before, after = strike(run, rot(0, "segment", how))
        assert before == after


def test_one_batch_rots_on_all_that_are_named():
    run = until(Run(schedule()), 900)
    disks = [run.world.nodes[NodeId(number)].disk for number in (1, 2, 3)]
    before = [{path: disk.content(path) for path in disk.paths()} for disk in disks]
    run.nemesis.strike(step(0, "rot-everywhere", node="n2+n3", partition=0))
    counts = [
        len(changed(was, {path: disk.content(path) for path in disk.paths()}))
        for was, disk in zip(before, disks, strict=True)
    ]
    assert counts == [0, 1, 1]


# --- writes that went astray ----------------------------------------------------------------------


def astray(at, to, node="n2"):
    return step(at, "misdirect", node=node, to=to)


@pytest.mark.parametrize("to", ["batch", "bytes"])
@pytest.mark.parametrize("seed", range(4))
def test_a_write_that_went_astray_is_missing_here_and_lies_there(to, seed):
    run = until(Run(schedule(seed=seed, segment_bytes=12_000)), 900)
    run.world.nodes[NodeId(2)].stop_process()  # else it is killed, boots, and writes
    before, after = strike(run, astray(0, to))
    holes = [
        (path, start, start + len(batch))
        for path in changed(before, after)
        for start, batch in _batches(before[path])
        if not any(after[path][start : start + len(batch)])
    ]
    assert len({path for path, _, _ in holes}) == 1
    path, start, end = holes[0][0], holes[0][1], holes[-1][2]
    assert not any(after[path][start:end]), "it was one write"
    wrote, ends = before[path][start:end], dict(_ends_below_marks(run.world.nodes[NodeId(2)].disk))
    (victim,) = [each for each in after if wrote in after[each]]
    place = after[victim].index(wrote)
    assert end <= ends[path]
    assert 4_096 <= place <= ends[victim] - len(wrote)
    assert (place in [at for at, _ in _batches(before[victim])]) >= (to == "batch")
    assert [len(after[each]) for each in after] == [len(before[each]) for each in before]
    whole = bytearray(after[path])
    whole[start:end] = wrote
    if victim != path:
        assert bytes(whole) == before[path], "nothing else changed there"
    assert run.world.nodes[NodeId(2)].number in run.nemesis.atlas.damaged


@pytest.mark.parametrize("to", ["index", "snapshot"])
def test_a_write_may_lie_in_a_small_file_as_far_as_that_goes(to):
    moves = [step(at, "create-topic", topic=at // 200, partitions=2) for at in (150, 350, 550)]
    run = until(Run(schedule(*moves, segment_bytes=12_000, snapshot_every=4)), 900)
    before, after = strike(run, astray(0, to))
    assert any(f".{to}" in path for path in changed(before, after))
    assert [len(after[path]) for path in after] == [len(before[path]) for path in before]


@pytest.mark.parametrize("to", ["batch", "bytes", "index", "snapshot"])
@pytest.mark.parametrize("node", ["leader:0", "n2"])
def test_a_write_that_went_astray_is_survived(to, node):
    options = {"segment_bytes": 12_000, "snapshot_every": 4}
    power = step(900, "power", 60, node="all", keep="none")
    result = simulate(schedule(astray(600, to, node), power, **options))
    assert result.failure == ""
    assert result.faults["misdirect"] == 1


def test_no_write_goes_astray_beyond_the_atlas():
    run = until(Run(schedule()), 900)
    assert run.nemesis.atlas.allow(NodeId(1))
    before, after = strike(run, astray(0, "bytes"))
    assert before == after
    assert run.nemesis.done == {}


def test_what_no_mark_speaks_of_does_not_go_astray(monkeypatch):
    run = until(Run(schedule()), 900)
    monkeypatch.setattr(rot_faults, "_ends_below_marks", lambda disk: [])
    before, after = strike(run, astray(0, "batch"))
    assert before == after
    assert NodeId(2) not in run.nemesis.atlas.damaged


def test_a_process_that_stands_still_cannot_be_killed_and_is_left():
    run = until(Run(schedule()), 900)
    run.world.nodes[NodeId(2)].suspend()
    before, after = strike(run, astray(0, "batch"))
    assert before == after

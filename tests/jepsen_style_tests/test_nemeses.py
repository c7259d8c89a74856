"""Every nemesis breaks what it says, nothing more, and `heal` repairs it wherever it was left."""

from itertools import islice

import pytest

from jepsen_style_tests.control import BROKEN_DISK
from jepsen_style_tests.nemeses import clocks, damage, disks, partitions
from jepsen_style_tests.nemeses.all import NEMESES
from jepsen_style_tests.proxy import CLIENTS
from jepsen_style_tests.scenarios import SCENARIOS
from jepsen_style_tests.world import EVERYBODY
from raftlog.verify.histories.history import Op
from raftlog.verify.report.trace import faults_of
from tests.jepsen_style_tests.worlds import booked

ALL = {**NEMESES, **{name: each.nemesis() for name, each in SCENARIOS.items()}}
KEEP_A_MAJORITY = (
    "kill-one",
    "kill-leader",
    "rolling",
    "transfers",
    "pause-and-kill",
    "bit-flips",
    "wipe",
    "failing-sync",
    "nats-7549",
    "nats-7567",
    "wiped-disk-replacement",
)


def brokers(name: str) -> int:
    return SCENARIOS[name].brokers if name in SCENARIOS else 3


def segments(world) -> None:
    """Files with something in them, so that there is something to damage."""
    for node in world.nodes:
        (world.cluster.data_path(node) / "00.log").write_bytes(bytes(range(1, 200)) + bytes(50))


@pytest.fixture(autouse=True)
def no_real_disk(monkeypatch):
    monkeypatch.setattr(disks, "_fill", lambda ballast: ballast.write_bytes(b"full"))


def faults(world):
    """Bands as the report makes them from the notes."""
    lines = [
        Op(at, at, "nemesis", "info", f, None, value)
        for at, (f, value) in enumerate(world.note.lines)
    ]
    return faults_of(lines)


def whole(world) -> bool:
    cluster = world.cluster
    return (
        cluster.up == set(cluster.nodes)
        and not cluster.paused
        and world.links.perfect()
        and not world.namespaces.cut
        and not list(cluster.directory.rglob(disks.BALLAST))
        and all(not path.read_text() for path in cluster.directory.glob("disk*.control"))
    )


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("steps", [1, 2, 3, 5, 20])
def test_what_is_left_broken_anywhere_is_healed(tmp_path, name, steps):
    world = booked(tmp_path, seed=steps, count=brokers(name))
    segments(world)
    for wait in islice(ALL[name].steps(world), steps):
        assert 0 <= wait <= 30, "a nemesis sleeps in the runner's hands, not for ever"
    world.heal()
    assert whole(world)
    open_bands = [fault.label for fault in faults(world) if fault.end_ns is None]
    assert open_bands == [], "every band in the report ends"


@pytest.mark.parametrize("name", [name for name in ALL if name != "none"])
def test_every_nemesis_does_something_and_says_so(tmp_path, name):
    world = booked(tmp_path, count=brokers(name))
    segments(world)
    list(islice(ALL[name].steps(world), 12))
    assert faults(world)


@pytest.mark.parametrize("name", KEEP_A_MAJORITY)
@pytest.mark.parametrize("seed", range(5))
def test_who_promises_a_majority_keeps_one_alive(tmp_path, name, seed):
    world = booked(tmp_path, seed=seed, count=brokers(name))
    segments(world)
    list(islice(ALL[name].steps(world), 40))
    assert world.cluster.lowest_up * 2 > len(world.nodes)


@pytest.mark.parametrize("name", ["kill-all", "power-loss-all", "pysyncobj-202", "broken-disk"])
def test_a_power_failure_takes_everybody(tmp_path, name):
    world = booked(tmp_path)
    list(islice(ALL[name].steps(world), 4))
    assert world.cluster.lowest_up == 0
    assert "writeback" in ALL[name].setup.test_disk, "what was not synced is gone"


def test_the_leader_is_who_leads_most(tmp_path):
    world = booked(tmp_path)
    assert world.leader() == 2
    world.cluster.leaders = dict
    assert world.leader() in world.nodes


def held_by(tmp_path, name, seed, count=3):
    world = booked(tmp_path, seed=seed, count=count)
    list(islice(NEMESES[name].steps(world), 2))
    return world, world.links.held()


@pytest.mark.parametrize("seed", range(8))
def test_isolate_cuts_one_broker_both_ways(tmp_path, seed):
    world, held = held_by(tmp_path, "isolate", seed)
    (alone,) = [node for node in world.nodes if all(node in pair for pair in held)]
    assert held == set(partitions.between([alone], [n for n in world.nodes if n != alone]))


@pytest.mark.parametrize("seed", range(8))
def test_one_way_cuts_one_direction_only(tmp_path, seed):
    _, held = held_by(tmp_path, "one-way", seed)
    assert len(held) == 2
    assert not held & {(b, a) for a, b in held}
    assert len({a for a, _ in held}) == 1 or len({b for _, b in held}) == 1


@pytest.mark.parametrize("count", [3, 5])
def test_a_bridge_sees_everybody(tmp_path, count):
    world, held = held_by(tmp_path, "bridge", 3, count)
    ends = {node for pair in held for node in pair}
    (bridge,) = set(world.nodes) - ends
    assert len(held) == 2 * ((count - 1) // 2) ** 2
    assert bridge not in ends


@pytest.mark.parametrize("count", [3, 5])
def test_in_a_ring_each_is_heard_by_one(tmp_path, count):
    world, held = held_by(tmp_path, "ring", 4, count)
    whole_graph = {(a, b) for a in world.nodes for b in world.nodes if a != b}
    passes = whole_graph - held
    assert sorted(a for a, _ in passes) == world.nodes
    assert sorted(b for _, b in passes) == world.nodes


def test_lost_answers_hold_only_what_goes_to_clients(tmp_path):
    nemesis = NEMESES["lost-answers"]
    assert nemesis.setup.proxies == EVERYBODY
    world = booked(tmp_path)
    steps = nemesis.steps(world)
    list(islice(steps, 2))
    assert world.links.held()
    assert {to for _, to in world.links.held()} == {CLIENTS}
    next(steps)
    assert world.links.held() == set()
    assert world.links.resets, "and then the connections go"


def test_bits_flip_in_what_was_written_and_in_nothing_else(tmp_path):
    world = booked(tmp_path)
    segments(world)
    before = (world.cluster.data_path(1) / "00.log").read_bytes()
    flipped = damage.flip_bits(world, 1)
    after = (world.cluster.data_path(1) / "00.log").read_bytes()
    changed = [at for at, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
    assert flipped
    assert set(changed) <= set(range(len(before.rstrip(b"\0"))))
    assert (world.cluster.data_path(2) / "00.log").read_bytes() == before


def test_a_broker_whose_syncs_failed_is_started_again_by_whoever_heals(tmp_path):
    """A suite once ended in the middle of this fault: the disk was well again, the broker was left
    as it was, distrusting it for good, and the run was called invalid."""
    world = booked(tmp_path)
    list(islice(NEMESES["failing-sync"].steps(world), 2))
    started = []
    world.cluster.start = started.append
    world.heal()
    assert len(started) == 1


def test_a_broker_without_files_has_nothing_to_damage(tmp_path):
    world = booked(tmp_path)
    assert damage.flip_bits(world, 1) == []


def test_a_full_tmpfs_is_really_full_and_gets_its_room_back(tmp_path, monkeypatch):
    """Method: the writes of the ballast run into an error after three chunks."""
    monkeypatch.undo()
    written = []

    class Small:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

        def write(self, data):
            if len(written) >= 3 or len(data) < 4096:
                raise OSError(28, "No space left on device")
            written.append(len(data))
            return len(data)

    class Ballast:
        def open(self, *_, **__):
            return Small()

    disks._fill(Ballast())
    assert written == [1 << 20] * 3


def test_what_is_missing_is_said(monkeypatch):
    monkeypatch.setattr(disks.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(clocks, "_PLACES", "/nowhere/libfaketime.so.1")
    assert "root" in NEMESES["disk-full-tmpfs"].setup.missing()
    assert "scripts/system_packages" in NEMESES["clock-jumps"].setup.missing()
    assert NEMESES["kill-one"].setup.missing() == ""
    assert "root" in NEMESES["drop-packets"].setup.missing()


def test_the_broken_disk_is_a_control_and_says_so():
    assert "INVALID" in BROKEN_DISK.about
    assert "skip-sync=.log" in BROKEN_DISK.setup.test_disk

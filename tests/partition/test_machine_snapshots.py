"""The state of a machine in files: written at rolls, the log start behind it, boots and installs.

The rule that everything here is about: no replica deletes a record that a durable snapshot of its
own does not cover, wherever the committed log start is.
"""

from functools import partial

import pytest
from raftlog_sim.world.disk import Keep, SimulatedCrashError

from raftlog.base import probes
from raftlog.base.errors import CorruptData, DiskError, FutureFormat
from raftlog.base.frozen import Frozen
from raftlog.base.limits import MACHINE_SNAPSHOT_BYTES_MAX, REMOVAL_PAUSE_MS
from raftlog.base.units import millis
from raftlog.partition.machine import install_judge, machine_feed
from raftlog.partition.machine.applied import (
    _DIGEST_BYTES,
    _digest,
    check_state,
    read_state,
    write_state,
)
from raftlog.partition.producing.producer_snapshot import check_producers, write_producers
from raftlog.partition.producing.producers import ProducerTable
from raftlog.storage.boot.recovery import ReplicaState, recover_replica
from raftlog.storage.replica import LogOptions, snapshot_name
from raftlog.storage.segments.snapshot import newest_snapshot, read_snapshot, snapshots_of
from tests.partition.group import ELECTION, GROUP, Group
from tests.partition.test_applied_machine import propose, values
from tests.partition.toy_machine import LastValues

SMALL = LogOptions(segment_bytes=8 * 1024, window_bytes=2 * 1024)
KEYS = 5


def filled(group, count=60, start=0):
    """Some segments full of proposals of the leader; returns the leader's number."""
    number = group.leader().me.node
    for value in range(start, start + count):
        propose(group, number, (b"%d" % (value % KEYS), b"%d" % value + b"x" * 500))
        group.settle()
    return number


def small_group(*numbers, count=60, **options):
    group = Group(*numbers, machine=LastValues, options=SMALL, **options)
    group.elect(1)
    filled(group, count)
    group.advance(ELECTION)
    return group


def covers(place, index):
    """Whether a whole snapshot of this place holds what is before the entry `index`."""
    found = newest_snapshot(place.disk, place.spec, 2**62)
    return found is not None and found[0].raft_index >= index - 1


def assert_covered(place):
    """The rule, from the files alone; an install whose round waits for the disk is not there."""
    log = place.replica.log
    if log.first_index > 1 and log.durable_end is not None:
        position, body = read_snapshot(place.disk, place.spec, log.first_index)
        assert position.raft_index == log.first_index - 1
        check_state(LastValues, GROUP, log.first_index, body)


def test_the_log_stays_short_and_all_replicas_hold_the_same():
    group = small_group(count=200)
    for number in (1, 2, 3):
        place = group.places[number]
        assert group[number].log_start > 150
        assert len(group[number].log.segments) <= 3
        assert len(snapshots_of(place.disk, place.spec.path)) <= 3
        assert_covered(place)
    assert len({group[number].machine.snapshot() for number in (1, 2, 3)}) == 1
    assert len(values(group, 1)) == KEYS


class NoBytesOnTheLoop(LastValues):
    """Its bytes take long to make."""

    def snapshot(self):
        raise AssertionError("made on the loop")

    def digest(self):
        return LastValues.snapshot(self)[-32:] or b"none"

    def frozen(self):
        made = LastValues.snapshot(self)
        return Frozen(len(made), partial(bytes, made))


def test_the_bytes_of_a_snapshot_are_made_by_the_job_that_writes_it():
    """They were made on the loop: 300 ms of 100,000 committed offsets, at each roll."""
    group = Group(1, 2, 3, machine=NoBytesOnTheLoop, options=SMALL)
    group.elect(1)
    group.places[2].jobs_held = True
    filled(group, 60)
    group.advance(ELECTION)
    assert snapshots_of(group.places[2].disk, group.places[2].spec.path) == []
    group.places[2].jobs_held = False
    group.advance(ELECTION)
    place = group.places[2]
    assert snapshots_of(place.disk, place.spec.path) != []
    assert_covered(place)


def test_a_boot_begins_with_the_newest_snapshot():
    group = small_group(count=200)
    before = group[2].machine.snapshot()
    group.crash(2)
    group.restart(2)
    assert group[2].applied_index > 150
    group.settle()
    assert group[2].machine.snapshot() == before
    assert len(group[2].machine.heard) < 40
    filled(group, 10, start=200)
    group.advance(ELECTION)
    assert group[2].machine.snapshot() == group[1].machine.snapshot()


def test_a_replica_without_a_snapshot_of_its_own_keeps_its_records(monkeypatch):
    group = Group(1, 2, 3, machine=LastValues, options=SMALL)
    group.elect(1)
    place = group.places[2]
    call, full = place.call, [True]

    def failing(function, args):
        if function.__name__ == "write_made_snapshot" and full[0]:
            return DiskError("no snapshot today", on="disk")
        return call(function, args)

    monkeypatch.setattr(place, "call", failing)
    filled(group, 100)
    group.advance(millis(2 * REMOVAL_PAUSE_MS))
    assert group[2].log_start == group[1].log_start > 50, "the log start is committed"
    assert group[1].log.first_index > 50
    assert group[2].log.first_index == 1, "and this replica needs its records"
    group.crash(2)
    group.restart(2)
    group.settle()
    assert group[2].machine.snapshot() == group[1].machine.snapshot()
    full[0] = False
    monkeypatch.setattr(place, "call", call)
    filled(group, 60, start=100)
    group.advance(millis(2 * REMOVAL_PAUSE_MS))
    assert group[2].log.first_index > 50
    assert_covered(place)


def test_a_replica_whose_snapshots_rot_keeps_its_records(monkeypatch):
    """A snapshot that is there and cannot be read covers nothing: a removal reads it first."""
    group = Group(1, 2, 3, machine=LastValues, options=SMALL)
    group.elect(1)
    place = group.places[2]
    call = place.call

    def rotting(function, args):
        result = call(function, args)
        if function.__name__ == "write_made_snapshot":
            spoil(place, args[1].raft_index + 1)
        return result

    monkeypatch.setattr(place, "call", rotting)
    filled(group, 100)
    group.advance(millis(2 * REMOVAL_PAUSE_MS))
    assert group[2].log_start > 50
    assert group[2].log.first_index == 1
    group.crash(2)
    group.restart(2)
    group.settle()
    assert group[2].machine.snapshot() == group[1].machine.snapshot()


def test_the_leader_proposes_no_log_start_before_its_own_snapshot_is_durable():
    group = Group(1, 2, 3, machine=LastValues, options=SMALL)
    group.elect(1)
    group.places[1].jobs_held = True
    filled(group, 100)
    group.advance(ELECTION)
    assert [group[n].log_start for n in (1, 2, 3)] == [0, 0, 0]
    assert [group[n].log.first_index for n in (1, 2, 3)] == [1, 1, 1]
    group.places[1].jobs_held = False
    group.advance(ELECTION)
    assert group[1].log_start > 50


def test_a_new_leader_goes_on_where_its_own_snapshots_are():
    group = Group(1, 2, 3, machine=LastValues, options=SMALL)
    group.elect(1)
    group.places[1].jobs_held = True
    filled(group, 100)
    group.elect(2)
    group.advance(ELECTION)
    assert group[2].log_start > 50
    assert group[3].log.first_index > 50
    assert group[1].log.first_index == 1


def test_a_replica_below_the_leaders_log_gets_the_state_with_the_install():
    group = small_group(count=5)
    group.crash(3)
    filled(group, 200, start=5)
    group.advance(millis(2 * REMOVAL_PAUSE_MS))
    first = group[1].log.first_index
    assert first > 100
    group.restart(3)
    group.advance(3 * ELECTION)
    assert group[3].log.first_index >= first
    assert group[3].applied_index == group[3].commit == group[1].commit
    assert group[3].machine.snapshot() == group[1].machine.snapshot()
    assert len(group[3].machine.heard) < 40, "the rest came as state"
    assert_covered(group.places[3])
    filled(group, 60, start=205)
    group.crash(3)
    group.restart(3)
    group.advance(ELECTION)
    assert group[3].machine.snapshot() == group[1].machine.snapshot()


def test_a_state_whose_job_failed_is_judged_again_where_it_is_installed(monkeypatch):
    def failing(*_):
        raise CorruptData("no memory for a machine")

    monkeypatch.setattr(install_judge, "judged_machine", failing)
    group = small_group(count=5)
    group.crash(3)
    filled(group, 200, start=5)
    group.advance(millis(2 * REMOVAL_PAUSE_MS))
    group.restart(3)
    probes.reset()
    group.advance(3 * ELECTION)
    assert probes.fired()["install-judged-by-a-job"]
    assert probes.fired()["machine-installed"]
    assert group[3].machine.snapshot() == group[1].machine.snapshot()


def test_a_replica_that_replays_takes_an_install_over():
    """The read that it waits for comes back when its log is another one."""
    group = small_group(count=5)
    group.crash(3)
    filled(group, 200, start=5)
    group.advance(millis(2 * REMOVAL_PAUSE_MS))
    group.restart(3)
    group.places[3].jobs_held = True
    group.advance(3 * ELECTION)
    group.places[3].jobs_held = False
    group.advance(ELECTION)
    assert group[3].machine.snapshot() == group[1].machine.snapshot()
    assert group[3].applied_index == group[3].commit


def test_a_damaged_snapshot_is_passed_over_and_the_log_before_it_replayed():
    group = Group(1, 2, 3, machine=LastValues, options=SMALL)
    group.elect(1)
    group.places[1].jobs_held = True  # so that the log start stays
    filled(group, 60)
    group.advance(ELECTION)
    place = group.places[2]
    expected = group[2].machine.snapshot()
    group.crash(2)
    stored = snapshots_of(place.disk, place.spec.path)
    assert len(stored) > 2
    spoil(place, stored[-1])
    group.restart(2)
    group.advance(ELECTION)
    assert group[2].machine.snapshot() == expected
    assert len(group[2].machine.heard) > 60 - stored[-1]


def test_a_replica_whose_log_begins_with_a_damaged_snapshot_is_lost():
    """It must not go on with the entries that are left: it would hold less than was committed."""
    group = small_group(count=60)
    place = group.places[2]
    first = group[2].log.first_index
    assert first > 1
    group.crash(2)
    for before in snapshots_of(place.disk, place.spec.path):
        spoil(place, before)
    recovered = recover_replica(place.disk, place.spec, None, SMALL)
    assert recovered.state is ReplicaState.LOST
    assert recovered.log is None


def spoil(place, before):
    file = place.disk.open(f"{place.spec.path}/{snapshot_name(before)}")
    file.write_at(100, [b"rot"])
    file.sync()


@pytest.mark.parametrize("keep", [Keep.ALL, Keep.NONE, Keep.SOME])
def test_a_crash_at_every_call_loses_nothing_that_the_machine_needs(keep):
    """One replica, so that no leader can install it: every changing disk call of a run that writes
    snapshots, moves the log start and removes segments is the last one of some run."""
    reached = 0
    for crash_at in range(1, 400):
        group = Group(1, machine=LastValues, options=SMALL)
        group.elect(1)
        place = group.places[1]
        place.disk.crash_at = place.disk.mutations + crash_at
        place.disk.crash_tears = keep is Keep.SOME
        answered, crashed = {}, False
        try:
            for number in range(18):
                key, value = b"%d" % (number % KEYS), b"%d" % number + b"x" * 1500
                for answer in [propose(group, 1, (key, value))]:
                    group.settle()
                    assert [one.error for one in answer] == [0]
                    answered[key] = value
        except SimulatedCrashError:
            crashed = True
        group.crash(1, keep)
        group.restart(1)
        assert_covered(place)
        group.elect(1)
        group.settle()
        held = values(group, 1)
        # The last proposal may be there though its answer was lost.
        differ = [key for key in answered if held.get(key) != answered[key]]
        assert len(differ) <= 1, (crash_at, differ)
        for key in differ:
            assert held[key].split(b"x")[0] == b"%d" % len(_done(answered))
        replayed = LastValues()
        replayed.restore(group[1].machine.snapshot())
        assert replayed.values == held
        if not crashed:
            reached = crash_at
            assert group[1].log_start > 0
            assert group[1].log.first_index > 1
            break
    assert reached > 100, "the run ends at last, and it is not a short one"


def _done(answered):
    return range(max((int(value.split(b"x")[0]) for value in answered.values()), default=-1) + 1)


# --- the body -------------------------------------------------------------------------------------


def body(machine=None, before=2):
    producers = write_producers(ProducerTable(), group=GROUP, before=before)
    return write_state(producers, (machine or LastValues()).snapshot())


def test_the_body_holds_both_parts():
    toy = LastValues()
    toy.values[b"k"] = b"v"
    check_state(LastValues, GROUP, 2, body(toy))
    state = read_state(GROUP, body(toy))
    check_producers(GROUP, 2, state.producers)
    found = LastValues()
    found.restore(state.machine)
    assert found.values == {b"k": b"v"}


def test_a_body_with_any_byte_changed_is_none():
    whole = body()
    for place in range(len(whole)):
        rotten = bytearray(whole)
        rotten[place] ^= 1
        with pytest.raises((CorruptData, FutureFormat)):
            check_state(LastValues, GROUP, 2, bytes(rotten))
    for size in range(len(whole)):
        with pytest.raises(CorruptData):
            check_state(LastValues, GROUP, 2, whole[:size])


def test_a_body_with_more_behind_it_is_none():
    """Its digest fits, so the writer meant it; this release does not know what it means."""
    content = body()[:-_DIGEST_BYTES] + b"\0"
    with pytest.raises(CorruptData, match="1 bytes"):
        read_state(GROUP, content + _digest(content))


def test_a_body_whose_machine_is_none_is_none():
    """The frame is whole; what the machine gave is not its state."""
    producers = write_producers(ProducerTable(), group=GROUP, before=2)
    with pytest.raises(CorruptData, match="not a toy"):
        check_state(LastValues, GROUP, 2, write_state(producers, b"nonsense"))


def test_a_body_of_another_place_is_none():
    with pytest.raises(CorruptData, match="before 2"):
        check_state(LastValues, GROUP, 3, body(before=2))


def test_producer_state_alone_is_not_the_state_of_a_partition_with_a_machine():
    alone = write_producers(ProducerTable(), group=GROUP, before=2)
    with pytest.raises(CorruptData, match="machine is missing"):
        check_state(LastValues, GROUP, 2, alone)


def test_a_replica_without_the_machine_keeps_its_files():
    """An older release, too: it knows version 1 only."""
    with pytest.raises(FutureFormat, match="version 2"):
        check_producers(GROUP, 2, body())


def test_a_machine_that_is_too_large_is_not_stored_and_keeps_its_log(monkeypatch):
    assert MACHINE_SNAPSHOT_BYTES_MAX > 1000
    monkeypatch.setattr(machine_feed, "MACHINE_SNAPSHOT_BYTES_MAX", 1000)
    group = small_group(count=60)
    assert group[1].log_start == 0
    assert group[1].log.first_index == 1
    place = group.places[1]
    assert snapshots_of(place.disk, place.spec.path) == []
    told = [e for e in place.tracer.events if e.name == "machine-snapshot-too-large"]
    assert told
    assert covers(place, 1) is False

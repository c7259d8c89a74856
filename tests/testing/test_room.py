"""A room: faults in force, their counts, and the file that a broker reads them from."""

import threading

import pytest

from raftlog.base.errors import LocalMisuse
from raftlog.testing.room import FAULTS_MAX, FaultRoom
from raftlog.testing.uses import MATCHES_MAX, FileUses, MemoryUses, used

ONCE = {"do": "drop_response", "on": "Produce", "times": 1, "id": "once"}
THIRD = {"do": "drop_response", "on": "Produce", "nth": 3, "id": "third"}
FROM_SECOND_TWICE = {"do": "drop_response", "on": "Produce", "nth": 2, "times": 2, "id": "two"}
ALWAYS = {"do": "drop_response", "on": "Produce", "id": "always"}


@pytest.fixture(params=["memory", "file"])
def room(request, tmp_path):
    return FaultRoom(1, folder=tmp_path / "faults" if request.param == "file" else None)


@pytest.mark.parametrize(
    ("told", "acts"),
    [
        (ONCE, [True, False, False, False]),
        (THIRD, [False, False, True, False]),
        (FROM_SECOND_TWICE, [False, True, True, False]),
        (ALWAYS, [True, True, True, True]),
    ],
)
def test_once_nth_always(room, told, acts):
    fault = room.install(told)
    assert [room.acts(fault) for _ in range(4)] == acts
    assert room.used(fault) == sum(acts)
    assert [(each["id"], each["used"]) for each in room.listed()] == [(fault.id, sum(acts))]


def test_once_means_once_for_all_brokers_of_a_folder(tmp_path):
    """Each broker process has its own room and its own descriptor."""
    rooms = [FaultRoom(node, folder=tmp_path) for node in (1, 2, 3)]
    faults = [room.install(ONCE) for room in rooms]
    acted = []

    def meet(room, fault):
        acted.extend(room.acts(fault) for _ in range(200))

    threads = [threading.Thread(target=meet, args=each) for each in zip(rooms, faults, strict=True)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(acted) == 600
    assert sum(acted) == 1
    assert [room.used(fault) for room, fault in zip(rooms, faults, strict=True)] == [1, 1, 1]


def test_a_broker_that_starts_again_has_its_faults_and_counts(tmp_path):
    before = FaultRoom(1, folder=tmp_path)
    before.acts(before.install(ONCE))
    before.install({"do": "partition", "groups": [[1], [2]], "id": "cut"})
    again = FaultRoom(1, folder=tmp_path)
    assert [(each["id"], each["used"]) for each in again.listed()] == [("once", 1), ("cut", 0)]
    assert not again.acts(again.api[0])
    assert FaultRoom(2, folder=tmp_path).listed() == []


def test_a_file_that_changed_is_read_before_the_next_turn(tmp_path):
    broker, test = FaultRoom(1, folder=tmp_path), FaultRoom(1, folder=tmp_path)
    test.install({"do": "full_disk", "id": "full"})
    assert not broker.disk_now().full
    broker.refresh()
    assert broker.disk_now().full
    test.remove("full")
    broker.refresh()
    assert not broker.disk_now().full


def test_an_id_is_in_force_once_and_there_is_a_bound(room):
    room.install(ONCE)
    with pytest.raises(LocalMisuse, match="fault once is in force already"):
        room.install(ONCE)
    for _ in range(FAULTS_MAX - 1):
        room.install({"do": "full_disk"})
    with pytest.raises(LocalMisuse, match="64 faults are in force"):
        room.install({"do": "full_disk"})
    assert room.remove("once")
    assert not room.remove("once")
    room.install(ONCE)
    room.clear()
    assert room.listed() == []


def test_disk_faults_of_one_kind_add_up(room):
    room.install({"do": "slow_disk", "ms": 5, "id": "a"})
    room.install({"do": "slow_disk", "ms": 7, "id": "b"})
    assert room.disk_now().slow_sync_ms == 12
    room.disk_used("slow_disk")
    room.disk_used("full_disk")
    assert [each["used"] for each in room.listed()] == [1, 1]


def test_a_broker_is_told_of_each_change(room):
    told = []
    room.attach(lambda: told.append(len(room.listed())))
    room.install(ONCE)
    room.remove("once")
    room.clear()
    assert told == [1, 0, 0]


@pytest.mark.parametrize("kind", [MemoryUses, FileUses])
def test_matches_are_counted_up_to_a_bound(kind, tmp_path, monkeypatch):
    assert MATCHES_MAX == 1_000_000
    monkeypatch.setattr("raftlog.testing.uses.MATCHES_MAX", 3)
    uses = kind(tmp_path) if kind is FileUses else kind()
    assert uses.matches("f") == 0
    assert [uses.match("f") for _ in range(5)] == [1, 2, 3, 3, 3]
    assert uses.matches("f") == 3


def test_used_of_matches():
    assert [used(matches, 2, 2) for matches in range(6)] == [0, 0, 1, 2, 2, 2]
    assert [used(matches, 1, None) for matches in range(3)] == [0, 1, 2]

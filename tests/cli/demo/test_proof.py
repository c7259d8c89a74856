"""Each claim of the demo holds on a right reading and falls on one planted fault."""

import zipfile

import pytest

from raftlog.base.errors import OperatingError
from raftlog.cli.demo import flights, proof
from raftlog.cli.demo.proof import DemoFault, ReadRecord, ReplicaLog

RIGHT = [
    ReadRecord(0, 0, 0, b"N1"),
    ReadRecord(0, 1, 2, b"N1"),
    ReadRecord(1, 0, 1, b"N2"),
    ReadRecord(1, 1, 3, None),
]
ENDS = {0: 2, 1: 2}


def test_a_right_reading_passes_every_claim():
    assert proof.exactly_once(range(4), RIGHT).holds
    assert proof.nothing_invented(4, RIGHT).holds
    assert proof.key_order(RIGHT).holds
    assert proof.dense(RIGHT, ENDS).holds


def test_a_lost_record_is_named():
    claim = proof.exactly_once(range(5), RIGHT)
    assert not claim.holds
    assert "the first is 4" in claim.evidence


def test_a_doubled_record_is_named():
    claim = proof.exactly_once(range(4), [*RIGHT, ReadRecord(0, 2, 0, b"N1")])
    assert not claim.holds
    assert "more than once: 1 row, the first is 0" in claim.evidence


def test_an_unacknowledged_record_may_be_there_once():
    assert proof.exactly_once([0, 1], RIGHT).holds


def test_an_invented_record_is_shown():
    assert not proof.nothing_invented(3, RIGHT).holds


@pytest.mark.parametrize(
    "swapped",
    [
        [ReadRecord(0, 0, 2, b"N1"), ReadRecord(0, 1, 0, b"N1")],
        [ReadRecord(0, 0, 0, b"N1"), ReadRecord(1, 0, 2, b"N1")],
        [ReadRecord(0, 0, 0, b"N1"), ReadRecord(0, 1, 0, b"N1")],
    ],
    ids=["reordered", "in two partitions", "twice"],
)
def test_a_broken_key_order_is_shown(swapped):
    claim = proof.key_order(swapped)
    assert not claim.holds
    assert "N1" in claim.evidence


@pytest.mark.parametrize(
    ("read", "words"),
    [
        (RIGHT[:1] + RIGHT[2:], "offset 1 is missing"),
        ([*RIGHT, ReadRecord(0, 2, 9, None)], "3 records"),
    ],
)
def test_a_hole_or_a_record_too_many_is_named(read, words):
    claim = proof.dense(read, ENDS)
    assert not claim.holds
    assert words in claim.evidence


def logs(*contents: str) -> list[ReplicaLog]:
    return [ReplicaLog(node, 0, "c1", each) for node, each in enumerate(contents, start=1)]


def test_replicas_must_agree_and_all_be_there():
    assert proof.replicas_equal(logs("a", "a", "a"), 3).holds
    assert not proof.replicas_equal(logs("a", "b", "a"), 3).holds
    assert not proof.replicas_equal(logs("a", "a"), 3).holds
    assert not proof.replicas_equal([], 3).holds


def fault(after: dict, acks: int) -> DemoFault:
    return DemoFault("kill", 1, {0: 3, 1: 4}, after, acks, 10.0)


def test_a_fault_without_effect_fails_the_demo():
    assert proof.faults_took_effect([fault({0: 3, 1: 5}, 9)]).holds
    assert not proof.faults_took_effect([fault({0: 3, 1: 4}, 9)]).holds
    assert not proof.faults_took_effect([fault({0: 4, 1: 4}, 0)]).holds
    assert not proof.faults_took_effect([]).holds


def test_flights_are_read_from_the_archive(tmp_path):
    path = tmp_path / "flights.csv.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("flights.csv", "year,tailnum,x\n2013,N14228,1\n2013,NA,2\n2013,,3\n")
    found = list(flights.read_flights(path))
    assert [each.key for each in found] == [b"N14228", None, None]
    assert found[1].value == b"1,2013,NA,2"
    assert found[0].name == "N14228#0"
    assert found[2].name == "#2"
    assert flights.row_of(found[2].value) == 2
    assert len(list(flights.read_flights(path, rows_max=2))) == 2


def test_another_file_is_refused(tmp_path):
    path = tmp_path / "flights.csv.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("flights.csv", "a,b\n1,2\n")
    with pytest.raises(OperatingError, match="no column tailnum"):
        list(flights.read_flights(path))

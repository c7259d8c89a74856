"""Goal: the output of a replica says what changed in its turn, and nothing else."""

from tests.partition.group import ELECTION
from tests.partition.test_replica_produce import led


def test_committed_is_said_when_the_commit_moved_and_only_then():
    group = led()
    for value in (b"a", b"b"):
        group.produce(1, value)
        group.settle()
    group.advance(ELECTION)
    told = {number: len(place.outputs) for number, place in group.places.items()}
    for place in group.places.values():
        assert any(output.committed for output in place.outputs)
    group.advance(ELECTION)
    for number, place in group.places.items():
        quiet = place.outputs[told[number] :]
        assert quiet
        assert not any(output.committed for output in quiet)

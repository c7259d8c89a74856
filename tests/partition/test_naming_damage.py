"""The trace of a damaged replica names its damage."""

from types import SimpleNamespace

from raftlog.base.trace import TraceEvent
from raftlog.partition.boot import naming_damage
from raftlog.raft.following import HEALED
from raftlog.storage.boot.recovery import RecoveredReplica, ReplicaState


def test_a_damaged_replica_tells_everything_and_names_the_damage_when_it_has_healed():
    told = []
    recovered = RecoveredReplica(state=ReplicaState.DAMAGED, why="a bit", claimed=(9, 2))
    tracer = naming_damage(SimpleNamespace(emit=told.append), recovered)
    for name in ("step-down", HEALED):
        tracer.emit(TraceEvent(name, "group 3", (("match", "9"),)))
    assert [(event.name, event.fields) for event in told] == [
        ("step-down", (("match", "9"),)),
        (HEALED, (("match", "9"), ("damage", "a bit"))),
    ]

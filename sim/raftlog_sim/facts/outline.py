"""The parts of a replica whose change calls for a check, and of a committed entry that checks
see."""

from typing import Final, NamedTuple

from raftlog.partition.replica import PartitionReplica


class Seen(NamedTuple):
    """A committed entry."""

    term: int
    chain: int


class Outline(NamedTuple):
    """The parts of a replica that are compared after each turn."""

    boot: int
    term: int
    leading: bool
    last_index: int
    last_term: int
    durable: int
    commit: int
    high_watermark: int
    membership_index: int


NOTHING: Final = Outline(0, 0, False, 0, 0, 0, 0, 0, 0)


def outline_of(boots: int, replica: PartitionReplica) -> tuple[object, ...]:
    """Returns the fields of an `Outline`, in few steps, since every turn needs them of every
    replica."""
    log = replica.log
    term, leading, commit, membership_index = replica.node.standing()
    return (
        boots,
        term,
        leading,
        log.last_index,
        log.last_term,
        log.durable_index,
        commit,
        replica.high_watermark,
        membership_index,
    )

"""What of a replica is worth another look when it changed; what is seen of a committed entry."""

from typing import Final, NamedTuple

from raftlog.partition.replica import PartitionReplica


class Seen(NamedTuple):
    """A committed entry."""

    term: int
    chain: int


class Outline(NamedTuple):
    """See the module."""

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
    """The fields of an `Outline`; reckoned for every replica at every turn, so in short steps."""
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

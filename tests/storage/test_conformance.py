"""PartitionLog and the in-memory log of Raft's tests answer every question of RaftLog alike."""

from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.entries import InstallPosition
from raftlog.raft.log_view import RaftLog
from raftlog.records.chain import chain_start
from tests.raft.memory_log import CLUSTER as THEIR_CLUSTER
from tests.raft.memory_log import MemoryLog
from tests.storage.making import CLUSTER, FOUNDERS, SPEC, Driver, new_disk

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 3)),
        st.tuples(st.just("term"), st.just(0)),
        st.tuples(st.just("truncate"), st.integers(0, 5)),
        st.tuples(st.just("install"), st.integers(0, 3)),
        st.tuples(st.just("round"), st.just(0)),
    ),
    max_size=25,
)


def same_answers(mine: RaftLog, theirs: RaftLog) -> None:
    for name in ("first_index", "last_index", "last_term", "next_offset"):
        assert getattr(mine, name) == getattr(theirs, name), name
    for index in range(mine.first_index - 2, mine.last_index + 3):
        assert mine.term_at(index) == theirs.term_at(index), index
        assert mine.chain_at(index) in (theirs.chain_at(index), None), index
        if mine.first_index <= index <= mine.last_index:
            for bytes_max in (1, 300, 10_000):
                assert mine.entries(index, bytes_max) == theirs.entries(index, bytes_max)
            assert mine.chain_at(index - 1) is not None
    assert mine.chain_at(mine.last_index) is not None
    for term in range(mine.last_term + 2):
        assert mine.first_index_of(term) == theirs.first_index_of(term), term
        assert mine.last_index_at_or_below(term) == theirs.last_index_at_or_below(term), term


@given(STEPS)
def test_the_same_answers(steps):
    driver = Driver(new_disk())
    mine, theirs = driver.log, MemoryLog(SPEC.group)
    theirs._chains = [chain_start(CLUSTER, SPEC.group)]
    assert CLUSTER != THEIR_CLUSTER
    theirs.memberships = [(0, FOUNDERS)]
    for step, number in [("term", 0), *steps]:
        first = mine.last_index + 1
        if step == "append":
            driver.append(number)
            theirs.append(mine.entries(first, 1 << 20))
        elif step == "term":
            driver.lead(mine.last_term + 1)
            theirs.append(mine.entries(first, 1 << 20))
        elif step == "truncate" and mine.last_index - number >= mine.first_index:
            index = mine.last_index - number
            mine.truncate_from(index)
            theirs.truncate_from(index)
        elif step == "install":
            position = InstallPosition(
                raft_index=mine.last_index + number,
                term=mine.last_term + 1,
                chain=mine.last_chain ^ 1,
                next_offset=mine.next_offset + number,
                log_start=0,
                membership=FOUNDERS,
                membership_index=0,
            )
            mine.install(position, b"s")
            theirs.install(position, b"s")
        elif step == "round":
            driver.round()
        same_answers(mine, theirs)
        assert mine.memberships == theirs.memberships

"""Any damage at rest, anywhere: what was marked is never cut in silence, nothing false is served.

Hypothesis draws a log (rolls, truncations, terms), then faults on its files: flipped bits, alien
bytes, cut and lost files, headers, indexes and snapshots included. After a boot the replica is
whole with everything that was marked, or it says that it is damaged or lost.
"""

import contextlib

from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from raftlog_sim.world.disk import Keep

from raftlog.base.errors import RaftlogError
from raftlog.storage.boot.recovery import ReplicaState
from raftlog.storage.segments.snapshot import write_snapshot
from tests.storage.making import SPEC, Driver, new_disk

FAULTS = st.lists(
    st.tuples(
        st.sampled_from(["flip", "alien", "cut", "vanish", "swap"]),
        st.integers(0, 2**16),
        st.integers(0, 2**16),
        st.binary(min_size=1, max_size=80),
    ),
    min_size=1,
    max_size=4,
)
HISTORY = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 600)),
        st.tuples(st.just("term"), st.just(0)),
        st.tuples(st.just("cut"), st.integers(0, 3)),
        st.tuples(st.just("snapshot"), st.just(0)),
    ),
    min_size=3,
    max_size=25,
)


def grown(history):
    """A log with that history, all of it durable, marked and committed."""
    driver = Driver(new_disk())
    driver.lead(1)
    for step, number in history:
        if step == "append":
            driver.append(size=number)
        elif step == "term":
            driver.lead(driver.log.last_term + 1)
        elif step == "cut" and driver.log.last_index - number > 1:
            driver.log.truncate_from(driver.log.last_index - number)
        elif step == "snapshot" and driver.log.segments:
            for segment in driver.log.segments[1:]:
                position = driver.log.position_before(segment.first_index)
                write_snapshot(driver.disk, SPEC, position, b"state")
        driver.round()
    driver.settle()
    driver.commit_all()
    driver.settle()
    return driver


def spoil(driver, fault):
    """Apply one fault to one of the replica's files."""
    kind, which, where, content = fault
    disk = driver.disk
    paths = [path for path in disk.paths() if path.startswith(SPEC.path)]
    if not paths:
        return
    path = paths[which % len(paths)]
    size = len(disk.content(path))
    if kind == "vanish":
        disk.vanish(path)
    elif size and kind == "flip":
        # Headers are mostly zeros: half of the draws go to where batches are.
        position = where % size if where % 2 or size <= 4096 else 4096 + where % (size - 4096)
        disk.flip_bit(path, position, where % 8)
    elif size and kind == "alien":
        disk.overwrite(path, where % size, content)
    elif kind == "cut":
        disk.shorten(path, where % (size + 1))
    elif kind == "swap":
        disk.overwrite(path, 0, disk.content(paths[where % len(paths)])[: len(content) * 60])


# A file that only said that what follows is void is lost: what it cut must not come back.
LOST_CUT = (
    [("append", 400), ("append", 400), ("append", 400), ("cut", 0), ("cut", 0)],
    [("vanish", 2, 0, b"x")],
)

# A lost file had put entries of term 1 in the place of one of term 2, which an older file shows.
LOST_LOWER_TERM = (
    [
        *[("append", 198), ("cut", 3), ("append", 188), ("term", 0), ("cut", 0), ("snapshot", 0)],
        *[("append", 84), ("cut", 3), ("snapshot", 0), ("cut", 3), ("snapshot", 0)],
        *[("snapshot", 0), ("append", 474), ("snapshot", 0)],
    ],
    [
        ("vanish", 8124, 31, b"&\xcf<\x0b"),
        ("cut", 424, 5790, b"\xd6\xd3\x8b."),
        ("vanish", 22381, 560, b'f\x8f"P\x88\xaf'),
    ],
)


@settings(max_examples=60, phases=[Phase.explicit, Phase.generate])
@example(*LOST_CUT)
@example(*LOST_LOWER_TERM)
@given(HISTORY, FAULTS)
def test_whole_or_it_says_so(history, faults):
    driver = grown(history)
    truth = driver.read_all()
    last, chain, term = driver.log.last_index, driver.log.last_chain, driver.log.last_term
    for fault in faults:
        spoil(driver, fault)
    found = driver.crash(Keep.NONE)
    if found.state is ReplicaState.LOST:
        assert found.log is None
        assert found.why
        return
    log = driver.log
    served = []
    with contextlib.suppress(RaftlogError):
        served = driver.read_all(400)
    if found.state is ReplicaState.INTACT:
        assert (log.last_index, log.last_chain) == (last, chain)
        assert served in ([], truth)
    else:
        assert log.last_index < last
        # The store is whole, and its mark is of the log's end.
        assert found.claimed == (last, term)
        assert served == truth[: len(served)]

"""An index file with a right checksum and rows that lead nowhere is rebuilt from the log.

The story: a right checksum was taken as proof that our own code wrote the file. A row of Raft's own
entries with four bytes raised `struct.error` at a boot. A row of four gigabytes had them made room
for. One at a place beyond 2^63 was an `OverflowError` of the system call, and terms out of order an
`AssertionError`. All that came from a file that can be deleted at any time.
"""

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from raftlog_sim.world.disk import Keep

from raftlog.base.checksum import crc32c
from raftlog.base.entries import EntryKind, Membership
from raftlog.base.errors import CorruptData
from raftlog.records.control import write_log_start, write_membership_body
from raftlog.storage.boot.recovery import ReplicaState, recover_replica
from raftlog.storage.files import write_whole
from raftlog.storage.replica import index_name
from raftlog.storage.segments.sparse_index import (
    ControlRow,
    Point,
    TermRow,
    read_index_file,
    write_index_file,
)
from tests.storage.making import FOUNDERS, ME, SPEC, TINY, Driver

INTERVAL = TINY.interval_bytes
NUMBERS = st.one_of(
    st.integers(0, 100), st.sampled_from([4096, 2**31, 2**32 - 1, 2**63, 2**64 - 1])
)
SMALL = NUMBERS.map(lambda number: min(number, 2**32 - 1))


def made():
    """A log of three segments or more, the first of which has some of everything."""
    driver = Driver()
    driver.lead(1)
    driver.append(2)
    driver.lead(3)
    for kind, body in (
        (EntryKind.MEMBERSHIP, write_membership_body(Membership((ME,)))),
        (EntryKind.LOG_START, write_log_start(1)),
        (EntryKind.MEMBERSHIP, write_membership_body(FOUNDERS)),
    ):
        driver.log.append([driver.control(kind, body)])
    driver.append(30, 3)
    driver.commit_all()
    driver.settle()
    assert len(driver.log.segments) > 2
    driver.disk.crash(Keep.NONE)
    driver._open()
    return driver


DRIVER = made()
MARK = DRIVER.image.marks[SPEC.group]
PATH = index_name(DRIVER.log.segments[0].path)
STORED = read_index_file(DRIVER.disk.content(PATH), INTERVAL, PATH)
assert len(STORED.sparse) > 1
assert len(STORED.sparse.terms) == 2
assert len(STORED.sparse.controls) == 5


def boot(content):
    disk = copy.deepcopy(DRIVER.disk)
    write_whole(disk, PATH, content)
    return recover_replica(disk, SPEC, MARK, TINY)


TRUTH = boot(b"")


def agrees(found):
    """Check that the boot's log agrees with the batches; it may not have looked at all of them."""
    assert (found.state, found.why) == (ReplicaState.INTACT, "")
    log, truth = found.log, TRUTH.log
    assert (log.last_index, log.last_chain, log.last_term) == (
        truth.last_index,
        truth.last_chain,
        truth.last_term,
    )
    for segment, true in zip(log.segments, truth.segments, strict=True):
        assert (segment.end, segment.end_position) == (true.end, true.end_position)


def changed(points=None, terms=None, controls=None):
    sparse = STORED.sparse.copy()
    if points is not None:
        sparse.cut(0)
        for point in points:
            sparse.add_point(point)
        sparse.terms, sparse.controls = STORED.sparse.terms, STORED.sparse.controls
    sparse.terms = sparse.terms if terms is None else terms
    sparse.controls = sparse.controls if controls is None else controls
    return write_index_file(STORED._replace(sparse=sparse))


FIRST, *_, LAST = STORED.sparse.controls
IMPOSSIBLE = {
    "small": changed(controls=[FIRST._replace(size=60)]),
    "large": changed(controls=[FIRST._replace(size=2**32 - 1)]),
    "far": changed(controls=[FIRST._replace(position=2**64 - 100)]),
    "beyond the end": changed(controls=[FIRST._replace(position=STORED.end.position - 1)]),
    "not in the header": changed(controls=[FIRST._replace(position=4095)]),
    "one in the other": changed(controls=[FIRST, LAST._replace(position=FIRST.position + 1)]),
    "twice": changed(controls=[LAST, LAST]),
    "terms fall": changed(terms=[TermRow(9, 2, 0), TermRow(3, 4, 2)]),
    "a term before": changed(terms=[TermRow(3, 0, 0)]),
    "a term behind": changed(terms=[TermRow(3, STORED.end.raft_index, 0)]),
    "points fall": changed(points=STORED.sparse.points()[::-1]),
    "a point behind": changed(points=[STORED.end._replace(position=STORED.end.position + 1)]),
    "end before the points": write_index_file(STORED._replace(end=STORED.sparse.point(0))),
}


@pytest.mark.parametrize("content", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_what_no_segment_has_is_corrupt(content):
    with pytest.raises(CorruptData):
        read_index_file(content, INTERVAL, PATH)
    agrees(boot(content))


@pytest.mark.parametrize(
    "terms",
    [[], [TermRow(1, 1, 0), TermRow(4, 4, 2)], [TermRow(0, 1, 0), TermRow(3, 4, 2)]],
    ids=["none", "last is another", "begins in the term before"],
)
def test_terms_that_do_not_lead_from_header_to_header_are_not_taken(terms):
    """The table of terms is made of all segments: one that does not join stops its making."""
    found = boot(changed(terms=terms))
    agrees(found)
    assert found.log.terms.rows() == TRUTH.log.terms.rows()


POINT = st.builds(Point, NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.integers(-1, 2**63 - 1))
TERM = st.builds(TermRow, SMALL, NUMBERS, NUMBERS)
CONTROL = st.builds(ControlRow, NUMBERS, NUMBERS, SMALL, st.sampled_from(EntryKind), NUMBERS)


def mixed(rows, row):
    """Some of the true rows, with fields of theirs changed, and others."""

    def with_one_changed(one):
        fields = {name: getattr(one, name) for name in one._fields if name != "kind"}
        return st.sampled_from(sorted(fields)).flatmap(
            lambda name: (SMALL if name in ("size", "term", "timestamp") else NUMBERS).map(
                lambda value: one._replace(**{name: value})
            )
        )

    true = st.sampled_from(rows)
    return st.lists(st.one_of(true, true.flatmap(with_one_changed), row), max_size=6)


@settings(max_examples=50, deadline=None)
@given(
    st.one_of(st.none(), mixed(STORED.sparse.points(), POINT)),
    st.one_of(st.none(), mixed(STORED.sparse.terms, TERM)),
    st.one_of(st.none(), mixed(STORED.sparse.controls, CONTROL)),
)
def test_no_rows_with_a_right_checksum_stop_a_boot(points, terms, controls):
    agrees(boot(changed(points, terms, controls)))


@settings(max_examples=50, deadline=None)
@given(st.integers(0, len(write_index_file(STORED)) - 5), st.binary(min_size=1, max_size=8))
def test_no_bytes_with_a_right_checksum_stop_a_boot(position, patch):
    content = bytearray(write_index_file(STORED)[:-4])
    content[position : position + len(patch)] = patch
    agrees(boot(bytes(content) + crc32c(content).to_bytes(4, "big")))

"""Golden files: a data directory as this release writes it, and a stranger who reads it.

`tests/golden/storage.txt` lists every file of a small directory, its size and bytes that are not
zero. A difference means that files of an earlier release may be misread: raise the format version,
keep reading the old one, and add a new golden file beside this one. Rewritten with
RAFTLOG_REWRITE=1; each changed line is then looked at.
"""

import os
from pathlib import Path

from raftlog.base.entries import EntryKind, HardState, InstallPosition, Membership
from raftlog.base.ids import ReplicaId
from raftlog.records.chain import chain_next
from raftlog.records.control import write_log_start, write_membership_body
from raftlog.storage.inspect import inspect_directory
from raftlog.storage.segments.snapshot import write_snapshot
from tests.storage import stranger
from tests.storage.making import CLUSTER, FOUNDERS, IDENTITY, ME, OTHER, SPEC, Driver, new_disk

GOLDEN = Path(__file__).parents[1] / "golden" / "storage.txt"
RUN = 32


def made():
    """Rolls, a truncation, a removal, votes, marks: every kind of file."""
    driver = Driver(new_disk())
    driver.lead(1)
    driver.append(4, 2, size=120)
    third = ReplicaId(3, 0x3333, 6)
    body = write_membership_body(Membership((ME, OTHER), learners=(third,)))
    driver.log.append([driver.control(EntryKind.MEMBERSHIP, body)])
    driver.append(4, 2, size=120)
    driver.round([driver.store.set_hard_state(SPEC.group, HardState(2, OTHER))])
    driver.log.truncate_from(driver.log.last_index)
    driver.lead(3)
    driver.round([driver.store.set_hard_state(SPEC.group, HardState(3, None))])
    driver.commit_all()
    offset = driver.log.segments[1].base_offset
    driver.log.append([driver.control(EntryKind.LOG_START, write_log_start(offset))])
    driver.settle()
    driver.commit_all()
    driver.log.set_log_start(offset, driver.log.last_index)
    plan = driver.log.plan_removal()
    (order,) = plan.args
    write_snapshot(driver.disk, SPEC, order.heads[0].position, b"producers")
    driver.run(plan)
    driver.settle()
    return driver


def listing(disk):
    lines = []
    for path in disk.paths():
        content = disk.content(path)
        lines.append(f"{path} {len(content)}")
        for at in range(0, len(content.rstrip(b"\x00")), RUN):
            run = content[at : at + RUN]
            if any(run):
                lines.append(f"  {at:6d} {run.hex()}")
    return "\n".join(lines) + "\n"


def test_the_bytes_are_as_ever():
    text = listing(made().disk)
    if os.environ.get("RAFTLOG_REWRITE"):
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()


def directory(disk, prefix):
    return {
        path.removeprefix(prefix + "/"): disk.content(path)
        for path in disk.paths()
        if path.startswith(prefix + "/")
    }


def test_a_stranger_reads_what_we_wrote():
    driver = made()
    disk, log = driver.disk, driver.log
    identity = stranger.read_format(disk.content("raftlog.format"))
    assert identity["cluster"] == CLUSTER
    assert (identity["node"], identity["directory"]) == (1, IDENTITY.directory)
    files = directory(disk, SPEC.path)
    entries = stranger.read_log(files)
    assert [entry[0] for entry in entries] == list(range(log.first_index, log.last_index + 1))
    assert entries[-1][5] == log.last_chain
    for index, term, base_offset, kind, batch, _ in entries:
        entry = driver.run(log.plan_entries(index, 1)).entries[0]
        assert (entry.term, entry.base_offset, entry.kind) == (term, base_offset, kind)
        assert entry.batch == batch


def test_a_stranger_reads_the_store_and_the_rest():
    driver = made()
    disk = driver.disk
    state = stranger.read_store(disk.content("store-0"), disk.content("store-1"))
    assert state["boot"] == driver.image.boot
    assert state["registered"] == {SPEC.group: (tuple(ME), SPEC.path)}
    assert state["hard"] == {SPEC.group: (3, None)}
    assert state["marks"] == {SPEC.group: tuple(driver.store.marks[SPEC.group])[1:]}
    files = directory(disk, SPEC.path)
    header = stranger.read_segment_header(files[min(n for n in files if n.endswith(".log"))])
    (name,) = (name for name in files if name.endswith(".snapshot"))
    snapshot = stranger.read_snapshot(files[name])
    assert snapshot["body"] == b"producers"
    assert snapshot["index"] == header["first_index"] - 1 == int(name[:20]) - 1
    assert snapshot["chain"] == header["chain_before"]
    indexes = [stranger.read_index(files[name]) for name in files if name.endswith(".index")]
    assert indexes
    for index in indexes:
        assert index["place"][0] == SPEC.group
        assert all(4096 < point[2] <= index["end"][2] for point in index["points"])


def test_a_stranger_reads_an_install():
    driver = made()
    log = driver.log
    position = InstallPosition(
        raft_index=100,
        term=9,
        chain=chain_next(log.last_chain, bytes(61)),
        next_offset=500,
        log_start=400,
        membership=FOUNDERS,
        membership_index=80,
    )
    log.install(position, b"state")
    driver.round()
    driver.lead(10)
    driver.append(2)
    driver.settle()
    entries = stranger.read_log(directory(driver.disk, SPEC.path))
    assert [entry[:3] for entry in entries] == [(101, 10, 500), (102, 10, 500), (103, 10, 501)]
    assert entries[-1][5] == log.last_chain


def test_the_chain_begins_as_the_page_says():
    driver = Driver(new_disk())
    assert driver.log.prev_chain == stranger.chain_start(CLUSTER, SPEC.group)


def test_inspection_agrees():
    driver = made()
    found = inspect_directory(driver.disk)
    (row,) = found["groups"]
    assert found["damaged"] is False
    assert row["chain"] == f"{driver.log.last_chain:016x}"
    assert (row["first_index"], row["last_index"]) == (
        driver.log.first_index,
        driver.log.last_index,
    )

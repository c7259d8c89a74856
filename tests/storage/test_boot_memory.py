"""A boot keeps little memory for the entries that it walks.

The story: without a commit hint (a first boot after a crash, a lost file) a boot keeps the place of
every entry, since any of them may be cut. It kept each as an object: 330 bytes for each entry of
the whole log, at its peak, while the log in memory keeps 24.
"""

import tracemalloc

from raftlog.storage.boot.recovery import recover_replica
from raftlog.storage.replica import LogOptions
from tests.storage.making import SPEC, Driver

ENTRIES = 4000


def peak_of(driver, mark):
    tracemalloc.start()
    try:
        found = recover_replica(driver.disk, SPEC, mark, driver.options)
        return found, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_without_a_commit_hint_each_entry_costs_what_an_array_does():
    driver = Driver(options=LogOptions(segment_bytes=1 << 30))
    driver.lead(1)
    driver.append(ENTRIES)
    driver.commit_all()
    driver.settle()
    mark = driver.image.marks.get(SPEC.group) or driver.store.marks[SPEC.group]
    recover_replica(driver.disk, SPEC, mark, driver.options)
    hinted, least = peak_of(driver, mark)
    bare, peak = peak_of(driver, mark._replace(commit=0))
    assert hinted.commit_hint == ENTRIES + 1
    assert bare.commit_hint == 0
    assert bare.log.chain_at(2) is not None, "all may be cut"
    assert peak - least < 48 * ENTRIES, (peak - least) / ENTRIES

"""Searches share no queue: not with cold reads, not with those of other topics.

The fault: one look-up by time that met hostile batches held up every cold read and every other
look-up of the broker for minutes, went on when its client had gone, and kept SIGTERM waiting.
"""

import threading

import pytest
import trio

from raftlog.broker.events import Job, JobDone, Read
from raftlog.records.slices import FileSlice
from raftlog.runtime.disks.search_lanes import SEARCHES_MAX
from tests.runtime.test_log_writer import HOME, Rig


@pytest.fixture
def gate():
    """The event for which searches wait; opened at the end, so that no thread stays behind."""
    gate = threading.Event()
    yield gate
    gate.set()


def tokens(rig: Rig) -> list[int]:
    return [event.token for event in rig.events]


async def test_reads_and_jobs_go_on_while_searches_run(tmp_path, gate):
    (tmp_path / "a").write_bytes(b"0123456789")
    rig = Rig(tmp_path)
    for group in range(2 * SEARCHES_MAX):
        rig.threads.run_job(Job(group, HOME, lambda disk: gate.wait(30), (), group))
    rig.threads.read(Read(100, FileSlice(HOME, "a", 3, 4)))
    rig.threads.run_job(Job(101, HOME, lambda disk: "job", ()))
    await rig.until(2)
    assert tokens(rig) == [100, 101]
    gate.set()
    await rig.until(2 + 2 * SEARCHES_MAX)
    assert sorted(tokens(rig)[2:]) == list(range(2 * SEARCHES_MAX))
    await rig.threads.stop(5)


async def test_one_topic_does_not_hold_up_another(tmp_path, gate):
    """However many look-ups a topic has, one of them runs at a time."""
    rig = Rig(tmp_path)
    for token in range(50):
        rig.threads.run_job(Job(token, HOME, lambda disk: gate.wait(30), (), 1))
    rig.threads.run_job(Job(100, HOME, lambda disk: "other", (), 2))
    await rig.until(1)
    assert rig.events == [JobDone(100, "other")]
    gate.set()
    await rig.until(51)
    assert tokens(rig)[1:] == list(range(50)), "those of one topic keep their order"
    await rig.threads.stop(5)


async def test_groups_are_taken_in_turn(tmp_path):
    """With every lane taken, those who wait come one of each group."""
    rig = Rig(tmp_path)
    first = threading.Event()
    for lane in range(SEARCHES_MAX - 1):
        rig.threads.run_job(Job(1000 + lane, HOME, lambda disk: first.wait(30), (), 1000 + lane))
    hold = threading.Event()
    rig.threads.run_job(Job(1, HOME, lambda disk: hold.wait(30), (), 1))
    for token in (2, 3):
        rig.threads.run_job(Job(token, HOME, lambda disk: None, (), 1))
    for token, group in ((10, 2), (11, 2), (20, 3)):
        rig.threads.run_job(Job(token, HOME, lambda disk: None, (), group))
    hold.set()
    await rig.until(6)
    assert tokens(rig) == [1, 2, 10, 20, 3, 11]
    first.set()
    await rig.until(5 + SEARCHES_MAX)
    await rig.threads.stop(5)


async def test_a_search_ends_with_its_request(tmp_path, gate):
    """A search whose request has ended is not run when its turn comes."""
    rig = Rig(tmp_path)
    ran = []
    wanted = [True]
    rig.threads.run_job(Job(1, HOME, lambda disk: gate.wait(30), (), 7))
    for token in (2, 3):
        rig.threads.run_job(Job(token, HOME, lambda disk: ran.append(1), (), 7, lambda: wanted[0]))
    rig.threads.run_job(Job(4, HOME, lambda disk: "wanted", (), 7))
    wanted[0] = False
    gate.set()
    await rig.until(4)
    assert sorted(rig.events[1:]) == [JobDone(2, None), JobDone(3, None), JobDone(4, "wanted")]
    assert not ran
    await rig.threads.stop(5)


async def test_the_end_waits_for_no_search(tmp_path, gate):
    """SIGTERM took ten seconds, for a search was running."""
    rig = Rig(tmp_path)
    started = threading.Event()

    def search(disk):
        started.set()
        gate.wait(30)
        return "late"

    for token in range(3):
        rig.threads.run_job(Job(token, HOME, search, (), 1))
    await trio.to_thread.run_sync(started.wait, 10)
    with trio.fail_after(10):  # the search waits for the gate, which is opened below
        await rig.threads.stop(1_000)
    assert rig.writer.closed
    gate.set()
    await trio.sleep(0.05)
    assert rig.events == [], "what comes after the end is not reported"

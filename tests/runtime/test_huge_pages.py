"""Memory that is in use is collapsed; what is shared, mapped from files or unused is left alone."""

import subprocess
import sys

import pytest
import trio

from raftlog.base.units import NANOS_PER_MILLI
from raftlog.runtime import huge_pages
from raftlog.runtime.huge_pages import Mapping, anonymous_mappings, use_huge_pages

SMAPS = """\
55d0c0000000-55d0c0600000 rw-p 00000000 00:00 0                          [heap]
Size:               6144 kB
Rss:                6000 kB
VmFlags: rd wr mr mw me ac
7f0000000000-7f0000800000 rw-p 00000000 00:00 0
Size:               8192 kB
Rss:                  12 kB
7f1000000000-7f1000400000 r-xp 00000000 fe:00 18710                      /usr/lib/libpython3.so
Size:               4096 kB
Rss:                4096 kB
7f2000100000-7f2000600000 rw-p 00000000 00:00 0
Rss:                5120 kB
7f3000000000-7f3000400000 rw-s 00000000 00:05 7                          /dev/shm/x (deleted)
Rss:                4096 kB
7f4000000000-7f4000400000 rw-p 00000000 00:00 0                          [stack]
Rss:                4096 kB
"""
HUGE = 2 * 1024 * 1024


class StillClock:
    """Moves when told."""

    def __init__(self):
        self.ns = 0

    def now(self):
        return self.ns


@pytest.fixture
def settings(tmp_path):
    (tmp_path / "enabled").write_text("always [madvise] never\n")
    (tmp_path / "hpage_pmd_size").write_text(f"{HUGE}\n")
    return tmp_path


@pytest.fixture
def mappings(tmp_path):
    path = tmp_path / "smaps"
    path.write_text(SMAPS)
    return path


@pytest.fixture
def advised(monkeypatch):
    """The calls to the kernel, which agrees to everything."""
    calls = []
    monkeypatch.setattr(huge_pages, "_madvise", lambda: lambda *call: not calls.append(call))
    return calls


def test_only_the_heap_and_nameless_private_memory_count():
    assert list(anonymous_mappings(SMAPS.splitlines())) == [
        Mapping(0x55D0C0000000, 0x55D0C0600000, 6000 * 1024),
        Mapping(0x7F0000000000, 0x7F0000800000, 12 * 1024),
        Mapping(0x7F2000100000, 0x7F2000600000, 5120 * 1024),
    ]


def test_whole_huge_pages_of_what_is_in_use_are_collapsed(settings, mappings, advised):
    assert use_huge_pages(StillClock(), settings, mappings) == 5 * HUGE
    collapsed = [start for start, size, advice in advised if advice == 25 and size == HUGE]
    heap = [0x55D0C0000000 + at * HUGE for at in range(3)]
    # The second mapping is a stack that no thread has used; the third begins inside a huge page.
    assert collapsed == [*heap, 0x7F2000200000, 0x7F2000400000]


def test_what_the_kernel_refuses_is_not_counted(settings, mappings, monkeypatch):
    monkeypatch.setattr(huge_pages, "_madvise", lambda: lambda start, size, advice: False)
    assert use_huge_pages(StillClock(), settings, mappings) == 0


def test_a_large_heap_does_not_hold_up_the_loop_for_long(settings, tmp_path, monkeypatch):
    """Ten gigabytes took seconds, a minute after the start, while no follower heard a heartbeat."""
    smaps = tmp_path / "large"
    smaps.write_text(f"7f0000000000-7f0280000000 rw-p 00000000 00:00 0\nRss: {10 << 20} kB\n")
    clock = StillClock()

    def advise(start, size, advice):
        clock.ns += NANOS_PER_MILLI
        return True

    monkeypatch.setattr(huge_pages, "_madvise", lambda: advise)
    done = use_huge_pages(clock, settings, smaps)
    assert 40 * HUGE <= done <= 50 * HUGE
    assert clock.ns <= huge_pages.NANOS_MAX


@pytest.mark.parametrize(
    "text", ["\n", "x y\n", "7f00-7g00 rw-p 0 0 0\nRss: 4 kB\n", "a-b rw-p\nRss:"]
)
def test_mappings_of_another_format_are_left_alone(settings, tmp_path, advised, text):
    """It is a task of the broker's: what it raised would end the process."""
    (tmp_path / "smaps").write_text(text)
    assert use_huge_pages(StillClock(), settings, tmp_path / "smaps") == 0
    assert advised == []


def test_never_means_never(settings, mappings, advised):
    (settings / "enabled").write_text("always madvise [never]\n")
    assert use_huge_pages(StillClock(), settings, mappings) == 0
    assert advised == []


@pytest.mark.parametrize("lost", ["enabled", "hpage_pmd_size", "smaps"])
def test_where_there_is_no_such_setting_nothing_happens(settings, mappings, advised, lost):
    (settings / lost).unlink()
    assert use_huge_pages(StillClock(), settings, mappings) == 0
    assert advised == []


async def test_what_a_broker_makes_later_is_collapsed_too(monkeypatch, autojump_clock):
    times = []
    monkeypatch.setattr(
        huge_pages, "use_huge_pages", lambda clock: times.append(trio.current_time())
    )
    began = trio.current_time()
    await huge_pages.use_huge_pages_again(StillClock())
    assert [round(time - began) for time in times] == [2, 10, 60]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks the Linux kernel")
def test_contents_stay_as_they_were():
    """In a process of its own: the real call over a whole interpreter, then its heap is used."""
    program = """
import hashlib
from raftlog.runtime.huge_pages import use_huge_pages
from raftlog.runtime.real_ports import SystemClock
kept = [bytes([number % 251]) * 5000 for number in range(4000)]
before = hashlib.sha256(b"".join(kept)).hexdigest()
done = use_huge_pages(SystemClock())
assert hashlib.sha256(b"".join(kept)).hexdigest() == before
assert done % 4096 == 0 and done >= 0, done
print([len(str(number)) for number in range(3)])
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "[1, 1, 1]"), done.stderr

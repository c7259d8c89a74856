"""Backs the heap of a broker by huge pages.

A turn touches a few hundred objects that lie all over the heap, and between two turns the core runs
other processes. With small pages, most of a lone turn's time goes into looking up addresses again.
It is worst under a hypervisor, where one look-up walks two tables. With huge pages the heap of a
broker is a dozen entries instead of ten thousand.

Source: madvise(2), MADV_HUGEPAGE and MADV_COLLAPSE (Linux 6.1). Best effort: where the kernel
cannot, or an administrator has set transparent huge pages to `never`, nothing happens.
"""

import ctypes
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import trio

from raftlog.base.ports import Clock
from raftlog.base.units import KIB, NANOS_PER_MILLI, ByteCount

_MADV_HUGEPAGE: Final = 14
_MADV_COLLAPSE: Final = 25
_SETTINGS: Final = Path("/sys/kernel/mm/transparent_hugepage")
_MAPPINGS: Final = Path("/proc/self/smaps")
RESIDENT_MIN: Final = 0.5
"""Share of a mapping that is in use already; the stack of a thread, mostly unused, stays small."""


Advise = Callable[[int, int, int], bool]
"""Address, bytes, advice; whether the kernel took it."""


AGAIN_AFTER_SECONDS: Final = (2.0, 8.0, 50.0)
"""Pauses after the start: by then links, topics and leaders have been made, which stay too."""
NANOS_MAX: Final = 50 * NANOS_PER_MILLI
"""For collapsing at one time, half a heartbeat: a heap of gigabytes would hold up the loop for
seconds, and what is huge already costs nothing the next time."""


class Mapping(NamedTuple):
    """A stretch of anonymous private memory: first address, address behind, bytes in use."""

    start: int
    end: int
    resident: int


def use_huge_pages(
    clock: Clock, settings: Path = _SETTINGS, mappings: Path = _MAPPINGS
) -> ByteCount:
    """Collapse this process's memory into huge pages where they fit; bytes that now are. It takes
    some milliseconds, at most about NANOS_MAX, and copies every small page once, so it belongs to
    the start of a process, when what lives for ever has been made."""
    try:
        size = _huge_page_bytes(settings)
        found = list(anonymous_mappings(mappings.read_text().splitlines()))
        advise = _madvise()
    except (OSError, ValueError, LookupError, AttributeError):
        return ByteCount(0)  # no Linux, no such setting, no such call, or another format
    if size == 0:
        return ByteCount(0)
    until = clock.now() + NANOS_MAX
    done = 0
    for mapping in found:
        if mapping.resident >= RESIDENT_MIN * (mapping.end - mapping.start):
            done += _collapse(advise, mapping, size, clock, until)
    return ByteCount(done)


async def use_huge_pages_again(clock: Clock) -> None:
    """A few more times, for what a broker makes once it runs. Each holds up the loop for 5 to 15
    ms, with a large heap for NANOS_MAX."""
    for pause in AGAIN_AFTER_SECONDS:
        await trio.sleep(pause)
        use_huge_pages(clock)


def anonymous_mappings(lines: Iterable[str]) -> Iterator[Mapping]:
    """The heap and the nameless writable mappings in the text of `/proc/PID/smaps`."""
    span: tuple[int, int] | None = None
    for line in lines:
        words = line.split()
        if not words[0].endswith(":"):  # the head of a mapping; its attributes follow
            start, _, end = words[0].partition("-")
            ours = words[1] == "rw-p" and words[5:] in ([], ["[heap]"])
            span = (int(start, 16), int(end, 16)) if ours else None
        elif span is not None and words[0] == "Rss:":
            yield Mapping(*span, int(words[1]) * KIB)


def _huge_page_bytes(settings: Path) -> int:
    """Bytes of a huge page; 0 where they are switched off."""
    if "[never]" in (settings / "enabled").read_text():
        return 0
    return int((settings / "hpage_pmd_size").read_text())


def _madvise() -> Advise:
    call = ctypes.CDLL(None).madvise
    call.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return lambda start, size, advice: call(start, size, advice) == 0


def _collapse(advise: Advise, mapping: Mapping, size: int, clock: Clock, until: int) -> int:
    # A later neighbour of this mapping keeps small pages. Memory that is freed and used again
    # inside the mapping keeps huge ones.
    advise(mapping.start, mapping.end - mapping.start, _MADV_HUGEPAGE)
    first = -(-mapping.start // size) * size
    return sum(
        size
        for start in range(first, mapping.end - size + 1, size)
        if clock.now() < until and advise(start, size, _MADV_COLLAPSE)
    )

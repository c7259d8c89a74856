"""A slab is given out again only when no frame uses it any more."""

from pathlib import Path

import pytest

from raftlog.base.units import MIB
from raftlog.runtime.network.slabs import (
    RETIRED_MAX,
    SIZE_CLASSES,
    NoMemory,
    SlabPool,
    class_above,
    class_below,
    grow,
    is_free,
    size_for,
)


def test_a_viewed_slab_is_not_free():
    slab = bytearray(10)
    view = memoryview(slab)
    assert not is_free(slab)
    view.release()
    assert is_free(slab)
    assert len(slab) == 10


def test_a_free_slab_comes_back_and_a_pinned_one_does_not():
    pool = SlabPool(poison=True)
    slab = pool.take(1000)
    view = memoryview(slab)[:4]
    pool.retire(slab)
    assert pool.take(1000) is not slab
    view.release()
    assert pool.take(1000) is slab
    assert set(slab) == {0xDB}


def test_sizes_above_the_classes_are_exact_and_not_kept():
    pool = SlabPool()
    slab = pool.take(SIZE_CLASSES[-1] + 1)
    assert len(slab) == SIZE_CLASSES[-1] + 1
    pool.retire(slab)
    assert pool.take(SIZE_CLASSES[-1] + 1) is not slab


def test_a_slab_above_the_classes_grows_without_a_copy():
    """glibc copies a bytearray of up to 32 MiB once a larger one was freed: a frame of 30 MiB took
    68 MiB at its peak."""
    pool = SlabPool()
    warm = bytearray(31 << 20)
    del warm
    slab = pool.take(16 << 20)
    slab[:] = b"\x01" * len(slab)
    above = bytearray(MIB)  # so that a block in the heap could not simply go on
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins again
    before = resident("VmRSS")
    assert grow(slab, 30 << 20)
    assert len(slab) == 30 << 20
    assert slab[(16 << 20) - 1] == 1
    assert slab[16 << 20] == 0
    assert resident("VmHWM") - before < MIB
    assert len(above) == MIB


def resident(what: str) -> int:
    """Resident bytes of this process: as it is (VmRSS), or at most since its peak was cleared."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(what + ":"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"no {what}")


def test_a_viewed_slab_and_one_of_a_class_do_not_grow():
    pool = SlabPool()
    large, small = pool.take(16 << 20), pool.take(1000)
    with memoryview(large):
        assert not grow(large, 17 << 20)
    assert grow(large, 17 << 20)
    assert not grow(small, 2000)
    assert len(small) == SIZE_CLASSES[0]


def test_no_memory_says_so():
    pool = SlabPool()
    large = pool.take(16 << 20)
    for too_much in (lambda: pool.take(1 << 62), lambda: grow(large, 1 << 62)):
        with pytest.raises(
            NoMemory, match=r"no memory for a frame \(4611686018427387904 bytes\): "
        ):
            too_much()
    assert len(large) == 16 << 20


def test_the_pool_is_bounded():
    pool = SlabPool()
    for size, kept in RETIRED_MAX.items():
        for slab in [pool.take(size) for _ in range(kept + 3)]:
            pool.retire(slab)
    assert {size: len(waiting) for size, waiting in pool._retired.items()} == RETIRED_MAX
    assert sum(size * kept for size, kept in RETIRED_MAX.items()) < 48 * 1024 * 1024


def test_classes_lead_to_each_other():
    first, second, small, middle, last = SIZE_CLASSES
    assert [size_for(size) for size in (0, first, first + 1, last, last + 1)] == [
        first,
        first,
        second,
        last,
        last + 1,
    ]
    assert [class_below(size) for size in (first, second, last, last * 5)] == [
        first,
        first,
        middle,
        last,
    ]
    assert [class_above(size) for size in (first, second, small, middle, last * 5)] == [
        second,
        small,
        small,
        middle,
        last,
    ]

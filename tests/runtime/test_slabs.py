"""Slabs have a few sizes; large ones grow without a copy."""

from pathlib import Path

import pytest

from raftlog.base.units import KIB, MIB
from raftlog.runtime.network.slabs import (
    SIZE_CLASSES,
    NoMemory,
    class_above,
    class_below,
    grow,
    make_slab,
    size_for,
)


def test_a_slab_is_of_its_class_and_above_all_classes_exact():
    assert [len(make_slab(size)) for size in (0, 1000, MIB)] == [
        SIZE_CLASSES[0],
        SIZE_CLASSES[0],
        MIB + 64 * KIB,
    ]
    assert len(make_slab(SIZE_CLASSES[-1] + 1)) == SIZE_CLASSES[-1] + 1


def test_a_slab_above_the_classes_grows_without_a_copy():
    """glibc copies a bytearray of up to 32 MiB once a larger one was freed: a frame of 30 MiB took
    68 MiB at its peak."""
    warm = bytearray(31 << 20)
    del warm
    slab = make_slab(16 << 20)
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
    large, small = make_slab(16 << 20), make_slab(1000)
    with memoryview(large):
        assert not grow(large, 17 << 20)
    assert grow(large, 17 << 20)
    assert not grow(small, 2000)
    assert len(small) == SIZE_CLASSES[0]


def test_no_memory_says_so():
    large = make_slab(16 << 20)
    for too_much in (lambda: make_slab(1 << 62), lambda: grow(large, 1 << 62)):
        with pytest.raises(
            NoMemory, match=r"no memory for a frame \(4611686018427387904 bytes\): "
        ):
            too_much()
    assert len(large) == 16 << 20


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

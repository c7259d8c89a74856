"""A slab is given out again only when nobody looks at it any more."""

from raftlog.runtime.slabs import (
    RETIRED_MAX,
    SIZE_CLASSES,
    SlabPool,
    class_above,
    class_below,
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

"""A slab is given out again only when nobody looks at it any more."""

from raftlog.runtime.slabs import RETIRED_PER_CLASS_MAX, SIZE_CLASSES, SlabPool, is_free


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
    slabs = [pool.take(1) for _ in range(RETIRED_PER_CLASS_MAX + 10)]
    for slab in slabs:
        pool.retire(slab)
    assert sum(len(waiting) for waiting in pool._retired.values()) == RETIRED_PER_CLASS_MAX

"""The window in memory against a list of entries."""

from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.entries import Entry, EntryKind
from raftlog.storage.recent_window import RecentWindow

FIRST, BASE = 5, 40


def entry(index, size, width):
    return Entry(index, 1, EntryKind.RECORDS, 0, width, bytes(size))


@st.composite
def windows(draw):
    """A window of some entries, the first of them places only, and the same as a list."""
    sizes = draw(st.lists(st.integers(61, 300), max_size=12))
    bare = draw(st.integers(0, len(sizes)))
    window, model = RecentWindow(FIRST, BASE), []
    position, offset = 4096, BASE
    for ordinal, size in enumerate(sizes):
        width = draw(st.integers(0, 3))
        made = entry(FIRST + ordinal, size, offset + width)
        if ordinal < bare:
            window.append(made, position, 1000 + ordinal)
            window.shed_entries(0)
        else:
            window.append(made, position, 1000 + ordinal)
        model.append((made, position, 1000 + ordinal))
        position, offset = position + size, offset + width
    return window, model, bare


def agrees(window, model, bare):
    assert window.end == window.first + len(model)
    assert window.bytes == sum(len(made.batch) for made, _, _ in model[bare:])
    for ordinal, (made, position, chain) in enumerate(model):
        index = made.raft_index
        assert window.position_of(index) == position
        assert window.chain_before(index) == chain
        assert window.next_offset_at(index) == made.next_offset
        held = window.entries(index, 500)
        if ordinal < bare:
            assert held is None
            continue
        assert held[0] is made
        total = sum(len(one.batch) for one in held)
        assert total <= 500 or len(held) == 1
        after = ordinal + len(held)
        assert after == len(model) or total + len(model[after][0].batch) > 500
    for index in (window.first - 1, window.end):
        assert window.position_of(index) is None
        assert window.chain_before(index) is None
        assert window.next_offset_at(index) is None


@given(windows())
def test_what_was_put_in(made):
    agrees(*made)


@given(windows(), st.data())
def test_cut(made, data):
    window, model, bare = made
    keep = data.draw(st.integers(0, len(model)))
    window.cut(FIRST + keep)
    agrees(window, model[:keep], min(bare, keep))


@given(windows(), st.integers(0, 2000), st.data())
def test_shed_goes_from_the_front_and_never_beyond_what_is_safe(made, bytes_max, data):
    window, model, bare = made
    keep_from = data.draw(st.integers(FIRST, FIRST + len(model)))
    window.shed(keep_from, bytes_max)
    gone = window.first - FIRST
    assert window.first <= max(keep_from, FIRST)
    assert window.entries_first <= max(keep_from, FIRST + bare)
    assert window.bytes <= bytes_max or window.entries_first >= keep_from
    agrees(window, model[gone:], window.entries_first - window.first)
    if gone:
        assert window.base_offset == model[gone - 1][0].next_offset


@given(windows(), st.integers(BASE, BASE + 40))
def test_index_of_offset(made, offset):
    window, model, _ = made
    later = [one.raft_index for one, _, _ in model if one.next_offset > offset]
    assert window.index_of_offset(offset) == (later[0] if later else window.end)


@given(windows(), st.integers(4000, 8000))
def test_index_beyond(made, position):
    window, model, _ = made
    beyond = [one.raft_index for one, at, _ in model if at > position]
    assert window.index_beyond(position, FIRST, window.end) == (beyond[0] if beyond else window.end)

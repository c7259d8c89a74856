"""Where terms begin: every answer against a list of (index, term, offset)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.storage.segments.term_table import TermTable


def table(*rows, before=0, term=0, offset=0):
    made = TermTable(term, before, offset)
    for row in rows:
        made.begin(*row)
    return made


@st.composite
def logs(draw):
    """A log as (index, term, offset): entries are one offset wide but for the first of a term."""
    terms = draw(st.lists(st.integers(1, 6), max_size=15).map(sorted))
    made, offset, entries = table(), 0, []
    for index, term in enumerate(terms, 1):
        begins = index == 1 or terms[index - 2] != term
        if begins:
            made.begin(term, index, offset)
        entries.append((index, term, offset))
        offset += 0 if begins else 1
    return made, entries, offset


@given(logs(), st.integers(0, 8))
def test_against_a_list(log, term):
    made, entries, end = log
    for index, entry_term, _ in entries:
        assert made.at(index) == entry_term
    at = [index for index, entry_term, _ in entries if entry_term == term]
    found = made.first_index_of(term)
    if term > 0:
        assert (found if found and found <= len(entries) else None) == (at[0] if at else None)
    below = [index for index, entry_term, _ in entries if entry_term <= term]
    assert made.last_index_at_or_below(term, len(entries)) == (below[-1] if below else 0)
    later = [offset for _, entry_term, offset in entries if entry_term > term]
    answer = made.end_offset_for(term, end)
    assert answer is not None
    assert answer[1] == (later[0] if later else end)
    assert answer[0] == max((t for _, t, _ in entries if t <= term), default=0)


@given(logs(), st.integers(0, 20), st.integers(0, 8))
def test_holds_what_the_list_has(log, index, term):
    made, entries, _ = log
    made.drop_before(min(index, len(entries)) // 2, 0)
    first = min(index, len(entries)) // 2
    terms = {0: 0, **{at: entry_term for at, entry_term, _ in entries}}
    for at in range(len(entries) + 1):
        assert made.holds(at, term) == (at >= first and terms[at] == term)


def test_a_copy_is_its_own():
    made = table((1, 1, 0), (3, 2, 2))
    copied = made.copy()
    made.cut(2)
    assert copied.rows() == [(0, 0, 0), (1, 1, 0), (3, 2, 2)]
    copied.begin(4, 5, 4)
    assert made.rows() == [(0, 0, 0), (1, 1, 0)]


@given(logs(), st.data())
def test_cut_and_drop_keep_the_rest(log, data):
    made, entries, _ = log
    cut = data.draw(st.integers(1, len(entries) + 1))
    made.cut(cut)
    rest = entries[: cut - 1]
    drop = data.draw(st.integers(0, len(rest)))
    if drop:
        made.drop_before(rest[drop - 1][0], 99)
    for index, term, _ in rest[drop:]:
        assert made.at(index) == term
    if drop:
        assert made.at(rest[drop - 1][0]) == rest[drop - 1][1]


def test_before_all_known_terms_there_is_no_answer():
    made = table((7, 11, 50), before=10, term=5, offset=40)
    assert made.end_offset_for(4, 60) is None
    assert made.end_offset_for(5, 60) == (5, 50)
    assert made.end_offset_for(6, 60) == (5, 50)
    assert made.end_offset_for(7, 60) == (7, 60)
    assert made.end_offset_for(7, 45) == (7, 45)


def test_the_first_row_knows_whether_it_has_entries():
    assert table((7, 11, 50), before=10, term=5).first_index_of(5) is None
    assert table((7, 12, 50), before=10, term=5).first_index_of(5) == 11


@pytest.mark.parametrize("row", [(3, 9, 0), (2, 9, 0), (4, 5, 0), (4, 4, 0)])
def test_terms_and_indexes_only_rise(row):
    with pytest.raises(AssertionError):
        table((3, 5, 0)).begin(*row)


def test_the_term_of_an_offset():
    """Raft's own entries take no offset: two terms may begin at one, the last has the record."""
    made = TermTable(2, 10, 50)
    made.begin(5, 12, 50)
    made.begin(7, 14, 60)
    made.begin(8, 15, 60)
    assert [made.at_offset(offset) for offset in (50, 59, 60, 99)] == [5, 5, 8, 8]

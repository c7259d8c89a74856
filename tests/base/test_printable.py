"""Text that a terminal or a browser would obey is shown as escapes."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.printable import visible, visible_everywhere


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("k#1", "k#1"),
        ("Gr\u00fc\u00dfe, \u4f60\u597d\u00a0", "Gr\u00fc\u00dfe, \u4f60\u597d\u00a0"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("a\x00\x7f\x9b", r"a\x00\x7f\x9b"),
        ("one\ntwo\r\t", r"one\ntwo\r\t"),
        ("\u202egnp.exe\u2069\u200f", r"\u202egnp.exe\u2069\u200f"),
        ("zero\u200bwidth\ufeff\u00ad", r"zero\u200bwidth\ufeff\xad"),
        ("\u2028\u2029", r"\u2028\u2029"),
        ("\ud800", r"\ud800"),
        ("\U000e0041", r"\U000e0041"),
    ],
)
def test_what_is_not_seen_is_escaped(text, shown):
    assert visible(text) == shown


def test_a_line_feed_may_stay():
    assert visible("one\ntwo\x1b", "\n") == "one\ntwo\\x1b"


@given(st.text())
def test_what_is_shown_is_seen_and_can_be_written(text):
    shown = visible(text)
    shown.encode()
    assert visible(shown) == shown
    assert not any(ord(char) < 0x20 or char in "\u202d\u202e\u2066\u2067" for char in shown)


def test_a_document_is_made_visible_to_its_names():
    document = {"a\x1b": ["\u202eb", {"c": ("d\n", 1, None, True)}]}
    assert visible_everywhere(document) == {r"a\x1b": [r"\u202eb", {"c": ["d\n", 1, None, True]}]}
    assert json.dumps(visible_everywhere(document))

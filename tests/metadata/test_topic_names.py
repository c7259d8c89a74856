"""Kafka's grammar of topic names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.metadata.rules.topic_names import collision_key, topic_name_problem


@pytest.mark.parametrize("name", ["a", "orders", "A.b_c-9", "x" * 249, "__consumer_offsets", "..."])
def test_allowed(name):
    assert topic_name_problem(name) is None


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "empty"),
        (".", "cannot be"),
        ("..", "cannot be"),
        ("x" * 250, "250 characters"),
        ("a/b", "letters"),
        ("naïve", "letters"),
        ("a\n", "letters"),
        ("a\0", "letters"),
    ],
)
def test_refused_in_words(name, words):
    assert words in topic_name_problem(name)


@given(st.text(max_size=300))
def test_what_is_allowed_is_safe_in_a_file_name(name):
    if topic_name_problem(name) is None:
        assert name.isascii()
        assert "/" not in name
        assert 1 <= len(name) <= 249


def test_dots_and_underscores_collide():
    assert collision_key("a.b") == collision_key("a_b") != collision_key("a-b")

import pytest

from raftlog.base.amounts import amount


@pytest.mark.parametrize(
    ("number", "told"), [(0, "0 records"), (1, "1 record"), (2, "2 records"), (21, "21 records")]
)
def test_only_one_is_singular(number, told):
    assert amount(number, "record") == told


def test_a_plural_that_is_not_the_word_with_an_s_is_given():
    assert amount(1, "history", plural="histories") == "1 history"
    assert amount(2, "history", plural="histories") == "2 histories"


def test_thousands_are_grouped_where_it_is_wanted():
    assert amount(12_345, "row") == "12345 rows"
    assert amount(12_345, "row", grouped=True) == "12,345 rows"

"""The doors of functions that take the keys of a TypedDict as keywords."""

from typing import Annotated, TypedDict, Unpack

import pytest

from raftlog.base.arguments import between, checked
from raftlog.base.errors import WrongType, WrongValue


class Options(TypedDict, total=False):
    count: Annotated[int, between(0, 9)]
    name: str | None


@checked
def told(first: int, **options: Unpack[Options]) -> tuple[int, Options]:
    return first, options


def test_keywords_that_are_known_are_checked():
    assert told(1) == (1, {})
    assert told(1, count=9, name=None) == (1, {"count": 9, "name": None})
    with pytest.raises(WrongType, match="count must be a whole number, not str"):
        told(1, count="9")
    with pytest.raises(WrongValue, match="count must be 0 to 9, not 10"):
        told(1, count=10)
    with pytest.raises(WrongType, match="first must be a whole number, not str"):
        told("1", count=1)


def test_a_keyword_that_is_not_known_is_refused():
    with pytest.raises(TypeError, match=r"told\(\) got an unexpected keyword argument 'counts'"):
        told(1, counts=1)


@checked
def failing(number: int) -> None:
    __tracebackhide__ = True
    raise AssertionError(number)


def test_pytest_shows_the_line_of_the_caller():
    """Regression: `history.check()` hid itself, and pytest showed the source of its door."""
    with pytest.raises(AssertionError) as caught:
        failing(1)
    assert caught.traceback.filter(caught)[-1].name == "test_pytest_shows_the_line_of_the_caller"

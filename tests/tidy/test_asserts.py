"""One fact per assert: `assert a and b` does not say which of the two was broken."""

import ast
from collections.abc import Iterator

from tests.tidy.tree import SourceFile, planted, python_files


def double_asserts(file: SourceFile) -> Iterator[str]:
    """Asserts of a conjunction."""
    for node in file.nodes:
        if not isinstance(node, ast.Assert) or not isinstance(node.test, ast.BoolOp):
            continue
        if isinstance(node.test.op, ast.And):
            yield file.at(node, "one assert states two facts")


def test_an_assert_states_one_fact():
    assert [line for file in python_files() for line in double_asserts(file)] == []


def test_a_double_assert_is_found():
    assert len(list(double_asserts(planted("assert a and b, 'message'")))) == 1
    assert list(double_asserts(planted("assert a or b\nassert 0 <= a < b"))) == []

"""Byte layouts in docstrings stay tables.

A tool that folds long lines once ran several layouts together into paragraphs, and no reader could
tell any more which width belonged to which field. Three marks of that, for every docstring.
"""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.tidy.tree import SourceFile, planted, python_files

DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
MARKS = {
    "a line begins with a width, whose field stands on the line before": re.compile(
        r"^\s*[ui](8|16|32|64)\b(?! length| count)"
    ),
    "a table runs on in one line": re.compile(r"^(?=.*\|-{3,}\|).*[^|\-:\s]"),
    "a word was cut at its hyphen": re.compile(r"[a-z]- (endian|header|level)\b"),
}


def broken_layouts(file: SourceFile) -> Iterator[str]:
    """Yields what looks like a folded table, with its line."""
    for node in file.nodes:
        if not isinstance(node, DOCUMENTED):
            continue
        text = ast.get_docstring(node) or ""
        for line in text.splitlines():
            for problem, mark in MARKS.items():
                if mark.search(line):
                    yield file.at(node, f"{problem}: {line.strip()}")


def test_layouts_are_tables():
    assert [problem for file in python_files() for problem in broken_layouts(file)] == []


@pytest.mark.parametrize(
    "line",
    [
        "    u64, 2 PreVoteReply    granted u8",
        "    u64 ..  CRC-32C of all before, u32",
        "| kind | body | |---|---| | 1 | a message |",
        "(big- endian), two equal copies:",
    ],
)
def test_a_folded_table_is_found(line: str):
    assert list(broken_layouts(planted(f'"""A layout:\n\n{line}\n"""'))) != []


@pytest.mark.parametrize(
    "line",
    [
        "    0  magic 8 bytes      8  version u16",
        "    ..  a u32 count, then each: group u64",
        "| kind | body |\n|---|---|\n| 1 | a message |",
        "u32 length and that many bytes",
    ],
)
def test_a_table_stays_silent(line: str):
    assert list(broken_layouts(planted(f'"""A layout:\n\n{line}\n"""'))) == []

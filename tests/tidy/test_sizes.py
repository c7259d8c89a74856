"""Files of at most 500 lines, functions of at most 70; the exceptions may only shrink."""

import pytest

from tests.tidy.tree import SourceFile, functions, planted, python_files

FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70

# path, or path:function -> lines today. A smaller number is written here, a larger one is refused.
EXCEPTIONS: dict[str, int] = {}


def sizes(file: SourceFile) -> dict[str, int]:
    """Returns the parts of a file that are too large: itself, and its functions (without
    decorators)."""
    found = {}
    if (lines := len(file.text.splitlines())) > FILE_LINES_MAX:
        found[file.path] = lines
    for function in functions(file.nodes):
        assert function.end_lineno is not None
        if (lines := function.end_lineno - function.lineno + 1) > FUNCTION_LINES_MAX:
            found[f"{file.path}:{function.name}"] = lines
    return found


def test_files_and_functions_are_small():
    found: dict[str, int] = {}
    for file in python_files():
        found |= sizes(file)
    assert found == EXCEPTIONS, "too large, or an exception that shrank or went away"


def test_a_file_of_501_lines_is_found():
    assert sizes(planted("a = 1\n" * 501)) == {"raftlog/base/planted.py": 501}
    assert sizes(planted("a = 1\n" * 500)) == {}


@pytest.mark.parametrize("head", ["def f():\n", "async def f():\n"])
def test_a_function_of_71_lines_is_found(head: str):
    assert sizes(planted(head + "    a = 1\n" * 70)) == {"raftlog/base/planted.py:f": 71}
    assert sizes(planted(head + "    a = 1\n" * 69)) == {}

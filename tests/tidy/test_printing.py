"""Only the command line prints: everything else returns, raises or traces."""

import ast
from collections.abc import Iterator

from tests.tidy.tree import BESIDE, PRODUCT, SourceFile, dotted, files_below, planted

MAY_PRINT = ("raftlog/cli/", "sim/raftlog_sim/__main__.py", "sim/raftlog_sim/commands/")
STREAMS = {"sys.stdout.write", "sys.stderr.write", "print"}


def problems(file: SourceFile) -> Iterator[str]:
    """Calls that write to the terminal."""
    if file.path.startswith(MAY_PRINT):
        return
    for node in file.nodes:
        if isinstance(node, ast.Call) and dotted(node.func) in STREAMS:
            yield file.at(node, f"{dotted(node.func)}() outside the command line")


def test_only_the_command_line_prints():
    files = files_below(*PRODUCT, *BESIDE)
    assert [line for file in files for line in problems(file)] == []


def test_a_print_is_found():
    assert len(list(problems(planted("print(1)")))) == 1
    assert len(list(problems(planted("sys.stderr.write('x')")))) == 1
    assert list(problems(planted("print(1)", "raftlog/cli/output/render.py"))) == []
    assert list(problems(planted("console.print(1)"))) == []

"""Nothing from outside becomes code: no pickle, no eval; one exec, of our own generated codec."""

import ast
from collections.abc import Iterator

import pytest

from tests.tidy.tree import BESIDE, PRODUCT, SourceFile, dotted, files_below, planted

BANNED_MODULES = {"pickle", "_pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle"}
BANNED_CALLS = {"eval", "exec", "compile", "__import__", "yaml.load", "yaml.unsafe_load"}
# The codec generator makes text from our own checked-in tables and executes it (law 6).
EXEC_ALLOWED = {"raftlog/kafka/compile.py": {"exec", "compile"}}


def problems(file: SourceFile) -> Iterator[str]:
    """Imports and calls that could turn somebody's bytes into code."""
    allowed = EXEC_ALLOWED.get(file.path, set())
    for node in file.nodes:
        for module in _imported(node):
            if module.partition(".")[0] in BANNED_MODULES:
                yield file.at(node, f"imports {module}")
        if isinstance(node, ast.Call):
            name = dotted(node.func)
            if name in BANNED_CALLS - allowed:
                yield file.at(node, f"calls {name}()")


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [node.module or ""]
    return []


def test_no_bytes_become_code():
    files = files_below(*PRODUCT, *BESIDE)
    assert [line for file in files for line in problems(file)] == []


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from marshal import loads",
        "import os, dill",
        "eval('1')",
        "exec(text)",
        "compile(text, 'x', 'exec')",
        "__import__(name)",
    ],
)
def test_a_planted_violation_is_found(text: str):
    assert len(list(problems(planted(text)))) == 1


def test_only_the_codec_generator_may_execute():
    text = "exec(text, names)"
    assert list(problems(planted(text, "raftlog/kafka/compile.py"))) == []
    assert list(problems(planted(text, "raftlog/kafka/codec.py"))) != []
    assert list(problems(planted("eval(text)", "raftlog/kafka/compile.py"))) != []


def test_methods_of_the_same_name_stay_silent():
    assert list(problems(planted("re.compile('a')\nself.eval(1)"))) == []

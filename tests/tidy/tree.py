"""The tree as the tidy tests see it: the files that git would keep, parsed once.

A rule is a function from a SourceFile (or a text) to problems; a problem is one line that names the
place. Each rule is tested twice: on a planted violation it must speak, on the tree be silent.
"""

import ast
import functools
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent.parent

PRODUCT = ("raftlog/",)
BESIDE = ("sim/", "jepsen_style_tests/")
# Everything that the simulator must control: floors 1 to 6, verify and client.core.
SANS_IO = (
    *(f"raftlog/{floor}/" for floor in ("base", "records", "raft", "kafka", "storage", "verify")),
    *(
        f"raftlog/{floor}/"
        for floor in ("metadata", "groups", "seal", "partition", "broker", "client/core")
    ),
)


class SourceFile(NamedTuple):
    """A Python file: its path from the root, its text and its syntax tree."""

    path: str
    text: str
    tree: ast.Module

    def at(self, node: ast.AST, problem: str) -> str:
        """One line for a report: where, and what is wrong."""
        return f"{self.path}:{getattr(node, 'lineno', 1)}: {problem}"

    @property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Every node of the tree, walked once for all rules."""
        return _nodes(self.tree)

    @property
    def module(self) -> str:
        """The dotted name under which the file is imported."""
        path = self.path.removeprefix("sim/").removesuffix(".py").removesuffix("/__init__")
        return path.replace("/", ".")


@functools.cache
def _nodes(tree: ast.AST) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(tree))


def planted(text: str, path: str = "raftlog/base/planted.py") -> SourceFile:
    """A file that does not exist, for a test of a rule."""
    return SourceFile(path, text, ast.parse(text))


@functools.cache
def paths() -> tuple[str, ...]:
    """All files that git keeps or would keep, from the root, sorted; deleted ones left out."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout
    names = sorted(set(listed.decode().split("\0")) - {""})
    return tuple(name for name in names if (ROOT / name).is_file())


@functools.cache
def text_of(path: str) -> str | None:
    """A file's text, or None when it is not text."""
    data = (ROOT / path).read_bytes()
    try:
        return None if b"\0" in data else data.decode()
    except UnicodeDecodeError:
        return None


@functools.cache
def python_files() -> tuple[SourceFile, ...]:
    """Every Python file, the scripts without suffix among them."""
    return tuple(_parsed(path) for path in paths() if _is_python(path))


def product_files() -> list[SourceFile]:
    """The files of raftlog."""
    return files_below(*PRODUCT)


def files_below(*folders: str) -> list[SourceFile]:
    """The Python files in these folders."""
    return [file for file in python_files() if file.path.startswith(folders)]


def functions(
    nodes: Iterable[ast.AST],
) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """The functions and methods among these nodes."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def dotted(node: ast.AST) -> str:
    """`a.b.c` for a chain of names, the empty string for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = dotted(node.value)
        return f"{before}.{node.attr}" if before else ""
    return ""


def _is_python(path: str) -> bool:
    if path.endswith(".py"):
        return True
    return path.startswith("scripts/") and "python" in (text_of(path) or "").partition("\n")[0]


def _parsed(path: str) -> SourceFile:
    text = text_of(path)
    assert text is not None, f"{path} is not text"
    return SourceFile(path, text, ast.parse(text, path))

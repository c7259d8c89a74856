"""Floors 1 to 6, verify and client.core call nothing that the simulator could not control.

import-linter sees the modules; this sees the builtins, and the iteration over sets that a syntax
tree can show. The real check for order is the simulator's run under two hash seeds.
"""

import ast
from collections.abc import Iterator

import pytest

from tests.tidy.tree import SANS_IO, SourceFile, dotted, files_below, planted

BANNED_CALLS = {
    "open": "files are reached through the Disk port",
    "io.open": "files are reached through the Disk port",
    "os.open": "files are reached through the Disk port",
    "id": "an address is another one in every run",
    "hash": "a hash of text is another one in every run",
    "input": "there is no terminal here",
    "breakpoint": "there is no terminal here",
    "os.urandom": "randomness is an injected stream",
    "os.getpid": "a process number is another one in every run",
}
ALLOWED = {("raftlog/base/identity.py", "id")}  # looks objects up; nothing follows from the number
SLEEP = "time is an argument: name a deadline instead of waiting"
SET_ORDER = "the order of a set is another one in every run: sort it, or use a tuple or dict"
# Calls whose result keeps the order in which a set yields its items.
KEEPS_ORDER = {"list", "tuple", "iter", "enumerate", "map", "filter", "zip", "next", "reversed"}


def problems(file: SourceFile) -> Iterator[str]:
    """Calls of banned names, and iteration over what is visibly a set."""
    for node in file.nodes:
        if isinstance(node, ast.Call):
            name = dotted(node.func)
            if name in BANNED_CALLS and (file.path, name) not in ALLOWED:
                yield file.at(node, f"{name}(): {BANNED_CALLS[name]}")
            if name.rpartition(".")[2] == "sleep":
                yield file.at(node, f"{name}(): {SLEEP}")
            if name in KEEPS_ORDER and any(_is_set(argument) for argument in node.args):
                yield file.at(node, SET_ORDER)
        if isinstance(node, ast.Starred | ast.YieldFrom) and _is_set(node.value):
            yield file.at(node, SET_ORDER)
        if isinstance(node, ast.For | ast.comprehension) and _is_set(node.iter):
            yield file.at(node.iter, SET_ORDER)


def _is_set(node: ast.AST | None) -> bool:
    """Whether an expression is visibly a set: a display, a comprehension, a call, an operation."""
    if isinstance(node, ast.Set | ast.SetComp):
        return True
    if isinstance(node, ast.BinOp) and isinstance(
        node.op, ast.BitOr | ast.BitAnd | ast.Sub | ast.BitXor
    ):
        return _is_set(node.left) or _is_set(node.right)
    return isinstance(node, ast.Call) and dotted(node.func) in ("set", "frozenset")


def test_the_deciding_floors_are_sans_io():
    assert [line for file in files_below(*SANS_IO) for line in problems(file)] == []


@pytest.mark.parametrize(
    "text",
    [
        "open('x')",
        "id(x)",
        "hash(x)",
        "trio.sleep(1)",
        "sleep(1)",
        "os.urandom(8)",
        "for x in {1, 2}: pass",
        "for x in set(y): pass",
        "[x for x in frozenset(y)]",
        "{x: 1 for x in {y for y in z}}",
        "list(set(y))",
        "tuple({1, 2})",
        "f(*set(y))",
        "for x in set(a) | b: pass",
    ],
)
def test_a_planted_violation_is_found(text: str):
    assert len(list(problems(planted(text)))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "disk.open('x')",
        "for x in sorted(set(y)): pass",
        "x in {1, 2}",
        "len(set(y))",
        "self.id",
        "f(*sorted({1, 2}))",
        "for x in a | b: pass",
        "all(x in y for x in {1: 2})",
    ],
)
def test_what_is_allowed_stays_silent(text: str):
    assert list(problems(planted(text))) == []

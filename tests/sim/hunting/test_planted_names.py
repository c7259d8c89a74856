"""A planted bug replaces what is there.

The story: a module was renamed, and two mutants still patched its old name. Each seed then ended
with an AttributeError, which counted as a seed that had found the bug.
"""

import ast
import runpy
from collections.abc import Iterator
from inspect import isclass, ismodule
from pathlib import Path
from typing import Any

import pytest

from tests.tidy.tree import ROOT

FILES = sorted((ROOT / "sim" / "mutants").glob("*_mutants.py"))


def lost_names(text: str, known: dict[str, Any]) -> Iterator[str]:
    """Attributes of imported modules and classes that a mutant names, and that are not there."""
    nodes = list(ast.walk(ast.parse(text)))
    # A parameter may have the name of a module.
    local = {node.arg for node in nodes if isinstance(node, ast.arg)}
    for node in nodes:
        parts: list[str] = []
        root = node
        while isinstance(root, ast.Attribute):
            parts.insert(0, root.attr)
            root = root.value
        if not parts or not isinstance(root, ast.Name) or root.id in local:
            continue
        value, name = known.get(root.id), root.id
        for part in parts:
            if not ismodule(value) and not isclass(value):
                break  # the attributes of an object are not known here
            name = f"{name}.{part}"
            # `__slots__` and fields of a class have no value of their own.
            if not hasattr(value, part) and part not in getattr(value, "__annotations__", {}):
                yield name
            value = getattr(value, part, None)


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_a_mutant_names_what_is_there(path: Path):
    assert list(lost_names(path.read_text(), runpy.run_path(str(path)))) == []


def test_a_lost_name_is_found():
    known = {"ast": ast, "path": Path()}
    text = "ast.parsed = path.whatever = ast.parse\ndef f(path): return path.nothing"
    assert list(lost_names(text, known)) == ["ast.parsed"]

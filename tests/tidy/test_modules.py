"""No dead modules: each file of the product is imported by something that is not a test.

A lazy import counts: a string that is a dotted name, such as raftlog/__init__.py and pyproject.toml
use, or its beginning up to a dot, which keeps the whole package alive. A docstring does not.
"""

import ast
import re
from collections.abc import Iterable, Iterator

from tests.tidy.tree import BESIDE, PRODUCT, SourceFile, files_below, planted, text_of

# Started by name: `python -m raftlog`, `python -m raftlog_sim`.
ENTRIES = {"raftlog.__main__", "raftlog_sim.__main__"}
LAZY = re.compile(r"(raftlog(?:_sim)?(?:\.\w+)+\.?)(?::\w+)?")
# Built and tested, not yet used by the product; a module that is used must leave this list.
WAITING: set[str] = set()


def used_names(file: SourceFile) -> Iterator[str]:
    """Every dotted name that a file imports, whole or in part, or names in a string."""
    for node in file.nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from (lazy[1] for lazy in [LAZY.fullmatch(node.value)] if lazy)


def dead(files: Iterable[SourceFile], also_used: Iterable[str] = ()) -> set[str]:
    """Modules that no other uses; a package lives by its modules."""
    files = list(files)
    used = set(also_used) | ENTRIES
    for file in files:
        used.update(name for name in used_names(file) if name != file.module)
    modules = {file.module for file in files if not file.path.endswith("__init__.py")}
    whole = tuple(name for name in used if name.endswith("."))
    return {module for module in modules - used if not module.startswith(whole)}


def test_no_module_is_dead():
    configured = LAZY.findall(text_of("pyproject.toml") or "")
    scripts = [name for file in files_below("scripts/") for name in used_names(file)]
    files = files_below(*PRODUCT, "sim/raftlog_sim/")
    assert dead(files, [*configured, *scripts]) == WAITING


def test_tests_beside_the_tower_are_never_imported():
    assert [file.path for file in files_below(*BESIDE) if "/tests/" in file.path] == []


def test_a_dead_module_is_found():
    alive = planted("x = 1", "raftlog/base/alive.py")
    lonely = planted("import raftlog.base.lonely", "raftlog/base/lonely.py")
    reader = planted("from raftlog.base import alive", "raftlog/cli/main.py")
    found = dead([alive, lonely, reader], ["raftlog.cli.main"])
    assert found == {"raftlog.base.lonely"}


def test_a_lazy_name_keeps_a_module_alive():
    lazy = planted("HOMES = {'Cluster': 'raftlog.embed.cluster'}", "raftlog/__init__.py")
    cluster = planted("x = 1", "raftlog/embed/cluster.py")
    assert dead([lazy, cluster]) == set()


def test_the_beginning_of_a_lazy_name_keeps_a_package_alive():
    lazy = planted("load(f'raftlog.kafka.messages.{name}')", "raftlog/kafka/codec.py")
    message = planted("x = 1", "raftlog/kafka/messages/fetch.py")
    assert dead([lazy, message]) == {"raftlog.kafka.codec"}


def test_a_docstring_keeps_nothing_alive():
    reader = planted('"""See raftlog.base.lonely."""', "raftlog/cli/main.py")
    lonely = planted("x = 1", "raftlog/base/lonely.py")
    assert "raftlog.base.lonely" in dead([reader, lonely])

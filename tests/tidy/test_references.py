"""Documents, files and folders that a page, docstring or comment names are in the project.

A reader cannot open a document that only its author had. Published papers may be cited by section:
Raft, Ongaro's thesis, RFCs, KIPs.
"""

import fnmatch
import functools
import re
from collections.abc import Iterator

import pytest

from tests.tidy.prose import PLANTED, sentences_in, sentences_of
from tests.tidy.tree import paths

ROOMS = "raftlog|sim|jepsen_style_tests|scripts|docs|tests"
PATH = re.compile(rf"(?<![\w./*<$-])(?:{ROOMS})/[\w./*<>{{}}-]+|(?<![\w./*<>-])[\w-]+\.(?:md|py)\b")
PLACEHOLDER = re.compile(r"<[^>]*>|\{[^}]*\}|N(?=-)")
# Files that a run or a user of the examples writes.
WRITTEN_BY_RUNS = {"story.md", "shop.py"}
# The folder of the clients that scripts/strangers tries lies below the user's cache directory.
ELSEWHERE = {"raftlog/strangers"}
SECTION = re.compile(r"\b[Ss]ections? \d+(?:\.\d+)*")
PUBLISHED = re.compile(r"\b(?:Raft|RFC|KIP-\d+|paper|thesis)\b")
PAPERS = ("tests/paper/",)  # each of its tests is about a section of the paper that it names
REVIEW = re.compile(r"\b[Rr]eview[- ]\d+\w?\b(?!-\w)")


def problems(path: str, text: str | None = None) -> Iterator[str]:
    """Yields names of a file that do not exist, with the line."""
    found = sentences_of(path) if text is None else sentences_in(text, path)
    for sentence in found:
        for match in PATH.finditer(sentence.text):
            name = match[0].rstrip("./")
            if not exists(name):
                yield f"{path}:{sentence.line}: {name} does not exist"
        cited = PUBLISHED.search(sentence.text) or path.startswith(PAPERS)
        if (section := SECTION.search(sentence.text)) and not cited:
            yield f"{path}:{sentence.line}: {section[0]} of what?"
        if review := REVIEW.search(sentence.text):
            yield f"{path}:{sentence.line}: {review[0]} is no scenario's name"


def exists(name: str) -> bool:
    """Whether a file, a folder or what a pattern stands for is in the tree."""
    if name in WRITTEN_BY_RUNS | ELSEWHERE:
        return True
    files, folders, names = _known()
    if "/" not in name:
        return name in names or name in folders
    if re.fullmatch(r"docs/decisions/\d{4}", name):  # a decision by its number
        return any(each.startswith(f"{name}-") for each in files)
    if any(c in name for c in "*<{") or PLACEHOLDER.search(name):
        pattern = PLACEHOLDER.sub("*", name)
        return any(fnmatch.fnmatch(each, pattern) for each in files | folders)
    return name in files or name in folders


@functools.cache
def _known() -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """All files, all folders, and the files' names without folder."""
    parts = [path.split("/") for path in paths()]
    folders = {"/".join(part[:depth]) for part in parts for depth in range(1, len(part))}
    return frozenset(paths()), frozenset(folders), frozenset(part[-1] for part in parts)


def test_what_is_named_exists():
    assert [problem for path in paths() for problem in problems(path)] == []


@pytest.mark.parametrize(
    "text",
    [
        "See raftlog/base/nothing.py.",
        "The bound is from NOTES.md.",
        "As in `docs/decisions/9999-nothing.md`.",
        "Terms never fall (section 7 of the specification).",
        "Found by review-4.",
        "`tests/raft/test_nothing_*.py` asks.",
    ],
)
def test_a_planted_violation_is_found(text: str):
    assert len(list(problems("planted.md", text))) == 1
    assert len(list(problems(PLANTED, f"# {text}\n"))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "See raftlog/base/limits.py, raftlog/raft and `tests/raft/test_*.py`.",
        "The reason is in docs/decisions/0001.",
        "A decision has the name docs/decisions/<number>-<title>.md.",
        "A leader gives way (Raft, section 5.1).",
        "Found by review-4-rot-below-the-mark, and by review-N-*.",
        "It lies in ~/data/docs/none.md.",
    ],
)
def test_what_is_allowed_stays_silent(text: str):
    assert list(problems("planted.md", text)) == []

"""Every document has one title, lines of at most 100 columns, and links that lead somewhere."""

import re
from collections.abc import Iterator

import pytest

from tests.tidy.tree import ROOT, paths, text_of

COLUMNS_MAX = 100
LINK = re.compile(r"\[[^\]]*\]\((?!https?://|mailto:|#)([^)#\s]+)(?:#[^)]*)?\)")


def lines_outside_code(text: str) -> Iterator[tuple[int, str]]:
    """The numbered lines that are prose: not inside a fenced block."""
    fenced = False
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield number, line


def problems(text: str) -> Iterator[str]:
    """Titles and columns; table rows and lines with a web address cannot be folded."""
    titles = [number for number, line in lines_outside_code(text) if line.startswith("# ")]
    if len(titles) != 1:
        yield f"{titles[1] if titles else 1}: {len(titles)} titles instead of one"
    for number, line in enumerate(text.splitlines(), start=1):
        foldable = not line.startswith("|") and "https://" not in line
        if foldable and len(line) > COLUMNS_MAX:
            yield f"{number}: {len(line)} columns"


def links(text: str) -> list[str]:
    """The relative links of a document, without their anchors."""
    return [target for _, line in lines_outside_code(text) for target in LINK.findall(line)]


STATUS = re.compile(r"\*\*Status\.\*\* (Accepted\.|Superseded by \[\d{4}\]\(\d{4}-[a-z-]+\.md\))")


def has_status(text: str) -> bool:
    """Whether a decision says below its title that it stands, or which page replaced it."""
    _, _, below = text.partition("\n\n")
    return STATUS.match(below) is not None


def documents() -> list[str]:
    """All Markdown files."""
    return [path for path in paths() if path.endswith(".md")]


def test_documents_have_one_title_and_100_columns():
    texts = {path: text_of(path) or "" for path in documents()}
    assert [f"{path}:{line}" for path, text in texts.items() for line in problems(text)] == []


def test_links_lead_somewhere():
    dead = [
        f"{path}: {target}"
        for path in documents()
        for target in links(text_of(path) or "")
        if not (ROOT / path).parent.joinpath(target).exists()
    ]
    assert dead == []


def test_every_page_below_docs_is_reachable_from_the_index():
    reached, waiting = set(), ["docs/index.md"]
    while waiting:
        page = waiting.pop()
        reached.add(page)
        for target in links(text_of(page) or ""):
            path = (ROOT / page).parent.joinpath(target).resolve().relative_to(ROOT).as_posix()
            if path.endswith(".md") and (ROOT / path).exists() and path not in reached:
                waiting.append(path)
    assert {page for page in documents() if page.startswith("docs/")} - reached == set()


@pytest.mark.parametrize(
    "text",
    ["no title", "# One\n# Two", "# One\n" + "x" * 101, "# One\n```\n" + "x" * 101 + "\n```"],
)
def test_a_planted_violation_is_found(text: str):
    assert len(list(problems(text))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "# One\n```\n# a comment in code\n```",
        "# One\n| " + "x" * 120 + " |",
        "# One\nhttps://example.org/" + "x" * 100,
    ],
)
def test_what_is_allowed_stays_silent(text: str):
    assert list(problems(text)) == []


def test_links_are_found():
    text = "[a](b.md) [c](d/e.md#f) [g](https://x.org) [h](#here)\n```\n[i](j.md)\n```"
    assert links(text) == ["b.md", "d/e.md"]


def test_every_decision_begins_with_its_status():
    decisions = [path for path in documents() if re.match(r"docs/decisions/\d{4}-", path)]
    assert [path for path in decisions if not has_status(text_of(path) or "")] == []
    assert len(decisions) > 50


@pytest.mark.parametrize(
    ("below", "known"),
    [
        ("**Status.** Accepted.", True),
        ("**Status.** Superseded by [0062](0062-groups.md): served.", True),
        ("**Status.** Superseded by 0062.", False),
        ("**Context.** No status.", False),
    ],
)
def test_a_status_is_read(below: str, known: bool):
    assert has_status(f"# 0001: a choice\n\n{below}\n") is known

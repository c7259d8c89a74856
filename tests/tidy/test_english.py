"""Pages, docstrings and comments are in plain English: the rules that a program can check.

    python tests/tidy/test_english.py FOLDER...    lists what is refused, with file and line

A sentence does not begin with Who, Whoever, What or Of (questions and headings may), names Kafka's
errors by name and not by number, and has at most 40 words.
"""

import re
import sys
from collections.abc import Iterator

import pytest

from tests.tidy.prose import PLANTED, Sentence, sentences_in, sentences_of
from tests.tidy.tree import paths

WORDS_MAX = 40
OPENER = re.compile(r"^[\"'(\[*_]*(Who|Whoever|What|Of)\b(?!-)")
ERROR_NUMBER = re.compile(
    r"\b[Ee]rrors?(?: codes?)? \(?-?\d+\b(?! (?:of|in|times|seeds|runs)\b)"
    r"|(?<!xit )\bcodes? -?\d+"
    r"|\banswer(?:s|ed)?(?: with)? -?\d{1,3}\b(?! [a-z]+s\b)"
    r"|\b(?:refused|append) \(\d{1,3}\)"
)
CODE = re.compile(r"``[^`]+``|`[^`]+`")
LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


def problem(sentence: Sentence) -> str | None:
    """Why a sentence is refused; None when it is fine."""
    text = LINK.sub(r"\1", CODE.sub("`code`", sentence.text))
    if (opener := OPENER.match(text)) and not text.rstrip("\"')*_ ").endswith("?"):
        return f"begins with {opener[1]}"
    if number := ERROR_NUMBER.search(text):
        return f"{number[0]}: name the error"
    words = sum(any(c.isalnum() for c in word) for word in text.split())
    return f"{words} words" if words > WORDS_MAX else None


def problems(path: str) -> Iterator[str]:
    """The refused sentences of a file, with line and first words."""
    for sentence in sentences_of(path):
        if why := problem(sentence):
            yield f"{path}:{sentence.line}: {why}: {' '.join(sentence.text.split()[:8])} ..."


def test_no_sentence_of_the_tree_is_refused():
    assert [line for path in paths() for line in problems(path)] == []


@pytest.mark.parametrize(
    "text",
    [
        "Whoever asks is told.",
        "Fine. What is held counts.",
        "* Of these, two remain.",
        "| a | b |\n|---|---|\n| Who asks | is told |",
        "The broker answers with error 41.",
        "A stale epoch is refused (47).",
        "word " * 41,
    ],
)
def test_a_planted_violation_is_found(text: str):
    assert len([s for s in sentences_in(text) if problem(s)]) == 1


@pytest.mark.parametrize(
    "text",
    [
        "# What is refused",
        "What is refused? This.",
        "| What | Who |\n|---|---|\n| a | b |",
        "**What it costs.** Nothing.",
        "```\nWhat is refused\n```",
        "Exit code 1 says that it answered 12 requests.",
        "word " * 40,
        "[" + "word " * 30 + "](page.md) " + "word " * 10,
        "`" + "word " * 41 + "`",
    ],
)
def test_what_is_allowed_stays_silent(text: str):
    assert [s for s in sentences_in(text) if problem(s)] == []


def test_docstrings_and_comments_are_read():
    text = '"""Fine.\n\nWhat is held counts.\n"""\n# Of these,\n# two.\nx = 1  # Who asks\n'
    found = [(s.line, problem(s)) for s in sentences_in(text, PLANTED)]
    assert [line for line, why in found if why] == [3, 5, 7]


def main(arguments: list[str]) -> int:
    """List the refused sentences below the folders; 1 when there is any."""
    wanted = tuple(argument.removeprefix("./") for argument in arguments)
    found = [line for path in paths() if path.startswith(wanted) for line in problems(path)]
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

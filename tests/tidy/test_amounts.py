"""Texts for people count in words by `amount`, so that 1 never stands before a plural."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.tidy.tree import SourceFile, dotted, files_below, planted

TOLD = (
    *(f"raftlog/{folder}/" for folder in ("cli", "client", "embed", "spark", "verify", "broker")),
    *("raftlog/metadata/", "raftlog/runtime/local/", "raftlog/runtime/settings/config_"),
    *("sim/raftlog_sim/commands/", "sim/raftlog_sim/hunting/bug_story.py", "jepsen_style_tests/"),
)
"""Where texts for people are made. Below them stand bytes of damaged frames, in many places."""
_THINGS = (
    "acknowledgements|assignments|batches|brokers|bytes|calls|characters|checks|clients|"
    "controllers|entries|events|faults|groups|histories|keys|kinds|nodes|offsets|operations|"
    "partitions|polls|processes|records|replicas|requests|resources|rows|runs|scenarios|seeds|"
    "segments|sends|settings|steps|tasks|times|topics|transactions|values|versions|voters"
)
_PLURAL = re.compile(rf" (?:(?!(?:has|had|in|of|to)\b)[a-z]+ )?({_THINGS})\b(?!=)")
_OF_A_TABLE = re.compile(r"[<>]?\d+,?")
"""The format of a number in a column."""
_VERBS = {"process", "processes", "seed"}
"""`process 7 runs` and `node 3 steps` name one thing by its number."""


def problems(file: SourceFile) -> Iterator[str]:
    """Numbers in texts that stand right before a plural. A constant is never 1, and a name that
    follows its kind (`process {number} runs`) is no amount."""
    for text in file.nodes:
        if not isinstance(text, ast.JoinedStr):
            continue
        for at, (number, after) in enumerate(zip(text.values, text.values[1:], strict=False)):
            if not (isinstance(number, ast.FormattedValue) and isinstance(after, ast.Constant)):
                continue
            found = _PLURAL.match(str(after.value))
            named = dotted(number.value).rpartition(".")[2]
            before = text.values[at - 1] if at else None
            kind = str(before.value).split()[-1:] if isinstance(before, ast.Constant) else []
            form = ast.unparse(number.format_spec)[2:-1] if number.format_spec else ""
            if _OF_A_TABLE.fullmatch(form):
                continue
            if found and not named.isupper() and not _VERBS.intersection(kind):
                yield file.at(text, f"amount(..., {found.group(1)!r} in the singular) is meant")


def test_what_people_read_is_counted_by_amount():
    assert [line for file in files_below(*TOLD) for line in problems(file)] == []


@pytest.mark.parametrize("text", ['f"{n} records"', 'f"of {len(x):,} new partitions in all"'])
def test_a_number_before_a_plural_is_found(text):
    assert len(list(problems(planted(text)))) == 1


@pytest.mark.parametrize(
    "text",
    [
        'f"{TOPICS_MAX} topics"',
        'f"process {n} runs"',
        'f"{n} of them"',
        "f\"{amount(n, 'row')} x\"",
    ],
)
def test_other_texts_are_left_alone(text):
    assert list(problems(planted(text))) == []

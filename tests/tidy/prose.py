"""The prose of the tree: pages, docstrings and comments, cut into passages and sentences.

A passage is a paragraph, a list item, a table cell, a docstring's paragraph or a block of comment
lines. Headings, code blocks, drawings and the first row of a table are no prose.
"""

import ast
import functools
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tests.tidy.tree import SourceFile, python_files, text_of

ITEM = re.compile(r"^(\s*)((?:[*+-]|\d{1,3}[.)]) +)")
SEPARATOR = re.compile(r"^\s*\|[\s:|-]+\|\s*$")
# Text that is set in columns: a drawing or a list of names with their meanings.
COLUMNS = re.compile(r"\S {3,}\S")
DRAWN = re.compile(r"[+|]--|--[+|>]|[<>]--|[┌└├│]")
# Comments that speak to a tool.
DIRECTIVE = re.compile(r"^(?:!|noqa|type:|ruff:|mypy:|pragma|fmt:|pylint|nosec)")
RUN_IN_HEADING = re.compile(r"^(\*{1,2})[^*]+[.:?]\1:?\s*")
END = re.compile(r"(?<=[.!?])[\"')\]*_]*\s+(?=[\"'(\[*_]*[A-Z0-9`])")
INDENT_OF_CODE = 4
PLANTED = "planted.py"  # the name of a Python file that does not exist


class Line(NamedTuple):
    """A line of prose and where it stands."""

    number: int
    text: str


class Sentence(NamedTuple):
    """A sentence and the line on which it begins."""

    line: int
    text: str


def sentences_of(path: str) -> list[Sentence]:
    """The sentences of a page, a Python file or a scenario; none for any other file."""
    text = text_of(path)
    if text is None:
        return []
    return [part for passage in passages(path, text) for part in _sentences(passage)]


def passages(path: str, text: str) -> Iterator[list[Line]]:
    """The passages of a file, each a list of its lines."""
    if path.endswith(".md"):
        yield from _paragraphs(_numbered(text.splitlines()), markdown=True)
    elif path.endswith(".txt") and path.startswith("sim/"):
        yield from _paragraphs(_scenario_comments(text))
    elif file := _python_file(path, text):
        for node in _docstrings(file.nodes):
            yield from _paragraphs(_docstring_lines(node))
        for block in _comment_blocks(text):
            yield from _paragraphs(block)


def sentences_in(text: str, path: str = "planted.md") -> list[Sentence]:
    """The sentences of a text that is no file, for a test of a rule."""
    return [part for passage in passages(path, text) for part in _sentences(passage)]


def _python_file(path: str, text: str) -> SourceFile | None:
    if path == PLANTED:
        return SourceFile(path, text, ast.parse(text))
    return _python_files().get(path)


@functools.cache
def _python_files() -> dict[str, SourceFile]:
    return {file.path: file for file in python_files()}


def _numbered(lines: Iterable[str], first: int = 1) -> Iterator[Line]:
    return (Line(number, line) for number, line in enumerate(lines, start=first))


def _docstrings(nodes: Iterable[ast.AST]) -> Iterator[ast.Constant]:
    """All strings that stand as statements: of modules, classes, functions and fields."""
    for node in nodes:
        if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            continue
        if isinstance(node.value.value, str):
            yield node.value


def _docstring_lines(node: ast.Constant) -> Iterator[Line]:
    lines = str(node.value).split("\n")
    margins = [len(line) - len(line.lstrip()) for line in lines[1:] if line.strip()]
    margin = min(margins, default=0)
    return _numbered([lines[0].lstrip(), *(line[margin:] for line in lines[1:])], node.lineno)


def _comment_blocks(text: str) -> Iterator[list[Line]]:
    """Comment lines one below the other in one column; a comment behind code stands alone."""
    block: list[Line] = []
    last = (-1, -1)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT:
            continue
        words = token.string.lstrip("#")
        if DIRECTIVE.match(words.strip()):
            continue
        number, column = token.start
        if not (last == (number - 1, column) and token.line.strip().startswith("#")) and block:
            yield block
            block = []
        block.append(Line(number, words.removeprefix(" ")))
        last = (number, column)
    if block:
        yield block


def _scenario_comments(text: str) -> Iterator[Line]:
    for number, line in enumerate(text.splitlines(), start=1):
        yield Line(number, line.lstrip("# ") if line.startswith("#") else "")


def _paragraphs(lines: Iterable[Line], *, markdown: bool = False) -> Iterator[list[Line]]:
    """Cut lines at blank ones, list items and headings; leave out what is no prose."""
    passage: list[Line] = []
    fenced = literal = False
    margin = 0  # the column where the text of the present list item begins
    listed = list(lines)
    for position, line in enumerate(listed):
        words = line.text.strip()
        indent = len(line.text) - len(line.text.lstrip())
        if words.startswith("```"):
            fenced, broken = not fenced, True
        else:
            broken = fenced or not words or _is_no_prose(line.text, markdown)
        if literal and words and indent <= margin:
            literal = False
        if not literal and words and indent >= margin + INDENT_OF_CODE:
            literal = not ITEM.match(line.text) and (not passage or _opens_code(passage[-1].text))
        if broken or literal or words.startswith("|") or ITEM.match(line.text):
            if passage:
                yield passage
            passage = []
        if words and indent < margin and not ITEM.match(line.text):
            margin = 0
        if broken or literal:
            continue
        if words.startswith("|"):
            yield from _cells(line, listed[position + 1].text if listed[position + 1 :] else "")
        elif item := ITEM.match(line.text):
            margin = len(item[0])
            passage = [Line(line.number, line.text[margin:])]
        else:
            passage.append(Line(line.number, words))
    if passage:
        yield passage


def _opens_code(text: str) -> bool:
    return text.endswith(":")


def _is_no_prose(text: str, markdown: bool) -> bool:
    words = text.strip()
    if markdown and words.startswith(("#", "![", "<")):
        return True
    if words.startswith(">>>") or set(words) <= set("=-~_ "):
        return True
    if words.startswith("|"):
        return bool(SEPARATOR.match(text))
    return bool(DRAWN.search(text) or COLUMNS.search(ITEM.sub("", text)))


def _cells(line: Line, below: str) -> Iterator[list[Line]]:
    """The cells of a table's row; the first row is its heading."""
    if SEPARATOR.match(below):
        return
    for cell in re.split(r"(?<!\\)\|", line.text.strip().strip("|")):
        if cell.strip():
            yield [Line(line.number, cell.strip())]


def _sentences(passage: list[Line]) -> Iterator[Sentence]:
    text, numbers = "", []
    for line in passage:
        piece = line.text.strip() + " "
        text += piece
        numbers += [line.number] * len(piece)
    heading = RUN_IN_HEADING.match(text)
    begin = heading.end() if heading else 0
    for end in [*(match.end() for match in END.finditer(text, begin)), len(text)]:
        if text[begin:end].strip():
            yield Sentence(numbers[begin], text[begin:end].strip())
        begin = end

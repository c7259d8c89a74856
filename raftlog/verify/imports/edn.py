"""Reads and writes the part of EDN that histories use. Nothing is evaluated.

Read are nil, booleans, integers, floats, strings, characters, keywords, symbols, lists, vectors,
maps, sets, `#_` discards and comments; a tagged element gives its plain value. Keywords become
`Keyword`, everything else plain Python. A vector, list or set becomes a list, a map a dict (keys
that cannot be hashed become tuples). Errors are `BadHistory` with the line.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, Final, final

from raftlog.base.limits import EDN_DEPTH_MAX
from raftlog.verify.histories.history import BadHistory

_TOKEN: Final = re.compile(
    r"""[\s,]+ | ;[^\n]* | (?P<open>\#\{|[\[({]) | (?P<close>[\])}]) | (?P<discard>\#_)
      | (?P<text>"(?:[^"\\]|\\.)*") | (?P<char>\\[^\s,;()\[\]{}"]+|\\.)
      | (?P<tag>\#[A-Za-z][^\s,;()\[\]{}"]*) | (?P<atom>[^\s,;()\[\]{}"\#]+)""",
    re.VERBOSE | re.DOTALL,
)
_CLOSING: Final = {"[": "]", "(": ")", "{": "}", "#{": "}"}
_CHARACTERS: Final = {"newline": "\n", "space": " ", "tab": "\t", "return": "\r"}
_INTEGER: Final = re.compile(r"[+-]?\d{1,4000}N?\Z")
_FLOAT: Final = re.compile(r"[+-]?\d{1,400}(\.\d{0,400})?([eE][+-]?\d{1,4})?M?\Z")


@final
class Keyword(str):
    """`:name`, as the text `name`. It equals that text, so it finds the text in a dict."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f":{self}"


@final
class _Close:
    """The end of a collection, inside the reader."""

    def __init__(self, bracket: str) -> None:
        self.bracket = bracket


def read_all(text: str) -> Iterator[Any]:
    """Every element of `text`."""
    reader = _Reader(text)
    while True:
        element = reader.element(0)
        if element is _END:
            return
        yield element


_END: Final = object()
_NOTHING: Final = object()


@final
class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def fail(self, what: str) -> BadHistory:
        """The error for `what`, with the present line."""
        line = self._text.count("\n", 0, self._at) + 1
        return BadHistory(what, on=f"line {line}", do="it is not EDN as histories have it")

    def element(self, depth: int, *, closing: str = "") -> Any:
        """The next element: `_END` at the end of the text, a `_Close` where `closing` allows it."""
        if depth > EDN_DEPTH_MAX:
            raise self.fail(f"nested deeper than {EDN_DEPTH_MAX}")
        while True:
            found = self._step(depth, closing)
            if found is not _NOTHING:
                return found

    def _step(self, depth: int, closing: str) -> Any:
        if self._at >= len(self._text):
            if closing:
                raise self.fail(f"the text ends before {closing}")
            return _END
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            raise self.fail(f"unexpected {self._text[self._at : self._at + 20]!r}")
        self._at = match.end()
        kind, token = match.lastgroup, match.group()
        if kind is None:
            return _NOTHING
        if kind == "open":
            return self._collection(token, depth)
        if kind == "close":
            if token != closing:
                raise self.fail(f"unexpected {token}")
            return _Close(token)
        if kind in ("discard", "tag"):
            element = self.element(depth + 1)
            if element is _END:
                raise self.fail(f"{token} without an element")
            return _NOTHING if kind == "discard" else element
        return self._scalar(kind, token)

    def _scalar(self, kind: str, token: str) -> Any:
        if kind == "text":
            try:
                return json.loads(token, strict=False)
            except ValueError:
                raise self.fail(f"bad string {token[:40]}") from None
        if kind == "char":
            return _CHARACTERS.get(token[1:], token[1:])
        if token.startswith(":"):
            return Keyword(token[1:])
        if token in ("nil", "true", "false"):
            return {"nil": None, "true": True, "false": False}[token]
        if _INTEGER.match(token):
            return int(token.rstrip("N"))
        if _FLOAT.match(token):
            return float(token.rstrip("M"))
        return token  # a symbol

    def _collection(self, bracket: str, depth: int) -> Any:
        closing = _CLOSING[bracket]
        items = []
        while True:
            element = self.element(depth + 1, closing=closing)
            if isinstance(element, _Close):
                break
            items.append(element)
        if bracket != "{":
            return items
        if len(items) % 2:
            raise self.fail("a map with a key and no value")
        return {_hashable(items[at]): items[at + 1] for at in range(0, len(items), 2)}


def _hashable(key: Any) -> Any:
    if isinstance(key, list):
        return tuple(_hashable(item) for item in key)
    if isinstance(key, dict):
        return tuple((name, _hashable(item)) for name, item in key.items())
    return key


def write(value: Any) -> str:
    """One element as EDN. Strings stay strings: keywords are `Keyword`s."""
    if value is None:
        return "nil"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Keyword):
        return f":{value}"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, (list, tuple)):
        return "[" + " ".join(write(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{write(k)} {write(v)}" for k, v in value.items()) + "}"
    return repr(value)

"""Replaces fields of named tuples by their numbers, where the types are known.

mypyc knows a named tuple as a tuple only: `message.term` looks the name up, `message[3]` reads a
place. This module replaces the one by the other in modules that mypy has typed. A name that several
tuples of a union have at different places stays.
"""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from mypy import build
from mypy.main import process_options
from mypy.nodes import Argument, Block, Expression, FuncItem, MemberExpr, MypyFile, Node, Statement
from mypy.patterns import Pattern
from mypy.types import TupleType, Type, UnionType, get_proper_type

_KINDS = (Argument, Block, Expression, FuncItem, Pattern, Statement)
# Attributes that lead from a node to nodes outside its own piece of text.
_ELSEWHERE = {"analyzed", "info", "node", "original_def", "type", "unanalyzed_type"}


class TypingError(Exception):
    """The rewritten modules have type errors; the text is mypy's."""


def number_fields(paths: list[str], settings: str) -> Counter[str]:
    """Rewrite these modules in the current folder; returns how many fields, and which were
    unknown."""
    sources, options = process_options(["--config-file", settings, *paths])
    options.export_types = options.preserve_asts = True
    options.incremental = False
    options.cache_dir = os.devnull
    built = build.build(sources, options)
    if built.errors:
        raise TypingError("\n".join(built.errors[:20]))
    count = Counter()
    for source in sources:
        tree = built.graph[source.module].tree
        assert tree is not None, source.module
        _rewrite(Path(source.path), _fields(tree, built.types, count))
    return count


def _fields(tree: MypyFile, types: dict[Expression, Type], count: Counter[str]) -> list[tuple]:
    """Returns (line and column where the tuple ends, those where the field ends, name, number)."""
    found = {}
    for node in _nodes(tree):
        if not isinstance(node, MemberExpr):
            continue
        typed = types.get(node.expr)
        number = None if typed is None else _number(typed, node.name)
        count["untyped" if typed is None else "other" if number is None else "numbered"] += 1
        if number is not None:
            place = node.expr.end_line, node.expr.end_column, node.end_line, node.end_column
            found[place[2:]] = (*place, node.name, number)
    return sorted(found.values(), key=lambda each: each[2:4], reverse=True)


def _nodes(tree: MypyFile) -> Iterator[Node]:
    """Yields all nodes of a module; mypy's own visitors are compiled, so no class may inherit from
    them."""
    seen, waiting = set(), [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list | tuple):
            waiting.extend(node)
        elif isinstance(node, dict):
            waiting.extend(node.values())
        elif isinstance(node, (MypyFile, *_KINDS)) and id(node) not in seen:
            seen.add(id(node))
            yield node
            names = (name for kind in type(node).__mro__ for name in _attributes(kind))
            waiting.extend(getattr(node, name, None) for name in dict.fromkeys(names))


def _attributes(kind: type) -> list[str]:
    return [name for name in getattr(kind, "__mypyc_attrs__", ()) if name not in _ELSEWHERE]


def _number(typed: Type, name: str) -> int | None:
    """Returns the place of a field in a named tuple of this type."""
    proper = get_proper_type(typed)
    if isinstance(proper, UnionType):
        numbers = {_number(item, name) for item in proper.items}
        return numbers.pop() if len(numbers) == 1 else None
    if not isinstance(proper, TupleType) or not proper.partial_fallback.type.is_named_tuple:
        return None
    fields = proper.partial_fallback.type.metadata.get("namedtuple", {}).get("fields", ())
    return list(fields).index(name) if name in fields else None


def _rewrite(path: Path, fields: list[tuple]) -> None:
    """Replace the fields from the last to the first, so that earlier places stay."""
    data = path.read_bytes()
    starts = [0]
    for line in data.split(b"\n"):
        starts.append(starts[-1] + len(line) + 1)
    for line, column, end_line, end_column, name, number in fields:
        start, end = starts[line - 1] + column, starts[end_line - 1] + end_column
        between, point, said = data[start:end].rpartition(b".")
        assert (point, said.strip()) == (b".", name.encode()), (path, line, data[start:end])
        data = data[:start] + between.rstrip() + b"[%d]" % number + data[end:]
    path.write_bytes(data)

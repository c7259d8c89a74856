"""Finds forms of Python that mypyc 2 silently compiles to something else, and refuses them.

Each was seen with mypyc 2.4, in a function compiled and interpreted. They are found by syntax, and
rather too often than too seldom: each can be written otherwise, and mostly better. The other
differences, and why they may stay, are in docs/decisions/0056.
"""

import ast
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_LOOPS = {"cast", "enumerate", "range", "reversed", "zip"}
_OF_DICTIONARIES = {"items", "keys", "values"}
# Each of their parts is done with before the next one is evaluated.
_ONE_BY_ONE = ast.BoolOp | ast.IfExp | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


class Refused(NamedTuple):
    """A refused form: where it is, what it is, and what to write instead."""

    line: int
    what: str
    do: str


def refused(text: str) -> list[Refused]:
    """Returns the forms that a module must write otherwise before it may be compiled, by line."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.For):
            found += _rebound(node.iter, [node.target, *node.body])
        elif isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp):
            found += _rebound_inside(node, [node.elt])
        elif isinstance(node, ast.DictComp):
            found += _rebound_inside(node, [node.key, node.value])
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found += _of_generator(node)
        if isinstance(node, ast.GeneratorExp):
            found += _stops(ast.walk(node))
        if isinstance(node, ast.expr | ast.AugAssign) and not isinstance(node, _ONE_BY_ONE):
            found += _named_too_late(node)
    return sorted(set(found))


def _rebound(iterated: ast.expr, body: list[ast.AST]) -> Iterator[Refused]:
    """Refuse a loop whose variable is rebound: a compiled loop looks at the variable again."""
    names = set(_iterated(iterated))
    bound = {name for each in body for inner in ast.walk(each) for name in _bound(inner)}
    for name in sorted(names & bound):
        yield Refused(
            iterated.lineno,
            f"{name} is bound again in the loop over it",
            "bind another name in the loop",
        )


def _rebound_inside(node: ast.ListComp, body: list[ast.expr]) -> Iterator[Refused]:
    for number, each in enumerate(node.generators):
        inner = [part for more in node.generators[number + 1 :] for part in (more.iter, *more.ifs)]
        yield from _rebound(each.iter, [*each.ifs, *inner, *body])


def _iterated(node: ast.expr) -> Iterator[str]:
    """Yields the variables through which a loop over this goes itself."""
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Call):
        called = node.func
        if isinstance(called, ast.Name) and called.id in _LOOPS:
            for each in node.args:
                yield from _iterated(each)
        elif isinstance(called, ast.Attribute) and called.attr in _OF_DICTIONARIES:
            yield from _iterated(called.value)


def _bound(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name):
        if not isinstance(node.ctx, ast.Load):
            yield node.id
    elif isinstance(node, ast.alias):
        yield node.asname or node.name
    elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar | _FUNCTIONS):
        yield getattr(node, "name", None) or ""


def _named_too_late(node: ast.expr | ast.AugAssign) -> Iterator[Refused]:
    """Refuse a variable among operands that changes: compiled code reads it after all operands."""
    read: set[str] = set()
    for operand in _operands(node):
        inside = list(ast.walk(operand))
        for each in inside:
            if isinstance(each, ast.NamedExpr) and each.target.id in read:
                name = each.target.id
                yield Refused(
                    each.lineno,
                    f"{name} is read before ({name} := ...) in one expression",
                    "bind it in a statement of its own",
                )
        read |= {each.id for each in inside if isinstance(each, ast.Name)}


def _operands(node: ast.expr | ast.AugAssign) -> list[ast.AST]:
    """Returns the operands in the order in which they are evaluated."""
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        return [each for pair in pairs for each in pair if each is not None]
    return list(ast.iter_child_nodes(node))


def _of_generator(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Refused]:
    own = list(_own(node))
    if not _yields(own):
        return
    yield from _stops(own)
    if any(ast.unparse(each).endswith("contextmanager") for each in node.decorator_list):
        return
    for each in own:
        if _cleans_up(each) and _yields(_own(each)):
            yield Refused(
                each.lineno,
                "a generator that is left here never gets to the end of finally or with",
                "yield behind it, or make it a context manager",
            )


def _cleans_up(node: ast.AST) -> bool:
    if isinstance(node, ast.With | ast.AsyncWith):
        return True
    return isinstance(node, ast.Try | ast.TryStar) and bool(node.finalbody)


def _yields(inside: Iterable[ast.AST]) -> bool:
    return any(isinstance(each, ast.Yield | ast.YieldFrom) for each in inside)


def _stops(inside: Iterable[ast.AST]) -> Iterator[Refused]:
    """Refuse StopIteration in a generator: it is a RuntimeError, but compiled only ends the
    generator."""
    for each in inside:
        if isinstance(each, ast.Call) and len(each.args) == 1 and ast.unparse(each.func) == "next":
            yield Refused(each.lineno, "next(...) in a generator", "next(..., None)")


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """Yields the nodes of a function, without those of functions inside it."""
    for each in ast.iter_child_nodes(node):
        if not isinstance(each, _FUNCTIONS):
            yield each
            yield from _own(each)

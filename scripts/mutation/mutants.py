"""The small changes that a source file can have, and the text that each makes.

A mutant changes one place of one statement: a comparison, an arithmetic or boolean operator, a
number, a truth value, a condition, or it leaves a statement out. It leaves alone what no test
should judge: assertions, probes, traces, the texts of errors, annotations, decorators, constants at
the top of a module and `__repr__`.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

COMPARISONS = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
ARITHMETIC = {ast.Add: "-", ast.Sub: "+", ast.Mult: "//", ast.FloorDiv: "*", ast.Mod: "//"}
SWAPPED = {"min": "max", "max": "min", "any": "all", "all": "any"}
OBSERVED = {"probe", "trace", "count", "buggified"}
"""Names of calls that tell something and change nothing."""


class Mutant(NamedTuple):
    """One change: `text` replaces the source between two offsets. `first` and `last` are the lines
    of the statement, which a test must run to see the change."""

    path: str
    kind: str
    start: int
    end: int
    text: str
    first: int
    last: int

    @property
    def name(self) -> str:
        """The name of the mutant in results: file, line, and the change."""
        return f"{self.path}:{self.first}:{self.kind}:{self.start}"

    def applied(self, source: str) -> str:
        """Returns the source with the change."""
        data = source.encode()
        return (data[: self.start] + self.text.encode() + data[self.end :]).decode()


def mutants_of(root: Path, path: str) -> list[Mutant]:
    """Returns all mutants of a file, in the order of their places."""
    source = (root / path).read_text()
    found = {(m.start, m.end, m.text): m for m in _Finder(path, source).mutants()}
    return sorted((m for m in found.values() if _compiles(m, source)), key=lambda m: m[2:5])


def _compiles(mutant: Mutant, source: str) -> bool:
    try:
        compile(mutant.applied(source), mutant.path, "exec")
    except SyntaxError:
        return False
    return True


class _Finder:
    def __init__(self, path: str, source: str) -> None:
        self.path, self.tree = path, ast.parse(source)
        self.data = source.encode()
        starts = [0]
        for line in self.data.splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        self.starts = starts

    def mutants(self) -> Iterator[Mutant]:
        for node in ast.walk(self.tree):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if node.name not in ("__repr__", "__str__"):
                yield from self._body(node.body)

    def _body(self, body: list[ast.stmt]) -> Iterator[Mutant]:
        for statement in body:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue  # found by itself
            if isinstance(statement, ast.Assert | ast.Raise) or _observes(statement):
                continue
            yield from self._statement(statement)
            for name in ("body", "orelse", "finalbody"):
                yield from self._body(getattr(statement, name, []))
            for handler in getattr(statement, "handlers", []):
                yield from self._body(handler.body)
            for case in getattr(statement, "cases", []):
                yield from self._body(case.body)

    def _statement(self, statement: ast.stmt) -> Iterator[Mutant]:
        if isinstance(statement, ast.Expr | ast.AugAssign) and not _is_text(statement):
            yield self._mutant("left-out", statement, "pass", statement)
        if isinstance(statement, ast.If | ast.While):
            yield self._mutant("never", statement.test, "False", statement)
            if isinstance(statement, ast.If):
                yield self._mutant("always", statement.test, "True", statement)
        for expression in _expressions(statement):
            for node in ast.walk(expression):
                yield from self._expression(node, statement)

    def _expression(self, node: ast.AST, statement: ast.stmt) -> Iterator[Mutant]:
        if isinstance(node, ast.Compare):
            left = node.left
            for operator, right in zip(node.ops, node.comparators, strict=True):
                change = COMPARISONS[type(operator)]
                yield self._between("comparison", left, right, f" {change} ", statement)
                left = right
        elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
            change = f" {ARITHMETIC[type(node.op)]} "
            yield self._between("arithmetic", node.left, node.right, change, statement)
        elif isinstance(node, ast.BoolOp):
            change = " or " if isinstance(node.op, ast.And) else " and "
            for left, right in zip(node.values, node.values[1:], strict=False):
                yield self._between("boolean", left, right, change, statement)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield self._mutant("not", node, f"bool({self._text(node.operand)})", statement)
        elif isinstance(node, ast.Constant):
            yield from self._constant(node, statement)
        elif isinstance(node, ast.Name) and node.id in SWAPPED:
            yield self._mutant("swapped", node, SWAPPED[node.id], statement)

    def _constant(self, node: ast.Constant, statement: ast.stmt) -> Iterator[Mutant]:
        if node.value is True or node.value is False:
            yield self._mutant("truth", node, str(not node.value), statement)
        elif type(node.value) is int:
            yield self._mutant("number", node, str(node.value + 1), statement)

    def _between(
        self, kind: str, left: ast.expr, right: ast.expr, text: str, statement: ast.stmt
    ) -> Mutant:
        """Returns the operator between two expressions, with the parentheses around it."""
        start, end = self._end(left), self._start(right)
        old = self.data[start:end].decode()
        closing, opening = old.count(")"), old.count("(")
        return self._place(kind, start, end, f"{')' * closing}{text}{'(' * opening}", statement)

    def _mutant(self, kind: str, node: ast.AST, text: str, statement: ast.stmt) -> Mutant:
        return self._place(kind, self._start(node), self._end(node), text, statement)

    def _place(self, kind: str, start: int, end: int, text: str, statement: ast.stmt) -> Mutant:
        last = statement.end_lineno or statement.lineno
        if body := getattr(statement, "body", None):
            last = max(statement.lineno, body[0].lineno - 1)
        return Mutant(self.path, kind, start, end, text, statement.lineno, last)

    def _text(self, node: ast.AST) -> str:
        return self.data[self._start(node) : self._end(node)].decode()

    def _start(self, node: ast.AST) -> int:
        return self.starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]

    def _end(self, node: ast.AST) -> int:
        return self.starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]


def _expressions(statement: ast.stmt) -> Iterator[ast.expr]:
    """Yields the expressions of a statement itself, not of the statements in it."""
    for name, value in ast.iter_fields(statement):
        if name == "annotation":
            continue
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, ast.expr):
                yield each
            elif isinstance(each, ast.withitem):
                yield each.context_expr


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _observes(statement: ast.stmt) -> bool:
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call):
        return False
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return name in OBSERVED

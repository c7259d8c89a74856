"""Rewrites a module's text so that mypyc compiles it well; its behaviour stays the same.

mypyc gives a class the layout of a C struct only when it knows every decorator, and calls what
makes a named tuple through the interpreter. So, in a copy of the sources:

- a class under `attrs.define(eq=False)` or `attrs.frozen` becomes a plain class with the
  `__init__`, `__repr__` and, for frozen ones, `__eq__` and `__hash__` that attrs would have made;
- each named tuple at the top of a module gets a function that makes it, `_new_<Name>`, which is
  called in place of the class where that is plain to see;
- an imported module is also named by `from module import __name__`: among modules that are compiled
  together the order in which they are typed follows such imports only;
- `x in (a, *b)`, `del argument`, the types of a named tuple's fields and a second `except ... as
  error` of a function are put so that mypyc 2 takes them.

Edits are places in the text, so that all that is not rewritten stays as it was, comments too.
"""

import ast
import re
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

HELPERS = "raftlog.base._compiled"
HELPERS_TEXT = '''"""What rewritten modules use in place of attrs."""

from typing import Any, TypeVar

import attrs

T = TypeVar("T")


# To attrs' own types it gives what it makes, and mypyc would insist on that.
Factory: Any = attrs.Factory


def attributes(told: list[tuple[str, Any, Any, bool]]) -> Any:
    """What attrs tells of a class with these fields: name, type, default, whether it is given."""
    fields: dict[str, Any] = {
        name: attrs.field(type=kind, default=default, init=given, kw_only=True)
        for name, kind, default, given in told
    }
    return attrs.fields(attrs.make_class("fields", fields))


def evolve(value: T, **changes: Any) -> T:
    """`attrs.evolve`."""
    kind: Any = type(value)
    for each in kind.__attrs_attrs__:
        if each.init and each.alias not in changes:
            changes[each.alias] = getattr(value, each.name)
    made: T = kind(**changes)
    return made
'''
_HEADER = (
    "from typing import Any as _Any, ClassVar as _ClassVar, Final as _Final; "
    "_new_tuple: _Final[_Any] = tuple.__new__; "
    f"import {HELPERS} as _compiled; from {HELPERS} import __name__ as _compiled_name\n"
)
_PLAIN_TYPES = {"bool", "bytes", "float", "int", "str"}
_KNOWN = {"factory", "default", "init", "eq", "repr", "converter"}


class RewritingError(Exception):
    """A module has a form that is unknown here, or that mypyc compiles to something else."""


class Field(NamedTuple):
    """A field of an attrs class. `made` is the expression of its value in `__init__`. `default` is
    the one that attrs would report; it stands in another place, so it must be plain."""

    name: str
    parameter: str
    made: str
    compared: bool
    shown: bool
    typed: str
    default: str

    def told(self) -> str:
        """The keywords of `attrs.fields` for this field, as the helpers take them."""
        kind = self.typed if self.typed in _PLAIN_TYPES else repr(self.typed)
        return f"({self.name!r}, {kind}, {self.default}, {bool(self.parameter)})"


class Tree:
    """All modules that are rewritten together: module -> path, and the named tuples of each."""

    def __init__(self, modules: dict[str, Path]) -> None:
        self.modules = modules
        self.tuples = {}
        self.inherited = set()
        """The names of classes from which other attrs classes inherit. They stay as they are, since
        attrs must see their fields."""
        for module, path in modules.items():
            body = ast.parse(path.read_text("utf-8")).body
            self.tuples[module] = {each.name for each in body if _is_named_tuple(each)}
            for each in body:
                if isinstance(each, ast.ClassDef) and any(map(_is_of_attrs, each.decorator_list)):
                    self.inherited |= {base.id for base in each.bases if isinstance(base, ast.Name)}

    def rewritten(self, module: str) -> str:
        """Returns the new text of a module."""
        return _Rewriting(self, module, self.modules[module].read_text("utf-8")).text()


class _Rewriting:
    """Rewrites one module."""

    def __init__(self, tree: Tree, module: str, source: str) -> None:
        self.together, self.module, self.source = tree, module, source
        sizes = (len(line) + 1 for line in source.encode().split(b"\n"))
        self.starts = list(accumulate(sizes, initial=0))
        self.edits: list[tuple[int, int, str]] = []
        self.renamed: set[ast.ExceptHandler] = set()
        self.needs_helpers = "attrs.evolve(" in source

    def text(self) -> str:
        tree = ast.parse(self.source)
        self._calls(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                self._import(node)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self._function(node)
            elif isinstance(node, ast.Compare):
                self._compare(node)
            elif isinstance(node, ast.ClassDef):
                self._class(node)
        if self.needs_helpers:
            first = next(
                each for each in tree.body if isinstance(each, ast.Import | ast.ImportFrom)
            )
            self._insert(first.lineno, 0, _HEADER)
        data = _edited(self.source.encode(), self.edits)
        text = data.decode().replace("attrs.evolve(", "_compiled.evolve(")
        ast.parse(text)
        return text

    # --- edits ---

    def _at(self, line: int, column: int) -> int:
        return self.starts[line - 1] + column

    def _insert(self, line: int, column: int, text: str) -> None:
        self.edits.append((self._at(line, column), self._at(line, column), text))

    def _after(self, node: ast.AST, text: str) -> None:
        self._insert(node.end_lineno, node.end_col_offset, text)

    def _replace(self, node: ast.AST, text: str) -> None:
        start = self._at(node.lineno, node.col_offset)
        self.edits.append((start, self._at(node.end_lineno, node.end_col_offset), text))

    def _said(self, node: ast.AST) -> str:
        """Returns a type as it is written, on one line."""
        return " ".join(ast.get_source_segment(self.source, node).split())

    # --- what mypyc 2 does not take as it is ---

    def _import(self, node: ast.ImportFrom) -> None:
        for each in node.names:
            if f"{node.module}.{each.name}" in self.together.modules:
                whole = f"{node.module}.{each.name}"
                self._after(node, f"; from {whole} import __name__ as _{each.name}_name")

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        arguments = {each.arg for each in node.args.args}
        for each in node.body:
            if isinstance(each, ast.Delete) and {ast.unparse(x) for x in each.targets} <= arguments:
                self._replace(each, "pass")
        names = set()
        for each in ast.walk(node):
            if isinstance(each, ast.ExceptHandler) and each.name:
                if each.name in names and each not in self.renamed:
                    self.renamed.add(each)
                    self._rename(each, each.name, f"{each.name}_{each.lineno}")
                names.add(each.name)

    def _rename(self, handler: ast.ExceptHandler, name: str, new: str) -> None:
        """Give the error of a handler a new name: mypyc takes all errors of one name for the first
        one's type.

        The result must have the tree of the handler with just that name replaced.
        """
        where = f"{self.module}:{handler.lineno}"
        if any(_binds(each, name) for each in ast.walk(handler) if each is not handler):
            raise RewritingError(f"{where}: {name} gets another meaning here; name it otherwise")
        data, old = self.source.encode(), name.encode()
        after_type = self._at(handler.type.end_lineno, handler.type.end_col_offset)
        places = [re.compile(rb"\bas\s+(?=%s\b)" % old).search(data, after_type).end()]
        for each in _named(handler, name):
            start = self._at(each.lineno, each.col_offset)
            if isinstance(each, ast.Name):
                places.append(start)
            else:
                end = self._at(each.end_lineno, each.end_col_offset)
                places += [start + place for place in _in_fields(data[start:end], old)]
        edits = [(place, place + len(old), new) for place in places]
        try:
            tree = ast.parse(_edited(data, edits))
        except SyntaxError:
            tree = ast.Module([], [])
        if _dump_of(tree, handler) != _dump_of(ast.parse(data), handler, name, new):
            raise RewritingError(f"{where}: cannot rename {name} here; name it otherwise")
        self.edits += edits

    def _compare(self, node: ast.Compare) -> None:
        for each in node.comparators:
            if isinstance(each, ast.Tuple) and any(isinstance(x, ast.Starred) for x in each.elts):
                self._insert(each.lineno, each.col_offset, "tuple(")
                self._after(each, ")")

    # --- named tuples ---

    def _calls(self, tree: ast.Module) -> None:
        """Replace calls of classes that are named tuples, by the names under which they are known
        here."""
        known = dict.fromkeys(self.together.tuples[self.module])
        folders = {}
        for node in ast.walk(tree):
            for each in node.names if isinstance(node, ast.ImportFrom) else ():
                whole = f"{node.module}.{each.name}"
                if each.name in self.together.tuples.get(node.module, ()):
                    known[each.asname or each.name] = (node, each)
                elif whole in self.together.tuples:
                    folders[each.asname or each.name] = self.together.tuples[whole]
        called = set()
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or _unpacks(node):
                continue
            name = _name_among(node.func, known, folders)
            if name:
                end = node.func.end_col_offset
                self._insert(node.func.end_lineno, end - len(name.encode()), "_new_")
                called.add(name if isinstance(node.func, ast.Name) else None)
        for name, found in known.items():
            if found is not None and name in called:
                node, alias = found
                renamed = f" as _new_{alias.asname}" if alias.asname else ""
                self._after(node, f"; from {node.module} import _new_{alias.name}{renamed}")

    def _named_tuple(self, node: ast.ClassDef) -> None:
        fields = [each for each in node.body if isinstance(each, ast.AnnAssign)]
        parameters, names = [], []
        for each in fields:
            said, name = self._said(each.annotation).replace('"', ""), each.target.id
            if '"' not in self._said(each.annotation):
                self._replace(each.annotation, f'"{said}"')
            default = f" = {ast.unparse(each.value)}" if each.value else ""
            parameters.append(f'{name}: "{said}"{default}')
            names.append(f"{name}, ")
        if node.name not in self.together.tuples[self.module]:
            return
        self.needs_helpers = True
        self._insert(node.end_lineno + 1, 0, (
            f"\n\ndef _new_{node.name}({', '.join(parameters)}) -> {node.name}:\n"
            f"    return _new_tuple({node.name}, ({''.join(names)}))\n"
        ))  # fmt: skip

    # --- attrs ---

    def _class(self, node: ast.ClassDef) -> None:
        if _is_named_tuple(node):
            self._named_tuple(node)
            return
        for base in node.bases[1:]:
            # mypyc has no TypeError to inherit from. An error of ours stays what its first base is.
            if isinstance(base, ast.Name) and base.id == "TypeError":
                self._replace(base, "")
        decorator = next(filter(_is_of_attrs, node.decorator_list), None)
        if decorator is None:
            return
        said = {} if not isinstance(decorator, ast.Call) else {
            each.arg: ast.unparse(each.value) for each in decorator.keywords
        }  # fmt: skip
        if not said.keys() <= {"eq", "kw_only"}:
            raise RewritingError(f"{self.module}.{node.name}: attrs is told {sorted(said)}")
        frozen, compared = "frozen" in ast.unparse(decorator), said.get("eq") != "False"
        if (compared and not frozen) or any(not _is_generic(each) for each in node.bases):
            return
        if node.name in self.together.inherited:
            return
        self._drop(decorator)
        fields = self._fields(node)
        text = self._init(node, fields, "kw_only" in said)
        if compared:
            text += _comparison(node.name, [each.name for each in fields if each.compared])
        text += _shown(node.name, [each.name for each in fields if each.shown])
        if frozen:
            self.needs_helpers = True
            told = ", ".join(each.told() for each in fields)
            text += "\n    __attrs_attrs__: _ClassVar[_Any] = None\n"
            text += f"\n\n{node.name}.__attrs_attrs__ = _compiled.attributes([{told}])\n"
        self._insert(node.end_lineno + 1, 0, text)

    def _drop(self, decorator: ast.AST) -> None:
        """Turn the decorator's line into a comment."""
        start = self._at(decorator.lineno, decorator.col_offset) - len("@")
        self.edits.append((start, self._at(decorator.end_lineno, decorator.end_col_offset), "#"))

    def _fields(self, node: ast.ClassDef) -> list[Field]:
        defaults = {}
        for method in node.body:
            for each in getattr(method, "decorator_list", ()):
                if ast.unparse(each).endswith(".default"):
                    defaults[ast.unparse(each).removesuffix(".default")] = method.name
                    self._drop(each)
        found = []
        for each in node.body:
            if isinstance(each, ast.AnnAssign) and "ClassVar" not in self._said(each.annotation):
                found.append(self._field(node, each, defaults.get(each.target.id)))
                if each.value is not None:
                    start = self._at(each.annotation.end_lineno, each.annotation.end_col_offset)
                    # Brackets around the value belong to the statement.
                    end = self._at(each.end_lineno, each.end_col_offset)
                    self.edits.append((start, end, ""))
        return found

    def _field(self, node: ast.ClassDef, each: ast.AnnAssign, method: str | None) -> Field:
        name, typed = each.target.id, self._said(each.annotation)
        said = self._told(each.value)
        if not said.keys() <= _KNOWN:
            raise RewritingError(f"{self.module}.{node.name}.{name}: attrs is told {sorted(said)}")
        argument, factory, default = name.lstrip("_"), said.get("factory"), said.get("default")
        known = f"_compiled.Factory({factory})" if factory else default or "attrs.NOTHING"
        bare = typed.replace('"', "")
        rest = said.get("eq") != "False", said.get("repr") != "False", bare, known
        if method is not None:
            return Field(name, "", f"self.{method}()", *rest)
        if said.get("init") == "False":
            return Field(name, "", f"({factory})()" if factory else default or "", *rest)
        if said.get("converter"):
            self.needs_helpers = True
            given = f"{argument}: _Any" + (f" = {default}" if default else "")
            return Field(name, given, f"{said['converter']}({argument})", *rest)
        if factory:
            made = f"({factory})() if {argument} is None else {argument}"
            return Field(name, f'{argument}: "{bare} | None" = None', made, *rest)
        given = f"{argument}: {typed}" + (f" = {default}" if default else "")
        return Field(name, given, argument, *rest)

    def _told(self, value: ast.expr | None) -> dict[str, str]:
        """Returns the keywords for attrs that a field's default gives."""
        if value is None:
            return {}
        called = ast.unparse(value.func) if isinstance(value, ast.Call) else ""
        if called == "attrs.Factory":
            return {"factory": ast.unparse(value.args[0])}
        if called == "attrs.field":
            return {each.arg: ast.unparse(each.value) for each in value.keywords}
        return {"default": ast.unparse(value)}

    def _init(self, node: ast.ClassDef, fields: list[Field], keywords_only: bool) -> str:
        parameters = [each.parameter for each in fields if each.parameter]
        body = [f"self.{each.name} = {each.made}" for each in fields if each.made]
        if any(getattr(each, "name", "") == "__attrs_post_init__" for each in node.body):
            body.append("self.__attrs_post_init__()")
        given = ["self", *(["*"] if keywords_only and parameters else []), *parameters]
        lines = [f"def __init__({', '.join(given)}) -> None:"]
        lines += [f"    {each}" for each in body or ["pass"]]
        return "\n" + "".join(f"    {each}\n" for each in lines)


def _edited(data: bytes, edits: list[tuple[int, int, str]]) -> bytes:
    # Edits inside a replaced piece go with it: a named tuple in the default of a field.
    whole = [(start, end) for start, end, _ in edits if start < end]
    kept = [
        edit for edit in edits if not any(start < edit[0] and edit[1] < end for start, end in whole)
    ]
    for start, end, text in sorted(kept, reverse=True):
        data = data[:start] + text.encode() + data[end:]
    return data


def _binds(node: ast.AST, name: str) -> bool:
    """Whether a node binds the name: an argument, a handler, a pattern, a function, an import
    ..."""
    if isinstance(node, ast.Name | ast.Attribute | ast.keyword | ast.Constant):
        return False
    return any(value == name for _, value in ast.iter_fields(node))


def _named(node: ast.AST, name: str) -> Iterator[ast.Name | ast.JoinedStr]:
    """Yields the nodes that use a name, and all f-strings."""
    for each in ast.iter_child_nodes(node):
        if isinstance(each, ast.JoinedStr) or (isinstance(each, ast.Name) and each.id == name):
            yield each
        else:
            yield from _named(each, name)


def _in_fields(text: bytes, name: bytes) -> Iterator[int]:
    """Yields the places where fields of an f-string use a name; Python 3.11 does not know them."""
    said = re.compile(rb"""\{\{|\}\}|[{}]|'[^']*'|"[^"]*"|(?<![\w.])%s\b(?!\s*=[^=])""" % name)
    place = depth = 0
    while match := said.search(text, place):
        found, place = match.group(), match.end()
        if depth == 0 and found in (b"{{", b"}}"):
            continue
        if found[:1] in b"{}":
            depth += 1 if found[:1] == b"{" else -1
            place = match.start() + 1
        elif depth == 0:
            place = match.start() + 1
        elif found == name:
            yield match.start()


def _dump_of(tree: ast.AST, handler: ast.ExceptHandler, name: str = "", new: str = "") -> str:
    """Returns the dump of the handler at this place, with a name replaced."""
    for each in ast.walk(tree):
        if isinstance(each, ast.ExceptHandler) and each.lineno == handler.lineno:
            for inner in ast.walk(each):
                if isinstance(inner, ast.Name) and inner.id == name:
                    inner.id = new
            each.name = new or each.name
            return ast.dump(each)
    return ""


def _comparison(name: str, fields: list[str]) -> str:
    same = " and ".join(f"self.{each} == other.{each}" for each in fields) or "True"
    values = "".join(f"self.{each}, " for each in fields)
    return (
        "\n    def __eq__(self, other: object) -> bool:\n"
        f"        if not isinstance(other, {name}):\n            return NotImplemented\n"
        f"        return {same}\n"
        f"\n    def __hash__(self) -> int:\n        return hash(({values}))\n"
    )


def _shown(name: str, fields: list[str]) -> str:
    values = ", ".join(f"{each}={{self.{each}!r}}" for each in fields)
    return f'\n    def __repr__(self) -> str:\n        return f"{name}({values})"\n'


def _is_named_tuple(node: ast.AST) -> bool:
    return isinstance(node, ast.ClassDef) and "NamedTuple" in map(ast.unparse, node.bases)


def _is_of_attrs(node: ast.expr) -> bool:
    called = node.func if isinstance(node, ast.Call) else node
    return ast.unparse(called) in ("attrs.define", "attrs.frozen")


def _is_generic(node: ast.expr) -> bool:
    return ast.unparse(node).startswith("Generic[")


def _unpacks(node: ast.Call) -> bool:
    starred = any(isinstance(each, ast.Starred) for each in node.args)
    return starred or any(each.arg is None for each in node.keywords)


def _name_among(called: ast.expr, known: dict, folders: dict) -> str:
    """Returns the called class when it is a named tuple."""
    if isinstance(called, ast.Name):
        return called.id if called.id in known else ""
    if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
        return called.attr if called.attr in folders.get(called.value.id, ()) else ""
    return ""

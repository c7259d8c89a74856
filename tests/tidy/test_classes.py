"""Concrete classes are @final, attrs classes slotted, and longer methods state their contract.

Inheritance exists to implement a Protocol, and for errors, which are caught by their family. Enums
are final by nature and named tuples are values; a class that another one in the tree extends is
not concrete.
"""

import ast
from collections.abc import Iterable, Iterator

import pytest

from tests.tidy.tree import BESIDE, PRODUCT, SourceFile, dotted, files_below, functions, planted

OPEN_BASES = {
    "Protocol",
    "Enum",
    "IntEnum",
    "StrEnum",
    "Flag",
    "IntFlag",
    "NamedTuple",
    "TypedDict",
}
EXTENDED_BY_USERS = {"ClusterMixin"}
ERROR_SUFFIXES = ("Error", "Exception", "ExceptionGroup", "Warning")
ATTRS = {"attrs.define", "attrs.frozen", "attrs.mutable", "define", "frozen", "mutable"}
OTHER_RECORDS = {"dataclass", "dataclasses.dataclass", "attr.s", "attr.attrs", "attr.dataclass"}
# A public method with more lines than this, docstring not counted, says what it promises.
SILENT_METHOD_LINES_MAX = 8


def classes(file: SourceFile) -> Iterator[ast.ClassDef]:
    """Every class of a file."""
    return (node for node in file.nodes if isinstance(node, ast.ClassDef))


def bases(node: ast.ClassDef) -> list[str]:
    """The last words of a class's bases: `Protocol` for `typing.Protocol[T]`."""
    plain = (base.value if isinstance(base, ast.Subscript) else base for base in node.bases)
    return [dotted(base).rpartition(".")[2] for base in plain]


def not_final(files: Iterable[SourceFile]) -> Iterator[str]:
    """Concrete classes that could be extended."""
    found = [(file, node, bases(node)) for file in files for node in classes(file)]
    extended = {name for _, _, names in found for name in names} | EXTENDED_BY_USERS
    errors = _error_classes(found)
    for file, node, names in found:
        decorators = {dotted(decorator) for decorator in node.decorator_list}
        final = bool(decorators & {"final", "typing.final"})
        if final or node.name in extended | errors or set(names) & OPEN_BASES:
            continue
        yield file.at(node, f"class {node.name} is concrete: mark it @final")


def _error_classes(found: list[tuple[SourceFile, ast.ClassDef, list[str]]]) -> set[str]:
    """Names of classes that descend from an exception."""
    errors: set[str] = set()
    before = -1
    while len(errors) != before:
        before = len(errors)
        for _, node, names in found:
            if any(name in errors or name.endswith(ERROR_SUFFIXES) for name in names):
                errors.add(node.name)
    return errors


def not_slotted(file: SourceFile) -> Iterator[str]:
    """attrs classes without slots, and records made by anything else than attrs."""
    for node in classes(file):
        for decorator in node.decorator_list:
            call = decorator if isinstance(decorator, ast.Call) else None
            name = dotted(call.func if call else decorator)
            if name in OTHER_RECORDS:
                yield file.at(node, f"class {node.name} uses {name}: use attrs.define or frozen")
            if name in ATTRS and call and any(_says_no_slots(word) for word in call.keywords):
                yield file.at(node, f"class {node.name} gives up its slots")


def _says_no_slots(word: ast.keyword) -> bool:
    return word.arg == "slots" and not (
        isinstance(word.value, ast.Constant) and word.value.value is True
    )


def silent_methods(files: list[SourceFile]) -> Iterator[str]:
    """Longer public methods without a contract, unless a Protocol of the tree states it."""
    stated = {
        method.name
        for file in files
        for node in classes(file)
        if "Protocol" in bases(node)
        for method in functions(node.body)
        if ast.get_docstring(method)
    }
    for file in files:
        for node in classes(file):
            for method in [] if node.name.startswith("_") else node.body:
                if not isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef):
                    continue
                if method.name.startswith("_") or method.name in stated:
                    continue
                if not ast.get_docstring(method) and _body_lines(method) > SILENT_METHOD_LINES_MAX:
                    yield file.at(method, f"{node.name}.{method.name} has no docstring")


def _body_lines(method: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    last = method.body[-1].end_lineno
    assert last is not None
    return last - method.body[0].lineno + 1


def test_concrete_classes_are_final():
    assert list(not_final(files_below(*PRODUCT, *BESIDE))) == []


def test_attrs_classes_are_slotted():
    files = files_below(*PRODUCT, *BESIDE)
    assert [line for file in files for line in not_slotted(file)] == []


def test_longer_methods_state_their_contract():
    assert list(silent_methods(files_below(*PRODUCT, *BESIDE))) == []


@pytest.mark.parametrize("head", ["", "@attrs.define\n", "@attrs.frozen(kw_only=True)\n"])
def test_an_open_class_is_found(head: str):
    assert len(list(not_final([planted(f"{head}class A: pass")]))) == 1
    assert list(not_final([planted(f"@final\n{head}class A: pass")])) == []


@pytest.mark.parametrize(
    "text",
    [
        "class A(Protocol): pass",
        "class A(Protocol[T]): pass",
        "class A(enum.IntEnum): pass",
        "class A(NamedTuple): pass",
        "class A(ValueError): pass",
        "class A(Exception): pass\nclass Lost(A): pass",
        "class A: pass\n@final\nclass B(A): pass",
    ],
)
def test_what_may_stay_open(text: str):
    assert list(not_final([planted(text)])) == []


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("@attrs.define(slots=False)\nclass A: pass", 1),
        ("@dataclass\nclass A: pass", 1),
        ("@dataclasses.dataclass(slots=True)\nclass A: pass", 1),
        ("@attr.s\nclass A: pass", 1),
        ("@attrs.define(slots=True)\nclass A: pass", 0),
        ("@attrs.frozen\nclass A: pass", 0),
    ],
)
def test_records_are_slotted_attrs(text: str, count: int):
    assert len(list(not_slotted(planted(text)))) == count


def test_a_long_silent_method_is_found():
    body = "\n".join(f"        a = {number}" for number in range(9))
    assert len(list(silent_methods([planted(f"class A:\n    def f(self):\n{body}\n")]))) == 1
    assert list(silent_methods([planted(f"class A:\n    def _f(self):\n{body}\n")])) == []
    spoken = f'class A:\n    def f(self):\n        """Say."""\n{body}\n'
    assert list(silent_methods([planted(spoken)])) == []
    protocol = 'class P(Protocol):\n    def f(self):\n        """Say."""\n'
    assert list(silent_methods([planted(f"{protocol}class A:\n    def f(self):\n{body}\n")])) == []

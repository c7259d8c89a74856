"""A recording ends at the first value whose class it does not know: the tree names them all.

The class of each field is told by its annotation. A class with bare `__slots__` has none, so what
its methods make and keep is looked up.
"""

import ast
import inspect
import sys
import textwrap
from collections.abc import Iterator
from typing import get_args, get_type_hints

from raftlog.broker.incident.classes import classes
from raftlog.broker.incident.recorder import ABOUT_RELEASE

BY_NAME = {type(each) for each in ABOUT_RELEASE.values()}


def types_in(hint: object) -> Iterator[type]:
    if isinstance(hint, type):
        yield hint
    for part in get_args(hint):
        for each in part if isinstance(part, list) else [part]:
            yield from types_in(each)


def made_and_kept(cls: type) -> Iterator[type]:
    """The classes of `self.field = Class(...)` in the methods of a class."""
    named = vars(sys.modules[cls.__module__])
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(cls)))):
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
            continue
        kept = any(ast.unparse(each).startswith("self.") for each in node.targets)
        made = node.value.func
        found = named.get(made.id) if isinstance(made, ast.Name) else None
        if kept and isinstance(found, type):
            yield found


def unknown(cls: type) -> set[str]:
    """The classes of the product that values of this class hold, and no recording knows."""
    hints = get_type_hints(cls)
    held = [each for name in classes()[cls].fields for each in types_in(hints.get(name))]
    if "__slots__" in vars(cls) and not hints:
        held += made_and_kept(cls)
    return {
        each.__qualname__
        for each in held
        if each.__module__.startswith("raftlog.")
        and each not in classes()
        and each not in BY_NAME
        and not getattr(each, "_is_protocol", False)
    }


def test_a_recording_knows_the_class_of_every_field():
    """Regression: a class was divided in two, and recordings ended with their first turn."""
    assert {cls.__qualname__: each for cls in classes() if (each := unknown(cls))} == {}


class _Kept:
    __slots__ = ("_part",)

    def __init__(self) -> None:
        self._part = _Part()


class _Part:
    pass


def test_what_bare_slots_hold_is_found():
    assert list(made_and_kept(_Kept)) == [_Part]

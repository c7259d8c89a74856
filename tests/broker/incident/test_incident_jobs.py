"""Every job of the product has a codec for its result, and every class in a result is known."""

import ast
import importlib
import inspect
import re
import typing
from pathlib import Path

import attrs
import pytest

import raftlog
from raftlog.broker.incident.classes import classes
from raftlog.broker.incident.jobs import JOBS, ResultCodec, codec_of, function_name, known_of
from raftlog.broker.incident.values import NotRecordable
from raftlog.storage.segments.jobs import read_slice, verify_segment

ROOT = Path(raftlog.__file__).parent
JOB_FOLDERS = ("records", "storage", "partition", "metadata", "groups", "broker")
STARTERS = {"ColdRead": 0, "job": 1, "_job": 0, "search": 1, "start": 0}
"""Calls that hand out a job, and which argument is its function."""


def jobs_by_docstring() -> dict[str, str]:
    """Functions that say that they are jobs; where."""
    found = {}
    for folder in JOB_FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if not isinstance(node, ast.FunctionDef):
                    continue
                if re.match(r"Job[:,]", ast.get_docstring(node) or ""):
                    found[node.name] = str(path.relative_to(ROOT))
    return found


def jobs_by_call() -> dict[str, str]:
    """Names of module-level functions that are handed out as jobs; where."""
    found = {}
    for folder in JOB_FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            tree = ast.parse(path.read_text())
            imported = {
                alias.asname or alias.name
                for node in ast.walk(tree)
                if isinstance(node, ast.ImportFrom)
                for alias in node.names
            }
            for node in ast.walk(tree):
                if not isinstance(node, ast.Call):
                    continue
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                at = STARTERS.get(name)
                if at is None or len(node.args) <= at:
                    continue
                function = node.args[at]
                if isinstance(function, ast.Name) and function.id in imported:
                    found[function.id] = f"{path.relative_to(ROOT)}:{node.lineno}"
    return found


def test_every_job_has_a_codec_for_its_result():
    known = {function.__name__ for function in JOBS}
    found = {**jobs_by_docstring(), **jobs_by_call()}
    assert len(found) >= 15, found
    reads = {read_slice.__name__}  # answered by ReadDone
    missing = {name: where for name, where in found.items() if name not in known | reads}
    assert missing == {}, "name them in raftlog/broker/incident/jobs.py"


def test_a_job_without_a_codec_is_refused_by_name():
    def unknown(disk):
        del disk

    with pytest.raises(NotRecordable, match="unknown"):
        codec_of(unknown)
    assert codec_of(verify_segment) is ResultCodec.STORED


PLAIN = (int, str, bytes, bool, float, type(None), list, tuple, dict)


def parts_of(kind, seen) -> None:
    """All classes that a value of this annotation may hold, as far as annotations say."""
    if kind in seen or isinstance(kind, str | typing.TypeVar) or kind in (typing.Any, ...):
        return
    if isinstance(kind, typing.NewType):
        parts_of(kind.__supertype__, seen)
        return
    for each in typing.get_args(kind):
        parts_of(each, seen)
    origin = typing.get_origin(kind)
    cls = origin if origin is not None else kind
    if not isinstance(cls, type) or cls.__module__ in ("builtins", "types", "collections.abc"):
        return
    seen.add(cls)
    if cls in classes():
        module = vars(importlib.import_module(cls.__module__))
        if attrs.has(cls) or hasattr(cls, "_fields"):
            for each in typing.get_type_hints(cls, module).values():
                parts_of(each, seen)


@pytest.mark.parametrize(
    "job", [job for job, codec in JOBS.items() if codec is ResultCodec.STORED], ids=function_name
)
def test_every_class_in_a_stored_result_is_known(job):
    hints = typing.get_type_hints(job)
    assert "return" in hints, inspect.signature(job)
    seen: set = set()
    parts_of(hints["return"], seen)
    ours = {cls for cls in seen if cls.__module__.startswith("raftlog.")}
    assert {cls for cls in ours if cls not in classes()} == set()


def test_arguments_are_known_by_their_places():
    spec, order = object(), ("a", [1])
    found = known_of((spec, order))
    assert found["0"] is spec if "0" in found else True
    assert all("." in name or name.isdigit() for name in found)

"""Shows raftlog's own errors from Spark workers in one line, without a traceback of raftlog's code.

Spark sends the traceback of a worker's exception to the driver, and prints it with each of the
JVM's traces. An error that raftlog raises on purpose says what failed, on what, and what to do, so
the frames add nothing. Spark omits them where SPARK_HIDE_TRACEBACK is set (as the setting
spark.sql.execution.pyspark.udf.hideTraceback.enabled does for functions). A worker ends with the
exception that it reports, so the variable affects no other task. Any other exception is a bug and
keeps its traceback.
"""

import contextlib
import functools
import os
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar, cast

from raftlog.base.errors import OperatingError, RaftlogError

HIDE: Final = "SPARK_HIDE_TRACEBACK"
_TOLD: Final = re.compile(r"\braftlog(?:\.\w+)+: (?P<text>.+)$", re.MULTILINE)
"""Matches raftlog's error in the text that Spark sends to the driver: the class, then the line."""

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Item = TypeVar("_Item")


def one_line(function: _Function) -> _Function:
    """Wrap a function that Spark calls. It returns and raises the same as before."""

    @functools.wraps(function)
    def told(*args: Any, **named: Any) -> Any:
        try:
            return function(*args, **named)
        except RaftlogError:
            hide()
            raise

    return cast("_Function", told)


def each_in_one_line(rows: Iterator[_Item]) -> Iterator[_Item]:
    """Yield the same rows, for an iterator that Spark reads after the call."""
    try:
        yield from rows
    except RaftlogError:
        hide()
        raise


def hide() -> None:
    """Hide the traceback of this worker. In the driver's own process this does nothing: the
    traceback there is Python's, and every worker started later would inherit the variable."""
    if in_worker():
        os.environ[HIDE] = "1"


def in_worker() -> bool:
    """Whether Spark started this process: its main module is one of Spark's."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")


@contextlib.contextmanager
def as_ours() -> Iterator[None]:
    """In the driver, raise raftlog's own error from the exception that Spark made of a worker's
    error. Other exceptions of Spark pass through unchanged."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        found = list(_TOLD.finditer(str(error)))
        if not found:
            raise
        raise OperatingError(found[-1]["text"]) from None

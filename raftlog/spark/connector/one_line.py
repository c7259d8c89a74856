"""What Spark calls in a worker tells its own errors in one line, without a trace of our code.

Spark sends the traceback of a worker's exception to the driver, and prints it with each of the
JVM's traces. An error that raftlog raises on purpose says what failed, on what, and what to do: the
frames between add nothing. Spark leaves them out where SPARK_HIDE_TRACEBACK is set (as the setting
spark.sql.execution.pyspark.udf.hideTraceback.enabled does for functions). A worker ends with the
exception that it told, so the variable reaches no other task. Any other exception is a fault of
ours, and keeps its trace.
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
"""In what Spark tells the driver of a worker's exception: its class, then our line."""

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Item = TypeVar("_Item")


def one_line(function: _Function) -> _Function:
    """Wrap a function that Spark calls; what it returns and raises stays the same."""

    @functools.wraps(function)
    def told(*args: Any, **named: Any) -> Any:
        try:
            return function(*args, **named)
        except RaftlogError:
            hide()
            raise

    return cast("_Function", told)


def each_in_one_line(rows: Iterator[_Item]) -> Iterator[_Item]:
    """The same rows, from an iterator that Spark goes through after the call."""
    try:
        yield from rows
    except RaftlogError:
        hide()
        raise


def hide() -> None:
    """Leave out this worker's trace. In the driver's own process nothing changes: there the trace
    is Python's, and the variable would reach every worker started later."""
    if in_worker():
        os.environ[HIDE] = "1"


def in_worker() -> bool:
    """Whether Spark started this process: its main module is one of Spark's."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")


@contextlib.contextmanager
def as_ours() -> Iterator[None]:
    """In the driver: raise the error of ours that a worker told, out of the exception that Spark
    made of it. Another one of Spark's stays what it is."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        found = list(_TOLD.finditer(str(error)))
        if not found:
            raise
        raise OperatingError(found[-1]["text"]) from None

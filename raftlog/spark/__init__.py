"""Spark's view of the log: format("raftlog") to read and write, and the verification job (floor 8).

    import raftlog.spark
    spark = raftlog.spark.local_session()                 # or: raftlog.spark.register(your_session)
    table = spark.read.format("raftlog").option(...).load()

The source also registers itself, in sessions made after the package was installed: Spark loads
top-level modules called pyspark_*, and `pyspark_raftlog` is one.

Laws: only this floor imports pyspark, pyarrow and numpy. Objects that travel to executors can be
pickled and carry no secrets. Names are loaded on first use, so that this import needs no Spark. May
be imported by: cli. Imports: client and below. Stranger: embed.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from raftlog.spark.connector.source import RaftlogDataSource, register
    from raftlog.spark.session import local_session

__all__ = ["RaftlogDataSource", "local_session", "register"]

_HOMES: Final = {
    "RaftlogDataSource": "raftlog.spark.connector.source",
    "local_session": "raftlog.spark.session",
    "register": "raftlog.spark.connector.source",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'raftlog.spark' has no attribute {name!r}")
    from raftlog.spark.requirements import missing_packages

    error = missing_packages()
    # `local_session` looks for Java too, so its own error says more
    if error is not None and name != "local_session":
        raise error
    return getattr(import_module(home), name)

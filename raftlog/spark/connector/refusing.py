"""`format("raftlog")` where the extra `raftlog[spark]` is missing or Spark is too old.

Spark loads every module called pyspark_* when a session first meets a Python source, and gives up
all of them when one cannot be loaded. So ours loads wherever raftlog is installed, and what is
missing is said to those who ask for it. This module needs nothing but Spark 4.0.
"""

from typing import Any, NoReturn, final

from pyspark.sql.datasource import DataSource

from raftlog.base.errors import OperatingError
from raftlog.spark.connector.one_line import one_line
from raftlog.spark.requirements import missing_packages


@final
class RefusingDataSource(DataSource):  # type: ignore[misc]
    """Says what is missing, whatever is asked of it."""

    @classmethod
    def name(cls) -> str:
        return "raftlog"

    @one_line
    def schema(self) -> NoReturn:
        # Asked in a process that starts later, when it may have been installed.
        raise missing_packages() or OperatingError(
            "what was missing is installed by now", on="Spark", do="start a new session"
        )

    def reader(self, schema: Any) -> NoReturn:
        self.schema()

    def streamReader(self, schema: Any) -> NoReturn:  # noqa: N802
        self.schema()

    def writer(self, schema: Any, overwrite: bool) -> NoReturn:
        self.schema()

    def streamWriter(self, schema: Any, overwrite: bool) -> NoReturn:  # noqa: N802
        self.schema()

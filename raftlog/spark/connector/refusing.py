"""`format("raftlog")` where the extra `raftlog[spark]` is missing or Spark is too old.

Spark loads every module called pyspark_* when a session first meets a Python source. If one cannot
be loaded, Spark drops all of them. So raftlog's module always loads, and a query that uses the
source gets the error. This module needs only Spark 4.0.
"""

from typing import Any, NoReturn, final

from pyspark.sql.datasource import DataSource

from raftlog.base.errors import OperatingError
from raftlog.spark.connector.one_line import one_line
from raftlog.spark.requirements import missing_packages


@final
class RefusingDataSource(DataSource):  # type: ignore[misc]
    """A data source that raises, for every call, an error that says what is missing."""

    @classmethod
    def name(cls) -> str:
        return "raftlog"

    @one_line
    def schema(self) -> NoReturn:
        # A worker that starts later may find the packages installed by then.
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

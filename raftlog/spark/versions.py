"""The tested releases of Spark, each with the JARs of Spark's own Kafka connector.

The guides show this table, the tests use it, and an older Spark is refused by it.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple


class Tested(NamedTuple):
    """A release of pyspark, and JARs, by Maven coordinates, that make up a connector for it."""

    pyspark: str
    connector: tuple[str, ...]


_CONNECTOR_4_2: Final = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.2.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
)

TESTED: Final[Mapping[str, Tested]] = {
    "4.3": Tested("4.3.0", _CONNECTOR_4_2),
    "4.2": Tested("4.2.1", _CONNECTOR_4_2),
}
"""Minor release -> the tested versions, newest first. A connector may be older than its Spark."""
OLDEST: Final = "4.2"
"""The oldest supported minor release. 4.1 has no limits for streams of Python sources
(`pyspark.sql.streaming.datasource`)."""


def minor_of(version: str) -> str:
    """`4.3` of `4.3.0`, and of `4.3.1.dev0`."""
    return ".".join(version.split(".")[:2])


def is_too_old(version: str) -> bool:
    """Whether a Spark is older than the source needs. A version that is not a number is
    accepted."""
    numbers = minor_of(version).split(".")
    if not all(number.isdigit() for number in numbers):
        return False
    return tuple(map(int, numbers)) < tuple(map(int, OLDEST.split(".")))

"""What brokers tell of themselves, on Spark: section 7 of the specification of the judge.

Where a history carries the evidence of a class that Spark does not judge, the class is `unknown`
and so is the history, unless something else makes it invalid: never valid, for the single process
might have found it invalid.
"""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from raftlog.verify.verdict import Findings

CARRIED: Final = {
    "hw-regression": "hw IS NOT NULL AND kind = 'ok' AND node IS NOT NULL",
    "read-above-hw": "hw IS NOT NULL AND kind = 'ok'",
    "truncated-below-hw": "hw IS NOT NULL AND kind = 'ok'",
    "two-leaders-one-term": "f = 'send' AND kind = 'ok' AND node IS NOT NULL AND term IS NOT NULL",
    "ack-regression": "f = 'send' AND producer IS NOT NULL",
    "duplicate-sequence": "f = 'send' AND producer IS NOT NULL",
    "log-start-overrun": "log_start IS NOT NULL OR (f = 'start' AND kind = 'ok')",
    "offset-commit-regression": "f = 'offset_fetch' AND kind = 'ok'",
    "fork": "f = 'poll' AND node IS NOT NULL AND value != '{}'",
}
"""Each class, and which operations carry its evidence."""
ELSEWHERE: Final = "not judged by Spark; raftlog verify judges it on one machine"


def judge_evidence(operations: DataFrame, findings: Findings) -> None:
    """Give up the classes whose evidence a history carries."""
    for name in carried_classes(operations):
        findings.give_up(name, ELSEWHERE)


def carried_classes(operations: DataFrame) -> list[str]:
    """The classes whose evidence a history carries, or nearly does."""
    told = operations.agg(
        *(
            F.bool_or(F.expr(f"coalesce({when}, false)")).alias(f"`{name}`")
            for name, when in CARRIED.items()
        )
    ).collect()[0]
    return [name for name, has in zip(CARRIED, told, strict=True) if has]

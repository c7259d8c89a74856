"""The judge: it reads histories and nothing else, and knows nothing of what it judges.

    from raftlog.verify import check_history
    verdict = check_history(open("history.jsonl"))
    print(verdict.verdict, [result.name for result in verdict.failures()])

Imports `raftlog.base` only and opens no files. docs/guides/verify.md is the guide,
docs/reference/anomalies.md has every definition.
"""

from raftlog.verify.check import Judgement, check_history, judge, judge_operations
from raftlog.verify.history import BadHistory, Header, HistoryWriter, Op
from raftlog.verify.history_reader import HistoryReader
from raftlog.verify.models import MODELS, Call, Model
from raftlog.verify.pairing import Interval
from raftlog.verify.raw_pairing import intervals
from raftlog.verify.verdict import ClassResult, Verdict, Witness

__all__ = [
    "MODELS",
    "BadHistory",
    "Call",
    "ClassResult",
    "Header",
    "HistoryReader",
    "HistoryWriter",
    "Interval",
    "Judgement",
    "Model",
    "Op",
    "Verdict",
    "Witness",
    "check_history",
    "intervals",
    "judge",
    "judge_operations",
]

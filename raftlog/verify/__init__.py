"""The judge: it reads histories and nothing else, and knows nothing of what it judges.

    from raftlog.verify import check_history
    verdict = check_history(open("history.jsonl"))
    print(verdict.verdict, [result.name for result in verdict.failures()])

Imports `raftlog.base` only and opens no files. docs/guides/verify.md is the guide,
docs/reference/anomalies.md has every definition. `record` and `recording` write the history of an
application; they live in `raftlog.embed.recording`, and are loaded on first use.
"""

from importlib import import_module
from typing import Any

from raftlog.verify.histories.history import BadHistory, Header, HistoryWriter, Op
from raftlog.verify.histories.history_reader import HistoryReader
from raftlog.verify.histories.interval import Interval
from raftlog.verify.histories.raw_pairing import intervals
from raftlog.verify.judging.check import (
    Judgement,
    JudgeOptions,
    check_history,
    judge,
    judge_operations,
)
from raftlog.verify.judging.models import MODELS, Call, Model
from raftlog.verify.judging.verdict import ClassResult, Verdict, Witness

__all__ = [
    "MODELS",
    "BadHistory",
    "Call",
    "ClassResult",
    "Header",
    "HistoryReader",
    "HistoryWriter",
    "Interval",
    "JudgeOptions",
    "Judgement",
    "Model",
    "Op",
    "Verdict",
    "Witness",
    "check_history",
    "intervals",
    "judge",
    "judge_operations",
    "record",
    "recording",
]

# Public name -> the module that defines it. Users look for these names beside the judge.
_HOMES = {
    "record": "raftlog.embed.recording.recording",
    "recording": "raftlog.embed.recording.recording",
}


def __getattr__(name: str) -> Any:
    """Load a public name from its home module, once."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value

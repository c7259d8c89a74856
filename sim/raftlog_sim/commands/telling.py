"""Prints the options of a run for people: all of them, first those that are not the default."""

import json
import textwrap
from typing import Any, Final

from raftlog_sim.playing.cases import BrokerCase, Case, GuestCase
from raftlog_sim.schedules.options import SimOptions

COLUMNS: Final = 100
_GAPS: Final = "fault_gaps_ms"
_ALWAYS: Final = ("seed", "profile")


def option_lines(case: Case) -> list[str]:
    """Returns every option as `name=value`; faults that are off come last."""
    whole, plain = json.loads(case.describe()), _plain(case)
    gaps = whole.pop(_GAPS, {})
    own = {name: value for name, value in whole.items() if name in _ALWAYS or value != plain[name]}
    rest = {name: value for name, value in whole.items() if name not in own}
    off = [name for name, gap in gaps.items() if not gap]
    return [
        *_wrapped("options: ", _pairs(own)),
        *_wrapped("  faults, ms between two: ", _pairs({k: v for k, v in gaps.items() if v})),
        *_wrapped("  as by default: ", _pairs(rest)),
        *_wrapped("  faults that are off: ", off),
    ]


def _plain(case: Case) -> dict[str, Any]:
    """Returns the options of a case that sets none."""
    if isinstance(case, BrokerCase):
        return SimOptions(seed=0).document()
    assert isinstance(case, GuestCase), case
    return type(case.plan)().document()


def _pairs(values: dict[str, Any]) -> list[str]:
    return [f"{name}={_text(value)}" for name, value in values.items()]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def _wrapped(head: str, words: list[str]) -> list[str]:
    """Wrap words to lines of a hundred columns; returns no line for no words."""
    return textwrap.wrap(
        head + ", ".join(words), COLUMNS, subsequent_indent="    ",
        break_long_words=False, break_on_hyphens=False,
    ) if words else []  # fmt: skip

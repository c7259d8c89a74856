"""The one rule from a client's words to a cell of the matrix."""

import re
from typing import NamedTuple

WORKS = "works"
CLEAR_ERROR = "clear error"
FALLS_BACK = "falls back"
NOT_YET = "not yet"
WRONG = "wrong"
HANG = "hang"
ABSENT = "absent"
OUTCOMES = (WORKS, CLEAR_ERROR, FALLS_BACK, NOT_YET, WRONG, HANG, ABSENT)

_SILENT = re.compile(r"\bsilent for\b")
# The broker's own word for what it does not serve, and the error that carries it. For a group
# protocol the client names the refused request, or the setting to change.
_CLEAR = re.compile(
    r"not served|cannot update these configs dynamically"
    r"|authorization[ _]?(?:failed|failure|exception)|not authorized"
    r"|security[ _]disabled|ConsumerGroupHeartbeat fatal error|group\.protocol=classic",
    re.IGNORECASE,
)
# A client that finds no version in common says so in its own words.
_UNSERVED = re.compile(
    r"unsupported[ _]?version|incompatible[ _]?broker[ _]?version|unsupported[ _]?feature"
    r"|does(?: not|n't) support|not supported|unknown api|broker (?:is )?too old",
    re.IGNORECASE,
)


def outcome_of(error):
    """Returns the cell for a client's own error text.

    Silence comes first: a client that gave up waiting quotes errors of its attempts. A refusal that
    names what is not served comes before a version that the client lacks.
    """
    if _SILENT.search(error):
        return HANG
    if _CLEAR.search(error):
        return CLEAR_ERROR
    return NOT_YET if _UNSERVED.search(error) else WRONG


# Parts of a client's words that differ from run to run: addresses, log heads, folders, producers'
# names.
_PASSING = [
    (re.compile(r"127\.0\.0\.1:\d+(?:/\d+)?(?:,127\.0\.0\.1:\d+)*"), "BROKER"),
    (re.compile(r"%\d\|[\d.]+\|"), ""),
    (re.compile(r"(?<![\w.])/(?:[\w.+-]+/)+"), ""),
]


def lasting(said):
    """Returns a client's words without the parts that differ from run to run."""
    for pattern, instead in _PASSING:
        said = pattern.sub(instead, said)
    return said


class Cell(NamedTuple):
    """The result of one client in one feature: the outcome, and the client's own words for it."""

    outcome: str
    said: str = ""


def cell_of(line):
    """Returns the cell for one JSON line of a program."""
    if "absent" in line:
        return Cell(ABSENT, line["absent"])
    if "error" in line:
        text = " ".join(line["error"].split())
        return Cell(outcome_of(text), lasting(text))
    return Cell(WORKS)

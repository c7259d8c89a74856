"""The commands that a page offers, as fields: the page builds the text from valid fields only.

`run.json` comes from a stranger, the sender of the folder, and people copy commands into a terminal
as they stand. So a command written in run.json is never shown. Only the fields below are taken,
each in a form without spaces, quotes and characters that a shell obeys. None may begin like an
option.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

PATH: Final = re.compile(r"(?!-)[A-Za-z0-9_./+=@-]{1,200}")
_WORD: Final = re.compile(r"(?!-)[a-z0-9][a-z0-9_.-]{0,63}")
_SETTING: Final = re.compile(r"(?!-)[A-Za-z0-9_.:-]{1,100}")
_MUTANT: Final = re.compile(r"[0-9]{1,4}[a-z]?")
_ROWS_MAX: Final = 10**9
_SEED_MAX: Final = 1 << 63
_SETTINGS_MAX: Final = 20


def commands_of(source: str, seed: Any, run: Mapping[str, Any], place: str) -> dict[str, Any]:
    """The fields of the commands for a run.

    `place` is where the run lies, None where it cannot be typed. The other fields are needed to
    play the run again and depend on its `kind`. `sim` has `seed` and `mutant`, `demo` has `rows`,
    and `suite` has `workload`, `nemesis`, `client`, `seed`, `seconds`, `linearizable` and
    `settings`. There is no `kind` where one of its fields has another form.
    """
    found: dict[str, Any] = {"place": place if PATH.fullmatch(place) else None}
    number = str(seed) if type(seed) is int and abs(seed) < _SEED_MAX else None
    if source == "sim":
        found |= _sim(run, number)
    elif source == "demo":
        found |= _demo(run.get("command"))
    elif source == "blackbox":
        found |= _suite(run.get("options"), number)
    return found


def _sim(run: Mapping[str, Any], seed: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": "sim", "seed": seed}
    mutant = run.get("mutant")
    if mutant:
        if not isinstance(mutant, str) or not _MUTANT.fullmatch(mutant):
            return {}  # without its planted bug it would be another run
        found["mutant"] = mutant
    return found


def _demo(command: Any) -> dict[str, Any]:
    if not isinstance(command, list) or command[:3] != ["raftlog", "demo", "--rows"]:
        return {}
    text = command[3] if len(command) == 4 else ""
    if not isinstance(text, str) or not re.fullmatch("[0-9]{1,9}", text):
        return {}
    return {"kind": "demo", "rows": int(text)}


def _suite(options: Any, seed: str | None) -> dict[str, Any]:
    if not isinstance(options, Mapping) or seed is None:
        return {}
    words = {name: options.get(name) for name in ("workload", "nemesis", "client")}
    seconds, settings = options.get("seconds"), options.get("settings", {})
    if not all(isinstance(word, str) and _WORD.fullmatch(word) for word in words.values()):
        return {}
    if type(seconds) is not int or not 0 < seconds < _ROWS_MAX:
        return {}
    if not isinstance(settings, Mapping) or len(settings) > _SETTINGS_MAX:
        return {}
    parts = [str(part) for pair in settings.items() for part in pair]
    if not all(_SETTING.fullmatch(part) for part in parts):
        return {}
    return {
        "kind": "suite",
        **words,
        "seed": seed,
        "seconds": seconds,
        "linearizable": options.get("linearizable") is True,
        "settings": [f"{name}={value}" for name, value in settings.items()],
    }

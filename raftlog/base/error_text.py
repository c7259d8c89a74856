"""The text of an error on standard error, for all commands, the simulator's included."""

import json
from typing import Final

from raftlog.base.printable import visible

_LINE_FEED: Final = "\n"


def error_text(what: str, on: str, do: str, *, as_json: bool) -> str:
    """The text of an error: what failed, on what, and on the next line what to do.

    `as_json` gives one JSON document in one line instead, for `--format json`."""
    if as_json:
        return json.dumps({"version": 1, "error": {"what": what, "on": on, "do": do}})
    # Errors quote files and peers. Control characters in them must not reach the terminal.
    what, on, do = (visible(text, _LINE_FEED) for text in (what, on, do.strip()))
    place = f" ({on})" if on else ""
    advice = f"\n  {do}" if do else ""
    return f"raftlog: {what}{place}{advice}"

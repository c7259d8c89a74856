"""An error as every command tells it on standard error, the simulator's too."""

import json
from typing import Final

from raftlog.base.printable import visible

_LINE_FEED: Final = "\n"


def error_text(what: str, on: str, do: str, *, as_json: bool) -> str:
    """For people: what failed, on what, and below it what to do. For `--format json`: one document
    in one line."""
    if as_json:
        return json.dumps({"version": 1, "error": {"what": what, "on": on, "do": do}})
    # What a file or a peer said stands in errors, too: it must not make the terminal do anything.
    what, on, do = (visible(text, _LINE_FEED) for text in (what, on, do.strip()))
    place = f" ({on})" if on else ""
    advice = f"\n  {do}" if do else ""
    return f"raftlog: {what}{place}{advice}"

"""Suggests names when a name is unknown."""

import difflib
from collections.abc import Collection
from typing import Final

_NEAREST: Final = 3


def no_such(what: str, name: str, known: Collection[str], list_command: str) -> str:
    """Returns a sentence for an unknown name with suggestions.

    They are the names that begin with it, else those that contain it, else those most like it.
    """
    said = f"no {what} {name[:80]}; "
    begin = [each for each in known if name and each.startswith(name)]
    inside = [each for each in known if name and name in each]
    if begin:
        said += f"these begin so: {', '.join(begin)}"
    elif inside:
        said += f"these have that in them: {', '.join(inside)}"
    else:
        near = difflib.get_close_matches(name, known, n=_NEAREST, cutoff=0.0)
        said += f"the nearest are {', '.join(near)}"
    return f"{said} (`{list_command}` lists all {len(known)})"

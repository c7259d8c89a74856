"""The names of all probes of the product, read from its source: what a sweep should reach."""

import re
from functools import cache
from pathlib import Path
from typing import Final

import raftlog

_PROBE: Final = re.compile(r"\bprobe\(\s*\"([a-z0-9-]+)\"")


@cache
def probe_names() -> tuple[str, ...]:
    """Every name that stands in a call of `probe`, sorted."""
    home = Path(raftlog.__file__).parent
    found: dict[str, None] = {}
    for path in sorted(home.rglob("*.py")):
        if path.name == "probes.py":
            continue  # its own docstring has an example
        found |= dict.fromkeys(_PROBE.findall(path.read_text(encoding="utf-8")))
    return tuple(sorted(found))

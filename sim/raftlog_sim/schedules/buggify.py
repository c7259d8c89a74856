"""Decides which unusual paths of the product a seed takes.

Each place is active in a quarter of the seeds, and then taken every fourth time (FoundationDB's
rule), or as often as its reason says.
"""

from typing import Final, final

import attrs

from raftlog_sim.base.streams import Stream

_ACTIVE_ONE_IN: Final = {"small-install-piece": 2}
"""A state that comes in pieces is the ground of other unusual paths: half of the seeds have it."""
_TAKEN_ONE_IN: Final = {"leader-gives-up": 100, "small-install-piece": 1, "slow-replay": 1}
"""A leader that gives up at every fourth tick never leads. One large piece would end an install."""
_USUALLY_ONE_IN: Final = 4


@final
@attrs.define(eq=False)
class Buggify:
    """Decides for `raftlog.base.buggify` in one world; `fired` counts the paths taken."""

    seed: int
    fired: dict[str, int] = attrs.Factory(dict)
    _places: dict[str, Stream | None] = attrs.Factory(dict)

    def __call__(self, name: str) -> bool:
        """Whether to take this path now."""
        if name not in self._places:
            stream = Stream(self.seed, f"buggify/{name}")
            self._places[name] = (
                stream if stream.chance(1, _ACTIVE_ONE_IN.get(name, _USUALLY_ONE_IN)) else None
            )
        found = self._places[name]
        if found is None or not found.chance(1, _TAKEN_ONE_IN.get(name, _USUALLY_ONE_IN)):
            return False
        self.fired[name] = self.fired.get(name, 0) + 1
        return True

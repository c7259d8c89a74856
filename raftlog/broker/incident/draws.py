"""Records everything that a broker draws: randomness, and the unusual paths of a simulator.

The draws of a turn stand in the turn's outcome, in order, over all streams. A replay hands out the
same ones; a draw of another kind is the first difference.
"""

from collections import deque
from typing import Any, Final, final

from raftlog.base.errors import RaftlogError
from raftlog.base.ports import Entropy

BELOW: Final = 0
BYTES: Final = 1
BUGGIFY: Final = 2
DRAW_FIELDS: Final = 3

Draw = tuple[Any, ...]
"""(BELOW, bound, number), (BYTES, count, bytes) or (BUGGIFY, name, taken)."""


class DrawDiffers(RaftlogError):
    """A replayed broker makes a draw that the recorded one did not make."""


@final
class RecordedEntropy:
    """The `Entropy` port over another one; it adds each draw, also of forks, to `draws`."""

    __slots__ = ("_draws", "_inner")

    def __init__(self, inner: Entropy, draws: list[Draw]) -> None:
        self._inner = inner
        self._draws = draws

    def below(self, bound: int) -> int:
        found = self._inner.below(bound)
        self._draws.append((BELOW, bound, found))
        return found

    def bytes(self, count: int) -> bytes:
        found = self._inner.bytes(count)
        self._draws.append((BYTES, count, found))
        return found

    def fork(self, label: str) -> "RecordedEntropy":
        return RecordedEntropy(self._inner.fork(label), self._draws)


@final
class ReplayedDraws:
    """The `Entropy` port in a replay, and the decisions of `buggify`: hands out recorded draws."""

    def __init__(self) -> None:
        self._waiting: deque[Draw] = deque()

    def load(self, draws: list[Draw]) -> None:
        """Take the draws of the turn that begins."""
        self._waiting = deque(draws)

    @property
    def decides(self) -> bool:
        """Whether unusual paths were decided in this turn; else `buggify` must not ask."""
        return any(draw[0] == BUGGIFY for draw in self._waiting)

    @property
    def left(self) -> int:
        """The number of the turn's draws that the broker has not asked for."""
        return len(self._waiting)

    def below(self, bound: int) -> int:
        return int(self._next(BELOW, bound))

    def bytes(self, count: int) -> bytes:
        return bytes(self._next(BYTES, count))

    def fork(self, label: str) -> "ReplayedDraws":
        del label
        return self

    def decide(self, name: str) -> bool:
        """Decide on an unusual path, for `raftlog.base.buggify`."""
        return bool(self._next(BUGGIFY, name))

    def _next(self, kind: int, asked: object) -> Any:
        if not self._waiting:
            raise DrawDiffers(f"draw ({kind}, {asked}), where nothing more was drawn in the record")
        draw = self._waiting.popleft()
        if draw[:2] != (kind, asked):
            raise DrawDiffers(f"draw ({kind}, {asked}), where the record has {draw[:2]}")
        return draw[2]

"""Numbers for what this boot asks of the controller and wants performed once."""

from typing import final

import attrs

from raftlog.metadata.requests import OnceWish, Performable


@final
@attrs.define(eq=False)
class OnceWishes:
    """Gives each wish its number, and says in it which ones nobody will ask for again. Whoever
    begins one ends it when it has its answer, or gives up."""

    incarnation: int
    _last: int = 0
    _open: dict[int, None] = attrs.Factory(dict)

    def begin(self, wish: Performable) -> OnceWish:
        """The wish with a number of its own."""
        self._last += 1
        self._open[self._last] = None
        return OnceWish(
            incarnation=self.incarnation,
            number=self._last,
            settled=next(iter(self._open)),
            again=False,
            wish=wish,
        )

    def again(self, wish: OnceWish) -> OnceWish:
        """The same wish, while an earlier try of it may still be on its way."""
        return attrs.evolve(wish, again=True, settled=next(iter(self._open)))

    def end(self, wish: OnceWish) -> None:
        """It is not asked any more."""
        del self._open[wish.number]

"""Numbers the requests of this boot that the controller must perform once."""

from typing import final

import attrs

from raftlog.metadata.requests import OnceRequest, Performable


@final
@attrs.define(eq=False)
class OnceRequests:
    """Gives each request its number, and says in it which earlier ones will not be asked again.

    The caller that begins one ends it when it has the answer, or gives up.
    """

    incarnation: int
    _last: int = 0
    _open: dict[int, None] = attrs.Factory(dict)

    def begin(self, request: Performable) -> OnceRequest:
        """The request with a number of its own."""
        self._last += 1
        self._open[self._last] = None
        return OnceRequest(
            incarnation=self.incarnation,
            number=self._last,
            settled=next(iter(self._open)),
            again=False,
            request=request,
        )

    def again(self, request: OnceRequest) -> OnceRequest:
        """The same request, while an earlier try of it may still be on its way."""
        return attrs.evolve(request, again=True, settled=next(iter(self._open)))

    def end(self, request: OnceRequest) -> None:
        """Take note that this request is not asked again."""
        del self._open[request.number]

"""The context of request handlers: the turn, and the parts of the broker that clients reach."""

from typing import Any, TypeVar, final

import attrs

from raftlog.broker.control.controller_calls import ControllerClient
from raftlog.broker.control.image_waiters import ImageWaiters
from raftlog.broker.front.answers import TurnAnswers
from raftlog.broker.front.ledger import Ledger
from raftlog.broker.front.router import Router
from raftlog.broker.groups.coordinators import GroupCoordinators
from raftlog.broker.replicas.directory_moves import DirectoryMoves
from raftlog.broker.replicas.scrubbing import Scrubber
from raftlog.broker.turn import Turn

Kept = TypeVar("Kept")


@final
@attrs.define(eq=False, kw_only=True)
class Context(Turn):
    """The context of a request handler.

    The broker makes it first, as the turn of all its parts, and then fills in the parts that
    handlers use.
    """

    ledger: Ledger = attrs.field(init=False)
    answers: TurnAnswers = attrs.field(init=False)
    router: Router = attrs.field(init=False)
    image_waiters: ImageWaiters = attrs.field(init=False)
    controller: ControllerClient = attrs.field(init=False)
    groups: GroupCoordinators = attrs.field(init=False)
    moves: DirectoryMoves = attrs.field(init=False)
    scrubber: Scrubber = attrs.field(init=False)

    _kept: dict[type[Any], Any] = attrs.Factory(dict)

    def kept(self, kind: type[Kept]) -> Kept:
        """The one object of this class that a handler keeps from request to request.

        The first call makes it.
        """
        found: Kept | None = self._kept.get(kind)
        if found is None:
            found = self._kept[kind] = kind()
        return found

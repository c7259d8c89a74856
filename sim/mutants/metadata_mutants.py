"""Planted bugs of the metadata group."""

from typing import Any

import attrs

from raftlog.base.ids import NodeId
from raftlog.broker import controller
from raftlog.broker.controller import Controller
from raftlog.metadata.requests import Answer, OnceWish


def performed_again() -> None:
    """37: the controller performs what it is asked, whether or not it was performed before."""

    def serve(self: Controller, sender: NodeId, wish: OnceWish) -> Answer:
        return self._serve_submit(sender, wish.wish)

    table: dict[type[Any], Any] = controller._SERVE
    table[OnceWish] = serve


def performed_for_nothing() -> None:
    """37b: who asks again for producer ids is told that it has them, and not which."""

    def serve(self: Controller, sender: NodeId, wish: OnceWish) -> Answer:
        before = self.projected
        answer = serve_once(self, sender, wish)
        return answer if self.projected is not before else attrs.evolve(answer, value=0)

    table: dict[type[Any], Any] = controller._SERVE
    serve_once = table[OnceWish]
    table[OnceWish] = serve


MUTANTS = (
    ("37", "performed-again", performed_again, ("deleted-stays-deleted",)),
    ("37b", "performed-for-nothing", performed_for_nothing, ("producer-ids-unique",)),
)  # fmt: skip

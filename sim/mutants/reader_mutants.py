"""Bugs that readers of the product alone thought of, and that seeds and scenarios did not see.

As in raft_mutants.py. 74c, of groups, was thought of by the same readers.
"""

from collections.abc import Sequence
from typing import Any

from raftlog.base.ids import Term
from raftlog.base.limits import TURN_SMALL_FRAME_BYTES
from raftlog.broker.control.controller import Controller
from raftlog.broker.events import Event
from raftlog.broker.front.clients import Clients
from raftlog.raft import reads
from raftlog.raft.state import PendingRead, RaftState


def reads_join_a_sent_round() -> None:
    """97: a read joins the read round that is under way, though that was sent before it came."""
    real = reads.read_index

    def read_index(state: RaftState, token: int) -> None:
        waiting = len(state.reads.unsent)
        real(state, token)
        if state.reads.pending and len(state.reads.unsent) > waiting:
            read: PendingRead = state.reads.unsent.pop()
            state.reads.pending.append(read._replace(context=state.reads.context))

    reads.read_index = read_index


def target_is_not_told_again() -> None:
    """98: a controller that leads again does not tell its replica the target that it told before.

    The replica has forgotten that target with its leadership.
    """
    real = Controller._begin

    def begin(self: Controller, term: Term) -> None:
        wanted = self._wanted
        real(self, term)
        self._wanted = wanted

    Controller._begin = begin  # type: ignore[method-assign]


def denials_wait_for_no_commit() -> None:
    """99: an answer for which nothing was proposed leaves before what it rests on is committed."""

    def confirmed(self: Controller, call: Any, answer: Any, serial: int, confirmed: bool) -> None:
        del serial
        self._waiting -= 1
        if confirmed:
            self._reply(call, answer)
        else:
            self._redirect(call)

    Controller._confirmed = confirmed  # type: ignore[method-assign]


def small_requests_overtake() -> None:
    """45d: a small request is worked before larger ones of its connection that were put off."""
    real = Clients.requests

    def requests(self: Clients, events: Sequence[Event], first: int) -> int:
        event: Any = events[first]
        if self.deferred.holds(event.connection) and len(event.frame) <= TURN_SMALL_FRAME_BYTES:
            self.request(event)
            return 1
        return real(self, events, first)

    Clients.requests = requests  # type: ignore[method-assign]


MUTANTS = (
    ("45d", "small-requests-overtake", small_requests_overtake, ("appended-in-order",)),
    ("97", "reads-join-a-sent-round", reads_join_a_sent_round, ("linearizable-read",)),
    ("98", "target-is-not-told-again", target_is_not_told_again, ("liveness",)),
    ("99", "denials-wait-for-no-commit", denials_wait_for_no_commit,
     ("controller-tells-committed", "told-of-committed")),
)  # fmt: skip

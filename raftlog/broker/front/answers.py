"""Puts answers to clients into the effects of the turn in which they are given."""

from typing import cast, final

import attrs

from raftlog.broker.events import Hangup, Reply
from raftlog.broker.events import Part as SendPart
from raftlog.broker.front.ledger import Ledger
from raftlog.broker.front.requests import Connection, Unanswered
from raftlog.broker.turn import Turn
from raftlog.kafka.shape import Part
from raftlog.records.slices import FileSlice


@final
@attrs.define(eq=False)
class TurnAnswers:
    """Gives answers and hangs up, and tells the ledger of both."""

    turn: Turn
    ledger: Ledger

    def reply(self, request: Unanswered, parts: list[Part] | None, answers: int = 1) -> None:
        """Send the one answer of a request, or the `answers` of a run of requests.

        The request itself calls this. The codec's sized parts are file slices here: handlers use no
        other kind.
        """
        connection = request.connection
        del connection.waiting[request.request_no]
        sized = cast("list[SendPart] | None", parts)
        self.turn.effects.replies.append(Reply(connection.id, request.request_no, sized, answers))
        sent = in_memory = 0
        for part in parts or ():
            sent += len(part)
            if type(part) is not FileSlice:
                in_memory += len(part)
        self.ledger.answered(
            connection.id, request.weight, sent, in_memory, answers, request.pinned_bytes
        )

    def hang_up(self, connection: Connection, why: str | None) -> None:
        """Close a client's connection after the answers of this turn.

        Requests that still wait get no answer. `why` is None where every connection is refused for
        one reason: the broker traced that once.
        """
        connection.end()
        self.ledger.ended(connection.id)
        self.turn.effects.hangups.append(Hangup(connection.id))
        if why is not None:
            self.turn.trace("hangup", f"connection {connection.id}", why=why)
        self.turn.count("hangups")

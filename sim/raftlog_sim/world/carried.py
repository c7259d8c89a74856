"""A fair sample, of bounded size, of the messages that one direction of a link has carried.

The fault `replay-any` delivers one of them again. A message is kept with the session in which it
was sent and comes again under that session only. By the session the receiver decides whether the
message counts.
"""

from collections.abc import Sequence
from typing import Any, Final, final

import attrs

from raftlog.base.ids import SessionId
from raftlog_sim.base.streams import Stream

KEPT_MAX: Final = 256


@final
@attrs.define(eq=False)
class Carried:
    """Keeps each carried message, of any kind, with the same probability.

    It keeps all of them as long as there is room for them.
    """

    draws: Stream
    count: int = 0
    kept: list[tuple[SessionId, Any]] = attrs.Factory(list)

    def note(self, session: SessionId, messages: Sequence[Any]) -> None:
        """Add messages that the link carries now under this session."""
        for message in messages:
            self.count += 1
            if len(self.kept) < KEPT_MAX:
                self.kept.append((session, message))
                continue
            place = self.draws.below(self.count)
            if place < KEPT_MAX:
                self.kept[place] = (session, message)

    def one(self, draws: Stream, *, ended: bool, present: SessionId | None) -> Any:
        """Draw a kept message; returns (session, message), or None when none fits.

        With `ended`, only messages whose session is over fit.
        """
        able = [each for each in self.kept if not ended or each[0] != present]
        return able[draws.below(len(able))] if able else None

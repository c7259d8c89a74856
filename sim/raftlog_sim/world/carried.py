"""What one direction of a link has carried, for `replay-any`: a fair sample of bounded size.

A message is kept under the session in which it was sent, and comes again under no other: the
receiver has to tell by that whether it counts.
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
    """Of all messages that were ever carried, whatever their kind, each is kept with the same
    probability; all of them as long as there is room."""

    draws: Stream
    count: int = 0
    kept: list[tuple[SessionId, Any]] = attrs.Factory(list)

    def note(self, session: SessionId, messages: Sequence[Any]) -> None:
        """These are carried now."""
        for message in messages:
            self.count += 1
            if len(self.kept) < KEPT_MAX:
                self.kept.append((session, message))
                continue
            place = self.draws.below(self.count)
            if place < KEPT_MAX:
                self.kept[place] = (session, message)

    def one(self, draws: Stream, *, ended: bool, present: SessionId | None) -> Any:
        """Some message that is kept, and its session; with `ended` only of a session that is over.
        None when there is none."""
        able = [each for each in self.kept if not ended or each[0] != present]
        return able[draws.below(len(able))] if able else None

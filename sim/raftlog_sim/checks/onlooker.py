"""Feeds every turn of a run to the invariants, to the trace hash and to a watcher."""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, final

import attrs

from raftlog.broker.events import Effects, Event
from raftlog.raft.messages import Append, AppendReply
from raftlog_sim.checks.invariants import Invariants
from raftlog_sim.world.node import Node

HASH_EVERY: Final = 64
_OF_GROUPS: Final = {Append: None, AppendReply: None}
"""The most frequent messages that have both a group and a term."""


class WatchedTurn(NamedTuple):
    """A turn as a watcher sees it, before its effects are performed. `number` and `events_so_far`
    count the turns and events of the run up to and with this turn."""

    number: int
    events_so_far: int
    node: Node
    events: Sequence[Event]
    effects: Effects


Watch = Callable[[WatchedTurn], None]


@final
@attrs.define(eq=False)
class Onlooker:
    """Feeds the invariants, the trace hash and the watcher. The hash covers the node, the time, the
    events and the effects of every turn. Equal hashes mean equal runs."""

    invariants: Invariants
    watch: Watch | None = None
    digest: Any = attrs.Factory(hashlib.blake2b)
    events: int = 0
    turns: int = 0
    _pending: list[str] = attrs.Factory(list)

    def after_turn(self, node: Node, events: Sequence[Event], effects: Effects) -> None:
        """Hash the turn, check it, then show it to the watcher, even if it breaks an invariant."""
        self.events += len(events)
        self.turns += 1
        names = type(events[0]).__name__ if events else ""
        if len(events) > 1:
            names = ",".join([type(event).__name__ for event in events])
        sent = ";".join([_named(send.messages) for send in effects.sends]) if effects.sends else ""
        self._pending.append(
            f"{node.world.now} {node.config.node} {len(events)} {names} "
            f"{len(effects.writes)} {len(effects.replies)} {len(effects.jobs)} {sent}\n"
        )
        if len(self._pending) >= HASH_EVERY:
            self.flush()
        if self.watch is None:
            self.invariants.after_turn(node, events, effects)
            return
        try:
            self.invariants.after_turn(node, events, effects)
        finally:
            self.watch(WatchedTurn(self.turns, self.events, node, events, effects))

    def flush(self) -> None:
        self.digest.update("".join(self._pending).encode())
        self._pending.clear()

    def trace_hash(self) -> str:
        self.flush()
        return str(self.digest.hexdigest()[:16])


def _named(messages: Sequence[Any]) -> str:
    return ",".join([_name(each) for each in messages])


def _name(message: Any) -> str:
    kind = type(message)
    if kind in _OF_GROUPS:
        return f"{kind.__name__}{message.group}.{message.term}"
    return f"{kind.__name__}{getattr(message, 'group', '')}.{getattr(message, 'term', '')}"

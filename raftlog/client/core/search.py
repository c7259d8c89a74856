"""Turns from a broker whose answers do not help to the next one, until one helps.

A broker that is cut off from the others keeps sending what it knew, promptly and for ever. So a
question that any broker can answer is put to one broker for `suspect_ns`, and then to another. No
broker is asked again before all others were (docs/bugs.md, *A client that asked two brokers by
turns, and never the third*).
"""

from collections.abc import Sequence
from typing import final

import attrs

from raftlog.base.units import Instant
from raftlog.client.core.values import ANY_NODE, ClientOptions


@final
class AskedInVain:
    """Nodes whose answers did not help, each once, the last one at the end."""

    def __init__(self) -> None:
        self._nodes: dict[int, None] = {}

    def add(self, node: int) -> None:
        """Put a node at the end."""
        self._nodes.pop(node, None)
        self._nodes[node] = None

    def clear(self) -> None:
        """Forget all of them."""
        self._nodes.clear()

    @property
    def nodes(self) -> Sequence[int]:
        """The nodes that the next request had better avoid."""
        return tuple(self._nodes)


@final
@attrs.define(eq=False)
class BrokerSearch:
    """The search for one answer. It begins when something is missing, and is over when nothing has
    been missing for as long as two of the longest backoffs. `asked` is the node that was asked
    last, a `QueuedRequest.target`."""

    options: ClientOptions
    asked: int = ANY_NODE
    _missed_at: Instant | None = attrs.field(default=None, init=False)
    _asked_since: Instant = attrs.field(default=Instant(0), init=False)
    """Since when the node `asked` has not helped."""
    _in_vain: AskedInVain = attrs.field(factory=AskedInVain, init=False)

    def missed(self, now: Instant) -> None:
        """Note that no answer has helped yet."""
        if self._is_over(now):
            self._asked_since = now
            self._in_vain.clear()
        self._missed_at = now

    def asked_in_vain(self, now: Instant) -> Sequence[int]:
        """The nodes that were asked in vain in this search, the last one at the end."""
        if self._is_over(now):
            return ()
        if now >= self._asked_since + self.options.suspect_ns:
            self._asked_since = now
            self._in_vain.add(self.asked)
        return self._in_vain.nodes

    def _is_over(self, now: Instant) -> bool:
        last = self._missed_at
        return last is None or now > last + 2 * self.options.retry_backoff_max_ns

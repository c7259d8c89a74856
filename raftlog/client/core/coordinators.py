"""Finds the broker that coordinates a group, and keeps it until that broker says that it is not.

A lookup that is not answered within `suspect_ns` goes to another broker as well; the first answer
counts. When a broker's answers have not helped for that long, the lookup turns to another broker
(`search`).

After a refusal that Kafka calls temporary the lookup is repeated with backoff. Any other refusal is
reported to the waiting requests, and the lookup is repeated after the longest backoff.
"""

from functools import partial
from typing import Any, Final, final

import attrs

from raftlog.base.errors import RaftlogError
from raftlog.base.ids import NodeId
from raftlog.base.limits import CLIENT_GROUPS_MAX
from raftlog.base.ports import Entropy
from raftlog.base.units import NEVER, Instant
from raftlog.client.core.connections import Connections, backoff
from raftlog.client.core.errors import ConnectionLost, KafkaError, NotSent
from raftlog.client.core.metadata_cache import MetadataCache
from raftlog.client.core.search import BrokerSearch
from raftlog.client.core.values import ANY_NODE, ClientOptions, ClientTurn
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from raftlog.kafka.versions import ApiKey

_GROUP: Final = 0
"""The kind of key that names a group; the other kind names a transaction."""
_MOVED: Final = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)


@final
@attrs.define(eq=False)
class _Lookup:
    """The lookup of one group. `asked` counts the requests without an answer."""

    search: BrokerSearch
    node: NodeId | None = None
    wanted: bool = True
    asked: int = 0
    asked_at: Instant = Instant(0)
    failures: int = 0
    retry_at: Instant = Instant(0)
    error: RaftlogError | None = None


@final
@attrs.define(eq=False)
class Coordinators:
    """The coordinators of all groups that this client uses."""

    options: ClientOptions
    cache: MetadataCache
    connections: Connections
    entropy: Entropy
    turn: ClientTurn
    _lookups: dict[str, _Lookup] = attrs.field(factory=dict, init=False)

    def node_of(self, group: str) -> NodeId | RaftlogError | None:
        """The coordinator of a group; an error when it can have none; None while the lookup
        runs."""
        lookup = self._lookups.get(group)
        if lookup is None:
            if len(self._lookups) >= CLIENT_GROUPS_MAX:
                del self._lookups[next(iter(self._lookups))]
            lookup = self._lookups[group] = _Lookup(BrokerSearch(self.options))
            self._drive_one(group, lookup)
        if lookup.node is not None and lookup.node in self.cache.addresses:
            return lookup.node
        if lookup.error is not None and self.turn.now < lookup.retry_at:
            return lookup.error
        lookup.wanted = True
        return None

    def forget(self, group: str, node: int) -> None:
        """Forget a coordinator that is none any more, or that cannot be reached."""
        lookup = self._lookups.get(group)
        if lookup is not None and lookup.node == node:
            lookup.node, lookup.wanted = None, True
            lookup.search.missed(self.turn.now)
            # The next broker asked may not know of the change yet, so wait a backoff before asking.
            lookup.retry_at = Instant(self.turn.now + self.options.retry_backoff_ns)

    def refused(self, group: str, node: int, code: int) -> None:
        """Handle an error code with which a broker answered a request of a group."""
        if code in _MOVED:
            self.forget(group, node)

    def look_again(self, group: str) -> None:
        """Look the coordinator up again: it has owed an answer for long, and may no longer be the
        coordinator."""
        lookup = self._lookups.get(group)
        if lookup is not None:
            lookup.wanted = True

    def drive(self) -> None:
        """Send the lookups that are wanted."""
        for group, lookup in self._lookups.items():
            self._drive_one(group, lookup)

    def _drive_one(self, group: str, lookup: _Lookup) -> None:
        now = self.turn.now
        if not lookup.wanted or now < lookup.retry_at:
            return
        if lookup.asked and now < self._impatient_at(lookup):
            return
        body = FindCoordinatorRequest(key=group, key_type=_GROUP, coordinator_keys=(group,))
        other_than = [*lookup.search.asked_in_vain(now)]
        if lookup.asked:
            other_than.append(lookup.search.asked)
        lookup.asked += 1
        lookup.asked_at = now
        then = partial(self._answered, group, lookup)
        waiting = self.connections.send(
            ANY_NODE, ApiKey.FIND_COORDINATOR, body, then, now, other_than=other_than
        )
        lookup.search.asked = waiting.target

    def _impatient_at(self, lookup: _Lookup) -> Instant:
        """When to ask another broker as well. A broker may hold its answer while it creates the
        offsets topic, so each further request waits twice as long."""
        return Instant(lookup.asked_at + (self.options.suspect_ns << min(lookup.asked, 5)))

    def _answered(
        self, group: str, lookup: _Lookup, answer: FindCoordinatorResponse | RaftlogError
    ) -> None:
        lookup.asked -= 1
        if isinstance(answer, RaftlogError):
            if not isinstance(answer, ConnectionLost | NotSent):
                lookup.error, lookup.wanted = answer, False  # the broker does not serve groups
            self._again(lookup)
            return
        found: Any = answer
        if answer.coordinators:
            found = next((each for each in answer.coordinators if each.key == group), Coordinator())
        code = found.error_code
        if code == ErrorCode.NONE and found.node_id >= 0 and found.host:
            lookup.node, lookup.error = NodeId(found.node_id), None
            lookup.wanted, lookup.failures = False, 0
            self.cache.told_endpoints([(found.node_id, found.host, found.port)])
            return
        error = KafkaError(
            code or ErrorCode.COORDINATOR_NOT_AVAILABLE,
            on=f"group {group}",
            message=found.error_message or None,
        )
        lookup.error = None if error.retriable else error
        lookup.wanted = error.retriable
        self._again(lookup)

    def _again(self, lookup: _Lookup) -> None:
        lookup.failures += 1
        lookup.search.missed(self.turn.now)
        pause = backoff(self.options, lookup.failures, self.entropy)
        if lookup.error is not None:
            pause = self.options.retry_backoff_max_ns
        lookup.retry_at = Instant(self.turn.now + pause)

    def next_instant(self, now: Instant) -> Instant:
        """When `drive` has something to do again."""
        wake = NEVER
        for lookup in self._lookups.values():
            if lookup.wanted:
                due = lookup.retry_at
                if lookup.asked:
                    due = max(due, self._impatient_at(lookup))
                wake = min(wake, max(due, now))
        return wake

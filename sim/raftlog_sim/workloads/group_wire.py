"""Reads the requests and answers of a simulated group member from its frames, for `group_checks`.

The member itself is the product's client and is asked nothing.
"""

from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

import attrs

from raftlog.kafka.codec import decode_request, decode_response
from raftlog.kafka.versions import ApiKey
from raftlog_sim.checks.group_checks import GroupChecks
from raftlog_sim.facts.group_log import off_record

if TYPE_CHECKING:
    from raftlog_sim.checks.invariants import Invariants
    from raftlog_sim.world.world import World

_OF_GROUPS: Final = (
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP,
)
_HEAD_BYTES: Final = 8


class MemberRequest(NamedTuple):
    """A request of a member that waits for its answer. `serial` numbers all requests of a run."""

    serial: int
    key: int
    version: int
    body: Any


@final
@attrs.define(eq=False)
class GroupWire:
    """Listens to one client (`driver.Listens`). `process` is its number in the history."""

    world: "World"
    invariants: "Invariants"
    checks: GroupChecks
    process: int
    owed: dict[tuple[int, int], MemberRequest] = attrs.Factory(dict)
    """Unanswered requests, by connection and number."""

    def says(self, dial: int, frame: bytes) -> None:
        """Note a request that leaves."""
        key = int.from_bytes(frame[:2], "big")
        if key not in _OF_GROUPS:
            return
        request = decode_request(frame)
        serial = self.checks.asked(self.process, key, request.body, self.world.now)
        place = (dial, request.correlation_id)
        self.owed[place] = MemberRequest(serial, key, request.api_version, request.body)
        self.checks.open[place, self.process] = key

    def hears(self, dial: int, frame: bytes) -> None:
        """Check an answer that has come."""
        correlation = int.from_bytes(frame[:4], "big")
        place = (dial, correlation)
        asked = self.owed.pop(place, None)
        if asked is None:
            self.invariants.judge(self.checks.answered_again((place, self.process)))
            return
        self.checks.closed((place, self.process))
        body = decode_response(asked.key, asked.version, frame).body
        self.invariants.judge(
            self.checks.answered(
                self.process, asked.serial, asked.key, asked.body, body, self.world.now
            )
        )
        known = [each for each in self.invariants.committed.values() if each.groups is not None]
        if all(each.whole for each in known):
            logs = (each.groups for each in known if each.groups is not None)
            problem = off_record(logs, asked.key, asked.body, body)
            self.invariants.judge((("group-on-record", problem),))

    def loses(self, dial: int) -> None:
        """Note that a connection is gone: its requests are never answered."""
        for place in [each for each in self.owed if each[0] == dial]:
            del self.owed[place]
            self.checks.closed((place, self.process))

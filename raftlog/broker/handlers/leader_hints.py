"""Leaders in answers of the data path: the tagged fields of KIP-951, and small shared rules."""

from collections.abc import Callable
from typing import Final, TypeVar, final

import attrs

from raftlog.base.ids import NodeId
from raftlog.base.limits import PRODUCE_WAIT_MS_MAX
from raftlog.base.units import Instant, millis
from raftlog.broker.context import Context
from raftlog.broker.front.requests import KafkaRequest
from raftlog.broker.front.router import TopicKey
from raftlog.kafka.error_codes import ErrorCode

Hint = TypeVar("Hint")
Endpoint = TypeVar("Endpoint")

NO_REPLICA: Final = -1
MOVED: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
"""Errors after which a client looks for the leader: the answer names it if it is known."""


@final
@attrs.define(eq=False)
class LeaderHints:
    """The leaders that one answer names, and where its listener reaches them, each once."""

    context: Context
    listener: str
    nodes: dict[NodeId, None] = attrs.Factory(dict)

    def of(
        self,
        error: int,
        key: TopicKey,
        partition: int,
        make: Callable[[int, int], Hint],
        none: Hint,
    ) -> Hint:
        """The leader of a partition whose answer carries `error`.

        It is `none` when the answer names none, or when this broker, which does not lead, is all
        that is known.
        """
        if error not in MOVED:
            return none
        leader = self.context.router.leader_of(key, partition)
        if leader is None or leader.node == self.context.node:
            return none
        self.nodes[leader.node] = None
        return make(leader.node, leader.epoch)

    def endpoints(self, make: Callable[[int, str, int, str | None], Endpoint]) -> list[Endpoint]:
        """The addresses of the named leaders."""
        found = []
        for node in self.nodes:
            endpoint = self.context.router.endpoint(node, self.listener)
            if endpoint is not None:
                found.append(make(node, endpoint.host, endpoint.port, endpoint.rack))
        return found


def deadline_after(context: Context, wait_ms: int) -> Instant:
    """The instant at which a request gives up whose client waits `wait_ms`."""
    return Instant(context.now + millis(min(max(wait_ms, 0), PRODUCE_WAIT_MS_MAX)))


def claims_to_be_a_replica(context: Context, request: KafkaRequest, replica_id: int) -> bool:
    """Whether a client claims to be a replica; it is then refused, and that is traced.

    Replication never uses this API, and no id inside a message is trusted (CVE-2018-1288).
    """
    if replica_id <= NO_REPLICA:
        return False
    connection = request.connection
    context.count("replica_claims_refused")
    context.trace(
        "replica-claim-refused",
        f"connection {connection.id}",
        principal=connection.principal,
        address=connection.address,
        replica=replica_id,
    )
    return True

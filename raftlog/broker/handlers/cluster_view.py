"""The common part of Metadata and DescribeCluster: live brokers, controller, cluster id, rights."""

import base64
from typing import Final, NamedTuple

from raftlog.base.ids import METADATA_GROUP, ClusterId, NodeId
from raftlog.broker.context import Context
from raftlog.broker.front.router import Endpoint

NOT_ASKED: Final = -2147483648
"""The authorized operations in an answer to a client that did not ask for them."""

# Bits are Kafka's AclOperation codes; without ACLs everything that applies is allowed.
_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE = 3, 4, 5, 6, 7, 8
_CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE = 9, 10, 11, 12


def _bits(*operations: int) -> int:
    return sum(1 << operation for operation in operations)


TOPIC_OPERATIONS: Final = _bits(
    _READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS
)
GROUP_OPERATIONS: Final = _bits(_READ, _DELETE, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS)
CLUSTER_OPERATIONS: Final = _bits(
    _CREATE,
    _ALTER,
    _DESCRIBE,
    _CLUSTER_ACTION,
    _DESCRIBE_CONFIGS,
    _ALTER_CONFIGS,
    _IDEMPOTENT_WRITE,
)


class ShownBroker(NamedTuple):
    """A broker by the address of one listener."""

    node: NodeId
    endpoint: Endpoint


def live_brokers(context: Context, listener: str) -> list[ShownBroker]:
    """The brokers that clients of that listener can reach, in order of node."""
    found = []
    for broker in context.image.live_brokers():
        endpoint = context.router.endpoint(broker.node, listener)
        if endpoint is not None:
            found.append(ShownBroker(broker.node, endpoint))
    return found


def controller_id(context: Context) -> int:
    """The node that is named as the controller.

    That is the metadata group's leader if clients can reach it, else this broker, which forwards.
    """
    replica = context.replicas.get(METADATA_GROUP)
    leader = None if replica is None or replica.leader is None else replica.leader.node
    if leader is not None and context.router.is_alive(leader):
        return leader
    return context.node if context.router.is_alive(context.node) else -1


def id_text(value: bytes) -> str:
    """A 16-byte id as Kafka prints it: base64url without padding, 22 characters."""
    return base64.urlsafe_b64encode(value).decode("ascii").rstrip("=")


def cluster_text(cluster: ClusterId) -> str:
    """The cluster id as clients see it."""
    return id_text(cluster)

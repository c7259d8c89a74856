"""FindCoordinator: names the broker that coordinates a group; refuses other kinds of coordinators.

A group's coordinator leads its partition of the internal topic. The first client that asks has that
topic made. While the topic is new, answers wait a bounded moment until the partition has a leader:
clients that get COORDINATOR_NOT_AVAILABLE back off, and users feel that in every start.
"""

from collections.abc import Sequence
from typing import Final, final

import attrs

from raftlog.broker.context import Context
from raftlog.broker.front.requests import KafkaRequest
from raftlog.broker.groups.offsets_topic import partition_of
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

_BATCHED_FROM: Final = 4
_GROUP: Final = 0
_REFUSALS: Final = {
    1: (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactions are not served yet"),
    2: (
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        "share groups are not served; use a consumer group with group.protocol=classic",
    ),
}
"""Key type (transaction, share) -> the refusal of its coordinators."""


def handle(context: Context, request: KafkaRequest) -> None:
    """Answer with one coordinator or refusal, or with one per key from version 4 on."""
    body: FindCoordinatorRequest = request.body
    keys = body.coordinator_keys if request.version >= _BATCHED_FROM else (body.key,)
    if body.key_type == _GROUP:
        _Search(context, request, keys).begin()
        return
    refused = _refusal(body.key_type)
    where = f"connection {request.connection.id}"
    context.trace("coordinator_refused", where, why=refused.error_message or "")
    _answer(request, [refused._replace(key=key) for key in keys])


@final
@attrs.define(eq=False)
class _Search:
    """The coordinators of some groups, for one request."""

    context: Context
    request: KafkaRequest
    keys: Sequence[str]
    _numbers: list[int] = attrs.Factory(list)
    """The partition of each group, once the topic exists. It never changes, and hashing long names
    costs time."""

    def begin(self) -> None:
        """Answer at once, or when the topic exists and is led."""
        context = self.context
        deadline = context.groups.topic.leaders_due()
        if self._found() or deadline <= context.now:
            self.answer()
            return
        context.groups.topic.ensure()
        waiter = context.image_waiters.wait(self._found, deadline, self.answer)
        self.request.on_close(waiter.leave)

    def _found(self) -> bool:
        topic, listener = self.context.groups.topic, self.request.connection.listener
        image = topic.image
        if image is None:
            return False
        if not self._numbers:
            self._numbers = [partition_of(key, len(image.partitions)) for key in self.keys]
        asked = dict.fromkeys(self._numbers)
        return all(topic.endpoint_of(number, listener) is not None for number in asked)

    def answer(self) -> None:
        """Answer with the known ones, and COORDINATOR_NOT_AVAILABLE for the others."""
        numbers: Sequence[int | None] = self._numbers or [None] * len(self.keys)
        pairs = zip(self.keys, numbers, strict=True)
        _answer(self.request, [self._coordinator(*pair) for pair in pairs])

    def _coordinator(self, key: str, number: int | None) -> Coordinator:
        topic, listener = self.context.groups.topic, self.request.connection.listener
        found = None if number is None else topic.endpoint_of(number, listener)
        if found is None:
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            return Coordinator(key, -1, "", -1, code, code.message)
        leader, endpoint = found
        return Coordinator(key, leader.node, endpoint.host, endpoint.port)


def _answer(request: KafkaRequest, found: list[Coordinator]) -> None:
    if request.version >= _BATCHED_FROM:
        request.answer(FindCoordinatorResponse(coordinators=found))
        return
    one = found[0]
    request.answer(
        FindCoordinatorResponse(
            0, one.error_code, one.error_message, one.node_id, one.host, one.port
        )
    )


def _refusal(key_type: int) -> Coordinator:
    unknown = ErrorCode.INVALID_REQUEST, f"key type {key_type} is not known"
    code, message = _REFUSALS.get(key_type, unknown)
    return Coordinator("", -1, "", -1, code, message)

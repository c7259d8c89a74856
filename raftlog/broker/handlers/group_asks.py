"""The common part of the handlers of groups: who the client is, and answers from several groups."""

from collections.abc import Callable
from functools import partial
from typing import Any, final

import attrs

from raftlog.broker.context import Context
from raftlog.broker.front.requests import KafkaRequest
from raftlog.groups.coordinator import Coordinator
from raftlog.groups.settings import GroupClient
from raftlog.kafka.error_bodies import error_body
from raftlog.kafka.error_codes import ErrorCode


def client_of(request: KafkaRequest) -> GroupClient:
    """The client of a request, as a group keeps it. Kafka prints a slash before the host."""
    return GroupClient(
        client_id=request.client_id or "",
        host=f"/{_host_of(request.connection.address)}",
        version=request.version,
    )


def hand_over(
    context: Context,
    request: KafkaRequest,
    call: Callable[[Coordinator], None],
    refuse_with: Callable[[ErrorCode], None] | None = None,
) -> None:
    """Hand the request to the coordinator of the group that it names, by `call`, or refuse it."""
    refusal = refuse_with or partial(refuse, request)
    if request.body.group_id:
        context.groups.ask(request.body.group_id, request, call, refusal)
    else:
        refusal(ErrorCode.INVALID_GROUP_ID)


def refuse(request: KafkaRequest, code: ErrorCode) -> None:
    """Answer the whole request with the error; nothing when it was answered or its client left."""
    if not request.dead:
        request.answer(error_body(request.body, code))


def reply(request: KafkaRequest, body: object) -> None:
    """Answer with the body; nothing when the request was answered or its client left.

    A member stays in its group without its connection, so its coordinator may still answer.
    """
    if not request.dead:
        request.answer(body)


def _host_of(address: str) -> str:
    """The address without its port."""
    host, colon, port = address.rpartition(":")
    return host.strip("[]") if colon and port.isdigit() else address


@final
@attrs.define(eq=False)
class Room:
    """The bytes that one answer may still have.

    The first part may be of any size: a client asks for it alone if it does not fit beside others.
    """

    left: int

    @property
    def is_full(self) -> bool:
        """Whether the answer takes no more parts."""
        return self.left <= 0

    def take(self, size: int) -> None:
        """Count one more part."""
        self.left -= size


@final
@attrs.define(eq=False)
class Gathered:
    """The parts of one answer; `finish(parts)` is called when all are there. A part is set once."""

    request: KafkaRequest
    finish: Callable[[list[Any]], None]
    parts: list[Any] = attrs.Factory(list)
    _open: int = 1
    """The number of missing parts, and one more until `all_asked`."""

    def place(self) -> Callable[[Any], None]:
        """Add a place for one more part; returns the call that fills it."""
        self.parts.append(None)
        self._open += 1
        return partial(self._fill, len(self.parts) - 1)

    def all_asked(self) -> None:
        """Take note that no more places come."""
        self._close_one()

    def _fill(self, place: int, part: object) -> None:
        assert self.parts[place] is None, (place, self.parts[place])
        self.parts[place] = part
        self._close_one()

    def _close_one(self) -> None:
        self._open -= 1
        if self._open == 0 and not self.request.dead:
            self.finish(self.parts)

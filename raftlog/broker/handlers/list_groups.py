"""ListGroups: the groups that this broker coordinates.

Tools ask every broker, and put the lists together.
"""

from functools import partial
from typing import Any, Final

from raftlog.broker.context import Context
from raftlog.broker.front.requests import KafkaRequest
from raftlog.broker.handlers.group_asks import Gathered, reply
from raftlog.groups.coordinator import Coordinator
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.list_groups import ListGroupsResponse

_LOST: Final = ErrorCode.NOT_COORDINATOR


def handle(context: Context, request: KafkaRequest) -> None:
    """Ask the coordinator of each partition that this broker leads; wait for those that load."""
    gathered = Gathered(request, partial(_answer, request))
    for group in context.groups.led_partitions():
        fill = gathered.place()
        context.groups.ask_partition(group, request, partial(_list, request, fill), fill)
    gathered.all_asked()


def _list(request: KafkaRequest, fill: Any, coordinator: Coordinator) -> None:
    fill(coordinator.list_groups(request.body))


def _answer(request: KafkaRequest, parts: list[Any]) -> None:
    """Answer with the lists of all partitions.

    A partition that another broker leads by now is listed there. One that still loads makes the
    list incomplete, which the answer says.
    """
    groups = []
    error = ErrorCode.NONE
    for part in parts:
        if not isinstance(part, ErrorCode):
            groups += part
        elif part is not _LOST:
            error = part
    reply(request, ListGroupsResponse(error_code=error, groups=groups))

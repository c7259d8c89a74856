"""DeleteGroups: empty groups are removed, with their offsets."""

from functools import partial
from typing import Any

from raftlog.broker.context import Context
from raftlog.broker.front.requests import KafkaRequest
from raftlog.broker.handlers.group_asks import Gathered, reply
from raftlog.groups.coordinator import Coordinator
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


def handle(context: Context, request: KafkaRequest) -> None:
    """Ask the coordinator of each group that the request names, each once."""
    body: DeleteGroupsRequest = request.body
    names = list(dict.fromkeys(body.groups_names))
    gathered = Gathered(request, partial(_answer, request, names))
    for group_id in names:
        fill = gathered.place()
        call = partial(_delete, context, group_id, fill)
        context.groups.ask(group_id, request, call, fill)
    gathered.all_asked()


def _delete(context: Context, group_id: str, fill: Any, coordinator: Coordinator) -> None:
    coordinator.delete_group(group_id, fill, context.now, context.wall)


def _answer(request: KafkaRequest, names: list[str], codes: list[ErrorCode]) -> None:
    results = [DeletableGroupResult(*each) for each in zip(names, codes, strict=True)]
    reply(request, DeleteGroupsResponse(results=results))

"""ListConfigResources: the resources with settings.

Version 0 asks for client metrics: none exist.
"""

from typing import Final

from raftlog.broker.context import Context
from raftlog.broker.front.requests import KafkaRequest
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

_TOPIC: Final = 2
_BROKER: Final = 4
_WITHOUT: Final = (8, 16, 32)
"""Broker loggers, client metrics and groups: known kinds, none of which has settings here."""


def handle(context: Context, request: KafkaRequest) -> None:
    """Answer with topics by name, then brokers by number."""
    body: ListConfigResourcesRequest = request.body
    if request.version == 0:
        request.answer(ListConfigResourcesResponse())
        return
    asked = dict.fromkeys(body.resource_types) or dict.fromkeys((_TOPIC, _BROKER, *_WITHOUT))
    if any(kind not in (_TOPIC, _BROKER, *_WITHOUT) for kind in asked):
        request.answer(ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION))
        return
    found = []
    if _TOPIC in asked:
        found += [ConfigResource(name, _TOPIC) for name in sorted(context.image.names)]
    if _BROKER in asked:
        found += [ConfigResource(str(node), _BROKER) for node in sorted(context.image.brokers)]
    request.answer(ListConfigResourcesResponse(config_resources=found))

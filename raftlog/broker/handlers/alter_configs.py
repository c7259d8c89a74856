"""AlterConfigs: the settings of a resource become exactly those given. Older clients ask this."""

from operator import attrgetter

from raftlog.broker.handlers.altering_configs import (
    TWICE,
    Changes,
    alter,
    is_known,
    no_timeout,
    told,
)
from raftlog.broker.handlers.controller_calls import Outcome
from raftlog.broker.handlers.each_named import EachNamed
from raftlog.kafka.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from raftlog.metadata.config_changes import Operation


def _asked(body: AlterConfigsRequest) -> list[Changes]:
    return [
        Changes(
            each.resource_type,
            each.resource_name,
            [config.name for config in each.configs],
            [Operation.SET] * len(each.configs),
            [config.value for config in each.configs],
            replace=True,
        )
        for each in body.resources
    ]


def _response(body: AlterConfigsRequest, outcomes: list[Outcome]) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(*told(outcome), each.resource_type, each.resource_name)
            for each, outcome in zip(body.resources, outcomes, strict=True)
        ]
    )


handle = EachNamed(
    asked=_asked,
    key=attrgetter("resource"),
    twice=TWICE,
    fits=is_known,
    ask=alter,
    respond=_response,
    timeout_ms=no_timeout,
).handle
"""See the module."""

"""IncrementalAlterConfigs: settings of a resource are set or deleted, lists get or lose words."""

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
from raftlog.kafka.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


def _asked(body: IncrementalAlterConfigsRequest) -> list[Changes]:
    return [
        Changes(
            each.resource_type,
            each.resource_name,
            [config.name for config in each.configs],
            [config.config_operation for config in each.configs],
            [config.value for config in each.configs],
            replace=False,
        )
        for each in body.resources
    ]


def _response(
    body: IncrementalAlterConfigsRequest, outcomes: list[Outcome]
) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
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

"""IncrementalAlterConfigs: settings are set or deleted, and words added to lists or removed."""

from raftlog.broker.control.controller_calls import CallOutcome
from raftlog.broker.handlers.altering_configs import Changes, altering, told
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
    body: IncrementalAlterConfigsRequest, outcomes: list[CallOutcome]
) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(*told(outcome), each.resource_type, each.resource_name)
            for each, outcome in zip(body.resources, outcomes, strict=True)
        ]
    )


handle = altering(_asked, _response).handle
"""See the module."""

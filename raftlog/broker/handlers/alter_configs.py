"""AlterConfigs: the settings of a resource become exactly those given. Older clients ask this."""

from raftlog.broker.control.controller_calls import CallOutcome
from raftlog.broker.handlers.altering_configs import Changes, altering, told
from raftlog.kafka.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from raftlog.metadata.settings.config_changes import ConfigOperation


def _asked(body: AlterConfigsRequest) -> list[Changes]:
    return [
        Changes(
            each.resource_type,
            each.resource_name,
            [config.name for config in each.configs],
            [ConfigOperation.SET] * len(each.configs),
            [config.value for config in each.configs],
            replace=True,
        )
        for each in body.resources
    ]


def _response(body: AlterConfigsRequest, outcomes: list[CallOutcome]) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(*told(outcome), each.resource_type, each.resource_name)
            for each, outcome in zip(body.resources, outcomes, strict=True)
        ]
    )


handle = altering(_asked, _response).handle
"""See the module."""

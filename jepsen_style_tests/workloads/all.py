"""The table of workloads."""

from typing import Final

from jepsen_style_tests.workloads.append import AppendWorkload
from jepsen_style_tests.workloads.face import RunWorkload
from jepsen_style_tests.workloads.groups import GroupsWorkload
from jepsen_style_tests.workloads.idempotent import IdempotentWorkload
from jepsen_style_tests.workloads.register import RegisterWorkload
from jepsen_style_tests.workloads.topics import TopicsWorkload

WORKLOADS: Final[dict[str, RunWorkload]] = {
    workload.name: workload
    for workload in (
        AppendWorkload(),
        IdempotentWorkload(),
        GroupsWorkload(),
        RegisterWorkload(),
        TopicsWorkload(),
    )
}

"""The table of workloads."""

from typing import Final

from jepsen_style_tests.workloads.append import AppendWorkload
from jepsen_style_tests.workloads.face import Workload

WORKLOADS: Final[dict[str, Workload]] = {
    workload.name: workload for workload in (AppendWorkload(),)
}

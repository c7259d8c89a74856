"""All kinds of faults, by family; a new kind is listed in `STRIKES` of its family's module."""

from typing import Final

from raftlog_sim.faults import (
    clock_faults,
    cluster_faults,
    directory_faults,
    disk_faults,
    group_faults,
    loss_faults,
    moment_faults,
    network_faults,
    process_faults,
    release_faults,
    rot_faults,
)
from raftlog_sim.faults.nemesis import FaultKinds

FAULT_KINDS: Final = FaultKinds(
    strikes={
        **process_faults.STRIKES,
        **network_faults.STRIKES,
        **disk_faults.STRIKES,
        **rot_faults.STRIKES,
        **loss_faults.STRIKES,
        **cluster_faults.STRIKES,
        **directory_faults.STRIKES,
        **clock_faults.STRIKES,
        **release_faults.STRIKES,
    },
    waiting={
        group_faults.KILL: group_faults.strike_when,
        group_faults.CUT: group_faults.strike_when,
        moment_faults.KIND: moment_faults.strike_when,
    },
    heal_node=(
        cluster_faults.heal,
        clock_faults.heal,
        loss_faults.heal,
        directory_faults.heal,
        disk_faults.heal,
        process_faults.heal,
    ),
    heal_clock=clock_faults.heal,
    reboot=process_faults.reboot,
    heal_cluster=cluster_faults.lift_throttle,
)

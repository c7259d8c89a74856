"""A small tmpfs as each broker's data directory, as root."""

import subprocess

from jepsen_style_tests.processes import ProcessCluster
from raftlog.base.errors import OperatingError


def mount(cluster: ProcessCluster, megabytes: int) -> None:
    """Mount them; `OperatingError` where that is not allowed."""
    for node in cluster.nodes:
        path = cluster.data_path(node)
        path.mkdir(parents=True, exist_ok=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "raftlog", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise OperatingError("cannot be mounted", on=str(path), do=done.stderr.strip())


def unmount(cluster: ProcessCluster) -> None:
    """Unmount what is mounted; nothing where nothing is."""
    for node in cluster.nodes:
        path = cluster.data_path(node)
        if path.is_mount():
            subprocess.run(["umount", str(path)], capture_output=True, check=False)

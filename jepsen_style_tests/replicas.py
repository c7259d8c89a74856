"""After a run: what the replicas hold on disk, as `raftlog inspect` says it."""

from typing import Any

from jepsen_style_tests.processes import Cluster, inspect
from raftlog.base.errors import OperatingError


def compare(cluster: Cluster, lost_copies: bool) -> dict[str, dict[str, Any]]:
    """Checks over the data directories of brokers that were stopped: nothing is damaged, and
    replicas of one group whose last entries have the same index and term hold the same bytes.

    With `lost_copies` a copy was destroyed on purpose, and may not have been repaired yet.
    """
    by_end: dict[tuple[int, int, int], dict[str, str]] = {}
    damaged: list[str] = []
    for node in cluster.nodes:
        try:
            found = inspect(cluster.data_path(node))
        except OperatingError as error:
            damaged.append(f"n{node}: {error}")
            continue
        for row in found["groups"]:
            if row["damaged"]:
                damaged.append(f"n{node} group {row['group']}: {row['fault']}")
            elif "last_index" in row and "chain" in row:
                place = (row["group"], row["last_index"], row["last_term"])
                by_end.setdefault(place, {})[f"n{node}"] = row["chain"]
    differ = [
        f"group {group} up to index {index}, term {term}: {chains}"
        for (group, index, term), chains in sorted(by_end.items())
        if len(set(chains.values())) > 1
    ]
    compared = sum(len(chains) > 1 for chains in by_end.values())
    checks = {
        "replicas-agree": {
            "status": "violated" if differ else "held",
            "checked": compared,
            "note": "; ".join(differ),
        }
    }
    if not lost_copies:
        checks["nothing-damaged"] = {
            "status": "violated" if damaged else "held",
            "note": "; ".join(damaged),
        }
    return checks

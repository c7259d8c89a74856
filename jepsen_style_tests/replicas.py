"""After a run: what the replicas hold on disk, as `raftlog inspect` says it.

Three things may not be. Damage, in a copy that nobody damaged. Two replicas with the same last
index and term, or the same end of one term inside their logs, and different bytes up to there
(Raft's log matching). Two replicas that both know an offset to be committed, and hold it in
different terms. Records after the committed offset may differ, because they were never
acknowledged.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, Final, final

import attrs

from jepsen_style_tests.processes import ProcessCluster, inspect
from raftlog.base.errors import OperatingError

_METADATA_GROUP: Final = 0
_NOTES_MAX: Final = 5
Row = Mapping[str, Any]


@final
@attrs.frozen
class ReplicaFindings:
    """The checks, and for the report key -> node -> what it holds of that log, by term."""

    checks: dict[str, dict[str, Any]]
    logs: dict[str, dict[str, dict[str, Any]]]


def compare(
    cluster: ProcessCluster, lost_copies: bool, topics: Sequence[str] = ()
) -> ReplicaFindings:
    """Look at the data directories of brokers that were stopped.

    With `lost_copies` a copy was destroyed on purpose, and may not have been repaired yet. `topics`
    are the names of the topics that clients used: one name is enough to name the logs.
    """
    groups: dict[int, dict[str, Row]] = {}
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
            groups.setdefault(row["group"], {})[f"n{node}"] = row
    compared = 0
    differ: list[str] = []
    for group, rows in sorted(groups.items()):
        sound = {node: row for node, row in rows.items() if not row["damaged"] and "chain" in row}
        for one, other in combinations(sound.items(), 2):
            compared += 1
            differ += [f"group {group}: {what}" for what in _differences(one, other)]
    checks = {"replicas-agree": _check(differ, checked=compared)}
    if not lost_copies:
        checks["nothing-damaged"] = _check(damaged)
    return ReplicaFindings(checks, _logs(groups, topics))


def _check(wrong: Sequence[str], **more: Any) -> dict[str, Any]:
    notes = list(wrong[:_NOTES_MAX])
    if len(wrong) > _NOTES_MAX:
        notes.append(f"and {len(wrong) - _NOTES_MAX} more")
    return {"status": "violated" if wrong else "held", **more, "note": "; ".join(notes)}


def _differences(one: tuple[str, Row], other: tuple[str, Row]) -> list[str]:
    """The contradictions between two replicas of one group."""
    found = []
    ends = [_ends(row) for _, row in (one, other)]
    for place in sorted(ends[0].keys() & ends[1].keys()):
        chains = [ends[0][place], ends[1][place]]
        if chains[0] != chains[1]:
            index, term = place
            found.append(
                f"up to index {index}, term {term}, {one[0]} has chain {chains[0]} and {other[0]} "
                f"{chains[1]}"
            )
            break
    committed = min(one[1].get("commit_offset", 0), other[1].get("commit_offset", 0))
    offset = _parting(_runs(one[1]), _runs(other[1]), committed)
    if offset is not None:
        found.append(f"{one[0]} and {other[0]} hold committed offset {offset} in different terms")
    return found


def _ends(row: Row) -> dict[tuple[int, int], str]:
    """(last index, term) -> the chain there, for the end of each term in the log."""
    found = {(each["last_index"], each["term"]): each["end_chain"] for each in row.get("terms", ())}
    found[row["last_index"], row["last_term"]] = row["chain"]
    return found


def _runs(row: Row) -> list[list[int]]:
    """[first offset, end, term] of the terms that have records."""
    return [
        [each["first_offset"], each["end_offset"], each["term"]]
        for each in row.get("terms", ())
        if each["end_offset"] > each["first_offset"]
    ]


def _parting(one: Sequence[list[int]], other: Sequence[list[int]], end: int) -> int | None:
    """The lowest offset below `end` that both hold, in different terms."""
    found = [
        max(first, other_first)
        for first, stop, term in one
        for other_first, other_stop, other_term in other
        if term != other_term and max(first, other_first) < min(stop, other_stop, end)
    ]
    return min(found, default=None)


def _logs(
    groups: Mapping[int, Mapping[str, Row]], topics: Sequence[str]
) -> dict[str, dict[str, dict[str, Any]]]:
    """For the report. A directory is named by the topic's id, which only the brokers can translate;
    where the clients used one topic and the disks hold one, they are the same.
    """
    places: dict[int, tuple[str, str]] = {}
    for group, rows in sorted(groups.items()):
        path = str(next(iter(rows.values())).get("path", "")).rpartition("/")[2]
        if group != _METADATA_GROUP and path.count("-") == 2:
            topic, partition, _ = path.split("-")
            places[group] = (topic, partition)
    ids = dict.fromkeys(topic for topic, _ in places.values())
    names = {next(iter(ids)): topics[0]} if len(ids) == len(topics) == 1 else {}
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for group, (topic, partition) in places.items():
        name = names.get(topic, f"topic {topic[:8]}")
        found[f"{name}/{partition}"] = {
            node: {"committed": row.get("commit_offset"), "runs": _runs(row), "fault": row["fault"]}
            for node, row in groups[group].items()
        }
    return found

"""The way in which the result of each job enters a recording.

A job that is not in the table cannot be recorded, and a test fails until it is.

Most results are written as values. A job that uses no disk is run again by the replay, with the
arguments that the replayed broker gave it. So its result may be a machine, or change its argument.
"""

import enum
from collections.abc import Callable, Mapping
from typing import Any, Final, final

from raftlog.broker.incident.values import NotRecordable
from raftlog.partition.boot import restored_machine
from raftlog.partition.machine.install_judge import judged_machine
from raftlog.records.record_walk import walk_records
from raftlog.storage.boot import recovery
from raftlog.storage.directories import directory_move
from raftlog.storage.directories.space import look_at_space, look_at_spaces
from raftlog.storage.segments import jobs, scrub, snapshot, time_jobs

JobFunction = Callable[..., Any]
_KNOWN_DEPTH_MAX: Final = 3


@final
class ResultCodec(enum.Enum):
    """The ways to record a result."""

    STORED = "stored"
    RUN_AGAIN = "run-again"


JOBS: Final[Mapping[JobFunction, ResultCodec]] = {
    **dict.fromkeys(
        (
            jobs.verify_segment,
            jobs.verify_segments,
            jobs.write_index,
            jobs.distrust_index,
            jobs.scan_range,
            jobs.read_entries,
            jobs.replay_producers,
            jobs.remove_files,
            jobs.remove_segments,
            time_jobs.scan_times,
            time_jobs.find_time,
            time_jobs.largest_in,
            snapshot.newest_snapshot,
            snapshot.write_snapshot,
            snapshot.write_made_snapshot,
            recovery.create_replica,
            recovery.recover_replica,
            recovery.salvage_replica,
            recovery.delete_replica,
            look_at_space,
            look_at_spaces,
            scrub.scrub_stretch,
            scrub.measure_damage,
            directory_move.begin_copy,
            directory_move.copy_stretch,
            directory_move.finish_copy,
            directory_move.end_move,
        ),
        ResultCodec.STORED,
    ),
    **dict.fromkeys((walk_records, restored_machine, judged_machine), ResultCodec.RUN_AGAIN),
}


def codec_of(function: JobFunction) -> ResultCodec:
    """The way in which results of this job are recorded."""
    found = JOBS.get(function)
    if found is None:
        raise NotRecordable(
            f"the job {function_name(function)} has no codec for its result",
            do="name it in raftlog/broker/incident/jobs.py",
        )
    return found


def function_name(function: JobFunction) -> str:
    """The name of a job in a recording."""
    return f"{function.__module__}.{function.__qualname__}"


def known_of(args: tuple[Any, ...]) -> dict[str, object]:
    """The objects that a job was given, by their places.

    Its result may hold them. In a replay the replayed broker's own objects stand there.
    """
    found: dict[str, object] = {}
    _collect(found, "", args, _KNOWN_DEPTH_MAX)
    return found


def _collect(found: dict[str, object], place: str, values: tuple[Any, ...], depth: int) -> None:
    for number, each in enumerate(values):
        name = f"{place}{number}"
        if isinstance(each, tuple):
            if depth > 1:
                _collect(found, f"{name}.", each, depth - 1)
        elif hasattr(type(each), "__slots__") or hasattr(each, "__dict__"):
            found[name] = each

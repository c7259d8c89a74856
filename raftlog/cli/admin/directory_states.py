"""Tells how far the moves between log directories are that a plan names."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from raftlog.base.ids import NodeId
from raftlog.cli.admin.moves import alter_directories
from raftlog.cli.admin.plan_files import Directories
from raftlog.cli.output.render import print_table
from raftlog.client.core.admin_asks import LogDir, describe_log_dirs
from raftlog.client.core.results import PartitionResult
from raftlog.client.core.values import TopicPartition
from raftlog.client.trio_driver import Client


class DirectoryState(NamedTuple):
    """A replica that a plan wants in a directory.

    `current` is None when it lies in no working directory, `future` when it is not on the way to
    any.
    """

    place: TopicPartition
    node: int
    wanted: str
    current: str | None
    future: str | None

    @property
    def state(self) -> str:
        """done, moving, offline, or differs: nothing moves it there."""
        if self.future is not None:
            return "moving" if self.future == self.wanted else "differs"
        if self.current is None:
            return "offline"
        return "done" if self.current == self.wanted else "differs"

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to wait for, as Kafka's tool has it.

        The tool waits for a move to any directory, and for a directory that does not work.
        """
        return self.current is not None and self.future is None

    def as_json(self) -> dict[str, Any]:
        """The state for `--format json`."""
        return {
            **self.place._asdict(),
            "broker": self.node,
            "state": self.state,
            "wanted": self.wanted,
            "current": self.current,
            "future": self.future,
        }

    def as_kafka_says(self) -> str:
        """The line of Kafka's own tool."""
        replica = f"{self.place.topic}-{self.place.partition}-{self.node}"
        if self.state == "done":
            return f"Reassignment of replica {replica} completed successfully."
        if self.state == "moving":
            return f"Reassignment of replica {replica} is still in progress."
        if self.state == "offline":
            return (
                f"Partition {self.place} is not found in any live log dir on broker {self.node}. "
                "There is likely an offline log directory on the broker."
            )
        where = f"Partition {self.place} on broker {self.node} is"
        if self.future is not None:
            return f"{where} being moved to log dir {self.future} instead of {self.wanted}."
        return f"{where} not being moved from log dir {self.current} to {self.wanted}."


async def directory_states(client: Client, wanted: Directories) -> list[DirectoryState]:
    """The present directories of the replicas; `wanted` as `read_directories` gives it."""
    await client.know_brokers()
    found: list[DirectoryState] = []
    for node, named in sorted(wanted.items()):
        directories: list[LogDir] = await client.ask(describe_log_dirs(NodeId(node), sorted(named)))
        lying = _lying(directories)
        for place, path in sorted(named.items()):
            current, future = lying.get((place, False)), lying.get((place, True))
            found.append(DirectoryState(place, node, path, current, future))
    return found


async def take_moves_back(
    client: Client, found: list[DirectoryState]
) -> tuple[list[DirectoryState], list[PartitionResult]]:
    """Leave the plan's replicas where they are, whichever directories they are on their way to.

    Returns those that were on their way, and the refusals.
    """
    moving = [each for each in found if each.future is not None]
    homes: Directories = {}
    for each in moving:
        if each.current is not None:
            homes.setdefault(each.node, {})[each.place] = each.current
    return moving, await alter_directories(client, homes)


def _lying(directories: list[LogDir]) -> Mapping[tuple[TopicPartition, bool], str]:
    return {
        (each.place, each.is_future): directory.path
        for directory in directories
        for each in directory.replicas
    }


def print_directories(found: list[DirectoryState]) -> None:
    """Print a table, when the plan names directories."""
    if found:
        rows = [
            [each.place.topic, each.place.partition, each.node, each.state, each.wanted]
            for each in found
        ]
        print_table(["TOPIC", "PARTITION", "BROKER", "STATE", "DIRECTORY"], rows)

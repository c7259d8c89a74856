"""Plans `reset-offsets`: from a target like "shift by -100" to an offset for each partition.

A target beyond the ends of a partition becomes the nearer end, as in Kafka's tool. The group must
have no members: they would go on from their own places, and commit over the new ones.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple, final

from raftlog.base.errors import OperatingError
from raftlog.cli.output.group_view import all_places, offsets_at
from raftlog.client import system
from raftlog.client.core.asks import EARLIEST, LATEST
from raftlog.client.core.errors import KafkaError
from raftlog.client.core.group_asks import (
    OffsetAndMetadata,
    commit_offsets,
    describe_group,
    fetch_offsets,
)
from raftlog.client.core.values import TopicPartition
from raftlog.client.trio_driver import Client
from raftlog.kafka.error_codes import ErrorCode

_DURATION: Final = re.compile(
    r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.ASCII
)
_INACTIVE: Final = ("Empty", "Dead")


@final
class GroupIsActive(OperatingError):
    """The group has members; `state` is Kafka's word for its state."""

    def __init__(self, group: str, state: str) -> None:
        super().__init__(
            f"offsets can only be reset while a group has no members, and it is {state}",
            on=f"group {group}",
            do="stop its consumers; the session of one that crashed must end first",
        )
        self.state = state


@final
class ResetTarget(NamedTuple):
    """One wish.

    `kind` is earliest, latest, current, offset, shift or time, the last three with a number.
    """

    kind: str
    number: int = 0


@final
class Moved(NamedTuple):
    """One partition: its committed offset, and the one that it shall have."""

    place: TopicPartition
    before: int | None
    after: int


def parse_datetime(text: str) -> int:
    """The milliseconds of `2026-01-31T12:00:00.000`, in UTC unless it names a zone.

    `ValueError`.
    """
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is no time like 2026-01-31T12:00:00") from None
    if parsed.tzinfo is None:
        parsed = parsed.replace(tzinfo=UTC)
    return int(parsed.timestamp() * 1000)


def parse_duration(text: str) -> int:
    """The milliseconds of `P7D` or `PT1H30M`. `ValueError`."""
    found = _DURATION.fullmatch(text)
    if found is None or not any(found.groups()):
        raise ValueError(f"{text!r} is no duration like P7D or PT1H30M")
    days, hours, minutes, seconds = (float(each or 0) for each in found.groups())
    return int((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)


def before_now(duration_ms: int) -> int:
    """The time that lies `duration_ms` back."""
    return max(0, system.wall_ms() - duration_ms)


async def plan(
    client: Client, group: str, wanted: Mapping[str, tuple[int, ...]] | None, target: ResetTarget
) -> list[Moved]:
    """The effect of a reset, for the named topics or for all for which the group has offsets."""
    committed = await _committed_of_an_inactive(client, group)
    places = sorted(committed) if wanted is None else await all_places(client, wanted)
    if not places:
        raise OperatingError(
            "no offsets are committed", on=f"group {group}", do="name topics with --topic"
        )
    starts = await offsets_at(client, places, EARLIEST)
    ends = await offsets_at(client, places, LATEST)
    times = await offsets_at(client, places, target.number) if target.kind == "time" else {}
    moved: list[Moved] = []
    for place in places:
        if place not in starts or place not in ends:
            continue  # its topic was deleted
        before = committed[place].offset if place in committed else None
        after = _after(target, before, starts[place], ends[place], times.get(place, -1))
        if after is not None:
            moved.append(Moved(place, before, after))
    return moved


def _after(
    target: ResetTarget, before: int | None, start: int, end: int, at_time: int
) -> int | None:
    """The offset after the reset; None leaves the partition as it is: there is nothing to shift."""
    match target.kind:
        case "earliest":
            return start
        case "latest":
            return end
        case "time":
            return at_time if at_time >= 0 else end
        case "current":
            return end if before is None else before
        case "shift":
            return None if before is None else max(start, min(before + target.number, end))
    return max(start, min(target.number, end))


async def _committed_of_an_inactive(
    client: Client, group: str
) -> dict[TopicPartition, OffsetAndMetadata]:
    try:
        state = (await client.ask(describe_group(group))).group_state
    except KafkaError as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return {}  # the reset founds the group
    if state not in _INACTIVE:
        raise GroupIsActive(group, state)
    found: dict[TopicPartition, OffsetAndMetadata] = await client.ask(fetch_offsets(group))
    return found


async def execute(client: Client, group: str, moved: Sequence[Moved]) -> None:
    """Commit the planned offsets."""
    if moved:
        offsets = {each.place: OffsetAndMetadata(each.after) for each in moved}
        await client.ask(commit_offsets(group, offsets))

"""Reads the flights by a consumer group of three processes, of which one dies by kill -9.

It proves that each record was processed at least once, whichever member died. A member commits
after it has processed. So another member processes again what the dead one had not committed.
"""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final, final

import attrs
import trio

from raftlog.base.amounts import amount
from raftlog.base.errors import OperatingError
from raftlog.cli.demo.proof import Claim

MEMBERS: Final = 3
STALL_SECONDS: Final = 60.0
"""Longer than a start of the processes, their first rebalance and the dead member's session."""


@final
@attrs.define(eq=False)
class GroupReading:
    """Everything that the members have told. `seen` counts how often each record was processed."""

    ends: Mapping[int, int]
    assigned: dict[int, set[int]] = attrs.field(factory=dict)
    seen: dict[int, Counter[int]] = attrs.field(factory=dict)
    killed: int | None = None

    @property
    def whole(self) -> bool:
        """Whether each member has partitions, and together they have all."""
        shares = [share for share in self.assigned.values() if share]
        return len(shares) == MEMBERS and sorted(p for share in shares for p in share) == sorted(
            self.ends
        )

    @property
    def processed(self) -> int:
        """The number of records processed at least once."""
        return sum(len(counts) for counts in self.seen.values())

    @property
    def twice(self) -> int:
        """The number of records processed more than once."""
        return sum(count > 1 for counts in self.seen.values() for count in counts.values())

    def told(self, member: int, event: dict[str, Any]) -> None:
        """Take one line of a member."""
        if "assigned" in event:
            self.assigned[member] = set(event["assigned"])
            return
        self.seen.setdefault(event["partition"], Counter()).update(event["offsets"])

    def claim(self) -> Claim:
        """The claim that no record was left out."""
        missing = {
            partition: next(offset for offset in range(end) if offset not in counts)
            for partition, end in self.ends.items()
            if len(counts := self.seen.get(partition, Counter())) < end
        }
        evidence = "nobody died" if self.killed is None else ""
        if missing:
            evidence = f"the first offsets missing, by partition: {missing}"
        total = amount(sum(self.ends.values()), "record", grouped=True)
        return Claim(
            "group-at-least-once",
            f"a group of {MEMBERS}, one of them killed, processed each of {total} at least once, "
            f"{self.twice:,} of them more than once",
            not evidence,
            evidence,
        )


async def read_by_group(servers: str, topic: str, ends: Mapping[int, int]) -> GroupReading:
    """Start the members, let them begin when the group is whole, and kill one.

    The killed member is the first that has processed something. Then wait until the others have
    processed the rest.
    """
    reading = GroupReading(ends)
    try:
        await _read(reading, servers, topic)
    except ExceptionGroup as group:
        raise group.exceptions[0] from None  # one reason is enough for a person
    return reading


async def _read(reading: GroupReading, servers: str, topic: str) -> None:
    async with AsyncExitStack() as stack, trio.open_nursery() as nursery:
        members = [await stack.enter_async_context(_member(servers, topic)) for _ in range(MEMBERS)]
        work = _Work(reading, members)
        for number, member in enumerate(members):
            nursery.start_soon(work.follow, number, member)
        await work.until_done()
        nursery.cancel_scope.cancel()


@final
@attrs.define(eq=False)
class _Work:
    """The members at work; `_told` is set with each line that one of them prints."""

    reading: GroupReading
    members: list[trio.Process]
    _told: trio.Event = attrs.field(factory=trio.Event)
    _begun: bool = False

    async def follow(self, number: int, member: trio.Process) -> None:
        """Take the lines of a member.

        One member is killed here, between a record and its commit.
        """
        assert member.stdout is not None
        rest = b""
        async for piece in member.stdout:
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                event = json.loads(line)
                self.reading.told(number, event)
                if self._begun and self.reading.killed is None and "offsets" in event:
                    self.reading.killed = number
                    member.kill()
            self._told.set()
        if number != self.reading.killed:
            raise OperatingError("a member of the group ended", on=f"member {number + 1}")

    async def until_done(self) -> None:
        """Begin, and wait until all is processed and a member was killed on the way."""
        reading = self.reading
        await self._until(lambda: reading.whole)
        self._begun = True
        for member in self.members:
            assert member.stdin is not None
            await member.stdin.send_all(b"begin\n")
        total = sum(reading.ends.values())
        await self._until(lambda: reading.processed >= total and reading.killed is not None)

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self._told = trio.Event()
            with trio.move_on_after(STALL_SECONDS) as waiting:
                await self._told.wait()
            if waiting.cancelled_caught:
                processed = amount(self.reading.processed, "record", grouped=True)
                found = f"{processed} processed, assigned: {self.reading.assigned}"
                raise OperatingError(f"the group does not get on: {found}")


@asynccontextmanager
async def _member(servers: str, topic: str) -> AsyncIterator[trio.Process]:
    """A member's process, which ends with the block."""
    command = [sys.executable, "-m", "raftlog.cli.demo.group_member", servers, topic]
    process = await trio.lowlevel.open_process(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        yield process
    finally:
        with trio.CancelScope(shield=True):
            if process.returncode is None:
                process.kill()
            await process.wait()

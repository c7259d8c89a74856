"""The two faults of the demo: `kill -9` of the broker that leads most, SIGSTOP of another."""

from collections import Counter
from typing import Final, NamedTuple, final

import attrs
import trio

from raftlog.base.errors import OperatingError, RaftlogError
from raftlog.base.ports import Clock
from raftlog.base.units import Instant
from raftlog.cli.demo.proof import DemoFault
from raftlog.cli.demo.stream import RecordStream
from raftlog.client.trio_driver import Client
from raftlog.runtime.local.cluster import LocalCluster
from raftlog.verify import HistoryWriter

DOWN_SECONDS: Final = 1.5
PAUSE_SECONDS: Final = 2.5
"""Longer than the longest election timeout at default settings (1 s), shorter than a session."""
RECOVERY_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.05


class Lead(NamedTuple):
    """The leader of a partition, its leader epoch, and the nodes that are in sync."""

    node: int
    epoch: int
    in_sync: tuple[int, ...]


@final
@attrs.define(eq=False)
class DemoFaults:
    """Injects the faults while the stream runs.

    `share` turns a share of all rows into a row count.
    """

    cluster: LocalCluster
    client: Client
    stream: RecordStream
    history: HistoryWriter
    clock: Clock
    topic: str
    rows: int
    replication: int
    happened: list[DemoFault] = attrs.field(factory=list, init=False)

    async def run(self) -> None:
        """Inject both faults, one after the other; the stream may then finish at full speed."""
        await self._until_acknowledged(self._share(25))
        self.stream.limit = self._share(55)
        await self._kill()
        self.stream.limit = self._share(80)
        await self._pause()
        self.stream.limit = self.rows

    def _share(self, percent: int) -> int:
        return self.rows * percent // 100

    async def _until_acknowledged(self, count: int) -> None:
        while len(self.stream.acknowledged) < count:
            if self.stream.done:
                raise OperatingError("the stream ended before the fault", do="use more rows")
            await trio.sleep(0.005)

    async def _kill(self) -> None:
        before = await self.leads()
        victim = _leads_most(before, without=None)
        began = self.clock.now()
        self.history.nemesis("kill", time_ns=began, value={"node": f"n{victim}"})
        self.cluster.kill(victim)
        await trio.sleep(DOWN_SECONDS)
        self.cluster.start(victim)
        await trio.to_thread.run_sync(self.cluster.wait_ready, victim)
        self.history.nemesis("restart", time_ns=self.clock.now(), value={"node": f"n{victim}"})
        await self._note("kill -9", victim, before, began)

    async def _pause(self) -> None:
        before = await self.leads()
        victim = _leads_most(before, without=self.happened[-1].node)
        began = self.clock.now()
        self.history.nemesis("pause", time_ns=began, value={"node": f"n{victim}"})
        self.cluster.pause(victim)
        try:
            await trio.sleep(PAUSE_SECONDS)
        finally:
            self.cluster.resume(victim)
        self.history.nemesis("resume", time_ns=self.clock.now(), value={"node": f"n{victim}"})
        await self._note("SIGSTOP", victim, before, began)

    async def _note(self, name: str, victim: int, before: dict[int, Lead], began: Instant) -> None:
        """Wait until every partition is led and every replica in sync again; note the results."""
        acknowledged = len(self.stream.acknowledged)
        after = await self.recovered()
        ended = self.clock.now()
        await self._until_acknowledged(min(acknowledged + 100, self.rows))
        led = [partition for partition, lead in before.items() if lead.node == victim]
        self.happened.append(
            DemoFault(
                name,
                victim,
                {partition: lead.epoch for partition, lead in before.items()},
                {partition: lead.epoch for partition, lead in after.items()},
                len(self.stream.acknowledged) - acknowledged,
                self.stream.longest_gap_ms(led, began, ended),
            )
        )

    async def recovered(self) -> dict[int, Lead]:
        """Wait until all partitions have a leader and all their replicas are in sync."""
        with trio.move_on_after(RECOVERY_SECONDS):
            while True:
                leads = await self.leads()
                if all(
                    lead.node >= 0 and len(lead.in_sync) == self.replication
                    for lead in leads.values()
                ):
                    return leads
                await trio.sleep(_POLL_SECONDS)
        raise OperatingError(
            f"not every replica is in sync after {RECOVERY_SECONDS:.0f} s", on=self.topic
        )

    async def leads(self) -> dict[int, Lead]:
        """The present leaders, as the cluster tells them."""
        with trio.move_on_after(RECOVERY_SECONDS):
            while True:
                try:
                    topic = await self.client.describe(self.topic)
                except RaftlogError:
                    await trio.sleep(_POLL_SECONDS)
                    continue
                return {
                    each.partition_index: Lead(
                        each.leader_id, each.leader_epoch, tuple(each.isr_nodes)
                    )
                    for each in topic.partitions
                }
        raise OperatingError("the cluster does not answer", on=self.topic)


def _leads_most(leads: dict[int, Lead], without: int | None) -> int:
    counts = Counter(lead.node for lead in leads.values() if lead.node not in (without, -1))
    if not counts:
        raise OperatingError("nobody leads", do="look at the brokers' output")
    return min(counts, key=lambda node: (-counts[node], node))

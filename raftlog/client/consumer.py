"""The trio consumer: `async with Consumer("localhost:9092", group_id="billing") as consumer`.

    consumer.subscribe(["orders"])
    async for record in consumer:                    one record after the other
        ...

    while True:                                      or many at a time
        for place, records in (await consumer.poll()).items(): ...
        await consumer.commit()

The consumers of a group share the partitions of its topics. Each one commits the offset that it has
reached, so that another consumer can go on from there. The names are those of kafka-python and
aiokafka.

Partitions move only inside `poll` (and iteration): between two polls a consumer keeps its
partitions. All decisions are made in raftlog.client.core.group.
"""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Annotated, Any, Final, Self, final

import attrs
import trio

from raftlog.base.arguments import between, check, checked
from raftlog.base.errors import LocalMisuse, RaftlogError
from raftlog.base.ids import Offset
from raftlog.base.limits import INT32_MAX
from raftlog.client import system
from raftlog.client.core.arguments import LookedUp, OffsetFrom, Seconds, TopicName
from raftlog.client.core.asks import EARLIEST, LATEST
from raftlog.client.core.calls import Call
from raftlog.client.core.group.consumer import GroupConsumer, Notice, PartitionChange
from raftlog.client.core.group.options import ConsumerOptions
from raftlog.client.core.group_asks import OffsetAndMetadata, fetch_offsets
from raftlog.client.core.results import OffsetAt
from raftlog.client.core.values import ClientEffects, ClientOptions, ConsumedRecord, TopicPartition
from raftlog.client.trio_driver import Client

Records = dict[TopicPartition, list[ConsumedRecord]]
RecordCount = Annotated[int, between(1, INT32_MAX)]
_LEAVE_SECONDS: Final = 5.0
"""How long `close` may take in all: to commit, to call the listener, and to tell the
coordinator."""
_OPTIONS: Final = frozenset(field.name for field in attrs.fields(ConsumerOptions))
_LISTENER_METHODS: Final = {
    PartitionChange.ASSIGNED: "on_partitions_assigned",
    PartitionChange.REVOKED: "on_partitions_revoked",
    PartitionChange.LOST: "on_partitions_lost",
}


@final
class Consumer:
    """A Kafka consumer for trio. Its options are the fields of `ConsumerOptions` and of
    `ClientOptions`."""

    @checked
    def __init__(
        self,
        bootstrap: str = "",
        *,
        options: ClientOptions | None = None,
        machine: system.DriverPorts = system.THIS_MACHINE,
        **more: object,
    ) -> None:
        given: dict[str, Any] = {name: more.pop(name) for name in list(more) if name in _OPTIONS}
        strategy = given.get("partition_assignment_strategy")
        if isinstance(strategy, str):
            given["partition_assignment_strategy"] = (strategy,)
        elif isinstance(strategy, list):
            given["partition_assignment_strategy"] = tuple(strategy)
        self.settings = ConsumerOptions(**given)
        self._client = Client(bootstrap, options=options, machine=machine, **more)
        self._core: GroupConsumer = self._client.open_consumer(self.settings)
        self._listener: object | None = None
        self._open = self._in_poll = False

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        self._open = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Call `close`. After an error in the block nothing is committed: the user may not have
        finished with the last records."""
        try:
            await self._leave(autocommit=error is None)
        finally:
            self._client.give_up()
            await self._client.__aexit__(kind, error, trace)

    @checked
    async def close(self, *, autocommit: bool = True) -> None:
        """Commit the polled records, if commits are automatic, and leave the group, so that other
        members take over at once. Leaving the `async with` block does the same."""
        await self._leave(autocommit=autocommit)

    async def _leave(self, *, autocommit: bool) -> None:
        if not self._open:
            return
        self._open = False
        with trio.move_on_after(_LEAVE_SECONDS, shield=True):
            if autocommit and self.settings.enable_auto_commit and self._may_commit():
                try:
                    await self._commit(None)
                except RaftlogError as failed:
                    # The commit failed. The next owner of the partitions reads these records a
                    # second time; no record is lost, so the consumer closes all the same.
                    self._core.commit_error = failed
            places = tuple(self._core.positions.places())
            if autocommit and places:
                await self._tell(Notice(PartitionChange.REVOKED, places))
            await self._client.result_of(self._begin_leave)

    def _may_commit(self) -> bool:
        if self.settings.group_id is None:
            return False
        return self._core.membership.is_member or not self._core.subscribed.active

    def _begin_leave(self, call_id: int) -> ClientEffects:
        self._core.leave(call_id)
        return self._client.turn_effects()

    # --- what to read -----------------------------------------------------------------------------

    @checked
    def subscribe(
        self,
        topics: Sequence[TopicName] = (),
        *,
        pattern: str | None = None,
        listener: object | None = None,
    ) -> None:
        """Share these topics, or those that match a pattern, with the group. The next polls join
        it.

        A pattern is a regular expression that a topic's name must match from its first character
        on. The consumer finds topics that are created later within `metadata_max_age_ns`. Internal
        topics never match. A listener has the methods `on_partitions_revoked`,
        `on_partitions_assigned` and, optionally, `on_partitions_lost`. They may be plain or async;
        `poll` calls them with a list of partitions."""
        if topics and pattern is not None:
            raise LocalMisuse("topics and a pattern", do="subscribe to one of them")
        if pattern is not None:
            self._core.subscribe_pattern(pattern)
        elif topics:
            self._core.subscribe(topics)
        else:
            raise LocalMisuse("no topics to subscribe to", do="call unsubscribe to leave the group")
        self._listener = listener
        self._turn()

    def subscription(self) -> list[str]:
        """The topics subscribed to. For a pattern these are the topics that match it now."""
        return list(self._core.subscribed.topics)

    def unsubscribe(self) -> None:
        """Leave the group and give up all partitions."""
        self._core.unsubscribe()
        self._turn()

    @checked
    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Read exactly these partitions, without sharing them with a group's members. With a
        `group_id` they begin at the group's committed offsets, and `commit` works; no member may
        then be subscribed."""
        self._core.assign(partitions)
        self._turn()

    def assignment(self) -> list[TopicPartition]:
        """The partitions that this consumer reads now, sorted."""
        return self._core.positions.places()

    # --- records ----------------------------------------------------------------------------------

    @checked
    async def poll(
        self, *, seconds: Seconds = 1.0, max_records: RecordCount | None = None
    ) -> Records:
        """Return records by partition; wait up to `seconds` for the first. At most `max_records`
        are returned, or `max_poll_records` when that is None. Rebalances happen inside this call.
        With `enable_auto_commit` it also commits the records of earlier polls.

        Raises the error of the group or of a partition; the next call goes on after it. A partition
        that cannot be read stands still. It raises its error whenever there are no other records,
        until `seek` or `pause` is called for it."""
        self._must_be_open()
        if self._in_poll:
            raise LocalMisuse("another task is in poll", do="use one consumer in one task")
        self._in_poll = True
        self._core.poll_begin()
        try:
            self._turn()
            with trio.move_on_after(seconds):
                return await self._next_records(max_records or self.settings.max_poll_records)
            return {}
        finally:
            self._in_poll = False
            self._core.poll_end()

    async def _next_records(self, records_max: int) -> Records:
        await trio.lowlevel.checkpoint()
        while True:
            notice = self._core.notice
            if notice is not None:
                await self._tell(notice)
                if self._core.notice is notice:
                    self._core.notice_done()
                self._turn()
                continue
            records = self._core.take(records_max)
            if records:
                self._turn()
                return records
            await self._client.until_changed()

    async def _tell(self, notice: Notice) -> None:
        method = getattr(self._listener, _LISTENER_METHODS[notice.change], None)
        if method is None and notice.change is PartitionChange.LOST:
            method = getattr(self._listener, _LISTENER_METHODS[PartitionChange.REVOKED], None)
        if method is not None:
            result = method(list(notice.partitions))
            if inspect.isawaitable(result):
                await result

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumedRecord:
        """The next record. It waits for one without a limit."""
        while True:
            for records in (await self.poll(seconds=float("inf"), max_records=1)).values():
                return records[0]

    # --- commits ----------------------------------------------------------------------------------

    @checked
    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetFrom | OffsetAndMetadata] | None = None
    ) -> None:
        """Commit these offsets, or those that the polls have reached. A committed offset is that of
        the next record to read. Raises `CommitFailed` when the group has rebalanced without this
        consumer."""
        self._must_be_open()
        await self._commit(offsets)

    async def _commit(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None
    ) -> None:
        wanted: dict[TopicPartition, OffsetAndMetadata] | None = None
        if offsets is not None:
            wanted = {
                place: each
                if isinstance(each, OffsetAndMetadata)
                else OffsetAndMetadata(Offset(each))
                for place, each in offsets.items()
            }

        def begin(call_id: int) -> ClientEffects:
            self._core.commit(call_id, wanted)
            return self._client.turn_effects()

        await self._client.result_of(begin)

    @checked
    async def committed(self, place: TopicPartition) -> OffsetAndMetadata | None:
        """The offset that the group has committed for a partition; None without one."""
        if self.settings.group_id is None:
            raise LocalMisuse("committed needs a group_id")
        found = await self._client.ask(fetch_offsets(self.settings.group_id, [place]))
        told: OffsetAndMetadata | None = found.get(place)
        return told

    # --- positions --------------------------------------------------------------------------------

    @checked
    async def position(self, place: TopicPartition) -> Offset:
        """The offset of the next record that `poll` returns."""
        while True:
            offset = self._core.position(place)
            if offset is not None:
                return offset
            trouble = self._core.positions.of(place).trouble
            if trouble is not None:
                raise trouble
            self._turn()
            await self._client.until_changed()

    @checked
    def seek(self, place: TopicPartition, offset: OffsetFrom) -> None:
        """Read this partition from an offset on."""
        self._core.positions.seek(place, Offset(offset))
        self._turn()

    def seek_to_beginning(self, *places: TopicPartition) -> None:
        """Read these partitions, or all assigned ones, from their first record on."""
        self._seek_to(_partitions(places), EARLIEST)

    def seek_to_end(self, *places: TopicPartition) -> None:
        """Read only records of these partitions, or of all assigned ones, that are written from now
        on."""
        self._seek_to(_partitions(places), LATEST)

    def _seek_to(self, places: Sequence[TopicPartition], timestamp_ms: int) -> None:
        self._core.positions.seek_to(places or self.assignment(), timestamp_ms)
        self._turn()

    def pause(self, *places: TopicPartition) -> None:
        """Return no records of these partitions until `resume`. They stay assigned."""
        self._core.positions.pause(_partitions(places))

    def resume(self, *places: TopicPartition) -> None:
        """Return records of these partitions again."""
        self._core.positions.resume(_partitions(places))
        self._turn()

    def paused(self) -> list[TopicPartition]:
        """The paused partitions, sorted."""
        return self._core.positions.paused()

    @checked
    async def beginning_offsets(
        self, places: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        return {
            place: each.offset for place, each in (await self._offsets(places, EARLIEST)).items()
        }

    @checked
    async def end_offsets(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after the last record of each partition."""
        return {place: each.offset for place, each in (await self._offsets(places, LATEST)).items()}

    async def _offsets(
        self, places: Iterable[TopicPartition], timestamp_ms: int
    ) -> dict[TopicPartition, OffsetAt]:
        return {place: await self._client.offset(place, timestamp_ms) for place in places}

    @checked
    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, LookedUp]
    ) -> dict[TopicPartition, OffsetAt | None]:
        """The first record of each partition at or after a timestamp in Unix milliseconds; None
        where there is none."""
        found: dict[TopicPartition, OffsetAt | None] = {}
        for place, timestamp_ms in timestamps.items():
            told = await self._client.offset(place, timestamp_ms)
            found[place] = told if told.offset >= 0 else None
        return found

    @checked
    async def ask(self, request: Call) -> Any:
        """`Client.ask`."""
        self._must_be_open()
        return await self._client.ask(request)

    # --- turns ------------------------------------------------------------------------------------

    def _turn(self) -> None:
        if self._open:
            self._client.take_turn()

    def _must_be_open(self) -> None:
        if not self._open:
            raise LocalMisuse("the consumer is not open", do="async with Consumer(...) as consumer")


def _partitions(places: Sequence[TopicPartition]) -> Sequence[TopicPartition]:
    checked_places: Sequence[TopicPartition] = check("places", places, Sequence[TopicPartition])
    return checked_places

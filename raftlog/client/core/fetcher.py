"""Reading ahead: each leader gets one fetch at a time, for all its partitions that have room.

    position: the next offset to fetch      polled: the next offset that `poll` has not given out

An answer counts only for the assignment and position that asked for it. The fetcher reports as a
`Trouble`, once: an unknown partition, an offset out of range, a truncated log, a corrupt batch,
another topic under the same name. The partition then stands still until `seek`. The fetcher never
rewinds or skips silently.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final, NamedTuple, final

import attrs

from raftlog.base.errors import CorruptData, LocalMisuse, RaftlogError, WrongValue
from raftlog.base.ids import NodeId, Offset
from raftlog.base.limits import FETCH_CORRUPT_RETRIES_MAX
from raftlog.base.ports import Entropy
from raftlog.base.probes import probe
from raftlog.base.units import NEVER, Instant
from raftlog.client.core.connections import Connections, backoff
from raftlog.client.core.errors import KafkaError
from raftlog.client.core.fetched import FetchedBatches, check_batches
from raftlog.client.core.metadata_cache import MetadataCache
from raftlog.client.core.metadata_keeper import MetadataKeeper
from raftlog.client.core.requests import unknown_place
from raftlog.client.core.values import ClientOptions, ClientTurn, TopicPartition
from raftlog.kafka.error_codes import ErrorCode, is_retriable
from raftlog.kafka.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from raftlog.kafka.shape import ZERO_ID
from raftlog.kafka.versions import ApiKey

_LEADER_MOVED: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    }
)
_UNKNOWN: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
"""The answers for a topic that may have been created a moment ago. The fetcher waits for such a
topic for a while; after that it believes the answer."""


class Trouble(NamedTuple):
    """A partition that cannot be read any further until `seek` is called for it."""

    place: TopicPartition
    offset: Offset
    error: RaftlogError


Polled = FetchedBatches | Trouble


@final
@attrs.define(eq=False)
class _Reading:
    """One assigned partition. `generation` grows with every seek; `asked` means that a fetch for it
    is under way."""

    place: TopicPartition
    position: Offset
    generation: int
    topic_id: bytes | None = None
    last_epoch: int = -1
    asked_of: NodeId | None = None
    buffered_bytes: int = 0
    stopped: bool = False
    failures: int = 0
    corrupt: int = 0
    unknown_since: Instant | None = None
    retry_at: Instant = Instant(0)
    high_watermark: Offset = Offset(-1)
    log_start: Offset = Offset(-1)


@final
@attrs.define(eq=False)
class Fetcher:
    """The assigned partitions and the batches read ahead from them."""

    options: ClientOptions
    cache: MetadataCache
    keeper: MetadataKeeper
    connections: Connections
    entropy: Entropy
    turn: ClientTurn
    buffered_bytes: int = attrs.field(default=0, init=False)
    _readings: dict[TopicPartition, _Reading] = attrs.field(factory=dict, init=False)
    _ready: deque[tuple[int, Polled]] = attrs.field(factory=deque, init=False)
    """(generation, batches or trouble), in order of arrival."""
    _asked: dict[NodeId, list[tuple[_Reading, int]]] = attrs.field(factory=dict, init=False)
    _generation: int = attrs.field(default=0, init=False)
    _learned: int = attrs.field(default=0, init=False)

    # --- assignment -------------------------------------------------------------------------------

    def assign(self, positions: Mapping[TopicPartition, Offset]) -> None:
        """Read exactly these partitions, from these offsets on; what was read ahead is dropped."""
        self._readings.clear()
        self._ready.clear()
        self.buffered_bytes = 0
        for place, offset in positions.items():
            self._begin(place, offset)

    def begin(self, place: TopicPartition, offset: Offset) -> None:
        """Read this partition from an offset on, besides those that are assigned."""
        self._begin(place, offset)

    def seek(self, place: TopicPartition, offset: Offset) -> None:
        """Read an assigned partition from another offset on."""
        if place not in self._readings:
            raise LocalMisuse(f"partition {place} is not assigned", do="call assign first")
        self._begin(place, offset)

    def _begin(self, place: TopicPartition, offset: Offset) -> None:
        if offset < 0:
            raise WrongValue(
                f"offset must be 0 or more, not {offset}", on=str(place), do="ask list_offsets"
            )
        self._drop_buffered(place)
        self._generation += 1
        self._readings[place] = _Reading(place, offset, self._generation)
        self.keeper.follow(place.topic)

    def unassign(self, place: TopicPartition) -> None:
        """Stop reading a partition."""
        self._drop_buffered(place)
        self._readings.pop(place, None)

    def _drop_buffered(self, place: TopicPartition) -> None:
        kept = [each for each in self._ready if each[1].place != place]
        if len(kept) < len(self._ready):
            self._ready = deque(kept)
        reading = self._readings.get(place)
        if reading is not None:
            self.buffered_bytes -= reading.buffered_bytes
            reading.buffered_bytes = 0

    def assigned(self) -> list[TopicPartition]:
        """The assigned partitions, in the order of their assignment."""
        return list(self._readings)

    def high_watermark(self, place: TopicPartition) -> Offset:
        """The high watermark that the leader last reported; -1 before the first report."""
        return self._readings[place].high_watermark

    # --- polling ----------------------------------------------------------------------------------

    @property
    def has_ready(self) -> bool:
        return bool(self._ready)

    def poll(self, bytes_max: int) -> list[Polled]:
        """Give out batches that were read ahead, in order of arrival: at least one piece if there
        is any, and more up to `bytes_max`."""
        given: list[Polled] = []
        size = 0
        while self._ready:
            generation, piece = self._ready[0]
            if isinstance(piece, FetchedBatches):
                if given and size + piece.size > bytes_max:
                    break
                size += piece.size
                self._release(generation, piece)
            self._ready.popleft()
            given.append(piece)
        return given

    def _release(self, generation: int, piece: FetchedBatches) -> None:
        self.buffered_bytes -= piece.size
        reading = self._readings.get(piece.place)
        if reading is not None and reading.generation == generation:
            reading.buffered_bytes -= piece.size

    # --- turns ------------------------------------------------------------------------------------

    def drive(self) -> None:
        """Send a fetch to every leader that owes none, for its partitions that have room."""
        if not self._readings:
            return
        self._look_at_metadata()
        by_node: dict[NodeId, list[_Reading]] = {}
        for reading in self._readings.values():
            if not self._wants_more(reading):
                continue
            leader = self.cache.leader_of(reading.place)
            if leader is None:
                self._without_leader(reading)
                continue
            reading.unknown_since = None
            if leader not in self._asked:
                by_node.setdefault(leader, []).append(reading)
        for node, readings in by_node.items():
            self._ask(node, readings)

    def _wants_more(self, reading: _Reading) -> bool:
        if reading.stopped or reading.asked_of is not None or self.turn.now < reading.retry_at:
            return False
        if reading.buffered_bytes == 0:
            return self.buffered_bytes < self.options.buffered_bytes
        room = self.options.buffered_bytes // max(1, len(self._readings))
        ahead = reading.buffered_bytes < max(room, self.options.fetch_partition_bytes)
        return ahead and self.buffered_bytes < self.options.buffered_bytes

    def _without_leader(self, reading: _Reading) -> None:
        view = self.cache.topics.get(reading.place.topic)
        if view is not None and view.error not in (0, *_LEADER_MOVED):
            self._stop(reading, KafkaError(view.error, on=str(reading.place)))
            return
        error = unknown_place(view, reading.place)
        if error is None or error.code not in _UNKNOWN:
            reading.unknown_since = None
        elif reading.unknown_since is None:
            reading.unknown_since = self.turn.now
        elif self.keeper.current_as_of >= reading.unknown_since + self.options.topic_wait_ns:
            self._stop(reading, error)
            return
        self.keeper.refresh()

    def _ask(self, node: NodeId, readings: list[_Reading]) -> None:
        topics: dict[str, list[FetchPartition]] = {}
        for reading in readings:
            place = reading.place
            view = self.cache.topics[place.topic]
            topics.setdefault(place.topic, []).append(
                FetchPartition(
                    partition=place.partition,
                    current_leader_epoch=view.leaders[place.partition].epoch,
                    fetch_offset=reading.position,
                    last_fetched_epoch=reading.last_epoch,
                    partition_max_bytes=self.options.fetch_partition_bytes,
                )
            )
            reading.asked_of = node
        body = FetchRequest(
            max_wait_ms=self.options.fetch_wait_ms,
            min_bytes=self.options.fetch_min_bytes,
            max_bytes=self.options.fetch_bytes,
            topics=tuple(
                FetchTopic(name, self.cache.topics[name].topic_id, tuple(partitions))
                for name, partitions in topics.items()
            ),
        )
        asked = [(reading, reading.generation) for reading in readings]
        self._asked[node] = asked
        then = partial(self._answered, node, asked)
        self.connections.send(node, ApiKey.FETCH, body, then, self.turn.now)

    def _look_at_metadata(self) -> None:
        """Find topics that were deleted and created again under the same name. Each is another
        topic, so its readers get a `Trouble`."""
        if self.keeper.learned == self._learned:
            return
        self._learned = self.keeper.learned
        for reading in self._readings.values():
            view = self.cache.topic(reading.place.topic)
            if view is None or view.topic_id == ZERO_ID:
                continue
            if reading.topic_id is None:
                reading.topic_id = view.topic_id
            elif reading.topic_id != view.topic_id and not reading.stopped:
                error = KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_ID,
                    on=str(reading.place),
                    message="the topic was deleted and created again",
                )
                self._stop(reading, error)

    def moved_from(self, node: NodeId) -> bool:
        """Whether `node` is asked about a partition that another node is known to lead."""
        leaders = [self.cache.leader_of(reading.place) for reading, _ in self._asked.get(node, ())]
        return any(leader is not None and leader != node for leader in leaders)

    def next_instant(self, now: Instant) -> Instant:
        """When `drive` has something to do again."""
        later = (
            reading.retry_at
            for reading in self._readings.values()
            if reading.retry_at > now and not reading.stopped and reading.asked_of is None
        )
        return min(later, default=NEVER)

    # --- answers ----------------------------------------------------------------------------------

    def _answered(
        self, node: NodeId, asked: list[tuple[_Reading, int]], answer: FetchResponse | RaftlogError
    ) -> None:
        if self._asked.get(node) is asked:
            del self._asked[node]
        for reading, _ in asked:
            reading.asked_of = None
        current = [
            reading
            for reading, generation in asked
            if reading.generation == generation and self._readings.get(reading.place) is reading
        ]
        if isinstance(answer, RaftlogError):
            self.keeper.refresh()
            self._pause(current)
            return
        self.cache.told_endpoints([(e.node_id, e.host, e.port) for e in answer.node_endpoints])
        if answer.error_code != ErrorCode.NONE:
            self.keeper.refresh()
            self._pause(current)
            return
        found = {
            TopicPartition(
                topic.topic or self.cache.names.get(topic.topic_id, ""), each.partition_index
            ): each
            for topic in answer.responses
            for each in topic.partitions
        }
        for reading in current:
            told = found.get(reading.place)
            if told is not None:
                self._take(reading, told)

    def _pause(self, readings: Iterable[_Reading]) -> None:
        for reading in readings:
            reading.failures += 1
            pause = backoff(self.options, reading.failures, self.entropy)
            reading.retry_at = Instant(self.turn.now + pause)

    def _take(self, reading: _Reading, told: PartitionData) -> None:
        code = told.error_code
        if code == ErrorCode.NONE:
            self._take_batches(reading, told)
            return
        error = KafkaError(code, on=f"{reading.place}, offset {reading.position}")
        if code in _LEADER_MOVED or code == ErrorCode.UNKNOWN_LEADER_EPOCH:
            if code in _LEADER_MOVED:
                self.cache.forget_leader(reading.place)
                new = told.current_leader
                self.cache.told_leader(reading.place, new.leader_id, new.leader_epoch)
            self.keeper.refresh()
            self._pause([reading])
        elif is_retriable(code):
            self._pause([reading])
        else:
            self._stop(reading, error)

    def _take_batches(self, reading: _Reading, told: PartitionData) -> None:
        try:
            piece = check_batches(reading.place, reading.position, told)
        except CorruptData as error:
            probe("client-fetched-corrupt")
            reading.corrupt += 1
            if reading.corrupt > FETCH_CORRUPT_RETRIES_MAX:
                self._stop(reading, error)
            else:
                self._pause([reading])
            return
        except RaftlogError as error:
            self._stop(reading, error)
            return
        reading.failures = reading.corrupt = 0
        reading.high_watermark, reading.log_start = piece.high_watermark, piece.log_start
        if not piece.batches:
            return
        reading.position, reading.last_epoch = piece.next_offset, piece.last_epoch
        reading.buffered_bytes += piece.size
        self.buffered_bytes += piece.size
        self._ready.append((reading.generation, piece))

    def _stop(self, reading: _Reading, error: RaftlogError) -> None:
        reading.stopped = True
        trouble = Trouble(reading.place, reading.position, error)
        self._ready.append((reading.generation, trouble))

    def close(self) -> None:
        """Drop all partitions and everything read ahead."""
        self.assign({})

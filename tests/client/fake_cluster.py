"""A cluster in memory.

The brokers decode and answer real frames. They keep one log of batches per partition with the rules
of idempotence, and obey:

* `refuse` makes answers of an API carry an error.
* `lose` carries a request out and cuts the connection; `cut` cuts it before.
* `pause` leaves a broker silent.
* `move` makes another broker lead; `deafen` lets a broker hear nothing of that from then on.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import attrs

from raftlog.base.errors import RaftlogError
from raftlog.kafka.codec import decode_request, encode_response
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages import (
    create_topics,
    delete_records,
    fetch,
    init_producer_id,
    list_offsets,
    metadata,
    produce,
)
from raftlog.kafka.versions import ApiKey, api_versions_response
from raftlog.records.batch import patch, read_header
from raftlog.records.record import records_of

START = 1_000_000_000_000
GROUP_APIS = (
    ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.DELETE_GROUPS,
    ApiKey.OFFSET_DELETE,
)


@attrs.define(eq=False)
class Later:
    """An answer that a fake coordinator holds back; `give` sends it."""

    given: Callable[[Any], None] | None = None
    body: Any = None

    def give(self, body: Any) -> None:
        self.body = body
        if self.given is not None:
            self.given(body)


HOST = "broker"


@attrs.define(eq=False)
class Partition:
    leader: int
    epoch: int = 1
    batches: list[bytes] = attrs.Factory(list)
    producers: dict[int, list[tuple[int, int, int]]] = attrs.Factory(dict)

    @property
    def end(self) -> int:
        return read_header(self.batches[-1]).next_offset if self.batches else 0

    def append(self, records: memoryview) -> tuple[int, int]:
        """(error, base offset), as a broker with the rules of idempotence."""
        header = read_header(records)
        spans = self.producers.setdefault(header.producer_id, [])
        if header.producer_id >= 0 and spans:
            for first, count, base in spans:
                if first == header.base_sequence and count == header.records_count:
                    return 0, base
            if header.base_sequence != spans[-1][0] + spans[-1][1]:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        base = self.end
        batch = bytearray(records)
        patch(batch, base, self.epoch)
        self.batches.append(bytes(batch))
        spans.append((header.base_sequence, header.records_count, base))
        del spans[:-5]
        return 0, base

    def values(self) -> list[bytes | None]:
        return [
            record.value
            for batch in self.batches
            for record in records_of(batch, RaftlogError, "fake")
        ]


@attrs.define(eq=False)
class FakeCluster:
    """`nodes` brokers; node n listens on port 9000 + n."""

    nodes: int = 3
    internal: set[str] = attrs.Factory(set)
    topics: dict[str, list[Partition]] = attrs.Factory(dict)
    ids: dict[str, bytes] = attrs.Factory(dict)
    paused: set[int] = attrs.Factory(set)
    dead: set[int] = attrs.Factory(set)
    fenced: set[int] = attrs.Factory(set)
    deaf: dict[int, dict[str, list[tuple[int, int]]]] = attrs.Factory(dict)
    """The leaders and epochs that each deaf broker knew last."""
    requests: list[tuple[int, int, Any]] = attrs.Factory(list)
    refusals: dict[int, list[int]] = attrs.Factory(lambda: defaultdict(list))
    losses: Counter[int] = attrs.Factory(Counter)
    cuts: Counter[int] = attrs.Factory(Counter)
    tell_leader: bool = True
    next_producer: int = 1000
    mangle: Callable[[list[bytes]], list[bytes]] | None = None
    garbled: int = 0
    """Answers that will be bytes without meaning."""
    changed: dict[int, Callable[[Any], Any]] = attrs.Factory(dict)
    """Changes to the bodies of an API's answers."""
    addresses: dict[int, tuple[str, int]] = attrs.Factory(dict)
    """Where brokers really listen, when they do (fake_server)."""
    groups: Any = None
    """The part that answers the APIs of groups (tests/client/group/fake_groups.py)."""
    holding: set[int] = attrs.Factory(set)
    """APIs whose answers wait until `let_go`; what comes behind on the connection waits, too."""
    held: list[tuple[int, Later, Any]] = attrs.Factory(list)
    versions: dict[int, int] = attrs.Factory(dict)
    """Highest version of an API that is offered, when lower than all."""

    _ids: Any = attrs.field(factory=lambda: itertools.count(1), init=False)

    def topic(self, name: str, partitions: int = 1) -> list[Partition]:
        """Create a topic whose leaders go round the nodes."""
        self.topics[name] = [Partition(1 + at % self.nodes) for at in range(partitions)]
        self.ids[name] = bytes(15) + bytes([next(self._ids)])
        return self.topics[name]

    def remove(self, name: str) -> None:
        """Delete a topic."""
        del self.topics[name], self.ids[name]

    def grow(self, name: str, more: int = 1) -> None:
        """Add partitions to a topic."""
        there = self.topics[name]
        there += [Partition(1 + (len(there) + at) % self.nodes) for at in range(more)]

    def address(self, node: int) -> tuple[str, int]:
        return self.addresses.get(node, (HOST, 9000 + node))

    def move(self, name: str, partition: int, node: int) -> None:
        each = self.topics[name][partition]
        each.leader, each.epoch = node, each.epoch + 1

    def deafen(self, node: int) -> None:
        self.deaf[node] = {
            name: [(each.leader, each.epoch) for each in partitions]
            for name, partitions in self.topics.items()
        }

    def refuse(self, api: ApiKey, *codes: int) -> None:
        self.refusals[api].extend(codes)

    def let_go(self, *apis: int) -> None:
        """Give the answers of these APIs that were held, in order, and hold no more."""
        self.holding.difference_update(apis)
        given = [each for each in self.held if each[0] in apis]
        self.held = [each for each in self.held if each[0] not in apis]
        for _, later, body in given:
            later.give(body)

    def count(self, api: ApiKey) -> int:
        return sum(1 for _, key, _ in self.requests if key == api)

    def bodies(self, api: ApiKey) -> list[Any]:
        return [body for _, key, body in self.requests if key == api]

    # --- a request --------------------------------------------------------------------------------

    def answer(
        self, node: int, frame: memoryview, later: Callable[[list[Any]], None] | None = None
    ) -> tuple[list[Any] | Later | None, str | None]:
        """(parts or None, why the connection is cut or None). An answer that is held back is a
        `Later`, whose parts go to `later`."""
        request = decode_request(bytes(frame))
        self.requests.append((node, request.api_key, request.body))
        key = request.api_key
        if self.cuts[key] > 0:
            self.cuts[key] -= 1
            return None, "cut before"
        body = self._body(node, request)
        if self.losses[key] > 0:
            self.losses[key] -= 1
            return None, "cut after"
        if body is None:
            return None, None
        if key in self.holding and not isinstance(body, Later):
            self.held.append((key, Later(), body))
            body = self.held[-1][1]
        if isinstance(body, Later):
            held = body
            if held.body is None:
                held.given = lambda told: later(self._encoded(request, told))
                return held, None
            body = held.body  # it was decided within the request itself
        if self.garbled:
            self.garbled -= 1
            return [b"\0\0\0\4\xff\xff\xff\xff"], None
        return self._encoded(request, body), None

    def _encoded(self, request: Any, body: Any) -> list[Any]:
        key = request.api_key
        if key in self.changed:
            body = self.changed[key](body)
        return encode_response(key, request.api_version, request.correlation_id, body)

    def _body(self, node: int, request: Any) -> Any:
        refusals = self.refusals[request.api_key]
        code = refusals.pop(0) if refusals else 0
        match request.api_key:
            case ApiKey.API_VERSIONS:
                offered = api_versions_response(error_code=code)
                lowered = tuple(
                    each._replace(max_version=self.versions.get(each.api_key, each.max_version))
                    for each in offered.api_keys
                )
                if self.groups is not None and not self.groups.offered:
                    lowered = tuple(each for each in lowered if each.api_key not in GROUP_APIS)
                return offered._replace(api_keys=lowered)
            case ApiKey.METADATA:
                return self._metadata(node, request.body)
            case ApiKey.PRODUCE:
                return self._produce(node, request.body, code)
            case ApiKey.INIT_PRODUCER_ID:
                self.next_producer += 1
                if node in self.deaf:  # it hears no controller
                    code = code or ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
                return init_producer_id.InitProducerIdResponse(0, code, self.next_producer, 0)
            case ApiKey.FETCH:
                return self._fetch(node, request.body, code)
            case ApiKey.LIST_OFFSETS:
                return self._list_offsets(node, request.body, code)
            case ApiKey.CREATE_TOPICS:
                return self._create_topics(request.body, code)
            case ApiKey.DELETE_RECORDS:
                return self._delete_records(node, request.body, code)
        if self.groups is not None:
            return self.groups.answer(node, request, code)
        raise AssertionError(request)

    def _metadata(self, node: int, body: Any) -> Any:
        alive = [n for n in range(1, self.nodes + 1) if n not in self.dead | self.fenced]
        names = list(self.topics) if body.topics is None else [each.name for each in body.topics]
        return metadata.MetadataResponse(
            brokers=[metadata.MetadataResponseBroker(n, *self.address(n)) for n in alive],
            cluster_id="fake",
            controller_id=alive[0],
            topics=[self._metadata_topic(node, name) for name in names],
        )

    def _metadata_topic(self, node: int, name: str) -> Any:
        if name not in self.topics:
            code = 17 if "/" in name else 3
            return metadata.MetadataResponseTopic(error_code=code, name=name)
        leaders = [(each.leader, each.epoch) for each in self.topics[name]]
        leaders = self.deaf.get(node, {}).get(name, leaders)
        partitions = [
            metadata.MetadataResponsePartition(
                5 if leader < 0 else 0, at, leader, epoch, [1, 2, 3], [1, 2, 3]
            )
            for at, (leader, epoch) in enumerate(leaders)
        ]
        return metadata.MetadataResponseTopic(
            0, name, self.ids[name], is_internal=name in self.internal, partitions=partitions
        )

    def _name(self, each: Any) -> str | None:
        name = getattr(each, "name", "") or getattr(each, "topic", "")
        if name:
            return name
        return next((n for n, i in self.ids.items() if i == bytes(each.topic_id)), None)

    def _produce(self, node: int, body: Any, code: int) -> Any:
        responses, endpoints = [], []
        for topic in body.topic_data:
            name = self._name(topic)
            partitions = []
            for data in topic.partition_data:
                result = self._produce_one(node, name, data, code)
                if result.current_leader.leader_id >= 0:
                    leader = result.current_leader.leader_id
                    endpoints.append(produce.NodeEndpoint(leader, *self.address(leader)))
                partitions.append(result)
            responses.append(
                produce.TopicProduceResponse(topic.name, bytes(topic.topic_id), partitions)
            )
        if body.acks == 0:
            return None
        return produce.ProduceResponse(responses, 0, endpoints)

    def _produce_one(self, node: int, name: str | None, data: Any, code: int) -> Any:
        at = data.index
        if name is None or at >= len(self.topics[name]):
            return produce.PartitionProduceResponse(at, 100 if name is None else 3, -1)
        each = self.topics[name][at]
        if code:
            return produce.PartitionProduceResponse(at, code, -1)
        if each.leader != node:
            told = produce.LeaderIdAndEpoch()
            if self.tell_leader and node not in self.deaf:
                told = produce.LeaderIdAndEpoch(each.leader, each.epoch)
            return produce.PartitionProduceResponse(at, 6, -1, current_leader=told)
        error, base = each.append(data.records)
        return produce.PartitionProduceResponse(at, error, base)

    def _fetch(self, node: int, body: Any, code: int) -> Any:
        responses = []
        for topic in body.topics:
            name = self._name(topic)
            partitions = [self._fetch_one(node, name, asked, code) for asked in topic.partitions]
            responses.append(
                fetch.FetchableTopicResponse(topic.topic, bytes(topic.topic_id), partitions)
            )
        return fetch.FetchResponse(responses=responses)

    def _fetch_one(self, node: int, name: str | None, asked: Any, code: int) -> Any:
        at = asked.partition
        if name is None or code:
            return fetch.PartitionData(at, code or 100)
        each = self.topics[name][at]
        if each.leader != node:
            told = fetch.LeaderIdAndEpoch(each.leader, each.epoch)
            return fetch.PartitionData(at, 6, current_leader=told)
        if -1 < asked.current_leader_epoch < each.epoch:
            return fetch.PartitionData(at, 74)
        if asked.current_leader_epoch > each.epoch:
            return fetch.PartitionData(at, 75)
        if not 0 <= asked.fetch_offset <= each.end:
            return fetch.PartitionData(at, 1)
        batches: list[bytes] = []
        for batch in each.batches:
            if read_header(batch).next_offset <= asked.fetch_offset:
                continue
            if batches and sum(map(len, batches)) + len(batch) > asked.partition_max_bytes:
                break
            batches.append(batch)
        if self.mangle is not None:
            batches = self.mangle(batches)
        return fetch.PartitionData(at, 0, each.end, each.end, 0, records=b"".join(batches))

    def _list_offsets(self, node: int, body: Any, code: int) -> Any:
        topics = []
        for topic in body.topics:
            partitions = []
            for asked in topic.partitions:
                each = self.topics[topic.name][asked.partition_index]
                error = code or (0 if each.leader == node else 6)
                offset = 0 if asked.timestamp == -2 else each.end
                partitions.append(
                    list_offsets.ListOffsetsPartitionResponse(
                        asked.partition_index, error, -1, offset, each.epoch
                    )
                )
            topics.append(list_offsets.ListOffsetsTopicResponse(topic.name, partitions))
        return list_offsets.ListOffsetsResponse(topics=topics)

    def _delete_records(self, node: int, body: Any, code: int) -> Any:
        """Nothing is kept of it: what was asked is told."""
        topics = []
        for topic in body.topics:
            results = []
            for asked in topic.partitions:
                each = self.topics[topic.name][asked.partition_index]
                error = code or (0 if each.leader == node else 6)
                low = each.end if asked.offset == -1 else asked.offset
                results.append(
                    delete_records.DeleteRecordsPartitionResult(asked.partition_index, low, error)
                )
            topics.append(delete_records.DeleteRecordsTopicResult(topic.name, results))
        return delete_records.DeleteRecordsResponse(topics=topics)

    def _create_topics(self, body: Any, code: int) -> Any:
        results = []
        for each in body.topics:
            error = code or (36 if each.name in self.topics else 0)
            if error == 0:
                self.topic(each.name, max(1, each.num_partitions))
            results.append(create_topics.CreatableTopicResult(each.name, error_code=error))
        return create_topics.CreateTopicsResponse(topics=results)

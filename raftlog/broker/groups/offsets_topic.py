"""The internal topic `__consumer_offsets`: the partition of a group, and how the topic is made.

The first broker that is asked for a coordinator has the topic made. Its number of partitions is
fixed from then on, because it decides which partition holds a group. A client of a small cluster
may ask while some of its brokers still start. So the creation waits a moment until as many brokers
are alive as replicas are wanted, or as the cluster has.
"""

import operator
import struct
from typing import Final, final

import attrs

from raftlog.base.probes import probe
from raftlog.base.units import Instant
from raftlog.broker.control.controller_calls import CallOutcome, ControllerCalls, ControllerClient
from raftlog.broker.control.topic_ids import new_topic_id
from raftlog.broker.front.router import Endpoint, KnownLeader, Router
from raftlog.broker.turn import Turn
from raftlog.kafka.error_codes import ErrorCode
from raftlog.metadata.requests import NewTopicRequest
from raftlog.metadata.rules.topic_names import OFFSETS_TOPIC
from raftlog.metadata.topic_image import TopicImage

_FOR_BROKERS: Final = 2
"""The part (1/n) of the time that a client waits for leaders, for which the creation waits for
brokers."""


_POWERS: Final = [1]
"""Powers of 31, modulo 2**32: as many as the longest name so far had characters."""


def java_hash(text: str) -> int:
    """Java's `String.hashCode`: signed, of 32 bits, over the text's UTF-16 code units."""
    encoded = text.encode("utf-16-be", "surrogatepass")
    count = len(encoded) // 2
    # It is computed as a sum of products: a request may name a hundred groups of 32,767 characters,
    # and a loop over them took more than a second.
    while len(_POWERS) < count:
        _POWERS.append(_POWERS[-1] * 31 & 0xFFFF_FFFF)
    units: tuple[int, ...] = struct.unpack(f">{count}H", encoded)
    found: int = sum(map(operator.mul, reversed(units), _POWERS)) & 0xFFFF_FFFF
    return found - (1 << 32) if found >> 31 else found


def partition_of(group_id: str, count: int) -> int:
    """The number of the group's partition among `count`, as Kafka computes it.

    That is the magnitude of the hash, or 0 for the one hash that has none in 32 bits.
    """
    found = abs(java_hash(group_id))
    return 0 if found == 1 << 31 else found % count


@final
@attrs.define(eq=False)
class OffsetsTopic:
    """The topic as this broker knows it, and at most one creation under way."""

    turn: Turn
    router: Router
    controller: ControllerClient
    _making: bool = False
    _leaders_due: Instant | None = None
    """Until when clients wait for leaders; None before the first one asked."""

    @property
    def image(self) -> TopicImage | None:
        """The topic, if it exists."""
        return self.turn.image.topic(OFFSETS_TOPIC)

    def endpoint_of(self, number: int, listener: str) -> tuple[KnownLeader, Endpoint] | None:
        """The live leader of a partition, and where clients of that listener reach it."""
        topic = self.image
        if topic is None:
            return None
        leader = self.router.leader_of(topic.topic_id, number)
        if leader is None:
            return None
        endpoint = self.router.endpoint(leader.node, listener)
        return None if endpoint is None else (leader, endpoint)

    def leaders_due(self) -> Instant:
        """Until when a client may wait for the leaders of a new topic.

        Later ones are answered at once, as by Kafka: what they sent behind the request on the same
        connection would wait as well.
        """
        if self.image is None or self._leaders_due is None:
            self._leaders_due = Instant(self.turn.now + self.turn.config.create_wait_ns)
        return self._leaders_due

    def ensure(self) -> None:
        """Have the topic made, if it does not exist and no creation is under way.

        A creation that fails is tried again when the next client asks.
        """
        if self._making or self.image is not None:
            return
        self._making = True
        if self._enough_brokers():
            self._create()
            return
        probe("offsets-topic-waits-for-brokers")
        wait = self.turn.config.create_wait_ns // _FOR_BROKERS
        until = Instant(self.turn.now + wait)
        self.controller.waiters.wait(self._enough_brokers, until, self._create)

    def _enough_brokers(self) -> bool:
        """Whether as many brokers are alive as replicas are wanted, or as there are at all."""
        turn = self.turn
        wanted = turn.config.offsets_topic.replication
        known = max(len(turn.image.brokers), len(turn.config.controllers))
        return len(turn.image.live_brokers()) >= min(wanted, known)

    def _create(self) -> None:
        turn, config = self.turn, self.turn.config
        live = len(turn.image.live_brokers())
        if self.image is not None or not live:
            self._making = False
            return
        deadline = Instant(turn.now + config.create_wait_ns)
        calls = ControllerCalls(self.controller, deadline, self._made)
        calls.add(
            NewTopicRequest(
                topic_id=new_topic_id(turn.entropy),
                name=OFFSETS_TOPIC,
                internal=True,
                count=config.offsets_topic.partitions,
                factor=min(config.offsets_topic.replication, live),
                nodes=(),
                configs=(
                    # A batch of coordinators must fit, whatever clients send.
                    ("max.message.bytes", str(config.groups.batch_bytes_max)),
                    ("retention.ms", "-1"),
                    ("segment.bytes", str(config.offsets_topic.segment_bytes)),
                ),
                validate_only=False,
            )
        )
        calls.begin()

    def _made(self, outcomes: list[CallOutcome]) -> None:
        self._making = False
        for outcome in outcomes:
            # If another broker was first, the topic exists as well.
            if outcome.error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                self.turn.trace("offsets-topic-refused", OFFSETS_TOPIC, why=outcome.message)

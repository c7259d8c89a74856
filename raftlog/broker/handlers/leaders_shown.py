"""The last step of creating partitions: wait until every broker names their leaders to clients.

A client that was told "done" asks any broker for the leaders next. A broker whose image does not
name them answers LEADER_NOT_AVAILABLE, or does not know the topic. Clients that trust that answer
for seconds fail to write.

How it works:
1. This broker waits until its own image names all leaders. The version of that image names them
   everywhere.
2. It asks the controller, which knows the version of every broker, to answer when all have it.
3. After `leaders_wait_ns`, or the client's own time, the client is answered all the same: the
   partitions exist, and a trace event says which brokers lag.
"""

from collections.abc import Callable
from typing import final

import attrs

from raftlog.base.ids import TopicId
from raftlog.base.probes import probe
from raftlog.base.units import Instant, Nanos
from raftlog.broker.context import Context
from raftlog.broker.front.requests import KafkaRequest
from raftlog.broker.peer_messages import ControllerKind, ControllerReply
from raftlog.kafka.error_codes import ErrorCode
from raftlog.metadata.requests import ShownEverywhere, encode_body


@final
@attrs.define(eq=False)
class LeadersShown:
    """Waits for the leaders of all partitions of some topics, at most until `deadline`.

    It then calls `then` once, perhaps before `begin` returns, and not when the client is gone. A
    topic that is gone has no leaders to wait for.
    """

    context: Context
    request: KafkaRequest
    topic_ids: list[TopicId]
    deadline: Instant
    then: Callable[[], None]
    _topic: int = 0
    _partition: int = 0

    def begin(self) -> None:
        """Begin to wait."""
        context = self.context
        until = Instant(context.now + context.config.leaders_wait_ns)
        self.deadline = min(self.deadline, until)
        if not self.topic_ids:
            self.then()
        elif self._named():
            self._ask()
        else:
            waiter = context.image_waiters.wait(self._named, self.deadline, self._waited)
            self.request.on_close(waiter.leave)

    def _named(self) -> bool:
        """Whether this broker's image names all leaders.

        It is asked again and again while a thousand partitions elect, so it continues at the first
        partition that had none.
        """
        topics = self.context.image.topics
        while self._topic < len(self.topic_ids):
            topic = topics.get(self.topic_ids[self._topic])
            partitions = () if topic is None else topic.partitions
            while self._partition < len(partitions):
                if partitions[self._partition].leader is None:
                    return False
                self._partition += 1
            self._topic += 1
            self._partition = 0
        return True

    def _waited(self) -> None:
        if self._named():
            self._ask()
            return
        topic = self.context.image.topics[self.topic_ids[self._topic]]
        probe("made-without-a-leader")
        self.context.trace("leader-missing", f"{topic.name}-{self._partition}")
        self.then()

    def _ask(self) -> None:
        left = self.deadline - self.context.now
        # An eighth of the time is left for the controller's answer, which names the brokers that
        # lag.
        request = ShownEverywhere(
            version=self.context.image.version, wait_ns=Nanos(max(left - left // 8, 0))
        )
        self.context.controller.ask(
            ControllerKind.PROPOSE, encode_body(request), self.deadline, self._told
        )

    def _told(self, reply: ControllerReply) -> None:
        if self.request.dead:
            return
        if reply.error == ErrorCode.INVALID_REQUEST:
            # A controller of an earlier release does not know how far the brokers are.
            probe("leaders-shown-unknown-to-the-controller")
        elif reply.error != 0:
            self._trace("leaders-not-confirmed", why=reply.text)
        elif reply.text:
            probe("leaders-shown-late")
            self._trace("brokers-lag", brokers=reply.text)
        self.then()

    def _trace(self, name: str, **fields: str) -> None:
        """Trace an event about the topics, named by the first of them that exists."""
        topics = self.context.image.topics
        known = [topics[each].name for each in self.topic_ids if each in topics]
        if known:
            self.context.trace(name, known[0], topics=len(self.topic_ids), **fields)

"""ElectLeaders: partitions go back to their preferred leaders, the first of their replicas.

Only preferred leaders are elected, by a transfer between replicas that are in sync. An unclean
election is always refused: a leader that misses acknowledged records would lose them. The
controller sets the target of the partition once more, and its leader, wherever it is, hands over.
The answer leaves when this broker knows the new leaders, or at the client's deadline.
"""

from collections.abc import Iterator
from typing import Final, final

import attrs

from raftlog.base.units import Instant
from raftlog.broker.context import Context
from raftlog.broker.control.controller_calls import CallOutcome, ControllerCalls
from raftlog.broker.front.requests import KafkaRequest
from raftlog.broker.handlers.attempts import BEHIND, deadline_of, gone_by_name
from raftlog.kafka.error_bodies import error_body
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from raftlog.metadata.requests import PreferLeaderRequest
from raftlog.metadata.topic_image import PartitionImage

_PREFERRED: Final = 0
_UNCLEAN_TYPE: Final = 1
_DONE: Final = ErrorCode.ELECTION_NOT_NEEDED
_UNCLEAN: Final = "an unclean election is never done: it would lose acknowledged records"
_NEEDLESS: Final = "Leader election not needed for topic partition."

Place = tuple[str, int]


def handle(context: Context, request: KafkaRequest) -> None:
    """See the module."""
    body: ElectLeadersRequest = request.body
    election = _Election(context, request, deadline_of(context, body.timeout_ms))
    if body.election_type != _PREFERRED:
        unknown = f"there is no election of type {body.election_type}"
        what = _UNCLEAN if body.election_type == _UNCLEAN_TYPE else unknown
        election.refuse(ErrorCode.INVALID_REQUEST, what)
    else:
        context.controller.when_current(election.deadline, election.begin)


@final
@attrs.define(eq=False)
class _Election:
    """One request on its way. `outcomes` are those of `places`, in order."""

    context: Context
    request: KafkaRequest
    deadline: Instant
    places: list[Place] = attrs.Factory(list)
    outcomes: list[CallOutcome] = attrs.Factory(list)

    def refuse(self, code: ErrorCode, what: str) -> None:
        """Give every partition the same answer."""
        body: ElectLeadersRequest = self.request.body
        if body.topic_partitions is None:
            self.request.answer(error_body(body, code, what))
            return
        self.places = list(self._asked())
        self.outcomes = [CallOutcome(code, what)] * len(self.places)
        self._answer()

    def begin(self, current: bool) -> None:
        """Judge every place. `current`: the image shows everything that any client was told."""
        if self.request.dead:
            return
        if not current:
            self.refuse(ErrorCode.REQUEST_TIMED_OUT, BEHIND)
            return
        calls = ControllerCalls(self.context.controller, self.deadline, self._decided)
        for place in self._asked():
            outcome = self._judged(place)
            if outcome is not None:
                # For a request without partitions, those that already have their preferred leader
                # are left out.
                if self.request.body.topic_partitions is None and outcome.error == _DONE:
                    continue
                calls.known(outcome.error, outcome.message)
            else:
                topic = self.context.image.topic(place[0])
                assert topic is not None, place
                calls.add(PreferLeaderRequest(topic_id=topic.topic_id, partition=place[1]))
            self.places.append(place)
        calls.begin()

    def _asked(self) -> Iterator[Place]:
        """Each place once, in the order of the request, or of the names when it asks for all."""
        body: ElectLeadersRequest = self.request.body
        if body.topic_partitions is not None:
            yield from dict.fromkeys(
                (topic.topic, number)
                for topic in body.topic_partitions
                for number in topic.partitions
            )
            return
        image = self.context.image
        for name in sorted(image.names):
            for number in range(len(image.topics[image.names[name]].partitions)):
                yield name, number

    def _judged(self, place: Place) -> CallOutcome | None:
        """The outcome that is known without asking; None when a transfer must be requested."""
        router = self.context.router
        partition = router.partition(*place)
        if isinstance(partition, ErrorCode):
            return CallOutcome(
                partition, f"No such topic as {place[0]}, or no such partition of it."
            )
        if self._elected(place, partition):
            return CallOutcome(_DONE, _NEEDLESS)
        first = partition.target[0]
        why = ""
        if not partition.settled:
            why = "the partition is being reassigned"
        elif not router.is_alive(first.node):
            why = f"broker {first.node} is not alive"
        elif first not in partition.reported.in_sync:
            why = f"the replica on broker {first.node} is not in sync"
        if not why:
            return None
        what = f"The preferred leader was not available: {why}."
        return CallOutcome(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, what)

    def _elected(self, place: Place, partition: PartitionImage) -> bool:
        leader = self.context.router.leader_of(*place)
        return leader is not None and leader.node == partition.target[0].node

    def _decided(self, outcomes: list[CallOutcome]) -> None:
        """Take the controller's decisions: leaders are told, or will be by their images."""
        self.outcomes = outcomes
        if self.request.dead:
            return
        if self._shown():
            self._answer()
            return
        waiter = self.context.image_waiters.wait(self._shown, self.deadline, self._answer)
        self.request.on_close(waiter.leave)

    def _shown(self) -> bool:
        return not any(
            outcome.error == 0 and self._is_missing(place)
            for place, outcome in zip(self.places, self.outcomes, strict=True)
        )

    def _is_missing(self, place: Place) -> bool:
        partition = self.context.router.partition(*place)
        return not isinstance(partition, ErrorCode) and not self._elected(place, partition)

    def _answer(self) -> None:
        found: dict[str, list[PartitionResult]] = {}
        for place, outcome in zip(self.places, self.outcomes, strict=True):
            error, message = gone_by_name(outcome.error), outcome.message or None
            if error == 0 and self._is_missing(place):
                error = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
                message = "The preferred leader was not elected in time; ask again."
            name, number = place
            found.setdefault(name, []).append(PartitionResult(number, error, message))
        results = [ReplicaElectionResult(name, each) for name, each in found.items()]
        self.request.answer(ElectLeadersResponse(replica_election_results=results))

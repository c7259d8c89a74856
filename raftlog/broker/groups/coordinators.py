"""The coordinators that run here, and the requests on their way to one.

A partition of the internal topic has a coordinator here while this broker leads it. It is made when
the leader has committed in its own term and its replica has applied everything up to there. So it
begins with everything that was ever promised. It is dropped whole when the leadership ends. A
request that comes while the leader still loads waits. The request of a client that asks the wrong
broker is refused at once.

The order within a turn:

1. Requests, timers and the answers of the log reach the coordinator (`ask`, `_tick`, `_decided`).
2. `propose` takes what it wants to write, once a turn, and hands it to the replica as one batch.
3. The replicas are taken. A lost leadership is seen there first (`replica_changed`). So every
   waiting client gets NOT_COORDINATOR before anything committed later is looked at.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, final

import attrs

from raftlog.base.ids import GroupId, Term, TopicId
from raftlog.base.probes import probe
from raftlog.base.units import NEVER, Instant, Nanos, millis
from raftlog.broker.control.controller_calls import ControllerClient
from raftlog.broker.deadlines import Timer
from raftlog.broker.front.ledger import Ledger
from raftlog.broker.front.requests import KafkaRequest
from raftlog.broker.groups.offsets_topic import OffsetsTopic, partition_of
from raftlog.broker.turn import Turn
from raftlog.groups.coordinator import Coordinator, GroupProposal
from raftlog.groups.machine import GroupsMachine
from raftlog.kafka.error_codes import ErrorCode
from raftlog.partition.maintenance.clocks import PeerClocks, most_share
from raftlog.partition.output import ProposalAnswer, ReadAnswer
from raftlog.partition.replica import PartitionReplica

LOAD_WAIT_NS: Final = millis(1_000)
"""The longest time for which a request waits for a coordinator that loads, in ns."""

Call = Callable[[Coordinator], None]
Refuse = Callable[[ErrorCode], None]


@final
@attrs.define(eq=False)
class Coordinated:
    """One partition that this broker coordinates, in one term."""

    replica: PartitionReplica
    term: Term
    coordinator: Coordinator
    timer: Timer | None = None
    asking: list[Callable[[ErrorCode], None]] = attrs.Factory(list)
    """The calls of this turn that wait for a majority to confirm the leadership."""

    @property
    def leads(self) -> bool:
        """Whether that replica still leads, in that term."""
        return self.replica.is_leader and self.replica.term == self.term


@final
@attrs.define(eq=False)
class Parked:
    """A request that waits for its coordinator to load: one of the two calls is made, once."""

    request: KafkaRequest
    call: Call
    refuse: Refuse
    timer: Timer | None = None


@final
@attrs.define(eq=False)
class GroupCoordinators:
    """All coordinators that run here, and the requests on their way to one."""

    turn: Turn
    clocks: PeerClocks
    ledger: Ledger
    controller: ControllerClient
    topic: OffsetsTopic
    _led: dict[GroupId, Coordinated] = attrs.Factory(dict)
    _parked: dict[GroupId, dict[int, Parked]] = attrs.Factory(dict)
    _dirty: dict[GroupId, None] = attrs.Factory(dict)
    _last: int = 0

    # --- requests ---

    def ask(
        self,
        group_id: str,
        request: KafkaRequest,
        call: Call,
        refuse: Refuse,
        patience: Nanos = LOAD_WAIT_NS,
    ) -> None:
        """Make `call(coordinator)` of that group, now or when it has loaded; or `refuse(error)`."""
        topic = self.topic.image
        if topic is None:
            refuse(ErrorCode.NOT_COORDINATOR)
            return
        number = partition_of(group_id, len(topic.partitions))
        self.ask_partition(topic.partitions[number].group, request, call, refuse, patience)

    def ask_partition(
        self,
        group: GroupId,
        request: KafkaRequest,
        call: Call,
        refuse: Refuse,
        patience: Nanos = LOAD_WAIT_NS,
    ) -> None:
        """Do the same as `ask`, for one partition of the topic."""
        led = self._led.get(group)
        if led is not None and led.leads:
            self._dirty[group] = None
            call(led.coordinator)
            return
        replica = self.turn.replicas.get(group)
        if replica is None or not replica.is_leader:
            refuse(ErrorCode.NOT_COORDINATOR)
            return
        probe("group-request-waits-for-the-coordinator")
        self._last += 1
        parked = Parked(request, call, refuse)
        until = Instant(self.turn.now + patience)
        parked.timer = self.turn.at(until, self._give_up, group, self._last)
        self._parked.setdefault(group, {})[self._last] = parked
        request.on_close(partial(self._leave, group, self._last))

    def confirmed(self, coordinator: Coordinator, then: Callable[[ErrorCode], None]) -> None:
        """Call `then(NONE)` once a majority confirms this leadership; else `then(error)`.

        It concerns the groups of the coordinator that the present call got. A broker that was
        replaced and does not know it yet would tell older offsets than its successor has committed.
        """
        led = next((led for led in self._led.values() if led.coordinator is coordinator), None)
        if led is None:
            then(ErrorCode.NOT_COORDINATOR)
            return
        if not led.asking:
            # All callers of one turn share a read: else a client that names many groups in one
            # request would take all reads that may wait in this partition.
            self.turn.soon(self._confirm, led)
        led.asking.append(then)

    def _confirm(self, led: Coordinated) -> None:
        asking, led.asking = led.asking, []
        refused = True
        if self._is_present(led):
            then = partial(self._confirmed, led, asking)
            refused = led.replica.read_index(then, self.turn.now) is not None
            self.turn.touch(led.replica.group)
        if refused:
            for each in asking:
                each(ErrorCode.NOT_COORDINATOR)

    def led_partitions(self) -> Iterator[GroupId]:
        """The partitions of the topic that this broker leads, loaded or not."""
        topic = self.topic.image
        for partition in () if topic is None else topic.partitions:
            replica = self.turn.replicas.get(partition.group)
            if replica is not None and replica.is_leader:
                yield partition.group

    # --- the turn ---

    def propose(self) -> None:
        """Write what this turn's requests want; once a turn, before the replicas are taken."""
        while self._dirty:
            dirty, self._dirty = self._dirty, {}
            for group in dirty:
                led = self._led.get(group)
                if led is not None and led.leads:
                    self._drive(led)

    def replica_changed(self, replica: PartitionReplica) -> None:
        """Take note that a partition's leader changed, or became ready.

        Only partitions that hold groups have a coordinator.
        """
        if isinstance(replica.machine, GroupsMachine):
            self._look(replica)

    def dropped(self, group: GroupId) -> None:
        """Take note that the group's replica runs here no more."""
        self._end(group)

    def topics_deleted(self, names: Sequence[str]) -> None:
        """Remove the offsets of topics that are gone from the image."""
        for led in self._led.values():
            if led.leads:
                self._tell_topics(led, names)

    # --- one partition ---

    def _look(self, replica: PartitionReplica) -> None:
        group = replica.group
        led = self._led.get(group)
        if led is not None and (led.replica is not replica or not led.leads):
            self._close(led)
            led = None
        if self.turn.replicas.get(group) is not replica or not replica.is_leader:
            self._end(group)
        elif led is None and replica.serves_machine:
            self._open(replica)

    def _open(self, replica: PartitionReplica) -> None:
        turn, group = self.turn, replica.group
        machine = replica.machine
        assert isinstance(machine, GroupsMachine), machine
        entropy = turn.entropy.fork(f"coordinator {group} {replica.term}")
        coordinator = Coordinator(machine, turn.config.groups, entropy, turn.now, turn.wall)
        led = self._led[group] = Coordinated(replica, replica.term, coordinator)
        self._dirty[group] = None
        self._ask_for_topics(led)
        for parked in self._take_parked(group):
            parked.call(coordinator)

    def _end(self, group: GroupId) -> None:
        """End the coordinator of a partition, and refuse the requests that wait for it."""
        led = self._led.get(group)
        if led is not None:
            self._close(led)
        for parked in self._take_parked(group):
            parked.refuse(ErrorCode.NOT_COORDINATOR)

    def _close(self, led: Coordinated) -> None:
        group = led.replica.group
        del self._led[group]
        self._dirty.pop(group, None)
        if led.timer is not None:
            led.timer.cancel()
        led.coordinator.close(ErrorCode.NOT_COORDINATOR)

    def _ask_for_topics(self, led: Coordinated) -> None:
        """Look for deleted topics: some may have gone while no coordinator looked.

        Only an image that is known to be current may say so: an older one lacks topics with good
        offsets.
        """
        deadline = Instant(self.turn.now + self.turn.config.request_ns)
        self.controller.when_current(deadline, partial(self._topics_known, led))

    def _topics_known(self, led: Coordinated, current: bool) -> None:
        if not self._is_present(led):
            return
        if current:
            self._tell_topics(led, None)
        else:
            again = Instant(self.turn.now + self.turn.config.request_ns)
            self.turn.at(again, self._ask_again, led)

    def _ask_again(self, led: Coordinated) -> None:
        if self._is_present(led):
            self._ask_for_topics(led)

    def _tell_topics(self, led: Coordinated, names: Sequence[str] | None) -> None:
        turn = self.turn
        led.coordinator.topics_changed(self._topic_id, names, turn.now, turn.wall)
        self._dirty[led.replica.group] = None

    def _topic_id(self, name: str) -> TopicId | None:
        return self.turn.image.names.get(name)

    def _is_present(self, led: Coordinated) -> bool:
        return self._led.get(led.replica.group) is led and led.leads

    # --- writing ---

    def _drive(self, led: Coordinated) -> None:
        """Propose what the coordinator wants to write, and wake it in time."""
        turn, coordinator = self.turn, led.coordinator
        while (proposal := coordinator.take()) is not None:
            error = self._propose(led, proposal)
            if error is not None:
                coordinator.decided(proposal.token, error, turn.now, turn.wall)
        self._set_timer(led)

    def _propose(self, led: Coordinated, proposal: GroupProposal) -> ErrorCode | None:
        turn, replica = self.turn, led.replica
        if self.ledger.full(replica.uncommitted_bytes):
            probe("group-records-refused-partition-full")
            return ErrorCode.NOT_ENOUGH_REPLICAS
        # The coordinator must learn what happened to its records, however late: its next answers
        # rest on that. A client that cannot wait is answered by its own request's timer.
        then = partial(self._decided, led, proposal.token)
        turn.touch(replica.group)
        return replica.propose_records(proposal.batch, NEVER, then, turn.now, turn.wall)

    def _decided(self, led: Coordinated, token: int, answer: ProposalAnswer) -> None:
        """Take the log's decision; a coordinator that is gone needs none."""
        if not self._is_present(led):
            return
        turn, error = self.turn, answer.error
        if error in (ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND):
            # A majority holds the records and every replica applies them, though fewer are in sync
            # than a producer with acks=all asks for.
            led.coordinator.decided(token, None, turn.now, turn.wall)
        else:
            led.coordinator.decided(token, error, turn.now, turn.wall)
        self._drive(led)

    def _set_timer(self, led: Coordinated) -> None:
        deadline, timer = led.coordinator.next_deadline(), led.timer
        if timer is not None and timer.deadline <= deadline:
            return  # a wake-up too early costs an empty turn; each heartbeat moves the deadline
        if timer is not None:
            timer.cancel()
        led.timer = None
        if deadline != NEVER:
            led.timer = self.turn.at(deadline, self._tick, led)

    def _tick(self, led: Coordinated) -> None:
        led.timer = None
        if not self._is_present(led):
            return
        turn, replica = self.turn, led.replica
        now, wall = turn.now, turn.wall
        agreed = most_share(self.clocks, replica.membership, replica.me, now, wall)
        led.coordinator.tick(now, wall, wall_agreed=agreed)
        self._dirty[replica.group] = None

    # --- those who wait ---

    def _take_parked(self, group: GroupId) -> list[Parked]:
        found = list(self._parked.pop(group, {}).values())
        for parked in found:
            if parked.timer is not None:
                parked.timer.cancel()
        return [parked for parked in found if not parked.request.dead]

    def _give_up(self, group: GroupId, number: int) -> None:
        parked = self._forget(group, number)
        if parked is not None and not parked.request.dead:
            probe("group-request-gave-up-loading")
            parked.refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    def _leave(self, group: GroupId, number: int) -> None:
        """Drop the waiting request of a client that is gone."""
        self._forget(group, number)

    def _forget(self, group: GroupId, number: int) -> Parked | None:
        waiting = self._parked.get(group, {})
        parked = waiting.pop(number, None)
        if parked is not None and parked.timer is not None:
            parked.timer.cancel()
        return parked

    def _confirmed(
        self, led: Coordinated, asking: list[Callable[[ErrorCode], None]], answer: object
    ) -> None:
        assert isinstance(answer, ReadAnswer), answer
        present = not answer.error and self._is_present(led)
        for then in asking:
            then(ErrorCode.NONE if present else ErrorCode.NOT_COORDINATOR)

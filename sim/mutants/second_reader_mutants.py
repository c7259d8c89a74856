"""Bugs that a second reader of the product alone thought of, and that the simulator let pass.

As in raft_mutants.py. The reader planted twelve; those are here that no check of that day caught.
"""

from collections import deque
from typing import Any

import attrs

from raftlog.broker.front.router import Router
from raftlog.broker.groups.coordinators import GroupCoordinators
from raftlog.broker.handlers import produce_run
from raftlog.broker.handlers.init_producer_id import ProducerIds
from raftlog.groups.machine import GroupsMachine
from raftlog.metadata import commands as c
from raftlog.metadata.rules import apply
from raftlog.metadata.rules.applied import Applied
from raftlog.partition.producing.produce_path import ProducePath
from raftlog.raft import membership, transfer

_FOR_EVER_NS = 1 << 60


def silent_learner_is_promoted() -> None:
    """19d: a learner that holds enough is promoted, however long ago it was last heard."""
    real = membership._caught_up

    def caught_up(state: Any) -> Any:
        kept = state.options
        state.options = attrs.evolve(kept, election_ns=_FOR_EVER_NS)
        try:
            return real(state)
        finally:
            state.options = kept

    membership._caught_up = caught_up


def successors_lack_the_commit() -> None:
    """27d: a voter that holds the beginning of the term counts as a successor, without the commit.

    A leader whose segment is damaged gives it up when a majority of such successors is there.
    """

    def successors(state: Any) -> int:
        return sum(
            transfer._can_succeed(state, each) and each.match >= state.term_start
            for each in state.progress.values()
        )

    transfer.successors = successors


def runs_overtake_parked_batches() -> None:
    """36c: a run is appended while earlier batches of its connection are parked."""
    real = ProducePath.takes_runs

    def takes_runs(self: ProducePath, acks: int) -> bool:
        parked, self._parked = self._parked, deque()
        try:
            return real(self, acks)
        finally:
            self._parked = parked

    ProducePath.takes_runs = takes_runs  # type: ignore[method-assign]


def runs_enter_internal_topics() -> None:
    """36d: repeats of a produce request are taken as a run although the topic is internal."""
    real, topic_of = produce_run.take_run, Router.topic

    def open_topic(self: Router, key: Any) -> Any:
        topic = topic_of(self, key)
        return topic if topic is None else attrs.evolve(topic, internal=False)

    def take_run(*args: Any) -> int:
        Router.topic = open_topic  # type: ignore[method-assign]
        try:
            return real(*args)
        finally:
            Router.topic = topic_of  # type: ignore[method-assign]

    produce_run.take_run = take_run


def failed_request_stays_under_way() -> None:
    """37e: a failed request for producer ids counts as one under way, so none is made again."""
    real = ProducerIds._allocated

    def allocated(self: ProducerIds, context: Any, outcomes: Any) -> None:
        real(self, context, outcomes)
        self.asking = self.asking or bool(outcomes[0].error)

    ProducerIds._allocated = allocated  # type: ignore[method-assign]


def unregistered_by_the_targets() -> None:
    """47b: a broker is forgotten when no target names it, though its replicas still vote."""
    real = apply._RULES[c.UnregisterBroker]

    def unregister(image: Any, command: c.UnregisterBroker) -> Applied:
        wanted = {
            topic_id: attrs.evolve(
                topic,
                partitions=tuple(attrs.evolve(each, replicas=each.target)
                                 for each in topic.partitions),
            )
            for topic_id, topic in image.topics.items()
        }  # fmt: skip
        applied = real(attrs.evolve(image, topics=wanted), command)
        kept = attrs.evolve(applied.image, topics=image.topics)
        return attrs.evolve(applied, image=kept if applied.done else image)

    apply._RULES[c.UnregisterBroker] = unregister


def restored_machine_knows_no_topics() -> None:
    """71b: a machine of groups that is restored does not know which offsets are of which topic."""
    real = GroupsMachine.restore

    def restore(self: GroupsMachine, body: Any) -> None:
        known = self._by_topic
        real(self, body)
        self._by_topic = known

    GroupsMachine.restore = restore  # type: ignore[method-assign]


def gone_topics_are_asked_for_once() -> None:
    """71c: a new coordinator that cannot learn which topics are gone does not ask again."""

    def ask_again(self: GroupCoordinators, led: Any) -> None:
        del self, led

    GroupCoordinators._ask_again = ask_again  # type: ignore[method-assign]


MUTANTS = (
    ("19d", "silent-learner-is-promoted", silent_learner_is_promoted, ("liveness",)),
    ("27d", "successors-lack-the-commit", successors_lack_the_commit, ("liveness",)),
    ("36c", "runs-overtake-parked-batches", runs_overtake_parked_batches, ("appended-in-order",)),
    ("36d", "runs-enter-internal-topics", runs_enter_internal_topics, ("group-fences",)),
    ("37e", "failed-request-stays-under-way", failed_request_stays_under_way,
     ("answered-once",)),
    ("47b", "unregistered-by-the-targets", unregistered_by_the_targets,
     ("image-names-brokers",)),
    ("71b", "restored-machine-knows-no-topics", restored_machine_knows_no_topics, ("liveness",)),
    ("71c", "gone-topics-are-asked-for-once", gone_topics_are_asked_for_once, ("liveness",)),
)  # fmt: skip

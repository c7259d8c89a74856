"""Planted bugs of the metadata group, and of the answers of brokers about it."""

from typing import Any

import attrs

from raftlog.base.ids import GroupId, NodeId, Term
from raftlog.broker.control import controller
from raftlog.broker.control.controller import Controller
from raftlog.broker.control.reassignment import LedPartition, Reassignment
from raftlog.broker.front.router import KnownLeader, Router
from raftlog.broker.replicas.partition_manager import PartitionManager
from raftlog.broker.replicas.replica_deletions import ReplicaDeletions
from raftlog.metadata.broker_image import Removal
from raftlog.metadata.delta import Retarget
from raftlog.metadata.requests import ControllerAnswer, OnceRequest
from raftlog.metadata.topic_image import PartitionImage
from raftlog.partition.replica import PartitionReplica
from raftlog.raft import following
from raftlog.raft.messages import Append, Install
from raftlog.raft.node import RaftNode
from raftlog.raft.state import RaftState
from raftlog.storage.directories.store import StoreImage
from raftlog.storage.replica import Registration


def performed_again() -> None:
    """37: the controller performs a request again that it has performed before."""

    def serve(self: Controller, sender: NodeId, request: OnceRequest) -> ControllerAnswer:
        return self._serve_submit(sender, request.request)

    table: dict[type[Any], Any] = controller._SERVE
    table[OnceRequest] = serve


def performed_for_nothing() -> None:
    """37b: a broker that asks again for producer ids hears that it has some, and not which."""

    def serve(self: Controller, sender: NodeId, request: OnceRequest) -> ControllerAnswer:
        before = self.projected
        answer = serve_once(self, sender, request)
        return answer if self.projected is not before else attrs.evolve(answer, value=0)

    table: dict[type[Any], Any] = controller._SERVE
    serve_once = table[OnceRequest]
    table[OnceRequest] = serve


def answers_of_the_deposed() -> None:
    """37c: a controller tells the state of the cluster without confirming that it still decides."""
    Controller._confirm = Controller._answer  # type: ignore[method-assign]


def leaders_named_while_opening() -> None:
    """46: a booted broker names leaders before its image is as new as its boot."""
    real = Router.newest

    def newest(self: Router, partition: PartitionImage) -> KnownLeader | None:
        context: Any = self.turn
        opened, context.caught_up = context.caught_up, True
        try:
            return real(self, partition)
        finally:
            context.caught_up = opened

    Router.newest = newest  # type: ignore[method-assign]


def leaders_of_earlier_boots_forgotten() -> None:
    """46b: leaders are named in any epoch, though the boot before may have named later ones."""
    real = Router.newest

    def newest(self: Router, partition: PartitionImage) -> KnownLeader | None:
        self.floors = {}
        return real(self, partition)

    Router.newest = newest  # type: ignore[method-assign]


def leaders_named_before_their_term_is_durable() -> None:
    """46c: a replica's leader is named before the term would survive a crash."""
    RaftNode.term_durable = property(lambda self: True)  # type: ignore[method-assign, assignment]


def floors_outlive_their_replicas() -> None:
    """46d: leaders are named in no earlier term than any replica here had stored at boot.

    That also counts a replica that left long ago.
    """

    def floor(self: Router, partition: PartitionImage) -> Term:
        found = self.floors.get(partition.group)
        return Term(0) if found is None else found.term

    Router._floor = floor  # type: ignore[method-assign]


def floors_end_with_the_reported_configuration() -> None:
    """46e: a replica outside the last reported configuration counts as gone.

    So does one that is about to join.
    """
    real = Router._floor

    def floor(self: Router, partition: PartitionImage) -> Term:
        found = self.floors.get(partition.group)
        members = partition.reported.membership.everyone()
        return real(self, partition) if found is None or found.replica in members else Term(0)

    Router._floor = floor  # type: ignore[method-assign]


def successors_begin_without_a_term() -> None:
    """46f: a replica that takes the place of a lost one forgets the term of the lost one."""
    real = StoreImage.register

    def register(self: StoreImage, group: GroupId, registration: Registration) -> list[bytes]:
        self.hard_states.pop(group, None)
        return real(self, group, registration)

    StoreImage.register = register  # type: ignore[method-assign]


def leaders_of_older_terms_hear_nothing() -> None:
    """46g: messages of a leader of an older term are dropped, and it hears of no newer term."""

    def refuse_stale(state: RaftState, message: Append | Install) -> None:
        del state, message

    following.refuse_stale = refuse_stale


def the_last_registration_ends_all() -> None:
    """56: when a replica is deleted its directory forgets the group.

    It also forgets that an older id, which has not left yet, was registered too.
    """

    def has_others(self: ReplicaDeletions, removal: Removal) -> bool:
        del self, removal
        return False

    ReplicaDeletions._has_others = has_others  # type: ignore[method-assign]


def the_lost_are_told_of_once() -> None:
    """57: a lost replica that was not wanted at its first report is never reported again."""

    def look(self: PartitionManager, retarget: Retarget) -> None:
        del self, retarget

    PartitionManager._look_for_lost = look  # type: ignore[method-assign]


def starts_that_waited_are_made_anyway() -> None:
    """58: a replica whose start waited for the disk begins, though it left the group meanwhile."""
    PartitionManager._start_again = PartitionManager.start  # type: ignore[method-assign]


def moves_by_an_old_image() -> None:
    """55: a leader moves its group as its image says.

    The image may be older than the reports of the leader before it.
    """
    real = Reassignment._tell_target

    def tell(
        self: Reassignment, replica: PartitionReplica, partition: PartitionImage, led: LedPartition
    ) -> None:
        reported = attrs.evolve(partition.reported, term=replica.term)
        real(self, replica, attrs.evolve(partition, reported=reported), led)

    Reassignment._tell_target = tell  # type: ignore[method-assign]


MUTANTS = (
    ("37", "performed-again", performed_again, ("deleted-stays-deleted", "denied-rightly")),
    ("37b", "performed-for-nothing", performed_for_nothing, ("producer-ids-unique",)),
    ("37c", "answers-of-the-deposed", answers_of_the_deposed, ("denied-rightly",)),
    ("46", "leaders-named-while-opening", leaders_named_while_opening, ("leader-epoch-monotone",)),
    ("46b", "leaders-of-earlier-boots-forgotten", leaders_of_earlier_boots_forgotten,
     ("leader-epoch-monotone",)),
    ("46c", "leaders-named-before-their-term-is-durable",
     leaders_named_before_their_term_is_durable, ("leader-epoch-monotone",)),
    ("46d", "floors-outlive-their-replicas", floors_outlive_their_replicas, ("liveness",)),
    ("46e", "floors-end-with-the-reported-configuration",
     floors_end_with_the_reported_configuration, ("leader-epoch-monotone",)),
    ("46f", "successors-begin-without-a-term", successors_begin_without_a_term,
     ("leader-epoch-monotone",)),
    ("46g", "leaders-of-older-terms-hear-nothing", leaders_of_older_terms_hear_nothing,
     ("liveness",)),
    ("55", "moves-by-an-old-image", moves_by_an_old_image, ("removed-rightly",)),
    ("56", "the-last-registration-ends-all", the_last_registration_ends_all,
     ("replica-begins-once",)),
    ("57", "the-lost-are-told-of-once", the_lost_are_told_of_once, ("liveness",)),
    ("58", "starts-that-waited-are-made-anyway", starts_that_waited_are_made_anyway,
     ("replica-begins-once",)),
)  # fmt: skip

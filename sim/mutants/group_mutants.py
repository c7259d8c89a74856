"""Planted bugs of consumer groups and of the machines that hold them. As in raft_mutants.py."""

import copy
from collections.abc import Callable
from typing import Any

from raftlog.broker.groups.coordinators import Coordinated, GroupCoordinators
from raftlog.groups import fences, leaving, offsets, syncing
from raftlog.groups.coordinator import Coordinator
from raftlog.groups.joining import Joins
from raftlog.groups.live import GroupState, LiveGroup
from raftlog.groups.machine import GroupsMachine
from raftlog.groups.offsets import Offsets
from raftlog.groups.rebalance import Rebalances
from raftlog.groups.removal import Removals
from raftlog.groups.shared import Shared
from raftlog.groups.syncing import Syncs
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.offset_commit import OffsetCommitRequest
from raftlog.partition.machine.machine_feed import MachineFeed
from raftlog.storage.segments import jobs
from raftlog.storage.segments.head import write_head

NEEDS = "members"


def commits_answered_at_once() -> None:
    """62: the coordinator answers a commit when it is proposed."""
    real = Offsets.commit

    def commit(self: Offsets, request: OffsetCommitRequest, version: int, answer: Any) -> None:
        told: list[Any] = []
        real(self, request, version, told.append)
        answer(told[0] if told else offsets._commit_response(request, {}, None))

    Offsets.commit = commit  # type: ignore[method-assign]


def _answered_at_once(what: str) -> Callable[[], None]:
    """The change that answers requests with records of that kind when these are proposed."""

    def apply() -> None:
        real = Shared.write_of

        def write_of(self: Shared, group: LiveGroup, records: Any, then: Any) -> Any:
            if what not in then.func.__name__:
                return real(self, group, records, then)
            ticket = real(self, group, records, _nothing)
            then(None)
            return ticket

        Shared.write_of = write_of  # type: ignore[method-assign]

    return apply


def _nothing(error: object) -> None:
    del error


def coordinators_open_before_they_load() -> None:
    """63: a coordinator answers before it has loaded its log; its own first record ends that.

    Bufstream had this spurious zero.
    """
    begin, decided = Coordinator.__init__, Coordinator.decided
    loaded: dict[Coordinator, GroupsMachine] = {}

    def begins(self: Coordinator, machine: GroupsMachine, *rest: Any) -> None:
        begin(self, GroupsMachine(), *rest)
        loaded[self] = machine

    def loads(self: Coordinator, *arguments: Any) -> None:
        self._shared.machine = loaded[self]
        decided(self, *arguments)

    Coordinator.__init__ = begins  # type: ignore[method-assign, assignment]
    Coordinator.decided = loads  # type: ignore[method-assign]


def coordinators_outlive_their_leadership() -> None:
    """64: a coordinator keeps its state when the leadership ends, and uses it in the next one."""
    real = GroupCoordinators._look
    Coordinated.leads = property(lambda self: True)  # type: ignore[method-assign, assignment]

    def look(self: GroupCoordinators, replica: Any) -> None:
        if replica.group not in self._led:
            real(self, replica)

    GroupCoordinators._look = look  # type: ignore[method-assign]


def lost_leadership_answers_nobody() -> None:
    """64b: clients that wait in a coordinator get no answer when it ends."""

    def close(self: Coordinator, error: ErrorCode) -> None:
        del error
        self._shared.is_closed = True
        self._shared.groups.clear()

    Coordinator.close = close  # type: ignore[method-assign]


def static_members_are_dropped_with_the_others() -> None:
    """65: a static member that misses a join phase is dropped like a dynamic one."""
    real = Rebalances.complete

    def complete(self: Rebalances, group: LiveGroup) -> None:
        for member in list(group.members.values()):
            if member.join_answer is None:
                group.remove(member.member_id)
                self._shared.end_session(group.group_id, member.member_id)
        real(self, group)

    Rebalances.complete = complete  # type: ignore[method-assign]


def generations_are_not_compared() -> None:
    """66: a member may send any generation."""
    real = fences.heartbeat_fence

    def fence(group: LiveGroup, member_id: str, instance_id: str | None, generation: int) -> Any:
        error = real(group, member_id, instance_id, generation)
        return None if error is ErrorCode.ILLEGAL_GENERATION else error

    fences.heartbeat_fence = fence
    leaving.heartbeat_fence = fence  # type: ignore[attr-defined]


def who_left_may_commit() -> None:
    """66b: the id of a member that is gone may still commit."""
    real = fences.commit_fence

    def fence(shared: Shared, request: OffsetCommitRequest, version: int) -> Any:
        error = real(shared, request, version)
        return None if error is ErrorCode.UNKNOWN_MEMBER_ID else error

    offsets.commit_fence = fence  # type: ignore[attr-defined]


def offsets_expire_by_one_clock() -> None:
    """67: offsets expire by the leader's wall clock, whatever the clocks of the others show."""
    real = Removals.expire

    def expire(self: Removals, *, wall_agreed: bool) -> None:
        del wall_agreed
        real(self, wall_agreed=True)

    Removals.expire = expire  # type: ignore[method-assign]


def deletes_write_nothing() -> None:
    """68: the deletion of a group is answered, and no record is written about it."""
    Removals._remove_group = lambda self, group_id, then: then(None)  # type: ignore[method-assign]


def older_joins_are_forgotten() -> None:
    """69: when two joins of a member wait, the older one is never answered."""

    def update(self: Joins, group: LiveGroup, join: Any, member: Any) -> None:
        del self
        group.update(member, join.protocols, join.rebalance_ms, join.request.session_timeout_ms)
        group.wait_for_join(member, join.answer)

    Joins._update = update  # type: ignore[method-assign]


def sessions_do_not_begin_with_a_coordinator() -> None:
    """70: a new coordinator does not begin the sessions of its members."""
    load, keep_alive = Shared.load, Shared.keep_alive
    loading: list[bool] = []

    def loads(self: Shared) -> None:
        loading.append(True)
        load(self)
        loading.clear()

    def keeps_alive(self: Shared, group: LiveGroup, member: Any) -> None:
        if not loading:
            keep_alive(self, group, member)

    Shared.load = loads  # type: ignore[method-assign]
    Shared.keep_alive = keeps_alive  # type: ignore[method-assign]


def sessions_never_end() -> None:
    """70b: a member that has died stays in its group without end."""
    Rebalances.session_is_over = lambda self, group, member_id: None  # type: ignore[method-assign]


def offsets_outlive_their_topic() -> None:
    """71: nothing removes the offsets of a topic that was deleted."""
    Removals.topics_changed = lambda *arguments: None  # type: ignore[method-assign, assignment]


def pending_ids_never_go() -> None:
    """72: an id that was given out and is not used holds up every rebalance."""
    real = Rebalances.session_is_over

    def over(self: Rebalances, group: LiveGroup, member_id: str) -> None:
        if member_id not in group.pending:
            real(self, group, member_id)

    Rebalances.session_is_over = over  # type: ignore[method-assign]


def offsets_without_a_majority() -> None:
    """73: a coordinator tells offsets without confirming that it still coordinates."""

    def confirmed(self: GroupCoordinators, coordinator: Coordinator, then: Any) -> None:
        del self, coordinator
        then(ErrorCode.NONE)

    GroupCoordinators.confirmed = confirmed  # type: ignore[method-assign]


def generations_given_twice() -> None:
    """74: a coordinator counts on from the generation that has an assignment."""

    def floor(self: GroupsMachine, group_id: str) -> int:
        stored = self.group(group_id)
        return 0 if stored is None else stored.generation

    GroupsMachine.generation_floor = floor  # type: ignore[method-assign]


def older_generations_are_given_again() -> None:
    """74b: a join may get the stored generation, though another member was told of a later one."""

    def is_newest(self: Joins, group: LiveGroup) -> bool:
        del self
        return group.state is GroupState.STABLE

    Joins._is_newest = is_newest  # type: ignore[method-assign]


def older_assignment_counts() -> None:
    """74c: an assignment that is decided late is given to the members of a newer generation."""
    real = Syncs._assignment_decided

    def decided(
        self: Syncs, group: LiveGroup, generation: int, assignments: Any, error: Any
    ) -> None:
        del generation
        real(self, group, group.generation, assignments, error)

    Syncs._assignment_decided = decided  # type: ignore[method-assign]


def installs_leave_machines_as_they_are() -> None:
    """75: a replica that is installed keeps the old state of its machine."""

    def installed(self: MachineFeed, position: Any, snapshot: Any) -> Any:
        machine, self.judge = self.machine, None
        self.machine = copy.deepcopy(machine)
        producers = real(self, position, snapshot)
        self.machine = machine
        return producers

    real = MachineFeed.installed
    MachineFeed.installed = installed  # type: ignore[method-assign]


def removals_wait_for_no_state() -> None:
    """75b: a replica removes everything below the committed log start before a state covers it.

    Two guards go: the removal reads that state, and makes its name durable.
    """
    jobs._readable_head = lambda disk, order: order.heads[0]
    jobs._begin_with = write_head


def tombstones_are_passed_over() -> None:
    """76: a machine keeps a key when a record without a value removes it."""
    real = GroupsMachine._put

    def put(self: GroupsMachine, table: Any, key: Any, value: Any, entry: bytes) -> None:
        if value is not None:
            real(self, table, key, value, entry)

    GroupsMachine._put = put  # type: ignore[method-assign]


def the_first_offset_stays() -> None:
    """77: now and then a machine keeps the older of two commits."""
    real = GroupsMachine._take_offset

    def take(self: GroupsMachine, read: Any) -> None:
        held = self.offset(read.group, read.topic, read.partition)
        if held is not None and read.stored is not None and read.stored.offset % 4 == 0:
            return
        real(self, read)

    GroupsMachine._take_offset = take  # type: ignore[method-assign]


def leaves_share_out_nothing() -> None:
    """78: when a member leaves, its partitions go to no other member."""
    Rebalances.member_left = lambda self, group: None  # type: ignore[method-assign]


def all_get_what_the_leader_gets() -> None:
    """79: each member gets the assignment of the group's leader."""
    real = syncing._assigned

    def assigned(group: LiveGroup, member: Any) -> Any:
        return real(group, group.members.get(group.leader or "", member))

    syncing._assigned = assigned


def syncs_do_not_wait_for_the_leader() -> None:
    """80: a follower that syncs early gets its old assignment."""
    real = Syncs.sync

    def sync(self: Syncs, request: Any, answer: Any) -> None:
        group = self._shared.find(request.group_id)
        member = None if group is None else group.members.get(request.member_id)
        if group is None or member is None or group.leader == request.member_id:
            real(self, request, answer)
        elif member.assignment and request.generation_id == group.generation:
            answer(syncing._assigned(group, member))
        else:
            real(self, request, answer)

    Syncs.sync = sync  # type: ignore[method-assign]


def undecided_commits_are_not_counted_off() -> None:
    """81: a coordinator remembers every commit as undecided."""
    real = Offsets._count

    def count(self: Offsets, group_id: str, keys: Any, step: int) -> None:
        if step > 0:
            real(self, group_id, keys, step)

    Offsets._count = count  # type: ignore[method-assign]


def alarms_of_the_gone() -> None:
    """82: sessions of members that are gone keep running."""
    Shared.end_session = lambda self, group_id, member_id: None  # type: ignore[method-assign]


MUTANTS = (
    ("62", "commits-answered-at-once", commits_answered_at_once, ("group-on-record",)),
    ("62b", "joins-answered-at-once", _answered_at_once("_generation"), ("group-on-record",)),
    ("62c", "syncs-answered-at-once", _answered_at_once("_assignment"), ("group-on-record",)),
    ("63", "coordinators-open-before-they-load", coordinators_open_before_they_load,
     ("liveness",)),
    ("64", "coordinators-outlive-their-leadership", coordinators_outlive_their_leadership,
     ("liveness", "assertion")),
    ("64b", "lost-leadership-answers-nobody", lost_leadership_answers_nobody,
     ("group-answered-once",)),
    ("65", "static-members-are-dropped-with-the-others",
     static_members_are_dropped_with_the_others, ("group-static-stays",)),
    ("66", "generations-are-not-compared", generations_are_not_compared, ("group-fences",)),
    ("66b", "who-left-may-commit", who_left_may_commit, ("group-fences",)),
    ("67", "offsets-expire-by-one-clock", offsets_expire_by_one_clock, ("group-offsets-live",)),
    ("68", "deletes-write-nothing", deletes_write_nothing, ("group-offsets-kept",)),
    ("69", "older-joins-are-forgotten", older_joins_are_forgotten, ("group-answered-once",)),
    ("70", "sessions-do-not-begin-with-a-coordinator", sessions_do_not_begin_with_a_coordinator,
     ("liveness",)),
    ("70b", "sessions-never-end", sessions_never_end, ("liveness",)),
    ("71", "offsets-outlive-their-topic", offsets_outlive_their_topic, ("liveness",)),
    ("72", "pending-ids-never-go", pending_ids_never_go, ("liveness",)),
    ("73", "offsets-without-a-majority", offsets_without_a_majority, ("group-offsets-kept",)),
    ("74", "generations-given-twice", generations_given_twice, ("group-generations-rise",)),
    ("74b", "older-generations-are-given-again", older_generations_are_given_again,
     ("group-generations-rise",)),
    ("74c", "older-assignment-counts", older_assignment_counts, ("group-on-record",)),
    ("75", "installs-leave-machines-as-they-are", installs_leave_machines_as_they_are,
     ("machine-agrees",)),
    ("75b", "removals-wait-for-no-state", removals_wait_for_no_state, ("lost-rightly",)),
    ("76", "tombstones-are-passed-over", tombstones_are_passed_over, ("machine-agrees",)),
    ("77", "the-first-offset-stays", the_first_offset_stays, ("group-offsets-kept",)),
    ("78", "leaves-share-out-nothing", leaves_share_out_nothing, ("liveness",)),
    ("79", "all-get-what-the-leader-gets", all_get_what_the_leader_gets, ("group-one-owner",)),
    ("80", "syncs-do-not-wait-for-the-leader", syncs_do_not_wait_for_the_leader,
     ("group-one-owner",)),
    ("81", "undecided-commits-are-not-counted-off", undecided_commits_are_not_counted_off,
     ("bounded",)),
    ("82", "alarms-of-the-gone", alarms_of_the_gone, ("bounded",)),
)  # fmt: skip

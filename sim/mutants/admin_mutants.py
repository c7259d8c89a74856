"""Planted bugs of administration: changes of controllers, of directories, and moves.

Moves may be taken back or throttled. As in raft_mutants.py.
"""

from typing import Any

import attrs
from raftlog_sim.world import more_disks

from raftlog.base.entries import Membership
from raftlog.base.limits import DIRECTORY_COPY_JOB_BYTES
from raftlog.broker.control import controller
from raftlog.broker.replicas import directory_moves
from raftlog.broker.replicas.directory_moves import DirectoryMoves
from raftlog.broker.replicas.live_copy import LiveCopy
from raftlog.broker.replicas.throttles import Throttles
from raftlog.metadata.commands import ChangeController
from raftlog.metadata.rules import apply_controllers
from raftlog.metadata.rules.applied import Applied
from raftlog.raft import membership
from raftlog.raft.throttle import UNTHROTTLED, Throttle
from raftlog.storage import write_round
from raftlog.storage.directories import directory_move
from raftlog.storage.directories.directory_move import SettledMoves
from raftlog.storage.files import opened, remove_if_there


def majority_at_risk() -> None:
    """93: a controller may leave although the others that live are no majority."""

    real = apply_controllers._with

    def accepted(image: Any, wanted: Any) -> Any:
        alive = [each for each in wanted if image.is_live(each)]
        if len(alive) > len(wanted) // 2:
            return real(image, wanted)
        return Applied(attrs.evolve(image, version=image.version + 1, controllers=wanted))

    apply_controllers._with = accepted


def controllers_change_uncommitted() -> None:
    """93b: the voters on the metadata follow the proposed membership, not the committed one."""
    real = controller.controller_requests.metadata_target
    propose = controller.Controller._propose

    def proposed(self: Any, command: Any, once: Any = None) -> Any:
        applied = propose(self, command, once)
        if isinstance(command, ChangeController):
            controller.controller_requests.metadata_target = lambda image: real(self.projected)
            self._move_metadata_group()
            controller.controller_requests.metadata_target = real
        return applied

    controller.Controller._propose = proposed  # type: ignore[method-assign]


def change_dies_with_its_leader() -> None:
    """93c: the next controller does not continue a change that its predecessor had begun."""
    real = controller.Controller._begin

    def begin(self: Any, term: Any) -> None:
        real(self, term)
        self._wanted = controller.controller_requests.metadata_target(self.turn.image)

    controller.Controller._begin = begin  # type: ignore[method-assign]


def old_copy_goes_first() -> None:
    """94: the old copy of a moving replica is deleted before the store names the new one."""
    real = DirectoryMoves._copied

    def copied(self: Any, move: Any, value: object) -> None:
        if isinstance(value, int):
            job = (self.volume.directory, directory_moves.end_move, (move.old, move.new))
            self.turn.job(*job, lambda done: None)
        real(self, move, value)

    DirectoryMoves._copied = copied  # type: ignore[method-assign]


def copies_are_not_synced() -> None:
    """94b: the new copy of a moving replica is written, and not synced."""

    def extend(disk: Any, source: Any, new: str, position: int, end: int) -> None:
        if position == 0:
            remove_if_there(disk, new)
        with opened(disk, new, create=position == 0, write=True) as target:
            directory_move._copy_bytes(source, target, position, end, new)

    directory_move._extend = extend


def one_directory_takes_all() -> None:
    """94c: a further directory that fails poisons the whole broker."""

    real = write_round._PoisonedError.__init__

    def begin(self: Any, cause: Any, directory: str) -> None:
        del directory
        real(self, cause, "")

    write_round._PoisonedError.__init__ = begin  # type: ignore[method-assign]


def moves_stay_unsettled() -> None:
    """94d: a boot leaves the remains of a move."""
    more_disks.settle_moves = lambda disk, registered, directories: SettledMoves(
        [], list(directories)
    )


def creations_count_as_replicas() -> None:
    """94h: what a creation left that was cut short counts as a second replica."""
    directory_move._has_no_record = lambda disk, path, names: not names


def remains_explain_nothing() -> None:
    """94i: only the new directory says that a replica moved, and only until the next boot."""
    directory_move._mark_old = lambda disk, old: None
    real = more_disks.settle_moves

    def settle(disk: Any, registered: Any, directories: Any) -> Any:
        settled = real(disk, registered, directories)
        sound = [attrs.evolve(each, error=None) for each in directories]
        directory_move._Settling(disk, sound).unmark(registered)
        return settled

    more_disks.settle_moves = settle


def removed_files_stay_in_the_copy() -> None:
    """94e: a segment that was copied before it was removed stays in the new directory."""
    directory_move._remove_others = lambda disk, new, wanted: None


def tail_is_not_copied() -> None:
    """94f: what a segment gained after it was copied is not copied when the replica rests."""
    directory_move._copy_rest = lambda disk, old, new, position: position


def copies_keep_no_rate() -> None:
    """94g: a copy between log directories does not wait for its throttle."""

    def reserve(self: Any) -> None:
        self._copy(DIRECTORY_COPY_JOB_BYTES, 0)

    LiveCopy._reserve = reserve  # type: ignore[method-assign]


def throttle_is_not_lifted() -> None:
    """95: a throttle of moves cannot be removed again."""
    real = Throttle.limit

    def limit(self: Any, rate: int) -> bool:
        return rate != UNTHROTTLED and real(self, rate)

    fill = Throttles._fill

    def filled(self: Any, throttling: Any, topic: Any, number: int) -> None:
        before = throttling.leader, throttling.followers
        fill(self, throttling, topic, number)
        if before[0] is not None:
            throttling.leader, throttling.followers = before

    Throttle.limit = limit  # type: ignore[method-assign]
    Throttles._fill = filled  # type: ignore[method-assign]


def cancelled_move_leaves_a_learner() -> None:
    """96: a move that is taken back leaves its learners where they are."""
    real = membership.next_step

    def next_step(current: Membership, target: Membership, caught_up: Any) -> Any:
        gone = [each for each in current.learners if each not in (*target.voters, *target.learners)]
        if gone and target.voters == current.voters:
            return None
        return real(current, target, caught_up)

    membership.next_step = next_step


MUTANTS = (
    ("93", "majority-at-risk", majority_at_risk, ("no-leader",)),
    ("93b", "controllers-change-uncommitted", controllers_change_uncommitted,
     ("controllers-wanted",)),
    ("93c", "change-dies-with-its-leader", change_dies_with_its_leader, ("liveness",)),
    ("94", "old-copy-goes-first", old_copy_goes_first, ("removed-rightly",)),
    ("94b", "copies-are-not-synced", copies_are_not_synced, ("mark-synced", "promise-durable")),
    ("94c", "one-directory-takes-all", one_directory_takes_all, ("directories-apart",)),
    ("94d", "moves-stay-unsettled", moves_stay_unsettled, ("assertion",)),
    ("94e", "removed-files-stay-in-the-copy", removed_files_stay_in_the_copy, ("copied-exactly",)),
    ("94f", "tail-is-not-copied", tail_is_not_copied, ("copied-exactly",)),
    ("94g", "copies-keep-no-rate", copies_keep_no_rate, ("moves-paced",)),
    ("94h", "creations-count-as-replicas", creations_count_as_replicas, ("exception",)),
    ("94i", "remains-explain-nothing", remains_explain_nothing, ("exception",)),
    ("95", "throttle-is-not-lifted", throttle_is_not_lifted, ("liveness",)),
    ("96", "cancelled-move-leaves-a-learner", cancelled_move_leaves_a_learner, ("liveness",)),
)  # fmt: skip

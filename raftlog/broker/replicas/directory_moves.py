"""Moves replicas between the log directories of this broker, one after another.

A replica serves while `LiveCopy` copies its segments. Then it hands its leadership to another
broker, if one can take it, and rests while the broker copies what is left and switches.
`raftlog.storage.directories.directory_move` says why a crash at any step loses nothing.

A move can be taken back, or sent to another directory, until the replica rests: its copy is then
deleted. One that rests already is moved once more.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, final

import attrs

from raftlog.base.errors import RaftlogError
from raftlog.base.ids import GroupId, Offset
from raftlog.base.probes import probe
from raftlog.base.units import NEVER, Instant, Nanos, millis
from raftlog.broker.replicas.hosts import FOR_GOOD, Host, HostState
from raftlog.broker.replicas.live_copy import LiveCopy
from raftlog.broker.replicas.volume import Volume
from raftlog.broker.turn import Turn
from raftlog.raft.throttle import Throttle
from raftlog.storage.boot.recovery import delete_replica
from raftlog.storage.directories.directory_move import end_move, finish_copy
from raftlog.storage.directories.log_directories import directory_of
from raftlog.storage.ops import CloseGroup

_HAND_OVER_NS: Final[Nanos] = millis(3_000)
"""How long the replica waits for another broker to take its leadership; then it stops anyway."""
_LOOK_NS: Final[Nanos] = millis(20)
"""How often it looks whether that happened."""


@final
@attrs.define(eq=False)
class _Move:
    """One replica on its way from one path to another."""

    host: Host
    old: str
    new: str
    deadline: Instant = NEVER
    """When the replica stops although no other broker took its leadership."""
    copy: LiveCopy | None = None
    rests: bool = False
    """The replica was stopped: the move ends, or fails, and is not taken back any more."""
    taken_back: bool = False

    @property
    def group(self) -> GroupId:
        return self.host.spec.group


@final
@attrs.define(eq=False)
class DirectoryMoves:
    """The moves that wait or run on this broker.

    `hosts` are the partition manager's. `throttle` bounds copies while replicas serve. `stop` ends
    a replica in memory. `open_host` recovers a replica from the files at its path.
    """

    turn: Turn
    volume: Volume
    throttle: Throttle
    hosts: dict[GroupId, Host]
    stop: Callable[[Host], None]
    open_host: Callable[[Host], None]
    _waiting: dict[GroupId, str] = attrs.Factory(dict)
    """Group -> prefix of the wanted directory; at most one for each replica here."""
    _running: _Move | None = None

    def ask(self, group: GroupId, prefix: str) -> None:
        """Move the group's replica into that directory. A later call replaces an earlier one."""
        directories, running = self.turn.log_directories, self._running
        self._waiting.pop(group, None)
        if running is not None and running.group == group:
            is_same = directory_of(running.new) == prefix
            if is_same or not running.rests:
                running.taken_back = not is_same
            if is_same:
                directories.moving[group] = prefix
                return
        if directories.directory_of(group) == prefix and not self._rests(group):
            directories.moving.pop(group, None)
            return
        self._waiting[group] = prefix
        directories.moving[group] = prefix
        self._begin_next()

    def progress(self, group: GroupId) -> tuple[int, Offset] | None:
        """How far the copy of a replica is: its bytes, and the offset below which it has all
        records. None when the replica is not being copied."""
        running = self._running
        if running is None or running.group != group or running.copy is None or running.taken_back:
            return None
        return running.copy.byte_count, running.copy.offset

    def _rests(self, group: GroupId) -> bool:
        running = self._running
        return running is not None and running.group == group and running.rests

    def _begin_next(self) -> None:
        while self._running is None and self._waiting:
            group = next(iter(self._waiting))
            prefix = self._waiting.pop(group)
            host = self.hosts.get(group)
            if host is None or not _may_move(host) or directory_of(host.spec.path) == prefix:
                self.turn.log_directories.moving.pop(group, None)
                continue
            old = host.spec.path
            plain = old[len(directory_of(old)) + 1 :] if directory_of(old) else old
            new = f"{prefix}/{plain}" if prefix else plain
            move = self._running = _Move(host, old, new)
            self.turn.log_directories.moving[group] = prefix
            self.turn.trace("replica-move-begins", host.label, old=old, new=new)
            move.copy = LiveCopy(
                self.turn,
                self.volume.directory,
                host,
                old,
                new,
                self.throttle,
                wanted=partial(self._is_wanted, move),
                then=partial(self._copied_live, move),
            )
            move.copy.begin()

    def _copied_live(self, move: _Move, error: RaftlogError | None) -> None:
        """Only the tail is left, or the copy failed, or is not wanted any more."""
        if error is not None and self._is_wanted(move):
            self._fail(move, error)
        elif not self._is_wanted(move):
            self._take_back(move)
        else:
            move.deadline = Instant(self.turn.now + _HAND_OVER_NS)
            self._hand_over(move)

    def _take_back(self, move: _Move) -> None:
        """End a move whose replica serves at its old place, or is gone from this broker."""
        if self._is_present(move):
            # A deletion removes the copy as well; of a failed directory, the next boot does.
            probe("replica-move-taken-back")
            self.turn.trace("replica-move-taken-back", move.host.label, path=move.new)
            self._forget_copy(move)
        self._end(move)

    def _fail(self, move: _Move, error: RaftlogError) -> None:
        probe("replica-move-failed")
        self.turn.trace("replica-move-failed", move.host.label, why=str(error))
        self._forget_copy(move)
        self._end(move)

    def _hand_over(self, move: _Move) -> None:
        """Transfer the leadership away, then stop the replica."""
        turn, replica = self.turn, move.host.replica
        assert move.copy is not None, move.group
        if not self._is_wanted(move):
            self._take_back(move)
            return
        if replica is None or replica is not move.copy.replica:
            move.copy.go_on()  # it was reopened, and is looked at again
            return
        heirs = [
            voter for voter in replica.in_sync if voter != replica.me and turn.link_up(voter.node)
        ]
        if replica.is_leader and heirs and turn.now < move.deadline:
            if replica.node.transferring is None:
                replica.transfer(heirs[0], turn.now)
                turn.touch(move.group)
            turn.at(Instant(turn.now + _LOOK_NS), self._hand_over, move)
            return
        move.rests = True
        self.stop(move.host)
        move.host.state, move.host.why = HostState.MOVING, f"it moves to {move.new}"
        self.volume.ops.append(CloseGroup(move.group))
        self.volume.when_durable(partial(self._copy, move))

    def _copy(self, move: _Move) -> None:
        """Copy what is left; the writer has closed the files."""
        if not self._is_present(move):
            self._end(move)
            return
        assert move.copy is not None, move.group
        done, args = partial(self._copied, move), (move.old, move.new, move.copy.copied)
        self.turn.job(self.volume.directory, finish_copy, args, done)

    def _copied(self, move: _Move, value: object) -> None:
        if not self._is_present(move):
            # The replica was deleted during the copy: the deletion removes the copy as well.
            self._end(move)
            return
        if isinstance(value, RaftlogError):
            self.open_host(move.host)
            self._fail(move, value)
            return
        assert isinstance(value, int), value
        self.volume.records += self.volume.store.relocate(move.group, move.new)
        self.volume.when_durable(partial(self._switched, move, value))

    def _forget_copy(self, move: _Move) -> None:
        done = partial(self._tidied, move)
        self.turn.job(self.volume.directory, delete_replica, (move.new,), done)

    def _switched(self, move: _Move, copied_bytes: int) -> None:
        """Go on at the new path, which the store names durably now."""
        probe("replica-moved")
        move.host.spec = attrs.evolve(move.host.spec, path=move.new)
        if self._is_present(move):
            self.turn.log_directories.moved(move.group, move.new)
            self.open_host(move.host)
            done = partial(self._tidied, move)
            self.turn.job(self.volume.directory, end_move, (move.old, move.new), done)
        self.turn.trace("replica-moved", move.host.label, path=move.new, bytes=copied_bytes)
        self._end(move)

    def _tidied(self, move: _Move, value: object) -> None:
        """Trace files that could not be deleted; the next boot deletes them."""
        if isinstance(value, RaftlogError):
            self.turn.trace("replica-move-leaves-files", move.host.label, why=str(value))

    def _is_present(self, move: _Move) -> bool:
        host = move.host
        return self.hosts.get(move.group) is host and host.state not in FOR_GOOD

    def _is_wanted(self, move: _Move) -> bool:
        return self._is_present(move) and not move.taken_back and _may_move(move.host)

    def _end(self, move: _Move) -> None:
        if self.turn.log_directories.moving.get(move.group) == directory_of(move.new):
            del self.turn.log_directories.moving[move.group]
        self._running = None
        self._begin_next()


def _may_move(host: Host) -> bool:
    """Whether its replica runs, or soon will again."""
    return host.state is not HostState.LOST and host.state not in FOR_GOOD

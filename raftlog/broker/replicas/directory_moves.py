"""Moves replicas between the log directories of this broker, one after another.

The broker stops the replica while it copies the files. Before that, the replica hands its
leadership to another broker, if one can take it. `raftlog.storage.directories.directory_move` says
why a crash at any step loses nothing.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, final

import attrs

from raftlog.base.errors import RaftlogError
from raftlog.base.ids import GroupId
from raftlog.base.probes import probe
from raftlog.base.units import Instant, Nanos, millis
from raftlog.broker.replicas.hosts import FOR_GOOD, Host, HostState
from raftlog.broker.replicas.volume import Volume
from raftlog.broker.turn import Turn
from raftlog.storage.boot.recovery import delete_replica
from raftlog.storage.directories.directory_move import copy_replica, end_move
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
    deadline: Instant

    @property
    def group(self) -> GroupId:
        return self.host.spec.group


@final
@attrs.define(eq=False)
class DirectoryMoves:
    """The moves that wait or run on this broker.

    `hosts` are the partition manager's. `stop` ends a replica in memory. `open_host` recovers a
    replica from the files at its path.
    """

    turn: Turn
    volume: Volume
    hosts: dict[GroupId, Host]
    stop: Callable[[Host], None]
    open_host: Callable[[Host], None]
    _waiting: dict[GroupId, str] = attrs.Factory(dict)
    """Group -> prefix of the wanted directory; at most one for each replica here."""
    _running: _Move | None = None

    def ask(self, group: GroupId, prefix: str) -> None:
        """Move the group's replica, which runs here, into that directory. A later call replaces a
        move that still waits."""
        directories = self.turn.log_directories
        if self._running is not None and self._running.group == group:
            if directory_of(self._running.new) == prefix:
                return
        elif directories.directory_of(group) == prefix:
            self._waiting.pop(group, None)
            directories.moving.pop(group, None)
            return
        self._waiting[group] = prefix
        directories.moving[group] = prefix
        self._begin_next()

    def _begin_next(self) -> None:
        while self._running is None and self._waiting:
            group = next(iter(self._waiting))
            prefix = self._waiting.pop(group)
            host = self.hosts.get(group)
            if host is None or host.replica is None or directory_of(host.spec.path) == prefix:
                self.turn.log_directories.moving.pop(group, None)
                continue
            old = host.spec.path
            plain = old[len(directory_of(old)) + 1 :] if directory_of(old) else old
            new = f"{prefix}/{plain}" if prefix else plain
            deadline = Instant(self.turn.now + _HAND_OVER_NS)
            move = self._running = _Move(host, old, new, deadline)
            self.turn.log_directories.moving[group] = prefix
            self.turn.trace("replica-move-begins", host.label, old=old, new=new)
            self._hand_over(move)

    def _hand_over(self, move: _Move) -> None:
        """Transfer the leadership away, then stop the replica."""
        turn, replica = self.turn, move.host.replica
        if not self._is_present(move) or replica is None:
            self._end(move)
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
        self.stop(move.host)
        move.host.state, move.host.why = HostState.MOVING, f"it moves to {move.new}"
        self.volume.ops.append(CloseGroup(move.group))
        self.volume.when_durable(partial(self._copy, move))

    def _copy(self, move: _Move) -> None:
        if not self._is_present(move):
            self._end(move)
            return
        done = partial(self._copied, move)
        self.turn.job(self.volume.directory, copy_replica, (move.old, move.new), done)

    def _copied(self, move: _Move, value: object) -> None:
        if not self._is_present(move):
            # The replica was deleted during the copy: the deletion removes the copy as well.
            self._end(move)
            return
        if isinstance(value, RaftlogError):
            probe("replica-move-failed")
            self.turn.trace("replica-move-failed", move.host.label, why=str(value))
            self._forget_copy(move)
            self.open_host(move.host)
            self._end(move)
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

    def _end(self, move: _Move) -> None:
        if self.turn.log_directories.moving.get(move.group) == directory_of(move.new):
            del self.turn.log_directories.moving[move.group]
        self._running = None
        self._begin_next()

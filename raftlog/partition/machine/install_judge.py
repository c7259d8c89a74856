"""Judges the state of an install before the replica hears its last piece.

The state of a machine with 100,000 offsets takes a second to check and to restore. A job does both:

1. The judge holds back the piece that completes the state. The node hears it without its content,
   so that it knows that its leader is there and does not ask for another piece.
2. A job checks the state and restores a new machine from it.
3. The node hears the whole piece. The log takes the state without another check, and the feed takes
   the machine.

To Raft the held message is a late one. When the job cannot restore the state, the judge delivers
the piece too; the log then checks the state itself and refuses it, like any bad state.
"""

from functools import partial
from typing import Final, NamedTuple, final

import attrs

from raftlog.base.binary import Buffer
from raftlog.base.ids import GroupId, RaftIndex
from raftlog.base.probes import probe
from raftlog.base.units import Instant
from raftlog.partition.background_tasks import BackgroundTasks
from raftlog.partition.machine.applied import AppliedMachine, MachineFactory, read_state
from raftlog.partition.producing.producer_snapshot import check_producers
from raftlog.raft.messages import Install
from raftlog.raft.node import RaftNode
from raftlog.storage.partition_log import PartitionLog

_NOTHING: Final = b""


def judged_machine(
    disk: object, make: MachineFactory, group: GroupId, before: RaftIndex, snapshot: Buffer
) -> AppliedMachine:
    """A machine restored from the state of an install, the state before the entry `before`.

    It runs as a job and needs no disk. Raises what `check_state` raises.
    """
    del disk
    state = read_state(group, snapshot)
    check_producers(group, before, state.producers)
    machine = make()
    machine.restore(state.machine)
    return machine


class _Verdict(NamedTuple):
    """A state that the job found good, and the machine that it restored."""

    snapshot: bytes
    machine: AppliedMachine


@final
@attrs.define(eq=False)
class InstallJudge:
    """Judges the states of installs for one replica, one at a time (see the module)."""

    make: MachineFactory
    log: PartitionLog
    tasks: BackgroundTasks
    _held: Install | None = None
    """The piece that completes the state which a job judges now."""
    _verdict: _Verdict | None = None

    def hear(self, node: RaftNode, message: Install) -> Install:
        """The piece as the node may hear it now: whole, or without its content."""
        last = message.start + len(message.chunk) == message.total
        if self._held is not None and last:
            # A job judges a state. The leader sent its last piece again, or that of another state:
            # the leader will repeat it, and then it is judged.
            return message._replace(chunk=_NOTHING)
        snapshot = node.install_whole(message) if last else None
        if snapshot is None or (self._verdict is not None and self._verdict.snapshot == snapshot):
            return message
        probe("install-judged-by-a-job")
        self._held = message._replace(chunk=bytes(message.chunk))
        before = RaftIndex(message.position.raft_index + 1)
        args = (self.make, message.group, before, snapshot)
        self.tasks.start(judged_machine, args, partial(self._judged, node, snapshot))
        return message._replace(chunk=_NOTHING)

    def _judged(self, node: RaftNode, snapshot: bytes, value: object, now: Instant) -> None:
        held, self._held = self._held, None
        assert held is not None, "a job judges a piece that is held"
        self._verdict = self.log.judged = None
        if not isinstance(value, BaseException):
            self._verdict = _Verdict(snapshot, value)  # type: ignore[arg-type]  # as the job says
            self.log.judged = snapshot
        node.receive([held], now)

    def machine_of(self, snapshot: Buffer) -> AppliedMachine | None:
        """The machine that a job made of this state; None when none did. It is the caller's."""
        verdict, self._verdict = self._verdict, None
        if verdict is None or verdict.snapshot != snapshot:
            return None
        return verdict.machine

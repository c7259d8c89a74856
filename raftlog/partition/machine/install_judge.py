"""Judges the state of an install before the replica hears its last piece.

The state of a machine with 100,000 offsets takes a second to check and to restore. A job does both:

1. The piece that completes the state is held. The node hears it without its content, so that it
   knows that its leader is there, and asks for no other piece.
2. A job checks the state and restores a new machine from it.
3. The node hears the piece. The log takes the state without another look, and the feed the machine.

To Raft a held message is a late one. A state that the job could not restore is delivered as well:
the log refuses it for itself, as any bad state.
"""

from functools import partial
from typing import Final, NamedTuple, final

import attrs

from raftlog.base.binary import Buffer
from raftlog.base.ids import GroupId, RaftIndex
from raftlog.base.probes import probe
from raftlog.base.units import Instant
from raftlog.partition.errands import Errands
from raftlog.partition.machine.applied import AppliedMachine, MachineFactory, read_state
from raftlog.partition.producing.producer_snapshot import check_producers
from raftlog.raft.messages import Install
from raftlog.raft.node import RaftNode
from raftlog.storage.partition_log import PartitionLog

_NOTHING: Final = b""


def judged_machine(
    disk: object, make: MachineFactory, group: GroupId, before: RaftIndex, snapshot: Buffer
) -> AppliedMachine:
    """Job: a machine with the state before an entry, which is all that an install may bring.
    Raises what `check_state` does."""
    del disk
    state = read_state(group, snapshot)
    check_producers(group, before, state.producers)
    machine = make()
    machine.restore(state.machine)
    return machine


class _Verdict(NamedTuple):
    """A state that is good, and what it makes."""

    snapshot: bytes
    machine: AppliedMachine


@final
@attrs.define(eq=False)
class InstallJudge:
    """See the module. One state at a time."""

    make: MachineFactory
    log: PartitionLog
    errands: Errands
    _held: Install | None = None
    """The piece that completes the state which a job judges."""
    _verdict: _Verdict | None = None

    def hear(self, node: RaftNode, message: Install) -> Install:
        """The piece as the node may hear it now: whole, or without its content."""
        last = message.start + len(message.chunk) == message.total
        if self._held is not None and last:
            return message._replace(chunk=_NOTHING)  # sent again, or of another state: in its turn
        snapshot = node.install_whole(message) if last else None
        if snapshot is None or (self._verdict is not None and self._verdict.snapshot == snapshot):
            return message
        probe("install-judged-by-a-job")
        self._held = message._replace(chunk=bytes(message.chunk))
        before = RaftIndex(message.position.raft_index + 1)
        args = (self.make, message.group, before, snapshot)
        self.errands.start(judged_machine, args, partial(self._judged, node, snapshot))
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
        """The machine with this state, which is the caller's from now on; None when no job made
        one."""
        verdict, self._verdict = self._verdict, None
        if verdict is None or verdict.snapshot != snapshot:
            return None
        return verdict.machine

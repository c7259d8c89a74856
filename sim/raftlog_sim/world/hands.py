"""Performs the effects of a turn for a simulated process."""

from collections.abc import Sequence
from typing import final

import attrs

from raftlog.base.errors import DiskError
from raftlog.broker import events as e
from raftlog.records.slices import FileSlice
from raftlog.storage.segments.jobs import read_slice
from raftlog_sim.world import disk_work
from raftlog_sim.world.boot import Boot
from raftlog_sim.world.client import cut_frames
from raftlog_sim.world.faces import SimNode


@final
@attrs.define(eq=False)
class SimHands:
    """The `raftlog.broker.turn_queue.Hands` of one boot of a node."""

    node: SimNode
    boot: Boot
    _syncs_here: bool = False
    """Whether the round of this turn is synced inside the turn."""

    def write(self, writes: Sequence[e.Write]) -> None:
        """Queue rounds; the disk begins with them soon."""
        boot = self.boot
        boot.rounds.extend(writes)
        self._syncs_here = disk_work.syncs_inline(self.node, boot)
        if not boot.writing and not self._syncs_here:
            disk_work.begin_round(self.node, boot)

    def unlink(self, unlink: e.Unlink) -> None:
        """End a session with a peer."""
        self.node.world.network.unlink(self.node.number, unlink.peer, unlink.session)

    def keep_peers(self, peers: tuple[e.PeerAddress, ...]) -> None:
        """Keep links to these peers and no others."""
        self.boot.peers = peers
        self.node.world.network.look()

    def send(self, sends: Sequence[e.PeerSend]) -> None:
        """Send to peers."""
        for send in sends:
            self.node.world.network.send(self.node.number, send.peer, send.session, send.messages)

    def throttle(self, change: e.Pause | e.Resume) -> None:
        """Stop reading from a connection, or read on: the requests held meanwhile then arrive."""
        if isinstance(change, e.Pause):
            self.boot.paused[change.connection] = None
            return
        self.boot.paused.pop(change.connection, None)
        held, self.boot.held = self.boot.held, []
        for event in held:
            if event.connection in self.boot.clients:
                self.node.arrive(self.boot, event)

    def reply(self, replies: Sequence[e.Reply]) -> None:
        """Hand answers to the clients as bytes; file slices are read now, while the file exists."""
        for reply in replies:
            self._answer(reply)

    def _answer(self, reply: e.Reply) -> None:
        client = self.boot.clients.get(reply.connection)
        if client is None:
            return
        if reply.parts is None:
            client.answered(reply.request_no, None)
            return
        try:
            frame = b"".join(self._bytes_of(part) for part in reply.parts)
        except DiskError:  # as when sendfile fails: the client cannot use half an answer
            self.hang_up(e.Hangup(reply.connection))
            return
        self.node.deliver(e.Drained(reply.connection, len(frame)))
        for number, each in enumerate(cut_frames(frame, reply.answers), reply.request_no):
            client.answered(number, each)

    def _bytes_of(self, part: e.Part) -> bytes:
        return read_slice(self.node.files, part) if isinstance(part, FileSlice) else bytes(part)

    def hang_up(self, hangup: e.Hangup) -> None:
        """Close a connection."""
        client = self.boot.clients.pop(hangup.connection, None)
        if client is not None:
            self.node.deliver(e.ConnectionClosed(hangup.connection))
            client.lost()

    def read(self, read: e.Read) -> None:
        """Queue a cold read."""
        self.run_job(read)

    def run_job(self, job: e.Job | e.Read) -> None:
        """Queue a job; the disk begins with it soon."""
        self.boot.jobs.append(job)
        if not self.boot.working:
            disk_work.begin_job(self.node, self.boot)

    def answer_admin(self, reply: e.AdminReply) -> None:
        """Keep the answer to an admin call."""
        self.boot.admin[reply.token] = reply.value

    def sync_lone_rounds(self, writes: Sequence[e.Write]) -> None:
        """Begin to write and sync the lone round; the process does nothing else meanwhile."""
        if self._syncs_here:
            disk_work.begin_inline(self.node, self.boot)

    def leave(self) -> None:
        """Note that the broker has stopped: the process may end."""
        self.boot.stopped = True

"""Ends a turn: takes each touched replica once, and turns its output into effects.

Some turns later the rounds come back: written, durable or failed.
"""

from collections.abc import Callable
from functools import partial
from typing import Protocol, final

import attrs

from raftlog.base.ids import METADATA_GROUP, GroupId, IoId
from raftlog.base.probes import probe
from raftlog.broker.deadlines import GroupDeadlines
from raftlog.broker.events import PeerSend, Persisted, WriteFailed, Written
from raftlog.broker.replicas.campaigns import Campaigns
from raftlog.broker.replicas.multi_raft import MultiRaft
from raftlog.broker.replicas.partition_manager import PartitionManager
from raftlog.broker.replicas.volume import Volume
from raftlog.broker.turn import Turn
from raftlog.partition.output import Completion, ReplicaJob, ReplicaOutput
from raftlog.partition.replica import PartitionReplica
from raftlog.storage.directories.log_directories import DirectoryFailed
from raftlog.storage.segments.time_jobs import scan_times

Watcher = Callable[[PartitionReplica, ReplicaOutput], None]


class Producers(Protocol):
    """The producers that wait until their partitions accept more records."""

    @property
    def has_groups_over(self) -> bool: ...

    def settled(self, group: GroupId, uncommitted: int) -> None: ...


@final
@attrs.define(eq=False)
class WriteRounds:
    """Takes replicas, hands out rounds, and tells replicas how their rounds went.

    `replica_changed` hears of outputs with a new leadership, membership or in-sync set, and of a
    machine that begins or ceases to serve requests. `metadata_taken` hears of every output of the
    metadata group. `leader_known` is called when a replica's term becomes durable, because the
    replica may then name its leader.
    """

    turn: Turn
    volume: Volume
    multi: MultiRaft
    manager: PartitionManager
    deadlines: GroupDeadlines
    campaigns: Campaigns
    producers: Producers
    metadata_taken: Watcher
    replica_changed: Watcher
    leader_known: Callable[[], None]
    awaiting: dict[GroupId, None] = attrs.Factory(dict)
    """Groups led here that cannot go on before a follower answers."""
    _io_id: int = 0

    # --- handing out ---

    def finish_turn(self) -> None:
        """Take the touched replicas, and turn their output into the effects of the turn."""
        turn = self.turn
        completed: list[Completion] = []
        if turn.touched:
            self._io_id += 1
            metadata = turn.touched.pop(METADATA_GROUP, None)
            if metadata is not None:
                self._take(metadata, completed)
                turn.run_soon()
            touched, turn.touched = turn.touched, {}
            if metadata is not None and METADATA_GROUP in touched:
                probe("metadata-group-waits-for-the-next-turn")
                turn.touched[METADATA_GROUP] = touched.pop(METADATA_GROUP)
            for replica in touched.values():
                self._take(replica, completed)
        else:
            self._io_id += 1
        for then, answer in completed:
            then(answer)
        self._write()
        self._send()

    def _take(self, replica: PartitionReplica, completed: list[Completion]) -> None:
        turn, group = self.turn, replica.group
        output = replica.take(IoId(self._io_id), turn.now, turn.wall)
        completed += output.completed
        if output.send:
            for message in output.send:
                turn.send(message.to.node, message)
        if turn.replicas.get(group) is not replica:
            if group == METADATA_GROUP:  # closed: a controller that it made is none any more
                self.metadata_taken(replica, output)
            return
        if replica.node.awaits_answers or replica.awaits_in_sync:
            self.awaiting[group] = None
        else:
            self.awaiting.pop(group, None)
        if output.ops or output.store_records:
            volume = self.volume
            volume.ops += output.ops
            volume.records += output.store_records
            volume.replicas.append(replica)
        self.deadlines.set(group, output.deadline)
        if output.leadership:
            turn.routes += 1
            if not replica.is_campaigning:
                self._campaign_ended(replica)
        if output.jobs:
            self._start_jobs(replica, output.jobs)
        if output.agreed or output.uncovered or output.leadership:
            self.multi.taken(replica, output)
        if self.producers.has_groups_over:
            self._settle(replica)
        if output.damage is not None:
            turn.soon(self.manager.failed, group, replica, output.damage)
        if output.differs is not None:
            turn.soon(self.manager.differs, group, replica, output.differs)
        if group == METADATA_GROUP:
            self.metadata_taken(replica, output)
        elif output.leadership or output.membership or output.in_sync or output.serves_machine:
            self.replica_changed(replica, output)

    def _campaign_ended(self, replica: PartitionReplica) -> None:
        """Give back the group's place among the campaigns, if it holds one."""
        # A winner keeps its place until it has committed: that costs the whole group work, too.
        if not replica.is_leader or replica.ready:
            self.campaigns.ended(replica.group, led=replica.leader is not None)

    def _start_jobs(self, replica: PartitionReplica, jobs: list[ReplicaJob]) -> None:
        for token, function, args in jobs:
            done = partial(self._job_done, replica, token)
            if function is scan_times:
                self.turn.search(replica, function, args, done)
            else:
                self.turn.job(replica.directory, function, args, done)

    def _job_done(self, replica: PartitionReplica, token: int, value: object) -> None:
        if self.turn.replicas.get(replica.group) is not replica:
            probe("job-of-a-closed-replica-dropped")
            return
        replica.job_done(token, value, self.turn.now)
        self.turn.touch(replica.group)

    def _settle(self, replica: PartitionReplica) -> None:
        """Let producers go on once few bytes wait to be committed. Waiting requests may have timed
        out before the leader was ready."""
        left = replica.uncommitted_bytes if replica.is_leader else 0
        self.producers.settled(replica.group, left)

    def _write(self) -> None:
        write = self.volume.take(IoId(self._io_id), self.turn.now)
        if write is not None:
            self.turn.effects.writes.append(write)

    def _send(self) -> None:
        turn = self.turn
        if not turn.outbox:
            return
        outbox, turn.outbox = turn.outbox, {}
        for node, messages in outbox.items():
            link = turn.sessions.get(node)
            if link is not None:
                turn.effects.sends.append(PeerSend(node, link.session, messages))

    def dropped(self, group: GroupId) -> None:
        """Forget a group whose replica is gone."""
        self.awaiting.pop(group, None)

    # --- coming back ---

    def written(self, event: Written) -> None:
        """Note that the round's bytes can be read from the files. That promises nothing, so no
        waiting client is answered and no replica is taken."""
        for replica in self._replicas_of(event.io_id):
            replica.written(event.io_id)

    def persisted(self, event: Persisted) -> None:
        """Note that the round is durable, except for groups that were reported as failed."""
        replicas = self._replicas_of(event.io_id)
        found = self.volume.rounds.pop(event.io_id, None)
        if found is None:
            probe("completion-of-no-round-dropped")
            return
        for replica in replicas:
            replica.log.persisted(event.io_id)  # a mark may speak of it; nothing counts by it yet
            self.volume.store.note_mark(replica.log.mark(replica.commit), self.turn.now)
        if self.turn.config.strict_mark and replicas:
            self.volume.when_durable(partial(self._tell, replicas, event.io_id))
        else:
            self._tell(replicas, event.io_id)
        for call in found.after:
            call()

    def _tell(self, replicas: list[PartitionReplica], io_id: IoId) -> None:
        """Tell these replicas that the round counts; with strict marks, its marks are durable."""
        for replica in replicas:
            if self.turn.replicas.get(replica.group) is replica:
                pending = not replica.node.term_durable
                replica.persisted(io_id, self.turn.now)
                if pending and replica.node.term_durable:
                    self.turn.routes += 1
                    self.leader_known()
                self.turn.touched[replica.group] = replica

    def _replicas_of(self, io_id: IoId) -> list[PartitionReplica]:
        """The round's replicas that still run."""
        found = self.volume.rounds.get(io_id)
        if found is None:
            return []
        running = self.turn.replicas
        return [replica for replica in found.replicas if running.get(replica.group) is replica]

    def failed(self, event: WriteFailed) -> None:
        """Handle a failed write: of some groups, of a further directory, or of the whole volume."""
        if event.groups is None:
            self.volume.poisoned = event.error
            self.volume.rounds.clear()
            self.manager.poisoned(event.error)
            return
        if isinstance(event.error, DirectoryFailed):
            self.manager.directory_failed(event.error)
            return
        replicas = {replica.group: replica for replica in self._replicas_of(event.io_id)}
        for group in event.groups:
            replica = replicas.get(group)
            if replica is not None:
                self.manager.failed(group, replica, event.error)

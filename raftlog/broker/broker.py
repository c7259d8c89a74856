"""Broker.handle(events, now_ns, wall_ms) -> Effects: one call decides everything for one turn.

Theory of operation. A turn handles its events and runs the timers that are due. Then it takes every
touched replica exactly once and folds the replica's output into the effects: one Write per data
directory under one io_id, one PeerSend per peer, answers, jobs. A completion may touch a replica
that was already taken. That replica waits for the next turn, which is then due at once. Nothing
here waits, opens a file or reads a clock.

Laws:

1. Every Request gets exactly one Reply, unless its connection ends before.
2. A promise leaves only in the turn of the `Persisted` that made it true, or later: replicas hold
   it.
3. A peer's message changes something only if it is addressed to a replica that runs here, by its
   whole id, and came over the present session.

The parts live in three rooms that do not import each other. `front` has clients and their requests,
`replicas` the partitions that run here and the links to peers, `control` the metadata and the
controller. Each part gets the `turn` and, by its constructor, what else it needs. Handlers get the
`context`: the turn, with the parts that requests reach.
"""

from collections.abc import Callable, Sequence
from typing import Any, final

from raftlog.base.errors import LocalMisuse
from raftlog.base.ids import METADATA_GROUP, GroupId
from raftlog.base.ports import Entropy, Tracer
from raftlog.base.probes import probe
from raftlog.base.units import Instant, Nanos, WallMillis
from raftlog.broker import events as e
from raftlog.broker.admin import Admin
from raftlog.broker.config import BrokerConfig
from raftlog.broker.context import Context
from raftlog.broker.control.controller import Controller
from raftlog.broker.control.controller_calls import ControllerClient
from raftlog.broker.control.controller_channel import ControllerChannel
from raftlog.broker.control.image_waiters import ImageWaiters
from raftlog.broker.control.metadata_loader import MetadataLoader
from raftlog.broker.control.metadata_log import MetadataLog
from raftlog.broker.control.once import OnceRequests
from raftlog.broker.control.reassignment import Reassignment
from raftlog.broker.control.registration import BrokerRegistration
from raftlog.broker.deadlines import GroupDeadlines
from raftlog.broker.front.answers import TurnAnswers
from raftlog.broker.front.clients import Clients
from raftlog.broker.front.ledger import Ledger
from raftlog.broker.front.router import Floor, Router
from raftlog.broker.groups.coordinators import GroupCoordinators
from raftlog.broker.groups.offsets_topic import OffsetsTopic
from raftlog.broker.handlers import Handlers
from raftlog.broker.log_directories import BrokerDirectories
from raftlog.broker.replicas.campaigns import Campaigns
from raftlog.broker.replicas.incarnations import Incarnations
from raftlog.broker.replicas.links import Links
from raftlog.broker.replicas.machines import machine_for
from raftlog.broker.replicas.multi_raft import MultiRaft
from raftlog.broker.replicas.node_clocks import NodeClocks
from raftlog.broker.replicas.partition_manager import PartitionManager
from raftlog.broker.replicas.rounds import WriteRounds
from raftlog.broker.replicas.scrubbing import Scrubber
from raftlog.broker.replicas.stopping import Stopping
from raftlog.broker.replicas.throttles import Throttles
from raftlog.broker.replicas.volume import Volume
from raftlog.metadata.delta import ClusterDelta, delta_between
from raftlog.metadata.image import EMPTY_IMAGE, ClusterImage
from raftlog.partition.output import ReplicaOutput
from raftlog.partition.replica import PartitionReplica
from raftlog.raft.options import RaftOptions
from raftlog.storage.directories.data_dir import DirectoryImage
from raftlog.storage.directories.log_directories import FurtherImage
from raftlog.storage.directories.store import StoreImage


@final
class Broker:
    """Decides for one process. The constructor does nothing that a turn could see."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        directories: Sequence[DirectoryImage],
        further: Sequence[FurtherImage] = (),
        entropy: Entropy,
        tracer: Tracer,
        now: Instant,
    ) -> None:
        directory = _the_directory(config, directories)
        identity = directory.identity
        self._identity = identity
        self._begun = False
        self.context = context = Context(
            config=config,
            cluster=identity.cluster,
            directory=identity.directory,
            boot=directory.boot,
            entropy=entropy,
            tracer=tracer,
            now=now,
            log_directories=BrokerDirectories.of_boot(
                config.data_path or f"directory-{identity.directory:016x}", further
            ),
        )
        mark_delay = Nanos(0) if config.strict_mark else config.mark_idle_ns
        self.volume = Volume(identity.directory, StoreImage(directory, mark_delay))
        self.deadlines = GroupDeadlines()
        self.campaigns = Campaigns(config.election_ns)
        clocks = NodeClocks()
        self.scrubber = context.scrubber = Scrubber(context, config.scrub_interval_ns)
        self.multi = MultiRaft(context, config.heartbeat_ns, config.election_ns, clocks)
        self._make_metadata_parts()
        self._make_client_parts(clocks)
        raft = _raft_options(config, directory.promised_ns)
        self.throttles = Throttles(context)
        self.manager = PartitionManager(
            context,
            self.volume,
            raft,
            self.registration,
            self._group_dropped,
            clocks,
            machine_for,
            self.throttles,
        )
        context.moves = self.manager.moves
        incarnations = Incarnations(context, self.volume, self.registration.put_back)
        self.links = Links(
            context, self.multi, self.registration, self.metadata_log, self.channel, incarnations
        )
        self.rounds = WriteRounds(
            context,
            self.volume,
            self.multi,
            self.manager,
            self.deadlines,
            self.campaigns,
            self.ledger,
            self._metadata_taken,
            self._replica_changed,
            self.image_waiters.changed,
        )
        self.stopping = Stopping(context, self.volume)
        self.admin = Admin(self)
        self._dispatch = self._make_dispatch()

    def _make_dispatch(self) -> dict[type, Callable[[Any], None]]:
        return {
            e.PeerMessages: self.links.messages,
            e.Persisted: self.rounds.persisted,
            e.Written: self.rounds.written,
            e.Drained: self.clients.drained,
            e.ReadDone: self._done,
            e.JobDone: self._done,
            e.ConnectionOpened: self.clients.opened,
            e.ConnectionClosed: self.clients.closed,
            e.LinkUp: self.links.link_up,
            e.LinkDown: self.links.link_down,
            e.WriteFailed: self.rounds.failed,
            e.AdminCall: self.admin.call,
            e.Stop: self._stop,
        }

    def _make_client_parts(self, clocks: NodeClocks) -> None:
        context = self.context
        self.ledger = context.ledger = Ledger(context.config.limits)
        self.answers = context.answers = TurnAnswers(context, self.ledger)
        self.router = context.router = Router(context, _floors(self.volume.store))
        self.image_waiters = context.image_waiters = ImageWaiters(context)
        client = ControllerClient(context, self.channel, self.once, self.image_waiters)
        context.controller = client
        topic = OffsetsTopic(context, self.router, client)
        self.groups = GroupCoordinators(context, clocks, self.ledger, client, topic)
        context.groups = self.groups
        handlers = Handlers(context)
        self.clients = Clients(
            context, self.ledger, self.answers, handlers.handle, handlers.take_run
        )

    def _make_metadata_parts(self) -> None:
        context = self.context
        self.metadata_log = MetadataLog(context)
        self.controller = Controller(
            context,
            self.metadata_log,
            self._identity.controllers,
            digest_every=context.config.metadata_digest_every,
            snapshot_every=context.config.metadata_snapshot_every,
        )
        self.channel = ControllerChannel(context, self.controller)
        incarnation = int.from_bytes(context.entropy.bytes(8), "big")
        self.once = OnceRequests(incarnation)
        self.registration = BrokerRegistration(context, self.channel, incarnation, self._granted)
        self.reassignment = Reassignment(context, self.channel)
        self.loader = MetadataLoader(
            context, self.metadata_log, self.controller, self._image_changed
        )
        self.metadata_log.wake = self.loader.advance
        self._retired = self._late = False

    # --- the turn ---------------------------------------------------------------------------------

    def handle(self, events: Sequence[e.Event], now_ns: int, wall_ms: int) -> e.Effects:
        """One turn. `now_ns` never goes back; it was read after the last byte of the last event."""
        context = self.context
        assert now_ns >= context.now, (now_ns, context.now)
        context.now, context.wall = Instant(now_ns), WallMillis(wall_ms)
        context.effects = effects = e.Effects()
        if not self._begun:
            self._begin()
        self.clients.begin_turn()
        dispatch = self._dispatch
        at = 0
        while at < len(events):
            event = events[at]
            if type(event) is e.Request:
                at += self.clients.requests(events, at)
            else:
                dispatch[type(event)](event)
                at += 1
        context.timers.run_due(context.now)
        self._tick()
        context.run_soon()
        self.groups.propose()
        self._look_whether_retired()
        self.rounds.finish_turn()
        self.clients.relieve()
        if self._retired or (self._late and not self.clients.serving):
            self.clients.turn_away()
        effects.pauses = self.ledger.changes()
        effects.stopped = self.stopping.done
        effects.acks_may_wait = not self.rounds.awaiting
        effects.wake_at = self._wake_at()
        return effects

    def _tick(self) -> None:
        """Tick replicas whose deadline has come, and start campaigns as far as there is room."""
        context, campaigns, now = self.context, self.campaigns, self.context.now
        for group in self.deadlines.due(now):
            replica = context.replicas.get(group)
            if replica is None:
                continue
            if replica.wants_to_campaign(now):
                if group == METADATA_GROUP:
                    self._put_off(replica)
                elif not campaigns.admit(group, now):
                    continue
            self._tick_one(replica)
        while (next_group := campaigns.next()) is not None:
            replica = context.replicas.get(next_group)
            if replica is None or not replica.wants_to_campaign(now):
                campaigns.ended(next_group, led=False)
                continue
            self._tick_one(replica)

    def _tick_one(self, replica: PartitionReplica) -> None:
        """Tick a replica that may campaign now.

        Its place is given back at once when no campaign began (the disk is stalled, say): nothing
        else would give it back.
        """
        replica.tick(self.context.now, self.context.wall)
        self.context.touched[replica.group] = replica
        if not (replica.is_campaigning or replica.is_leader):
            self.campaigns.ended(replica.group, led=False)

    def _put_off(self, replica: PartitionReplica) -> None:
        """Let the metadata group's replica wait before it campaigns, if this broker lags behind."""
        # Other replicas ignore votes of a broker that lacks committed metadata. A campaign would
        # fail now and double this replica's back-off, so that it would wait when it could win.
        if self.metadata_log.behind:
            probe("metadata-campaign-waits-for-the-image")
            replica.node.put_off(Instant(self.context.now + self.context.config.heartbeat_ns))

    def _look_whether_retired(self) -> None:
        """Retire this boot if its directory was rolled back, condemned, replaced, or failed a sync.

        Such a directory takes part in nothing. The process stays, to tell its operators why. To the
        cluster and to clients it is dead, so that they go to others: its image never changes again.
        """
        if self._retired:
            return
        if self.registration.refused is not None:
            self.manager.refused(self.registration.message)
        elif self.volume.poisoned is not None:
            self.registration.end()
        else:
            return
        self._retired, self.clients.serving = True, False

    def _look_whether_late(self) -> None:
        """Turn clients away from now on: the broker has not opened in a session since the boot."""
        if self.clients.serving or self._retired:
            return
        probe("opens-late")
        why = "the controllers are not reached after the boot, or what they committed"
        self.context.trace("opens-late", f"node {self.context.node}", why=why)
        self._late = True

    def _wake_at(self) -> Instant:
        context = self.context
        if context.touched or context.waits_for_turn or self.campaigns.has_next:
            return context.now
        if self.clients.deferred:
            return context.now
        return min(self.deadlines.next(), context.timers.next(), self.volume.deadline)

    def _begin(self) -> None:
        """Begin what the first turn does beside its events: group 0 here, links, registration."""
        self._begun = True
        late_at = Instant(self.context.now + self.context.config.session_ns)
        self.context.at(late_at, self._look_whether_late)
        known = self.volume.store.registrations.get(METADATA_GROUP)
        founder = next(
            (r for r in self._identity.controllers if r.directory == self.context.directory), None
        )
        if known is not None:
            founders = self._identity.controllers or (known.replica,)
            self.manager.start_metadata(known.replica, founders)
        elif founder is not None:
            self.manager.start_metadata(founder, self._identity.controllers)
        self.links.addresses_changed()
        self.registration.start()
        self.scrubber.start()

    def _done(self, event: e.ReadDone | e.JobDone) -> None:
        self.context.done(event.token, event.value)

    def _stop(self, event: e.Stop) -> None:
        self.stopping.begin(event.deadline)

    # --- what the parts tell each other -----------------------------------------------------------

    def _group_dropped(self, group: GroupId) -> None:
        self.deadlines.forget(group)
        self.campaigns.dropped(group)
        self.multi.dropped(group)
        self.rounds.dropped(group)
        self.throttles.dropped(group)
        self.groups.dropped(group)
        self.ledger.settled(group, 0)

    def _granted(self) -> None:
        """Begin a joiner's replica of the metadata group, after the controller's grant."""
        grant = self.registration.grant
        assert grant is not None, "granted without a grant"
        if self._retired:
            return
        self.manager.start_metadata(grant.metadata_replica, grant.founders)
        self._open_partitions()

    def _open_partitions(self) -> None:
        """Start the user replicas, once: when the image is as new as this boot's registration.

        An id that was deleted in an earlier boot is then known to be gone.
        """
        grant = self.registration.grant
        image = self.context.image
        if self.context.caught_up or self._retired:
            return
        if grant is None or image.version < grant.epoch:
            return
        self.context.caught_up = True
        self.context.routes += 1
        whole = delta_between(EMPTY_IMAGE, image, self.context.node, self.context.directory)
        self.manager.apply(whole)

    def _metadata_taken(self, replica: PartitionReplica, output: ReplicaOutput) -> None:
        self.loader.look()
        if output.committed or output.leadership or output.installed:
            self.loader.advance()
        if output.leadership or output.membership:
            self.image_waiters.changed()

    def _replica_changed(self, replica: PartitionReplica, output: ReplicaOutput) -> None:
        self.reassignment.look(replica.group)
        if output.leadership or output.serves_machine:
            self.groups.replica_changed(replica)
        if output.leadership:
            self.image_waiters.changed()

    def _image_changed(self, image: ClusterImage, delta: ClusterDelta) -> None:
        """Apply what committed commands changed in the image."""
        self.context.image = image
        self.context.routes += 1
        if self.context.caught_up:
            if delta.evicted:  # before that, the log may mean the directory that this one replaced
                self.registration.evicted()
            self.manager.apply(delta)
        else:
            self._open_partitions()
        self.throttles.image_changed(image, delta)
        if delta.brokers:
            self.links.addresses_changed()
            self.links.recheck()
            self.manager.fence()
        for removal in delta.delete:
            if removal.topic_id not in image.topics:
                self.router.forget(removal.group)
        if delta.deleted:
            self.groups.topics_deleted(delta.deleted_names)
        for group in delta.moved:
            if group in self.context.replicas:
                self.reassignment.look(group)
        self.image_waiters.changed()
        self.registration.image_changed()
        self._serve_clients()

    def _serve_clients(self) -> None:
        """Serve clients once the cluster takes this boot for alive; else it names no broker."""
        context = self.context
        if self.clients.serving or not context.caught_up or self._retired:
            return
        own = context.image.brokers.get(context.node)
        if own is not None and not own.fenced:
            self.clients.serve()


def _raft_options(config: BrokerConfig, promised_ns: Nanos) -> RaftOptions:
    return RaftOptions(
        heartbeat_ns=config.heartbeat_ns,
        election_ns=config.election_ns,
        append_bytes_max=config.append_bytes_max,
        appends_in_flight_max=config.appends_in_flight_max,
        lease_ns=config.lease_ns,
        earlier_lease_ns=promised_ns,
    )


def _floors(store: StoreImage) -> dict[GroupId, Floor]:
    """The term of each replica that this directory answers for, where it has stored one."""
    terms, ours = store.hard_states, store.registrations.items()
    return {group: Floor(each.replica, terms[group].term) for group, each in ours if group in terms}


def _the_directory(config: BrokerConfig, directories: Sequence[DirectoryImage]) -> DirectoryImage:
    """The one data directory, which must be formatted for this node."""
    if len(directories) != 1:
        raise LocalMisuse(f"{len(directories)} data directories", do="configure exactly one")
    identity = directories[0].identity
    if identity.node != config.node:
        raise LocalMisuse(
            f"the data directory belongs to node {identity.node}, this is node {config.node}",
            do="use the directory that was formatted for this node",
        )
    return directories[0]

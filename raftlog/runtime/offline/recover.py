"""Lets a data directory go on whose fellow voters are lost for ever, offline.

A group decides by majorities. Where the disks of a majority are gone, no election can be won, and
waiting does not help. An operator may then decide that what one surviving replica holds is the
truth. Nothing else can decide that, for what the lost disks held beyond it is lost.

How it works, for each group whose majority is among the lost nodes:
1. The store gets a term above all that the replica has seen, with a vote for itself, so that no
   leader of an earlier term is heard again.
2. The log goes on behind what is whole here: a FORCED_RECOVERY entry says which voters were given
   up, and a MEMBERSHIP entry makes this replica the only voter.
3. The mark says that all of it is committed.

A sole voter whose closed segments are damaged is written once more first (`filling`), at another
path, with fillers over the lost offsets. The store switches to that path, then the files come back
to the old one in the same way.

Each step is durable before the next one begins, and a group that is done is left alone, so a
recovery that was cut short is run again. Entries that the group had committed and this replica
never had are lost; entries that it had and the group had not committed count from now on.
"""

from collections.abc import Iterator, Sequence
from typing import Final, final

import attrs

from raftlog.base.entries import EntryKind, HardState, Membership
from raftlog.base.errors import CorruptData, FutureFormat, OperatingError
from raftlog.base.ids import (
    METADATA_GROUP,
    TERM_MAX,
    DirectoryId,
    GroupId,
    NodeId,
    RaftIndex,
    Term,
)
from raftlog.base.ports import Disk
from raftlog.base.units import WallMillis
from raftlog.metadata.image import EMPTY_IMAGE, ClusterImage
from raftlog.partition.producing.producer_snapshot import check_producers
from raftlog.raft.quorum import majority
from raftlog.records.control import (
    ForcedRecovery,
    write_forced_recovery,
    write_membership_body,
)
from raftlog.runtime.offline.cluster import image_of
from raftlog.runtime.offline.directory import OfflineDirectory, OfflineReplica, control_entry
from raftlog.runtime.offline.filling import lost_stretches, rewrite
from raftlog.storage.boot.recovery import (
    RecoveredReplica,
    ReplicaState,
    delete_replica,
    recover_replica,
)
from raftlog.storage.directories.data_dir import DirectoryImage, peek_directory
from raftlog.storage.directories.log_directories import (
    FURTHER_FILE,
    LogDirectories,
    directory_of,
    open_further,
)
from raftlog.storage.directories.store_records import (
    hard_state_record,
)
from raftlog.storage.directories.unfinished import refuse_unfinished
from raftlog.storage.ops import StoreRecords
from raftlog.storage.replica import LogOptions, Mark, Registration, ReplicaSpec

_FILLED: Final = "-filled"
"""Ends the path of a log that was written once more, until it is at the replica's own path."""
KEPT: Final = "kept"
FORCED: Final = "forced"
LOST: Final = "lost"
STUCK: Final = "stuck"


@final
@attrs.frozen(kw_only=True)
class GroupFound:
    """One replica of the directory and what is done with it.

    * `action`: "kept" (its majority is not among the lost, nothing is done), "forced" (goes on
      alone), "lost" (its files are beyond reading, nothing can be done), "stuck" (`why` says so).
    * `voters`: those of its last configuration, both halves.
    * `last_index`, `next_offset`: where the log goes on. `committed`: the offset up to which it is
      known here to have been committed; what lies between was perhaps not.
    * `given_up_from`: the first offset of the damaged part that goes; None without damage.
    * `holes`: lost offsets, each from the first up to the second (exclusive), with records behind
      them that are kept.
    """

    group: GroupId
    name: str
    path: str
    action: str
    why: str = ""
    voters: tuple[str, ...] = ()
    last_index: int = 0
    next_offset: int = 0
    committed: int = 0
    given_up_from: int | None = None
    holes: tuple[tuple[int, int], ...] = ()


@final
@attrs.frozen(kw_only=True)
class Recovery:
    """The findings of a recovery, or its actions. `absent` are partitions of the cluster, as far as
    this directory knows it, whose voters are all lost or elsewhere and which have no replica
    here."""

    node: NodeId
    groups: tuple[GroupFound, ...]
    absent: tuple[str, ...]
    carried_out: bool


def recover_directory(
    disk: Disk,
    lost: frozenset[NodeId],
    wall_ms: WallMillis,
    *,
    carry_out: bool,
    further: Sequence[Disk] = (),
) -> Recovery:
    """Look at every replica of a data directory that no broker has open, and of its `further` log
    directories, and force those whose majority is on the `lost` nodes if `carry_out`. Like a boot,
    it cuts torn tails and writes index files.

    Raises `OperatingError` when this node is named as lost, when a further directory is not given
    or another's, when other work was cut short, and what `peek_directory` raises."""
    image = peek_directory(disk)
    refuse_unfinished(disk)
    node = image.identity.node
    disks = _further_disks(image, further)
    if disks:
        disk = LogDirectories(disk, disks)
    if node in lost:
        raise OperatingError(
            f"node {node} is this data directory's own",
            on="--lost",
            do="name the nodes whose disks are gone, not the one that is left",
        )
    work = _Work(OfflineDirectory(disk, image, disks), lost, wall_ms)
    found = [work.look(group) for group in sorted(image.registrations)]
    if carry_out:
        work.force([each.group for each in found if each.action == FORCED])
    return Recovery(
        node=node,
        groups=tuple(found),
        absent=tuple(work.absent()),
        carried_out=carry_out,
    )


def _further_disks(image: DirectoryImage, further: Sequence[Disk]) -> dict[str, Disk]:
    """The further log directories by prefix; each that holds a registered replica must be given,
    for what lies there is not lost."""
    disks: dict[str, Disk] = {}
    for number, each in enumerate(further, 1):
        name = f"further log directory {number}"
        if not each.exists(FURTHER_FILE):
            do = "name the further paths of log.dirs"
            raise OperatingError("this is no further log directory", on=name, do=do)
        found = open_further(each, image.identity, name, DirectoryId(0))
        if found.error is not None:
            raise found.error
        disks[found.prefix] = each
    for registration in image.registrations.values():
        prefix = directory_of(registration.path)
        if prefix and prefix not in disks:
            raise OperatingError(
                "a replica lies in a further log directory that is not given",
                on=registration.path,
                do="name every further path of log.dirs with --log-dir",
            )
    return disks


@final
@attrs.define(eq=False)
class _Work:
    directory: OfflineDirectory
    lost: frozenset[NodeId]
    wall_ms: WallMillis
    _opened: dict[GroupId, RecoveredReplica] = attrs.Factory(dict)
    _cluster: ClusterImage | None = None

    def look(self, group: GroupId) -> GroupFound:
        """Return the state of this group's replica, and the action that it needs."""
        registration = self.directory.image.registrations[group]
        name, path = self._name(group), registration.path
        spec = attrs.evolve(
            self.directory.spec_of(group, registration),
            check_state=check_producers if group == METADATA_GROUP else _any_state,
        )
        try:
            replica = self._recovered(spec)
        except FutureFormat as error:
            return GroupFound(group=group, name=name, path=path, action=STUCK, why=str(error))
        log = replica.log
        if replica.state is ReplicaState.LOST or log is None:
            return GroupFound(group=group, name=name, path=path, action=LOST, why=replica.why)
        self._opened[group] = replica
        membership = replica.memberships[-1][1]
        action, why = self._action(group, replica, membership)
        committed = log.offset_at(replica.commit_hint)
        damaged = action == FORCED and replica.claimed is not None
        stretches = lost_stretches(self.directory.disk, log) if log.gaps else []
        return GroupFound(
            group=group,
            name=name,
            path=path,
            action=action,
            why=why or replica.why,
            voters=tuple(str(voter) for voter in membership.all_voters()),
            last_index=log.last_index,
            next_offset=log.next_offset,
            committed=0 if committed is None else committed,
            given_up_from=log.next_offset if damaged else None,
            holes=tuple((lost.before.offset, lost.after.offset) for lost in stretches),
        )

    def _recovered(self, spec: ReplicaSpec) -> RecoveredReplica:
        """The replica as its files are. A sole one is read whole. If it is damaged, it is opened
        with its gaps, for the records behind them can be kept. Not so where records build on each
        other, as in group 0 and in internal topics."""
        mark = self.directory.image.marks.get(spec.group)
        replica = recover_replica(self.directory.disk, spec, mark, LogOptions())
        if not (replica.log is not None and replica.memberships[-1][1].decides_alone):
            return replica
        # No index file vouches for a segment here: this is the last look at a sole replica.
        replica = recover_replica(
            self.directory.disk, spec, mark, LogOptions(), trust_indexes=False
        )
        place = self.cluster.places.get(spec.group)
        single = place is not None and not self.cluster.topics[place[0]].internal
        if replica.state is not ReplicaState.DAMAGED or not single:
            return replica
        spec = attrs.evolve(spec, serves_gaps=True)
        with_gaps = recover_replica(
            self.directory.disk, spec, mark, LogOptions(), trust_indexes=False
        )
        whole = with_gaps.state is ReplicaState.INTACT and with_gaps.log is not None
        alone = whole and not with_gaps.memberships[-1][1].learners
        return with_gaps if alone else replica

    def _action(
        self, group: GroupId, replica: RecoveredReplica, membership: Membership
    ) -> tuple[str, str]:
        me = self.directory.image.registrations[group].replica
        if me not in membership.everyone():
            return KEPT, "this replica is none of the group any more"
        alone = membership.decides_alone and me in membership.voters
        gaps = replica.log.gaps if replica.log is not None else ()
        if alone and replica.claimed is None and not gaps:
            return KEPT, ""
        if not alone and not self._is_majority_lost(membership):
            return KEPT, ""
        if self._next_term(group, replica) > TERM_MAX:
            return STUCK, "the term of this group is spent"
        return FORCED, ""

    def _is_majority_lost(self, membership: Membership) -> bool:
        """Whether what is left of one half of the voters is no majority of it."""
        return any(
            half and sum(each.node not in self.lost for each in half) < majority(len(half))
            for half in (membership.voters, membership.outgoing)
        )

    def _next_term(self, group: GroupId, replica: RecoveredReplica) -> int:
        state, log = self.directory.image.hard_states.get(group), replica.log
        assert log is not None, group
        seen = [log.last_term, state.term if state else 0, (replica.claimed or (0, 0))[1]]
        return max(seen) + 1

    # --- doing it ---------------------------------------------------------------------------------

    def force(self, groups: Sequence[GroupId]) -> None:
        """Let each of these go on alone, one after another."""
        try:
            # Group 0 comes last: as long as it is not done, no broker can serve what is half done.
            for group in sorted(groups, key=lambda each: (each == METADATA_GROUP, each)):
                self._force(group, self._opened[group])
            for group, registration in self.directory.image.registrations.items():
                if registration.path.endswith(_FILLED) and group not in groups:
                    self._bring_back(group, registration)
                elif self.directory.disk.exists(registration.path + _FILLED):
                    delete_replica(self.directory.disk, registration.path + _FILLED)
        finally:
            self.directory.close()

    def _force(self, group: GroupId, replica: RecoveredReplica) -> None:
        log, me = replica.log, self.directory.image.registrations[group].replica
        assert log is not None, group
        state = HardState(Term(self._next_term(group, replica)), me)
        term = state.term
        self.directory.write(group, [StoreRecords([hard_state_record(group, state)])])
        filled = bool(log.gaps)
        if filled:
            log = rewrite(self.directory.disk, log, log.spec.path + _FILLED, self.directory.flush)
        before = replica.memberships[-1][1]
        claimed = replica.claimed[0] if replica.claimed else RaftIndex(0)
        given_up = tuple(each for each in before.all_voters() if each != me)
        recovery = write_forced_recovery(ForcedRecovery(given_up, claimed))
        alone = write_membership_body(Membership((me,)))
        for kind, body in ((EntryKind.FORCED_RECOVERY, recovery), (EntryKind.MEMBERSHIP, alone)):
            log.append([control_entry(log, term, kind, body, self.wall_ms)])
        self.directory.flush(log)
        if not filled:
            self.directory.settle(log)
            return
        registration = Registration(me, log.spec.path)
        self.directory.register(registration, log, state)
        self._bring_back(group, registration, state, log.mark(log.last_index))

    def _bring_back(
        self,
        group: GroupId,
        registration: Registration,
        state: HardState | None = None,
        mark: Mark | None = None,
    ) -> None:
        """Write a filled log at the path that belongs to the replica, where a broker looks for the
        files when it deletes them, and remove the other one."""
        spec = self.directory.spec_of(group, registration)
        mark, state = (
            mark or self.directory.image.marks.get(group),
            state or self.directory.image.hard_states.get(group),
        )
        log = recover_replica(self.directory.disk, spec, mark, LogOptions()).log
        assert log is not None, registration
        plain = registration.path.removesuffix(_FILLED)
        moved = rewrite(self.directory.disk, log, plain, self.directory.flush)
        self.directory.register(Registration(registration.replica, plain), moved, state)
        delete_replica(self.directory.disk, registration.path)

    # --- names ------------------------------------------------------------------------------------

    def _name(self, group: GroupId) -> str:
        place = self.cluster.places.get(group)
        if group == METADATA_GROUP:
            return "__cluster_metadata-0"
        if place is None:
            return f"group {group}"
        return f"{self.cluster.topics[place[0]].name}-{place[1]}"

    def absent(self) -> Iterator[str]:
        """Partitions that have no replica here, and no majority elsewhere."""
        for topic in self.cluster.topics.values():
            for number, partition in enumerate(topic.partitions):
                voters = partition.reported.membership
                if (
                    partition.group not in self.directory.image.registrations
                    and self._is_majority_lost(
                        voters if voters.voters else Membership(tuple(sorted(partition.founding)))
                    )
                ):
                    yield f"{topic.name}-{number}"

    @property
    def cluster(self) -> ClusterImage:
        """The cluster as this directory knows it, undecided commands too; empty when its metadata
        cannot be read."""
        if self._cluster is None:
            self._cluster = _cluster_image(self.directory)
        return self._cluster


def _any_state(group: GroupId, before: RaftIndex, body: object) -> None:
    """Snapshots are not looked at: what is appended does not depend on producers."""


def _cluster_image(directory: OfflineDirectory) -> ClusterImage:
    image = directory.image
    registration = image.registrations.get(METADATA_GROUP)
    if registration is None:
        return EMPTY_IMAGE
    spec = attrs.evolve(
        directory.spec_of(METADATA_GROUP, registration), check_state=check_producers
    )
    replica = recover_replica(directory.disk, spec, image.marks.get(METADATA_GROUP), LogOptions())
    if replica.log is None:
        return EMPTY_IMAGE
    try:
        return image_of(OfflineReplica(directory, replica))
    except (CorruptData, FutureFormat):
        return EMPTY_IMAGE

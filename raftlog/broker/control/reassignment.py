"""Moves partitions to their targets: the leader of a partition changes its group, and reports.

Group 0 holds the wanted replicas; the group's own log decides the real ones. This part looks at
each partition that is led here whenever something about it changed:

1. The raft node is told the target of the image. It takes the steps that are safe (learners first,
   promoted when near the end, joint consensus). A cancel is just another target. A move begins only
   when the image shows a report of this very leader: reports of earlier terms are then in the
   image, and no later one can come. Otherwise an old image might bring back a replica that has left
   and whose files are being removed (docs/bugs.md).
2. When the membership in force is committed and differs from the one last reported in the image, a
   report goes to the controller. So it does when the leader, the in-sync set or the target that was
   seen differ. One report per group is open at a time; later changes go with the next.
3. A partition that never had a leader is handed to the first choice of its placement, once: leaders
   are then spread as they were placed. After failures they are handed back little by little
   (auto.leader.rebalance.enable), to brokers that have been in sync for a whole interval and lead
   too few of the partitions whose first replica they have.

`target_version` in a report is the target that this leader had been told *before* it read its
membership. Only such a report lets the image forget replicas that it wants to forget.
"""

from collections import Counter
from typing import Final, final

import attrs

from raftlog.base.entries import Membership
from raftlog.base.errors import LocalMisuse
from raftlog.base.ids import METADATA_GROUP, GroupId, NodeId, ReplicaId, Term
from raftlog.base.limits import REPORTS_MAX
from raftlog.base.probes import probe
from raftlog.base.units import Instant
from raftlog.broker.control.controller_channel import ControllerChannel
from raftlog.broker.peer_messages import ControllerKind, ControllerReply
from raftlog.broker.turn import Turn
from raftlog.metadata.commands import ReportMembership
from raftlog.metadata.requests import Reports, encode_body
from raftlog.metadata.topic_image import PartitionImage, Reported
from raftlog.partition.replica import PartitionReplica

_LOOKS_PER_SESSION: Final = 6
"""Checks in the time of one session, after an answer, whether the image shows the report."""
BALANCED_AT_ONCE_MAX: Final = 32
"""The most partitions handed back at once: each transfer makes the producers of a partition look
for its leader, and not all should at the same time."""


@final
@attrs.define(eq=False)
class LedPartition:
    """The state of one partition in one term of leadership here.

    `told` is the target version that the raft node was given last, `target` that target. `serial`
    is that of the last report made here. `open` is whether a report awaits its answer.
    `first_in_sync`: the first choice for leader was in sync when balance was last checked, and ever
    since.
    """

    term: Term
    told: int = -1
    target: tuple[ReplicaId, ...] = ()
    serial: int = 0
    open: bool = False
    handed_over: bool = False
    first_in_sync: bool = False


@final
@attrs.define(eq=False)
class Reassignment:
    """All partitions led by this broker."""

    turn: Turn
    channel: ControllerChannel
    _balancing: bool = False
    _led: dict[GroupId, LedPartition] = attrs.Factory(dict)
    _due: dict[GroupId, None] = attrs.Factory(dict)
    _looking: bool = False

    def look(self, group: GroupId) -> None:
        """Look at a group of which something changed, here or in the image; not at group 0."""
        if group == METADATA_GROUP:
            return
        self._due[group] = None
        if not self._looking:
            self._looking = True
            self.turn.soon(self._look_at_due)

    def _look_at_due(self) -> None:
        reports: list[ReportMembership] = []
        while self._due and len(reports) < REPORTS_MAX:
            group = next(iter(self._due))
            del self._due[group]
            report = self._work(group)
            if report is not None:
                reports.append(report)
        if reports:
            self._send(tuple(reports))
        self._looking = bool(self._due)
        if self._due:
            probe("reports-go-in-parts")
            self.turn.at(self.turn.now, self._look_at_due)

    def _work(self, group: GroupId) -> ReportMembership | None:
        replica = self.turn.replicas.get(group)
        partition = self.turn.image.partition_of_group(group)
        if replica is None or partition is None or not replica.is_leader:
            self._led.pop(group, None)
            return None
        if not replica.ready:
            return None
        led = self._led.get(group)
        if led is None or led.term != replica.term:
            led = self._led[group] = LedPartition(replica.term)
            self._balance_later()
        if self._hand_to_preferred(replica, partition, led):
            return None
        if partition.target[0] not in replica.in_sync:
            led.first_in_sync = False
        self._tell_target(replica, partition, led)
        return self._report(replica, partition, led)

    def _tell_target(
        self, replica: PartitionReplica, partition: PartitionImage, led: LedPartition
    ) -> None:
        if led.told == partition.target_version:
            return
        target = Membership(tuple(sorted(partition.target)))
        if target != replica.membership and partition.leader_epoch != replica.term:
            probe("move-waits-for-a-report")
            return
        try:
            replica.change_membership(target, self.turn.now, self.turn.wall)
        except LocalMisuse:
            probe("target-refused-by-replica")
            return
        asked_again = led.target == partition.target
        led.told, led.target = partition.target_version, partition.target
        if asked_again:
            self._elect_preferred(replica)
        self.turn.touch(replica.group)

    # --- reports ---

    def _report(
        self, replica: PartitionReplica, partition: PartitionImage, led: LedPartition
    ) -> ReportMembership | None:
        """The report that is due, or None. Only committed membership is reported."""
        if led.open or replica.membership_index > replica.commit:
            return None
        before = partition.reported
        membership = replica.membership
        in_sync = tuple(r for r in sorted(replica.in_sync) if membership.is_voter(r))
        present = (replica.term, replica.membership_index)
        said = (before.term, before.membership_index)
        if said == present and _same(before, replica.me, membership, in_sync, led.told):
            return None
        led.serial = max(led.serial, before.serial if said == present else 0) + 1
        led.open = True
        return ReportMembership(
            group=replica.group,
            term=replica.term,
            membership_index=replica.membership_index,
            serial=led.serial,
            membership=membership,
            leader=replica.me,
            in_sync=in_sync,
            target_version=max(led.told, 0),
        )

    def _send(self, reports: tuple[ReportMembership, ...]) -> None:
        turn = self.turn
        deadline = Instant(turn.now + turn.config.session_ns)
        body = encode_body(Reports(reports=reports))
        then = _Sent(self, tuple((report.group, report.term) for report in reports)).answered
        self.channel.ask(ControllerKind.REPORT, body, deadline, then)

    def answered(self, groups: tuple[tuple[GroupId, Term], ...], reply: ControllerReply) -> None:
        """Take the controller's answer to reports: committed, partly refused, or none.

        A report that the image does not show after a while is sent again.
        """
        turn = self.turn
        for group, term in groups:
            led = self._led.get(group)
            if led is not None and led.term == term:
                led.open = False
        pause = turn.config.session_ns // _LOOKS_PER_SESSION
        turn.at(Instant(turn.now + pause), self._look_again, groups)

    def _look_again(self, groups: tuple[tuple[GroupId, Term], ...]) -> None:
        for group, _ in groups:
            if group in self._led:
                self.look(group)

    # --- the first choice ---

    def _hand_to_preferred(
        self, replica: PartitionReplica, partition: PartitionImage, led: LedPartition
    ) -> bool:
        """Hand a partition that no leader has reported yet to the first of its target, once."""
        first = partition.target[0]
        if led.handed_over or partition.leader is not None or first == replica.me:
            return False
        led.handed_over = True
        if first.node not in self.turn.sessions or first not in replica.membership.voters:
            return False
        probe("new-partition-handed-to-preferred-leader")
        replica.transfer(first, self.turn.now)
        self.turn.touch(replica.group)
        return True

    def _elect_preferred(self, replica: PartitionReplica) -> None:
        """Hand a partition to its preferred leader without waiting for the balance.

        A client asked for that (ElectLeaders): the same target was set once more.
        """
        first = self._first_choice(replica.group)
        if first is not None and replica.transferring is None:
            probe("preferred-leader-asked-for")
            replica.transfer(first, self.turn.now)
            self.turn.touch(replica.group)

    def _balance_later(self) -> None:
        config = self.turn.config
        if config.balance_leaders and not self._balancing:
            self._balancing = True
            self.turn.at(Instant(self.turn.now + config.balance_ns), self._balance)

    def _balance(self) -> None:
        """Hand partitions back to their first choices."""
        self._balancing = False
        handed = 0
        imbalanced: tuple[NodeId, ...] | None = None
        for group, led in self._led.items():
            first = self._first_choice(group)
            if first is None:
                led.first_in_sync = False
                continue
            if not led.first_in_sync:
                led.first_in_sync = True
                continue
            if imbalanced is None:
                imbalanced = self._imbalanced()
            if first.node in imbalanced and handed < BALANCED_AT_ONCE_MAX:
                probe("leadership-handed-back")
                handed += 1
                self.turn.replicas[group].transfer(first, self.turn.now)
                self.turn.touch(group)
        if self._led:
            self._balance_later()

    def _imbalanced(self) -> tuple[NodeId, ...]:
        """The brokers with too many of their partitions led by others.

        A broker's partitions are those whose first replica it has. The limit is
        `leader.imbalance.per.broker.percentage`.
        """
        first, elsewhere = Counter[NodeId](), Counter[NodeId]()
        for _, topic in sorted(self.turn.image.topics.items()):
            for partition in topic.partitions:
                node = partition.target[0].node
                first[node] += 1
                elsewhere[node] += partition.leader != partition.target[0]
        percent = self.turn.config.imbalance_percent
        return tuple(node for node in first if 100 * elsewhere[node] > percent * first[node])

    def _first_choice(self, group: GroupId) -> ReplicaId | None:
        """The replica that should lead a group led here instead, and could; else None."""
        replica = self.turn.replicas.get(group)
        partition = self.turn.image.partition_of_group(group)
        if replica is None or partition is None or not (replica.is_leader and replica.ready):
            return None
        first = partition.target[0]
        able = (
            first != replica.me
            and first in replica.in_sync
            and first in replica.membership.voters
            and not replica.membership.joint
            and first.node in self.turn.sessions
            and self.turn.image.is_live(first)
        )
        return first if able else None


@final
@attrs.frozen
class _Sent:
    """The groups that an answer is about."""

    reassignment: Reassignment
    groups: tuple[tuple[GroupId, Term], ...]

    def answered(self, reply: ControllerReply) -> None:
        self.reassignment.answered(self.groups, reply)


def _same(
    before: Reported,
    leader: ReplicaId,
    membership: Membership,
    in_sync: tuple[ReplicaId, ...],
    told: int,
) -> bool:
    """Whether the image already says what a report of this place would say."""
    return (
        before.leader == leader
        and before.membership == membership
        and before.in_sync == in_sync
        and before.target_version >= told
    )

"""The partition's leader moves its group toward the target and reports after commit."""

import attrs
import pytest

from raftlog.base.entries import Membership
from raftlog.base.errors import LocalMisuse
from raftlog.base.ids import METADATA_GROUP, GroupId, RaftIndex, Term
from raftlog.base.units import millis
from raftlog.broker.control import reassignment
from raftlog.broker.control.reassignment import BALANCED_AT_ONCE_MAX, Reassignment
from raftlog.broker.peer_messages import ControllerKind, ControllerReply
from raftlog.metadata.requests import decode_body
from tests.broker.control.metadata_rig import SESSION_NS, FakeTurn
from tests.metadata.clusters import cluster, do, fence, part, replica, report, retarget, topic

GROUP = GroupId(1)
BALANCE_NS = millis(300_000)
DONE = ControllerReply(0, 0, "", b"")
LATE = ControllerReply(0, 7, "no controller in time", b"")


class FakeReplica:
    """The leader's replica of a partition, as far as reassignment looks at it."""

    def __init__(self, partition, me):
        self.group = partition.group
        self.me = me
        self.term = Term(3)
        self.is_leader = True
        self.ready = True
        self.commit = RaftIndex(10)
        self.membership = Membership(partition.founding)
        self.membership_index = RaftIndex(0)
        self.in_sync = partition.founding
        self.wanted = []
        self.transfers = []
        self.refuse = False

    def change_membership(self, target, now, wall_ms):
        if self.refuse:
            raise LocalMisuse("not now")
        self.wanted.append(target)

    def transfer(self, to, now):
        self.transfers.append(to)
        self.ready = False


class Leader:
    """Node 1 leads the one partition of `orders`, on nodes 1, 2 and 3 of 4."""

    def __init__(self, *nodes):
        image = cluster(1, 2, 3, 4)
        self.services = FakeTurn(1)
        self.services.image = do(image, topic(image, nodes or (1, 2, 3)))
        partition = part(self.services.image)
        self.replica = FakeReplica(partition, replica(partition, 1))
        self.services.replicas[GROUP] = self.replica
        for node in (2, 3, 4):
            self.services.link(node)
        self.reassignment = Reassignment(self.services, self.services)

    def look(self, group=GROUP):
        self.reassignment.look(group)
        self.services.run_soon()

    @property
    def image(self):
        return self.services.image

    def want(self, *nodes):
        self.services.image = do(self.image, retarget(self.image, *nodes))

    def reported(self):
        """The reports of the last call, which stays open."""
        return decode_body(self.services.asked[-1].body).reports

    def accept(self):
        """The open call is answered, and the image shows it."""
        (ask,) = self.services.asked
        self.services.asked.clear()
        self.services.image = do(self.image, *decode_body(ask.body).reports)
        ask.then(DONE)

    def settle(self):
        self.look()
        self.accept()
        return self


class TestReports:
    def test_a_new_leader_reports_itself(self):
        leader = Leader()
        leader.look()
        (ask,) = leader.services.asked
        (report,) = leader.reported()
        assert ask.kind == ControllerKind.REPORT
        assert (report.group, report.term, report.membership_index) == (1, 3, 0)
        assert report.leader == leader.replica.me
        assert report.membership == leader.replica.membership
        assert report.in_sync == leader.replica.in_sync
        assert report.target_version == part(leader.image).target_version

    def test_once_until_something_changes(self):
        leader = Leader().settle()
        for _ in range(3):
            leader.look()
        leader.services.pass_time(SESSION_NS)
        assert leader.services.asked == []

    def test_a_change_of_the_in_sync_set_has_the_next_serial(self):
        leader = Leader().settle()
        leader.replica.in_sync = leader.replica.in_sync[:2]
        leader.look()
        assert leader.reported()[0].serial == 2
        assert len(leader.reported()[0].in_sync) == 2

    def test_one_report_is_open_at_a_time_and_the_rest_goes_with_the_next(self):
        leader = Leader()
        leader.look()
        leader.replica.in_sync = leader.replica.in_sync[:2]
        leader.look()
        assert len(leader.services.asked) == 1
        leader.accept()
        leader.services.pass_time(SESSION_NS)
        assert len(leader.reported()[0].in_sync) == 2

    def test_what_was_not_heard_is_reported_again(self):
        leader = Leader()
        leader.look()
        leader.services.asked.pop().then(LATE)
        assert leader.services.asked == []
        leader.services.pass_time(SESSION_NS)
        assert leader.reported()[0].serial == 2

    def test_what_is_not_committed_is_not_reported(self):
        leader = Leader()
        leader.replica.membership_index = RaftIndex(11)
        leader.look()
        assert leader.services.asked == []
        leader.replica.commit = RaftIndex(11)
        leader.look()
        assert leader.reported()[0].membership_index == 11

    def test_who_is_not_ready_or_does_not_lead_says_nothing(self):
        leader = Leader()
        leader.replica.ready = False
        leader.look()
        leader.replica.is_leader = False
        leader.look()
        assert leader.services.asked == []
        assert leader.replica.wanted == []

    def test_serials_continue_after_a_restart_of_the_leader(self):
        """A leader keeps its term only within a boot, but the image may know a report of this term
        and membership that was sent by an object which is gone."""
        leader = Leader().settle()
        leader.reassignment = Reassignment(leader.services, leader.services)
        leader.replica.in_sync = leader.replica.in_sync[:1]
        leader.look()
        assert leader.reported()[0].serial == 2

    def test_in_sync_learners_are_not_shown(self):
        leader = Leader()
        learner = leader.replica.in_sync[2]
        leader.replica.membership = Membership(leader.replica.in_sync[:2], learners=(learner,))
        leader.look()
        assert learner not in leader.reported()[0].in_sync

    def test_deleted_topics_and_group_0_are_none_of_its_business(self):
        leader = Leader()
        leader.look(METADATA_GROUP)
        leader.look(GroupId(99))
        leader.services.image = cluster(1, 2)
        leader.look()
        assert leader.services.asked == []

    def test_many_groups_share_one_call(self):
        image = cluster(1, 2, 3)
        services = FakeTurn(1)
        services.image = do(image, topic(image, *[(1, 2, 3)] * 5))
        reassignment = Reassignment(services, services)
        for number in range(5):
            partition = part(services.image, number)
            services.replicas[partition.group] = FakeReplica(partition, replica(partition, 1))
            reassignment.look(partition.group)
        services.run_soon()
        (ask,) = services.asked
        assert [one.group for one in decode_body(ask.body).reports] == [1, 2, 3, 4, 5]


class TestTarget:
    def test_the_replica_is_told_the_target_once_per_term(self):
        leader = Leader().settle()
        leader.look()
        assert leader.replica.wanted == [Membership(part(leader.image).founding)]
        assert GROUP in leader.services.touched

    def test_a_new_target_and_its_cancel(self):
        leader = Leader().settle()
        leader.want(1, 2, 4)
        leader.look()
        assert [r.node for r in leader.replica.wanted[-1].voters] == [1, 2, 4]
        leader.want(1, 2, 3)
        leader.look()
        assert [r.node for r in leader.replica.wanted[-1].voters] == [1, 2, 3]
        assert len(leader.replica.wanted) == 3

    def test_a_new_term_is_told_again(self):
        leader = Leader().settle()
        leader.replica.term = Term(4)
        leader.look()
        assert len(leader.replica.wanted) == 2

    def test_a_target_that_is_already_reached_is_still_reported_as_seen(self):
        """Only such a report lets the image forget the replica that a cancel dropped."""
        leader = Leader().settle()
        leader.want(1, 2, 4)
        leader.want(1, 2, 3)
        added = replica(part(leader.image), 4)
        leader.look()
        assert leader.reported()[0].target_version == part(leader.image).target_version
        leader.accept()
        assert added not in part(leader.image).replicas

    def test_a_replica_that_refuses_has_not_seen_it(self):
        leader = Leader().settle()
        leader.want(1, 2, 4)
        leader.replica.refuse = True
        leader.look()
        assert leader.services.asked == []
        leader.replica.refuse = False
        leader.look()
        assert leader.reported()[0].target_version == part(leader.image).target_version

    def test_the_whole_way(self):
        """1,2,3 -> 1,2,4: joint, final, the old replica leaves the image with a removal."""
        leader = Leader().settle()
        leader.want(1, 2, 4)
        old = replica(part(leader.image), 3)
        leader.look()
        leader.accept()
        target = leader.replica.wanted[-1].voters
        leader.replica.membership = Membership(target, outgoing=part(leader.image).founding)
        leader.replica.membership_index = RaftIndex(9)
        leader.look()
        leader.accept()
        assert old in part(leader.image).replicas
        leader.replica.membership = Membership(target)
        leader.replica.membership_index = RaftIndex(10)
        leader.look()
        leader.accept()
        assert part(leader.image).settled
        assert [removal.replica for removal in leader.image.removals[3]] == [old]


class TestPreferredLeader:
    def test_a_new_partition_goes_to_its_first_choice_once(self):
        leader = Leader(2, 1, 3)
        leader.look()
        assert [to.node for to in leader.replica.transfers] == [2]
        assert leader.services.asked == []
        leader.replica.ready = True
        leader.look()
        assert len(leader.replica.transfers) == 1
        assert leader.reported()[0].leader == leader.replica.me

    def test_looking_while_it_is_handed_over_does_not_begin_again(self):
        leader = Leader(2, 1, 3)
        for _ in range(3):
            leader.look()
        leader.replica.ready = True
        leader.look()
        assert len(leader.replica.transfers) == 1

    @pytest.mark.parametrize("why", ["no link", "no voter"])
    def test_who_cannot_take_it_is_not_asked(self, why):
        leader = Leader(2, 1, 3)
        if why == "no link":
            del leader.services.sessions[2]
        else:
            leader.replica.membership = Membership((leader.replica.me,))
        leader.look()
        assert leader.replica.transfers == []
        assert leader.reported()[0].leader == leader.replica.me

    def test_a_partition_that_was_led_before_stays(self):
        leader = Leader(2, 1, 3)
        partition = part(leader.image)
        topic_image = leader.image.topic("orders")
        led = attrs.evolve(
            partition, reported=attrs.evolve(partition.reported, leader=replica(partition, 3))
        )
        leader.services.image = attrs.evolve(
            leader.image,
            topics={topic_image.topic_id: attrs.evolve(topic_image, partitions=(led,))},
        )
        leader.look()
        assert leader.replica.transfers == []


class TestBalance:
    def led_by_the_second(self, **settings):
        leader = Leader(2, 1, 3)
        leader.services.config = attrs.evolve(leader.services.config, **settings)
        leader.replica.membership_index = RaftIndex(1)
        leader.look()
        leader.replica.ready = True
        leader.look()
        leader.replica.transfers.clear()
        return leader

    def interval(self, leader):
        leader.services.pass_time(BALANCE_NS)

    def test_leadership_goes_back_to_who_was_in_sync_for_a_whole_interval(self):
        leader = self.led_by_the_second()
        self.interval(leader)
        assert leader.replica.transfers == []
        self.interval(leader)
        assert [to.node for to in leader.replica.transfers] == [2]

    def test_falling_out_of_sync_in_between_begins_the_interval_anew(self):
        leader = self.led_by_the_second()
        self.interval(leader)
        whole = leader.replica.in_sync
        leader.replica.in_sync = tuple(one for one in whole if one.node != 2)
        leader.look()
        leader.replica.in_sync = whole
        leader.look()
        self.interval(leader)
        assert leader.replica.transfers == []
        self.interval(leader)
        assert len(leader.replica.transfers) == 1

    @pytest.mark.parametrize("why", ["no link", "fenced", "joint", "not ready", "deposed"])
    def test_who_cannot_take_it_or_give_it_is_left_alone(self, why):
        leader = self.led_by_the_second()
        if why == "no link":
            del leader.services.sessions[2]
        elif why == "fenced":
            leader.services.image = do(leader.image, fence(leader.image, 2))
        elif why == "joint":
            voters = leader.replica.membership.voters
            leader.replica.membership = Membership(voters, outgoing=voters[:2])
        elif why == "not ready":
            leader.replica.ready = False
        else:
            leader.replica.is_leader = False
        for _ in range(3):
            self.interval(leader)
        assert leader.replica.transfers == []

    def test_the_first_choice_keeps_what_it_leads(self):
        leader = Leader(1, 2, 3).settle()
        for _ in range(3):
            self.interval(leader)
        assert leader.replica.transfers == []

    def test_not_all_at_the_same_time(self):
        image = cluster(1, 2, 3)
        services = FakeTurn(1)
        count = BALANCED_AT_ONCE_MAX + 5
        services.image = do(image, topic(image, *[(2, 1, 3)] * count))
        services.link(2)
        reassignment = Reassignment(services, services)
        for number in range(count):
            partition = part(services.image, number)
            replica_here = FakeReplica(partition, replica(partition, 1))
            services.replicas[partition.group] = replica_here
            reassignment.look(partition.group)
            services.run_soon()
            replica_here.ready = True
            replica_here.transfers.clear()
        services.pass_time(2 * BALANCE_NS)
        handed = sum(len(one.transfers) for one in services.replicas.values())
        assert handed == BALANCED_AT_ONCE_MAX

    def test_without_the_setting_nothing_goes_back(self):
        leader = self.led_by_the_second(balance_leaders=False)
        for _ in range(3):
            self.interval(leader)
        assert leader.replica.transfers == []

    @pytest.mark.parametrize(("percent", "handed"), [(0, 1), (24, 1), (25, 0), (100, 0)])
    def test_a_broker_that_leads_enough_of_its_partitions_gets_no_more(self, percent, handed):
        """The broker has the first replica of four partitions; another broker leads one of them."""
        image = cluster(1, 2, 3)
        services = FakeTurn(1)
        services.config = attrs.evolve(services.config, imbalance_percent=percent)
        image = do(image, topic(image, *[(2, 1, 3)] * 4))
        for number in range(1, 4):
            first = replica(part(image, number), 2)
            image = do(image, report(image, number=number, leader=first))
        services.image = image
        services.link(2)
        partition = part(image, 0)
        here = services.replicas[partition.group] = FakeReplica(partition, replica(partition, 1))
        moves = Reassignment(services, services)
        for _ in range(2):
            moves.look(partition.group)
            services.run_soon()
            here.ready = True
        here.transfers.clear()
        services.pass_time(2 * BALANCE_NS)
        assert len(here.transfers) == handed

    def test_one_timer_whatever_it_leads(self):
        leader = self.led_by_the_second()
        for term in range(4, 9):
            leader.replica.term = Term(term)
            leader.look()
        reports = len(leader.services.asked)
        assert reports
        assert len(leader.services.timers) == 1


class TestOldImages:
    """A replica leaves the image by the report of a leader that saw a target without it. The next
    leader may have an older image, and brought it back: its node deleted its files all the same."""

    def test_a_move_begins_when_the_image_shows_a_report_of_this_leader(self):
        leader = Leader()
        leader.want(4)
        leader.look()
        assert leader.replica.wanted == []
        (report,) = leader.reported()
        assert (report.term, report.target_version) == (3, 0), "nobody may leave by it"
        leader.accept()
        leader.look()
        assert [wanted.voters for wanted in leader.replica.wanted] == [part(leader.image).target]

    def test_a_report_of_an_earlier_term_is_not_enough(self):
        leader = Leader().settle()
        leader.replica.term = Term(4)
        leader.want(4)
        leader.look()
        assert leader.replica.wanted[1:] == []
        leader.accept()
        leader.look()
        assert leader.replica.wanted[-1].voters == part(leader.image).target

    def test_what_is_there_already_waits_for_nothing(self):
        leader = Leader()
        leader.want(1, 3, 2)
        leader.look()
        (report,) = leader.reported()
        assert report.target_version == part(leader.image).target_version


def test_many_reports_go_in_parts_and_none_is_forgotten(monkeypatch):
    """Memberships beyond the bound of one report were held to be under way, and not reported in
    that term again. Such a group did not move either."""
    monkeypatch.setattr(reassignment, "REPORTS_MAX", 2)
    leader = Leader()
    services = leader.services
    many = topic(services.image, *[(1, 2, 3)] * 4, name="many", topic_id=bytes(range(16)))
    services.image = do(services.image, many)
    for partition in services.image.topic("many").partitions:
        services.replicas[partition.group] = FakeReplica(partition, replica(partition, 1))
    for group in services.replicas:
        leader.reassignment.look(group)
    services.run_soon()
    services.pass_time(1)
    reported = [[each.group for each in decode_body(ask.body).reports] for ask in services.asked]
    assert reported == [[1, 2], [3, 4], [5]]

"""The controller's decisions on requests, and which requests each broker may make."""

import attrs
import pytest

from raftlog.base.ids import GroupId, NodeId, RaftIndex, Term
from raftlog.metadata import commands as c
from raftlog.metadata import requests as r
from raftlog.metadata.refusals import Refusal
from raftlog.metadata.settings.config_changes import ConfigChange, ConfigOperation
from raftlog.metadata.settings.topic_defaults import DEFAULTS_NAME, MADE_NOW
from tests.broker.control.metadata_rig import allocate, create, led
from tests.metadata.clusters import (
    CLUSTER,
    FLIGHTS,
    ORDERS,
    directory,
    founder,
    part,
    registration,
    replica,
    report,
)


class TestTopics:
    def test_a_topic_is_placed_and_balanced(self):
        rig = led(1, 2, 3)
        assert rig.ask(2, create(count=6, factor=3)).error == 0
        leaders = [p.target[0].node for p in rig.image.topic("orders").partitions]
        assert sorted(leaders) == [1, 1, 2, 2, 3, 3]

    def test_a_burst_is_balanced_over_what_is_not_committed_yet(self):
        rig = led(1, 2, 3)
        for number in range(6):
            rig.ask(2, create(f"t{number}", topic_id=bytes([number + 1]) * 16), commit=False)
        rig.commit()
        nodes = [rig.image.topic(f"t{n}").partitions[0].target[0].node for n in range(6)]
        assert sorted(nodes) == [1, 1, 2, 2, 3, 3]

    def test_given_nodes_are_taken_as_they_are(self):
        rig = led(1, 2, 3)
        request = create(count=0, factor=0, nodes=((3, 1), (2,)))
        assert rig.ask(2, request).error == 0
        assert [r.node for r in part(rig.image).target] == [3, 1]
        assert [r.node for r in part(rig.image, 1).target] == [2]

    @pytest.mark.parametrize(
        ("changes", "error"),
        [
            ({"name": "a b"}, 17),
            ({"name": "__cluster_metadata"}, 29),
            ({"count": 0}, 37),
            ({"count": 10_001}, 37),
            ({"factor": 0}, 38),
            ({"factor": 4}, 38),
            ({"factor": 6}, 38),
            ({"nodes": ((1, 1),)}, 39),
            ({"nodes": ((9,),)}, 39),
            ({"configs": (("retention.mss", "1"),)}, 40),
            ({"configs": (("retention.ms", "x"),)}, 40),
            ({"configs": (("unclean.leader.election.enable", "true"),)}, 40),
        ],
    )
    def test_what_cannot_be_is_refused_with_kafkas_code(self, changes, error):
        rig = led(1, 2, 3)
        call = rig.ask(2, create(**{"name": "orders", **changes}))
        assert call.error == error
        assert call.text
        assert rig.image.topics == {}

    def test_names_that_collide_in_metrics_are_refused(self):
        rig = led(1)
        rig.ask(1, create("a.b"))
        call = rig.ask(1, create("a_b", topic_id=FLIGHTS))
        assert (call.error, call.text) == (17, "Topic 'a_b' collides with existing topic: a.b")
        assert rig.ask(1, create("a-b", topic_id=FLIGHTS)).error == 0

    def test_validate_only_changes_nothing(self):
        rig = led(1, 2, 3)
        before = rig.image
        assert rig.ask(2, create(factor=3, validate_only=True)).error == 0
        assert rig.ask(2, create(factor=4, validate_only=True)).error == 38
        assert rig.image is before

    def test_delete(self):
        rig = led(1)
        rig.ask(1, create())
        delete = r.SubmitCommand(command=c.DeleteTopic(topic_id=ORDERS))
        assert rig.ask(1, delete).error == 0
        assert rig.image.topics == {}
        assert rig.ask(1, delete).error == 100

    def test_growth(self):
        rig = led(1, 2, 3)
        rig.ask(1, create(count=2, factor=2))
        grow = r.GrowTopicRequest(topic_id=ORDERS, count=5, nodes=(), validate_only=False)
        assert rig.ask(1, grow).error == 0
        partitions = rig.image.topic("orders").partitions
        assert [len(p.target) for p in partitions] == [2] * 5
        assert rig.ask(1, grow).error == 37
        assert rig.ask(1, attrs.evolve(grow, count=4)).error == 37
        assert rig.ask(1, attrs.evolve(grow, topic_id=FLIGHTS)).error == 100
        given = attrs.evolve(grow, count=6, nodes=((3,), (1,)))
        assert rig.ask(1, given).error == 39
        assert rig.ask(1, attrs.evolve(given, nodes=((3, 1),))).error == 0
        assert [one.node for one in part(rig.image, 5).target] == [3, 1]

    def test_settings(self):
        rig = led(1)
        rig.ask(1, create())
        alter = c.AlterTopicConfigs(topic_id=ORDERS, changed=(("retention.ms", "1"),), removed=())
        assert rig.ask(1, r.SubmitCommand(command=alter)).error == 0
        wrong = attrs.evolve(alter, changed=(("segment.bytes", "1"),))
        assert rig.ask(1, r.SubmitCommand(command=wrong)).error == 40
        assert rig.image.topic("orders").configs == (MADE_NOW, ("retention.ms", "1"))

    def test_two_appends_on_their_way_at_once_lose_no_word(self):
        """Each of two brokers was asked for one word, and neither knows of the other."""
        rig = led(1, 2)
        rig.ask(1, create())
        name = "leader.replication.throttled.replicas"
        calls = []
        for sender, word in ((1, "0:1"), (2, "0:2")):
            change = ConfigChange(ConfigOperation.APPEND, name, word)
            request = r.AlterTopicRequest(
                topic_id=ORDERS, changes=(change,), replace=False, validate_only=False
            )
            calls.append(rig.ask(sender, request, commit=False))
        rig.commit()
        assert [call.error for call in calls] == [0, 0]
        assert dict(rig.image.topic("orders").configs)[name] == "0:1,0:2"
        gone = attrs.evolve(request, topic_id=FLIGHTS)
        assert rig.ask(1, gone).error == 100

    def test_a_topic_says_with_which_defaults_it_was_made_and_no_client_can(self):
        rig = led(1)
        refused = rig.ask(1, create(configs=(MADE_NOW,)))
        assert refused.error == 40
        assert DEFAULTS_NAME in refused.text
        assert rig.ask(1, create(configs=(("retention.ms", "1"),))).error == 0
        assert rig.image.topic("orders").configs == (MADE_NOW, ("retention.ms", "1"))
        assert rig.ask(1, create(configs=(("retention.ms", "1"),))).error == 0, "asked again"

    def test_producer_ids_come_in_blocks(self):
        rig = led(1, 2)
        first = rig.ask(1, allocate(1), commit=False)
        second = rig.ask(2, allocate(2), commit=False)
        rig.commit()
        assert (first.answer.value, second.answer.value) == (0, 1000)


class TestWhoMaySayWhat:
    @pytest.mark.parametrize(
        "command",
        [
            registration(2),
            c.FenceBroker(node=NodeId(2), epoch=1),
            c.CondemnDirectory(node=NodeId(2), directory=directory(2)),
            c.CompareDigest(version=1, digest=bytes(32)),
            c.FoundCluster(cluster_id=CLUSTER, controllers=(founder(1),), feature_level=1),
        ],
    )
    def test_some_commands_are_the_controllers_own(self, command):
        rig = led(1, 2)
        call = rig.ask(2, r.SubmitCommand(command=command))
        assert call.answer.refusal is Refusal.MALFORMED

    def test_a_broker_speaks_of_its_own_replicas(self):
        rig = led(1, 2, 3)
        rig.ask(1, create(factor=3))
        lost = c.ReplaceReplica(group=GroupId(1), lost=replica(part(rig.image), 2))
        assert rig.ask(3, r.SubmitCommand(command=lost)).answer.refusal is Refusal.MALFORMED
        assert rig.ask(2, r.SubmitCommand(command=lost)).error == 0
        gone = c.ConfirmRemoved(node=NodeId(2), directory=directory(2), removed=())
        assert rig.ask(3, r.SubmitCommand(command=gone)).answer.refusal is Refusal.MALFORMED
        assert rig.ask(3, allocate(2)).answer.refusal is Refusal.MALFORMED

    def test_only_the_leader_reports(self):
        rig = led(1, 2, 3)
        rig.ask(1, create(factor=3))
        one = report(rig.image, leader=replica(part(rig.image), 2))
        wrong = rig.ask(3, r.Reports(reports=(one,)))
        assert wrong.answer.refusal is Refusal.MALFORMED
        assert part(rig.image).leader is None
        assert rig.ask(2, r.Reports(reports=(one,))).error == 0
        assert part(rig.image).leader.node == 2


class TestReassign:
    def moving(self):
        rig = led(1, 2, 3, 4)
        rig.ask(1, create(count=0, factor=0, nodes=((1, 2, 3),)))
        rig.append(report(rig.image), term=0)
        rig.engine.depose()
        rig.turn()
        rig.lead(term=2)
        request = r.ReassignRequest(topic_id=ORDERS, partition=0, nodes=(1, 2, 4))
        return rig, request

    def nodes(self, rig):
        return [one.node for one in part(rig.image).target]

    def test_sets_a_target_once(self):
        rig, request = self.moving()
        assert rig.ask(1, request).error == 0
        assert self.nodes(rig) == [1, 2, 4]
        before = rig.image
        assert rig.ask(1, request).error == 0
        assert rig.image is before

    def test_cancel_goes_back_to_what_was_reported(self):
        rig, request = self.moving()
        rig.ask(1, request)
        cancel = attrs.evolve(request, nodes=())
        assert rig.ask(1, cancel).error == 0
        assert self.nodes(rig) == [1, 2, 3]
        assert rig.ask(1, cancel).error == 85

    def test_cancel_in_a_joint_configuration_goes_back_to_the_outgoing_half(self):
        rig, request = self.moving()
        rig.ask(1, request)
        partition = part(rig.image)
        joint = report(rig.image, index=5, voters=partition.target, outgoing=partition.founding)
        leader = joint.leader
        assert rig.ask(leader.node, r.Reports(reports=(joint,))).error == 0
        assert rig.ask(1, attrs.evolve(request, nodes=())).error == 0
        assert self.nodes(rig) == [1, 2, 3]

    def test_another_number_of_replicas_only_where_that_is_allowed(self):
        rig, request = self.moving()
        fewer = attrs.evolve(request, nodes=(1, 4), same_factor=True)
        assert rig.ask(1, fewer).error == 38
        assert rig.ask(1, attrs.evolve(request, same_factor=True)).error == 0
        assert rig.ask(1, attrs.evolve(fewer, same_factor=False)).error == 0
        assert self.nodes(rig) == [1, 4]

    def test_refusals(self):
        rig, request = self.moving()
        assert rig.ask(1, attrs.evolve(request, topic_id=FLIGHTS)).error == 100
        assert rig.ask(1, attrs.evolve(request, partition=1)).error == 3
        assert rig.ask(1, attrs.evolve(request, nodes=(1, 9))).error == 39
        assert rig.ask(1, attrs.evolve(request, nodes=(1, 1))).error == 39
        assert self.nodes(rig) == [1, 2, 3]


class TestReports:
    def test_several_in_one_call(self):
        rig = led(1, 2, 3)
        rig.ask(1, create(count=2, factor=3))
        leader = [replica(part(rig.image, number), 2) for number in (0, 1)]
        both = tuple(report(rig.image, number=n, leader=leader[n]) for n in (0, 1))
        assert rig.ask(2, r.Reports(reports=both)).error == 0
        assert [part(rig.image, n).leader.node for n in (0, 1)] == [2, 2]

    def test_what_is_not_newer_is_nobodys_fault(self):
        """Ignored, and the other reports of the call count."""
        rig = led(1, 2, 3)
        rig.ask(1, create(count=2, factor=3))
        leader = [replica(part(rig.image, number), 2) for number in (0, 1)]
        old = report(rig.image, term=0, index=0, serial=0, leader=leader[0])
        gone = attrs.evolve(old, group=GroupId(77), term=Term(5))
        new = report(rig.image, number=1, leader=leader[1])
        assert rig.ask(2, r.Reports(reports=(old, gone, new))).error == 0
        assert part(rig.image, 0).leader is None
        assert part(rig.image, 1).leader.node == 2


def test_the_raft_index_of_a_report_may_repeat_in_a_later_term():
    """A new leader reports the membership that its predecessor left, under its own term."""
    rig = led(1, 2, 3)
    rig.ask(1, create(factor=3))
    image = rig.image
    first = report(image, term=1, index=0, leader=replica(part(image), 1))
    rig.ask(1, r.Reports(reports=(first,)))
    second = attrs.evolve(first, term=Term(2), leader=replica(part(image), 2))
    rig.ask(2, r.Reports(reports=(second,)))
    assert part(rig.image).leader.node == 2
    assert part(rig.image).reported.membership_index == RaftIndex(0)

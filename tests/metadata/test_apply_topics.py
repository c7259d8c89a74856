"""Topics, targets, lost replicas and reports."""

import attrs
import pytest

from raftlog.base.ids import DirectoryId, GroupId, NodeId, ReplicaEpoch, ReplicaId
from raftlog.base.limits import CONFIGS_PER_TOPIC_MAX, REPLICAS_PER_PARTITION_MAX
from raftlog.metadata import commands as c
from raftlog.metadata.refusals import Refusal
from raftlog.metadata.rules.apply import apply
from tests.metadata.clusters import (
    FLIGHTS,
    ORDERS,
    cluster,
    directory,
    do,
    fence,
    part,
    places,
    refused,
    registration,
    replica,
    report,
    retarget,
    topic,
)


class TestCreate:
    def test_gives_groups_and_epochs(self):
        image = cluster(1, 2, 3)
        image = do(image, topic(image, (2, 3, 1), (3, 1, 2)))
        orders = image.topic("orders")
        assert [p.group for p in orders.partitions] == [1, 2]
        assert part(image).target == tuple(
            (node, directory(node), image.version) for node in (2, 3, 1)
        )
        assert part(image).founding == tuple(sorted(part(image).target))
        assert part(image).reported.membership.voters == part(image).founding
        assert part(image).leader is None
        assert image.partition_of_group(GroupId(2)) is orders.partitions[1]

    def test_group_ids_are_never_reused(self):
        image = cluster(1)
        image = do(image, topic(image, (1,), (1,)), c.DeleteTopic(topic_id=ORDERS))
        image = do(image, topic(image, (1,), topic_id=FLIGHTS))
        assert image.topics[FLIGHTS].partitions[0].group == 3

    def test_the_same_again_is_no_change(self):
        image = do(cluster(1), topic(cluster(1), (1,)))
        applied = apply(image, topic(image, (1,), (1,)))
        assert applied.done
        assert applied.image is image

    def test_a_name_exists_once(self):
        image = do(cluster(1), topic(cluster(1), (1,)))
        other = topic(image, (1,), topic_id=FLIGHTS)
        assert refused(image, other).refusal is Refusal.TOPIC_EXISTS
        renamed = topic(image, (1,), name="flights")
        assert refused(image, renamed).refusal is Refusal.MALFORMED

    @pytest.mark.parametrize("name", ["", ".", "..", "a b", "ü", "x" * 250, "a/b"])
    def test_names_follow_the_grammar(self, name):
        image = cluster(1)
        answer = refused(image, topic(image, (1,), name=name))
        assert answer.refusal is Refusal.INVALID_TOPIC_NAME

    def test_the_metadata_log_has_its_name_already(self):
        image = cluster(1)
        answer = refused(image, topic(image, (1,), name="__cluster_metadata"))
        assert answer.refusal is Refusal.RESERVED_TOPIC

    @pytest.mark.parametrize(
        ("nodes", "why"),
        [
            ((), Refusal.INVALID_REPLICATION_FACTOR),
            ((1, 1), Refusal.INVALID_ASSIGNMENT),
            ((1, 2, 3, 4, 5, 6), Refusal.INVALID_REPLICATION_FACTOR),
        ],
    )
    def test_bad_assignments(self, nodes, why):
        image = cluster(1, 2, 3, 4, 5, 6)
        assert refused(image, topic(image, (1, 2), nodes)).refusal is why

    def test_a_directory_that_is_not_the_brokers_is_refused(self):
        """The controller placed it before the broker came back with another directory."""
        image = cluster(1, 2)
        command = topic(image, (1, 2))
        image = do(image, fence(image, 2), registration(2, at=1))
        assert refused(image, command).refusal is Refusal.INVALID_ASSIGNMENT

    def test_no_partition_is_no_topic(self):
        image = cluster(1)
        assert refused(image, topic(image)).refusal is Refusal.INVALID_PARTITIONS

    def test_configs_are_kept_sorted_and_unique(self):
        image = cluster(1)
        command = topic(image, (1,))
        pairs = (("retention.ms", "1"), ("cleanup.policy", "delete"))
        image = do(image, attrs.evolve(command, configs=pairs))
        assert image.topic("orders").configs == tuple(sorted(pairs))
        assert image.topic("orders").config("retention.ms") == "1"
        assert image.topic("orders").config("segment.ms") is None
        twice = attrs.evolve(topic(image, (1,), name="b", topic_id=FLIGHTS), configs=pairs * 2)
        assert refused(image, twice).refusal is Refusal.INVALID_CONFIG


class TestDelete:
    def test_leaves_removals_that_name_epochs(self):
        image = cluster(1, 2)
        image = do(image, topic(image, (1, 2)))
        epoch = image.version
        image = do(image, c.DeleteTopic(topic_id=ORDERS))
        assert image.topic("orders") is None
        assert image.partition_of_group(GroupId(1)) is None
        removal = image.removals[NodeId(2)][0]
        assert removal.replica == (2, directory(2), epoch)
        assert (removal.group, removal.topic_id, removal.partition) == (1, ORDERS, 0)

    def test_unknown_topics(self):
        answer = refused(cluster(1), c.DeleteTopic(topic_id=ORDERS))
        assert answer.refusal is Refusal.UNKNOWN_TOPIC_ID


class TestGrow:
    def grow(self, image, count, *partitions):
        assignments = tuple(places(image, *nodes) for nodes in partitions)
        return c.CreatePartitions(topic_id=ORDERS, count_before=count, assignments=assignments)

    def test_adds_at_the_end(self):
        image = do(cluster(1, 2), topic(cluster(1, 2), (1,)))
        kept = part(image)
        image = do(image, self.grow(image, 1, (2,), (1,)))
        assert part(image) is kept
        assert [p.group for p in image.topic("orders").partitions] == [1, 2, 3]
        assert image.places[GroupId(3)] == (ORDERS, 2)
        assert part(image, 2).target[0].epoch == image.version

    def test_only_from_the_count_it_was_made_for(self):
        image = do(cluster(1), topic(cluster(1), (1,)))
        for count in (0, 2):
            answer = refused(image, self.grow(image, count, (1,)))
            assert answer.refusal is Refusal.INVALID_PARTITIONS

    def test_of_nothing_or_by_nothing(self):
        image = cluster(1)
        assert refused(image, self.grow(image, 0, (1,))).refusal is Refusal.UNKNOWN_TOPIC_ID
        image = do(image, topic(image, (1,)))
        assert refused(image, self.grow(image, 1)).refusal is Refusal.INVALID_PARTITIONS


class TestTarget:
    def four(self):
        image = cluster(1, 2, 3, 4)
        return do(image, topic(image, (1, 2, 3)))

    def test_keeps_ids_of_places_that_stay(self):
        before = self.four()
        after = do(before, retarget(before, 4, 2, 1))
        assert replica(part(after), 1) == replica(part(before), 1)
        assert part(after).target[0] == (4, directory(4), after.version)
        assert part(after).replicas == tuple(sorted((*part(before).target, part(after).target[0])))
        assert not part(after).settled

    def test_a_cancel_is_a_new_target_with_the_old_ids(self):
        before = self.four()
        moved = do(before, retarget(before, 1, 2, 4))
        back = do(moved, retarget(moved, 1, 2, 3))
        assert part(back).target == part(before).target
        assert part(back).target_version == back.version
        assert replica(part(moved), 4) in part(back).replicas

    def test_what_was_set_for_another_target_is_stale(self):
        before = self.four()
        old = retarget(before, 1, 2, 4)
        after = do(before, retarget(before, 1, 2))
        assert refused(after, old).refusal is Refusal.STALE

    def test_bad_targets(self):
        image = self.four()
        good = retarget(image, 1, 2)
        unknown = attrs.evolve(good, topic_id=FLIGHTS)
        assert refused(image, unknown).refusal is Refusal.UNKNOWN_TOPIC_ID
        beyond = attrs.evolve(good, partition=1)
        assert refused(image, beyond).refusal is Refusal.UNKNOWN_PARTITION
        nowhere = attrs.evolve(good, assignment=((NodeId(9), DirectoryId(9)),))
        assert refused(image, nowhere).refusal is Refusal.INVALID_ASSIGNMENT

    def test_ids_that_pile_up_are_bounded(self):
        """A broker whose directory is lost again and again while no leader reports."""
        image = cluster(1, 2)
        image = do(image, topic(image, (1, 2)))
        for _ in range(REPLICAS_PER_PARTITION_MAX - 2):
            lost = replica(part(image), 2)
            image = do(image, c.ReplaceReplica(group=GroupId(1), lost=lost))
        lost = c.ReplaceReplica(group=GroupId(1), lost=replica(part(image), 2))
        assert refused(image, lost).refusal is Refusal.BUSY


class TestReplaceReplica:
    def test_gives_the_place_a_new_id_in_its_preference(self):
        image = cluster(1, 2, 3)
        image = do(image, topic(image, (2, 1, 3)))
        lost = replica(part(image), 2)
        after = do(image, c.ReplaceReplica(group=GroupId(1), lost=lost))
        assert part(after).target[0] == (2, directory(2), after.version)
        assert lost in part(after).replicas

    def test_reported_twice_it_is_replaced_once(self):
        image = cluster(1, 2)
        image = do(image, topic(image, (1, 2)))
        command = c.ReplaceReplica(group=GroupId(1), lost=replica(part(image), 2))
        after = do(image, command)
        assert apply(after, command).image is after

    def test_what_is_not_its_to_lose(self):
        image = cluster(1, 2)
        image = do(image, topic(image, (1,)))
        gone = c.ReplaceReplica(group=GroupId(7), lost=replica(part(image), 1))
        assert refused(image, gone).refusal is Refusal.UNKNOWN_REPLICA
        elsewhere = ReplicaId(NodeId(2), directory(2), ReplicaEpoch(1))
        wrong = c.ReplaceReplica(group=GroupId(1), lost=elsewhere)
        assert refused(image, wrong).refusal is Refusal.UNKNOWN_REPLICA
        old = ReplicaId(NodeId(1), directory(1, 5), ReplicaEpoch(1))
        assert refused(image, attrs.evolve(wrong, lost=old)).refusal is Refusal.STALE

    def test_group_0_too(self):
        image = cluster(1, 2, 3)
        lost = image.brokers[NodeId(3)].metadata_replica
        command = c.ReplaceReplica(group=GroupId(0), lost=lost)
        after = do(image, command)
        new = after.brokers[NodeId(3)].metadata_replica
        assert new == (3, directory(3), after.version)
        assert new in after.controllers
        assert lost not in after.controllers
        assert refused(after, command).refusal is Refusal.STALE


class TestReports:
    def moving(self):
        """1,2,3 -> 1,2,4, and the ids concerned."""
        image = cluster(1, 2, 3, 4)
        image = do(image, topic(image, (1, 2, 3)))
        image = do(image, report(image))
        return do(image, retarget(image, 1, 2, 4))

    def test_newer_by_term_index_and_serial(self):
        image = self.moving()
        for newer in ((1, 1, 2), (1, 2, 1), (2, 1, 0), (2, 0, 0)):
            command = report(image, term=newer[0], index=newer[1], serial=newer[2])
            assert part(do(image, command)).reported.order == newer
        for stale in ((1, 1, 1), (1, 1, 0), (1, 0, 9), (0, 9, 9)):
            command = report(image, term=stale[0], index=stale[1], serial=stale[2])
            assert refused(image, command).refusal is Refusal.STALE

    def test_the_leader_of_a_term_never_changes(self):
        image = self.moving()
        other = report(image, index=2, leader=replica(part(image), 2))
        assert refused(image, other).refusal is Refusal.MALFORMED
        assert part(do(image, attrs.evolve(other, term=2))).leader.node == 2

    def test_only_replicas_of_the_group(self):
        image = self.moving()
        alien = ReplicaId(NodeId(4), directory(4), ReplicaEpoch(1))
        for command in (
            report(image, index=2, voters=(*part(image).founding[:2], alien)),
            report(image, index=2, learners=(alien,)),
            report(image, term=2, leader=alien),
            attrs.evolve(report(image, index=2), in_sync=(alien,)),
        ):
            assert refused(image, command).refusal is Refusal.UNKNOWN_REPLICA
        gone = attrs.evolve(report(image, index=2), group=GroupId(9))
        assert refused(image, gone).refusal is Refusal.UNKNOWN_REPLICA

    def test_without_voters_or_from_the_future(self):
        image = self.moving()
        leader = part(image).leader
        empty = report(image, index=2, voters=(), leader=leader)
        assert refused(image, empty).refusal is Refusal.MALFORMED
        future = report(image, index=2, target_version=image.version + 1)
        assert refused(image, future).refusal is Refusal.MALFORMED

    def test_a_replica_leaves_by_a_final_membership_without_it(self):
        image = self.moving()
        old, target = replica(part(image), 3), part(image).target
        joint = report(image, index=5, voters=target, outgoing=part(image).founding)
        image = do(image, joint)
        assert old in part(image).replicas
        assert NodeId(3) not in image.removals
        image = do(image, report(image, index=6, voters=target))
        assert old not in part(image).replicas
        assert part(image).settled
        assert [r.replica for r in image.removals[NodeId(3)]] == [old]

    def test_a_report_made_before_the_target_was_seen_removes_nobody(self):
        """Its leader may still be about to add the replica that a cancel has just dropped."""
        image = self.moving()
        seen = part(image).target_version
        image = do(image, retarget(image, 1, 2, 3))
        added = replica(part(image), 4)
        image = do(image, report(image, index=1, serial=2, target_version=seen))
        assert added in part(image).replicas
        image = do(image, report(image, index=1, serial=3))
        assert added not in part(image).replicas
        assert [r.replica for r in image.removals[NodeId(4)]] == [added]

    def test_a_report_delayed_past_a_completed_cancel_is_ignored(self):
        """The image keeps the newer membership and nobody's files are deleted."""
        image = self.moving()
        target, founding = part(image).target, part(image).founding
        late = report(image, index=6, voters=target)
        image = do(image, retarget(image, 1, 2, 3))
        image = do(image, report(image, index=8, voters=founding))
        kept = part(image)
        assert refused(image, late).refusal is Refusal.STALE
        assert part(image) is kept
        assert NodeId(3) not in image.removals

    def test_a_replica_wanted_again_before_it_was_reported_gone_stays(self):
        image = self.moving()
        target, old = part(image).target, replica(part(image), 3)
        gone = report(image, index=6, voters=target)
        image = do(image, retarget(image, 1, 2, 3), gone)
        assert replica(part(image), 3) == old
        assert NodeId(3) not in image.removals

    def test_a_replica_wanted_again_after_it_left_is_a_new_id(self):
        """The late "delete e" must not meet e'."""
        image = self.moving()
        old = replica(part(image), 3)
        image = do(image, report(image, index=6, voters=part(image).target))
        image = do(image, retarget(image, 1, 2, 3))
        new = replica(part(image), 3)
        assert new.epoch == image.version > old.epoch
        assert [r.replica for r in image.removals[NodeId(3)]] == [old]

    def test_a_replica_on_a_former_directory_leaves_without_a_removal(self):
        image = self.moving()
        image = do(image, fence(image, 3), registration(3, at=1))
        image = do(image, report(image, index=6, voters=part(image).target))
        assert NodeId(3) not in image.removals


class TestConfigs:
    def test_set_and_remove(self):
        image = do(cluster(1), topic(cluster(1), (1,)))
        command = c.AlterTopicConfigs(
            topic_id=ORDERS, changed=(("b", "2"), ("a", "1")), removed=("nothing",)
        )
        image = do(image, command)
        assert image.topic("orders").configs == (("a", "1"), ("b", "2"))
        assert apply(image, command).image is image
        image = do(image, attrs.evolve(command, changed=(), removed=("a", "b")))
        assert image.topic("orders").configs == ()

    def test_refusals(self):
        image = do(cluster(1), topic(cluster(1), (1,)))
        command = c.AlterTopicConfigs(topic_id=FLIGHTS, changed=(), removed=())
        assert refused(image, command).refusal is Refusal.UNKNOWN_TOPIC_ID
        twice = c.AlterTopicConfigs(topic_id=ORDERS, changed=(("a", "1"),) * 2, removed=())
        assert refused(image, twice).refusal is Refusal.INVALID_CONFIG
        many = tuple((f"k{n}", "") for n in range(CONFIGS_PER_TOPIC_MAX))
        image = do(image, attrs.evolve(twice, changed=many))
        assert refused(image, attrs.evolve(twice, changed=(("x", ""),))).refusal is (
            Refusal.INVALID_CONFIG
        )

"""Registration, fencing, condemned directories, confirmed removals."""

import attrs
import pytest

from raftlog.base.ids import GroupId, NodeId, ReplicaEpoch
from raftlog.base.limits import BROKERS_MAX
from raftlog.metadata import commands as c
from raftlog.metadata.image import EMPTY_IMAGE, encode_image, encode_snapshot
from raftlog.metadata.refusals import Refusal
from raftlog.metadata.rules.apply import apply
from tests.metadata.clusters import (
    ORDERS,
    cluster,
    directory,
    do,
    fence,
    found,
    founder,
    part,
    refused,
    registration,
    replica,
    report,
    topic,
    unfence,
)


class TestFounding:
    def test_fixes_cluster_id_controllers_and_level(self):
        image = do(EMPTY_IMAGE, found(3, 1, 2))
        assert image.founders == (founder(1), founder(2), founder(3)) == image.controllers
        assert (image.version, image.feature_level, image.next_group) == (1, 1, 1)

    def test_a_cluster_is_founded_once(self):
        image = do(EMPTY_IMAGE, found(1))
        assert refused(image, found(2)).refusal is Refusal.ALREADY_FOUNDED
        assert refused(image, found(1)).refusal is Refusal.ALREADY_FOUNDED

    @pytest.mark.parametrize("nodes", [(), (1, 1), (1, 2, 1)])
    def test_controllers_are_some_and_each_once(self, nodes):
        assert refused(EMPTY_IMAGE, found(*nodes)).refusal is Refusal.MALFORMED

    def test_level_0_is_no_level(self):
        command = attrs.evolve(found(1), feature_level=0)
        assert refused(EMPTY_IMAGE, command).refusal is Refusal.MALFORMED

    def test_nothing_else_happens_before(self):
        assert refused(EMPTY_IMAGE, registration(1)).refusal is Refusal.NOT_FOUNDED
        assert refused(EMPTY_IMAGE, c.DeleteTopic(topic_id=ORDERS)).refusal is Refusal.NOT_FOUNDED


class TestRegistration:
    def test_a_controller_keeps_the_replica_id_of_the_format(self):
        image = do(EMPTY_IMAGE, found(1), registration(1))
        broker = image.brokers[NodeId(1)]
        assert broker.metadata_replica == founder(1)
        assert broker.fenced
        assert broker.epoch == image.version == 2

    def test_a_joiner_gets_the_version_that_placed_it_as_epoch(self):
        image = do(EMPTY_IMAGE, found(1), registration(4))
        assert image.brokers[NodeId(4)].metadata_replica == (4, directory(4), 2)
        assert image.controllers == (founder(1),)

    def test_a_controller_that_comes_with_another_directory_is_replaced_as_voter(self):
        image = do(EMPTY_IMAGE, found(1, 2, 3), registration(2, at=1))
        assert image.brokers[NodeId(2)].metadata_replica == (2, directory(2, 1), 2)
        assert image.controllers == (founder(1), (2, directory(2, 1), 2), founder(3))
        assert image.founders == (founder(1), founder(2), founder(3))

    def test_the_same_registration_again_changes_nothing(self):
        image = cluster(1)
        applied = apply(image, registration(1))
        assert applied.done
        assert applied.image is image

    def test_a_higher_boot_number_is_a_new_epoch_and_fenced(self):
        image = cluster(1)
        again = do(image, registration(1, boot=2))
        broker = again.brokers[NodeId(1)]
        assert (broker.boot, broker.fenced, broker.epoch) == (2, True, again.version)
        assert broker.metadata_replica == founder(1)

    def test_new_listeners_in_the_same_boot_keep_epoch_and_fencing(self):
        image = cluster(1)
        changed = do(image, registration(1, listeners=(), peer_port=7))
        broker = changed.brokers[NodeId(1)]
        assert (broker.listeners, broker.peer_port, broker.fenced) == ((), 7, False)
        assert broker.epoch == image.brokers[NodeId(1)].epoch
        assert changed.version == image.version + 1

    def test_a_lower_boot_number_is_a_rolled_back_disk(self):
        image = do(cluster(1), registration(1, boot=5))
        assert refused(image, registration(1, boot=4)).refusal is Refusal.ROLLED_BACK

    def test_an_equal_boot_number_of_another_incarnation_is_too(self):
        """A copy taken after boot 4 and restored after boot 5 boots as number 5 again."""
        image = do(cluster(1), registration(1, boot=5))
        twin = registration(1, boot=5, incarnation=77)
        assert refused(image, twin).refusal is Refusal.ROLLED_BACK

    def test_a_live_node_id_cannot_be_taken_by_another_directory(self):
        image = cluster(1, 2)
        assert refused(image, registration(2, at=1)).refusal is Refusal.NODE_ID_IN_USE

    def test_a_directory_belongs_to_one_broker(self):
        image = cluster(1, 2)
        thief = registration(3, directory=directory(2))
        assert refused(image, thief).refusal is Refusal.CONDEMNED_DIRECTORY

    def test_listener_names_are_unique(self):
        listeners = registration(1).listeners * 2
        image = do(EMPTY_IMAGE, found(1))
        assert refused(image, registration(1, listeners=listeners)).refusal is Refusal.MALFORMED

    @pytest.mark.parametrize(("low", "high"), [(2, 3), (0, 0)])
    def test_a_broker_that_cannot_read_the_level_stays_out(self, low, high):
        image = do(EMPTY_IMAGE, found(1))
        command = registration(1, level_min=low, level_max=high)
        assert refused(image, command).refusal is Refusal.FEATURE_UNSUPPORTED

    def test_the_number_of_brokers_is_bounded(self):
        image = do(EMPTY_IMAGE, found(1), *(registration(n) for n in range(1, BROKERS_MAX + 1)))
        assert len(image.brokers) == BROKERS_MAX
        assert refused(image, registration(BROKERS_MAX + 1)).refusal is Refusal.MALFORMED
        assert apply(image, registration(1, boot=2)).done


class TestWipedDirectory:
    """A wiped broker never votes before a membership change gave it a new id."""

    def wiped(self):
        image = cluster(1, 2, 3)
        image = do(image, topic(image, (1, 2, 3), (2, 3, 1)))
        image = do(image, fence(image, 2))
        return image, do(image, registration(2, at=1))

    def test_every_replica_gets_a_successor_in_one_step(self):
        before, after = self.wiped()
        for number in (0, 1):
            old, new = replica(part(before, number), 2), replica(part(after, number), 2)
            assert new == (2, directory(2, 1), after.version)
            assert old not in part(after, number).target
            assert new in part(after, number).target
            assert part(after, number).target_version == after.version

    def test_the_old_id_stays_known_until_the_group_is_reported_without_it(self):
        before, after = self.wiped()
        old = replica(part(before), 2)
        assert old in part(after).replicas
        assert part(after).reported == part(before).reported
        final = report(after, voters=part(after).target, index=9)
        assert old not in part(do(after, final)).replicas

    def test_preference_order_is_kept(self):
        _, after = self.wiped()
        assert [r.node for r in part(after, 1).target] == [2, 3, 1]

    def test_the_voter_of_group_0_is_replaced(self):
        _, after = self.wiped()
        assert after.controllers == (founder(1), (2, directory(2, 1), after.version), founder(3))

    def test_the_old_directory_may_never_come_back(self):
        _, after = self.wiped()
        assert after.brokers[NodeId(2)].former == (directory(2),)
        again = refused(after, registration(2, boot=9))
        assert again.refusal is Refusal.CONDEMNED_DIRECTORY

    def test_a_second_wipe_before_the_first_was_worked_off(self):
        before, after = self.wiped()
        twice = do(after, registration(2, at=2))
        target = part(twice).target
        assert [r for r in target if r.node == 2] == [(2, directory(2, 2), twice.version)]
        known = [r for r in part(twice).replicas if r.node == 2]
        assert len(known) == 3
        assert replica(part(before), 2) in known

    def test_what_was_to_be_deleted_on_the_old_directory_is_forgotten(self):
        image = cluster(1, 2)
        image = do(image, topic(image, (1, 2)), c.DeleteTopic(topic_id=ORDERS))
        assert len(image.removals[NodeId(2)]) == 1
        image = do(image, fence(image, 2), registration(2, at=1))
        assert NodeId(2) not in image.removals
        assert len(image.removals[NodeId(1)]) == 1


class TestCondemned:
    def condemned(self):
        image = cluster(1, 2)
        return do(image, c.CondemnDirectory(node=NodeId(2), directory=directory(2)))

    def test_the_broker_is_fenced_and_cannot_be_unfenced(self):
        image = self.condemned()
        assert image.brokers[NodeId(2)].fenced
        assert refused(image, unfence(image, 2)).refusal is Refusal.CONDEMNED_DIRECTORY

    def test_no_boot_number_makes_it_good_again(self):
        """Three restarts of a rolled-back directory count up past the number once seen."""
        image = self.condemned()
        for boot in (2, 3, 99):
            answer = refused(image, registration(2, boot=boot))
            assert answer.refusal is Refusal.CONDEMNED_DIRECTORY

    def test_no_replica_is_placed_there(self):
        image = self.condemned()
        assert image.directory_of(NodeId(2)) is None
        command = topic(cluster(1, 2), (1, 2))
        assert refused(image, command).refusal is Refusal.INVALID_ASSIGNMENT

    def test_a_new_directory_brings_the_broker_back(self):
        image = do(self.condemned(), registration(2, at=1))
        broker = image.brokers[NodeId(2)]
        assert not broker.condemned
        assert broker.former == (directory(2),)

    def test_twice_is_no_change_and_another_directory_is_stale(self):
        image = self.condemned()
        again = apply(image, c.CondemnDirectory(node=NodeId(2), directory=directory(2)))
        assert again.done
        assert again.image is image
        other = c.CondemnDirectory(node=NodeId(2), directory=directory(2, 1))
        assert refused(image, other).refusal is Refusal.STALE
        unknown = c.CondemnDirectory(node=NodeId(9), directory=directory(9))
        assert refused(image, unknown).refusal is Refusal.UNKNOWN_BROKER


class TestFencing:
    def test_names_the_registration_meant(self):
        image = cluster(1)
        old = fence(image, 1)
        image = do(image, registration(1, boot=2), unfence(do(image, registration(1, boot=2)), 1))
        assert refused(image, old).refusal is Refusal.STALE
        assert not image.brokers[NodeId(1)].fenced

    def test_twice_is_no_change(self):
        image = do(cluster(1), fence(cluster(1), 1))
        applied = apply(image, fence(image, 1))
        assert applied.done
        assert applied.image is image

    def test_unknown_brokers(self):
        image = cluster(1)
        command = c.FenceBroker(node=NodeId(9), epoch=1)
        assert refused(image, command).refusal is Refusal.UNKNOWN_BROKER

    def test_live_brokers_are_the_unfenced_in_order(self):
        image = cluster(3, 1, 2)
        image = do(image, fence(image, 2))
        assert [broker.node for broker in image.live_brokers()] == [1, 3]


class TestUnregister:
    def test_forgets_a_fenced_broker_that_holds_nothing(self):
        image = cluster(1, 2, 3, 4)
        image = do(image, fence(image, 4), c.UnregisterBroker(node=NodeId(4)))
        assert sorted(image.brokers) == [1, 2, 3]

    def test_refuses_live_ones_controllers_and_holders(self):
        image = cluster(1, 2, 3, 4)
        gone = c.UnregisterBroker(node=NodeId(4))
        assert refused(image, gone).refusal is Refusal.BROKER_IN_USE
        image = do(image, topic(image, (4, 1)), fence(image, 4), fence(image, 1))
        assert refused(image, gone).refusal is Refusal.BROKER_IN_USE
        controller = c.UnregisterBroker(node=NodeId(1))
        assert refused(image, controller).refusal is Refusal.BROKER_IN_USE
        unknown = c.UnregisterBroker(node=NodeId(9))
        assert refused(image, unknown).refusal is Refusal.UNKNOWN_BROKER


class TestConfirmRemoved:
    def deleted(self):
        image = cluster(1, 2)
        image = do(image, topic(image, (1, 2), (2, 1)))
        return do(image, c.DeleteTopic(topic_id=ORDERS))

    def confirm(self, image, node, *items):
        return c.ConfirmRemoved(
            node=NodeId(node),
            directory=image.brokers[NodeId(node)].directory,
            removed=tuple((GroupId(group), ReplicaEpoch(epoch)) for group, epoch in items),
        )

    def test_ends_the_removal_of_that_epoch_only(self):
        image = self.deleted()
        first, second = image.removals[NodeId(1)]
        wrong = self.confirm(image, 1, (first.group, first.replica.epoch + 1))
        assert apply(image, wrong).image is image
        image = do(image, self.confirm(image, 1, (first.group, first.replica.epoch)))
        assert image.removals[NodeId(1)] == (second,)
        assert len(image.removals[NodeId(2)]) == 2

    def test_the_last_one_leaves_nothing_behind(self):
        image = self.deleted()
        items = [(r.group, r.replica.epoch) for r in image.removals[NodeId(1)]]
        image = do(image, self.confirm(image, 1, *items))
        assert NodeId(1) not in image.removals

    def test_of_another_directory_or_broker_is_refused(self):
        image = self.deleted()
        other = attrs.evolve(self.confirm(image, 1, (1, 1)), directory=directory(1, 3))
        assert refused(image, other).refusal is Refusal.STALE
        unknown = attrs.evolve(other, node=NodeId(9))
        assert refused(image, unknown).refusal is Refusal.UNKNOWN_BROKER


class TestLevelsAndProducers:
    def test_the_level_rises_when_all_brokers_support_it(self):
        image = do(
            EMPTY_IMAGE, found(1), registration(1, level_max=3), registration(2, level_max=2)
        )
        assert do(image, c.RaiseFeatureLevel(level=2)).feature_level == 2
        high = refused(image, c.RaiseFeatureLevel(level=3))
        assert high.refusal is Refusal.FEATURE_UNSUPPORTED
        assert "broker 2" in high.message

    def test_the_level_never_falls(self):
        image = do(EMPTY_IMAGE, found(1), registration(1, level_max=3))
        image = do(image, c.RaiseFeatureLevel(level=3))
        assert refused(image, c.RaiseFeatureLevel(level=2)).refusal is Refusal.STALE
        assert apply(image, c.RaiseFeatureLevel(level=3)).image is image
        late = registration(2, level_max=2)
        assert refused(image, late).refusal is Refusal.FEATURE_UNSUPPORTED

    def test_producer_ids_are_never_given_twice(self):
        image = cluster(1)
        first = apply(image, c.AllocateProducerIds(node=NodeId(1), count=1000))
        second = apply(first.image, c.AllocateProducerIds(node=NodeId(1), count=5))
        assert (first.value, second.value, second.image.next_producer_id) == (0, 1000, 1005)

    def test_none_or_for_nobody_is_refused(self):
        image = cluster(1)
        none = c.AllocateProducerIds(node=NodeId(1), count=0)
        assert refused(image, none).refusal is Refusal.MALFORMED
        nobody = c.AllocateProducerIds(node=NodeId(7), count=1)
        assert refused(image, nobody).refusal is Refusal.UNKNOWN_BROKER

    def test_a_digest_is_compared_at_its_own_version_only(self):
        image = cluster(1)
        right = c.CompareDigest(version=image.version, digest=image.digest())
        assert apply(image, right).image is image
        wrong = c.CompareDigest(version=image.version, digest=bytes(32))
        assert refused(image, wrong).refusal is Refusal.DIGEST_DIFFERS
        older = c.CompareDigest(version=image.version - 1, digest=bytes(32))
        assert apply(image, older).done


class TestSnapshots:
    def test_an_empty_replica_begins_with_one(self):
        image = cluster(1, 2)
        command = c.SnapshotImage(snapshot=encode_snapshot(image))
        assert do(EMPTY_IMAGE, command) == image
        assert encode_image(do(EMPTY_IMAGE, command)) == encode_image(image)

    def test_a_replica_that_applied_everything_compares(self):
        image = cluster(1, 2)
        same = c.SnapshotImage(snapshot=encode_snapshot(image))
        assert apply(image, same).image is image
        other = c.SnapshotImage(snapshot=encode_snapshot(cluster(1)))
        assert refused(image, other).refusal is Refusal.DIGEST_DIFFERS

    def test_damage_is_refused_and_never_raised(self):
        whole = encode_snapshot(cluster(1))
        for snapshot in (b"", whole[:-1], b"x" + whole[1:], whole[:40] + b"x" + whole[41:]):
            command = c.SnapshotImage(snapshot=snapshot)
            assert refused(EMPTY_IMAGE, command).refusal is Refusal.MALFORMED

    def test_one_of_a_later_release_is_refused_by_name(self):
        snapshot = bytearray(encode_snapshot(cluster(1)))
        snapshot[9], snapshot[11] = 9, 9
        answer = refused(EMPTY_IMAGE, c.SnapshotImage(snapshot=bytes(snapshot)))
        assert "this release reads 3" in answer.message

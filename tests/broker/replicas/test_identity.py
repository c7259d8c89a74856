"""Identity over whole brokers in virtual time: wiped, lost and rolled-back disks, joiners,
removals.

A replica that lost its promises never votes under the id that made them. It comes back under a new
one, by a committed membership change. Nothing is founded twice, and nothing is deleted but by an
explicit removal.
"""

import copy

import pytest
from raftlog_sim.base.stuck import StuckError

from raftlog.base.ids import METADATA_GROUP, NodeId
from raftlog.broker.peer_messages import ControllerKind, ControllerRequest
from raftlog.metadata import commands as c
from raftlog.metadata import requests as r
from raftlog.metadata.refusals import Refusal
from tests.broker.whole_brokers import (
    ask_controller,
    broker,
    cluster,
    group_directories,
    group_directories_of,
    group_zero,
    image,
    join,
    lose_group,
    partition,
    registration_of,
    wait_settled,
    wipe,
)


class TestFounding:
    @pytest.mark.parametrize(("brokers", "controllers"), [(1, 1), (3, 1), (3, 3), (5, 3)])
    def test_all_brokers_hold_one_image(self, brokers, controllers):
        world = cluster(brokers, controllers)
        world.run(1.0)
        digests = {image(world, number).digest() for number in range(1, brokers + 1)}
        assert len(digests) == 1
        assert len(image(world).brokers) == brokers
        assert len(image(world).founders) == controllers
        membership = group_zero(world).membership
        assert len(membership.voters) == controllers
        assert len(membership.learners) == brokers - controllers

    def test_a_joiner_is_taken_in_later(self):
        world = cluster(3, 3)
        world.create("orders", partitions=3)
        join(world, 4)
        world.ready()
        same = lambda: image(world, 4).digest() == image(world, 1).digest()  # noqa: E731
        world.wait(same, 10, "the joiner's image")
        four = image(world).brokers[NodeId(4)].metadata_replica
        world.wait(lambda: four in group_zero(world).membership.learners, 10, "learner")

    def test_two_of_three_controllers_come_back_empty(self):
        """No second cluster, no group 0 of the two; the third keeps what it has."""
        world = cluster(3, 3)
        world.create("orders", partitions=2)
        world.run(1.0)
        held = broker(world, 1).context.replicas[METADATA_GROUP].log.last_index
        for number in (1, 2, 3):
            world.kill(number)
        for number in (2, 3):
            wipe(world, number)
        for number in (1, 2, 3):
            world.restart(number)
        world.run(10.0)
        assert group_zero(world) is None
        for number in (2, 3):
            context = broker(world, number).context
            assert METADATA_GROUP not in context.replicas
            assert context.image.cluster_id is None
            assert not broker(world, number).registration.registered
        assert broker(world, 1).context.replicas[METADATA_GROUP].log.last_index == held


class TestWiped:
    @pytest.mark.parametrize("controllers", [1, 3])
    def test_a_wiped_broker_comes_back_under_new_ids(self, controllers):
        """Node 3 is a voter of group 0 when there are three controllers."""
        world = cluster(3, controllers)
        world.create("orders", partitions=4)
        wait_settled(world, "orders")
        old = [
            replica for part in image(world).topic("orders").partitions for replica in part.target
        ]
        world.kill(3)
        wipe(world, 3)
        world.restart(3)
        world.ready(40.0)
        wait_settled(world, "orders")
        fresh = broker(world, 3).context.directory
        for part in image(world).topic("orders").partitions:
            mine = [replica for replica in part.target if replica.node == 3]
            assert [replica.directory for replica in mine] == [fresh]
            assert mine[0] not in old
            assert part.reported.membership.voters == tuple(sorted(part.target))
        zero = image(world).brokers[NodeId(3)].metadata_replica
        assert zero.directory == fresh
        everyone = group_zero(world).membership.everyone()
        assert zero in everyone
        assert [replica.node for replica in everyone].count(3) == 1

    def test_the_old_id_never_speaks_again(self):
        """No vote, ack or campaign under an id whose disk is gone: the old ids of node 3 appear in
        no message that it sends after the wipe."""
        world = cluster(3, 3)
        world.create("orders", partitions=2)
        wait_settled(world, "orders")
        old_directory = world.world.nodes[3].directory
        world.kill(3)
        wipe(world, 3)
        world.restart(3)
        world.ready(40.0)
        wait_settled(world, "orders")
        for replica in broker(world, 3).context.replicas.values():
            assert replica.me.directory != old_directory
        for part in image(world).topic("orders").partitions:
            assert all(replica.directory != old_directory for replica in part.replicas)

    def test_while_another_broker_is_down_the_wiped_one_cannot_elect(self):
        """C is down, A's disk was wiped: B alone must not get a leader from A's vote."""
        world = cluster(3, 3)
        world.create("orders", partitions=1)
        wait_settled(world, "orders")
        for number in (1, 2, 3):
            world.kill(number)
        wipe(world, 1)
        for number in (1, 2):
            world.restart(number)
        world.run(10.0)
        assert group_zero(world) is None
        assert METADATA_GROUP not in broker(world, 1).context.replicas
        world.restart(3)
        world.ready(60.0)
        wait_settled(world, "orders")

    def test_a_broker_whose_node_id_was_taken_over_knows_it_is_out(self):
        """It was cut off, another directory registered under its number, and then it came back."""
        world = cluster(3, 3)
        world.create("orders", partitions=2)
        wait_settled(world, "orders")
        cut_off = world.world.nodes[3]
        cut_off.suspended = True
        alive = world.world.nodes[1]
        world.wait(lambda: alive.broker.context.image.brokers[NodeId(3)].fenced, 20, "fenced")
        old = cut_off.disk
        cut_off.stop_process()
        wipe(world, 3)
        world.restart(3)
        world.ready(40.0)
        wait_settled(world, "orders")
        world.kill(3)
        cut_off.disk = old
        world.restart(3)
        world.wait(lambda: broker(world, 3).registration.refused is not None, 40, "refused")
        assert broker(world, 3).registration.refused is Refusal.CONDEMNED_DIRECTORY
        assert set(broker(world, 3).context.replicas) <= {METADATA_GROUP}
        world.run(3.0)
        assert all(part.settled for part in image(world, 1).topic("orders").partitions)


class TestLostPartition:
    def test_one_lost_directory_gets_a_new_id(self):
        """Registered and without files is lost; it never starts empty again."""
        world = cluster(3, 3)
        world.create("orders", partitions=2)
        wait_settled(world, "orders")
        part = partition(world, "orders")
        other = partition(world, "orders", 1)
        old = next(replica for replica in part.target if replica.node == 2)
        node = world.world.nodes[2]
        node.stop_process()
        lose_group(node, part.group)
        world.restart(2)
        world.ready(40.0)
        world.wait(lambda: old not in partition(world, "orders").replicas, 40, "replaced")
        wait_settled(world, "orders")
        new = next(r for r in partition(world, "orders").target if r.node == 2)
        assert new.directory == old.directory
        assert new.epoch > old.epoch
        assert broker(world, 2).context.replicas[part.group].me == new
        assert partition(world, "orders", 1).target == other.target

    def test_a_lost_replica_of_group_0_too(self):
        world = cluster(3, 3)
        world.create("orders", partitions=1)
        wait_settled(world, "orders")
        node = world.world.nodes[2]
        old = image(world).brokers[NodeId(2)].metadata_replica
        node.stop_process()
        lose_group(node, METADATA_GROUP)
        world.restart(2)

        def replaced():
            leader = group_zero(world)
            return leader is not None and old not in leader.membership.everyone()

        world.wait(replaced, 40, "replaced")
        world.ready(40.0)
        new = image(world).brokers[NodeId(2)].metadata_replica
        assert new.epoch > old.epoch
        assert new in group_zero(world).membership.voters
        assert broker(world, 2).context.replicas[METADATA_GROUP].me == new


class TestRolledBack:
    def test_a_restored_old_copy_takes_part_in_nothing(self):
        """A copy taken while the broker was down, restored after it had run again."""
        world = cluster(3, 3)
        world.create("orders", partitions=2)
        wait_settled(world, "orders")
        node = world.world.nodes[2]
        node.stop_process()
        copied = copy.deepcopy(node.disk)
        world.restart(2)
        world.ready(40.0)
        node.stop_process()
        node.disk = copied
        world.restart(2)
        world.wait(lambda: broker(world, 2).registration.refused is not None, 40, "noticed")
        assert broker(world, 2).registration.refused in (
            Refusal.ROLLED_BACK,
            Refusal.CONDEMNED_DIRECTORY,
        )
        world.run(3.0)
        assert set(broker(world, 2).context.replicas) <= {METADATA_GROUP}
        assert image(world, 1).brokers[NodeId(2)].condemned
        for number in (1, 3):
            assert NodeId(2) in broker(world, number).links.refused

    def test_a_lower_boot_number_is_noticed_and_counting_up_does_not_help(self):
        """The links refuse it at once; the controller hears of it and condemns the directory, or a
        few more restarts would lift the number over the last one seen."""
        world = cluster(3, 3)
        world.create("orders", partitions=2)
        wait_settled(world, "orders")
        node = world.world.nodes[2]
        node.stop_process()
        copied = copy.deepcopy(node.disk)
        for _ in range(3):
            world.restart(2)
            world.ready(40.0)
            node.stop_process()
        node.disk = copied
        for _ in range(4):
            world.restart(2)
            world.wait(lambda: broker(world, 2).registration.refused is not None, 40, "noticed")
            assert set(broker(world, 2).context.replicas) <= {METADATA_GROUP}
            node.stop_process()
        assert image(world, 1).brokers[NodeId(2)].condemned

    def test_what_a_dead_boot_said_condemns_nobody(self):
        """Its last words, held up by a cut, reach a controller that knows the boot after it: the
        session is half open there, and no process lives at its other end."""
        world = cluster(3, 3)
        leader = group_zero(world)
        two, three = (NodeId(number) for number in (1, 2, 3) if number != leader.me.node)
        network, heir = world.world.network, broker(world, three).context
        dead = broker(world, two)
        words = ControllerRequest(99, ControllerKind.REGISTER, registration_of(dead))
        network.hold([(two, three), (three, two)])
        network.send(two, three, heir.sessions[two].session, [words])
        world.kill(two)
        world.restart(two)
        world.wait(lambda: heir.image.brokers[two].boot > dead.context.boot, 1.2, "a later boot")
        old = world.world.nodes[leader.me.node]
        leader.transfer(heir.replicas[METADATA_GROUP].me, old.broker.context.now)
        old.broker.context.touch(METADATA_GROUP)
        old.deliver_nothing()
        world.wait(lambda: heir.replicas[METADATA_GROUP].ready, 1.0, "another controller")
        network.heal()
        world.run(2.0)
        assert not heir.image.brokers[two].condemned
        assert broker(world, two).registration.registered

    def test_it_comes_back_once_wiped(self):
        world = cluster(3, 3)
        world.create("orders", partitions=1)
        wait_settled(world, "orders")
        node = world.world.nodes[2]
        node.stop_process()
        copied = copy.deepcopy(node.disk)
        world.restart(2)
        world.ready(40.0)
        node.stop_process()
        node.disk = copied
        world.restart(2)
        world.wait(lambda: broker(world, 2).registration.refused is not None, 40, "noticed")
        world.run(1.0)
        node.stop_process()
        wipe(world, 2)
        world.restart(2)
        world.ready(60.0)
        wait_settled(world, "orders")


class TestMoves:
    def test_a_partition_moves_under_a_running_cluster_and_its_old_files_go(self):
        world = cluster(4, 3)
        world.create("orders", partitions=1, factor=3)
        wait_settled(world, "orders")
        topic_id = image(world).names["orders"]
        before = partition(world, "orders")
        gone = before.target[2]
        fourth = next(n for n in (1, 2, 3, 4) if n not in [r.node for r in before.target])
        nodes = (before.target[0].node, before.target[1].node, NodeId(fourth))
        assert (
            ask_controller(
                world, r.ReassignRequest(topic_id=topic_id, partition=0, nodes=nodes)
            ).error
            == 0
        )
        wait_settled(world, "orders")
        assert [r.node for r in partition(world, "orders").target] == list(nodes)
        holder = world.world.nodes[gone.node]
        world.wait(lambda: not image(world).removals, 20, "confirmed")
        assert before.group not in holder.broker.context.replicas
        assert not any(name.startswith(topic_id.hex()) for name in group_directories(holder))

    def test_a_cancelled_move_leaves_what_was(self):
        world = cluster(4, 3)
        world.create("orders", partitions=1, factor=3)
        wait_settled(world, "orders")
        topic_id = image(world).names["orders"]
        before = partition(world, "orders")
        fourth = next(n for n in (1, 2, 3, 4) if n not in [r.node for r in before.target])
        world.kill(fourth)
        nodes = (before.target[0].node, before.target[1].node, NodeId(fourth))
        at = before.target[0].node
        request = r.ReassignRequest(topic_id=topic_id, partition=0, nodes=nodes)
        assert ask_controller(world, request, at=at).error == 0
        world.run(2.0)
        assert not partition(world, "orders", at=at).settled
        cancel = r.ReassignRequest(topic_id=topic_id, partition=0, nodes=())
        assert ask_controller(world, cancel, at=at).error == 0
        wait_settled(world, "orders")
        assert partition(world, "orders", at=at).target == before.target
        world.restart(fourth)
        world.ready(40.0)
        world.wait(lambda: not image(world).removals, 30, "confirmed")
        assert group_directories_of(world, fourth, topic_id) == []


class TestDeletion:
    def test_a_broker_that_was_away_deletes_when_it_comes_back(self):
        """The removal waits in the image, for an absence from an image deletes nothing."""
        world = cluster(3, 3)
        world.create("orders", partitions=2)
        wait_settled(world, "orders")
        topic_id = image(world).names["orders"]
        world.kill(3)
        assert (
            ask_controller(world, r.SubmitCommand(command=c.DeleteTopic(topic_id=topic_id))).error
            == 0
        )
        world.run(1.0)
        assert list(image(world).removals) == [3]
        assert len(group_directories_of(world, 3, topic_id)) == 2
        world.restart(3)
        world.ready(40.0)
        world.wait(lambda: not image(world).removals, 30, "confirmed")
        assert group_directories_of(world, 3, topic_id) == []
        assert sorted(broker(world, 3).context.replicas) == [METADATA_GROUP]

    def test_a_topic_created_again_is_another_one(self):
        world = cluster(3, 1)
        world.create("orders", partitions=1)
        wait_settled(world, "orders")
        first = partition(world, "orders").group
        topic_id = image(world).names["orders"]
        ask_controller(world, r.SubmitCommand(command=c.DeleteTopic(topic_id=topic_id)))
        world.create("orders", partitions=1)
        wait_settled(world, "orders")
        assert image(world).names["orders"] != topic_id
        assert partition(world, "orders").group > first


class TestControllers:
    def test_killing_the_controller_in_the_middle_of_fifty_creations(self):
        """FEATURES M14: all of them exist in the end, each once."""
        world = cluster(3, 3)
        for number in range(12):
            if number == 4:
                leader = group_zero(world).me.node
                world.kill(leader)
            at = world.world.running()[0].number
            world.create(f"t{number}", partitions=2, factor=2, at=at)
        assert len(image(world).topics) == 12
        world.restart(leader)
        world.ready(40.0)
        world.wait(lambda: len({image(world, n).digest() for n in (1, 2, 3)}) == 1, 20, "equal")

    def test_a_minority_of_controllers_decides_nothing(self):
        world = cluster(3, 3)
        world.kill(1)
        world.kill(2)
        with pytest.raises((StuckError, AssertionError)):
            world.create("orders", partitions=1, factor=1, at=3, timeout_ms=500)
        world.restart(1)
        world.ready(40.0)

    def test_a_silent_broker_is_fenced_and_comes_back(self):
        world = cluster(3, 3)
        world.kill(3)
        alive = world.world.running()[0].number
        world.wait(lambda: image(world, alive).brokers[NodeId(3)].fenced, 20, "fenced")
        world.restart(3)
        back = lambda: not image(world, alive).brokers[NodeId(3)].fenced  # noqa: E731
        world.wait(back, 20, "unfenced")

    def test_all_at_once_and_back(self):
        world = cluster(3, 3)
        world.create("orders", partitions=3)
        wait_settled(world, "orders")
        for _ in range(3):
            for number in (1, 2, 3):
                world.world.nodes[number].crash()
            for number in (1, 2, 3):
                world.restart(number)
            world.ready(60.0)
            wait_settled(world, "orders")
        assert len(image(world).topics) == 1

    def test_leaders_are_spread_as_placed(self):
        world = cluster(3, 3)
        world.create("orders", partitions=6)
        wait_settled(world, "orders")
        world.run(2.0)
        leaders = [part.leader.node for part in image(world).topic("orders").partitions]
        assert sorted(leaders) == [1, 1, 2, 2, 3, 3]

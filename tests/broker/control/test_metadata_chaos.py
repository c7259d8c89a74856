"""Random administration under random faults, over whole brokers in virtual time.

Four brokers, three of them controllers. Topics are created, grown, moved and deleted, records are
produced, while brokers are killed, cut off, suspended, wiped and lose replicas. Even seeds use
any replication factor and no wiping; odd ones wipe, at factor three, and only while everything is
whole: two disks lost at once are beyond what three copies can repair.

After every step: one leader per group and term, one image per version. In the end, healed: every
partition is where it is wanted, no replica id is left over, every broker runs exactly what the
image says, images are equal, every acknowledged record is where its answer said.

A failure is replayed by its seed: `run(seed)`.
"""

import copy
import random

import pytest
from raftlog_sim.world.disk import Keep
from raftlog_sim.world.world import seconds

from raftlog.base.ids import METADATA_GROUP
from raftlog.broker.control.controller_requests import metadata_target
from raftlog.broker.peer_messages import ControllerKind
from raftlog.kafka.versions import ApiKey
from raftlog.metadata import commands as c
from raftlog.metadata import requests as r
from raftlog.storage.directories.data_dir import open_directory
from tests.broker.cluster import Cluster
from tests.broker.whole_brokers import group_zero, lose_group, settled, wipe

NODES = (1, 2, 3, 4)
ACTIONS = (
    *("produce",) * 6,
    *("create", "move") * 2,
    *("grow", "delete", "cancel"),
    *("kill", "restart") * 2,
    *("cut off", "heal", "reset", "suspend", "resume", "power loss", "wipe", "lose"),
)


class Chaos:
    def __init__(self, seed):
        self.draw = random.Random(seed)
        self.wipes = seed % 2 == 1
        self.cluster = Cluster(brokers=len(NODES), controllers=3, seed=seed).ready(40.0)
        self.world = self.cluster.world
        self.digests = {}
        self.leaders = {}
        self.sent = []
        self.topics = 0

    def nodes(self):
        return list(self.world.nodes.values())

    def run(self, steps):
        for _ in range(steps):
            action = self.draw.choice(ACTIONS)
            getattr(self, action.replace(" ", "_"))(self.draw.choice(self.nodes()))
            for _ in range(self.draw.choice([1, 3, 10])):
                self.cluster.run(self.draw.random() * 0.2)
                self.check()

    def check(self):
        for node in self.world.running():
            image = node.broker.loader.image
            assert self.digests.setdefault(image.version, image.digest()) == image.digest()
            assert node.broker.loader.stopped is None
            for group, replica in node.broker.context.replicas.items():
                if replica.is_leader:
                    leader = self.leaders.setdefault((group, replica.term), replica.me)
                    assert leader == replica.me, (group, replica.term)

    # --- faults ---

    def down(self):
        return [node for node in self.nodes() if not node.up]

    def kill(self, node):
        if node.up and not self.down():
            node.crash(self.draw.choice(list(Keep)))

    def restart(self, _):
        for node in self.down():
            node.start()

    def power_loss(self, _):
        for node in self.world.running():
            node.crash(self.draw.choice(list(Keep)))
        self.restart(None)

    def cut_off(self, node):
        self.world.network.partition([node.number])

    def heal(self, _):
        self.world.network.heal()

    def reset(self, node):
        other = self.draw.choice(self.nodes())
        if other is not node:
            self.world.network.reset(node.number, other.number)

    def suspend(self, node):
        if node.up:
            node.suspended = True

    def resume(self, _):
        for node in self.world.running():
            if node.suspended:
                node.suspended = False
                node._turn_soon(node.live)

    def wipe(self, node):
        if self.wipes:
            self.make_whole()
            node.stop_process()
            wipe(self.cluster, node.number)
            node.start()
            self.cluster.wait(self.whole, 90, f"whole after node {node.number} was wiped")

    def lose(self, node):
        if self.wipes:
            self.make_whole()
            groups = list(open_directory(copy.deepcopy(node.disk)).registrations)
            group = self.draw.choice(groups)
            node.stop_process()
            lose_group(node, group)
            node.start()
            self.cluster.wait(self.whole, 90, f"whole after {node.number} lost group {group}")

    def make_whole(self):
        self.heal(None)
        self.resume(None)
        self.restart(None)
        self.cluster.wait(self.whole, 90, "whole")

    def whole(self):
        """Every group, group 0 too, is where it is wanted, and runs there."""
        running = self.world.running()
        zero = group_zero(self.cluster)
        if len(running) < len(NODES) or zero is None or zero.commit < zero.membership_index:
            return False
        if zero.membership != metadata_target(running[0].broker.context.image):
            return False
        behind = [
            voter
            for voter in zero.membership.voters
            if voter != zero.me and zero.node.progress[voter].match < zero.membership_index
        ]
        names = running[0].broker.context.image.names
        return (
            not behind
            and all(self.runs_what_it_should(node) for node in running)
            and all(settled(self.cluster, name) for name in names)
        )

    def runs_what_it_should(self, node):
        context = node.broker.context
        image = context.image
        wanted = {METADATA_GROUP} | {
            group
            for group in image.places
            for replica in image.partition_of_group(group).replicas
            if replica.node == node.number
        }
        return node.broker.registration.registered and wanted == set(context.replicas)

    # --- administration and records ---

    def ask(self, request):
        running = self.world.running()
        if running:
            node = self.draw.choice(running)
            context = node.broker.context
            deadline = context.now + seconds(5)
            context.controller.ask(
                ControllerKind.PROPOSE, r.encode_body(request), deadline, ignored
            )
            node._turn_soon(node.live)

    def some_topic(self):
        """A topic that some broker knows, as that broker sees it."""
        running = self.world.running()
        image = self.draw.choice(running).broker.context.image if running else None
        if image is None or not image.topics:
            return None
        return image.topics[image.names[self.draw.choice(sorted(image.names))]]

    def create(self, _):
        self.topics += 1
        request = r.NewTopicRequest(
            topic_id=self.topics.to_bytes(16, "big"),
            name=f"t{self.topics}",
            internal=False,
            count=self.draw.choice([1, 2, 4]),
            factor=3 if self.wipes else self.draw.choice([1, 2, 3]),
            nodes=(),
            configs=(),
            validate_only=False,
        )
        self.ask(request)

    def grow(self, _):
        topic = self.some_topic()
        if topic is not None:
            count = len(topic.partitions) + 1
            self.ask(
                r.GrowTopicRequest(
                    topic_id=topic.topic_id, count=count, nodes=(), validate_only=False
                )
            )

    def delete(self, _):
        topic = self.some_topic()
        if topic is not None and self.draw.random() < 0.4:
            self.ask(r.SubmitCommand(command=c.DeleteTopic(topic_id=topic.topic_id)))

    def move(self, _):
        factor = 3 if self.wipes else self.draw.choice([1, 2, 3])
        self.reassign(tuple(self.draw.sample(NODES, factor)))

    def cancel(self, _):
        self.reassign(())

    def reassign(self, nodes):
        topic = self.some_topic()
        if topic is not None:
            number = self.draw.randrange(len(topic.partitions))
            self.ask(r.ReassignRequest(topic_id=topic.topic_id, partition=number, nodes=nodes))

    def produce(self, _):
        topic = self.some_topic()
        if topic is None:
            return
        number = self.draw.randrange(len(topic.partitions))
        leader = topic.partitions[number].leader
        node = None if leader is None else self.world.nodes[leader.node]
        if node is None or not node.up or node.suspended:
            return
        value = b"%d" % len(self.sent)
        body = self.cluster.produce_body(topic.name, [value], number, timeout_ms=2000)
        pending = self.cluster.client(node.number).request(ApiKey.PRODUCE, body, 11)
        self.sent.append((topic.topic_id, number, value, pending))

    # --- the end ---

    def finish(self):
        self.make_whole()
        self.cluster.wait(self.nothing_to_remove, 90, "removals confirmed")
        self.cluster.wait(self.images_equal, 60, "equal images")
        self.cluster.run(3.0)
        self.check()
        self.check_records()

    def nothing_to_remove(self):
        return not any(node.broker.context.image.removals for node in self.world.running())

    def images_equal(self):
        digests = [node.broker.context.image.digest() for node in self.world.running()]
        return len(set(digests)) == 1

    def check_records(self):
        topics = self.world.running()[0].broker.context.image.topics
        found = {}
        for topic_id, number, value, pending in self.sent:
            if topic_id not in topics or not pending.done or isinstance(pending.answer, Exception):
                continue
            answer = pending.answer.responses[0].partition_responses[0]
            if answer.error_code != 0:
                continue
            key = (topics[topic_id].name, number)
            if key not in found:
                found[key] = dict(self.cluster.read_all(*key))
            assert found[key].get(answer.base_offset) == value, (key, answer.base_offset)


def ignored(reply):
    """No client waits: the end shows the outcome."""


def run(seed, steps=50):
    chaos = Chaos(seed)
    chaos.run(steps)
    chaos.finish()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_administration_under_faults(seed):
    print(f"replay: run({seed})")
    run(seed)

"""Whole brokers in virtual time: what tests of identity look at, and what they do to disks.

`world` is a `tests.broker.cluster.Cluster`.
"""

import copy

from raftlog_sim.world.world import seconds

from raftlog.base.ids import METADATA_GROUP, NodeId
from raftlog.broker.peer_messages import ControllerKind
from raftlog.metadata import commands as c
from raftlog.metadata import requests as r
from raftlog.storage.directories.data_dir import DirectoryIdentity, format_directory, open_directory
from tests.broker.cluster import Cluster


def cluster(brokers=3, controllers=3, **options):
    return Cluster(brokers=brokers, controllers=controllers, **options).ready()


def broker(world, number):
    return world.world.nodes[number].broker


def image(world, number=None):
    node = world.world.running()[0] if number is None else world.world.nodes[number]
    return node.broker.context.image


def partition(world, name, number=0, at=None):
    return image(world, at).topic(name).partitions[number]


def group_zero(world):
    """The replica of group 0 that leads."""
    for node in world.world.running():
        replica = node.broker.context.replicas.get(METADATA_GROUP)
        if replica is not None and replica.is_leader and replica.ready:
            return replica
    return None


def settled(world, name):
    """Every partition is where it is wanted, and the image knows no other id."""
    for node in world.world.running():
        topic = node.broker.context.image.topic(name)
        if topic is None:
            return False
        for part in topic.partitions:
            if not part.settled or sorted(part.replicas) != sorted(part.target):
                return False
            if part.leader is None or not node.broker.context.image.is_live(part.leader):
                return False
    return True


def wait_settled(world, name, limit=30.0):
    world.wait(lambda: settled(world, name), limit, f"{name} settled")


def ask_controller(world, request, at=None, limit=20.0):
    """Ask the controller as a handler of some broker would; returns the controller's reply."""
    node = world.world.nodes[at] if at else world.world.running()[0]
    replies = []
    context = node.broker.context
    deadline = context.now + seconds(limit)
    body = r.encode_body(request)
    context.controller.ask(ControllerKind.PROPOSE, body, deadline, replies.append)
    node._turn_soon(node.live)
    world.wait(lambda: bool(replies), limit + 1, "an answer of the controller")
    return replies[0]


def registration_of(broker):
    """How this boot presents itself to a controller, as bytes."""
    context = broker.context
    config = context.config
    return r.encode_body(
        c.RegisterBroker(
            node=config.node,
            directory=context.directory,
            boot=context.boot,
            incarnation=broker.registration.incarnation,
            listeners=(),
            peer_host=config.peer.host,
            peer_port=config.peer.port,
            rack=config.rack,
            level_min=config.release.level_min,
            level_max=config.release.level_max,
        )
    )


def group_directories(node):
    return list(node.disk.list("groups"))


def lose_group(node, group):
    """Delete one replica's directory, as an operator's slip would."""
    path = registered_path(node, group)
    for name in node.disk.list(path):
        node.disk.remove(f"{path}/{name}")
    node.disk.remove(path)
    node.disk.sync_dir("groups")


def registered_path(node, group):
    return open_directory(copy.deepcopy(node.disk)).registrations[group].path


def join(world, number):
    controllers = world.world.nodes[1].config.controllers
    world.world.add(NodeId(number), empty_disk(world, number), controllers)


def wipe(world, number):
    """The node's next boot finds an empty disk, formatted as a joiner of the same cluster."""
    node = world.world.nodes[number]
    assert not node.up
    node.disk = empty_disk(world, number)


def empty_disk(world, number):
    first = world.world.nodes[1]
    identity = DirectoryIdentity(
        cluster=open_directory(copy.deepcopy(first.disk)).identity.cluster,
        node=NodeId(number),
        directory=world.world.new_directory(NodeId(number)),
        controllers=(),
    )
    disk = world.world.new_disk(NodeId(number))
    format_directory(disk, identity)
    return disk


def group_directories_of(world, number, topic_id):
    names = group_directories(world.world.nodes[number])
    return [name for name in names if name.startswith(topic_id.hex())]

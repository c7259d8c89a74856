"""The rules for brokers: registration, fencing, condemned directories, confirmed removals,
settings.

A replica id binds node, directory and placement. So a broker that comes back with
another directory cannot keep its replica ids. In one step every replica id on its old directory
gets a successor on the new one, which joins as a learner. The image keeps an old id until its group
has reported to be without it. A boot number that is not above the last one means that an old copy
of the directory was restored. `register` refuses it, and the controller condemns the directory, so
that no later boot can hide it.
"""

import attrs

from raftlog.base.ids import DirectoryId, NodeId, ReplicaEpoch, ReplicaId
from raftlog.base.limits import BROKERS_MAX, CONFIGS_PER_TOPIC_MAX, FORMER_DIRECTORIES_MAX
from raftlog.metadata import commands as c
from raftlog.metadata.broker_image import BrokerImage
from raftlog.metadata.image import ClusterImage
from raftlog.metadata.refusals import Refusal
from raftlog.metadata.rules.applied import Applied
from raftlog.metadata.rules.partition_rules import replace_directory
from raftlog.metadata.settings.broker_settings import EVERY_BROKER


def register(image: ClusterImage, command: c.RegisterBroker) -> Applied:
    """A boot presents itself."""
    problem = _registration_problem(image, command)
    if problem is not None:
        return problem
    known = image.brokers.get(command.node)
    if known is None:
        return _register_new(image, command)
    if known.directory != command.directory:
        return _register_on_new_directory(image, known, command)
    return _register_again(image, known, command)


def _registration_problem(image: ClusterImage, command: c.RegisterBroker) -> Applied | None:
    level = image.feature_level
    if not command.level_min <= level <= command.level_max:
        return Applied(
            image,
            Refusal.FEATURE_UNSUPPORTED,
            f"the cluster is at feature level {level}; broker {command.node} supports"
            f" {command.level_min} to {command.level_max}",
        )
    names = [listener.name for listener in command.listeners]
    if len(names) != len(dict.fromkeys(names)):
        return Applied(image, Refusal.MALFORMED, f"listener names repeat: {names}")
    for node in sorted(image.brokers):
        if node != command.node and image.brokers[node].directory == command.directory:
            return Applied(
                image,
                Refusal.CONDEMNED_DIRECTORY,
                f"data directory {command.directory:016x} belongs to broker {node}",
            )
    return None


def _register_new(image: ClusterImage, command: c.RegisterBroker) -> Applied:
    if len(image.brokers) >= BROKERS_MAX:
        return Applied(image, Refusal.MALFORMED, f"a cluster has at most {BROKERS_MAX} brokers")
    version = image.version + 1
    founded = _controller_at(image, command.node)
    replica = founded
    if replica is None or replica.directory != command.directory:
        replica = _placed(command.node, command.directory, version)
    broker = _broker(command, epoch=version, former=(), metadata_replica=replica)
    return Applied(
        attrs.evolve(
            image,
            version=version,
            brokers={**image.brokers, command.node: broker},
            controllers=_with_controller(image, founded, replica),
        )
    )


def _register_again(image: ClusterImage, known: BrokerImage, command: c.RegisterBroker) -> Applied:
    if known.condemned:
        return _condemned(image, command)
    rolled_back = command.boot < known.boot or (
        command.boot == known.boot and command.incarnation != known.incarnation
    )
    if rolled_back:
        return Applied(
            image,
            Refusal.ROLLED_BACK,
            f"broker {known.node} booted as number {command.boot} and was seen at {known.boot}",
        )
    if command.boot == known.boot and command == _registration_of(known):
        return Applied(image)
    version = image.version + 1
    again = command.boot == known.boot
    broker = _broker(
        command,
        epoch=known.epoch if again else version,
        former=known.former,
        metadata_replica=known.metadata_replica,
        fenced=known.fenced if again else True,
    )
    return Applied(_with_broker(image, version, broker))


def _register_on_new_directory(
    image: ClusterImage, known: BrokerImage, command: c.RegisterBroker
) -> Applied:
    if command.directory in known.former:
        return _condemned(image, command)
    if not known.fenced:
        return Applied(
            image,
            Refusal.NODE_ID_IN_USE,
            f"node id {known.node} is alive on data directory {known.directory:016x}",
        )
    version = image.version + 1
    replica = _placed(command.node, command.directory, version)
    former = (*known.former, known.directory)[-FORMER_DIRECTORIES_MAX:]
    broker = _broker(command, epoch=version, former=former, metadata_replica=replica)
    moved = replace_directory(image, known.node, known.directory, command.directory, version)
    return Applied(
        attrs.evolve(
            _with_broker(moved, version, broker),
            controllers=_with_controller(image, _controller_at(image, known.node), replica),
            removals={node: left for node, left in image.removals.items() if node != known.node},
        )
    )


def condemn(image: ClusterImage, command: c.CondemnDirectory) -> Applied:
    """Condemn a directory that was rolled back; it can never register again."""
    broker = image.brokers.get(command.node)
    if broker is None:
        return _unknown(image, command.node)
    if broker.directory != command.directory:
        return Applied(image, Refusal.STALE, f"broker {command.node} has another directory now")
    if broker.condemned:
        return Applied(image)
    changed = attrs.evolve(broker, condemned=True, fenced=True)
    return Applied(_with_broker(image, image.version + 1, changed))


def fence(image: ClusterImage, command: c.FenceBroker) -> Applied:
    """The registration meant fell silent."""
    return _set_fenced(image, command.node, command.epoch, fenced=True)


def unfence(image: ClusterImage, command: c.UnfenceBroker) -> Applied:
    """The registration meant is alive and up to date."""
    broker = image.brokers.get(command.node)
    if broker is not None and broker.condemned:
        return Applied(
            image,
            Refusal.CONDEMNED_DIRECTORY,
            f"the directory of broker {command.node} is condemned",
        )
    return _set_fenced(image, command.node, command.epoch, fenced=False)


def _set_fenced(image: ClusterImage, node: NodeId, epoch: int, *, fenced: bool) -> Applied:
    broker = image.brokers.get(node)
    if broker is None:
        return _unknown(image, node)
    if broker.epoch != epoch:
        return Applied(image, Refusal.STALE, f"broker {node} registered again as {broker.epoch}")
    if broker.fenced == fenced:
        return Applied(image)
    changed = attrs.evolve(broker, fenced=fenced)
    return Applied(_with_broker(image, image.version + 1, changed))


def unregister(image: ClusterImage, command: c.UnregisterBroker) -> Applied:
    """Forget a broker that holds nothing."""
    broker = image.brokers.get(command.node)
    if broker is None:
        return _unknown(image, command.node)
    if not broker.fenced or _controller_at(image, command.node) is not None:
        return Applied(
            image, Refusal.BROKER_IN_USE, f"broker {command.node} is alive or a controller"
        )
    for topic_id in sorted(image.topics):
        for partition in image.topics[topic_id].partitions:
            if any(replica.node == command.node for replica in partition.replicas):
                return Applied(
                    image,
                    Refusal.BROKER_IN_USE,
                    f"broker {command.node} has replicas of {image.topics[topic_id].name}",
                )
    left = {node: broker for node, broker in image.brokers.items() if node != command.node}
    removals = {node: kept for node, kept in image.removals.items() if node != command.node}
    settings = {node: kept for node, kept in image.settings.items() if node != command.node}
    return Applied(
        attrs.evolve(
            image,
            version=image.version + 1,
            brokers=left,
            removals=removals,
            settings=settings,
        )
    )


def alter_configs(image: ClusterImage, command: c.AlterBrokerConfigs) -> Applied:
    """Set and remove settings that change while brokers run."""
    owner = command.owner
    if owner != EVERY_BROKER and owner not in image.brokers:
        return _unknown(image, owner)
    if len(dict(command.changed)) != len(command.changed):
        return Applied(image, Refusal.INVALID_CONFIG, "a setting is given twice")
    configs = dict(image.settings.get(owner, ()))
    configs.update(command.changed)
    for name in command.removed:
        configs.pop(name, None)
    if len(configs) > CONFIGS_PER_TOPIC_MAX:
        return Applied(image, Refusal.INVALID_CONFIG, f"more than {CONFIGS_PER_TOPIC_MAX} settings")
    ordered = tuple(sorted(configs.items()))
    if ordered == image.settings.get(owner, ()):
        return Applied(image)
    settings = {node: kept for node, kept in image.settings.items() if node != owner}
    if ordered:
        settings[owner] = ordered
    return Applied(attrs.evolve(image, version=image.version + 1, settings=settings))


def confirm_removed(image: ClusterImage, command: c.ConfirmRemoved) -> Applied:
    """The node's files of these replicas are gone."""
    broker = image.brokers.get(command.node)
    if broker is None:
        return _unknown(image, command.node)
    if broker.directory != command.directory:
        return Applied(image, Refusal.STALE, f"broker {command.node} has another directory now")
    waiting = image.removals.get(command.node, ())
    gone = dict.fromkeys(command.removed)
    left = tuple(item for item in waiting if (item.group, item.replica.epoch) not in gone)
    if left == waiting:
        return Applied(image)
    removals = {node: items for node, items in image.removals.items() if node != command.node}
    if left:
        removals[command.node] = left
    return Applied(attrs.evolve(image, version=image.version + 1, removals=removals))


def _broker(
    command: c.RegisterBroker,
    *,
    epoch: int,
    former: tuple[DirectoryId, ...],
    metadata_replica: ReplicaId,
    fenced: bool = True,
) -> BrokerImage:
    return BrokerImage(
        node=command.node,
        directory=command.directory,
        boot=command.boot,
        incarnation=command.incarnation,
        epoch=epoch,
        listeners=command.listeners,
        peer_host=command.peer_host,
        peer_port=command.peer_port,
        rack=command.rack,
        level_min=command.level_min,
        level_max=command.level_max,
        fenced=fenced,
        condemned=False,
        former=former,
        metadata_replica=metadata_replica,
    )


def _registration_of(broker: BrokerImage) -> c.RegisterBroker:
    """The command that a broker's present registration came from."""
    return c.RegisterBroker(
        node=broker.node,
        directory=broker.directory,
        boot=broker.boot,
        incarnation=broker.incarnation,
        listeners=broker.listeners,
        peer_host=broker.peer_host,
        peer_port=broker.peer_port,
        rack=broker.rack,
        level_min=broker.level_min,
        level_max=broker.level_max,
    )


def _with_broker(image: ClusterImage, version: int, broker: BrokerImage) -> ClusterImage:
    return attrs.evolve(image, version=version, brokers={**image.brokers, broker.node: broker})


def _placed(node: NodeId, directory: DirectoryId, version: int) -> ReplicaId:
    return ReplicaId(node, directory, ReplicaEpoch(version))


def _controller_at(image: ClusterImage, node: NodeId) -> ReplicaId | None:
    return next((replica for replica in image.controllers if replica.node == node), None)


def _with_controller(
    image: ClusterImage, old: ReplicaId | None, new: ReplicaId
) -> tuple[ReplicaId, ...]:
    """The wanted voters of group 0 when the node of `old` goes on as `new`."""
    if old is None:
        return image.controllers
    return tuple(sorted(new if replica == old else replica for replica in image.controllers))


def _condemned(image: ClusterImage, command: c.RegisterBroker) -> Applied:
    return Applied(
        image,
        Refusal.CONDEMNED_DIRECTORY,
        f"data directory {command.directory:016x} of broker {command.node} was rolled back or"
        " replaced",
    )


def _unknown(image: ClusterImage, node: NodeId) -> Applied:
    return Applied(image, Refusal.UNKNOWN_BROKER, f"node {node} is not registered")

"""Sets and removes throttles of moves like Kafka's tool: rates of brokers, lists of topics.

A throttle stays until a command removes it. It slows only replicas that move, so a forgotten one
does no harm before the next move.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from raftlog.base.limits import CONFIG_VALUE_BYTES_MAX
from raftlog.cli.admin.moves import known_brokers
from raftlog.cli.admin.plan_files import Moves
from raftlog.client.core.admin_asks import (
    Change,
    ConfigSource,
    Resource,
    ResourceKind,
    alter_settings,
    describe_settings,
)
from raftlog.client.core.values import Moving, TopicPartition
from raftlog.client.trio_driver import Client
from raftlog.metadata.settings.config_changes import ConfigOperation

_RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_DIRECTORY_RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
_BROKER_RATES: Final = (*_RATES, _DIRECTORY_RATE)
_LISTS: Final = (
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
)


async def throttle(
    client: Client,
    plan: Moves,
    current: Moves,
    moving: Mapping[TopicPartition, Moving],
    rate: int,
) -> None:
    """Bound the plan's moves, and those under way, to `rate` bytes a second.

    The bound is for each broker that sends and for each that receives.
    """
    leaders: dict[str, list[str]] = {}
    followers: dict[str, list[str]] = {}
    brokers: dict[int, None] = {}
    for place in sorted({*plan, *moving}):
        now = moving.get(place)
        sources = [n for n in now.replicas if n not in now.adding] if now else current[place]
        wanted = plan.get(place, now.adding if now else ())
        new = [node for node in wanted if node not in sources]
        leaders.setdefault(place.topic, []).extend(f"{place.partition}:{n}" for n in sources)
        followers.setdefault(place.topic, []).extend(f"{place.partition}:{n}" for n in new)
        brokers.update(dict.fromkeys((*sources, *new)))
    for topic, sending in leaders.items():
        lists = (_listed(sending), _listed(followers[topic]))
        changes = [Change(*each, ConfigOperation.SET) for each in zip(_LISTS, lists, strict=True)]
        await client.ask(alter_settings(Resource(ResourceKind.TOPIC, topic), changes))
    await client.know_brokers()
    alive = [each.broker_id for each in (await known_brokers(client)).brokers]
    for node in sorted(node for node in brokers if node in alive):
        changes = [Change(name, str(rate), ConfigOperation.SET) for name in _RATES]
        await client.ask(alter_settings(Resource(ResourceKind.BROKER, str(node)), changes))


def _listed(replicas: list[str]) -> str:
    """Kafka's list of replicas.

    One that is too long for a value becomes `*`: only moves are throttled anyway.
    """
    text = ",".join(replicas)
    return text if len(text) <= CONFIG_VALUE_BYTES_MAX else "*"


async def throttle_directories(client: Client, nodes: Iterable[int], rate: int) -> None:
    """Bound what each of these brokers copies between its log directories to `rate` bytes a
    second."""
    await client.know_brokers()
    change = Change(_DIRECTORY_RATE, str(rate), ConfigOperation.SET)
    for node in sorted(nodes):
        await client.ask(alter_settings(Resource(ResourceKind.BROKER, str(node)), [change]))


async def take_away(client: Client, topics: Iterable[str]) -> list[int]:
    """Remove the throttles of all brokers and of these topics; returns the brokers asked."""
    nodes = sorted(each.broker_id for each in (await known_brokers(client)).brokers)
    await client.know_brokers()
    for node in nodes:
        gone = [Change(name, None, ConfigOperation.DELETE) for name in _BROKER_RATES]
        await client.ask(alter_settings(Resource(ResourceKind.BROKER, str(node)), gone))
    for topic in topics:
        gone = [Change(name, None, ConfigOperation.DELETE) for name in _LISTS]
        await client.ask(alter_settings(Resource(ResourceKind.TOPIC, topic), gone))
    return nodes


async def is_throttled(client: Client, topics: Iterable[str]) -> bool:
    """Whether a broker has a rate, or one of these topics a list."""
    await client.know_brokers()
    alive = [each.broker_id for each in (await known_brokers(client)).brokers]
    resources = [Resource(ResourceKind.BROKER, str(node)) for node in sorted(alive)]
    resources += [Resource(ResourceKind.TOPIC, topic) for topic in topics]
    dynamic = (ConfigSource.DYNAMIC_BROKER_CONFIG, ConfigSource.DYNAMIC_TOPIC_CONFIG)
    for resource in resources:
        names = _BROKER_RATES if resource.kind is ResourceKind.BROKER else _LISTS
        found = await client.ask(describe_settings([resource], names=names))
        if any(each.source in dynamic for each in found[resource].values()):
            return True
    return False

"""Shows settings, and reads changes of them, for all commands."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from raftlog.cli.admin.moves import UnknownPlace, check_alive, current_moves
from raftlog.cli.output.group_view import list_all
from raftlog.client.core.admin_asks import (
    EVERY_BROKER,
    Change,
    ConfigSource,
    DescribedSetting,
    Resource,
    ResourceKind,
    describe_settings,
    list_resources,
)
from raftlog.client.trio_driver import Client, gather
from raftlog.metadata.settings.config_changes import ConfigOperation

OWN_SOURCES: Final[tuple[ConfigSource, ...]] = (
    ConfigSource.DYNAMIC_TOPIC_CONFIG,
    ConfigSource.DYNAMIC_BROKER_CONFIG,
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
    ConfigSource.DYNAMIC_GROUP_CONFIG,
)
"""The sources of values that were given to the resource itself while it ran."""
_RESOURCES_PER_REQUEST: Final = 100

Settings = dict[str, DescribedSetting]


async def describe(client: Client, resources: Sequence[Resource]) -> dict[Resource, Settings]:
    """The settings of each resource, in the given order. Each broker is asked for its own."""
    brokers = [each for each in resources if each.kind == ResourceKind.BROKER]
    others = [each for each in resources if each.kind != ResourceKind.BROKER]
    if brokers:
        await client.know_brokers()
    parts = [[each] for each in brokers]
    parts += [
        others[first : first + _RESOURCES_PER_REQUEST]
        for first in range(0, len(others), _RESOURCES_PER_REQUEST)
    ]
    found: dict[Resource, Settings] = {}

    async def ask(part: Sequence[Resource]) -> None:
        found.update(await client.ask(describe_settings(part)))

    async with gather() as nursery:
        for part in parts:
            nursery.start_soon(ask, part)
    return {each: found[each] for each in resources}


async def check_existing(client: Client, resources: Sequence[Resource]) -> None:
    """Raise `OperatingError` for a broker that is not alive, or a topic that does not exist.

    A request for their settings would be tried until its time is up: they may come yet.
    """
    nodes = [
        int(each.name)
        for each in resources
        if each.kind in (ResourceKind.BROKER, ResourceKind.BROKER_LOGGER)
        and each.name != EVERY_BROKER
    ]
    if nodes:
        await check_alive(client, nodes)
    await current_moves(client, [e.name for e in resources if e.kind == ResourceKind.TOPIC])


async def check_groups(client: Client, resources: Sequence[Resource]) -> None:
    """Raise `UnknownPlace` for a group that no coordinator knows.

    A broker describes any name as a group without settings, as Kafka does.
    """
    wanted = [each.name for each in resources if each.kind == ResourceKind.GROUP]
    known = {each.group_id for each in await list_all(client)} if wanted else set()
    unknown = next((name for name in wanted if name not in known), None)
    if unknown is not None:
        raise UnknownPlace(f"Group {unknown} not found.", on=f"group {unknown}")


async def everything(client: Client, kinds: Sequence[ResourceKind]) -> list[Resource]:
    """All existing resources of these kinds."""
    found: list[Resource] = []
    for kind in kinds:
        if kind == ResourceKind.GROUP:
            found += [Resource(kind, each.group_id) for each in await list_all(client)]
            continue
        told: list[Resource] = await client.ask(list_resources([kind]))
        found += told
        if kind == ResourceKind.BROKER:
            found.append(Resource(kind, EVERY_BROKER))
    return found


def own(resource: Resource, settings: Settings) -> Settings:
    """The settings that were given to this very resource."""
    wanted = OWN_SOURCES
    if resource.kind == ResourceKind.BROKER and resource.name != EVERY_BROKER:
        wanted = (ConfigSource.DYNAMIC_BROKER_CONFIG,)
    return {name: each for name, each in settings.items() if each.source in wanted}


def shown_value(setting: DescribedSetting) -> str:
    """The value for people; secrets are hidden."""
    if setting.sensitive or setting.value is None:
        return "(secret)" if setting.sensitive else "-"
    return setting.value


def as_json(settings: Mapping[str, DescribedSetting]) -> list[dict[str, Any]]:
    """Settings for `--format json`, by name."""
    return [
        {
            "name": each.name,
            "value": each.value,
            "source": each.source.name,
            "read_only": each.read_only,
            "sensitive": each.sensitive,
            "synonyms": [
                {**synonym._asdict(), "source": synonym.source.name} for synonym in each.synonyms
            ],
        }
        for _, each in sorted(settings.items())
    ]


def changes(
    sets: Mapping[str, str],
    deletes: Sequence[str] = (),
    appends: Mapping[str, str] | None = None,
    subtracts: Mapping[str, str] | None = None,
) -> list[Change]:
    """The changes in their order: delete, set, append, subtract."""
    return [
        *(Change(name, None, ConfigOperation.DELETE) for name in deletes),
        *(Change(name, value, ConfigOperation.SET) for name, value in sets.items()),
        *(Change(name, value, ConfigOperation.APPEND) for name, value in (appends or {}).items()),
        *(
            Change(name, value, ConfigOperation.SUBTRACT)
            for name, value in (subtracts or {}).items()
        ),
    ]

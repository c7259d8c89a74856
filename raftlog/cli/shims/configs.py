"""`raftlog kafka-configs`: the flags, the output and the exit codes of Kafka's tool for settings.

Exit codes are Kafka's: 0, or 1 for everything that goes wrong, wrong usage included. JSON is ours.
"""

import re
import sys
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from raftlog.base.errors import OperatingError, RaftlogError
from raftlog.cli.admin.settings_view import as_json, changes, check_existing, describe, everything
from raftlog.cli.output.render import DONE_CODE, format_option, print_json
from raftlog.cli.shims.kafka_shim import (
    ShimCommand,
    ask,
    bootstrap_flag,
    command_config_flag,
    usage,
)
from raftlog.client.core.admin_asks import (
    EVERY_BROKER,
    ConfigSource,
    DescribedSetting,
    Resource,
    ResourceKind,
    alter_settings,
)
from raftlog.client.core.asks import describe_cluster, metadata
from raftlog.client.core.errors import KafkaError
from raftlog.client.trio_driver import Client
from raftlog.metadata.rules.topic_names import topic_name_problem
from raftlog.runtime.settings.config_file import parse_properties

_KINDS: Final = {
    "topics": ResourceKind.TOPIC,
    "brokers": ResourceKind.BROKER,
    "broker-loggers": ResourceKind.BROKER_LOGGER,
    "client-metrics": ResourceKind.CLIENT_METRICS,
    "groups": ResourceKind.GROUP,
}
_NOT_SERVED: Final = ("users", "clients", "ips")
"""The entities of quotas and credentials, which are not served."""
_SHORT: Final = {
    "topic": "topics",
    "broker": "brokers",
    "broker_logger": "broker-loggers",
    "client_metrics": "client-metrics",
    "group": "groups",
    "user": "users",
    "client": "clients",
    "ip": "ips",
}
_DEFAULTS: Final = {
    "broker_defaults": "brokers",
    "user_defaults": "users",
    "client_defaults": "clients",
    "ip_defaults": "ips",
}
_OWN_SOURCE: Final = {
    "topics": ConfigSource.DYNAMIC_TOPIC_CONFIG,
    "brokers": ConfigSource.DYNAMIC_BROKER_CONFIG,
    "client-metrics": ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG,
    "groups": ConfigSource.DYNAMIC_GROUP_CONFIG,
}
_OUTSIDE_BRACKETS: Final = r"(?=[^\]]*(?:\[|$))"


class Entity(NamedTuple):
    """The entity to describe or alter.

    `name` is None for all of the kind, empty for the default.
    """

    kind: str
    name: str | None

    @property
    def singular(self) -> str:
        return self.kind[:-1]


@click.command(
    "kafka-configs",
    cls=ShimCommand,
    epilog="""\b
Examples:
  raftlog kafka-configs --bootstrap-server localhost:9092 --describe --topic orders
  raftlog kafka-configs --bootstrap-server localhost:9092 --alter --entity-type topics \\
      --entity-name orders --add-config retention.ms=86400000""",
    context_settings={"max_content_width": 100},
)
@click.option("--describe", "describe_it", is_flag=True, help="Show settings.")
@click.option("--alter", "alter_it", is_flag=True, help="Change settings.")
@bootstrap_flag()
@command_config_flag()
@click.option("--all", "all_", is_flag=True, help="With --describe: defaults too.")
@click.option("--entity-type", "types", multiple=True, help="topics, brokers, groups, ...")
@click.option("--entity-name", "names", multiple=True, help="The name, or a broker's number.")
@click.option("--entity-default", is_flag=True, help="What counts for all brokers.")
@click.option("--topic", help="A topic's name.")
@click.option("--broker", help="A broker's number.")
@click.option("--broker-defaults", is_flag=True, help="What counts for all brokers.")
@click.option("--broker-logger", help="A broker's number.")
@click.option("--group", help="A group's id.")
@click.option("--client-metrics", help="A name of client metrics.")
@click.option("--user", help="Not served: quotas and credentials.")
@click.option("--user-defaults", is_flag=True, help="Not served.")
@click.option("--client", help="Not served: quotas.")
@click.option("--client-defaults", is_flag=True, help="Not served.")
@click.option("--ip", help="Not served: quotas.")
@click.option("--ip-defaults", is_flag=True, help="Not served.")
@click.option("--add-config", metavar="K=V[,K=[V,V]]", help="With --alter: settings to set.")
@click.option(
    "--add-config-file",
    type=click.Path(path_type=Path),
    help="With --alter: a file of settings to set.",
)
@click.option("--delete-config", metavar="K[,K]", help="With --alter: settings to take away.")
@format_option()
def kafka_configs(**flags: Any) -> int:
    """Kafka's own tool for settings, flag for flag."""
    if flags["describe_it"] == flags["alter_it"]:
        usage("Command must include exactly one action: --describe, --alter")
    entity = _entity(flags)
    if entity.kind in _NOT_SERVED:
        usage(f"{entity.kind}: quotas and credentials are not served by this release")
    if flags["describe_it"]:
        _check_describe(flags)
        return ask(flags, partial(_describe, entity, flags), told=_told)
    adds, deletes = _changes(flags)
    if entity.name is None:
        usage("An entity name must be specified for every entity type")
    return ask(flags, partial(_alter, entity, adds, deletes, flags), told=_told)


def _told(error: RaftlogError) -> str:
    """A broker's refusal as Kafka's tool prints it, below the line that begins like this one."""
    if not isinstance(error, KafkaError):
        return error.what
    return f"Error while executing config command\n{error.what}"


# --- flags ----------------------------------------------------------------------------------------


def _entity(flags: dict[str, Any]) -> Entity:
    """The one entity among the flags, long or short."""
    found = [Entity(kind, flags[key]) for key, kind in _SHORT.items() if flags[key] is not None]
    found += [Entity(kind, "") for key, kind in _DEFAULTS.items() if flags[key]]
    types: tuple[str, ...] = flags["types"]
    names: list[str] = list(flags["names"]) + [""] * flags["entity_default"]
    if found and types:
        usage("--entity-{type,name,default} should not be used in conjunction with specific flags")
    if not types and names:
        usage("--entity-name and --entity-default go with --entity-type")
    for each in types:
        if each not in (*_KINDS, *_NOT_SERVED):
            kinds = ", ".join((*_KINDS, *_NOT_SERVED))
            usage(f"Invalid entity type {each}, the entity type must be one of {kinds}")
    if types:
        found = [Entity(types[0], names[0] if names else None)]
    if not found:
        usage("At least one entity type must be specified")
    if len({each.kind for each in found} | set(types)) > 1 and not (
        {each.kind for each in found} | set(types) <= set(_NOT_SERVED)
    ):
        usage("Only users and clients can be named together")
    entity = found[0]
    if entity.name and entity.kind in ("brokers", "broker-loggers"):
        _check_broker(entity)
    if entity.name and entity.kind == "topics":
        problem = topic_name_problem(entity.name)
        if problem is not None:
            usage(problem)
    return entity


def _check_broker(entity: Entity) -> None:
    name = entity.name or ""
    if not (name.isascii() and name.isdigit() and len(name) < 10):
        usage(f"The entity name for {entity.kind} must be a valid integer broker id, found: {name}")


def _check_describe(flags: dict[str, Any]) -> None:
    for key in ("add_config", "add_config_file", "delete_config"):
        if flags[key] is not None:
            option = key.replace("_", "-")
            usage(f'Option "[describe]" can\'t be used with option "[{option}]"')


def _changes(flags: dict[str, Any]) -> tuple[dict[str, str], list[str]]:
    """The changes in --add-config, --add-config-file and --delete-config."""
    if flags["all_"]:
        usage('Option "[alter]" can\'t be used with option "[all]"')
    if flags["add_config"] is not None and flags["add_config_file"] is not None:
        usage("Only one of --add-config or --add-config-file must be specified.")
    adds: dict[str, str] = {}
    if flags["add_config_file"] is not None:
        adds |= _of_file(flags["add_config_file"])
    if flags["add_config"] is not None:
        adds |= _pairs(flags["add_config"])
    deletes = [each.strip() for each in (flags["delete_config"] or "").split(",") if each.strip()]
    if not adds and not deletes:
        usage("At least one of --add-config, --add-config-file, or --delete-config must be given")
    for name in adds:
        if not re.fullmatch(r"[$a-zA-Z0-9._-]*", name):
            usage(f"Invalid character found for config key: {name}")
    return adds, deletes


def _pairs(text: str) -> dict[str, str]:
    """Read `a=1,b=[1,2]`: a value in brackets may hold commas."""
    found: dict[str, str] = {}
    for part in re.split(f",{_OUTSIDE_BRACKETS}", text):
        pair = re.split(rf"\s*=\s*{_OUTSIDE_BRACKETS}", part)
        if len(pair) != 2:
            usage(
                "Invalid entity config: all configs to be added must be in the format "
                '"key=val" or "key=[val1,val2]" to group values which contain commas.'
            )
        found[pair[0].strip()] = re.sub(r"[\[\]]", "", pair[1]).strip()
    return found


def _of_file(path: Path) -> dict[str, str]:
    try:
        lines = parse_properties(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError, RaftlogError) as error:
        usage(f"{path}: {error}")
    return {key: line.value for key, line in lines.items()}


# --- actions --------------------------------------------------------------------------------------


async def _describe(entity: Entity, flags: dict[str, Any], client: Client) -> int:
    kind = _KINDS[entity.kind]
    if entity.name is not None:
        if not flags["all_"] and not await _exists(entity, client):
            what = f"The {entity.singular} '{entity.name}' doesn't exist and doesn't have dynamic"
            print(f"{what} config.")
            return DONE_CODE
        resources = [Resource(kind, entity.name)]
        await check_existing(client, resources)
    elif kind == ResourceKind.BROKER_LOGGER:
        brokers = (await client.ask(describe_cluster(fenced=False))).brokers
        resources = [Resource(kind, str(each.broker_id)) for each in brokers]
    else:
        resources = await everything(client, [kind])
    found = {
        resource: _shown(entity, resource, settings, all_=flags["all_"])
        for resource, settings in (await describe(client, resources)).items()
    }
    if flags["form"] == "json":
        told = [
            {"entity_type": entity.kind, "entity_name": each.name, "configs": as_json(settings)}
            for each, settings in found.items()
        ]
        print_json({"entities": told})
        return DONE_CODE
    for resource, settings in found.items():
        _print(entity, resource, settings, all_=flags["all_"])
    return DONE_CODE


async def _exists(entity: Entity, client: Client) -> bool:
    name = entity.name or ""
    if entity.kind == "topics":
        answer = await client.ask(metadata())
        return any(topic.name == name for topic in answer.topics)
    if entity.kind in ("brokers", "broker-loggers"):
        brokers = (await client.ask(describe_cluster(fenced=False))).brokers
        return name == EVERY_BROKER or any(str(each.broker_id) == name for each in brokers)
    resources = await everything(client, [_KINDS[entity.kind]])
    return any(each.name == name for each in resources)


def _shown(
    entity: Entity, resource: Resource, settings: dict[str, DescribedSetting], *, all_: bool
) -> dict[str, DescribedSetting]:
    """All settings, or those of the entity's own source. Loggers have no source of their own."""
    wanted = _OWN_SOURCE.get(entity.kind)
    if entity.kind == "brokers" and resource.name == EVERY_BROKER:
        wanted = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    if all_ or wanted is None:
        return settings
    return {name: each for name, each in settings.items() if each.source == wanted}


def _print(
    entity: Entity, resource: Resource, settings: dict[str, DescribedSetting], *, all_: bool
) -> None:
    if resource.name == EVERY_BROKER:
        print(f"Default configs for {entity.kind} in the cluster are:")
    else:
        which = "All" if all_ else "Dynamic"
        print(f"{which} configs for {entity.singular} {resource.name} are:")
    for name, each in sorted(settings.items()):
        synonyms = ", ".join(
            f"{one.source.name}:{one.name}={_java(one.value)}" for one in each.synonyms
        )
        sensitive = "true" if each.sensitive else "false"
        print(f"  {name}={_java(each.value)} sensitive={sensitive} synonyms={{{synonyms}}}")


def _java(value: str | None) -> str:
    return "null" if value is None else value


async def _alter(
    entity: Entity, adds: dict[str, str], deletes: list[str], flags: dict[str, Any], client: Client
) -> int:
    assert entity.name is not None, entity
    resource = Resource(_KINDS[entity.kind], entity.name)
    await check_existing(client, [resource])
    if deletes:
        found = (await describe(client, [resource]))[resource]
        known = _shown(entity, resource, found, all_=False)
        wrong = [name for name in deletes if name not in known]
        if wrong:
            raise OperatingError(f"Invalid config(s): {','.join(wrong)}")
    await client.know_brokers()
    await client.ask(alter_settings(resource, changes(adds, deletes)))
    if flags["form"] == "json":
        print_json({"altered": {"entity_type": entity.kind, "entity_name": entity.name}})
    elif entity.name:
        print(f"Completed updating config for {entity.singular} {entity.name}.")
    else:
        print(f"Completed updating default config for {entity.kind} in the cluster.")
    sys.stdout.flush()
    return DONE_CODE

"""`raftlog configs`: describe and alter the settings of topics and brokers."""

from collections.abc import Sequence
from typing import Any

import click

from raftlog.cli.admin.settings_view import (
    Settings,
    as_json,
    changes,
    check_existing,
    check_groups,
    describe,
    everything,
    own,
    shown_value,
)
from raftlog.cli.connect import with_client
from raftlog.cli.output.render import bootstrap_option, format_option, print_json, print_table
from raftlog.cli.settings import parse_settings
from raftlog.client.core.admin_asks import (
    EVERY_BROKER,
    Change,
    Resource,
    ResourceKind,
    alter_settings,
)
from raftlog.client.trio_driver import Client

_CONTEXT: dict[str, Any] = {"max_content_width": 100}
_KINDS = {
    "topic": ResourceKind.TOPIC,
    "broker": ResourceKind.BROKER,
    "group": ResourceKind.GROUP,
}


@click.group(epilog="Example: raftlog configs describe topic orders", context_settings=_CONTEXT)
def configs() -> None:
    """Show and change the settings of topics and brokers."""


@configs.command(
    "describe",
    epilog="""\b
Examples:
  raftlog configs describe topic orders
  raftlog configs describe broker 1 --all --synonyms
  raftlog configs describe topic""",
    context_settings=_CONTEXT,
)
@click.argument("kind", type=click.Choice(list(_KINDS)))
@click.argument("names", nargs=-1, metavar="[NAME...]")
@click.option("--all", "all_", is_flag=True, help="Also what comes from defaults and files.")
@click.option("--synonyms", is_flag=True, help="Show every place that gives a setting a value.")
@click.option("--brokers-default", is_flag=True, help="With broker: what counts for all brokers.")
@bootstrap_option()
@format_option()
def describe_command(
    kind: str,
    names: tuple[str, ...],
    all_: bool,
    synonyms: bool,
    brokers_default: bool,
    bootstrap: str,
    form: str,
) -> None:
    """Show settings and the sources of their values. Without a name, all resources are shown.

    Only settings that were given to the resource itself while it ran are shown; --all shows all.
    """
    resources = _resources(kind, names, brokers_default=brokers_default)

    async def work(client: Client) -> dict[Resource, Settings]:
        await check_existing(client, resources)
        await check_groups(client, resources)
        return await describe(client, resources or await everything(client, [_KINDS[kind]]))

    found = with_client(bootstrap, work)
    shown = {
        resource: settings if all_ else own(resource, settings)
        for resource, settings in found.items()
    }
    if form == "json":
        resources_told = [
            {"kind": kind, "name": resource.name, "settings": as_json(settings)}
            for resource, settings in shown.items()
        ]
        print_json({"resources": resources_told})
        return
    for resource, settings in shown.items():
        _print_settings(resource, settings, synonyms=synonyms)


def _print_settings(resource: Resource, settings: Settings, *, synonyms: bool) -> None:
    if not settings:
        print(f"{resource}: no settings of its own")
        return
    print(f"{resource}:")
    rows = [
        [name, shown_value(each), each.source.name, "yes" if each.read_only else "no"]
        for name, each in sorted(settings.items())
    ]
    if not synonyms:
        print_table(["SETTING", "VALUE", "SOURCE", "READ-ONLY"], rows)
        return
    told = [
        ", ".join(f"{one.source.name}:{one.name}={one.value}" for one in each.synonyms) or "-"
        for _, each in sorted(settings.items())
    ]
    print_table(
        ["SETTING", "VALUE", "SOURCE", "READ-ONLY", "SYNONYMS"],
        [[*row, each] for row, each in zip(rows, told, strict=True)],
    )


def _resources(kind: str, names: Sequence[str], *, brokers_default: bool) -> list[Resource]:
    """The resources that the command names."""
    if brokers_default and kind != "broker":
        raise click.UsageError("--brokers-default goes with broker")
    for name in names:
        if kind == "broker" and not (name.isascii() and name.isdigit() and len(name) < 10):
            raise click.BadParameter(f"{name!r} is no broker's number", param_hint="NAME")
        if not name:
            raise click.BadParameter("a name is empty", param_hint="NAME")
    found = [Resource(_KINDS[kind], name) for name in dict.fromkeys(names)]
    if brokers_default:
        found.append(Resource(ResourceKind.BROKER, EVERY_BROKER))
    return found


# --- alter ----------------------------------------------------------------------------------------


@configs.command(
    "alter",
    epilog="""\b
Examples:
  raftlog configs alter topic orders --set retention.ms=86400000 --dry-run
  raftlog configs alter topic orders --delete retention.ms""",
    context_settings=_CONTEXT,
)
@click.argument("kind", type=click.Choice(list(_KINDS)))
@click.argument("names", nargs=-1, metavar="NAME...")
@click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="Give a setting a value.")
@click.option("--delete", "deletes", multiple=True, metavar="KEY", help="Back to the default.")
@click.option("--append", "appends", multiple=True, metavar="KEY=VALUE", help="Add to a list.")
@click.option("--subtract", "subtracts", multiple=True, metavar="KEY=VALUE", help="From a list.")
@click.option("--brokers-default", is_flag=True, help="With broker: what counts for all brokers.")
@click.option("--dry-run", is_flag=True, help="Ask whether it is allowed, and change nothing.")
@bootstrap_option()
@format_option()
def alter_command(
    kind: str,
    names: tuple[str, ...],
    brokers_default: bool,
    dry_run: bool,
    bootstrap: str,
    form: str,
    **flags: Any,
) -> None:
    """Change settings of running topics and brokers.

    Brokers refuse settings of groups: session.timeout.ms is a setting of a group's members.

    A resource gets all of its changes, or none. Resources are changed one after the other, and the
    command ends with the first one that is refused.
    """
    resources = _resources(kind, names, brokers_default=brokers_default)
    if not resources:
        raise click.UsageError("name what is to be altered")
    wanted = _wanted(flags)
    done: list[Resource] = []

    async def work(client: Client) -> None:
        await check_existing(client, resources)
        await client.know_brokers()
        for resource in resources:
            await client.ask(alter_settings(resource, wanted, validate_only=dry_run))
            done.append(resource)
            if form == "text":
                print(f"{resource}: {'may be changed' if dry_run else 'changed'}", flush=True)

    with_client(bootstrap, work)
    if form == "json":
        told = [{"kind": kind, "name": each.name} for each in done]
        print_json({"altered": told, "dry_run": dry_run})
    elif dry_run:
        print("nothing was changed: it was a dry run")


def _wanted(flags: dict[str, Any]) -> list[Change]:
    """The changes that the flags ask for."""
    sets, appends, subtracts = (
        parse_settings(flags[key], f"--{key[:-1]}") for key in ("sets", "appends", "subtracts")
    )
    wanted = changes(sets, [each.strip() for each in flags["deletes"]], appends, subtracts)
    if not wanted:
        raise click.UsageError("give --set, --delete, --append or --subtract")
    names = [each.name for each in wanted]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise click.UsageError(f"{twice} is changed twice: name it once")
    return wanted

"""`raftlog inspect`: show a data directory, read only."""

from pathlib import Path
from typing import Any

import click

from raftlog.cli.data_directory import data_disk
from raftlog.cli.output.render import FAILED_CODE, format_option, print_json, print_table
from raftlog.storage.inspect import inspect_directory


@click.command(
    epilog="Example: raftlog inspect raftlog-data/broker1 --format json",
    context_settings={"max_content_width": 100},
)
@click.argument("directory", type=click.Path(path_type=Path))
@click.option(
    "--verify/--no-verify",
    default=True,
    show_default=True,
    help="Read every batch and check its CRC and the chain.",
)
@format_option()
def inspect(directory: Path, verify: bool, form: str) -> int:
    """Walk a broker's data directory: identity, groups, segments, offsets, chain, damage.

    Nothing is written, so it may run beside a broker. Bytes that the broker is writing at the
    moment may then show as a torn tail. Exit code 1 when damage was found.
    """
    disk = data_disk(directory)
    found: dict[str, Any] = inspect_directory(disk, verify=verify)
    if form == "json":
        print_json(found)
    else:
        _print_text(found)
    return FAILED_CODE if found.get("damaged") else 0


def _print_text(found: dict[str, Any]) -> None:
    for key, value in found.items():
        if not isinstance(value, list | dict):
            print(f"{key.replace('_', ' ')}: {value}")
    for key, value in found.items():
        if isinstance(value, dict):
            print(f"\n{key.replace('_', ' ')}:")
            for name, inner in value.items():
                print(f"  {name}: {inner}")
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            columns = [name for name, cell in value[0].items() if not isinstance(cell, list | dict)]
            print(f"\n{key.replace('_', ' ')}:")
            print_table(
                [column.upper() for column in columns],
                [[row.get(column, "") for column in columns] for row in value],
            )

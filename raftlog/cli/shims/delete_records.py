"""`raftlog kafka-delete-records`: the flags and the output of Kafka's tool for deletions.

As with Kafka's tool, a refused partition is listed among the others, with exit code 0.
"""

from functools import partial
from pathlib import Path
from typing import Any

import click

from raftlog.base.errors import RaftlogError
from raftlog.cli.admin.plan_files import read_offsets
from raftlog.cli.output.render import DONE_CODE, format_option, print_json
from raftlog.cli.shims.kafka_shim import (
    ShimCommand,
    ask,
    bootstrap_flag,
    command_config_flag,
    usage,
)
from raftlog.client.core.asks import delete_records
from raftlog.client.core.errors import KafkaError
from raftlog.client.trio_driver import Client


@click.command(
    "kafka-delete-records",
    cls=ShimCommand,
    epilog="""\b
Example:
  raftlog kafka-delete-records --bootstrap-server localhost:9092 --offset-json-file offsets.json""",
    context_settings={"max_content_width": 100},
)
@bootstrap_flag()
@command_config_flag()
@click.option(
    "--offset-json-file",
    type=click.Path(path_type=Path),
    help="Which partitions, and before which offset; -1 is everything.",
)
@format_option()
def kafka_delete_records(**flags: Any) -> int:
    """Kafka's own tool for deletions of records, flag for flag."""
    if flags["offset_json_file"] is None:
        usage('Missing required argument "[offset-json-file]"')
    return ask(flags, partial(_delete, flags))


async def _delete(flags: dict[str, Any], client: Client) -> int:
    offsets = read_offsets(flags["offset_json_file"])
    text = flags["form"] == "text"
    if text:
        print("Executing records delete operation", flush=True)
    told: list[dict[str, Any]] = []
    for place, offset in sorted(offsets.items()):
        try:
            low: int | None = await client.ask(delete_records(place, offset))
            error = None
        except RaftlogError as refused:
            low = None
            error = refused.text if isinstance(refused, KafkaError) else refused.what
        told.append({**place._asdict(), "low_watermark": low, "error": error})
    if not text:
        print_json({"partitions": told})
        return DONE_CODE
    print("Records delete operation completed:")
    for each in told:
        place_text = f"{each['topic']}-{each['partition']}"
        outcome = f"low_watermark: {each['low_watermark']}"
        if each["error"] is not None:
            outcome = f"error: {each['error']}"
        print(f"partition: {place_text}\t{outcome}")
    return DONE_CODE

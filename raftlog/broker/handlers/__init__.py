"""One module per Kafka API, named after it, each with `handle(context, request)`.

A module is imported when its API is first asked for: a broker touches a dozen of them.
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Final

from raftlog.broker.context import Context
from raftlog.broker.events import Event
from raftlog.broker.front.requests import Connection, KafkaRequest
from raftlog.kafka.versions import SERVED

Handler = Callable[[Context, KafkaRequest], None]
RunTaker = Callable[[Context, Connection, Sequence[Event], int], int]

_MODULES: Final[dict[int, str]] = {int(api.key): api.key.name.lower() for api in SERVED.values()}
_HANDLERS: Final[dict[int, Handler]] = {}


def handler_of(api_key: int) -> Handler:
    """The handler of an API that `kafka.versions` lists as served."""
    found = _HANDLERS.get(api_key)
    if found is None:
        module = import_module(f"raftlog.broker.handlers.{_MODULES[api_key]}")
        handle: Handler = module.handle
        found = _HANDLERS[api_key] = handle
    return found


def take_run(context: Context, connection: Connection, events: Sequence[Event], first: int) -> int:
    """`produce_run.take_run`: how many events were taken together."""
    take: RunTaker = import_module("raftlog.broker.handlers.produce_run").take_run
    return take(context, connection, events, first)

"""One module per Kafka API, named after it, each with `handle(context, request)`.

A module is imported when its API is first asked for: a broker touches a dozen of them.
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Final, final

import attrs

from raftlog.broker.context import Context
from raftlog.broker.events import Event
from raftlog.broker.front.requests import Connection, KafkaRequest
from raftlog.kafka.versions import SERVED

Handler = Callable[[Context, KafkaRequest], None]
RunTaker = Callable[[Context, Connection, Sequence[Event], int], int]

_MODULES: Final[dict[int, str]] = {int(api.key): api.key.name.lower() for api in SERVED.values()}
_HANDLERS: Final[dict[int, Handler]] = {}


@final
@attrs.frozen(eq=False)
class Handlers:
    """The handlers, with the context that all of them get."""

    context: Context

    def handle(self, request: KafkaRequest) -> None:
        """Work a request of an API that `kafka.versions` lists as served."""
        handle = _HANDLERS.get(request.api_key)
        if handle is None:
            module = import_module(f"raftlog.broker.handlers.{_MODULES[request.api_key]}")
            handle = _HANDLERS[request.api_key] = module.handle
        handle(self.context, request)

    def take_run(self, connection: Connection, events: Sequence[Event], first: int) -> int:
        """`produce_run.take_run`: how many events were taken together."""
        take: RunTaker = import_module("raftlog.broker.handlers.produce_run").take_run
        return take(self.context, connection, events, first)

"""A FastStream test broker on real brokers, for `faststream.kafka` and `faststream.confluent`.

    async with RaftlogTestBroker(broker) as broker:
        await broker.publish("order 1", "orders")
        await handle.wait_call(timeout=10)
        handle.mock.assert_called_once_with("order 1")

FastStream's own `TestKafkaBroker` keeps messages in memory, or needs a Kafka at the address of the
application. This one starts a cluster, points the application's broker at it, and runs
`TestKafkaBroker(broker, with_real=True)`. FastStream is imported by its user.
"""

import sys
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Final, final

from raftlog.base.errors import LocalMisuse, WrongType
from raftlog.embed.cluster import Cluster

_ROOMS: Final = ("faststream.kafka", "faststream.confluent")


@final
class RaftlogTestBroker:
    """The application's FastStream broker, connected to real brokers. Entering the block returns
    it. `cluster` is a running cluster, or None to start one; then the attribute `cluster` has it,
    for a test that kills brokers."""

    __test__ = False
    """Tells pytest that this class is no test, although its name has "Test" in it."""

    def __init__(self, broker: Any, *, cluster: Cluster | None = None, brokers: int = 3) -> None:
        self._broker = broker
        self._test_broker = _test_broker_of(broker)
        self._own = cluster is None
        self.cluster = Cluster(brokers) if cluster is None else cluster
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Any:
        try:
            if self._own:
                await self._stack.enter_async_context(self.cluster)
            before = _pointed_at(self._broker, self.cluster.bootstrap_servers.split(","))
            self._stack.callback(_pointed_at, self._broker, before)
            running = self._test_broker(self._broker, with_real=True, connect_only=False)
            return await self._stack.enter_async_context(running)
        except BaseException:
            await self._stack.aclose()
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)


def _test_broker_of(broker: Any) -> Any:
    """FastStream's own test broker for this kind of broker."""
    for room in _ROOMS:
        module = sys.modules.get(room)
        kind = getattr(module, "KafkaBroker", None)
        if isinstance(kind, type) and isinstance(broker, kind):
            return module.TestKafkaBroker  # type: ignore[union-attr]  # it has a KafkaBroker
    raise WrongType(
        f"broker must be a KafkaBroker of {' or '.join(_ROOMS)}, not "
        f"{type(broker).__module__}.{type(broker).__qualname__}"
    )


def _pointed_at(broker: Any, servers: Any) -> Any:
    """Set the addresses of a broker that is not connected; return the former ones. FastStream takes
    addresses only at construction, so this writes to the attribute in which it keeps them."""
    kept = _where_addresses_are(broker)
    if not kept:
        raise LocalMisuse(
            "this release of FastStream keeps its addresses elsewhere",
            on=repr(broker),
            do="make the broker with cluster.bootstrap_servers, and use TestKafkaBroker(broker, "
            "with_real=True)",
        )
    before = kept[0]["bootstrap_servers"]
    for each in kept:
        each["bootstrap_servers"] = servers
    return before


def _where_addresses_are(broker: Any) -> list[Any]:
    of_confluent = getattr(broker.config, "connection_config", None)
    found = [
        getattr(broker, "_connection_kwargs", None),
        *(
            getattr(of_confluent, f"raw_{kind}_config", None)
            for kind in ("consumer", "producer", "admin")
        ),
    ]
    return [each for each in found if each and "bootstrap_servers" in each]

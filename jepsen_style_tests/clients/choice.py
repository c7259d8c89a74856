"""Which client a worker uses: by name, or mixed by its number."""

from collections.abc import Callable
from typing import Final

from jepsen_style_tests.clients import aio, confluent, kafka_python
from jepsen_style_tests.clients.aio import AioClient
from jepsen_style_tests.clients.confluent import ConfluentClient
from jepsen_style_tests.clients.face import Client, Settings
from jepsen_style_tests.clients.kafka_python import KafkaPythonClient

MIXED: Final = "mixed"
_MAKERS: Final[dict[str, Callable[[Settings], Client]]] = {
    confluent.NAME: ConfluentClient,
    kafka_python.NAME: KafkaPythonClient,
    aio.NAME: AioClient,
}
NAMES: Final = (*_MAKERS, MIXED)


def client_name(choice: str, number: int) -> str:
    """The client of worker `number`: the one that was chosen, or each in turn."""
    if choice != MIXED:
        return choice
    names = list(_MAKERS)
    return names[number % len(names)]


def open_client(name: str, settings: Settings) -> Client:
    """A client of this name; `Unknown` when it cannot reach anybody."""
    return _MAKERS[name](settings)

"""A client with which a cluster asks its own brokers for metadata."""

from typing import Final, final

from raftlog.base.errors import LocalMisuse
from raftlog.base.units import Nanos, millis
from raftlog.client.blocking import BlockingClient
from raftlog.client.core.asks import metadata
from raftlog.kafka.messages.metadata import MetadataResponse

_ANSWER_NS: Final = millis(1_000)


@final
class MetadataClient:
    """Blocks on each question, for a few seconds at most. Close it before the brokers end."""

    def __init__(self, bootstrap: str) -> None:
        client = BlockingClient(bootstrap, call_timeout_ns=Nanos(_ANSWER_NS * 5))
        self._client = client.__enter__()

    def ask(self, topics: list[str]) -> MetadataResponse:
        """The brokers, and these topics, by one broker's answer. Raises what the client raises."""
        answer: MetadataResponse = self._client.ask(metadata(topics, Nanos(_ANSWER_NS * 3)))
        return answer

    def close(self) -> None:
        """End the client, with every question that is under way."""
        self._client.__exit__(LocalMisuse, LocalMisuse("the cluster stops"), None)

"""The interface of a client as workloads use it, for clients of every library.

The important part is the kind of failure. `CallRefused` is only for an operation that certainly did
not happen and never will. `Unknown` is for everything else: a timeout, a lost connection, an error
that a retry of the client may have met after a first success.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, final

import attrs

Found = dict[str, list[list[Any]]]
"""The result of a poll: "topic/partition" -> [[offset, value], ...]."""
Done = Callable[[int | None, Exception | None], None]
"""Told the offset of a record, or why there is none; once per record, from any thread."""


class CallRefused(Exception):
    """The operation did not happen."""


class Unknown(Exception):
    """The operation may have happened, or may yet."""


@final
@attrs.frozen(kw_only=True)
class ClientSettings:
    """How a client is made. `seconds` bounds every call, `request_seconds` each try of it."""

    bootstrap: str
    idempotent: bool = True
    retries: bool = True
    seconds: float = 5.0
    request_seconds: float = 2.0
    name: str = "worker"


class SubjectClient(Protocol):
    """One producer and one consumer (assigned, never subscribed), used from one thread."""

    def send(self, topic: str, partition: int, value: str) -> int:
        """Append a record, wait for all in-sync replicas; its offset."""

    def send_soon(self, topic: str, partition: int, value: str, done: Done) -> None:
        """Append a record and go on; `done` is told later, at the latest in `settle`."""

    def settle(self, seconds: float) -> None:
        """Let answers arrive for so long, or until none is awaited."""

    def assign(self, positions: Mapping[tuple[str, int], int]) -> None:
        """Read exactly these partitions, from these offsets."""

    def poll(self, seconds: float) -> Found:
        """Records that came within so many seconds; empty when there were none."""

    def end(self, topic: str, partition: int) -> int:
        """The offset after the last record."""

    def close(self) -> None:
        """Give up what is open; never raises, never waits long; may be called twice."""


class SubjectAdmin(Protocol):
    """Topics."""

    def create(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        """Create with as many replicas as there are brokers. `TopicExists` when it exists."""

    def delete(self, topic: str) -> None:
        """Delete. `NoTopic` when there is none."""

    def grow(self, topic: str, partitions: int) -> None:
        """Raise the number of partitions."""

    def committed(self, group: str, topic: str, partitions: int) -> dict[int, int | None]:
        """The offsets that a group has committed in a topic, None where it has nothing."""

    def topics(self) -> dict[str, int]:
        """Every topic with its number of partitions, as one broker knows them."""

    def close(self) -> None:
        """Give up what is open."""


class TopicExists(CallRefused):
    """There is a topic of this name already."""


class NoTopic(CallRefused):
    """There is no topic of this name."""


class TooFew(CallRefused):
    """A topic has at least as many partitions already."""


def key_of(topic: str, partition: int) -> str:
    """A partition as histories name it."""
    return f"{topic}/{partition}"


def gathered(records: Sequence[tuple[str, int, int, bytes | None]]) -> Found:
    """(topic, partition, offset, value) in the order of their arrival, by key."""
    found: Found = {}
    for topic, partition, offset, value in records:
        text = (value or b"").decode("utf-8", "replace")
        found.setdefault(key_of(topic, partition), []).append([offset, text])
    return found

"""`raftlog.verify.record` and `raftlog.verify.recording`."""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from raftlog.base.arguments import AnyPath, check, checked
from raftlog.base.errors import LocalMisuse, WrongType
from raftlog.client.core.arguments import TopicName
from raftlog.embed.recording import aio_kafka, confluent, kafka_python
from raftlog.embed.recording.door import Identify, by_value
from raftlog.embed.recording.history import Recording
from raftlog.embed.recording.wrapper import Recorded

Client = TypeVar("Client")

_OTHERS: Final[Sequence[tuple[str, str, type[Recorded]]]] = (
    (confluent.LIBRARY, "Producer", confluent.RecordedProducer),
    (confluent.LIBRARY, "Consumer", confluent.RecordedConsumer),
    (kafka_python.LIBRARY, "KafkaProducer", kafka_python.RecordedProducer),
    (kafka_python.LIBRARY, "KafkaConsumer", kafka_python.RecordedConsumer),
    (aio_kafka.LIBRARY, "AIOKafkaProducer", aio_kafka.RecordedProducer),
    (aio_kafka.LIBRARY, "AIOKafkaConsumer", aio_kafka.RecordedConsumer),
)
_OURS: Final = (
    ("raftlog.client.blocking", "BlockingClient", "RecordedBlockingClient"),
    ("raftlog.client.blocking_consumer", "BlockingConsumer", "RecordedBlockingConsumer"),
    ("raftlog.client.trio_driver", "Client", "RecordedClient"),
    ("raftlog.client.consumer", "Consumer", "RecordedConsumer"),
)


@checked
def recording(
    path: AnyPath,
    *,
    topics: Sequence[TopicName] | None = None,
    consumer: str = "subscribe",
    final_read: bool = True,
    options: Mapping[str, Any] | None = None,
) -> Recording:
    """A history to record into: `with raftlog.verify.recording("history.jsonl") as history`.

    `Recording` explains the arguments."""
    return Recording(path, topics=topics, consumer=consumer, final_read=final_read, options=options)


def record(
    client: Client,
    history: Recording,
    *,
    identity: Identify | None = None,
    **more: Any,
) -> Client:
    """Wrap a Kafka client: the stand-in behaves as the client does, and writes the history.

    `client` is a producer or consumer of confluent-kafka, kafka-python, aiokafka or raftlog, or a
    `raftlog.Cluster`, whose faults are noted for the report. `identity` returns what is unique in a
    record (topic, key, value, headers); by default its value. `on_delivery` is the delivery
    callback of a confluent-kafka producer that was configured with one.

    Raises `WrongType` for any other object. The stand-in raises `WrongValue` for a value that was
    sent before, because the judge could not tell the two apart."""
    check("history", history, Recording)
    identify = check("identity", identity or by_value, Callable[..., Any])
    if type(client) in _wrappers():
        raise LocalMisuse("this client is recorded already", on=repr(client))
    found: Any = _of_another_library(client) or _of_ours(client)
    if found is not None:
        history.will_identify(identify)
        return found(client, history, identify, **more)  # type: ignore[no-any-return]
    # Imported late: the cluster is a large import, and recording a client does not need it.
    from raftlog.embed.cluster import Cluster  # noqa: PLC0415
    from raftlog.embed.recording.faults import RecordedCluster  # noqa: PLC0415

    if isinstance(client, Cluster):
        return RecordedCluster(client, history, **more)  # type: ignore[return-value]
    raise WrongType(
        "client must be a producer or consumer of confluent-kafka, kafka-python, aiokafka or "
        f"raftlog, or a raftlog.Cluster, not {type(client).__module__}.{type(client).__qualname__}",
        do="write the history by raftlog.verify.HistoryWriter for another library",
    )


def _of_another_library(client: object) -> type[Recorded] | None:
    """The wrapper for a client of another library; None for other objects. This imports no library:
    that of an existing object is imported already."""
    for library, name, wrapper in _OTHERS:
        kind = getattr(sys.modules.get(library), name, None)
        if isinstance(kind, type) and isinstance(client, kind):
            return wrapper
    return None


def _of_ours(client: object) -> type[Recorded] | None:
    for module, name, wrapper in _OURS:
        kind = getattr(sys.modules.get(module), name, None)
        if isinstance(kind, type) and isinstance(client, kind):
            from raftlog.embed.recording import ours  # noqa: PLC0415

            found: type[Recorded] = getattr(ours, wrapper)
            return found
    return None


def _wrappers() -> list[type]:
    found: list[type] = []
    waiting: list[type] = [Recorded]
    while waiting:
        kind = waiting.pop()
        found.append(kind)
        waiting += kind.__subclasses__()
    return found

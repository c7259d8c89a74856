"""kafka-python for tests that end its brokers.

kafka-python 3.0 leaves a socket whose connection is refused to the collector, which warns of it in
whatever test comes later. Here it is closed at once.
"""

from socket import socket
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.net.inet import KafkaNetSocket

__all__ = ["KafkaConsumer", "KafkaProducer", "TopicPartition"]

_sock_connect = KafkaNetSocket.sock_connect


async def _connected_or_closed(
    self: KafkaNetSocket, net: Any, sock: socket, *args: Any, **more: Any
) -> socket:
    try:
        return await _sock_connect(self, net, sock, *args, **more)
    except BaseException:
        sock.close()
        raise


KafkaNetSocket.sock_connect = _connected_or_closed

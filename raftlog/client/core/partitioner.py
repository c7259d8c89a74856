"""Chooses the partition of a record: murmur2 of the key, as Java's client does; round-robin without
a key.

The hash is Austin Appleby's MurmurHash2, 32 bits, seed 0x9747b28c, over the key's bytes; the
partition is (hash & 0x7fffffff) mod count (Kafka, `Utils.murmur2` and `BuiltInPartitioner`).
librdkafka does the same with `partitioner=murmur2_random`.
"""

from functools import lru_cache
from typing import Final, final

from raftlog.base.limits import PARTITIONER_KEYS_MAX

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_R: Final = 24
_MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The unsigned 32-bit hash."""
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        k = (k ^ (k >> _R)) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    rest = data[whole:]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * _M & _MASK
    h = (h ^ (h >> 13)) * _M & _MASK
    return h ^ (h >> 15)


@lru_cache(maxsize=PARTITIONER_KEYS_MAX)
def partition_of(key: bytes, count: int) -> int:
    """The partition of a keyed record among `count`."""
    return (murmur2(key) & 0x7FFFFFFF) % count


@final
class RoundRobin:
    """Spreads unkeyed records evenly: each topic has its own turn."""

    __slots__ = ("_turns",)

    def __init__(self) -> None:
        self._turns: dict[str, int] = {}

    def next(self, topic: str, count: int) -> int:
        """The next partition of `topic`."""
        turn = self._turns.get(topic, 0)
        self._turns[topic] = turn + 1
        return turn % count

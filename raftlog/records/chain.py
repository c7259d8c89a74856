"""The chain: a 64-bit fingerprint of a whole log prefix.

chain(0) comes from cluster and group; chain(i) is the first 8 bytes of BLAKE2b over chain(i-1) and
the 61 header bytes of entry i. The header holds the CRC of the rest, so the chain binds every
batch, with its offset, epoch and length, to its group and its place; Kafka's own CRC binds neither.
"""

import hashlib
from collections.abc import Iterable

from raftlog.base.binary import Buffer
from raftlog.base.ids import Chain, ClusterId, GroupId
from raftlog.base.limits import BATCH_HEADER_BYTES

_DIGEST_BYTES = 8
_blake2b = hashlib.blake2b


def chain_start(cluster: ClusterId, group: GroupId) -> Chain:
    """chain(0) of a group."""
    seed = b"raftlog chain 1" + cluster + group.to_bytes(8, "big")
    return Chain(int.from_bytes(hashlib.blake2b(seed, digest_size=_DIGEST_BYTES).digest(), "big"))


def chain_next(previous: Chain, batch: Buffer) -> Chain:
    """The chain after the entry whose batch begins with these (at least 61) bytes."""
    place = previous.to_bytes(8, "big") + batch[:BATCH_HEADER_BYTES]
    return Chain(int.from_bytes(_blake2b(place, digest_size=_DIGEST_BYTES).digest(), "big"))


def chain_over(previous: Chain, batches: Iterable[Buffer]) -> Chain:
    """The chain after several entries."""
    for batch in batches:
        previous = chain_next(previous, batch)
    return previous

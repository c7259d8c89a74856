"""Decodes and encodes structs inside `bytes` fields and records, with their version (i16) in front.

A consumer's subscription and assignment have this form in JoinGroup and SyncGroup, where brokers do
not look inside. So have the keys and values of `__consumer_offsets`.
"""

import struct
from functools import cache
from typing import Any, Final

from raftlog.base.errors import LocalMisuse, ProtocolError
from raftlog.base.limits import FRAME_ITEMS_MAX
from raftlog.kafka.codec import Message, as_data
from raftlog.kafka.compile import (
    Decoder,
    Encoder,
    class_finder,
    compile_decoder,
    compile_encoder,
)
from raftlog.kafka.shape import Buffer, MessageTable, holds
from raftlog.kafka.source import has_views
from raftlog.kafka.tables import named_table

_VERSION: Final = struct.Struct(">h")


def decode_embedded(
    name: str, data: Buffer, *, newer_as_newest: bool = False
) -> tuple[int, Message]:
    """The version in front of `data`, and the body of the struct `name`.

    `newer_as_newest` reads an unknown higher version as the newest known one, as Kafka's consumers
    do with each other's subscriptions: their newer versions only add fields at the end. Raises
    ProtocolError when the bytes do not parse or the version is not known.
    """
    table = _table(name)
    try:
        (version,) = _VERSION.unpack_from(data)
        known = min(version, table[3][1]) if newer_as_newest else version
        if not holds(table[3], known):
            raise ProtocolError(f"version {version} is not known", on=name)
        decode, views = _decoder(name, known)
        body, _, _ = decode(as_data(data, views), _VERSION.size, FRAME_ITEMS_MAX)
    except (struct.error, IndexError) as error:
        raise ProtocolError("the bytes end inside the struct", on=name) from error
    except UnicodeDecodeError as error:
        raise ProtocolError("a string is not UTF-8", on=name) from error
    return version, body


def encode_embedded(name: str, version: int, body: Message) -> bytes:
    """The bytes of a struct, its version in front; LocalMisuse when the body does not fit."""
    if not holds(_table(name)[3], version):
        raise LocalMisuse(f"{name} has no version {version}")
    encode, message = _encoder(name, version)
    if type(body) is not message:
        raise LocalMisuse(f"a {type(body).__name__} is not a {name}")
    parts: list[Any] = [_VERSION.pack(version)]
    try:
        encode(body, parts, [])
    except (struct.error, TypeError, ValueError, AttributeError) as error:
        raise LocalMisuse(f"the body does not fit: {error}", on=f"{name} v{version}") from error
    return b"".join(parts)


def _table(name: str) -> MessageTable:
    table = named_table(name)
    if table is None or table[0] >= 0:
        raise LocalMisuse(f"{name} is no embedded struct")
    return table


@cache
def _decoder(name: str, version: int) -> tuple[Decoder, bool]:
    table = _table(name)
    return compile_decoder(table, version), has_views(table[5], version)


@cache
def _encoder(name: str, version: int) -> tuple[Encoder, type]:
    table = _table(name)
    return compile_encoder(table, version), class_finder(table)(name)

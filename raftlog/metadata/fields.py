"""Fields of our own binary formats: how one value is written and read, composed from small ones.

Commands, images and controller requests are lists of named fields, so that the reader and the
writer of a type cannot differ. Readers trust nothing: every length and count is checked before
anything is made of it, and only the error class named by the reader is raised.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from raftlog.base.binary import Reader, Writer
from raftlog.base.entries import (
    REPLICA_ID_BYTES,
    read_membership,
    read_replica_id,
    write_membership,
    write_replica_id,
)
from raftlog.base.ids import ClusterId, DirectoryId, NodeId, ReplicaId, Term, TopicId
from raftlog.base.limits import VOTERS_MAX

_ID_BYTES: Final = 16
_NODE_MAX: Final = 2**31 - 1


class Field(NamedTuple):
    """Writes and reads one value. `bytes_min` is the least that a value takes."""

    write: Callable[[Writer, Any], object]
    read: Callable[[Reader], Any]
    bytes_min: int


Fields = tuple[tuple[str, Field], ...]


def write_fields(writer: Writer, value: object, fields: Fields) -> None:
    """Write the attributes of `value` that `fields` names, in order."""
    for name, field in fields:
        field.write(writer, getattr(value, name))


def read_fields(reader: Reader, fields: Fields) -> dict[str, Any]:
    """The reverse: arguments by name."""
    return {name: field.read(reader) for name, field in fields}


def record(made_by: Callable[..., Any], fields: Fields) -> Field:
    """A value whose attributes are fields themselves."""
    return Field(
        lambda writer, value: write_fields(writer, value, fields),
        lambda reader: made_by(**read_fields(reader, fields)),
        sum(field.bytes_min for _, field in fields),
    )


def text(bytes_max: int) -> Field:
    """A UTF-8 string of at most so many bytes."""
    return Field(Writer.text, lambda reader: reader.text(bytes_max), 4)


def blob(bytes_max: int) -> Field:
    """Bytes of any content."""
    return Field(Writer.block, lambda reader: bytes(reader.block(bytes_max)), 4)


def many(one: Field, count_max: int) -> Field:
    """A tuple of values."""

    def write(writer: Writer, values: Sequence[Any]) -> None:
        writer.u32(len(values))
        for value in values:
            one.write(writer, value)

    def read(reader: Reader) -> tuple[Any, ...]:
        count = reader.count(max(1, one.bytes_min), count_max)
        return tuple(one.read(reader) for _ in range(count))

    return Field(write, read, 4)


def optional(one: Field) -> Field:
    """A value or None, told apart by a flag byte."""

    def write(writer: Writer, value: object) -> None:
        writer.flag(value is not None)
        if value is not None:
            one.write(writer, value)

    def read(reader: Reader) -> object:
        return one.read(reader) if reader.flag() else None

    return Field(write, read, 1)


def pair(first: Field, second: Field) -> Field:
    """A tuple of two values."""

    def write(writer: Writer, value: tuple[Any, Any]) -> None:
        first.write(writer, value[0])
        second.write(writer, value[1])

    return Field(
        write,
        lambda reader: (first.read(reader), second.read(reader)),
        first.bytes_min + second.bytes_min,
    )


def _read_node(reader: Reader) -> NodeId:
    node = reader.u32()
    if node > _NODE_MAX:
        raise reader.fail(f"node id {node} is above {_NODE_MAX}")
    return NodeId(node)


def _read_directory(reader: Reader) -> DirectoryId:
    directory = reader.u64()
    if directory == 0:
        raise reader.fail("directory id is 0")
    return DirectoryId(directory)


def _read_term(reader: Reader) -> Term:
    term = reader.u32()
    if term > 2**31 - 1:
        raise reader.fail(f"term {term} is above 2^31-1")
    return Term(term)


def _read_id(reader: Reader) -> bytes:
    value = bytes(reader.take(_ID_BYTES))
    if value == bytes(_ID_BYTES):
        raise reader.fail("an id is all zero")
    return value


def _write_id(writer: Writer, value: bytes) -> None:
    assert len(value) == _ID_BYTES, len(value)
    writer.raw(value)


def _read_replica(reader: Reader) -> ReplicaId:
    replica = read_replica_id(reader)
    if replica.node > _NODE_MAX or replica.directory == 0:
        raise reader.fail(f"replica id {replica} cannot be")
    return replica


U8: Final = Field(Writer.u8, Reader.u8, 1)
U16: Final = Field(Writer.u16, Reader.u16, 2)
U32: Final = Field(Writer.u32, Reader.u32, 4)
U64: Final = Field(Writer.u64, Reader.u64, 8)
FLAG: Final = Field(Writer.flag, Reader.flag, 1)
NODE: Final = Field(Writer.u32, _read_node, 4)
DIRECTORY: Final = Field(Writer.u64, _read_directory, 8)
TERM: Final = Field(Writer.u32, _read_term, 4)
CLUSTER: Final = Field(_write_id, lambda reader: ClusterId(_read_id(reader)), _ID_BYTES)
TOPIC: Final = Field(_write_id, lambda reader: TopicId(_read_id(reader)), _ID_BYTES)
REPLICA: Final = Field(write_replica_id, _read_replica, REPLICA_ID_BYTES)
REPLICAS: Final = many(REPLICA, 2 * VOTERS_MAX)
MEMBERSHIP: Final = Field(write_membership, read_membership, 16)

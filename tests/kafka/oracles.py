"""Other people's codecs, brought behind one face: kio and kafka-python.

kio 0.6.5 reserves 8 bytes for each element that a count claims, before it looks at the buffer, and
aborts the process on a lie. So it is given nothing here but bytes that our encoder made or our
decoder accepted; `kio_in_child` is for everything else.
"""

import io
import subprocess
import sys
import uuid
import warnings
from typing import Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.errors
    import kafka.protocol.admin
    import kafka.protocol.consumer
    import kafka.protocol.metadata
    import kafka.protocol.producer
    import kafka.protocol.sasl

from kio.index import load_entity_schema
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from raftlog.kafka.shape import ZERO_ID, MessageTable
from raftlog.kafka.tables import module_name

KAFKA_PYTHON_ERRORS = kafka.errors.kafka_errors
_ENTITY = {"request": EntityType.request, "response": EntityType.response}
BITS = "authorized_operations"
_MODULES = ("admin", "consumer", "metadata", "producer", "sasl")


def known_to_kafka_python(table: MessageTable) -> bool:
    """It has all client APIs but these, and no record formats."""
    lacks = (
        *("UnregisterBroker", "ConsumerGroupHeartbeat", "ShareGroupHeartbeat"),
        *("AddRaftVoter", "RemoveRaftVoter"),
    )
    return table[0] >= 0 and not table[1].startswith(lacks)


def known_to_kio(table: MessageTable) -> bool:
    """It has all APIs and the consumer protocol, but not the records of __consumer_offsets."""
    return table[0] >= 0 or table[1].startswith("ConsumerProtocol")


def kafka_python_class(name: str) -> Any:
    """kafka-python's class of a message."""
    for module in _MODULES:
        found = getattr(getattr(kafka.protocol, module), name, None)
        if found is not None:
            return found
    raise LookupError(name)


def kafka_python_encode(table: MessageTable, version: int, body: Any) -> bytes:
    """Encode our body with kafka-python."""
    return bytes(kafka_python_value(table, version, body).encode(version=version))


def kafka_python_value(table: MessageTable, version: int, body: Any) -> Any:
    """Our body as kafka-python's object."""
    return _kafka_python_value(kafka_python_class(table[1]), table[5], version, body)


def kafka_python_decode(table: MessageTable, version: int, data: bytes) -> Any:
    """Returns our bytes as kafka-python reads them, as plain lists of the fields of this
    version."""
    return _plain(table[5], version, kafka_python_class(table[1]).decode(data, version=version))


def plain(table: MessageTable, version: int, body: Any) -> Any:
    """Our body in the same form."""
    return _plain(table[5], version, body)


def _plain(fields: Any, version: int, value: Any) -> Any:
    found = []
    for field in fields:
        if not field[2][0] <= version <= field[2][1]:
            continue
        item = getattr(value, _kafka_python_name(value, field))
        if field[0].endswith(BITS) and field[1] == "int32":
            item = _from_bits(item)
        array = field[1].startswith("[]")
        if item is not None and field[7]:
            several = [_plain(field[7], version, one) for one in (item if array else [item])]
            item = several if array else several[0]
        elif field[1] == "uuid":
            item = _id_bytes(item)
        elif isinstance(item, tuple | list):
            item = [one.bytes if isinstance(one, uuid.UUID) else one for one in item]
        # An absent tagged struct is None in kafka-python, a struct of defaults in ours.
        absent = field[5] and item == [child[6] for child in field[7]]
        found.append(None if absent else item)
    return found


def _kafka_python_name(owner: Any, field: Any) -> str:
    """It calls the fields of operations in three messages by a shorter name."""
    struct = getattr(owner, "_struct", None)
    short = struct is not None and BITS in struct.fields and field[0].endswith(BITS)
    return BITS if short else str(field[0])


def _bits(value: int) -> set[int]:
    """kafka-python says "authorized operations" as a set of bit numbers."""
    return {bit for bit in range(32) if value >> bit & 1}


def _from_bits(value: int | set[int] | None) -> int:
    """The same as the number on the wire; None is the "not asked" value."""
    if isinstance(value, int):
        return value
    number = sum(1 << bit for bit in ({31} if value is None else value))
    return number - (1 << 32) if number >> 31 else number


def _id_bytes(item: uuid.UUID | bytes | None) -> bytes:
    """kafka-python reads the zero id as None."""
    return ZERO_ID if item is None else item.bytes if isinstance(item, uuid.UUID) else item


def _kafka_python_value(cls: Any, fields: Any, version: int, value: Any) -> Any:
    """Our NamedTuple as kafka-python's object, with the fields that this version has."""
    given = {
        _kafka_python_name(cls, field): _kafka_python_field(cls, field, version, item)
        for field, item in zip(fields, value, strict=True)
        if field[2][0] <= version <= field[2][1] and not _is_default_struct(field, item)
    }
    return cls(version=version, **given)


def _is_default_struct(field: Any, item: Any) -> bool:
    """kafka-python writes a tagged struct of defaults when given one; Kafka leaves it out."""
    return bool(field[5] and field[7] and field[1][0] != "[" and item == type(item)())


def _kafka_python_field(cls: Any, field: Any, version: int, item: Any) -> Any:
    if item is None:
        return None
    base = field[1].removeprefix("[]")
    if field[7]:
        inner = getattr(cls, base)
        if base == field[1]:
            return _kafka_python_value(inner, field[7], version, item)
        return [_kafka_python_value(inner, field[7], version, one) for one in item]
    if _kafka_python_name(cls, field) == BITS:
        return _bits(item)
    if base == "uuid" and item == ZERO_ID:
        return None
    if base == "uuid":
        return uuid.UUID(bytes=item) if base == field[1] else [uuid.UUID(bytes=i) for i in item]
    return list(item) if base != field[1] else item


def kio_schema(table: MessageTable, version: int) -> Any:
    """kio's class of a message version."""
    name = module_name(table[1])
    entity = _ENTITY.get(table[2])
    if entity is None:
        name, entity = _embedded_name(table[1]), EntityType.data
    return load_entity_schema(name, version, entity)


def _embedded_name(name: str) -> str:
    return "consumer_protocol_" + name.removeprefix("ConsumerProtocol").lower()


def kio_decode(table: MessageTable, version: int, data: bytes) -> Any:
    """kio's reading of bytes that we made or accepted."""
    value, size = entity_reader(kio_schema(table, version))(data, 0)
    assert size == len(data), (size, len(data))
    return value


def kio_reencode(table: MessageTable, version: int, data: bytes) -> bytes:
    """Decode with kio, encode what it read."""
    out = io.BytesIO()
    schema = kio_schema(table, version)
    entity_writer(schema)(out, kio_decode(table, version, data))
    return out.getvalue()


def kio_in_child(code: str) -> int:
    """The exit status of kio code in a process of its own (negative: killed by that signal)."""
    limited = "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\n" + code
    command = [sys.executable, "-c", limited]
    return subprocess.run(command, capture_output=True, check=False, timeout=60).returncode

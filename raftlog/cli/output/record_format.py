"""kcat's format strings, and records as JSON.

    %t topic   %p partition   %o offset   %T timestamp (ms)   %h headers (a=1,b=2)
    %k key     %K key length  %s value    %S value length (-1: null)   %% a per cent sign
    \\n \\r \\t \\0 \\\\ \\xNN

A null key or value is written as nothing, or as NULL with `null_as`, kcat's -Z.
"""

import base64
from collections.abc import Callable, Sequence
from typing import Any, Final

import click

from raftlog.client.core.values import ConsumedRecord
from raftlog.records.record import RecordHeader

Piece = Callable[[ConsumedRecord], bytes]
_HEX_DIGITS: Final = frozenset("0123456789abcdefABCDEF")
_ESCAPES: Final = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}


def compile_format(text: str, null_as: bytes = b"") -> Callable[[ConsumedRecord], bytes]:
    """A function that renders a record; `BadParameter` for an unknown letter."""
    pieces: list[Piece] = []
    at = 0
    while at < len(text):
        if text[at] == "%":
            pieces.append(_field(text[at + 1 : at + 2], null_as))
            at += 2
        elif text[at] == "\\":
            literal, used = _escape(text, at)
            pieces.append(_constant(literal))
            at += used
        else:
            pieces.append(_constant(text[at].encode()))
            at += 1

    def render(record: ConsumedRecord) -> bytes:
        return b"".join([piece(record) for piece in pieces])

    return render


def _constant(literal: bytes) -> Piece:
    def piece(record: ConsumedRecord) -> bytes:
        del record
        return literal

    return piece


def _escape(text: str, at: int) -> tuple[bytes, int]:
    letter = text[at + 1 : at + 2]
    if letter == "x":
        digits = text[at + 2 : at + 4]
        if len(digits) != 2 or not set(digits) <= _HEX_DIGITS:
            raise _bad(f"\\x{digits} is no byte")
        return bytes.fromhex(digits), 4
    if letter not in _ESCAPES:
        raise _bad(f"\\{letter} is not known; write \\\\ for a backslash")
    return _ESCAPES[letter], 2


def _field(letter: str, null_as: bytes) -> Piece:
    fields: dict[str, Piece] = {
        "%": _constant(b"%"),
        "t": lambda record: record.topic.encode(),
        "p": lambda record: b"%d" % record.partition,
        "o": lambda record: b"%d" % record.offset,
        "T": lambda record: b"%d" % record.timestamp_ms,
        "h": lambda record: _headers(record.headers),
        "k": lambda record: null_as if record.key is None else record.key,
        "K": lambda record: _length(record.key),
        "s": lambda record: null_as if record.value is None else record.value,
        "S": lambda record: _length(record.value),
    }
    if letter not in fields:
        raise _bad(f"%{letter} is not known; there are " + " ".join(f"%{each}" for each in fields))
    return fields[letter]


def _bad(what: str) -> click.BadParameter:
    return click.BadParameter(what, param_hint="-f")


def _length(field: bytes | None) -> bytes:
    return b"%d" % (-1 if field is None else len(field))


def _headers(headers: Sequence[RecordHeader]) -> bytes:
    return b",".join(
        key.encode("utf-8", "backslashreplace") + b"=" + (b"NULL" if value is None else value)
        for key, value in headers
    )


def record_as_json(record: ConsumedRecord) -> dict[str, Any]:
    """One record; bytes that are not UTF-8 stand in base64 under `key_base64`, `value_base64`."""
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        **_bytes_as_json("key", record.key),
        **_bytes_as_json("value", record.value),
        "headers": [
            {"key": key, **_bytes_as_json("value", value)} for key, value in record.headers
        ],
    }


def _bytes_as_json(name: str, content: bytes | None) -> dict[str, str | None]:
    if content is None:
        return {name: None}
    try:
        return {name: content.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(content).decode()}

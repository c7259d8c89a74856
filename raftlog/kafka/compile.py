"""Compiles tables to functions, lazily per (message, version, direction).

This is the only `exec` in the tree. `decode_text` and `encode_text` make the executed text from the
checked-in tables alone. No byte from a wire or a disk, no configuration and no argument of a caller
gets into it. That is the one exception that the architecture allows to "no eval".
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, TypeAlias

from raftlog.kafka import wire
from raftlog.kafka.decode_text import decoder_source
from raftlog.kafka.encode_text import encoder_source
from raftlog.kafka.shape import MessageTable
from raftlog.kafka.source import Source
from raftlog.kafka.tables import ROLES, module_name

Decoder: TypeAlias = Callable[[bytes | memoryview, int, int], tuple[Any, int, int]]
"""(data, position, element budget) -> (body, position after it, budget left)"""

Encoder: TypeAlias = Callable[[Any, list[Any], list[int]], None]
"""(body, parts to extend, indices of the parts that stay on their own)"""

_HELPERS: Final[dict[str, object]] = {
    **{
        function.__name__: function
        for function in (
            wire.bad_bool,
            wire.bad_count,
            wire.bad_id,
            wire.bad_length,
            wire.bad_marker,
            wire.bad_tag,
            wire.encode_numbers,
            wire.encode_string_length,
            wire.encode_uvarint,
            wire.more_uvarint,
            wire.numbers,
            wire.over_budget,
            wire.put,
            wire.size_of,
            wire.skip_tags,
            wire.string_length,
            wire.tag_section,
            wire.uvarint,
        )
    },
    "new": tuple.__new__,
    "EMPTY": b"",
}


def compile_decoder(table: MessageTable, version: int) -> Decoder:
    """The decoder of one message version."""
    source = decoder_source(table, version, class_finder(table))
    decoder: Decoder = _execute(source, f"decode {table[1]} v{version}", "decode")
    return decoder


def compile_encoder(table: MessageTable, version: int) -> Encoder:
    """The encoder of one message version."""
    source = encoder_source(table, version, class_finder(table))
    encoder: Encoder = _execute(source, f"encode {table[1]} v{version}", "encode")
    return encoder


def class_finder(table: MessageTable) -> Callable[[str], type]:
    """Finds the class of a struct: by its name, or with the message's role where two share it."""
    role = next((role for role in ROLES if table[1].endswith(role)), "")
    space = vars(import_module(f"raftlog.kafka.messages.{module_name(table[1])}"))

    def class_of(struct: str) -> type:
        found = space.get(struct) or space[struct + role]
        assert isinstance(found, type), struct
        return found

    return class_of


def _execute(source: Source, label: str, function: str) -> Any:
    """Run text of our own making; the module's docstring says why it is safe."""
    space: dict[str, object] = {**_HELPERS, **source.constants}
    exec(compile(source.text(), f"<{label}>", "exec"), space)
    return space[function]

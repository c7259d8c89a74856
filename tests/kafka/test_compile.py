"""The generators' output: merged runs, nothing from outside in the text, work done once."""

import ast

import pytest

from raftlog.kafka import codec
from raftlog.kafka.compile import _HELPERS, class_finder, compile_decoder, compile_encoder
from raftlog.kafka.decode_text import decoder_source
from raftlog.kafka.encode_text import encoder_source
from raftlog.kafka.messages.metadata import MetadataRequest
from raftlog.kafka.messages.update_features import UpdateFeaturesResponse
from raftlog.kafka.source import Source, has_views, min_bytes, on_wire, tagged
from raftlog.kafka.tables import named_table
from tests.kafka.bodies import PAIRS


def texts(name, version):
    table = named_table(name)
    finder = class_finder(table)
    return (
        decoder_source(table, version, finder).text(),
        encoder_source(table, version, finder).text(),
    )


def test_neighbouring_fixed_fields_and_the_length_behind_them_are_one_struct():
    decode, encode = texts("FetchRequest", 11)
    assert "unpack_iiiibiii(data, pos)" in decode
    assert "pack_iiiibiii(" in encode


def test_a_compact_length_is_merged_too():
    decode, encode = texts("FetchResponse", 16)
    assert "unpack_ihqqqB(data, pos)" in decode
    assert "pack_ihqqqB(" in encode


def test_an_empty_tag_section_is_a_pad_byte_of_the_run():
    assert "pack_qqx(" in texts("FetchResponse", 16)[1]


def test_every_name_in_the_text_is_a_helper_a_constant_or_a_local():
    """So no text can reach for anything else: imports, attributes of modules, builtins."""
    allowed = {"len", "range", "str", "tuple"}
    for table, version in PAIRS[::7]:
        finder = class_finder(table)
        for source in (
            decoder_source(table, version, finder),
            encoder_source(table, version, finder),
        ):
            tree = ast.parse(source.text())
            bound = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and _stores(n)}
            bound |= {a.arg for n in ast.walk(tree) if isinstance(n, ast.arguments) for a in n.args}
            used = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} - bound
            known = set(source.constants) | set(_HELPERS) | allowed
            assert used <= known, (table[1], version)
            assert not [n for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom)]


def _stores(node):
    return isinstance(node.ctx, ast.Store)


def test_functions_are_made_once_and_on_first_use():
    table = named_table("MetadataRequest")
    codec.encode_request(3, 12, 1, "c", MetadataRequest())
    first = codec._request_writings[3, 12]
    codec.encode_request(3, 12, 2, "c", MetadataRequest())
    assert codec._request_writings[3, 12] is first
    parts = []
    compile_encoder(table, 12)(MetadataRequest(), parts, [])
    assert b"".join(parts) == b"\x01\x01\x00\x00"


def test_a_decoder_names_its_message_in_tracebacks():
    decode = compile_decoder(named_table("MetadataRequest"), 12)
    assert decode.__code__.co_filename == "<decode MetadataRequest v12>"


def test_views_are_used_only_where_bytes_are_handed_out():
    assert has_views(named_table("ProduceRequest")[5], 11)
    assert has_views(named_table("FetchResponse")[5], 4)
    assert not has_views(named_table("MetadataResponse")[5], 12)
    assert not has_views(named_table("ProduceResponse")[5], 11)


@pytest.mark.parametrize(
    ("name", "version", "least"),
    [
        ("MetadataRequest", 0, 4),
        ("MetadataRequest", 12, 4),
        ("FetchResponse", 16, 4 + 2 + 4 + 1 + 1),
        ("ProduceRequest", 3, 2 + 2 + 4 + 4),
        ("DescribeTopicPartitionsRequest", 0, 1 + 4 + 1 + 1),
    ],
)
def test_the_fewest_bytes_of_a_message(name, version, least):
    table = named_table(name)
    flexible = table[4] is not None and version >= table[4][0]
    assert min_bytes(table[5], version, flexible) == least


def test_fields_of_a_version_are_split_into_wire_order_and_tags():
    fields = named_table("FetchRequest")[5]
    assert [f[0] for f in tagged(fields, 16)] == ["cluster_id", "replica_state"]
    assert [f[0] for f in on_wire(fields, 16)][:2] == ["max_wait_ms", "min_bytes"]
    assert next(f[0] for f in on_wire(fields, 4)) == "replica_id"


def test_a_constant_stands_for_one_value():
    source = Source()
    assert source.constant("C", int) == source.constant("C", int) == "C"
    with pytest.raises(AssertionError):
        source.constant("C", str)


def test_messages_are_values():
    """Compared by content, immutable, changed by copy: tests and handlers rely on it."""
    one = UpdateFeaturesResponse(error_code=3)
    assert one == UpdateFeaturesResponse(error_code=3)
    assert one._replace(error_code=4).error_code == 4
    with pytest.raises(AttributeError):
        one.error_code = 5

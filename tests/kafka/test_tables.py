"""The checked-in tables and classes: complete, well formed, and what the script makes today."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from raftlog.kafka.compile import class_finder
from raftlog.kafka.shape import holds
from raftlog.kafka.tables import all_tables, message_table, module_name, named_table
from tests.kafka.bodies import PAIRS

ROOT = Path(__file__).resolve().parents[2]
KAFKA = ROOT / "raftlog" / "kafka"
SCALARS = {
    *("int8", "int16", "uint16", "int32", "uint32", "int64", "float64", "bool"),
    *("uuid", "string", "bytes", "records"),
}
RING_1_AND_2 = {
    *range(4), *range(8, 24), *range(29, 38), 42, 43, 44, 45, 46, 47, 50, 51, 55, 60, 61, 74, 75
}  # fmt: skip


def fields_of(table):
    """Every field of a message, at any depth."""
    stack = list(table[5])
    while stack:
        field = stack.pop()
        yield field
        stack += field[7]


@pytest.mark.slow
def test_the_files_are_what_the_script_makes():
    command = [sys.executable, str(ROOT / "scripts" / "kafka_tables"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_rings_1_and_2_are_complete():
    keys = {table[0] for table in all_tables()}
    assert keys >= RING_1_AND_2


def test_lookups_agree():
    for table in all_tables():
        assert named_table(table[1]) is table
        if table[0] >= 0:
            assert message_table(table[0], table[2]) is table
    assert message_table(999, "request") is None
    assert named_table("NoSuchMessage") is None


def test_ranges_lie_inside_the_messages_versions():
    for table in all_tables():
        low, high = table[3]
        assert 0 <= low <= high
        for field in fields_of(table):
            for span in (field[2], field[3], field[5]):
                assert span is None or low <= span[0] <= span[1] <= high, (table[1], field[0])


def test_types_are_known_and_structs_have_fields():
    for table in all_tables():
        for field in fields_of(table):
            base = field[1].removeprefix("[]")
            assert (base in SCALARS) != bool(field[7]), (table[1], field[0])


def test_tagged_fields_have_unique_tags_in_flexible_versions_only():
    for table in all_tables():
        for fields in [table[5], *(field[7] for field in fields_of(table))]:
            tags = [field[4] for field in fields if field[5]]
            assert len(set(tags)) == len(tags)
            for field in fields:
                assert (field[4] is None) == (field[5] is None), (table[1], field[0])
                assert field[5] is None or holds(table[4], field[5][0]), (table[1], field[0])


def test_no_bytes_hide_in_a_tagged_field():
    """Encoders build tagged fields aside and would copy records there."""
    for table in all_tables():
        for field in fields_of(table):
            inner = {child[1] for child in [field, *fields_of((0, "", "", (), None, field[7]))]}
            assert field[5] is None or not inner & {"bytes", "records", "[]bytes"}, field[0]


def test_every_struct_of_every_version_takes_at_least_one_byte():
    """The smallest element is at least one byte, so a count is always bounded by the frame."""
    for table, version in PAIRS:
        flexible = holds(table[4], version)
        for field in fields_of(table):
            if field[7] and holds(field[2], version) and not flexible:
                assert any(holds(child[2], version) for child in field[7]), (table[1], field[0])


def test_each_class_has_the_fields_and_defaults_of_its_table():
    for table in all_tables():
        finder = class_finder(table)
        for name, fields in [(table[1], table[5])] + [
            (field[1].removeprefix("[]"), field[7]) for field in fields_of(table) if field[7]
        ]:
            made = finder(name)
            assert made._fields == tuple(field[0] for field in fields)
            for field, value in zip(fields, made(), strict=True):
                struct = field[7] and not field[1].startswith("[]") and field[6] == ()
                expected = finder(field[1])() if struct else field[6]
                assert value == expected, (name, field[0])


@pytest.mark.parametrize(
    ("message", "module"),
    [
        ("ListOffsetsRequest", "list_offsets"),
        ("OffsetForLeaderEpochResponse", "offset_for_leader_epoch"),
        ("AddPartitionsToTxnRequest", "add_partitions_to_txn"),
        ("ConsumerProtocolAssignment", "consumer_protocol"),
    ],
)
def test_module_names(message, module):
    assert module_name(message) == module
    assert hasattr(import_module(f"raftlog.kafka.messages.{module}"), message)


def test_files_stay_readable():
    for path in [*(KAFKA / "tables").glob("*.py"), *(KAFKA / "messages").glob("*.py")]:
        text = path.read_text("utf-8")
        assert len(text) < 200_000
        assert len(text.splitlines()) <= 500


def test_the_notice_names_where_the_schemas_come_from():
    notice = (KAFKA / "tables" / "NOTICE").read_text("utf-8")
    assert "Apache License, Version 2.0" in notice
    assert "The Apache Software Foundation" in notice

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.cli.consume import StartAt, parse_start
from raftlog.cli.output.record_format import compile_format, record_as_json
from raftlog.cli.produce import Manner, _unescaped
from raftlog.client.core.asks import EARLIEST, LATEST
from raftlog.client.core.values import ConsumedRecord
from raftlog.records.record import RecordHeader

RECORD = ConsumedRecord(
    "t", 3, 42, 1700, b"key", b"value", (RecordHeader("a", b"1"), RecordHeader("b", None))
)
NULLS = RECORD._replace(key=None, value=None, headers=())


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("%t/%p/%o@%T", b"t/3/42@1700"),
        ("%k=%s", b"key=value"),
        ("%K %S", b"3 5"),
        ("%h", b"a=1,b=NULL"),
        (r"a\tb\n\r\0\\\x41%%", b"a\tb\n\r\0\\A%"),
        ("ä", "ä".encode()),
        ("", b""),
    ],
)
def test_fields_and_escapes(text, wanted):
    assert compile_format(text)(RECORD) == wanted


def test_nulls_are_nothing_or_a_word():
    assert compile_format("%k,%s,%K,%S,%h")(NULLS) == b",,-1,-1,"
    assert compile_format("%k,%s", b"NULL")(NULLS) == b"NULL,NULL"


@pytest.mark.parametrize("text", ["%", "%x", "\\", r"\q", r"\x", r"\xg0", r"\x4"])
def test_what_is_not_known_is_refused(text):
    with pytest.raises(click.BadParameter):
        compile_format(text)


@given(st.text(max_size=30))
def test_any_text_renders_or_is_refused(text):
    try:
        render = compile_format(text)
    except click.BadParameter:
        return
    assert isinstance(render(RECORD), bytes)


def test_json_keeps_bytes_that_are_no_text():
    shown = record_as_json(RECORD)
    assert shown["key"] == "key"
    assert shown["headers"] == [{"key": "a", "value": "1"}, {"key": "b", "value": None}]
    shown = record_as_json(NULLS._replace(value=b"\xff"))
    assert shown["key"] is None
    assert shown["value_base64"] == "/w=="
    assert "value" not in shown


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("beginning", StartAt("timestamp", EARLIEST)),
        ("end", StartAt("timestamp", LATEST)),
        ("17", StartAt("offset", 17)),
        ("-5", StartAt("tail", 5)),
        ("s@1700000000000", StartAt("timestamp", 1700000000000)),
    ],
)
def test_where_to_begin(text, wanted):
    assert parse_start(text) == wanted


@pytest.mark.parametrize("text", ["", "middle", "s@", "s@-1", "--5", "1.5", "-", "e@5", "٣"])
def test_nowhere_to_begin(text):
    with pytest.raises(click.BadParameter):
        parse_start(text)


def manner(**more):
    plain = Manner(None, None, False, (), None)
    return plain._replace(**more)


def test_lines_become_records():
    assert manner().record(b"a:b") == (None, b"a:b")
    assert manner(key=b"k").record(b"a") == (b"k", b"a")
    assert manner(key_delimiter=b":").record(b"a:b:c") == (b"a", b"b:c")
    assert manner(key_delimiter=b":").record(b"abc") == (None, b"abc")
    assert manner(key_delimiter=b":", empty_is_null=True).record(b":") == (None, None)
    assert manner(key_delimiter=b":").record(b":") == (b"", b"")


def test_delimiters_may_be_escaped():
    assert _unescaped(r"\n", "-D") == b"\n"
    assert _unescaped(r"\x00", "-D") == b"\0"
    assert _unescaped("::", "-D") == b"::"
    assert _unescaped("ä", "-D") == "ä".encode()
    for text in ("", "\\x"):
        with pytest.raises(click.BadParameter):
            _unescaped(text, "-D")

"""Commands as bytes: every value survives, every other byte string is refused by a named error."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.errors import CorruptData, FutureFormat
from raftlog.base.ids import NodeId, Term
from raftlog.base.limits import COMMAND_BYTES_MAX
from raftlog.metadata import commands as c
from raftlog.metadata import fields as f
from raftlog.metadata.command_codec import (
    _TABLE,
    COMMANDS,
    CommandCodec,
    Form,
    Proposal,
    decode_proposal,
    encode_proposal,
)
from tests.metadata.clusters import ORDERS, cluster, registration, report, topic
from tests.metadata.strategies import commands, once_ids, terms, u64

ON = "a test"


def decode(data):
    return decode_proposal(data, CorruptData, ON)


def test_every_command_has_a_kind():
    assert {made_by for made_by, _ in _TABLE.values()} == set(get_args(c.Command))


@given(terms, u64, commands, st.none() | once_ids)
def test_what_was_written_is_read(term, serial, command, once):
    proposal = Proposal(term, serial, command, once)
    assert decode(encode_proposal(proposal)) == proposal


@given(commands, st.data())
def test_a_cut_command_is_corrupt(command, data):
    whole = encode_proposal(Proposal(Term(1), 1, command))
    size = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(CorruptData):
        decode(whole[:size])


@given(commands)
def test_a_byte_too_many_is_corrupt(command):
    with pytest.raises(CorruptData):
        decode(encode_proposal(Proposal(Term(1), 1, command)) + b"\0")


@given(commands, st.none() | once_ids, st.data())
def test_flipped_bits_give_a_value_or_a_named_error(command, once, data):
    whole = bytearray(encode_proposal(Proposal(Term(1), 1, command, once)))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(whole) - 1))
        whole[place] ^= data.draw(st.integers(1, 255))
    try:
        proposal = decode(bytes(whole))
    except (CorruptData, FutureFormat):
        return
    assert encode_proposal(proposal) == bytes(whole)


@given(st.binary(max_size=200), st.integers(1, 20))
def test_noise_gives_a_value_or_a_named_error(noise, kind):
    try:
        decode(bytes([1, kind, 1, 0]) + noise)
    except CorruptData:
        return


@pytest.mark.parametrize(
    ("place", "value", "error"),
    [
        (0, 2, FutureFormat),
        (0, 0, CorruptData),
        (1, 22, FutureFormat),
        (1, 255, FutureFormat),
        (1, 0, CorruptData),
        (2, 2, FutureFormat),
        (2, 0, CorruptData),
        (3, 1, CorruptData),
        (4, 0x80, CorruptData),
    ],
)
def test_unknown_versions_are_refused_and_never_skipped(place, value, error):
    """An unknown command stops the replica; the message names both versions."""
    data = bytearray(encode_proposal(Proposal(Term(1), 1, c.RaiseFeatureLevel(level=1))))
    data[place] = value
    with pytest.raises(error) as caught:
        decode(bytes(data))
    if error is FutureFormat:
        assert "this release reads" in caught.value.what
        assert caught.value.do


LATER = CommandCodec(
    {
        **COMMANDS.table,
        4: (
            c.FenceBroker,
            (
                *COMMANDS.table[4][1],
                Form(2, (("epoch", f.U64), ("node", f.NODE))),
                Form(4, (("node", f.NODE), ("epoch", f.U32))),
            ),
        ),
    }
)
FENCE = Proposal(Term(3), 4, c.FenceBroker(node=NodeId(1), epoch=7))


@pytest.mark.parametrize(("level", "version"), [(1, 1), (2, 2), (3, 2), (4, 3), (9, 3)])
def test_the_feature_level_chooses_the_form(level, version):
    written = LATER.encode(FENCE, level)
    assert written[2] == version
    assert LATER.decode(written, CorruptData, ON) == FENCE
    if version == 1:
        assert written == encode_proposal(FENCE)
    else:
        with pytest.raises(FutureFormat, match=f"version {version}; .* of this one 1 version"):
            decode(written)


def test_what_came_with_a_level_is_not_written_below_it():
    young = CommandCodec({6: (c.UnregisterBroker, (Form(2, (("node", f.NODE),)),))})
    with pytest.raises(AssertionError, match="UnregisterBroker is written from level 2, not 1"):
        young.encode(Proposal(Term(1), 1, c.UnregisterBroker(node=NodeId(1))), 1)


def test_forms_are_of_rising_level_and_everything_can_be_written_at_the_lowest():
    for kind, (_, forms) in COMMANDS.table.items():
        assert forms[0].level == 1, kind
        assert [each.level for each in forms] == sorted({each.level for each in forms}), kind


def test_no_command_is_longer_than_the_bound():
    with pytest.raises(CorruptData):
        decode(bytes([1, 1, 1, 0]) + bytes(COMMAND_BYTES_MAX))


def test_the_bytes_of_released_commands_never_change():
    """Golden: these bytes lie in the logs of clusters. A change needs a new command version."""
    image = cluster(1)
    golden = {
        "0102010000000003000000000000000400000001"
        "00000000d00001000000000000000001"
        "00000000000003e9"
        "00000001"
        "00000009504c41494e54455854"
        "000000096c6f63616c686f73742329"
        "0000000150"
        "000000096c6f63616c686f7374238d"
        "00000000"
        "00010001": registration(1),
        "01070100000000030000000000000004"
        "6f72646572732720746f706963206964"
        "000000066f7264657273000000000000000001"
        "000000010000000100000000d0000100": topic(image, (1,)),
        "01050100000000030000000000000004000000010000000000000007": c.UnfenceBroker(
            node=NodeId(1), epoch=7
        ),
        "010801000000000300000000000000046f72646572732720746f706963206964": c.DeleteTopic(
            topic_id=ORDERS
        ),
    }
    for text, command in golden.items():
        assert encode_proposal(Proposal(Term(3), 4, command)).hex() == text, command
        assert decode(bytes.fromhex(text)) == Proposal(Term(3), 4, command)


def test_the_bytes_of_a_report():
    from tests.metadata.clusters import do

    image = cluster(1)
    image = do(image, topic(image, (1,)))
    replica = "0000000100000000d00001000000000000000004"
    text = (
        "010c0100000000030000000000000004"
        "0000000000000001"  # group
        "00000001"  # term
        "0000000000000001"  # membership index
        "0000000000000001"  # serial
        f"00000001{replica}000000000000000000000000"  # voters, outgoing, learners, learners next
        f"01{replica}"  # leader
        f"00000001{replica}"  # in sync
        "0000000000000004"  # target version
    )
    proposal = Proposal(Term(3), 4, report(image))
    assert encode_proposal(proposal).hex() == text

"""Rows of a recording: a row that is changed, missing, twice or out of place is seen."""

import pytest

from raftlog.base.errors import CorruptData, FutureFormat
from raftlog.broker.incident.rows import HEAD, MAGIC, RowKind, RowReader, RowWriter

BODIES = [b"", b"one", b"two" * 100]


def rows() -> list[bytes]:
    writer = RowWriter()
    return [writer.row(RowKind.TURN, body) for body in BODIES]


def read(content: bytes) -> tuple[list[bytes], bool]:
    reader = RowReader(content)
    found = []
    while (row := reader.next()) is not None:
        found.append(bytes(row.body))
    return found, reader.torn


def test_rows_come_back():
    assert read(HEAD + b"".join(rows())) == (BODIES, False)


def test_a_recording_that_was_cut_short_is_read_as_far_as_it_is_whole():
    whole = HEAD + b"".join(rows())
    ends = {len(HEAD)}
    for row in rows():
        ends.add(max(ends) + len(row))
    for end in range(len(HEAD), len(whole)):
        found, torn = read(whole[:end])
        assert found == BODIES[: len(found)]
        assert torn is (end not in ends)


@pytest.mark.parametrize("order", [(1, 2), (0, 2), (0, 0, 1, 2), (1, 0, 2)])
def test_a_row_that_is_missing_twice_or_out_of_place_is_corrupt(order):
    made = rows()
    with pytest.raises(CorruptData, match="checksum"):
        read(HEAD + b"".join(made[number] for number in order))


def test_every_changed_bit_is_seen():
    whole = HEAD + b"".join(rows()[:2])
    for at in range(len(whole)):
        for bit in range(8):
            changed = bytearray(whole)
            changed[at] ^= 1 << bit
            with pytest.raises((CorruptData, FutureFormat)):
                read(bytes(changed))


def test_a_recording_that_was_cut_short_behind_a_wrong_size_is_corrupt():
    """A row that grew seems to end behind the file. A whole row behind it shows that it does
    not."""
    made = rows()
    whole = bytearray(HEAD + b"".join(made))
    whole[len(HEAD) + 2] ^= 1  # 65,536 bytes more
    with pytest.raises(CorruptData, match="size of the row at byte 10 is wrong"):
        read(bytes(whole[:-2]))
    assert read(bytes(whole[: len(HEAD) + len(made[0]) + 3])) == ([], True)  # nothing shows it


def test_another_version_and_another_file_are_refused():
    with pytest.raises(FutureFormat, match="version 9"):
        RowReader(MAGIC + b"\x00\x09")
    with pytest.raises(CorruptData, match="not a recording"):
        RowReader(b"rlformat\x00\x01")
    with pytest.raises(CorruptData):
        RowReader(b"rl")

"""A recorder's output is read again as the same graph; everything else is refused, by name."""

import contextlib
from array import array
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.entries import Entry, EntryKind
from raftlog.base.errors import CorruptData, DiskFull, RaftlogError
from raftlog.base.ids import Offset, RaftIndex, Term
from raftlog.base.limits import RECORDED_DEPTH_MAX, RECORDED_PAYLOAD_BYTES_MIN
from raftlog.broker.events import Request
from raftlog.broker.incident.classes import MORE_OF_ERRORS, classes
from raftlog.broker.incident.value_reader import ValueReader
from raftlog.broker.incident.value_writer import ValueWriter
from raftlog.broker.incident.values import NotRecordable
from raftlog.storage.directories.log_directories import DirectoryFailed
from raftlog.storage.segments.sparse_index import SegmentIndex

TABLE = list(classes().values())


class Kept:
    def __init__(self, room: int = 10) -> None:
        self.kept: dict[bytes, bytes] = {}
        self.room = room

    def keep(self, digest, content) -> bool:
        if len(self.kept) >= self.room:
            return False
        self.kept[digest] = bytes(content)
        return True

    def content(self, digest, size) -> bytes:
        return self.kept[digest]


def written(value, payloads=None, known=None) -> bytes:
    writer = ValueWriter(payloads, known)
    writer.value(value)
    return bytes(writer.buffer)


def read(content, payloads=None, known=None):
    reader = ValueReader(content, TABLE, payloads, known)
    found = reader.value()
    reader.reader.end()
    return found


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
    | st.binary() | st.sampled_from(EntryKind),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.lists(inner).map(deque)
    | st.dictionaries(st.integers() | st.text(), inner),
    max_leaves=20,
)  # fmt: skip


@given(values)
def test_values_come_back_of_the_same_classes(value):
    found = read(written(value))
    assert (found, repr(found)) == (value, repr(value))


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_are_corrupt_data(content):
    with contextlib.suppress(CorruptData):
        read(content)


@given(values, st.data())
def test_a_changed_byte_is_another_value_or_corrupt_data(value, data):
    content = bytearray(written(value))
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= 1 << data.draw(st.integers(0, 7))
    with contextlib.suppress(CorruptData):
        read(bytes(content))


def test_what_was_one_object_is_one_object_again():
    index, numbers = SegmentIndex(4096), [1]
    first, second, third, fourth = read(written([index, numbers, index, numbers]))
    assert first is third
    assert second is fourth
    assert type(first) is SegmentIndex
    assert first._interval == 4096
    assert type(first._offsets) is array


def test_an_object_that_the_reader_has_stands_for_itself():
    index = SegmentIndex(1)
    content = written((index, [index]), known={"0": index})
    there = SegmentIndex(2)
    assert read(content, known={"0": there}) == (there, [there])
    with pytest.raises(CorruptData, match="no known object"):
        read(content)


def test_errors_keep_class_and_fields():
    found = read(written(DiskFull("no space", on="a", do="make room")))
    assert type(found) is DiskFull
    assert found.as_json() == DiskFull("no space", on="a", do="make room").as_json()
    assert "KeyError: 'x'" in str(read(written(KeyError("x"))))


@pytest.mark.parametrize("kind", [bytes, memoryview, bytearray])
def test_large_bytes_lie_beside_the_recording(kind):
    kept = Kept()
    small = kind(bytes(RECORDED_PAYLOAD_BYTES_MIN - 1))
    large = kind(bytes(RECORDED_PAYLOAD_BYTES_MIN))
    content = written([small, large, large], kept)
    assert len(kept.kept) == 1
    assert len(content) < RECORDED_PAYLOAD_BYTES_MIN + 64
    found = read(content, kept)
    assert [type(each) for each in found] == [kind] * 3
    assert [bytes(each) for each in found] == [bytes(each) for each in (small, large, large)]


def test_payloads_without_room_end_the_recording():
    with pytest.raises(NotRecordable, match="no room"):
        written(bytes(RECORDED_PAYLOAD_BYTES_MIN), Kept(room=0))


def test_frames_are_named_tuples_of_events():
    request = Request(7, 1, memoryview(b"frame"))
    entry = Entry(RaftIndex(1), Term(2), EntryKind.RECORDS, Offset(3), Offset(4), b"batch")
    found = read(written([request, entry]))
    assert found == [request, entry]
    assert [type(each) for each in found] == [Request, Entry]


def test_a_class_that_is_not_in_the_table_is_named():
    with pytest.raises(NotRecordable, match=r"test_incident_values\.Kept"):
        written([Kept()])
    with pytest.raises(NotRecordable, match=r"builtins\.set"):
        written({1})


def nested(depth: int):
    value: list = []
    for _ in range(depth - 1):
        value = [value]
    return value


def test_depth_is_bounded():
    assert read(written(nested(RECORDED_DEPTH_MAX))) == nested(RECORDED_DEPTH_MAX)
    with pytest.raises(NotRecordable, match="nested"):
        written(nested(RECORDED_DEPTH_MAX + 1))


def test_an_error_with_a_constructor_of_its_own_comes_back_whole():
    """A further log directory that failed is named by a field that is not in the error's text."""
    found = read(written(DirectoryFailed("directory-07", DiskFull("no room", on="/disk"))))
    assert (type(found), found.directory, found.what) == (
        DirectoryFailed,
        "directory-07",
        "no room",
    )
    own = {
        cls
        for cls in classes()
        if issubclass(cls, RaftlogError) and "__init__" in vars(cls) and cls is not RaftlogError
    }
    assert own == set(MORE_OF_ERRORS)

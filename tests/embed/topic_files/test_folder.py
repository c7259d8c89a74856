"""The reader of exports refuses whatever is none, in one clear error."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.errors import CorruptData, FutureFormat, OperatingError
from raftlog.base.limits import EXPORT_MANIFEST_BYTES_MAX, EXPORT_PARTITIONS_MAX
from raftlog.embed.topic_files.folder import Export, batches_name
from raftlog.embed.topic_files.manifest import FORMAT, VERSION
from tests.embed.topic_files.exports import (
    batch_of,
    sum_again,
    topic_of,
    with_crc,
    write_export,
)

ORDERS = batch_of(b"a", b"b") + batch_of(b"c", at=2, codec=4)
FILES = {"orders": [ORDERS, b""], "payments": [batch_of(b"x", at=90)]}
PLACES = ["manifest.json", "SHA256SUMS", *(batches_name("orders", n) for n in (0, 1))]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_export(tmp_path / "export", FILES)


def manifest_of(*topics: object, **more) -> dict[str, object]:
    return {"format": FORMAT, "version": VERSION, "topics": list(topics), **more}


def refused(folder: Path) -> OperatingError:
    with pytest.raises(OperatingError) as caught:
        Export.open(folder)
    return caught.value


def test_a_good_one_is_read(folder):
    seen: list[int] = []
    export = Export.open(folder, seen.append)
    orders, payments = export.manifest.topics
    assert (orders.records, payments.records) == (3, 1)
    assert b"".join(export.batches(orders, 0)) == ORDERS
    assert list(export.batches(orders, 1)) == []
    assert sum(seen) == export.manifest.bytes == len(ORDERS) + len(FILES["payments"][0])
    keeps = [each.keeps_offsets for each in (*orders.partitions, *payments.partitions)]
    assert keeps == [True, True, False]


def test_other_files_beside_are_not_looked_at(folder):
    os.mkfifo(folder / "README")
    Export.open(folder)


@pytest.mark.parametrize("name", PLACES)
def test_each_file_must_be_there(folder, name):
    (folder / name).unlink()
    error = refused(folder)
    assert Path(name).name in error.what


@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize("kind", ["link", "fifo", "folder"])
def test_each_file_must_be_a_regular_one(folder, name, kind, tmp_path):
    (folder / name).rename(tmp_path / "aside")
    if kind == "link":
        (folder / name).symlink_to(tmp_path / "aside")
    elif kind == "fifo":
        os.mkfifo(folder / name)
    else:
        (folder / name).mkdir()
    assert "regular file" in refused(folder).what


@pytest.mark.parametrize("name", ["topics", "topics/orders"])
def test_no_folder_inside_may_be_a_link(folder, name, tmp_path):
    (folder / name).rename(tmp_path / "aside")
    (folder / name).symlink_to(tmp_path / "aside")
    assert refused(folder).what == "it is no folder"


def test_no_folder_at_all(tmp_path):
    assert "no such folder" in refused(tmp_path / "nowhere").what
    assert "no topics were exported" in refused(tmp_path).what


@pytest.mark.parametrize("at", range(0, len(ORDERS), 7))
def test_a_flipped_bit_is_found(folder, at):
    path = folder / batches_name("orders", 0)
    data = bytearray(ORDERS)
    data[at] ^= 1
    path.write_bytes(data)
    assert isinstance(refused(folder), CorruptData)


def test_a_cut_or_longer_file_is_found(folder):
    path = folder / batches_name("orders", 0)
    for data in (ORDERS[:-1], ORDERS + b"\0", b""):
        path.write_bytes(data)
        assert isinstance(refused(folder), CorruptData)


def test_a_changed_setting_is_found(folder):
    path = folder / "manifest.json"
    path.write_text(path.read_text().replace('"replication_factor": 3', '"replication_factor": 1'))
    assert "checksum" in refused(folder).what


@pytest.mark.parametrize(
    ("text", "kind", "why"),
    [
        (b"", OperatingError, "no manifest of exported topics"),
        (b"\xff\xfe", OperatingError, "no manifest of exported topics"),
        (b"[" * 200_000, OperatingError, "no manifest of exported topics"),
        (b'{"brokers": []}', OperatingError, "no manifest of exported topics"),
        (b'{"format": "raftlog-topics", "version": 2, "more": {}}', FutureFormat, "version 2"),
        (b'{"format": "raftlog-topics", "version": 0, "topics": []}', CorruptData, "version 0"),
        (b'{"format": "raftlog-topics", "version": 1}', CorruptData, "topics"),
        (b'{"format": "raftlog-topics", "version": 1, "topics": [], "x": 1}', CorruptData, "x"),
        (b" " * (EXPORT_MANIFEST_BYTES_MAX + 1), CorruptData, "larger than"),
    ],
)
def test_a_foreign_newer_or_wrong_manifest(tmp_path, text, kind, why):
    error = refused(write_export(tmp_path / "export", {}, text))
    assert type(error) is kind
    assert why in error.what


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../up", "a/b", "/etc", "a\0b", "x" * 250, "caf\u00e9", "__consumer_offsets"],
)
def test_a_name_that_is_no_topics_leads_nowhere(tmp_path, name):
    error = refused(write_export(tmp_path / "export", {}, manifest_of(topic_of(name, b""))))
    assert isinstance(error, CorruptData)


@pytest.mark.parametrize(
    "topic",
    [
        topic_of("t"),
        topic_of("t", b"", replication_factor=0),
        topic_of("t", b"", settings={"a": 1}),
        topic_of("t", b"", settings={str(n): "" for n in range(65)}),
        topic_of("t", b"", partitions=[{"start_offset": -1, "end_offset": 0}]),
        topic_of(
            "t",
            b"",
            partitions=[{"start_offset": 0, "end_offset": 1, "records": 2, "bytes": 0}],
        ),
        topic_of(
            "t",
            b"",
            partitions=[{"start_offset": 0, "end_offset": 2**63, "records": 0, "bytes": 0}],
        ),
    ],
)
def test_fields_have_bounds(tmp_path, topic):
    error = refused(write_export(tmp_path / "export", {"t": [b""]}, manifest_of(topic)))
    assert isinstance(error, CorruptData)


def test_topics_are_named_once_and_bounded(tmp_path):
    twice = manifest_of(topic_of("t", b""), topic_of("t", b""))
    assert "twice" in refused(write_export(tmp_path / "a", {"t": [b""]}, twice)).what
    half = [b""] * (EXPORT_PARTITIONS_MAX // 2)
    many = manifest_of(topic_of("t", *half), topic_of("u", *half), topic_of("v", b""))
    error = refused(write_export(tmp_path / "b", {}, many))
    assert f"{EXPORT_PARTITIONS_MAX + 1} partitions" in error.what


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (batch_of(b"a", at=1) + batch_of(b"b", at=1), "offsets 1 to 1 where 2"),
        (batch_of(b"a", producer_id=1, producer_epoch=0, base_sequence=0), "producer"),
        (batch_of(b"a") + b"\0" * 60, "are no batch"),
        (batch_of(b"a") + b"\0" * 61, "a batch says 12 bytes"),
    ],
)
def test_batches_that_no_broker_would_take(tmp_path, data, why):
    part = {"start_offset": 0, "end_offset": 9, "records": 2, "bytes": len(data)}
    manifest = manifest_of(topic_of("t", b"", partitions=[part]))
    assert why in refused(write_export(tmp_path / "export", {"t": [data]}, manifest)).what


def test_garbage_inside_a_batch_of_right_checksums_is_found(tmp_path):
    """A broker looks at headers only, and would store it."""
    good = batch_of(b"aaaa", b"bbbb")
    builder = bytearray(good)
    builder[61] = 0x7E
    error = refused(write_export(tmp_path / "export", {"t": [with_crc(builder)]}))
    assert "record 0" in error.what


def test_the_manifest_counts_the_records(tmp_path):
    part = {"start_offset": 0, "end_offset": 9, "records": 5, "bytes": len(ORDERS)}
    manifest = manifest_of(topic_of("t", b"", partitions=[part]))
    folder = write_export(tmp_path / "export", {"t": [ORDERS]}, manifest)
    assert "it has 3 records, not 5" in refused(folder).what


def test_the_sums_are_those_of_the_manifest(folder):
    names = {name: (folder / name).read_bytes() for name in PLACES if name != "SHA256SUMS"}
    sum_again(folder, names)  # the other topic's file is missing
    assert "not those of the manifest" in refused(folder).what


# --- whatever comes -------------------------------------------------------------------------------

CHANGES = st.lists(
    st.tuples(st.integers(0, 2_000), st.integers(0, 3), st.binary(max_size=9)),
    min_size=1,
    max_size=4,
)


def changed(data: bytes, changes: list[tuple[int, int, bytes]]) -> bytes:
    """Some bytes replaced, inserted, cut out, or the end cut off."""
    for drawn, kind, piece in changes:
        at = drawn % (len(data) + 1)
        if kind == 0:
            data = data[:at] + piece + data[at + len(piece) :]
        elif kind == 1:
            data = data[:at] + piece + data[at:]
        elif kind == 2:
            data = data[:at] + data[at + len(piece) :]
        else:
            data = data[:at]
    return data


@given(st.data())
def test_whatever_a_file_holds_is_read_or_refused(tmp_path_factory, data):
    """With right checksums too, so that what stands behind them is thrown at as well."""
    folder = write_export(tmp_path_factory.mktemp("any") / "export", FILES)
    name = data.draw(st.sampled_from(PLACES))
    before = (folder / name).read_bytes()
    after = changed(before, data.draw(CHANGES))
    (folder / name).write_bytes(after)
    honest = data.draw(st.booleans())
    if not honest and name != "SHA256SUMS":
        names = ["manifest.json", *(n for n in PLACES[2:]), batches_name("payments", 0)]
        sum_again(folder, {each: (folder / each).read_bytes() for each in names})
    try:
        export = Export.open(folder)
    except OperatingError as error:
        named = error.on
    else:
        named = str(folder)
        if honest and name != "SHA256SUMS":  # which may end without a newline
            assert after == before
        assert_readable(export)
    assert named.startswith(str(folder))


def assert_readable(export: Export) -> None:
    for topic in export.manifest.topics:
        for number in range(len(topic.partitions)):
            path = export.folder / batches_name(topic.name, number)
            assert b"".join(export.batches(topic, number)) == path.read_bytes()


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=5))
def test_whatever_json_is_refused(tmp_path_factory, value):
    folder = tmp_path_factory.mktemp("any") / "export"
    text = json.dumps({"format": FORMAT, "version": VERSION, "topics": value}).encode()
    if value == []:
        return
    assert isinstance(refused(write_export(folder, {}, text)), CorruptData)

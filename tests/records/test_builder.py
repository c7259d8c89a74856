"""The builder's batches are what a broker accepts and what other people's codecs read."""

import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.records.batch import read_header
from raftlog.records.builder import RecordBatchBuilder
from raftlog.records.compression import CODEC_NAMES, GZIP, LZ4, NONE, ZSTD
from raftlog.records.validate import BatchFault, validate_produced
from tests.records.making import NOW_MS


def _other_codec():
    """kafka-python reads its own schemas in a way that Python deprecates: not our warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from kafka.record.default_records import DefaultRecordBatch
    return DefaultRecordBatch


def test_fields_of_an_idempotent_batch():
    builder = RecordBatchBuilder(producer_id=7, producer_epoch=2, base_sequence=40)
    assert builder.append(b"a", timestamp_ms=NOW_MS + 5) == 0
    assert builder.append(b"b", timestamp_ms=NOW_MS) == 1
    header = read_header(builder.build())
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, 40)
    assert (header.base_timestamp, header.max_timestamp) == (NOW_MS + 5, NOW_MS + 5)
    assert (header.records_count, header.last_offset_delta) == (2, 1)


@pytest.mark.parametrize("codec", CODEC_NAMES.values())
def test_a_broker_accepts_every_codec(codec):
    builder = RecordBatchBuilder(codec=codec)
    builder.append(b"a" * 100, timestamp_ms=NOW_MS)
    assert not isinstance(validate_produced(builder.build(), 1 << 20), BatchFault)


@pytest.mark.parametrize("codec", [NONE, GZIP, LZ4, ZSTD])
def test_another_codec_reads_the_same(codec):
    """Differential: kafka-python reads what we wrote."""
    builder = RecordBatchBuilder(codec=codec)
    builder.append(b"v", key=b"k", timestamp_ms=NOW_MS, headers=[("h", b"1"), ("n", None)])
    builder.append(None, timestamp_ms=NOW_MS + 9)
    batch = _other_codec()(builder.build())
    assert batch.validate_crc()
    first, second = list(batch)
    assert (first.key, first.value, first.headers) == (b"k", b"v", [("h", b"1"), ("n", None)])
    assert (second.key, second.value, second.timestamp) == (None, None, NOW_MS + 9)


def test_an_empty_batch_is_our_bug():
    with pytest.raises(AssertionError):
        RecordBatchBuilder().build()


def test_half_a_producer_is_our_bug():
    with pytest.raises(AssertionError):
        RecordBatchBuilder(producer_id=3)


@given(
    records=st.lists(
        st.tuples(st.none() | st.binary(max_size=300), st.none() | st.binary(max_size=300)),
        min_size=1,
        max_size=10,
    )
)
def test_size_bound_is_a_bound(records):
    builder = RecordBatchBuilder()
    bound = builder.size
    for key, value in records:
        headers = [("name", value)]
        bound += RecordBatchBuilder.size_bound(key, value, headers)
        builder.append(value, key=key, timestamp_ms=NOW_MS, headers=headers)
        assert builder.size <= bound
    assert builder.count == len(records)
    assert len(builder.build()) == builder.size

"""murmur2 against values of Java's client and against another implementation."""

import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.client.core.partitioner import RoundRobin, murmur2, partition_of

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.partitioner.default import murmur2 as other_murmur2

# From Kafka's own UtilsTest, as unsigned numbers.
KNOWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("key", KNOWN)
def test_values_of_kafka(key):
    assert murmur2(key) == KNOWN[key] & 0xFFFFFFFF


@given(st.binary(max_size=200), st.integers(1, 1000))
def test_it_agrees_with_kafka_python(key, count):
    assert murmur2(key) == other_murmur2(key) & 0xFFFFFFFF
    assert partition_of(key, count) == (other_murmur2(key) & 0x7FFFFFFF) % count


def test_turns_are_even_and_each_topic_has_its_own():
    turns = RoundRobin()
    assert [turns.next("a", 3) for _ in range(6)] == [0, 1, 2, 0, 1, 2]
    assert turns.next("b", 3) == 0

"""The chain binds each batch to its group and place, where Kafka's CRC binds neither."""

from raftlog.records.chain import chain_next, chain_over, chain_start
from tests.records.making import changed, plain_batch

CLUSTER = bytes(range(16))


def test_golden_values():
    """Part of the disk and peer formats."""
    start = chain_start(CLUSTER, 1)
    assert f"{start:016x}" == "1e4c452fdb7fcec2"
    batch = changed(plain_batch(1), base_offset=5, leader_epoch=2)
    assert f"{chain_next(start, batch):016x}" == "3468dd7c8351eef9"


def test_groups_and_clusters_begin_apart():
    assert len({chain_start(CLUSTER, 1), chain_start(CLUSTER, 2), chain_start(bytes(16), 1)}) == 3


def test_every_header_bit_counts():
    batch = plain_batch(1)
    start = chain_start(CLUSTER, 1)
    seen = {chain_next(start, batch)}
    for bit in range(61 * 8):
        other = bytearray(batch)
        other[bit // 8] ^= 1 << bit % 8
        seen.add(chain_next(start, other))
    assert len(seen) == 61 * 8 + 1


def test_order_counts():
    start = chain_start(CLUSTER, 1)
    one, two = plain_batch(1), plain_batch(2)
    assert chain_over(start, [one, two]) != chain_over(start, [two, one])
    assert chain_over(start, [one, two]) == chain_next(chain_next(start, one), two)

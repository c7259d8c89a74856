"""Each check of Fetch answers fails on a broken product that no other check notices.

Records that were read too early are committed in the end.
"""

import attrs
import pytest
from raftlog_sim.checks import answer_checks
from raftlog_sim.playing.simulation import simulate
from raftlog_sim.schedules.options import SimOptions
from raftlog_sim.schedules.schedule import Schedule, step

from raftlog.base.ids import Offset
from raftlog.broker.handlers.fetch import _Fetch
from raftlog.storage.read_plan import ReadPlanner

WRITES = tuple(step(at, "produce", slot=0, partition=0, count=2) for at in range(0, 300, 20))
READS = tuple(step(at, "read", partition=0) for at in range(10, 300, 10))
SLOW = step(50, "stall", 120, node="follower:0")
OPTIONS = SimOptions(seed=3, safety_ms=400, sync_us=9_000, jitter_us=3_000)


def played(*some, **options):
    return simulate(Schedule(attrs.evolve(OPTIONS, **options), (*WRITES, *READS, *some)))


def plan_beyond(monkeypatch):
    """A planted bug: a read goes a batch past the high watermark."""
    plan = ReadPlanner.plan

    def beyond(self, offset, bytes_max, limit, written):
        return plan(self, offset, bytes_max, Offset(limit + 2), written)

    monkeypatch.setattr(ReadPlanner, "plan", beyond)


def tell_otherwise(monkeypatch, **changes):
    """A planted bug: what is told of a partition is another number."""
    told = _Fetch._partition

    def otherwise(self, want, hints):
        row = told(self, want, hints)
        if row.error_code:
            return row
        return row._replace(**{name: getattr(row, name) + more for name, more in changes.items()})

    monkeypatch.setattr(_Fetch, "_partition", otherwise)


def test_what_is_told_is_compared():
    result = played(SLOW)
    assert result.failure == ""
    assert result.invariants["fetched-rightly"]["checked"] > 20


def test_a_read_past_the_high_watermark_is_seen(monkeypatch):
    plan_beyond(monkeypatch)
    assert played(SLOW).failure_class == "fetched-rightly"


def test_nothing_else_sees_it(monkeypatch):
    plan_beyond(monkeypatch)
    monkeypatch.setattr(answer_checks, "fetched", lambda *_: iter(()))
    assert played(SLOW).failure == ""


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"high_watermark": 3}, "high watermark"),
        ({"log_start_offset": 1}, "log start"),
    ],
)
def test_an_end_of_the_log_that_nobody_showed_is_seen(changes, says, monkeypatch):
    tell_otherwise(monkeypatch, **changes)
    result = played(SLOW)
    assert result.failure_class == "fetched-rightly"
    assert says in result.failure


def test_a_batch_with_another_byte_is_seen(monkeypatch):
    """A planted bug: the last byte that is read from memory is another one."""
    from_memory = ReadPlanner._from_memory

    def flipped(self, index, bytes_max, limit):
        parts = [bytearray(part) for part in from_memory(self, index, bytes_max, limit)]
        for part in parts:
            part[-1] ^= 1
        return [bytes(part) for part in parts]

    monkeypatch.setattr(ReadPlanner, "_from_memory", flipped)
    result = played(SLOW)
    assert result.failure_class == "fetched-rightly"
    assert "checksum" in result.failure


def test_what_is_sent_from_files_is_read_too(monkeypatch):
    """A planted bug: a slice of a file ends 16 bytes early."""
    _slice, cut = ReadPlanner._slice, []

    def shorter(self, segment, start, end):
        cut.append(end)
        return _slice(self, segment, start, end - 16)

    monkeypatch.setattr(ReadPlanner, "_slice", shorter)
    result = played(value_bytes=60_000)
    assert cut
    assert result.failure_class == "fetched-rightly"
    assert "early" in result.failure

"""Reads for followers that fail: what may pass, and what is damage."""

from types import SimpleNamespace

import pytest

from raftlog.base.errors import CorruptData, DiskError
from raftlog.base.limits import LOG_READ_FAILURES_MAX
from raftlog.base.trace import NoTracer
from raftlog.partition.errands import Errands
from raftlog.raft.output import LogRead

NOW = 7
FAILED = DiskError("sector cannot be read", on="a segment")


@pytest.fixture
def node():
    """Notes what it is told."""
    told = SimpleNamespace(answers=[], stepped_down=[])
    told.log_read_done = lambda *answer: told.answers.append(answer)
    told.step_down = lambda now, why: told.stepped_down.append((now, why))
    return told


@pytest.fixture
def errands(node):
    return Errands(SimpleNamespace(last_index=9), node, NoTracer(), "g1")


def fail(errands, first, times, error=FAILED):
    for _ in range(times):
        errands._log_read(LogRead(1, first, 1_000), error, NOW)


def test_a_place_that_cannot_be_read_again_and_again_is_damage(errands, node):
    """Seed 300085 of the simulator: the leader tried for ever, and its follower waited for ever."""
    fail(errands, 5, LOG_READ_FAILURES_MAX - 1)
    assert errands.damage is None
    fail(errands, 5, 1)
    assert isinstance(errands.damage, CorruptData)
    assert "entry 5 cannot be read" in str(errands.damage)
    assert [now for now, _ in node.stepped_down] == [NOW]
    assert len(node.answers) == LOG_READ_FAILURES_MAX, "each read is answered"


def test_failures_at_other_places_begin_anew(errands, node):
    for first in (5, 6, 5, 6):
        fail(errands, first, LOG_READ_FAILURES_MAX - 1)
    assert errands.damage is None
    assert node.stepped_down == []


def test_a_wrong_checksum_is_damage_at_once(errands, node):
    fail(errands, 5, 1, CorruptData("a batch fails its CRC", on="a segment"))
    assert errands.damage is not None
    assert len(node.stepped_down) == 1

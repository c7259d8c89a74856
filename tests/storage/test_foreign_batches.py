"""A batch of another partition in the place of ours, of equal size, offset and epoch, as a write
leaves it that went astray: the batch is whole, and only the chain tells. Whoever is the first to
read a file after a boot must compare it."""

import pytest
from raftlog_sim.disk import Keep

from raftlog.base.errors import CorruptData
from raftlog.records.batch import read_header
from raftlog.storage.recovery import ReplicaState
from tests.storage.making import batch_of


def first_file(driver):
    return driver.log.segments[0].path


def twin_of(mine):
    """Another batch of equal size, base offset and epoch, with a right CRC."""
    alien = bytearray(batch_of(2, size=60, fill=b"x"))
    alien[:8], alien[12:16] = mine[:8], mine[12:16]
    return bytes(alien)


@pytest.mark.parametrize("ordinal", [0, 2])
def test_review_3_a_batch_of_another_partition(driver, ordinal):
    """Equal size, base offset and epoch, a right CRC: only the chain binds it to its place."""
    segment = driver.log.segments[ordinal]
    index = segment.first_index + 1
    position = driver.log._window.position_of(index)
    driver.disk.overwrite(segment.path, position, twin_of(driver.log.entries(index, 1)[0].batch))
    found = driver.crash(Keep.NONE)
    if ordinal == 2:
        assert found.state is ReplicaState.DAMAGED
        assert driver.log.last_index < index
        return
    assert found.state is ReplicaState.INTACT
    with pytest.raises(CorruptData):
        driver.read(0)
    with pytest.raises(CorruptData):
        driver.run(driver.log.plan_entries(1, 100))


def test_a_batch_of_another_partition_is_not_found_by_its_time(driver):
    """Nobody has verified the segment since the boot: the chain at its end is compared first."""
    wanted = read_header(driver.log.entries(3, 1)[0].batch).max_timestamp
    limit, truth = driver.log.next_offset, driver.run(driver.log.plan_time(wanted, 100))
    position = driver.log._window.position_of(3)
    twin = twin_of(driver.log.entries(3, 1)[0].batch)
    driver.crash(Keep.NONE)
    assert not driver.log.segments[0].verified
    assert driver.run(driver.log.plan_time(wanted, limit)) == truth
    driver.disk.overwrite(first_file(driver), position, twin)
    with pytest.raises(CorruptData, match="chain before"):
        driver.run(driver.log.plan_time(wanted, limit))


def test_a_batch_of_another_partition_before_a_second_fault(driver):
    """Seed 160: behind it a bit was flipped. The walk ended there, before the mark whose chain
    would have told, and the alien batch counted as ours: equal index and term, another entry."""
    segment = driver.log.segments[2]
    index, last = segment.first_index, driver.log.last_index
    position = driver.log._window.position_of(index)
    driver.disk.overwrite(segment.path, position, twin_of(driver.log.entries(index, 1)[0].batch))
    driver.disk.flip_bit(segment.path, driver.log._window.position_of(last) + 70)
    found = driver.crash(Keep.NONE)
    assert found.state is ReplicaState.DAMAGED
    assert found.claimed == (last, 2)
    assert driver.log.last_index == index - 1


@pytest.mark.parametrize("how", ["flip", "twin"])
def test_damage_that_only_the_replay_meets(driver, how):
    """A sealed segment that its index vouches for, no snapshot behind it: the replay of producers
    is the first to read it. That is damage there, not a lost replica. Seed 4010648: producers were
    taken from a batch of another partition, which only the chain tells from ours."""
    for path in driver.disk.paths():
        if path.endswith(".snapshot"):
            driver.disk.vanish(path)
    position = driver.log._window.position_of(3)
    last = driver.log.last_index
    if how == "flip":
        driver.disk.flip_bit(first_file(driver), position + 70)
    else:
        twin = twin_of(driver.log.entries(3, 1)[0].batch)
        driver.disk.overwrite(first_file(driver), position, twin)
    found = driver.crash(Keep.NONE)
    assert (found.state, found.claimed) == (ReplicaState.DAMAGED, (last, 2))
    assert driver.log.last_index == 2


@pytest.mark.parametrize("kind", ["crc", "chain"])
def test_damage_met_in_use_is_found_again_by_recovery(driver, kind):
    """The replica is reopened after a read met damage: recovery must not take the index file's word
    for that segment once more, or it would be reopened for ever."""
    driver.crash(Keep.NONE)
    path = first_file(driver)
    position = 4096
    content = driver.disk.content(path)
    for _ in range(2):
        position += read_header(content, position).size
    if kind == "crc":
        driver.disk.flip_bit(path, position + 70)
    else:
        driver.disk.overwrite(path, position, twin_of(content[position:]))
    last = driver.log.last_index
    with pytest.raises(CorruptData):
        driver.read(0)
    found = driver.reopen()
    assert (found.state, found.claimed) == (ReplicaState.DAMAGED, (last, 2))
    assert driver.log.last_index == 2

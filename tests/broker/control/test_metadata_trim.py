"""The metadata log is trimmed behind image snapshots: boots, absences and joiners over whole
brokers.

Segments and intervals are made tiny, so that a few dozen commands trim the log several times.
"""

import attrs
import pytest

from raftlog.base import probes
from raftlog.base.ids import METADATA_GROUP
from tests.broker.whole_brokers import (
    broker,
    cluster,
    group_zero,
    image,
    join,
    wait_settled,
    wipe,
)


@pytest.fixture(autouse=True)
def _probes():
    probes.reset()


def tiny(config):
    return attrs.evolve(config, metadata_segment_bytes=8192, metadata_snapshot_every=10)


def zero(world, number):
    return broker(world, number).context.replicas[METADATA_GROUP]


def trimmed(world, *numbers):
    return all(zero(world, number).log.first_index > 1 for number in numbers)


def busy(world, first, count):
    """Commands: each topic is a creation, and reports."""
    for number in range(first, first + count):
        world.create(f"t{number}", partitions=1, factor=3)
    return first + count


def equal(world):
    return len({node.broker.context.image.digest() for node in world.world.running()}) == 1


def grow_until_trimmed(world, *numbers):
    made = 0
    while not trimmed(world, *numbers):
        made = busy(world, made, 5)
        world.run(1.0)
        assert made < 200
    return made


def test_every_replica_trims_its_log_and_boots_from_what_is_left():
    world = cluster(3, 3, configure=tiny)
    made = grow_until_trimmed(world, 1, 2, 3)
    for number in (1, 2, 3):
        world.kill(number)
    for number in (1, 2, 3):
        world.restart(number)
    world.ready(40.0)
    world.wait(lambda: equal(world), 20, "equal images")
    assert len(image(world).topics) == made
    assert probes.fired()["metadata-taken-over-from-a-snapshot"] >= 3
    wait_settled(world, f"t{made - 1}")


def test_a_broker_that_was_away_is_installed_and_takes_over():
    world = cluster(3, 3, configure=tiny)
    busy(world, 0, 1)
    wait_settled(world, "t0")
    world.kill(3)
    made = 1
    held = zero(world, 1).log.first_index
    while zero(world, 1).log.first_index < 60 or zero(world, 2).log.first_index < 60:
        made = busy(world, made, 5)
        world.run(1.0)
        assert made < 200, held
    world.restart(3)
    world.ready(60.0)
    world.wait(lambda: equal(world), 20, "equal images")
    for number in (0, made - 1):
        wait_settled(world, f"t{number}")
    assert broker(world, 3).loader.stopped is None


def test_joiners_and_wiped_brokers_begin_with_the_snapshot():
    world = cluster(3, 3, configure=tiny)
    made = grow_until_trimmed(world, 1, 2, 3)
    join(world, 4)
    world.ready(60.0)
    world.wait(lambda: equal(world), 20, "equal images")
    assert len(image(world, 4).topics) == made
    world.kill(2)
    wipe(world, 2)
    world.restart(2)
    world.ready(60.0)
    world.wait(lambda: equal(world), 40, "equal images")
    for number in (0, made - 1):
        wait_settled(world, f"t{number}", 60.0)
    assert group_zero(world) is not None

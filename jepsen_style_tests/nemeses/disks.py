"""Disks that are full, fail, or are slow: by the broker's test disk, or a small tmpfs as root."""

import os
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from jepsen_style_tests.world import CONTROL, Nemesis, ProcessWorld, Setup, names

GOOD_SECONDS = (1.0, 4.0)
BAD_SECONDS = (0.5, 6.0)
BALLAST: Final = "ballast"
SMALL_DISK_MEGABYTES: Final = 96
_CHUNK: Final = bytes(1 << 20)


def _victim(world: ProcessWorld) -> int:
    return world.leader() if world.dice.random() < 0.6 else world.some(1)[0]


def tell_disk(world: ProcessWorld, node: int, faults: str) -> None:
    """Put these faults into force on a broker's test disk; none for an empty text."""
    control = world.cluster.directory / f"disk{node}.control"
    aside = control.with_suffix(".tmp")
    aside.write_text(faults)
    aside.replace(control)


def full(world: ProcessWorld) -> Iterator[float]:
    """No file of one broker can grow for a while; then there is room again."""
    while True:
        yield world.dice.uniform(*GOOD_SECONDS)
        node = _victim(world)
        tell_disk(world, node, "full")
        world.begin("disk-full", names([node]), partial(tell_disk, world, node, ""))
        yield world.dice.uniform(*BAD_SECONDS)
        world.end("disk-full")


def failing_sync(world: ProcessWorld) -> Iterator[float]:
    """Syncs of one broker fail; an operator restarts it once the disk is well again."""
    while True:
        yield world.dice.uniform(*GOOD_SECONDS)
        node = _victim(world)
        tell_disk(world, node, "fail-sync")
        world.begin("failing-sync", names([node]), partial(_operator_comes, world, node))
        yield world.dice.uniform(*BAD_SECONDS)
        world.end("failing-sync")
        world.start([node])
        world.wait_ready([node])


def _operator_comes(world: ProcessWorld, node: int) -> None:
    """A new disk, and the broker down: after a failed sync it trusts nothing until it is started
    again, so whoever ends this fault must start it, `ProcessWorld.heal` too."""
    tell_disk(world, node, "")
    world.cluster.kill_all([node])


def slow_sync(world: ProcessWorld) -> Iterator[float]:
    """Syncs of some brokers take long, up to longer than an election."""
    while True:
        yield world.dice.uniform(*GOOD_SECONDS)
        nodes = world.some(world.dice.randint(1, len(world.nodes)))
        millis = world.dice.choice((20, 100, 400, 1500))
        for node in nodes:
            tell_disk(world, node, f"slow-sync={millis}")
        world.begin("slow-sync", names(nodes), partial(_well, world, nodes))
        yield world.dice.uniform(*BAD_SECONDS)
        world.end("slow-sync")


def _well(world: ProcessWorld, nodes: list[int]) -> None:
    for node in nodes:
        tell_disk(world, node, "")


def small_disk(world: ProcessWorld) -> Iterator[float]:
    """A file fills a broker's tmpfs to the last byte, and is removed later."""
    while True:
        yield world.dice.uniform(*GOOD_SECONDS)
        node = _victim(world)
        ballast = world.cluster.data_path(node) / BALLAST
        _fill(ballast)
        world.begin("disk-full", names([node]), partial(_remove, ballast))
        yield world.dice.uniform(*BAD_SECONDS)
        world.end("disk-full")


def _fill(ballast: Path) -> None:
    with ballast.open("ab", buffering=0) as file:
        for chunk in (_CHUNK, _CHUNK[:4096]):
            try:
                while file.write(chunk) == len(chunk):
                    pass
            except OSError:  # no space left: as was wanted
                continue


def _remove(ballast: Path) -> None:
    ballast.unlink(missing_ok=True)


def no_root() -> str:
    """Why no tmpfs can be mounted here, or nothing."""
    if os.geteuid() != 0:
        return "mounting a tmpfs needs root"
    return "" if shutil.which("mount") else "there is no mount command"


_TEST_DISK: Final = f"writeback,control={CONTROL}"

NEMESES: Final = (
    Nemesis(
        name="disk-full",
        about="a broker's disk is full for a while (test disk)",
        steps=full,
        setup=Setup(test_disk=_TEST_DISK),
    ),
    Nemesis(
        name="failing-sync",
        about="a broker's syncs fail; it is restarted later (test disk)",
        steps=failing_sync,
        setup=Setup(test_disk=_TEST_DISK),
    ),
    Nemesis(
        name="slow-sync",
        about="brokers' syncs take up to 1.5 s (test disk)",
        steps=slow_sync,
        setup=Setup(test_disk=_TEST_DISK),
    ),
    Nemesis(
        name="disk-full-tmpfs",
        about="a broker's small tmpfs is filled to the last byte (root)",
        steps=small_disk,
        setup=Setup(small_disk_megabytes=SMALL_DISK_MEGABYTES, missing=no_root),
    ),
)

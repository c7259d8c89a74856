"""The table of nemeses."""

from collections.abc import Iterator
from typing import Final

from jepsen_style_tests.control import BROKEN_DISK
from jepsen_style_tests.nemeses import clocks, damage, disks, kills, partitions, pauses
from jepsen_style_tests.world import Nemesis, ProcessWorld


def nothing(world: ProcessWorld) -> Iterator[float]:
    """The control: a healthy cluster has nothing to hide."""
    while True:
        yield 1.0


NEMESES: Final[dict[str, Nemesis]] = {
    nemesis.name: nemesis
    for nemesis in (
        Nemesis(name="none", about="no fault: the control", steps=nothing),
        *kills.NEMESES,
        *pauses.NEMESES,
        *partitions.NEMESES,
        *disks.NEMESES,
        *clocks.NEMESES,
        *damage.NEMESES,
        BROKEN_DISK,
    )
}

"""Files that rot while a broker is stopped, and brokers that come back with nothing.

Only a minority is ever damaged, and the next one only after every replica is in sync again: more
than that no system could repair.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from jepsen_style_tests.world import Nemesis, ProcessWorld, Setup, names

WHOLE_SECONDS = (2.0, 5.0)
REPAIR_SECONDS: Final = 60.0
FLIPS_MAX: Final = 8


def flip_bits(world: ProcessWorld, node: int) -> list[str]:
    """Flip bits in files of a broker that does not run; which, for the history."""
    files = sorted(path for path in world.cluster.data_path(node).rglob("*.log"))
    files = [path for path in files if path.stat().st_size]
    flipped: list[str] = []
    for _ in range(world.dice.randint(1, FLIPS_MAX) if files else 0):
        path = world.dice.choice(files)
        at, bit = world.dice.randrange(_written(path)), world.dice.randrange(8)
        with path.open("r+b") as file:
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 1 << bit]))
        flipped.append(f"{path.name} byte {at} bit {bit}")
    return flipped


def _written(path: Path) -> int:
    """Where a file's zeros at the end begin: what is preallocated holds nothing to damage."""
    return max(1, len(path.read_bytes().rstrip(b"\0")))


def bit_flips(world: ProcessWorld) -> Iterator[float]:
    """One broker is stopped, its segments rot, it is started again and repairs itself."""
    while True:
        yield world.dice.uniform(*WHOLE_SECONDS)
        node = world.some(1)[0]
        world.stop(node)
        world.note.nemesis("bit-flips", {**names([node]), "flipped": flip_bits(world, node)})
        yield world.dice.uniform(0.0, 1.0)
        world.start([node])
        world.wait_in_sync(REPAIR_SECONDS)


def wipes(world: ProcessWorld) -> Iterator[float]:
    """One broker is killed, loses all its files, and comes back as a new replica."""
    while True:
        yield world.dice.uniform(*WHOLE_SECONDS)
        node = world.some(1)[0]
        world.kill([node])
        yield world.dice.uniform(0.1, 2.0)
        world.cluster.wipe(node)
        world.note.nemesis("wipe", names([node]))
        world.start([node])
        world.wait_in_sync(REPAIR_SECONDS)


NEMESES: Final = (
    Nemesis(
        name="bit-flips",
        about="bits flip in one broker's segments while it is stopped",
        steps=bit_flips,
        setup=Setup(lost_copies=True),
    ),
    Nemesis(
        name="wipe",
        about="one broker loses all its files and comes back",
        steps=wipes,
        setup=Setup(lost_copies=True),
    ),
)

"""Wall clocks that jump, through libfaketime; the monotonic clock is left alone."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from jepsen_style_tests.world import Nemesis, ProcessWorld, Setup, names

STEADY_SECONDS = (1.5, 4.0)
"""Longer than the second for which libfaketime remembers what its file said."""
JUMPS_SECONDS: Final = (-86_400 * 30, -3_600, -5, 5, 3_600, 86_400 * 30)
_PLACES: Final = "/usr/lib/*/faketime/libfaketime.so.1"


def library() -> str:
    """Where libfaketime is, or nothing."""
    found = sorted(Path("/").glob(_PLACES.lstrip("/")))
    return str(found[0]) if found else ""


def no_library() -> str:
    """Why clocks cannot be faked here, or nothing."""
    return "" if library() else "libfaketime is not installed: run scripts/system_packages"


def clock_file(directory: Path, node: int) -> Path:
    """The file in which a broker's clock is told how wrong it is."""
    return directory / f"clock{node}"


def environment(directory: Path, node: int) -> dict[str, str]:
    """The environment that a broker's process needs for a clock that can jump."""
    return {
        "LD_PRELOAD": library(),
        "FAKETIME_TIMESTAMP_FILE": str(clock_file(directory, node)),
        "FAKETIME_CACHE_DURATION": "1",  # seconds; reading the file at each look costs too much
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        # Its work-around for an older glibc makes every timed wait for Python's own lock too long.
        "FAKETIME_FORCE_MONOTONIC_FIX": "0",
        "DONT_FAKE_MONOTONIC": "1",
        "NO_FAKE_STAT": "1",
    }


def set_clock(world: ProcessWorld, node: int, seconds: int) -> None:
    """Make a broker's wall clock wrong by so much."""
    path = clock_file(world.cluster.directory, node)
    aside = path.with_name(path.name + ".tmp")
    aside.write_text(f"{seconds:+d}\n")
    aside.replace(path)


def jumps(world: ProcessWorld) -> Iterator[float]:
    """The clocks of some brokers jump, forwards and backwards, and some jump back."""
    while True:
        yield world.dice.uniform(*STEADY_SECONDS)
        nodes = world.some(world.dice.randint(1, len(world.nodes)))
        offsets = {node: world.dice.choice(JUMPS_SECONDS) for node in nodes}
        for node, seconds in offsets.items():
            set_clock(world, node, seconds)
        world.begin("clock-jump", names(nodes), partial(_right, world, nodes))
        yield world.dice.uniform(*STEADY_SECONDS)
        world.end("clock-jump")


def _right(world: ProcessWorld, nodes: list[int]) -> None:
    for node in nodes:
        set_clock(world, node, 0)


NEMESES: Final = (
    Nemesis(
        name="clock-jumps",
        about="wall clocks jump by seconds, hours, a month (libfaketime)",
        steps=jumps,
        setup=Setup(fake_clock=True, missing=no_library),
    ),
)

"""Randomness of a simulated world: keyed draws, never one global generator.

A draw is a hash of (seed, stream, counter). So removing one event shifts no draw of any other
stream, and that is what makes shrinking work. A stream is named after the part that draws from it:
a link, a node, a fault source.
"""

import hashlib
from typing import final

import attrs


@final
@attrs.define(eq=False)
class Stream:
    """The `Entropy` port over one named stream."""

    seed: int
    name: str
    _counter: int = 0

    def below(self, bound: int) -> int:
        """Returns an integer from 0 up to and without `bound`; 128 bits make the bias invisible."""
        assert bound >= 1, bound
        return int.from_bytes(self.bytes(16), "big") % bound

    def bytes(self, count: int) -> bytes:
        """Returns the next `count` bytes of the stream."""
        found = b""
        while len(found) < count:
            self._counter += 1
            key = f"{self.seed}/{self.name}/{self._counter}".encode()
            found += hashlib.blake2b(key, digest_size=32).digest()
        return found[:count]

    def fork(self, label: str) -> "Stream":
        """Returns the stream of that label under this one."""
        return Stream(self.seed, f"{self.name}/{label}")

    def between(self, low: int, high: int) -> int:
        """Returns an integer from `low` to `high`, both included."""
        return low + self.below(high - low + 1)

    def chance(self, parts: int, of: int) -> bool:
        """Returns True in `parts` of `of` draws."""
        return self.below(of) < parts

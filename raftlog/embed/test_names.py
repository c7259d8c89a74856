"""Names made of a test's own name: topics, folders."""

import hashlib
from typing import Final

from raftlog.base.arguments import checked

_KEPT_CHARS: Final = 150


@checked
def topic_name(node_id: str) -> str:
    """The letters of a test's id that a topic name may hold, shortened, and made unique by what the
    id hashes to under a fixed function."""
    kept = "".join(each if each.isascii() and each.isalnum() else "-" for each in node_id)
    total = 0
    for byte in node_id.encode("utf-8", "backslashreplace"):
        total = (total * 131 + byte) % (1 << 61)
    return f"{kept[-_KEPT_CHARS:].strip('-')}-{total:x}"


@checked
def seed_of(run_seed: int, node_id: str) -> int:
    """A test's own seed: the same for the same seed of the run, in whatever order and process the
    tests run."""
    text = f"{run_seed} {node_id}".encode("utf-8", "backslashreplace")
    return int.from_bytes(hashlib.blake2b(text, digest_size=7).digest(), "big")

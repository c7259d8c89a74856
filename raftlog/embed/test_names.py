"""Names of topics and folders made from a test's own name."""

import hashlib
from typing import Final

from raftlog.base.arguments import checked

_KEPT_CHARS: Final = 150


@checked
def topic_name(node_id: str) -> str:
    """A topic name for a test: the characters of its id that a topic name may have, shortened, with
    a fixed hash of the id that makes it unique."""
    kept = "".join(each if each.isascii() and each.isalnum() else "-" for each in node_id)
    total = 0
    for byte in node_id.encode("utf-8", "backslashreplace"):
        total = (total * 131 + byte) % (1 << 61)
    return f"{kept[-_KEPT_CHARS:].strip('-')}-{total:x}"


@checked
def seed_of(run_seed: int, node_id: str) -> int:
    """The seed of a test. It depends only on the run's seed and the test's id, not on the order or
    process in which tests run."""
    text = f"{run_seed} {node_id}".encode("utf-8", "backslashreplace")
    return int.from_bytes(hashlib.blake2b(text, digest_size=7).digest(), "big")

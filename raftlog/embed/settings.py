"""What an embedded cluster is set to unless its user says otherwise: quick elections, small
topics."""

from collections.abc import Mapping
from typing import Final

EMBED_SETTINGS: Final[Mapping[str, str]] = {
    "raftlog.raft.heartbeat.ms": "30",
    "raftlog.raft.election.timeout.ms": "150",
    "broker.session.timeout.ms": "1000",
}
"""DESIGN: defaults of embed and tests."""


def with_defaults(settings: Mapping[str, str] | None) -> dict[str, str]:
    """The user's settings over those of embed."""
    return {**EMBED_SETTINGS, **(settings or {})}

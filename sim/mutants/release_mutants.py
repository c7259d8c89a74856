"""Planted bugs in the way that two releases work together.

Only `raftlog_sim.hunting.mutation` loads this file; nothing here is ever installed.
"""

from typing import Any

import attrs

from raftlog.broker import peer_codec
from raftlog.metadata import commands as c
from raftlog.metadata.command_codec import CommandCodec
from raftlog.metadata.rules import apply
from raftlog.metadata.rules.applied import Applied


def agreed_protocol_ignored() -> None:
    """34: an end of a link speaks its newest protocol, whatever the other end knows."""

    def newest(mine: tuple[int, int], theirs: tuple[int, int]) -> int:
        del theirs
        return mine[1]

    peer_codec.common_version = newest


def feature_level_ignored() -> None:
    """34b: metadata commands are written in the newest form, whatever the cluster's level."""

    def newest(self: CommandCodec, kind: int, level: int) -> Any:
        del level
        forms = self.table[kind][1]
        return len(forms), forms[-1]

    CommandCodec._form_at = newest  # type: ignore[method-assign]


def level_raised_over_old_brokers() -> None:
    """34c: the feature level is raised though a registered broker does not support it."""

    def raised(image: Any, command: c.RaiseFeatureLevel) -> Applied:
        if command.level <= image.feature_level:
            return Applied(image)
        higher = attrs.evolve(image, version=image.version + 1, feature_level=command.level)
        return Applied(higher)

    apply._RULES[c.RaiseFeatureLevel] = raised


MUTANTS = (
    ("34", "agreed-protocol-ignored", agreed_protocol_ignored, ("peer-protocol",)),
    ("34b", "feature-level-ignored", feature_level_ignored, ("metadata-followed",)),
    ("34c", "level-raised-over-old-brokers", level_raised_over_old_brokers,
     ("metadata-followed",)),
)  # fmt: skip

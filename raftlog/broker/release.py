"""The versions that a release of raftlog speaks and writes, as one value.

* `codecs`: versions of the peer protocol. Two ends of a link use the newest that both know.
* `commands`: the metadata commands, each with its versions. A command is written only when the
  cluster's feature level allows its newest form: one that another release cannot read stops that
  release's loader.
* `level_min`, `level_max`: the feature levels at which it can take part. Group 0 raises the level
  when every registered broker supports it; from then on an older release is refused.

Formats of files name the oldest reader that understands them (`storage`), and need no place here. A
process is of one release; the simulator runs several in one cluster.
"""

from collections.abc import Mapping
from typing import Final, final

import attrs

from raftlog.broker.peer_codec import PROTOCOLS, PeerCodec
from raftlog.metadata.command_codec import COMMANDS, CommandCodec
from raftlog.metadata.features import FEATURE_LEVEL_MAX, FEATURE_LEVEL_MIN


@final
@attrs.frozen(kw_only=True)
class Release:
    """The versions of one release; the module explains the fields."""

    codecs: Mapping[int, PeerCodec]
    commands: CommandCodec
    level_min: int
    level_max: int

    @property
    def protocols(self) -> tuple[int, int]:
        """The oldest and the newest version of the peer protocol."""
        return min(self.codecs), max(self.codecs)


THIS_RELEASE: Final = Release(
    codecs=PROTOCOLS,
    commands=COMMANDS,
    level_min=FEATURE_LEVEL_MIN,
    level_max=FEATURE_LEVEL_MAX,
)

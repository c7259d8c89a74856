"""The result of applying one command to the image."""

from typing import final

import attrs

from raftlog.metadata.image import ClusterImage
from raftlog.metadata.refusals import Refusal


@final
@attrs.frozen
class Applied:
    """`image` is the very image given when the command was refused or changed nothing. `value` is
    what the command allocated (the first producer id), else 0."""

    image: ClusterImage
    refusal: Refusal | None = None
    message: str = ""
    value: int = 0

    @property
    def done(self) -> bool:
        """Whether the command was accepted, with or without a change."""
        return self.refusal is None

"""A failing case, for a folder of the bug base and its page."""

from collections.abc import Callable
from typing import final

import attrs

from raftlog_sim.base.outcome import Outcome, failure_class, signature
from raftlog_sim.playing.cases import Case
from raftlog_sim.playing.run_folder import Circumstances


@final
@attrs.frozen(kw_only=True)
class Bug:
    """A failing case as it was found. `play` runs it again with a trace. It is None when the run
    must not be repeated, since its process died."""

    case: Case
    failure: str
    circumstances: Circumstances
    play: Callable[[], Outcome] | None = None
    outcome: Outcome | None = None
    """The outcome of `play`, once it was called."""

    @property
    def failure_class(self) -> str:
        return failure_class(self.failure)

    @property
    def signature(self) -> str:
        return signature(self.failure)

    @property
    def cause(self) -> str:
        """The text that all bugs of one group have in common."""
        return f"{self.case.subject} {self.circumstances.mutant} {self.signature}"

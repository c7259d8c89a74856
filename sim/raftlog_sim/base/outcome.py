"""What became of a run, whatever its subject: enough to group it with others and to keep it."""

import json
import re
from hashlib import blake2b
from typing import Any, Final, final

import attrs

SIGNATURE_CHARS: Final = 120
_NUMBER: Final = re.compile(r"-?\b(0x[0-9a-f]+|[0-9a-f]{8,}|\d+)\b|(?<=[a-z])\d+\b")
_BY_CLASS: Final = ("history-", "lost-acknowledged", "diverged", "stuck")


def failure_class(failure: str) -> str:
    """`election-safety` of `election-safety: n1 and n2 lead`; empty when nothing failed."""
    return failure.partition(":")[0]


def signature(failure: str) -> str:
    """What two failures of one cause have in common: the text without its numbers. The judge's
    findings, whose texts differ in every run, have their class only."""
    name = failure_class(failure)
    if not failure or name.startswith(_BY_CLASS):
        return name
    return _NUMBER.sub("#", " ".join(failure.split()))[:SIGNATURE_CHARS]


@final
@attrs.frozen(kw_only=True)
class Outcome:
    """See the module. `failure` is `<class>: <what>`, or empty; `document` is what run.json says of
    it; `trace` are the lines of trace.txt, empty when they were not asked for."""

    seed: int
    failure: str
    trace_hash: str
    events: int
    simulated_ns: int
    document: dict[str, Any]
    verdict: dict[str, Any]
    history: str
    trace: tuple[str, ...] = ()
    replicas: dict[str, Any] = attrs.Factory(dict)
    probes: dict[str, int] = attrs.Factory(dict)
    near_faults: tuple[tuple[str, str], ...] = ()
    """Pairs of kinds that struck soon after each other (`fault_pairs`)."""
    story: tuple[str, ...] = ()
    """The run for people, of subjects whose trace is short enough to be one."""

    @property
    def digest(self) -> str:
        """Of all that two runs of a case must have in common: beside the trace also what clients
        saw, the verdict, what was counted, and in which way it failed, without its words, which may
        name a line."""
        alike = [
            self.signature,
            {**self.document, "failure": ""},
            {} if self.failure else self.verdict,
            self.history,
            self.probes,
        ]
        return blake2b(json.dumps(alike, sort_keys=True).encode(), digest_size=8).hexdigest()

    @property
    def failure_class(self) -> str:
        return failure_class(self.failure)

    @property
    def signature(self) -> str:
        return signature(self.failure)

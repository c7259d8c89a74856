"""The outcome of a run of any subject: enough to group it with others and to keep it."""

import json
import re
from hashlib import blake2b
from typing import Any, Final, final

import attrs

SIGNATURE_CHARS: Final = 120
_NUMBER: Final = re.compile(r"-?\b(0x[0-9a-f]+|[0-9a-f]{8,}|\d+)\b|(?<=[a-z])\d+\b")
_BY_CLASS: Final = ("history-", "lost-acknowledged", "diverged", "stuck")


def failure_class(failure: str) -> str:
    """Returns `election-safety` for `election-safety: n1 and n2 lead`; "" when nothing failed."""
    return failure.partition(":")[0]


def signature(failure: str) -> str:
    """Returns what two failures of one cause have in common: the text without its numbers.

    For the judge's findings it is the class alone, since their texts differ in every run.
    """
    name = failure_class(failure)
    if not failure or name.startswith(_BY_CLASS):
        return name
    return _NUMBER.sub("#", " ".join(failure.split()))[:SIGNATURE_CHARS]


@final
@attrs.frozen(kw_only=True)
class Outcome:
    """How a run ended. `failure` is `<class>: <what>`, or empty. `document` is the run's part of
    run.json. `trace` holds the lines of trace.txt; it is empty unless they were asked for."""

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
    """Pairs of fault kinds that struck soon after each other (`fault_pairs`)."""
    story: tuple[str, ...] = ()
    """The run in a form for people; only subjects with short traces have one."""

    @property
    def digest(self) -> str:
        """Returns the digest of everything that two runs of one case must have in common.

        Beside the trace it covers what clients saw, the verdict, the counts, and the failure's
        signature. It leaves out the failure's words, which may name a line.
        """
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

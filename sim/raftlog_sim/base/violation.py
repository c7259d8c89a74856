"""The names of all invariants, and what is raised when one does not hold."""

from typing import Final

NAMES: Final = (
    "election-safety",
    "one-vote-a-term",
    "term-monotone",
    "elected-by-majority",
    "vote-up-to-date",
    "damaged-never-campaigns",
    "leader-left-in-peace",
    "log-matching",
    "committed-immutable",
    "committed-durable",
    "commit-rule",
    "leader-completeness",
    "leader-append-only",
    "high-watermark-monotone",
    "order",
    "durable-on-disk",
    "promise-durable",
    "acknowledged-committed",
    "linearizable-read",
    "membership-steps",
    "membership-in-force",
    "one-change-at-a-time",
    "image-digest",
    "reports-ascend",
    "membership-reported",
    "deleted-stays-deleted",
    "condemned-rightly",
    "producer-ids-unique",
    "boot-numbers",
    "equal-files",
    "rot-found",
    "metadata-followed",
    "answered-once",
    "answered-in-time",
    "answered-by-this-boot",
    "denied-rightly",
    "topics-as-asked",
    "produce-promise",
    "fetched-rightly",
    "offsets-told",
    "epoch-ends-told",
    "times-told",
    "offsets-dense",
    "kept-by-age",
    "kept-by-size",
    "producers-ascend",
    "producers-equal",
    "machine-agrees",
    "group-one-owner",
    "group-offsets-kept",
    "group-generations-rise",
    "group-answered-once",
    "group-skips-nothing",
    "group-fences",
    "group-on-record",
    "group-offsets-live",
    "group-static-stays",
    "log-start-committed",
    "moves-paced",
    "log-start-monotone",
    "leader-epoch-monotone",
    "in-sync-at-first",
    "replica-begins-once",
    "truncation-proven",
    "removed-rightly",
    "mark-synced",
    "same-after-reboot",
    "kept-across-lives",
    "damaged-rightly",
    "lost-rightly",
    "recovered-exactly",
    "registered-first",
    "one-cluster",
    "failed-write-is-the-end",
    "bounded",
    "peer-protocol",
    "answers-in-order",
    "back-pressure",
    "records-followed",
    "nothing-left",
)


class Violation(Exception):  # a finding, not an error of ours
    """An invariant does not hold. `name` is one of `NAMES`."""

    def __init__(self, name: str, what: str) -> None:
        super().__init__(name, what)
        assert name in NAMES, name
        self.name = name
        self.what = what

    def __str__(self) -> str:
        return f"{self.name}: {self.what}"

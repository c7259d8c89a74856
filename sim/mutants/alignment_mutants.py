"""Planted bugs that show only when two things meet. As in raft_mutants.py.

Such pairs are a change of the quorum and a cut, a lease and a membership, or a release and a fenced
broker. Bugs of look-ups by time are here too.
"""

from types import SimpleNamespace
from typing import Any

import attrs

from raftlog.broker.control import controller
from raftlog.metadata import commands as c
from raftlog.metadata.refusals import Refusal
from raftlog.metadata.rules import apply, once
from raftlog.metadata.rules.applied import Applied
from raftlog.partition.producing.produce_path import ProducePath
from raftlog.raft import lease, membership, reads, replication
from raftlog.raft.quorum import VoteResult, majority_committed, majority_vote
from raftlog.storage.segments import time_jobs
from raftlog.storage.segments.time_plan import TimePlanner


def reads_by_the_incoming_half() -> None:
    """11b: a joint configuration confirms reads and leases by its incoming half alone."""

    def incoming(membership: Any, votes: Any) -> VoteResult:
        return majority_vote(membership.voters, votes)

    reads.joint_vote = incoming
    lease.joint_vote = incoming


def lease_outlives_a_membership() -> None:
    """12g: a leader answers reads by a lease that voters of an earlier configuration promised."""

    membership.lease = SimpleNamespace(end=lambda state: None)  # type: ignore[attr-defined]


def commit_by_the_incoming_half() -> None:
    """18f: entries on a majority of the incoming voters are committed in a joint configuration."""
    replication.joint_committed = lambda membership, match: majority_committed(
        membership.voters, match
    )


def fenced_brokers_are_not_asked() -> None:
    """34d: the feature level is raised although a broker that is away does not support it."""
    real = apply._RULES[c.RaiseFeatureLevel]

    def raised(image: Any, command: c.RaiseFeatureLevel) -> Applied:
        here = {node: each for node, each in image.brokers.items() if not each.fenced}
        applied = real(attrs.evolve(image, brokers=here), command)
        kept = attrs.evolve(applied.image, brokers=image.brokers)
        return attrs.evolve(applied, image=kept if applied.done else image)

    apply._RULES[c.RaiseFeatureLevel] = raised


def answered_requests_are_forgotten() -> None:
    """37d: a late copy of a request is performed again, though its asker has the answer."""
    real = once.once_problem

    def problem(image: Any, asked: Any) -> Any:
        found = real(image, asked)
        return None if found is not None and found[0] is Refusal.STALE else found

    apply.once_problem = problem
    controller.once_problem = problem  # type: ignore[attr-defined]


def produces_outlive_leadership() -> None:
    """49b: produce requests wait on when their leader is deposed.

    They are answered when that replica leads again and has committed that many entries.
    """
    real = ProducePath.fail

    def fail(self: ProducePath, error: Any) -> None:
        waiters = self._waiters.take_all()
        real(self, error)
        for waiter in waiters:
            self._waiters.add_duplicate(waiter, in_sync=False)

    ProducePath.fail = fail  # type: ignore[method-assign]


def records_of_that_time_are_passed_by() -> None:
    """83: a look-up by time finds the first record behind the timestamp, and none at it."""
    real = time_jobs.first_at_or_after

    def behind(batch: Any, header: Any, timestamp_ms: Any, start: Any, limit: Any) -> Any:
        return real(batch, header, timestamp_ms + 1, start, limit)

    time_jobs.first_at_or_after = behind  # type: ignore[attr-defined]


def times_pass_the_watermark() -> None:
    """83b: a look-up by time finds records that are not committed."""
    real = TimePlanner.first_at

    def first_at(self: TimePlanner, timestamp_ms: int, limit: Any) -> Any:
        del limit
        return real(self, timestamp_ms, self.segments[-1].end.next_offset)

    TimePlanner.first_at = first_at  # type: ignore[method-assign]


MUTANTS = (
    ("11b", "reads-by-the-incoming-half", reads_by_the_incoming_half, ("linearizable-read",)),
    ("12g", "lease-outlives-a-membership", lease_outlives_a_membership, ("linearizable-read",)),
    ("18f", "commit-by-the-incoming-half", commit_by_the_incoming_half,
     ("committed-durable", "commit-rule")),
    ("34d", "fenced-brokers-are-not-asked", fenced_brokers_are_not_asked,
     ("metadata-followed",)),
    ("37d", "answered-requests-are-forgotten", answered_requests_are_forgotten,
     ("deleted-stays-deleted", "denied-rightly")),
    ("49b", "produces-outlive-leadership", produces_outlive_leadership,
     ("acknowledged-committed",)),
    ("83", "records-of-that-time-are-passed-by", records_of_that_time_are_passed_by,
     ("times-told",)),
    ("83b", "times-pass-the-watermark", times_pass_the_watermark, ("times-told",)),
)  # fmt: skip

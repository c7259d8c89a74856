"""Walks produced batches before they are appended, where `raftlog.validate.records` asks for it.

A walk takes 1.5 us a record, so it runs off the loop, in steps. Batches of one partition are walked
and appended in the order in which they came, because a producer numbers them. Other partitions do
not wait for them. A batch that waits is held by its request, which the ledger counts.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, final

import attrs

from raftlog.base.binary import Buffer
from raftlog.base.ids import GroupId
from raftlog.base.probes import probe
from raftlog.base.units import Instant
from raftlog.broker.context import Context
from raftlog.kafka.error_codes import ErrorCode
from raftlog.partition.output import ProduceAnswer
from raftlog.partition.producing.appending import BatchRefused, judged
from raftlog.partition.replica import PartitionReplica
from raftlog.records.record_walk import RecordRules, RecordWalk, walk_records

_I64_MAX: Final = 2**63 - 1

Checked = Callable[[ProduceAnswer | None], None]
"""Called with the reason why the batch is refused, or None when it may be appended."""


@final
@attrs.define(eq=False)
class _Check:
    """A batch that waits for its walk, or is walked."""

    walk: RecordWalk
    deadline: Instant
    then: Checked


@final
@attrs.define(eq=False)
class RecordChecks:
    """The batches that are walked, or wait for that, by partition and in their order."""

    queues: dict[GroupId, deque[_Check]] = attrs.Factory(dict)


def waits_for_checks(context: Context, replica: PartitionReplica) -> bool:
    """Whether batches of this partition must go through `check`.

    They must when its topic asks for it, or did a moment ago and some still wait.
    """
    return replica.config.validate_records or replica.group in _queues(context)


def check(
    context: Context, replica: PartitionReplica, batch: Buffer, deadline: Instant, then: Checked
) -> ProduceAnswer | None:
    """Have a batch walked; returns a refusal that is known now, else None, and `then` is called."""
    config = replica.config
    try:
        header = judged(batch, config, context.wall)
    except BatchRefused as refused:
        return ProduceAnswer(refused.code, message=refused.message)
    earliest, latest = -_I64_MAX, _I64_MAX
    if not config.log_append_time:
        earliest = context.wall - config.timestamp_before_max_ms
        latest = context.wall + config.timestamp_after_max_ms
    walk = RecordWalk(batch, header, RecordRules(earliest, latest, config.keyed))
    queue = _queues(context).setdefault(replica.group, deque())
    queue.append(_Check(walk, deadline, then))
    if len(queue) == 1:
        _step(context, replica, queue[0])
    return None


def _queues(context: Context) -> dict[GroupId, deque[_Check]]:
    return context.kept(RecordChecks).queues


def _step(context: Context, replica: PartitionReplica, first: _Check) -> None:
    context.search(replica, walk_records, (first.walk,), partial(_stepped, context, replica))


def _stepped(context: Context, replica: PartitionReplica, value: object) -> None:
    """Take a step of the first batch: continue with it, or decide it and begin the next."""
    queue = _queues(context)[replica.group]
    first = queue[0]
    answer: ProduceAnswer | None = None
    if isinstance(value, Exception):
        # A bug of ours must not let an unverified batch in.
        answer = ProduceAnswer(
            ErrorCode.UNKNOWN_SERVER_ERROR, message=f"the walk failed: {value!r}"
        )
    elif context.now >= first.deadline:
        probe("record-check-timed-out")
        answer = ProduceAnswer(ErrorCode.REQUEST_TIMED_OUT)
    elif not first.walk.done:
        _step(context, replica, first)
        return
    elif first.walk.fault is not None:
        probe("record-check-refused")
        fault = first.walk.fault
        code = ErrorCode.INVALID_TIMESTAMP if fault.timestamp else ErrorCode.INVALID_RECORD
        answer = ProduceAnswer(code, message=fault.what)
    queue.popleft()
    first.then(answer)
    if queue:
        _step(context, replica, queue[0])
    else:
        del _queues(context)[replica.group]

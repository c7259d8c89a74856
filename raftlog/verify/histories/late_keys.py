"""Sends whose partition their client chooses: called to `topic/?`, answered from `topic/2`.

A call is recorded before it is sent, and a client with a partitioner chooses the partition only
then. The completion names the partition. When no answer came for a send:

1. A read of its value shows where it lies.
2. Otherwise it may lie unread in any partition of its topic. It counts in each of them, and may
   explain there an offset that no other operation claims. That makes the judgement weaker, and
   never wrong.
3. A send that failed lies nowhere. It stays with the first partition of its topic.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from raftlog.verify.histories.history import UNKNOWN_PARTITION
from raftlog.verify.histories.interval import Interval
from raftlog.verify.histories.pairs import Value, values_of


def settle_keys(found: Sequence[Interval], unanswered: Iterable[Interval]) -> list[Interval]:
    """Give every unanswered send to `topic/?` its partition, in place.

    Returns the intervals to add: such a send once more for each other partition in which it may
    lie.
    """
    late = [op for op in unanswered if op.key is not None and op.key.endswith(UNKNOWN_PARTITION)]
    if not late:
        return []
    wanted: dict[str, dict[Value, None]] = {}
    for op in late:
        wanted.setdefault(_topic(op.key), {}).update(dict.fromkeys(values_of(op.asked)))
    keys: dict[str, dict[str, None]] = {topic: {} for topic in wanted}
    lies_in: dict[tuple[str, Value], str] = {}
    for key, values in _seen(found):
        topic = _topic(key)
        if topic not in wanted or key.endswith(UNKNOWN_PARTITION):
            continue
        keys[topic][key] = None
        for value in values:
            if value in wanted[topic]:
                lies_in.setdefault((topic, value), key)
    more: list[Interval] = []
    for op in late:
        topic = _topic(op.key)
        places = [lies_in[topic, each] for each in values_of(op.asked) if (topic, each) in lies_in]
        places = places[:1] or list(keys[topic]) or [f"{topic}/0"]
        op.key = places[0]
        if op.type != "fail":
            more += [_copy(op, key) for key in places[1:]]
    return more


def _seen(found: Sequence[Interval]) -> Iterator[tuple[str, Sequence[Any]]]:
    """Every key that an operation names, with the values that the operation read there."""
    for op in found:
        if op.f in ("poll", "txn"):
            for key, pairs in op.reads().items():
                yield key, pairs.values
        elif op.key is not None:
            yield op.key, ()


def _copy(op: Interval, key: str) -> Interval:
    kind: type[Interval] = type(op)
    return kind(
        op.index,
        op.process,
        op.f,
        key,
        op.type,
        op.start_ns,
        op.end_ns,
        op.asked,
        op.value,
        op.node,
        op.evidence,
    )


def _topic(key: str | None) -> str:
    assert key is not None, "a send has a key"
    return key.rpartition("/")[0]

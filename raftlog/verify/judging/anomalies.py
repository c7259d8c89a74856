"""Judges values and places: the classes that need only writer, offset and readers of a value.

The rules about one process are in `raftlog.verify.judging.process_order`, cycles in
`raftlog.verify.judging.cycles`. `phantom` and `fork` follow from the same facts and are judged here
too. Each check is one pass over one key's facts. Only the first finding of a class gets a witness.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

from raftlog.verify.histories.interval import Interval
from raftlog.verify.histories.pairs import Value, values_of
from raftlog.verify.judging.explain import describe
from raftlog.verify.judging.facts import Batch, KeyFacts
from raftlog.verify.judging.verdict import Findings, Witness

CONFLICTS: Final = ("inconsistent-offsets", "duplicate", "phantom")
"""The value conflicts of the log model. Each alone rules out any linearization, as `G1a` does."""


def check_key(
    facts: KeyFacts, operations: Sequence[Interval], findings: Findings, *, final_read: object
) -> None:
    """Judge all classes of this module for one key. `final_read` is the header's option.

    `operations` is searched for witnesses only.
    """
    if facts.at:  # else no operation was told an offset
        findings.check("inconsistent-offsets", "duplicate")
    if facts.read_any:
        findings.check("phantom")
    _inconsistent(facts, operations, findings)
    _duplicates(facts, operations, findings)
    _phantoms(facts, findings)
    if facts.polled:
        findings.check("G1a", "lost-write")
        if facts.any_failed:
            _aborted_reads(facts, operations, findings)
        seen = facts.seen
        unread = []
        if not seen.issuperset(facts.writers):
            unread = [batch for batch in facts.batches if not seen.issuperset(batch.values)]
        _lost_writes(facts, operations, unread, findings)
        if final_read is not False:
            findings.check("unseen")
            _unseen(facts, unread, findings)
    elif final_read is True:
        # The history says that it ends with a read of everything, and no poll got anything here.
        _unseen(facts, facts.batches, findings)


def reader_of(
    facts: KeyFacts, operations: Sequence[Interval], value: Value, offset: int | None = None
) -> Interval | None:
    """The first operation that read `value` (at `offset`, if given); ok reads before others."""
    found = None
    for op in operations:
        for seen_at, read in op.reads().get(facts.key, ()):
            if read == value and offset in (None, seen_at):
                if op.type == "ok":
                    return op
                found = found or op
    return found


def source_of(
    facts: KeyFacts, operations: Sequence[Interval], value: Value, offset: int
) -> Interval | None:
    """The operation that says that `value` lies at `offset`: a reader, or the send itself."""
    reader = reader_of(facts, operations, value, offset)
    if reader is not None:
        return reader
    batch = facts.writers.get(value)
    return batch.op if batch is not None and batch.offset_of(value) == offset else None


def _inconsistent(facts: KeyFacts, operations: Sequence[Interval], findings: Findings) -> None:
    for offset in sorted(facts.also_at):
        findings.add(
            "inconsistent-offsets", partial(_inconsistent_witness, facts, operations, offset)
        )
    if facts.also_at:
        forks(facts, operations, findings)


def _inconsistent_witness(facts: KeyFacts, operations: Sequence[Interval], offset: int) -> Witness:
    first = facts.at[offset]
    other, claimant = next(iter(facts.also_at[offset].items()))
    sources = [source_of(facts, operations, first, offset), claimant]
    known = tuple(op for op in sources if op is not None)
    return Witness(
        text=f"Offset {offset} of {facts.key} holds {first!r} and {other!r}: "
        + "; ".join(describe(op) for op in known)
        + ".",
        key=facts.key,
        offset=offset,
        operations=known,
        detail={"values": [first, *facts.also_at[offset]]},
    )


def forks(facts: KeyFacts, operations: Sequence[Interval], findings: Findings) -> None:
    """Find offsets where two nodes hold different values.

    An acknowledgement names the node that answered, so it counts like a read.
    """
    claims: dict[int, dict[Value, Interval]] = {offset: {} for offset in sorted(facts.also_at)}
    for op in operations:
        if op.node is None:
            continue
        for offset, value in claims_of(op, facts.key):
            if offset in claims:
                claims[offset].setdefault(value, op)
    for offset, known in claims.items():
        sources = list(known.values())
        others = [op for op in sources if op.node != sources[0].node]
        if others:
            findings.add("fork", partial(_fork_witness, facts.key, offset, sources[0], others[0]))


def claims_of(op: Interval, key: str) -> Iterable[tuple[int, Value]]:
    """(offset, value) of all that `op` says about the log of `key`, by reading or as a send."""
    if op.f == "send" and op.key == key and op.value is not None:
        return enumerate(values_of(op.asked), op.value)
    return op.reads().get(key, ())


def _fork_witness(key: str, offset: int, first: Interval, second: Interval) -> Witness:
    return Witness(
        text=(
            f"At offset {offset} of {key}, {first.node} and {second.node} disagree: "
            f"{describe(first)}; {describe(second)}."
        ),
        key=key,
        offset=offset,
        operations=(first, second),
        detail={"nodes": [first.node, second.node]},
    )


def _duplicates(facts: KeyFacts, operations: Sequence[Interval], findings: Findings) -> None:
    suspects = dict.fromkeys(facts.elsewhere)
    suspects.update(dict.fromkeys(v for v, places in facts.strays.items() if len(places) > 1))
    for value in suspects:
        offsets = facts.offsets_of(value)
        if len(offsets) > 1:
            findings.add(
                "duplicate", partial(_duplicate_witness, facts, operations, value, offsets)
            )


def _duplicate_witness(
    facts: KeyFacts, operations: Sequence[Interval], value: Value, offsets: Sequence[int]
) -> Witness:
    sources = [source_of(facts, operations, value, offset) for offset in offsets[:2]]
    return Witness(
        text=f"Value {value!r} lies at offsets {', '.join(map(str, offsets))} of {facts.key}.",
        key=facts.key,
        offset=offsets[-1],
        operations=tuple(op for op in sources if op is not None),
        detail={"value": value, "offsets": list(offsets)},
    )


def _phantoms(facts: KeyFacts, findings: Findings) -> None:
    for value, places in facts.strays.items():
        for offset, reader in places.items():
            if offset >= facts.first_end:
                findings.add("phantom", partial(_phantom_witness, facts.key, value, offset, reader))
                break


def _phantom_witness(key: str, value: Value, offset: int, reader: Interval) -> Witness:
    return Witness(
        text=f"Nobody sent {value!r} to {key}, yet it was read at offset {offset}: "
        f"{describe(reader)}.",
        key=key,
        offset=offset,
        operations=(reader,),
        detail={"value": value},
    )


def _aborted_reads(facts: KeyFacts, operations: Sequence[Interval], findings: Findings) -> None:
    for batch in facts.batches:
        if batch.op.type != "fail":
            continue
        for value in batch.values:
            if value in facts.seen:
                findings.add("G1a", partial(_aborted_witness, facts, operations, batch, value))


def _aborted_witness(
    facts: KeyFacts, operations: Sequence[Interval], batch: Batch, value: Value
) -> Witness:
    reader = reader_of(facts, operations, value)
    return Witness(
        text=f"The {describe(batch.op)} certainly failed, yet {value!r} was read.",
        key=facts.key,
        offset=batch.offset_of(value),
        operations=(batch.op,) if reader is None else (batch.op, reader),
        detail={"value": value},
    )


def _read_bound(facts: KeyFacts) -> tuple[int, Value] | None:
    """The highest *first* offset of all values that an ok read returned, and that value."""
    for offset in reversed(facts.order()):
        for candidate in (facts.at[offset], *facts.also_at.get(offset, ())):
            if candidate not in facts.seen:
                continue
            if candidate not in facts.elsewhere and candidate not in facts.strays:
                return offset, candidate
            if facts.offsets_of(candidate)[0] == offset:
                return offset, candidate
    return None


def _lost_writes(
    facts: KeyFacts, operations: Sequence[Interval], unread: Sequence[Batch], findings: Findings
) -> None:
    bound = _read_bound(facts) if unread else None
    if bound is None:
        return
    highest, later = bound
    for batch in unread:
        if batch.base is None or batch.op.type == "fail":
            continue
        for value in batch.values:
            if value in facts.seen:
                continue
            last = facts.last_offset(batch, value)
            assert last is not None, (value, batch.base)
            if facts.log_start <= last <= highest and facts.committed(batch):
                findings.add(
                    "lost-write",
                    partial(_lost_witness, facts, operations, batch, value, last, highest, later),
                )


def _lost_witness(
    facts: KeyFacts,
    operations: Sequence[Interval],
    batch: Batch,
    value: Value,
    last: int,
    highest: int,
    later: Value,
) -> Witness:
    reader = reader_of(facts, operations, later, highest)
    return Witness(
        text=f"The {describe(batch.op)} put {value!r} at offset {last} of {facts.key}; reads "
        f"went up to offset {highest} and none returned it.",
        key=facts.key,
        offset=last,
        operations=(batch.op,) if reader is None else (batch.op, reader),
        detail={"value": value, "read_up_to": highest},
    )


def _unseen(facts: KeyFacts, unread: Sequence[Batch], findings: Findings) -> None:
    for batch in unread:
        if batch.op.type != "ok":
            continue
        for value in batch.values:
            if value not in facts.seen:
                place = facts.last_offset(batch, value)
                # A value acknowledged without an offset may lie below a log start that moved.
                if place >= facts.log_start if place is not None else not facts.log_start:
                    findings.add("unseen", partial(_unseen_witness, facts.key, batch, value))


def _unseen_witness(key: str, batch: Batch, value: Value) -> Witness:
    return Witness(
        text=f"The {describe(batch.op)} was acknowledged; when the history ended no poll of {key} "
        f"had returned {value!r}.",
        key=key,
        offset=batch.offset_of(value),
        operations=(batch.op,),
        detail={"value": value},
    )

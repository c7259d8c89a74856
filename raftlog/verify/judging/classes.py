"""Every class of anomaly by name, with its definition in a sentence, and the rules of allowing.

The report and docs/reference/anomalies.md print these sentences.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple


class AnomalyClass(NamedTuple):
    """A name, what it means, and what a history needs for it to be judged."""

    name: str
    group: str
    definition: str
    needs: str


CLASSES: Final[tuple[AnomalyClass, ...]] = (
    AnomalyClass(
        "lost-write",
        "kafka",
        "A value whose send happened lies at or below the highest offset that was read, and no "
        "poll ever returned it.",
        "polls",
    ),
    AnomalyClass(
        "fork", "raftlog", "Two nodes answered different values for one offset.", "polls with node"
    ),
    AnomalyClass(
        "inconsistent-offsets", "kafka", "One offset holds two or more values.", "sends or polls"
    ),
    AnomalyClass("duplicate", "kafka", "One value lies at two or more offsets.", "sends or polls"),
    AnomalyClass(
        "G1a",
        "kafka",
        "A poll returned a value whose send certainly failed (aborted read).",
        "polls",
    ),
    AnomalyClass("phantom", "raftlog", "A read returned a value that nobody sent.", "polls"),
    AnomalyClass(
        "linearizability",
        "log",
        "No order of the operations respects both their intervals and the log: a pair in the wrong "
        "order, a batch seen in half, or an offset that nobody can have written.",
        "log operations",
    ),
    AnomalyClass(
        "monotonic-reads",
        "log",
        "One process saw the log up to some end, then found it shorter (committed-prefix reads).",
        "lengths",
    ),
    AnomalyClass(
        "read-your-writes",
        "log",
        "One process was told its record lies at an offset, then found the log to end at or before "
        "it (committed-prefix reads).",
        "lengths",
    ),
    AnomalyClass(
        "unseen",
        "kafka",
        "An acknowledged value that no poll had returned when the history ended.",
        "polls, final_read not false; or final_read true",
    ),
    AnomalyClass(
        "poll-skip",
        "kafka",
        "A process's next poll of a key began more than one record after its last one.",
        "polls",
    ),
    AnomalyClass(
        "nonmonotonic-poll",
        "kafka",
        "A process's next poll of a key began at or before its last one's end.",
        "polls",
    ),
    AnomalyClass(
        "int-poll-skip", "kafka", "Inside one poll, consecutive records skip over others.", "polls"
    ),
    AnomalyClass(
        "int-nonmonotonic-poll",
        "kafka",
        "Inside one poll, records repeat or go backwards.",
        "polls",
    ),
    AnomalyClass(
        "nonmonotonic-send",
        "kafka",
        "A process's next send to a key lies at or before its last one.",
        "sends with offsets, no pipelining",
    ),
    AnomalyClass(
        "int-send-skip",
        "kafka",
        "Inside one operation, consecutive sends to a key leave room for somebody else's record.",
        "several sends in one operation",
    ),
    AnomalyClass(
        "int-nonmonotonic-send",
        "kafka",
        "Inside one operation, consecutive sends to a key lie in the wrong order.",
        "several sends in one operation",
    ),
    AnomalyClass(
        "precommitted-read",
        "kafka",
        "An operation read a value that it sent itself, before it was committed.",
        "transactions",
    ),
    AnomalyClass("G0", "kafka", "A cycle of writes that follow each other in the logs.", "sends"),
    AnomalyClass(
        "G0-process", "kafka", "A cycle of writes, and of operations of one process.", "sends"
    ),
    AnomalyClass("G0-realtime", "kafka", "A cycle of writes and of real time.", "sends"),
    AnomalyClass("G1c", "kafka", "A cycle of writes and reads of them.", "polls"),
    AnomalyClass(
        "G1c-process", "kafka", "A cycle of writes, reads, and operations of one process.", "polls"
    ),
    AnomalyClass("G1c-realtime", "kafka", "A cycle of writes, reads and real time.", "polls"),
    AnomalyClass(
        "ack-regression",
        "raftlog",
        "Two acknowledged sends of one idempotent producer lie in the log against their order.",
        "producer",
    ),
    AnomalyClass(
        "duplicate-sequence",
        "raftlog",
        "One (producer id, epoch, sequence) lies at two offsets: a retry was appended again.",
        "producer",
    ),
    AnomalyClass(
        "hw-regression",
        "raftlog",
        "A node reported a high watermark below one that it had reported before.",
        "hw, node",
    ),
    AnomalyClass(
        "read-above-hw",
        "raftlog",
        "A read returned an offset at or above the high watermark of its own answer.",
        "hw",
    ),
    AnomalyClass(
        "truncated-below-hw",
        "raftlog",
        "An offset below a reported high watermark later held another value, or none.",
        "hw",
    ),
    AnomalyClass(
        "offset-commit-regression",
        "raftlog",
        "A group's fetched offset is lower than one acknowledged before, with no lower commit "
        "since.",
        "offset commits and fetches",
    ),
    AnomalyClass(
        "log-start-overrun",
        "raftlog",
        "The log start moved back, passed the high watermark, or passed an unconsumed record "
        "without the retention policy's leave.",
        "log starts",
    ),
    AnomalyClass(
        "two-leaders-one-term",
        "raftlog",
        "Two nodes acknowledged appends to one key in one term.",
        "term, node",
    ),
    AnomalyClass(
        "double-owner",
        "groups",
        "One generation of a group gave a partition to two members.",
        "rebalances with member",
    ),
    AnomalyClass(
        "owner-overlap",
        "groups",
        "A member was told to read a partition while another had not been told to give it up. "
        "That is what a member sees that is slow or cut off, and proves nothing (allowed).",
        "rebalances with member",
    ),
    AnomalyClass(
        "fenced-commit",
        "groups",
        "A commit of one generation was accepted although its call began after a member had been "
        "told of a later one.",
        "commits and rebalances with member and generation",
    ),
    AnomalyClass(
        "commit-after-revoke",
        "groups",
        "A member's commit of a partition was accepted that it did not own: it had given the "
        "partition up before the call, or never had it.",
        "commits and rebalances with member",
    ),
    AnomalyClass(
        "commit-regression",
        "groups",
        "A member's accepted commit is lower than one acknowledged before its call, with no lower "
        "commit between.",
        "commits with member",
    ),
    AnomalyClass(
        "group-rewind",
        "groups",
        "A member began to read a partition below an offset that its group had committed before, "
        "with no lower commit since.",
        "commits, rebalances and polls with member",
    ),
    AnomalyClass(
        "group-skip",
        "groups",
        "A record lies below an offset that a member committed, and no member's poll returned it.",
        "commits and polls with member",
    ),
    AnomalyClass(
        "model",
        "model",
        "No order of the operations is legal for the model (register, compare-and-set, your own).",
        "operations of the model",
    ),
)

NAMES: Final = tuple(entry.name for entry in CLASSES)
DEFINITIONS: Final = {entry.name: entry.definition for entry in CLASSES}

GROUP_CLASSES: Final = tuple(entry.name for entry in CLASSES if entry.group == "groups")
G0: Final = ("G0", "G0-process", "G0-realtime")
G1C: Final = ("G1c", "G1c-process", "G1c-realtime")


def allowed_by_default(source: str, options: Mapping[str, Any]) -> frozenset[str]:
    """The classes that are counted and shown but make nothing invalid.

    raftlog's own runs allow skips between sends of one operation, where producers interleave, and
    owners that overlap in time, which proves nothing. With `subscribe` they allow the two poll
    rules that a rebalance breaks. Imports follow Jepsen's kafka test: they also allow all G0, and
    with transactions (write order edges) G1c.
    """
    allowed = ["int-send-skip", "owner-overlap"]
    if options.get("consumer") == "subscribe":
        allowed += ["poll-skip", "nonmonotonic-poll"]
    if source == "import":
        allowed += G0
        if options.get("transactions"):
            allowed += G1C
    return frozenset(allowed)

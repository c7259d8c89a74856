"""Checks bounds: the windows of senders, the queues of reads, and the sums of a broker's ledger.

A bound is worth nothing unless a check compares it. A ledger that miscounts pauses a client forever
or never.
"""

from typing import TYPE_CHECKING, Final

from raftlog.base.limits import HELD_SHARES
from raftlog.partition.replica import PartitionReplica
from raftlog.raft.progress import INSTALL, PROBE, REPLICATE, Progress

if TYPE_CHECKING:
    from raftlog.broker.front.ledger import Account, Ledger
    from raftlog_sim.world.node import Node

_PARTS: Final = {
    "pinned_bytes": "pinned_bytes", "held_bytes": "held_bytes", "waiting_bytes": "request_bytes",
}  # fmt: skip
"""For each sum of a ledger, the field of its accounts that it adds up."""


def senders(replica: PartitionReplica) -> str:
    """Returns how a leader's senders break their rules; "" when they do not.

    The leader has one sender for each other replica of its configuration and no other sender. Each
    sender stays within its window.
    """
    state = replica.node._state
    membership, progress = state.membership, state.progress
    others = {*membership.everyone()} - {state.me}
    if progress.keys() != others:
        return f"{state.me} has senders for {[*progress]}, its configuration is {membership}"
    for follower in progress.values():
        problem = _beyond(replica, follower)
        if problem:
            where = f"group {replica.group}: {state.me} to {follower.replica}"
            return f"{where} ({follower.state.name}): {problem}"
    return ""


def _beyond(replica: PartitionReplica, follower: Progress) -> str:
    """Returns how one sender breaks its rules; "" when it does not."""
    options, window = replica.node._state.options, follower.in_flight
    if window:
        if follower.state is not REPLICATE:
            return f"{len(window)} appends are out"
        if len(window) > options.appends_in_flight_max:
            return f"{len(window)} appends are out, at most {options.appends_in_flight_max} may be"
        sizes = [size for _, size in window]
        if sum(sizes) != follower.in_flight_bytes:
            return f"appends of {sizes} bytes are out, {follower.in_flight_bytes} are counted"
        if sum(sizes[:-1]) >= options.inflight_bytes_max:
            return f"appends of {sizes} bytes are out, at most {options.inflight_bytes_max} may be"
        if window[-1][0] != follower.next - 1:
            return f"the last append that is out ends at {window[-1][0]}, next is {follower.next}"
    elif follower.in_flight_bytes:
        return f"no append is out, {follower.in_flight_bytes} bytes are counted"
    if follower.waiting and follower.state is not PROBE:
        return "an answer to a probe is awaited"
    if (follower.install is not None) is not (follower.state is INSTALL):
        return f"its install is {follower.install}"
    if not follower.match < follower.next <= replica.log.last_index + 1:
        return f"match {follower.match}, next {follower.next}, last {replica.log.last_index}"
    return ""


def queues(node: "Node") -> str:
    """Returns what is wrong with a broker's waiting reads or its ledger; "" for nothing."""
    for group, replica in node.broker.context.replicas.items():
        state = replica.node._state
        if state.reads.count() > state.options.reads_pending_max:
            return f"{state.reads.count()} reads wait in group {group}"
    return producers_paused(node) or miscounted(node.broker.context.ledger)


def producers_paused(node: "Node") -> str:
    """Returns a group that pauses its producers without need; "" when there is none.

    A group may pause its producers only while it holds many uncommitted bytes.
    """
    context = node.broker.context
    ledger = context.ledger
    for group in ledger._group_producers:
        held = context.replicas.get(group)
        if held is None or held.uncommitted_bytes <= ledger.limits.uncommitted_bytes // 2:
            return f"group {group} pauses producers and has little that is not committed"
    return ""


def miscounted(ledger: "Ledger") -> str:
    """Returns what is wrong with a ledger; "" for nothing.

    Its sums are those of its accounts. It knows which accounts are over a limit, and whether the
    process is. It pauses exactly the accounts that should be paused.
    """
    accounts = ledger._accounts.values()
    for name, part in _PARTS.items():
        total, counted = sum(getattr(each, part) for each in accounts), getattr(ledger, name)
        if total != counted:
            return f"the accounts have {total} {_spoken(name)}, {counted} are counted"
        limit, over = getattr(ledger.limits, name), getattr(ledger, name.replace("bytes", "over"))
        problem = _misheld(over, total / limit)
        if problem:
            return f"{total} {_spoken(name)} of {limit}: the process {problem}"
    if not ledger._changed:
        for each in [account for account in accounts if not account.ended]:
            problem = _misjudged(each, ledger)
            if problem:
                return f"connection {each.connection} {problem}: {each}"
    return ""


def _spoken(name: str) -> str:
    return name.replace("_", " ")


def _misheld(over: bool, *shares: float) -> str:
    """Returns an error when an `over` mark is wrong.

    An account is over from when it reaches a limit until all its shares fall to half.
    """
    if not over and max(shares) >= 1:
        return "is over a limit and not held to be"
    if over and max(shares) <= 0.5:
        return "is below half of all limits and held to be over one"
    return ""


def _misjudged(account: "Account", ledger: "Ledger") -> str:
    """Returns what is wrong with the marks or the pause of an account; "" for nothing."""
    limits = ledger.limits
    for group in account.groups_over:
        if account.connection not in ledger._group_producers.get(group, ()):
            return f"waits for group {group}, which does not know"
    problem = _misheld(
        account.over,
        account.requests / limits.unanswered_requests,
        account.request_bytes / limits.unanswered_bytes,
        account.output_bytes / limits.output_bytes,
    )
    much = HELD_SHARES * (2 if account.paused else 1)
    wanted = (
        account.over
        or bool(account.groups_over)
        or ledger.pinned_over
        or (ledger.held_over and account.held_bytes > limits.held_bytes // much)
        or (ledger.waiting_over and account.request_bytes > limits.waiting_bytes // much)
    )
    if not problem and wanted is not account.paused:
        problem = "should be paused" if wanted else "is paused for nothing"
    return problem

"""What must stay small: windows of senders, queues of reads, what a broker's ledger has counted.

A bound that nobody compares is a wish; a ledger that counts wrong pauses for ever, or never.
"""

from typing import TYPE_CHECKING

from raftlog.partition.replica import PartitionReplica
from raftlog.raft.progress import INSTALL, PROBE, REPLICATE, Progress

if TYPE_CHECKING:
    from raftlog.broker.config import BrokerLimits
    from raftlog.broker.ledger import Account, Ledger
    from raftlog_sim.node import Node


def senders(replica: PartitionReplica) -> str:
    """Of a leader: one sender for each other replica of its configuration, and for nobody else;
    each within its window. What is wrong, or nothing."""
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
    """What is wrong with one sender."""
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
    """Of a broker: reads that wait, and what its ledger has counted. What is wrong, or nothing."""
    for group, replica in node.broker.context.replicas.items():
        state = replica.node._state
        if state.reads.count() > state.options.reads_pending_max:
            return f"{state.reads.count()} reads wait in group {group}"
    return miscounted(node.broker.context.ledger)


def miscounted(ledger: "Ledger") -> str:
    """The sums of a ledger are those of its accounts, and who is over a limit is known to be."""
    accounts = ledger._accounts.values()
    for name in ("pinned_bytes", "held_bytes"):
        total, counted = sum(getattr(each, name) for each in accounts), getattr(ledger, name)
        if total != counted:
            return f"the accounts have {total} {name.replace('_', ' ')}, {counted} are counted"
    waiting = sum(each.request_bytes for each in accounts)
    if waiting != ledger.waiting_bytes:
        return f"the requests weigh {waiting} bytes, {ledger.waiting_bytes} are counted"
    if not ledger._changed:
        for each in accounts:
            problem = _misjudged(each, ledger.limits)
            if problem:
                return f"connection {each.connection} {problem}: {each}"
    return ""


def _misjudged(account: "Account", limits: "BrokerLimits") -> str:
    """Whether an account is over a limit of its own, and is not held to be, or is not, and is."""
    shares = (
        account.requests / limits.unanswered_requests,
        account.request_bytes / limits.unanswered_bytes,
        account.output_bytes / limits.output_bytes,
    )
    if not account.over and max(shares) >= 1:
        return "is over a limit and not held to be"
    if account.over and not any(share > 0.5 for share in shares):
        return "is below half of all limits and held to be over one"
    if (account.over or account.groups_over) and not account.paused:
        return "should be paused"
    return ""

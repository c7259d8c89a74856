"""Faults of the network between brokers: cuts of every shape, clogs, loss, delay, resets.

A loud cut breaks links and refuses new ones. A silent cut keeps links that carry nothing. When it
ends soon, all held messages arrive in one burst.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple, final

from raftlog.base.ids import NodeId
from raftlog.base.units import millis
from raftlog.raft.messages import (
    Append,
    AppendRefused,
    AppendReply,
    Install,
    InstallReply,
    PreVoteReply,
    PreVoteRequest,
    ReadEcho,
    VoteReply,
    VoteRequest,
)
from raftlog_sim.base.streams import Stream
from raftlog_sim.schedules.schedule import Step
from raftlog_sim.world.network import PairKey, SimCut
from raftlog_sim.world.relay import Strike

if TYPE_CHECKING:
    from raftlog_sim.faults.nemesis import SimNemesis

REPLAY_MS_MAX: Final = 2_000
LIE_MS_MAX: Final = 1_000
_MESSAGES: Final[dict[str, tuple[type, ...]]] = {
    "appends": (Append, Install),
    "acks": (AppendReply, AppendRefused, InstallReply),
    "asks": (PreVoteRequest, VoteRequest),
    "votes": (PreVoteReply, VoteReply),
    "echoes": (ReadEcho,),
}


def _partition(nemesis: "SimNemesis", step: Step) -> bool:
    side = nemesis.numbers(step, "side")
    others = [number for number in nemesis.world.nodes if number not in side]
    pairs = [(member, other) for member in side for other in others]
    return _cut(nemesis, step, "partition", pairs, side)


def _one_way(nemesis: "SimNemesis", step: Step) -> bool:
    """Drop what one side sends, or what it should hear."""
    side = nemesis.numbers(step, "side")
    others = [number for number in nemesis.world.nodes if number not in side]
    pipes = [(member, other) for member in side for other in others]
    if step.argument("way") == "in":
        pipes = [(other, member) for member, other in pipes]
    return _hold(nemesis, step, "one-way", pipes, side)


def _bridge(nemesis: "SimNemesis", step: Step) -> bool:
    """Cut the cluster into two halves; only the hub sees both."""
    hub = nemesis.numbers(step, "hub")[:1]
    rest = [number for number in sorted(nemesis.world.nodes) if number not in hub]
    half = len(rest) // 2
    pairs = [(one, other) for one in rest[:half] for other in rest[half:]]
    return bool(hub) and _cut(nemesis, step, "bridge", pairs, hub)


def _ring(nemesis: "SimNemesis", step: Step) -> bool:
    """Let each node see its neighbours on a ring, a majority with itself; of five, no two see the
    same."""
    numbers = sorted(nemesis.world.nodes)
    count, reach = len(numbers), (len(numbers) // 2 + 1) // 2
    pairs = [
        (numbers[one], numbers[other])
        for one in range(count)
        for other in range(one + 1, count)
        if min(other - one, count - other + one) > reach
    ]
    return _cut(nemesis, step, "ring", pairs, ())


def _clog(nemesis: "SimNemesis", step: Step) -> bool:
    return _hold(nemesis, step, "clog", _pipes(nemesis, step), ())


def _reset(nemesis: "SimNemesis", step: Step) -> bool:
    one, other = nemesis.numbers(step, "one"), nemesis.numbers(step, "other")
    pairs = [(a, b) for a in one for b in other if a != b]
    broken = [pair for pair in pairs if nemesis.world.network.reset(*pair)]
    return bool(broken)


def _hangup(nemesis: "SimNemesis", step: Step) -> bool:
    """Break all connections of clients to a broker.

    Answers under way are lost, and requests may be.
    """
    hung_up = [node for node in nemesis.nodes(step, "node") if node.up and node.live.clients]
    for node in hung_up:
        nemesis.note("hangup", node.number)
        node.lose_clients()
    return bool(hung_up)


def _lossy(nemesis: "SimNemesis", step: Step) -> bool:
    pipes = _pipes(nemesis, step)
    for sender, receiver in pipes:
        pipe = nemesis.world.network.pipe(sender, receiver)
        pipe.drop = min(100, int(step.argument("drop")))
        pipe.duplicate = min(100, int(step.argument("duplicate")))
        pipe.reorder_ns = millis(int(step.argument("reorder_ms")))
    if pipes:
        nemesis.later(step, _lossless, nemesis, pipes)
    return bool(pipes)


def _drop_kind(nemesis: "SimNemesis", step: Step) -> bool:
    """Drop messages of one kind; all others arrive."""
    pipes = _pipes(nemesis, step)
    for sender, receiver in pipes:
        pipe = nemesis.world.network.pipe(sender, receiver)
        pipe.kinds = _MESSAGES[str(step.argument("what"))]
        pipe.kinds_drop = min(100, int(step.argument("drop")))
    if pipes:
        nemesis.later(step, _all_kinds, nemesis, pipes)
    return bool(pipes)


def _all_kinds(nemesis: "SimNemesis", pipes: list[PairKey]) -> None:
    for pipe in pipes:
        nemesis.world.network.pipe(*pipe).kinds_drop = 0


def _replay(nemesis: "SimNemesis", step: Step) -> bool:
    network, every_ns = nemesis.world.network, millis(max(1, int(step.argument("ms"))))
    known = [(pipe, network.pipe(*pipe).append) for pipe in _pipes(nemesis, step)]
    end = nemesis.world.now + millis(step.for_ms or REPLAY_MS_MAX)
    for pipe, message in known:
        if message is not None:
            _again(nemesis, pipe, message, every_ns, end)
    return any(message is not None for _, message in known)


def _again(nemesis: "SimNemesis", pipe: PairKey, message: Append, every_ns: int, end: int) -> None:
    if not nemesis.healed and nemesis.world.now < end:
        nemesis.world.network.replay(*pipe, message)
        nemesis.world.after(every_ns, _again, nemesis, pipe, message, every_ns, end)


def _replay_any(nemesis: "SimNemesis", step: Step) -> bool:
    """Deliver messages again that a link ever carried, each under its own session.

    They may be votes, acknowledgements, heartbeats or commands to the controller. Trio mode does
    not have the fault, since its links carry bytes.
    """
    pipes = [] if nemesis.workload.options.trio else _pipes(nemesis, step)
    again = _Again(
        every_ns=millis(max(1, int(step.argument("ms")))),
        end=nemesis.world.now + millis(step.for_ms or REPLAY_MS_MAX),
        draws=nemesis.world.stream(f"replay-any/{nemesis.world.now}"),
        ended=step.argument("of") == "ended",
    )
    came = [_any_again(nemesis, pipe, again) for pipe in pipes]
    return any(came)


@final
class _Again(NamedTuple):
    every_ns: int
    end: int
    draws: Stream
    ended: bool


def _any_again(nemesis: "SimNemesis", pipe: PairKey, again: _Again) -> bool:
    """Deliver one message again now, and schedule the next; returns whether there was one now."""
    nemesis.world.after(again.every_ns, _once_more, nemesis, pipe, again)
    return nemesis.world.network.replay_any(*pipe, again.draws, ended=again.ended)


def _once_more(nemesis: "SimNemesis", pipe: PairKey, again: _Again) -> None:
    if not nemesis.healed and nemesis.world.now < again.end:
        _any_again(nemesis, pipe, again)


def _slow_link(nemesis: "SimNemesis", step: Step) -> bool:
    pipes, extra_ns = _pipes(nemesis, step), millis(int(step.argument("ms")))
    for sender, receiver in pipes:
        nemesis.world.network.pipe(sender, receiver).extra_ns += extra_ns
    if pipes:
        nemesis.later(step, _faster, nemesis, pipes, extra_ns)
    return bool(pipes)


def _relay(nemesis: "SimNemesis", step: Step) -> bool:
    """Let a relay strike frames of byte streams; it does nothing where links carry messages."""
    network = nemesis.world.network
    if network.order is None:
        return False
    pipes, now = _pipes(nemesis, step), nemesis.world.now
    for sender, receiver in pipes:
        draws = nemesis.world.stream(f"relay/{sender}/{receiver}/{now}")
        strike = Strike(str(step.argument("what")), max(1, int(step.argument("one_in"))), draws)
        network.pipe(sender, receiver).strike = strike
    if pipes:
        nemesis.later(step, _unrelayed, nemesis, pipes)
    return bool(pipes)


def _unrelayed(nemesis: "SimNemesis", pipes: list[PairKey]) -> None:
    for sender, receiver in pipes:
        nemesis.world.network.pipe(sender, receiver).strike = None


def _divert(nemesis: "SimNemesis", step: Step) -> bool:
    """Brokers that dial one node reach another, until the step ends."""
    network = nemesis.world.network
    if network.order is None:
        return False
    to = nemesis.numbers(step, "to")[:1]
    nodes = [each for each in nemesis.numbers(step, "node") if to and each != to[0]]
    network.diverted.update(dict.fromkeys(nodes, *to))
    if nodes:
        nemesis.later(step, _undiverted, nemesis, nodes)
    return bool(nodes)


def _undiverted(nemesis: "SimNemesis", nodes: list[NodeId]) -> None:
    for node in nodes:
        nemesis.world.network.diverted.pop(node, None)


def _lie(nemesis: "SimNemesis", step: Step) -> bool:
    """A peer lies in its handshake, and stays until the step ends if it is let in."""
    if nemesis.world.network.order is None:
        return False
    nodes, peers = nemesis.numbers(step, "node"), nemesis.numbers(step, "peer")
    what, lasts_ns = str(step.argument("what")), millis(step.for_ms or LIE_MS_MAX)
    pairs = [(node, peer) for node in nodes for peer in peers if node != peer]
    told = [nemesis.world.lie(*pair, what, lasts_ns) for pair in pairs]
    return any(told)


STRIKES: Final[dict[str, Callable[["SimNemesis", Step], bool]]] = {
    "partition": _partition,
    "one-way": _one_way,
    "bridge": _bridge,
    "ring": _ring,
    "clog": _clog,
    "reset": _reset,
    "hangup": _hangup,
    "lossy": _lossy,
    "drop-kind": _drop_kind,
    "replay": _replay,
    "replay-any": _replay_any,
    "slow-link": _slow_link,
    "relay": _relay,
    "divert": _divert,
    "lie": _lie,
}


# --- how ------------------------------------------------------------------------------------------


def _pipes(nemesis: "SimNemesis", step: Step) -> list[PairKey]:
    senders, receivers = nemesis.numbers(step, "sender"), nemesis.numbers(step, "receiver")
    return [(one, other) for one in senders for other in receivers if one != other]


def _cut(
    nemesis: "SimNemesis", step: Step, name: str, pairs: list[PairKey], side: Iterable[NodeId]
) -> bool:
    if step.argument("how") == "silent":
        both = [*pairs, *((other, one) for one, other in pairs)]
        return _hold(nemesis, step, name, both, side)
    if not pairs:
        return False
    nemesis.note(f"start-{name}", *side)
    nemesis.later(step, _mend, nemesis, name, nemesis.world.network.part(pairs))
    return True


def _hold(
    nemesis: "SimNemesis", step: Step, name: str, pipes: list[PairKey], side: Iterable[NodeId]
) -> bool:
    if not pipes:
        return False
    nemesis.note(f"start-{name}", *side)
    nemesis.later(step, _mend, nemesis, name, nemesis.world.network.hold(pipes))
    return True


def _mend(nemesis: "SimNemesis", name: str, cut: SimCut) -> None:
    if not nemesis.healed:
        nemesis.note(f"stop-{name}")
        nemesis.world.network.mend(cut)


def _lossless(nemesis: "SimNemesis", pipes: list[PairKey]) -> None:
    for sender, receiver in pipes:
        pipe = nemesis.world.network.pipe(sender, receiver)
        pipe.drop = pipe.duplicate = pipe.reorder_ns = 0


def _faster(nemesis: "SimNemesis", pipes: list[PairKey], less_ns: int) -> None:
    for sender, receiver in pipes:
        pipe = nemesis.world.network.pipe(sender, receiver)
        pipe.extra_ns = max(0, pipe.extra_ns - less_ns)

"""What the driver of a real process does about turns, for worlds that are `patient`: some events
need no turn of their own, a turn takes them in another order than they came, and a lone round is
synced inside the turn that handed it out (`raftlog.runtime.driver`, decisions 0049 and 0050).

Without it each event brings about a turn, in the order of arrival.
"""

from typing import TYPE_CHECKING, Final

from raftlog.base.limits import TURN_EVENTS_MAX
from raftlog.base.units import millis
from raftlog.broker import events as e
from raftlog.raft.messages import Append, AppendReply
from raftlog.storage.ops import AppendBytes, StoreRecords
from raftlog_sim.base.streams import Stream

if TYPE_CHECKING:
    from raftlog_sim.world.boot import Boot
    from raftlog_sim.world.node import Node

WAITING_ACKS_MAX: Final = 64
INLINE_SYNC_NS: Final = millis(1)
_BULKY: Final = (e.Request, e.PeerMessages)


def put_off(boot: "Boot", event: e.Event) -> bool:
    """Queue an event that waits for whatever turn is next; False: it brings one about."""
    if type(event) is not e.PeerMessages:
        return False
    room = len(boot.acks) < WAITING_ACKS_MAX
    if room and boot.acks_may_wait and all(type(m) is AppendReply for m in event.messages):
        boot.acks.append(event)
        return True
    streamed = all(type(m) is Append and m.entries and not m.read_context for m in event.messages)
    ends_soon = boot.writing and boot.inline is None
    if streamed and ends_soon and len(boot.inbox) <= TURN_EVENTS_MAX:
        boot.inbox.append(event)
        return True
    return False


def taken(node: "Node", boot: "Boot") -> list[e.Event]:
    """The events of the next turn, which wait no longer."""
    world, most = node.world, TURN_EVENTS_MAX
    if world.split_turns:
        draws = world.splits.setdefault(node.number, world.stream(f"splits/{node.number}"))
        most = _drawn_size(boot, draws)
    return _collected(boot, most) if world.patient else _in_order(boot, most)


def _drawn_size(boot: "Boot", draws: Stream) -> int:
    """How much of what waits a turn takes where turns are split at random: half of them take as
    much as they may."""
    waiting = len(boot.inbox) + len(boot.acks)
    if waiting < 2 or draws.chance(1, 2):
        return TURN_EVENTS_MAX
    return min(TURN_EVENTS_MAX, draws.between(1, waiting))


def _in_order(boot: "Boot", most: int) -> list[e.Event]:
    """The events of one turn, at most so many, as they came, where nobody is patient."""
    inbox = boot.inbox
    if len(inbox) > most:
        return [inbox.popleft() for _ in range(most)]
    events = list(inbox)
    inbox.clear()
    return events


def _collected(boot: "Boot", most: int) -> list[e.Event]:
    """The events of one turn, at most so many: completions, then acknowledgements that waited, then
    the rest."""
    waiting = [*boot.inbox]
    first = [event for event in waiting if type(event) not in _BULKY]
    bulky = [event for event in waiting if type(event) in _BULKY]
    ordered = [*first, *boot.acks, *bulky]
    boot.acks.clear()
    boot.inbox.clear()
    boot.inbox.extend(ordered[most:])
    return ordered[:most]


def is_lone(boot: "Boot") -> bool:
    """Whether the one round that waits may be synced inside its turn."""
    if boot.writing or len(boot.rounds) != 1:
        return False
    return all(isinstance(op, AppendBytes | StoreRecords) for op in boot.rounds[0].ops)

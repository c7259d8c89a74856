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

if TYPE_CHECKING:
    from raftlog_sim.node import Boot

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
    if streamed and boot.writing and len(boot.inbox) <= TURN_EVENTS_MAX:
        boot.inbox.append(event)
        return True
    return False


def in_order(boot: "Boot") -> list[e.Event]:
    """The events of one turn as they came, where nobody is patient."""
    inbox = boot.inbox
    if len(inbox) > TURN_EVENTS_MAX:
        return [inbox.popleft() for _ in range(TURN_EVENTS_MAX)]
    events = list(inbox)
    inbox.clear()
    return events


def collect(boot: "Boot") -> list[e.Event]:
    """The events of one turn: completions, then acknowledgements that waited, then the rest."""
    waiting = [*boot.inbox]
    first = [event for event in waiting if type(event) not in _BULKY]
    bulky = [event for event in waiting if type(event) in _BULKY]
    ordered = [*first, *boot.acks, *bulky]
    boot.acks.clear()
    boot.inbox.clear()
    boot.inbox.extend(ordered[TURN_EVENTS_MAX:])
    return ordered[:TURN_EVENTS_MAX]


def is_lone(boot: "Boot") -> bool:
    """Whether the one round that waits may be synced inside its turn."""
    if boot.writing or len(boot.rounds) != 1:
        return False
    return all(isinstance(op, AppendBytes | StoreRecords) for op in boot.rounds[0].ops)

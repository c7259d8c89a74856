"""Decides which events of a simulated process cause a turn, and which of them a turn takes.

In a `patient` world the process queues events as a real one does (`raftlog.broker.turn_queue`).
Some events need no turn of their own, and a turn takes events in another order than they came. A
lone round is synced inside the turn that handed it out (decisions 0049 and 0050). In other worlds
each event causes a turn, in the order of arrival: more turns, and orders that no real shell has.
"""

from typing import Final

from raftlog.base.limits import TURN_EVENTS_MAX
from raftlog.base.units import millis
from raftlog.broker import events as e
from raftlog.storage.ops import AppendBytes, StoreRecords
from raftlog_sim.base.streams import Stream
from raftlog_sim.world.boot import Boot
from raftlog_sim.world.faces import SimNode

INLINE_SYNC_NS: Final = millis(1)


def wants_turn(boot: Boot, event: e.Event) -> bool:
    """Queue an event. Returns whether it causes a turn; else it waits for the next one."""
    if type(event) is e.PeerMessages:
        ends_soon = boot.writing and boot.inline is None
        return boot.inbox.post_from_peer([event], round_ends_soon=ends_soon)
    boot.inbox.post(event)
    return True


def taken(node: SimNode, boot: Boot) -> list[e.Event]:
    """Take the events of the next turn from the queue."""
    world, most = node.world, TURN_EVENTS_MAX
    if world.split_turns:
        draws = world.splits.setdefault(node.number, world.stream(f"splits/{node.number}"))
        most = _drawn_size(boot, draws)
    return boot.inbox.collect([], most)


def _drawn_size(boot: Boot, draws: Stream) -> int:
    """Draw how many waiting events a turn takes where turns are split at random.

    Half of the turns take as many as they may.
    """
    waiting = len(boot.inbox)
    if waiting < 2 or draws.chance(1, 2):
        return TURN_EVENTS_MAX
    return min(TURN_EVENTS_MAX, draws.between(1, waiting))


def is_lone(boot: Boot) -> bool:
    """Whether a single round waits and may be synced inside its turn."""
    if boot.writing or len(boot.rounds) != 1:
        return False
    return all(isinstance(op, AppendBytes | StoreRecords) for op in boot.rounds[0].ops)

"""How the controllers change: which brokers vote in the metadata group, one at a time.

The image says who is wanted. The controller that leads moves the group there by joint consensus: a
new voter learns first, and counts only when it holds the log. A change that would leave the group
without a majority of live voters is refused, for nothing could undo it.
"""

import attrs

from raftlog.base.amounts import amount
from raftlog.base.ids import ReplicaId
from raftlog.base.limits import VOTERS_MAX
from raftlog.metadata import commands as c
from raftlog.metadata.image import ClusterImage
from raftlog.metadata.refusals import Refusal
from raftlog.metadata.rules.applied import Applied


def change(image: ClusterImage, command: c.ChangeController) -> Applied:
    """Add one voter, or take one away."""
    known = next((r for r in image.controllers if r.node == command.node), None)
    if command.votes:
        return _add(image, command, known)
    if known is None or known.directory != command.directory:
        what = f"broker {command.node} is no controller on directory {command.directory:016x}"
        return Applied(image, Refusal.VOTER_NOT_FOUND, what)
    return _with(image, tuple(each for each in image.controllers if each != known))


def _add(image: ClusterImage, command: c.ChangeController, known: ReplicaId | None) -> Applied:
    node = command.node
    if known is not None:
        return Applied(image, Refusal.DUPLICATE_VOTER, f"broker {node} is a controller already")
    broker = image.brokers.get(node)
    if broker is None:
        return Applied(image, Refusal.UNKNOWN_BROKER, f"broker {node} is not registered")
    if broker.directory != command.directory:
        what = f"broker {node} has the data directory {broker.directory:016x}"
        return Applied(image, Refusal.STALE, what)
    if broker.fenced:
        return Applied(image, Refusal.STALE, f"broker {node} is not alive: start it first")
    if len(image.controllers) >= VOTERS_MAX:
        return Applied(image, Refusal.MALFORMED, f"there are at most {VOTERS_MAX} controllers")
    return _with(image, tuple(sorted((*image.controllers, broker.metadata_replica))))


def _with(image: ClusterImage, wanted: tuple[ReplicaId, ...]) -> Applied:
    alive = sum(image.is_live(replica) for replica in wanted)
    needed = len(wanted) // 2 + 1
    if alive < needed:
        what = f"of {amount(len(wanted), 'controller')} that would be left, {alive} are alive"
        return Applied(image, Refusal.QUORUM_AT_RISK, f"{what}, and {needed} must be")
    return Applied(attrs.evolve(image, version=image.version + 1, controllers=wanted))

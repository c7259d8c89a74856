"""Whether a request was performed before, and remembering that it is performed now."""

from collections.abc import Mapping

import attrs

from raftlog.base.ids import NodeId
from raftlog.base.limits import BROKERS_MAX, PERFORMED_MAX
from raftlog.metadata.image import ClusterImage
from raftlog.metadata.performed import Done, OnceId, Performed
from raftlog.metadata.refusals import Refusal


def done_before(image: ClusterImage, once: OnceId) -> Done | None:
    """The earlier outcome of this very request; None when it is unknown."""
    return _of_boot(image, once).of(once.number)


def once_problem(image: ClusterImage, once: OnceId) -> tuple[Refusal, str] | None:
    """Why this request may not be performed (now)."""
    broker = image.brokers.get(once.node)
    if broker is None or broker.incarnation != once.incarnation:
        return Refusal.BUSY, f"this boot of broker {once.node} is not registered"
    if once.settled > once.number:
        return Refusal.MALFORMED, f"request {once.number} says that {once.settled} are answered"
    known = _of_boot(image, once)
    if once.number < known.settled:
        return Refusal.STALE, f"request {once.number} of broker {once.node} was answered before"
    if len(known.done) >= PERFORMED_MAX and once.settled <= known.done[0].number:
        return Refusal.BUSY, f"{PERFORMED_MAX} requests of broker {once.node} wait for one"
    return None


def with_done(image: ClusterImage, once: OnceId, done: Done) -> ClusterImage:
    """The image that remembers it. The version stays: it counts what the request did."""
    changed = _of_boot(image, once).plus(once, done)
    return attrs.evolve(image, performed={**_room_for(image, once.node), once.node: changed})


def _room_for(image: ClusterImage, node: NodeId) -> Mapping[NodeId, Performed]:
    """Brokers that were unregistered are remembered as long as there is room."""
    known = image.performed
    if node in known or len(known) < BROKERS_MAX:
        return known
    return {other: known[other] for other in known if other in image.brokers}


def _of_boot(image: ClusterImage, once: OnceId) -> Performed:
    known = image.performed.get(once.node)
    if known is None or known.incarnation != once.incarnation:
        return Performed(incarnation=once.incarnation)
    return known

"""What brokers asked for and the metadata group has performed, so that it performs nothing twice.

A broker whose request to the controller went unanswered (the controller changed, a link broke)
asks again, and cannot know whether the first try was performed. So it numbers its requests; the
command that fulfils one carries the number, and the image remembers it until the broker says that
it has its answer (Ongaro's thesis, 6.3; RIFL, SOSP 2015). A number that was performed is done, and
one that was answered before is refused, however late a copy of it comes.

Numbers belong to one boot: what is asked in the name of a boot that is not the registered one is
refused as BUSY, which tells the asker that nothing was done.
"""

from bisect import bisect_left
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, final

import attrs

from raftlog.base.ids import NodeId
from raftlog.base.limits import BROKERS_MAX, PERFORMED_MAX
from raftlog.metadata import fields as f
from raftlog.metadata.refusals import Refusal

if TYPE_CHECKING:
    from raftlog.metadata.image import ClusterImage


@final
@attrs.frozen(kw_only=True)
class OnceId:
    """Names one request: `number` rises with each request of the boot `incarnation` of `node`. All
    of its requests below `settled` have been answered: nobody asks for them any more."""

    node: NodeId
    incarnation: int
    number: int
    settled: int


@final
@attrs.frozen(kw_only=True)
class Performed:
    """The requests of one boot that were performed and may be asked for again: in `done` the number
    of each and the value that it gave (`Applied.value`), in order, none below `settled`."""

    incarnation: int
    settled: int = 0
    done: tuple[tuple[int, int], ...] = ()

    def value_of(self, number: int) -> int | None:
        """What performing that request gave; None when it was not performed."""
        place = bisect_left(self.done, (number, 0))
        if place == len(self.done) or self.done[place][0] != number:
            return None
        return self.done[place][1]

    def plus(self, once: OnceId, value: int) -> "Performed":
        """With this request, and without those that the asker has its answers to."""
        settled = max(self.settled, once.settled)
        kept = self.done[bisect_left(self.done, (settled, 0)) :]
        place = bisect_left(kept, (once.number, 0))
        done = (*kept[:place], (once.number, value), *kept[place:])
        return Performed(incarnation=self.incarnation, settled=settled, done=done)


def performed_value(image: "ClusterImage", once: OnceId) -> int | None:
    """What this very request gave when it was performed before; None when it was not."""
    return _of_boot(image, once).value_of(once.number)


def once_problem(image: "ClusterImage", once: OnceId) -> tuple[Refusal, str] | None:
    """Why this request may not be performed (now)."""
    broker = image.brokers.get(once.node)
    if broker is None or broker.incarnation != once.incarnation:
        return Refusal.BUSY, f"this boot of broker {once.node} is not registered"
    known = _of_boot(image, once)
    if once.number < known.settled:
        return Refusal.STALE, f"request {once.number} of broker {once.node} was answered before"
    if len(known.done) >= PERFORMED_MAX and once.settled <= known.done[0][0]:
        return Refusal.BUSY, f"{PERFORMED_MAX} requests of broker {once.node} wait for one"
    return None


def with_performed(image: "ClusterImage", once: OnceId, value: int) -> "ClusterImage":
    """The image that remembers it. The version stays: it counts what the request did."""
    changed = _of_boot(image, once).plus(once, value)
    return attrs.evolve(image, performed={**image.performed, once.node: changed})


def without_broker(image: "ClusterImage", node: NodeId) -> Mapping[NodeId, Performed]:
    """What is remembered when that broker is forgotten."""
    return {other: known for other, known in image.performed.items() if other != node}


def _of_boot(image: "ClusterImage", once: OnceId) -> Performed:
    known = image.performed.get(once.node)
    if known is None or known.incarnation != once.incarnation:
        return Performed(incarnation=once.incarnation)
    return known


ONCE_FIELDS: Final[f.Fields] = (
    ("node", f.NODE),
    ("incarnation", f.U64),
    ("number", f.U64),
    ("settled", f.U64),
)
ONCE_ID: Final = f.record(OnceId, ONCE_FIELDS)

_PERFORMED: Final = f.record(
    Performed,
    (
        ("incarnation", f.U64),
        ("settled", f.U64),
        ("done", f.many(f.pair(f.U64, f.U64), PERFORMED_MAX)),
    ),
)
PERFORMED: Final = f.many(f.pair(f.NODE, _PERFORMED), BROKERS_MAX)

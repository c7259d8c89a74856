"""The requests of brokers that the metadata group has performed, so that it performs none twice.

A broker whose request to the controller went unanswered (the controller changed, a link broke)
asks again, and cannot know whether the first try was performed. So it numbers its requests; the
command that fulfils one carries the number, and the image remembers it until the broker says that
it has its answer (Ongaro's thesis, 6.3; RIFL, SOSP 2015). A number that was performed is done, and
one that was answered before is refused, however late a copy of it comes.

Numbers belong to one boot: what is asked in the name of a boot that is not the registered one is
refused as BUSY, which tells the asker that nothing was done. They outlive the registration: a
boot that was unregistered and comes back asks on under the same numbers.

A refused request did nothing, and the controller judges it again when it comes again. But when a
first try may still be on its way, the image remembers the refusal too (`CloseRequest`). The broker
was told that nothing was done, so a try that comes late must do nothing either.
"""

from bisect import bisect_left
from typing import Final, NamedTuple, final

import attrs

from raftlog.base.binary import Reader
from raftlog.base.ids import NodeId
from raftlog.base.limits import BROKERS_MAX, PERFORMED_MAX
from raftlog.metadata import fields as f
from raftlog.metadata.refusals import Refusal


@final
@attrs.frozen(kw_only=True)
class OnceId:
    """Names one request: `number` rises with each request of the boot `incarnation` of `node`. All
    of its requests below `settled` have been answered: no broker asks for them any more."""

    node: NodeId
    incarnation: int
    number: int
    settled: int


@final
class Done(NamedTuple):
    """The outcome of one request: performed, with the value that it gave (`Applied.value`), or
    closed with a refusal."""

    number: int
    value: int = 0
    refusal: Refusal | None = None

    @property
    def message(self) -> str:
        """For the asker, in place of what was said when it was judged."""
        return "" if self.refusal is None else f"refused before: {self.refusal.name}"


@final
@attrs.frozen(kw_only=True)
class Performed:
    """The requests of one boot that were performed or closed, and may come again: in order of their
    numbers, none below `settled`."""

    incarnation: int
    settled: int = 0
    done: tuple[Done, ...] = ()

    def of(self, number: int) -> Done | None:
        """The outcome of the request with this number; None when it is unknown."""
        place = bisect_left(self.done, (number, 0))
        if place == len(self.done) or self.done[place].number != number:
            return None
        return self.done[place]

    def plus(self, once: OnceId, done: Done) -> "Performed":
        """With this request, and without those that the asker has its answers to."""
        settled = max(self.settled, once.settled)
        kept = self.done[bisect_left(self.done, (settled, 0)) :]
        place = bisect_left(kept, (once.number, 0))
        return Performed(
            incarnation=self.incarnation,
            settled=settled,
            done=(*kept[:place], done, *kept[place:]),
        )


ONCE_FIELDS: Final[f.Fields] = (
    ("node", f.NODE),
    ("incarnation", f.U64),
    ("number", f.U64),
    ("settled", f.U64),
)
ONCE_ID: Final = f.record(OnceId, ONCE_FIELDS)


def _read_refusal(reader: Reader) -> Refusal | None:
    number = reader.u16()
    if number == 0:
        return None
    try:
        return Refusal(number)
    except ValueError:
        raise reader.fail(f"unknown refusal {number}") from None


REFUSAL: Final = f.Field(lambda writer, refusal: writer.u16(refusal or 0), _read_refusal, 2)
_DONE: Final = f.record(Done, (("number", f.U64), ("value", f.U64), ("refusal", REFUSAL)))

_PERFORMED: Final = f.record(
    Performed,
    (
        ("incarnation", f.U64),
        ("settled", f.U64),
        ("done", f.many(_DONE, PERFORMED_MAX)),
    ),
)
PERFORMED: Final = f.many(f.pair(f.NODE, _PERFORMED), BROKERS_MAX)

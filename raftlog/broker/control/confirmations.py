"""What waits until a majority has confirmed that this node leads the metadata group.

A read index (Ongaro's thesis, 6.4) confirms it for all that had come when it was opened, and for
nothing that comes later. One is open at most; what comes meanwhile waits for the next, all of it
for the same one. So a majority that is slow makes batches larger, and not reads more.
"""

from collections.abc import Callable
from functools import partial
from typing import final

import attrs

from raftlog.base.ids import METADATA_GROUP
from raftlog.base.probes import probe
from raftlog.broker.turn import Turn
from raftlog.partition.output import ReadAnswer

Then = Callable[[bool], None]


@final
@attrs.define(eq=False)
class Confirmations:
    """`lost` is called when no read can be opened here: this node leads no more, and `end` follows.
    `_asked` wait for the read that is open, number `_number`, and `_gathered` for the next. How
    many may wait is the caller's business."""

    turn: Turn
    lost: Callable[[], None]
    _gathered: list[Then] = attrs.Factory(list)
    _asked: list[Then] = attrs.Factory(list)
    _number: int = 0
    _opening: bool = False

    def wait(self, then: Then) -> None:
        """`then(True)` once a majority has confirmed that this node leads now; `then(False)` when
        it cannot."""
        self._gathered.append(then)
        self._open_soon()

    def end(self) -> None:
        """The leadership is over: nothing that waits can be confirmed."""
        waiting = [*self._asked, *self._gathered]
        self._asked, self._gathered = [], []
        self._number += 1  # the read that is open says nothing of a leadership that may come
        for then in waiting:
            then(False)

    def _open_soon(self) -> None:
        """One read for all of a turn."""
        if self._gathered and not self._asked and not self._opening:
            self._opening = True
            self.turn.soon(self._open)

    def _open(self) -> None:
        self._opening = False
        if not self._gathered:
            return
        self._number += 1
        self._asked, self._gathered = self._gathered, []
        turn, came = self.turn, partial(self._came, self._number)
        replica = turn.replicas.get(METADATA_GROUP)
        if replica is not None and replica.read_index(came, turn.now) is None:
            turn.touch(METADATA_GROUP)
        else:  # it was deposed, or its log is closed
            probe("controller-not-confirmed")
            self.lost()

    def _came(self, number: int, read: ReadAnswer) -> None:
        if number != self._number:
            return
        asked, self._asked = self._asked, []
        for then in asked:
            then(not read.error)
        self._open_soon()

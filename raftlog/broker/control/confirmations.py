"""Lets callers wait until a majority has confirmed that this node leads the metadata group.

A read index (Ongaro's thesis, 6.4) confirms it for all callers that came before it was opened, and
for none that come later. At most one is open. Later callers wait for the next one, all together. So
a slow majority makes batches larger, and not reads more.
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
    """The waiting callers of one leadership.

    `lost` is called when no read can be opened here: this node leads no more, and `end` follows.
    `_asked` wait for the open read, number `_number`, and `_gathered` for the next. The caller
    limits how many may wait.
    """

    turn: Turn
    lost: Callable[[], None]
    _gathered: list[Then] = attrs.Factory(list)
    _asked: list[Then] = attrs.Factory(list)
    _number: int = 0
    _opening: bool = False

    def wait(self, then: Then) -> None:
        """Call `then(True)` once a majority has confirmed this leadership, `then(False)` if not."""
        self._gathered.append(then)
        self._open_soon()

    def end(self) -> None:
        """End the leadership: nothing that waits can be confirmed."""
        waiting = [*self._asked, *self._gathered]
        self._asked, self._gathered = [], []
        self._number += 1  # the open read says nothing about a later leadership of this node
        for then in waiting:
            then(False)

    def _open_soon(self) -> None:
        """Open one read for all callers of a turn, at its end."""
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
        else:  # this node was deposed, or its log is closed
            probe("controller-not-confirmed")
            self.lost()

    def _came(self, number: int, read: ReadAnswer) -> None:
        if number != self._number:
            return
        asked, self._asked = self._asked, []
        for then in asked:
            then(not read.error)
        self._open_soon()

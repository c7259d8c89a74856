"""Checks that the produce requests of one connection are appended in the order of asking.

A client may send many requests without waiting for an answer. The log must have its records in the
order of sending: a program that writes "created" and then "deleted" would read the contrary. A
broker may put requests off to later turns, and answer them in any order; it may not change this.
"""

from bisect import bisect_left
from typing import Final, NamedTuple, final

import attrs

from raftlog.base.ids import GroupId

_KEPT_MAX: Final = 512
"""The most batches of a connection and group that are kept: more than can be under way."""


class _Place(NamedTuple):
    """An acknowledged batch: the number of its request on the connection, and where it lies."""

    request_no: int
    base_offset: int
    identity: tuple[int, ...]


@final
@attrs.define(eq=False)
class AppendOrder:
    """The acknowledged batches of one connection, by group, in the order of their requests."""

    places: dict[GroupId, list[_Place]] = attrs.Factory(dict)

    def acknowledged(
        self, group: GroupId, request_no: int, base_offset: int, identity: tuple[int, ...]
    ) -> str:
        """Note a batch that is told to be stored; returns what is wrong with its place, or ""."""
        kept = self.places.setdefault(group, [])
        place = _Place(request_no, base_offset, identity)
        at = bisect_left(kept, place)
        neighbours = kept[max(0, at - 1) : at + 1]
        kept.insert(at, place)
        del kept[:-_KEPT_MAX]
        for other in neighbours:
            # A batch that was sent twice lies where its first copy does.
            if other.identity != identity and (other < place) is not (
                other.base_offset < base_offset
            ):
                first, second = sorted((other, place))
                return (
                    f"of group {group} request {first.request_no} is stored at {first.base_offset},"
                    f" request {second.request_no} that came behind it at {second.base_offset}"
                )
        return ""

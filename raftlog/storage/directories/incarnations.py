"""Keeps the lives that a data directory has had, and those that it knows of other directories.

Each boot draws an incarnation, a random number that is not 0, and syncs it into a list here before
it says anything to a peer. A directory that is put back from an old copy has lost the later part of
its list, and no boot draws the lost numbers again. So when a peer names an incarnation that is not
on the list, it has met a later life of the directory: the directory is an old copy.

A book holds three tables, all of them bounded:

* `own`: the list, oldest first. It keeps each incarnation that a peer may hold, and of the others
  the last OWN_KEPT.
* `held`: for each directory of a peer the incarnations of ours that it may hold, at most two. It
  holds the one that it named last, or the one that it was allowed to take since.
* `known`: for each directory of a peer the last incarnation that we know of it.

Records of the store (big-endian), read and written by `store_records`:

    7 own               count u16, so many u64: incarnations of this directory, oldest first
    8 known             node u32, directory u64, incarnation u64
    9 held              directory u64, u64, u64: 0 stands for none
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, NewType, TypeVar, final

import attrs

from raftlog.base.binary import Reader, Writer
from raftlog.base.ids import DirectoryId, NodeId

Incarnation = NewType("Incarnation", int)
"""One life of a data directory, drawn by a boot. Compared for equality only; 0 means none."""
NONE: Final = Incarnation(0)
OWN_KEPT: Final = 4_096
PEERS_KEPT: Final = 4_096
"""The most directories in `held` and in `known`; one more drops the one that was changed first. A
cluster has 64 brokers, and a broker gets a new directory when its disk is replaced."""
_IN_A_RECORD: Final = 500
OWN: Final = 7
KNOWN: Final = 8
HELD: Final = 9


class Known(NamedTuple):
    """The last incarnation that we know of a peer's directory, and the node that it belonged to."""

    node: NodeId
    incarnation: Incarnation


Held = tuple[Incarnation, Incarnation]
Value = TypeVar("Value")


@final
@attrs.define
class IncarnationBook:
    """The three tables of the module. They change by `read`, that is by records.

    `begin`, `know` and `hold` make these records, and change the tables the same way at once.
    """

    own: dict[Incarnation, None] = attrs.Factory(dict)
    held: dict[DirectoryId, Held] = attrs.Factory(dict)
    known: dict[DirectoryId, Known] = attrs.Factory(dict)

    @property
    def empty(self) -> bool:
        """Whether a release that has no incarnations may read this store."""
        return not (self.own or self.held or self.known)

    def copy(self) -> "IncarnationBook":
        return IncarnationBook(dict(self.own), dict(self.held), dict(self.known))

    def has(self, incarnation: Incarnation) -> bool:
        """Whether this directory has had that life, as far as the list goes back."""
        return incarnation in self.own

    # --- changes ---

    def begin(self, incarnation: Incarnation) -> bytes:
        """Begin a new life; returns its record."""
        assert incarnation != NONE
        assert incarnation not in self.own, "a life is drawn twice"
        self._add((incarnation,))
        return _own_record([incarnation])

    def know(self, directory: DirectoryId, known: Known) -> bytes:
        """Know this incarnation as the last of the peer's directory; returns the record."""
        _put(self.known, directory, known)
        return _known_record(directory, known)

    def hold(self, directory: DirectoryId, held: Held) -> bytes:
        """Let the peer's directory hold only these incarnations of ours; returns the record."""
        _put(self.held, directory, held)
        return _held_record(directory, held)

    # --- records ---

    def read(self, kind: int, reader: Reader) -> None:
        """Take in the body of a record; the caller checks that nothing follows it."""
        if kind == OWN:
            self._add([Incarnation(reader.u64()) for _ in range(reader.u16())])
        elif kind == KNOWN:
            node, directory = NodeId(reader.u32()), DirectoryId(reader.u64())
            _put(self.known, directory, Known(node, Incarnation(reader.u64())))
        else:
            assert kind == HELD, kind
            directory = DirectoryId(reader.u64())
            held = (Incarnation(reader.u64()), Incarnation(reader.u64()))
            _put(self.held, directory, held)

    def records(self) -> Iterator[bytes]:
        """The shortest list of records that makes the same tables.

        The incarnations that peers hold come first: the list is cut while it is read, and must keep
        those.
        """
        for directory, held in self.held.items():
            yield _held_record(directory, held)
        for directory, known in self.known.items():
            yield _known_record(directory, known)
        own = list(self.own)
        for start in range(0, len(own), _IN_A_RECORD):
            yield _own_record(own[start : start + _IN_A_RECORD])

    def _add(self, incarnations: Iterable[Incarnation]) -> None:
        self.own.update(dict.fromkeys(incarnations))
        if len(self.own) <= OWN_KEPT:
            return
        needed = {each for held in self.held.values() for each in held}
        others = [each for each in self.own if each not in needed]
        for each in others[: max(0, len(others) - OWN_KEPT)]:
            del self.own[each]


def _put(table: dict[DirectoryId, Value], key: DirectoryId, value: Value) -> None:
    table.pop(key, None)
    table[key] = value
    if len(table) > PEERS_KEPT:
        del table[next(iter(table))]


def _own_record(incarnations: list[Incarnation]) -> bytes:
    writer = Writer().u8(OWN).u16(len(incarnations))
    for each in incarnations:
        writer.u64(each)
    return writer.bytes()


def _known_record(directory: DirectoryId, known: Known) -> bytes:
    return Writer().u8(KNOWN).u32(known.node).u64(directory).u64(known.incarnation).bytes()


def _held_record(directory: DirectoryId, held: Held) -> bytes:
    return Writer().u8(HELD).u64(directory).u64(held[0]).u64(held[1]).bytes()

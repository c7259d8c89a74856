"""Where records begin: the chains of lengths inside record batches, walked side by side.

A record begins with its length, so its successor is found only through it. Many batches are as many
chains, and one numpy step moves all of them on by a record. Where batches are few and large, each
is cut into pieces at places where a record is believed to begin; a piece is a chain like any other.
A belief is confirmed when the piece before it ends exactly there with the right number of records:
the first piece begins where the batch does, so by induction all are right. One belief that is not
confirmed, and the batch is walked as a single chain.

A place is believed when, read as a record, it has attributes 0, an offset delta and a length after
which another record follows with the next offset delta. Compacted batches have gaps in their deltas
and are simply not cut there.
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

PAD_BYTES: Final = 32
"""Zero bytes after the last record, so that a whole word can be read at any place in it."""


PIECE_RECORDS: Final = 256
"""The number of records in a piece. A step costs the same for a hundred chains as for one."""
_WINDOW_MAX: Final = 4096
"""The bytes in which a record's beginning is searched. Batches with larger records are rarely
cut."""


class Odd(Exception):
    """The fast decoder does not understand these bytes; the plain decoder then decides."""


class _Chains(NamedTuple):
    """The places where chains begin and must end, and the number of records of each."""

    begins: Ints
    ends: Ints
    counts: Ints


def record_starts(body: Bytes, sizes: Ints, counts: Ints) -> tuple[Ints, Ints]:
    """For each record its first byte behind the length, and its end. `sizes` are the bytes of the
    batches' records, back to back in `body`, `counts` the numbers of records they claim. Raises
    `Odd` where lengths are negative, overlong, or do not fill their batch exactly."""
    begins = np.cumsum(sizes) - sizes
    chains = _Chains(begins, begins + sizes, counts)
    places = _confirmed(body, _cut(body, chains))
    if places is None:
        places = _confirmed(body, chains)
    if places is None:
        raise Odd
    # Confirmed chains follow each other without gaps, so each record ends where the next begins.
    inside = _behind_lengths(body, places)
    return inside, np.append(places[1:], sizes.sum())


def _confirmed(body: Bytes, chains: _Chains) -> Ints | None:
    """The place of every record's length; None unless each chain ends where the next begins."""
    places, finals = _walk(body, chains.begins, chains.counts)
    return places if np.array_equal(finals, chains.ends) else None


def _behind_lengths(body: Bytes, places: Ints) -> Ints:
    """The places after the lengths at these places; `Odd` for a negative length, whose lowest bit
    is set."""
    first = body.take(places, mode="clip")
    if bool((first & 1).any()):
        raise Odd
    behind = places + 1 + (first >> 7)
    more = np.flatnonzero((body.take(places + 1, mode="clip") & first) >> 7)
    while more.size:
        behind[more] += 1
        more = more[body.take(behind[more] - 1, mode="clip") >> 7 != 0]
    return behind


def _lengths(body: Bytes, at: Ints) -> tuple[Ints, Ints]:
    """The raw varints (not yet unzigzagged) at these places, and the places behind them. A length
    has at most four bytes, because a record that needs more is larger than any batch may be. A
    longer one is returned as 1, which is no length."""
    raw, behind, more = _two_bytes(body, at)
    for shift in (14, 21):
        if not more.any():
            return raw, behind
        part = body.take(behind, mode="clip").astype(np.int64)
        raw = raw + ((part & 0x7F) << shift) * more
        behind = behind + more
        more = more & (part >> 7)
    raw[more > 0] = 1
    return raw, behind


def varints(body: Bytes, at: Ints) -> tuple[Ints, Ints]:
    """The zigzag varints at these places, and the places behind them. Reading past the end of the
    buffer returns wrong numbers; the caller finds them by comparing places with borders."""
    raw, behind, more = _two_bytes(body, at)
    values = (raw >> 1) ^ -(raw & 1)
    longer = np.flatnonzero(more)
    if longer.size:
        values[longer], behind[longer] = _long_varints(body, behind[longer], raw[longer])
    return values, behind


def _two_bytes(body: Bytes, at: Ints) -> tuple[Ints, Ints, Ints]:
    """Up to two bytes of each varint, the places behind them, and 1 where there are more."""
    first = body.take(at, mode="clip").astype(np.int64)
    more = first >> 7
    if not more.any():
        return first, at + 1, more
    second = body.take(at + 1, mode="clip").astype(np.int64)
    raw = (first & 0x7F) + ((second & 0x7F) << 7) * more
    return raw, at + 1 + more, more & (second >> 7)


def _long_varints(body: Bytes, behind: Ints, low: Ints) -> tuple[Ints, Ints]:
    """The values of varints longer than two bytes, whose low 14 bits are known."""
    raw = low.astype(np.uint64)
    behind = behind.copy()
    more = np.arange(len(behind))
    for shift in range(14, 70, 7):
        part = body.take(behind[more], mode="clip")
        if shift == 63 and bool((part > 1).any()):
            raise Odd
        raw[more] |= (part & 0x7F).astype(np.uint64) << np.uint64(shift)
        behind[more] += 1
        more = more[part >= 0x80]
        if not more.size:
            break
    values = (raw >> np.uint64(1)).astype(np.int64) ^ -(raw & np.uint64(1)).astype(np.int64)
    return values, behind


# --- cutting large batches ------------------------------------------------------------------------


def _cut(body: Bytes, chains: _Chains) -> _Chains:
    """The chains with those of many records cut where a record is believed to begin."""
    large = np.flatnonzero(chains.counts >= 2 * PIECE_RECORDS)
    if not large.size:
        return chains
    try:
        places, deltas, owners = _beliefs(body, chains, large)
    except Odd:
        return chains
    everywhere = np.arange(len(chains.begins))
    begins = np.concatenate([chains.begins, places])
    owner = np.concatenate([everywhere, owners])
    number = np.concatenate([np.zeros_like(everywhere), deltas])
    order = np.lexsort((begins, owner))
    begins, owner, number = begins[order], owner[order], number[order]
    last = np.append(owner[1:] != owner[:-1], True)
    ends = np.where(last, chains.ends[owner], np.append(begins[1:], 0))
    counts = np.where(last, chains.counts[owner], np.append(number[1:], 0)) - number
    return _Chains(begins, ends, counts) if int(counts.min()) >= 0 else chains


def _beliefs(body: Bytes, chains: _Chains, large: Ints) -> tuple[Ints, Ints, Ints]:
    """Places inside of large batches, their offset deltas, and their batches: near each of some
    evenly spread places, the first that looks like a record followed by its successor."""
    guesses = chains.counts[large] // PIECE_RECORDS - 1
    owners = np.repeat(large, guesses)
    sizes = chains.ends - chains.begins
    step = np.arange(len(owners)) - np.repeat(np.cumsum(guesses) - guesses, guesses) + 1
    near = chains.begins[owners] + sizes[owners] * step // (np.repeat(guesses, guesses) + 1)
    width = min(_WINDOW_MAX, 2 * int((sizes[large] // chains.counts[large]).max()) + 32)
    at = (near[:, None] + np.arange(width)).ravel()
    ends = np.repeat(chains.ends[owners], width)
    inside, following = _records(body, at, ends)
    found = np.flatnonzero(following >= 0)
    second, beyond = _records(body, following[found], ends[found])
    found, second = found[beyond >= 0], second[beyond >= 0]
    deltas = _offset_deltas(body, inside[found])
    right = deltas + 1 == _offset_deltas(body, second)
    right &= (deltas > 0) & (deltas < chains.counts[owners[found // width]])
    found, deltas = found[right], deltas[right]
    guess, first = np.unique(found // width, return_index=True)
    return at[found[first]], deltas[first], owners[guess]


def _records(body: Bytes, at: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """Each place read as a record: behind its length, and behind the record; -1 where it cannot be
    one."""
    lengths, inside = _lengths(body, at)
    following = inside + (lengths >> 1)
    possible = (lengths & 1 == 0) & (following <= ends)
    possible &= body.take(inside, mode="clip") == 0
    return inside, np.where(possible, following, -1)


def _offset_deltas(body: Bytes, inside: Ints) -> Ints:
    _, at = varints(body, inside + 1)
    return varints(body, at)[0]


# --- walking --------------------------------------------------------------------------------------


def _walk(body: Bytes, begins: Ints, counts: Ints) -> tuple[Ints, Ints]:
    """The place of every record's length, chain by chain, and where each chain ends."""
    order = np.argsort(-counts, kind="stable")
    ordered = counts[order]
    at = begins[order]
    first = (np.cumsum(counts) - counts)[order]
    places = np.empty(int(counts.sum()), dtype=np.int64)
    steps = int(ordered[0]) if len(ordered) else 0
    alive = np.searchsorted(-ordered, -np.arange(steps), side="left")
    for step in range(steps):
        chains = int(alive[step])
        here = at[:chains]
        places[first[:chains] + step] = here
        lengths, behind = _lengths(body, here)
        at[:chains] = behind + (lengths >> 1)
    finals = np.empty_like(at)
    finals[order] = at
    return places, finals

"""The two files of the store, written in turn by generation: frames of records, each written twice.

A generation begins with a full image of the state; every round adds one frame. When the file is
full, or at a boot, the next generation begins in the other file, so no file is ever half of the
truth. Only the last frame can be torn, and only before it was synced. No later frame vouches for
it, so each frame lies there twice, in sectors of its own: one bad sector loses no vote. The copies
of an image lie in blocks of 4 KiB of their own as well. An image names the checksum of its header,
which can be computed from it: so the first block of a file may be lost. Sectors of 512 bytes
(big-endian):

    file:    header, the same header again, the image at byte 1024, the image again at the next
             multiple of 4096 (zeros between), then frames, each twice, back to back
    header:    0 magic "rlstore\\0"    8 format version u16        10 minimum reader version u16
              12 cluster id, 16 bytes  28 node u32                32 directory id u64
              40 generation u64        48 number of its first frame u64
              56 CRC-32C of all before, u32, zeros up to 512
    frame:     0 magic "RLFR"          4 bytes of the records u32  8 generation u64
              16 number u64           24 checksum of the frame before (or of the header) u32
              28 records, each a u32 length and that many bytes
              .. checksum: CRC-32C of all before, u32, zeros up to a whole sector

Numbers rise by one from frame to frame, across generations too. The version, and the oldest reader,
of a generation is 1, or 2 when its image holds a promise, which version 1 does not know, or 3 when
it holds incarnations.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple, final

from raftlog.base.binary import Reader, Writer
from raftlog.base.checksum import crc32c
from raftlog.base.errors import CorruptData, FutureFormat
from raftlog.base.ids import ClusterId, DirectoryId, NodeId
from raftlog.base.limits import (
    STORE_BYTES_INITIAL,
    STORE_FRAME_BYTES_MAX,
    STORE_RECORD_BYTES_MAX,
)
from raftlog.base.ports import Disk, DiskFile
from raftlog.base.probes import probe
from raftlog.base.units import KIB, Nanos
from raftlog.storage.directories.incarnations import Incarnation
from raftlog.storage.directories.store_records import StoreState
from raftlog.storage.files import grown, opened, read_whole, write_again

STORE_FILES: Final = ("store-0", "store-1")
VERSION: Final = 3
_VERSIONS: Final = range(1, VERSION + 1)
SECTOR: Final = 512
_MAGIC: Final = b"rlstore\x00"
_FRAME_MAGIC: Final = b"RLFR"
_FRAMES_AT: Final = 2 * SECTOR
_BLOCK: Final = 4 * KIB
"""Bytes that a disk may lose at once when its sectors are larger than it says."""
_HEADER_CRC_AT: Final = 56
_FRAME_HEAD_BYTES: Final = 28
_FRAME_PLACE_AT: Final = 8
_FRAME_PLACE: Final = struct.Struct(">QQI")
"""(generation, number, checksum of the frame before)."""
_FILE_BYTES_MAX: Final = 3 * STORE_FRAME_BYTES_MAX
_ROOM_IMAGES: Final = 3
"""Images for which a file has room behind its own: for rounds before the next generation."""
_WHAT_TO_DO: Final = "treat the data directory as lost: move it away and let the broker join as new"
_ZEROS: Final = (bytes(64 * KIB), bytes(4 * KIB), bytes(SECTOR))


class StoreOwner(NamedTuple):
    """The owner of a store; a file of another directory is refused."""

    cluster: ClusterId
    node: NodeId
    directory: DirectoryId


class _Frame(NamedTuple):
    generation: int
    number: int
    previous: int
    checksum: int
    records: list[bytes]
    padded_bytes: int


class _Generation(NamedTuple):
    """A file as read: its state, or why it cannot be used (`state` is None). `ahead` has generation
    and number of the furthest whole frame of a generation above this one, or (0, 0). `damage`
    counts only while no newer generation is whole: see `_newest`. `checksum` is that of the last
    frame, whose first whole copy ends at `end`."""

    slot: int
    generation: int
    last_number: int
    state: StoreState | None
    why: str
    ahead: tuple[int, int]
    damage: CorruptData | None = None
    checksum: int = 0
    end: int = 0


def format_store(
    disk: Disk, owner: StoreOwner, *, bytes_initial: int = STORE_BYTES_INITIAL
) -> None:
    """Make both files, zero-filled, with an empty first generation; durable when it returns. They
    keep this size until an image, with the room behind it, needs more."""
    for slot, name in enumerate(STORE_FILES):
        with opened(disk, name, create=True, write=True) as file:
            file.write_at(0, [bytes(bytes_initial)])
            if slot == 0:
                file.write_at(0, [_image_bytes(owner, 1, 1, StoreState())[0]])
            file.sync()
    disk.sync_dir("")


@final
class StoreFiles:
    """The open store; one writer of the directory at a time owns it.

    `state` is what was written.

    Opening begins a new generation, so that nothing is ever appended behind a torn frame. It is
    synced before `open` returns. It is written over the other file, which may be the disk's only
    copy of the present one: so what was read is made durable first.
    """

    def __init__(self, disk: Disk, owner: StoreOwner) -> None:
        """Raises `CorruptData` when neither file holds the whole truth, or one shows damage."""
        self._owner = owner
        newest, generation_seen = _newest(disk, owner)
        assert newest.state is not None, newest.why
        self.state = newest.state
        self._generation = generation_seen
        self._number = newest.last_number
        self._slot = newest.slot
        self._files: list[DiskFile] = []
        self._position = 0
        self._checksum = 0
        self._end = 0
        try:
            for name in STORE_FILES:
                self._files.append(disk.open(name))
            # A crash that tears this write leaves an attempt at this generation, as it was before.
            file = self._files[self._slot]
            write_again(file, 0, [_used(file.read_at(0, file.size()))])
            self.begin_generation()
            self.sync()
        except BaseException:
            self.close()
            raise

    def raise_promise(self, promised_ns: Nanos) -> None:
        """Hold at least this promise, durably, in a generation that begins with it: an older
        release must not read it as damage."""
        if promised_ns > self.state.promised_ns:
            self.state.promised_ns = promised_ns
            self.begin_generation()
            self.sync()

    def begin_life(self, incarnation: Incarnation) -> None:
        """Put the incarnation of this boot on the list, durably. The first one begins a generation,
        because an older release must not read it as damage."""
        first = self.state.incarnations.empty
        record = self.state.incarnations.begin(incarnation)
        if first:
            self.begin_generation()
        else:
            self.append([record])
        self.sync()

    def append(self, records: list[bytes]) -> None:
        """Write one frame, or a new generation when it does not fit. It is durable after `sync`,
        which comes before the next call: only one frame may be unsynced."""
        for record in records:
            assert len(record) <= STORE_RECORD_BYTES_MAX, len(record)
            self.state.apply(record, "store")
        frame = _frame_bytes(self._generation, self._number + 1, self._checksum, records)
        if self._position + 2 * len(frame) > self._end:
            probe("store-generation-begun")
            self.begin_generation()
            return
        self._files[self._slot].write_at(self._position, [frame, frame])
        self._position += 2 * len(frame)
        self._number += 1
        self._checksum = _checksum_of(frame)

    def begin_generation(self) -> None:
        """Write a full image into the other file. Until its sync the present file is the truth."""
        slot = 1 - self._slot
        image, frame = _image_bytes(self._owner, self._generation + 1, self._number + 1, self.state)
        room = len(image) + _ROOM_IMAGES * 2 * len(frame)
        wanted = max(room, *(each.size() for each in self._files))
        end = grown(self._files[slot], wanted, len(image))
        self._files[slot].write_at(0, [image])
        self._slot, self._generation = slot, self._generation + 1
        self._number += 1
        self._position = len(image)
        self._checksum = _checksum_of(frame)
        self._end = end

    def sync(self) -> None:
        """Make every appended frame durable."""
        self._files[self._slot].sync()

    def close(self) -> None:
        for file in self._files:
            file.close()


def read_store(disk: Disk, owner: StoreOwner) -> StoreState:
    """The state in the store, read without changing it."""
    newest, _ = _newest(disk, owner)
    assert newest.state is not None, newest.why
    return newest.state


@final
class StoreReader:
    """Reads a store again and again as it grows, without changing it. It continues where it stopped
    while everything that it read before is unchanged."""

    def __init__(self) -> None:
        self._owner: StoreOwner | None = None
        self._files: list[bytes] = []
        self._known: _Generation | None = None

    def read(self, disk: Disk, owner: StoreOwner) -> StoreState:
        """Read as `read_store` does. The caller must no longer use the state returned before."""
        known, self._known = self._known, None
        files = [read_whole(disk, name, _FILE_BYTES_MAX) if disk.exists(name) else b""
                 for name in STORE_FILES]  # fmt: skip
        if known is not None and owner == self._owner and self._grew(files, known):
            known = _read_frames(files[known.slot], known)
        else:
            known, _ = _newest(disk, owner)
        self._owner, self._files, self._known = owner, files, known
        assert known.state is not None, known.why
        return known.state

    def _grew(self, files: list[bytes], known: _Generation) -> bool:
        """Whether both files are unchanged, except behind the last frame."""
        slot, end = known.slot, known.end
        other, before = 1 - slot, self._files
        return files[other] == before[other] and files[slot][:end] == before[slot][:end]


def _newest(disk: Disk, owner: StoreOwner) -> tuple[_Generation, int]:
    """The newest generation with a whole image, and the highest number of any frame or header.

    The highest number keeps the next generation apart from a torn attempt at one. A power loss in
    such an attempt may leave the old header before the half-written new image, and old frames
    behind it. That looks like damage, in the file that is not the truth any more: the other file
    holds a newer generation, whole. In the newest file the same is damage.
    """
    found = [_read_file(disk, slot, owner) for slot in range(len(STORE_FILES))]
    found.sort(key=lambda generation: generation.generation, reverse=True)
    for generation in found:
        if generation.damage is not None:
            raise generation.damage
        if generation.state is not None:
            _check_nothing_newer(generation, found)
            return generation, max(max(one.generation, one.ahead[0]) for one in found)
    why = "; ".join(f"{STORE_FILES[one.slot]}: {one.why}" for one in found)
    raise CorruptData(
        f"the store of votes and registrations is damaged: {why}",
        on=" and ".join(STORE_FILES),
        do=_WHAT_TO_DO,
    )


def _check_nothing_newer(truth: _Generation, found: list[_Generation]) -> None:
    """Raise `CorruptData` where a newer generation was synced and its image is damaged: its votes
    must not be forgotten. An attempt that was not synced is an image with the next number alone;
    later frames were written after the sync of the image. A file whose first number is still later
    proves a generation in between that is lost."""
    for one in found:
        generation, number = one.ahead
        if generation > truth.generation and number > truth.last_number + 1:
            raise _image_damaged(one, generation, f"frame {number} follows it")
        if one.generation > truth.generation and one.last_number > truth.last_number + 1:
            what = f"it began with frame {one.last_number}, and the last before is not there"
            raise _image_damaged(one, one.generation, what)


def _image_damaged(one: _Generation, generation: int, how_told: str) -> CorruptData:
    return CorruptData(
        f"the image of store generation {generation} is damaged and {how_told}",
        on=STORE_FILES[one.slot],
        do=_WHAT_TO_DO,
    )


def _read_file(disk: Disk, slot: int, owner: StoreOwner) -> _Generation:
    """Read one file. A damaged frame with whole frames behind it is damage; a torn last frame is
    skipped."""
    name = STORE_FILES[slot]
    if not disk.exists(name):
        return _Generation(slot, 0, 0, None, "missing", (0, 0))
    data = _used(read_whole(disk, name, _FILE_BYTES_MAX))
    told = _read_header(data, owner, name) or (0, 0, 0)
    header = _header_of_image(data, owner, told[0]) or told
    generation, first, checksum = header
    ahead = _furthest_frame(data, generation)
    if generation == 0:
        return _Generation(slot, 0, 0, None, "no whole header", ahead)
    try:
        before = _Generation(
            slot, generation, first - 1, StoreState(), "", ahead, None, checksum, _FRAMES_AT
        )
        found = _read_frames(data, before)
    except CorruptData as damage:
        return _Generation(slot, generation, first, None, damage.what, ahead, damage)
    if found.last_number < first:
        return _Generation(slot, generation, first, None, "no whole image", ahead)
    return found


def _read_frames(data: bytes, before: _Generation) -> _Generation:
    """Add the frames that follow the last one of `before`."""
    state, name = before.state, STORE_FILES[before.slot]
    assert state is not None, before.why
    number, checksum, position = before.last_number, before.checksum, before.end
    while found := _find_frame(data, position, before.generation, number + 1, checksum, name):
        frame, position = found
        for record in frame.records:
            state.apply(record, name)
        number, checksum = frame.number, frame.checksum
    return before._replace(last_number=number, checksum=checksum, end=position)


def _used(data: bytes) -> bytes:
    """The data without the sectors of zeros at its end. It goes block by block: a mebibyte of
    zeros, the usual case, takes bytes.rstrip 7 ms and this 0.03 ms."""
    end = len(data)
    for zeros in _ZEROS:
        size = len(zeros)
        while end >= size and data.endswith(zeros, 0, end):
            end -= size
    last = data[max(0, end - SECTOR) : end]
    return data[: _padded(end - len(last) + len(last.rstrip(b"\0")))]


def _header_of_image(data: bytes, owner: StoreOwner, above: int) -> tuple[int, int, int] | None:
    """The header, as (generation, number, checksum), of the newest generation above `above` whose
    image is whole. The image names the header's checksum, and everything in a header is known."""
    found = None
    for at, (generation, number, previous) in _frame_places(data, _FRAMES_AT):
        headers = (_header_content(each, owner, generation, number) for each in _VERSIONS)
        if generation <= above or previous not in map(crc32c, headers):
            continue
        if _parse_frame(data, at) is not None:
            above, found = generation, (generation, number, previous)
    return found


def _furthest_frame(data: bytes, above: int) -> tuple[int, int]:
    """Generation and number of the furthest whole frame of a generation above `above`, which is the
    file's own; (0, 0) when there is none."""
    furthest = (above, 0)
    for at, (generation, number, _) in _frame_places(data, _FRAMES_AT):
        ahead = generation > above and (generation, number) > furthest
        if ahead and _parse_frame(data, at) is not None:
            furthest = (generation, number)
    return furthest if furthest[0] > above else (0, 0)


def _frame_places(data: bytes, start: int) -> Iterator[tuple[int, tuple[int, int, int]]]:
    """The sectors from `start` on that begin like a frame, each with the generation, the number and
    the checksum of the frame before that it states."""
    at = data.find(_FRAME_MAGIC, start)
    while at >= 0:
        if at % SECTOR == 0 and at + _FRAME_HEAD_BYTES <= len(data):
            yield at, _FRAME_PLACE.unpack_from(data, at + _FRAME_PLACE_AT)
        at = data.find(_FRAME_MAGIC, at + 1)


def _find_frame(
    data: bytes, position: int, generation: int, number: int, previous: int, name: str
) -> tuple[_Frame, int] | None:
    """The frame `number`, and where its first whole copy ends; None when the store ends here. It
    lies at or behind `position`, as copies of the frame before may."""
    damaged = False
    for at, stated in _frame_places(data, position):
        if stated[0] != generation or stated[1] < number:
            continue
        frame = _parse_frame(data, at)
        if frame is None:
            damaged = True
        elif stated[1:] == (number, previous):
            if damaged:
                probe("store-second-copy-used")
            return frame, at + frame.padded_bytes
        elif frame.number > number:
            raise CorruptData(
                f"store frame {number} is damaged and frame {frame.number} follows it",
                on=f"{name} at byte {position}",
                do=_WHAT_TO_DO,
            )
    return None


def _parse_frame(data: bytes, at: int) -> _Frame | None:
    size = int.from_bytes(data[at + 4 : at + 8], "big")
    end = at + _FRAME_HEAD_BYTES + size
    if size > STORE_FRAME_BYTES_MAX or end + 4 > len(data):
        return None
    checksum = int.from_bytes(data[end : end + 4], "big")
    content = data[at:end]
    if crc32c(content) != checksum:
        return None
    reader = Reader(content, CorruptData, "store frame", position=_FRAME_PLACE_AT)
    generation, number, previous = reader.unpack(_FRAME_PLACE)
    records = []
    while reader.remaining():
        records.append(bytes(reader.block(STORE_RECORD_BYTES_MAX)))
    return _Frame(generation, number, previous, checksum, records, _padded(end + 4 - at))


def _frame_bytes(generation: int, number: int, previous: int, records: list[bytes]) -> bytes:
    body = Writer()
    for record in records:
        body.block(record)
    writer = Writer().raw(_FRAME_MAGIC).u32(len(body)).u64(generation).u64(number).u32(previous)
    content = writer.raw(body.bytes()).bytes()
    frame = content + crc32c(content).to_bytes(4, "big")
    return frame + bytes(_padded(len(frame)) - len(frame))


def _checksum_of(frame: bytes) -> int:
    """The checksum inside a padded frame."""
    end = _FRAME_HEAD_BYTES + int.from_bytes(frame[4:8], "big")
    return int.from_bytes(frame[end : end + 4], "big")


def _header_content(version: int, owner: StoreOwner, generation: int, number: int) -> bytes:
    """The bytes that a header's checksum covers."""
    writer = Writer().raw(_MAGIC).u16(version).u16(version).raw(owner.cluster).u32(owner.node)
    return writer.u64(owner.directory).u64(generation).u64(number).bytes()


def _image_bytes(
    owner: StoreOwner, generation: int, number: int, state: StoreState
) -> tuple[bytes, bytes]:
    """The bytes with which a generation begins, and its image frame."""
    version = 2 if state.promised_ns else 1
    if not state.incarnations.empty:
        version = 3
    content = _header_content(version, owner, generation, number)
    checksum = crc32c(content)
    header = content + checksum.to_bytes(4, "big")
    header += bytes(SECTOR - len(header))
    frame = _frame_bytes(generation, number, checksum, list(state.records()))
    first = header + header + frame
    return first + bytes(-len(first) % _BLOCK) + frame, frame


def _read_header(data: bytes, owner: StoreOwner, name: str) -> tuple[int, int, int] | None:
    """Generation, first frame number and checksum; None when neither copy is whole. Where they
    differ the newer one counts: a disk that lost one write, or a torn new generation, left the
    other. A header of another directory is damage only when there is none of this one."""
    copies = [_read_header_copy(data, at, name) for at in (0, SECTOR)]
    whole = [copy for copy in copies if copy is not None]
    ours = [place for told, place in whole if told == owner]
    if whole and not ours:
        told = whole[0][0]
        raise CorruptData(f"store of node {told.node}, directory {told.directory:016x}", on=name)
    return max(ours, default=None)


def _read_header_copy(
    data: bytes, at: int, name: str
) -> tuple[StoreOwner, tuple[int, int, int]] | None:
    copy = data[at : at + _HEADER_CRC_AT + 4]
    checksum = int.from_bytes(copy[_HEADER_CRC_AT:], "big")
    if bytes(copy[: len(_MAGIC)]) != _MAGIC or crc32c(copy[:_HEADER_CRC_AT]) != checksum:
        return None
    reader = Reader(copy, CorruptData, name, position=len(_MAGIC))
    version, reader_min = reader.u16(), reader.u16()
    if reader_min > VERSION:
        raise FutureFormat(f"store of version {version}, this release reads {VERSION}", on=name)
    cluster = ClusterId(bytes(reader.take(16)))
    told = StoreOwner(cluster, NodeId(reader.u32()), DirectoryId(reader.u64()))
    return told, (reader.u64(), reader.u64(), checksum)


def _padded(size: int) -> int:
    return -(-size // SECTOR) * SECTOR

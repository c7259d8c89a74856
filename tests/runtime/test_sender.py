"""The sender sends everything once, in order, however little the transport takes at a time."""

import os

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.errors import DiskError
from raftlog.base.ids import DirectoryId
from raftlog.records.slices import FileSlice
from raftlog.runtime.disks.open_files import REMOVED_LOOK_SECONDS, OpenFiles, PosixDescriptors
from raftlog.runtime.network.sender import Sender
from tests.runtime.memory_stream import memory_pair

HOME = DirectoryId(7)


@given(st.lists(st.binary(max_size=200), max_size=20), st.integers(1, 64))
def test_all_parts_arrive_in_order(parts, room):
    async def main() -> None:
        left, right = memory_pair(room)
        sender = Sender(left)
        total = sum(len(part) for part in parts)
        got = bytearray()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sender.run, lambda: None)
            for part in parts:
                sender.put(part)
            sender.flush()
            buffer = bytearray(37)
            while len(got) < total:
                count = await right.receive_into(memoryview(buffer))
                got += buffer[:count]
            nursery.cancel_scope.cancel()
        assert bytes(got) == b"".join(parts)
        assert sender.queued_bytes == 0
        assert sender.sent_bytes == total

    trio.run(main)


async def test_file_slices_go_between_buffers(tmp_path):
    (tmp_path / "a.log").write_bytes(bytes(range(200)))
    files = OpenFiles({HOME: PosixDescriptors(str(tmp_path))})
    left, right = memory_pair()
    sender = Sender(left)
    sender.put(b"<")
    sender.put(files.pin(FileSlice(HOME, "a.log", 10, 50)))
    sender.put(b">")
    sender.flush()
    buffer = bytearray(100)
    got = b""
    while len(got) < 52:
        count = await right.receive_into(memoryview(buffer))
        got += bytes(buffer[:count])
    assert got == b"<" + bytes(range(10, 60)) + b">"
    files.close()


async def test_a_removed_file_still_yields_its_bytes(tmp_path):
    """Retention unlinks a segment while a slice of it is on its way out."""
    (tmp_path / "a.log").write_bytes(b"old bytes")
    files = OpenFiles({HOME: PosixDescriptors(str(tmp_path))})
    pinned = files.pin(FileSlice(HOME, "a.log", 0, 9))
    (tmp_path / "a.log").unlink()
    files.close_removed()
    assert os.pread(pinned.fd, 9, 0) == b"old bytes"
    fd = pinned.fd
    pinned.release()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


async def test_a_removed_file_gives_back_its_space(tmp_path, autojump_clock):
    """Up to 256 descriptors wait for the next fetch. No event told of removed segments, so
    retention freed nothing as long as their readers' descriptors were among those."""
    for name in ("a.log", "b.log"):
        (tmp_path / name).write_bytes(b"bytes")
    files = OpenFiles({HOME: PosixDescriptors(str(tmp_path))})
    removed, kept = (files.pin(FileSlice(HOME, name, 0, 5)) for name in ("a.log", "b.log"))
    descriptors = removed.fd, kept.fd
    removed.release()
    kept.release()
    (tmp_path / "a.log").unlink()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(files.close_removed_for_ever)
        await trio.sleep(REMOVED_LOOK_SECONDS + 1)
        nursery.cancel_scope.cancel()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptors[0])
    assert os.fstat(descriptors[1]).st_nlink == 1
    files.close()


def test_a_missing_file_is_a_disk_error(tmp_path):
    with pytest.raises(DiskError, match=r"No such file.*a\.log"):
        OpenFiles({HOME: PosixDescriptors(str(tmp_path))}).pin(FileSlice(HOME, "a.log", 0, 9))


async def test_a_file_that_is_too_short_breaks_the_stream(tmp_path):
    (tmp_path / "a.log").write_bytes(b"123")
    files = OpenFiles({HOME: PosixDescriptors(str(tmp_path))})
    sender = Sender(memory_pair()[0])
    sender.put(files.pin(FileSlice(HOME, "a.log", 0, 9)))
    with pytest.raises(trio.BrokenResourceError):
        sender.flush()
    sender.close()
    files.close()

"""A pair of in-memory streams with a bounded pipe, for tests of everything above `ByteStream`."""

from collections import deque

import trio


class MemoryStream:
    """One end. `room` bounds what the other end has not read yet."""

    def __init__(self, room: int = 65536) -> None:
        self.room = room
        self.incoming: deque[bytes] = deque()
        self.arrived = trio.Event()
        self.drained = trio.Event()
        self.other: MemoryStream | None = None
        self.closed = False
        self.taken: list[int] = []

    async def wait_readable(self) -> None:
        await trio.lowlevel.checkpoint()
        while not self.incoming:
            if self.other is None or self.other.closed:
                return
            await self.arrived.wait()
            self.arrived = trio.Event()

    async def receive_into(self, view: memoryview) -> int:
        await self.wait_readable()
        if not self.incoming:
            return 0
        data = self.incoming.popleft()
        count = min(len(view), len(data))
        view[:count] = data[:count]
        if count < len(data):
            self.incoming.appendleft(data[count:])
        self.other.drained.set()
        return count

    def send_nowait(self, parts) -> int:
        if self.closed or self.other.closed:
            raise trio.BrokenResourceError("closed")
        waiting = sum(len(each) for each in self.other.incoming)
        data = b"".join(parts)[: max(0, self.room - waiting)]
        if data:
            self.other.incoming.append(data)
            self.other.arrived.set()
            self.taken.append(len(data))
        return len(data)

    def send_file_nowait(self, fd: int, position: int, size: int) -> int:
        import os

        data = os.pread(fd, size, position)
        if not data:
            raise trio.BrokenResourceError("file ends")
        return self.send_nowait([data])

    async def wait_writable(self) -> None:
        await self.drained.wait()
        self.drained = trio.Event()

    def close(self) -> None:
        self.closed = True
        if self.other is not None:
            self.other.arrived.set()
            self.other.drained.set()


def memory_pair(room: int = 65536) -> tuple[MemoryStream, MemoryStream]:
    left, right = MemoryStream(room), MemoryStream(room)
    left.other, right.other = right, left
    return left, right

"""The sending half of a connection: an ordered queue of parts, sent at once as far as they go.

`flush` is called at the end of a turn and sends what the transport takes without waiting; only
when it is full does the writer task wait for room. One `sendmsg` takes everything that is ready,
and file slices go by `sendfile`.
"""

from collections import deque
from collections.abc import Callable
from typing import final

import attrs
import trio

from raftlog.base.binary import Buffer
from raftlog.runtime.disks.open_files import PinnedSlice
from raftlog.runtime.network.streams import SEND_PARTS_MAX, ByteStream

OutPart = Buffer | PinnedSlice


@final
@attrs.define(eq=False)
class Sender:
    """`queued_bytes` is what has been put and not yet taken by the transport.

    Invariant: `_blocked` is True exactly while the writer task must wait for room.
    """

    stream: ByteStream
    queued_bytes: int = attrs.field(default=0, init=False)
    sent_bytes: int = attrs.field(default=0, init=False)
    _parts: deque[OutPart] = attrs.field(factory=deque, init=False)
    _blocked: bool = attrs.field(default=False, init=False)
    _wake: trio.Event = attrs.field(factory=trio.Event, init=False)
    _closed: bool = attrs.field(default=False, init=False)

    def put(self, part: OutPart) -> None:
        """Queue one part. Views must stay as they are until they have left."""
        size = len(part)
        if size == 0:
            return
        self._parts.append(part)
        self.queued_bytes += size

    def flush(self) -> None:
        """Send what goes without waiting. Raises `trio.BrokenResourceError` when the stream
        broke."""
        if self._blocked or self._closed:
            return
        while self._parts:
            if not self._send_head():
                self._blocked = True
                self._wake.set()
                return

    def _send_head(self) -> bool:
        """Send from the head of the queue; False when the transport is full."""
        head = self._parts[0]
        if isinstance(head, PinnedSlice):
            sent = self.stream.send_file_nowait(head.fd, head.position, head.size)
            head.advance(sent)
            if head.size == 0:
                self._parts.popleft().release()  # type: ignore[union-attr]
            self._account(sent)
            return sent > 0
        ready: list[Buffer] = []
        for part in self._parts:
            if isinstance(part, PinnedSlice) or len(ready) == SEND_PARTS_MAX:
                break
            ready.append(part)
        sent = self.stream.send_nowait(ready)
        self._account(sent)
        if self.queued_bytes == 0:
            self._parts.clear()
        else:
            self._drop(sent)
        return sent > 0

    def _account(self, sent: int) -> None:
        self.queued_bytes -= sent
        self.sent_bytes += sent
        assert self.queued_bytes >= 0, self.queued_bytes

    def _drop(self, sent: int) -> None:
        parts = self._parts
        while sent:
            head = parts.popleft()
            assert not isinstance(head, PinnedSlice)
            size = len(head)
            if size > sent:
                parts.appendleft(memoryview(head)[sent:])
                return
            sent -= size

    async def run(self, progress: Callable[[], None]) -> None:
        """The writer task: waits for room whenever `flush` could not go on, and calls `progress`
        after each time that some left. Ends by cancellation or with `trio.BrokenResourceError`."""
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            while self._blocked:
                await self.stream.wait_writable()
                self._blocked = False
                self.flush()
                progress()

    def close(self) -> None:
        """Drop what is queued and let go of its files."""
        self._closed = True
        while self._parts:
            part = self._parts.popleft()
            if isinstance(part, PinnedSlice):
                part.release()
        self.queued_bytes = 0

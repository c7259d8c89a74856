"""Clients that send frames, or parts of them, and the receivers at the other end."""

import struct

import attrs
import trio
from trio.testing import wait_all_tasks_blocked

from raftlog.base.errors import ProtocolError
from raftlog.base.units import MIB
from raftlog.kafka.frames import FrameCutter
from raftlog.runtime.network import framing
from raftlog.runtime.network.framing import FrameReceiver
from raftlog.runtime.network.intake import Intake
from raftlog.runtime.network.slabs import SIZE_CLASSES, Slab, make_slab, size_for
from tests.runtime.memory_stream import memory_pair

LARGE = 20 * MIB


class Sender:
    """A client end, the receiver at the other end, and what came of it."""

    paused: trio.Event | None = None

    def __init__(self, intake: Intake) -> None:
        self.stream, right = memory_pair(room=10**9)
        cutter = FrameCutter.for_requests(frame_bytes_max=32 * MIB)
        self.receiver = FrameReceiver(right, cutter, intake, self.hang_up)
        self.frames = 0
        self.error: ProtocolError | str | None = None
        self.scope = trio.CancelScope()

    def hang_up(self, why: str) -> None:
        self.error = why
        self.scope.cancel()

    def announce(self, size: int, sent: int) -> None:
        """The beginning of a produce request of `size` bytes, `sent` of them."""
        self.stream.send_nowait([struct.pack(">ihh", size, 0, 9) + bytes(sent - 4)])

    def send_whole(self, size: int) -> None:
        self.announce(size, size)

    def finish(self, size: int) -> None:
        self.stream.send_nowait([bytes(size)])

    async def run(self) -> None:
        try:
            with self.scope:
                while await self.receiver.receive():
                    self.frames += len(self.receiver.frames())
                    self.receiver.handed_in()
                    if self.paused is not None:
                        self.receiver.rest()
                        await self.paused.wait()
                        self.paused = None
                        self.receiver.resume()
        except ProtocolError as error:
            self.error = error
        finally:
            self.receiver.close()

    def unread(self) -> int:
        """Bytes under way."""
        return sum(map(len, self.receiver.stream.incoming))

    @property
    def slab(self) -> int:
        return len(self.receiver._slab or b"")


@attrs.define(eq=False)
class Holder:
    """A receiver of which so much has arrived."""

    bytes: int | None = None
    evicted: int = 0

    def arrived(self) -> int | None:
        return self.bytes

    def give_back(self) -> None:
        pass

    def evict(self) -> None:
        self.evicted += 1


class LittleMemory:
    """There is no memory for slabs larger than `size_max`, as with a limit on the process."""

    def __init__(self, monkeypatch, size_max: int = SIZE_CLASSES[-1]) -> None:
        self.size_max = size_max
        monkeypatch.setattr(framing, "make_slab", self.make)

    def make(self, size: int) -> Slab:
        if size_for(size) > self.size_max:
            size = 1 << 62  # the system says no
        return make_slab(size)


async def senders(nursery, intake, count) -> list[Sender]:
    made = [Sender(intake) for _ in range(count)]
    for each in made:
        nursery.start_soon(each.run)
    await wait_all_tasks_blocked()
    return made

"""Planted bugs of the shell, which only trio mode runs, and one of the client's driver.

They are in back-pressure, partial sends, the order of answers, and the reports of the log writer.
The heap world has no such parts.
"""

from weakref import WeakKeyDictionary

from raftlog.broker.events import Reply
from raftlog.client.core.fetcher import Polled
from raftlog.client.trio_driver import Client
from raftlog.runtime.disks import log_writer
from raftlog.runtime.network.intake import Intake, Receiver
from raftlog.runtime.network.listener import AcceptedConnection
from raftlog.runtime.network.sender import Sender
from raftlog.seal import frames
from raftlog.seal import handshake as seal_handshake
from raftlog.storage.write_round import RoundResult


def paused_clients_are_read() -> None:
    """35: a paused connection is read all the same."""

    async def at_once(self: AcceptedConnection) -> None:
        del self

    AcceptedConnection.wait_running = at_once  # type: ignore[method-assign]


def rest_of_a_part_is_dropped() -> None:
    """35b: a part of which the transport took only the beginning counts as sent."""

    def drop(self: Sender, sent: int) -> None:
        while sent > 0:
            sent -= len(self._parts.popleft())

    Sender._drop = drop  # type: ignore[method-assign]


def answers_as_they_come() -> None:
    """35c: an answer leaves when it is decided, before those of earlier requests."""

    in_order = AcceptedConnection.reply

    def reply(self: AcceptedConnection, reply: Reply) -> None:
        self._next_reply = reply.request_no
        in_order(self, reply)

    AcceptedConnection.reply = reply  # type: ignore[method-assign]


def told_before_it_is_synced() -> None:
    """35d: a round is reported when it is written; the next round syncs it."""
    step = log_writer._Performing.step

    def told(self: log_writer._Performing) -> bool:
        if not step(self):
            return False
        if self._steps is None or not self._steps.written:
            return True
        self.result = RoundResult(self.writes[-1].io_id, None, {})
        if self.ended is not None:
            self.ended(self)
        return False

    log_writer._Performing.step = told  # type: ignore[method-assign]


def fetched_pieces_are_lost() -> None:
    """35e: every third piece that a consumer has fetched ahead is lost on its way to `poll`."""
    poll, given = Client.poll, WeakKeyDictionary[Client, int]()

    async def lossy(
        self: Client, *, seconds: float = 1.0, bytes_max: int = 1 << 20
    ) -> list[Polled]:
        found = await poll(self, seconds=seconds, bytes_max=bytes_max)
        given[self] = given.get(self, 0) + bool(found)
        return found if given[self] % 3 else []

    Client.poll = lossy  # type: ignore[method-assign]


def slices_of_lost_clients_stay_pinned() -> None:
    """35f: bytes that were queued for a connection that ended keep its files open."""

    def close(self: Sender) -> None:
        self._closed = True
        self._parts.clear()
        self.queued_bytes = 0

    Sender.close = close  # type: ignore[method-assign]


def half_a_frame_holds_memory_for_ever() -> None:
    """35g: a connection that ended inside a large frame still counts for the memory it held."""

    def release(self: Intake, who: Receiver) -> None:
        del self, who

    Intake.release = release  # type: ignore[method-assign]


def frames_are_not_counted() -> None:
    """35h: every frame of a link is sealed under the same nonce, so its place is not proved."""
    nonce = frames._Keys.nonce

    def first(self: frames._Keys) -> bytes:
        self.number = 0
        return nonce(self)

    frames._Keys.nonce = first  # type: ignore[method-assign]


def both_directions_share_a_key() -> None:
    """35i: a frame that a broker sealed can be opened by that broker itself."""
    keys = seal_handshake._keys

    def shared(secret: bytes, whole: bytes, *, dialled: bool) -> seal_handshake.SessionKeys:
        found = keys(secret, whole, dialled=True)
        del dialled
        return found._replace(receiving=found.sending)

    seal_handshake._keys = shared


MUTANTS = (
    ("35", "paused-clients-are-read", paused_clients_are_read, ("back-pressure",)),
    ("35b", "rest-of-a-part-is-dropped", rest_of_a_part_is_dropped, ("peer-protocol", "liveness")),
    ("35c", "answers-as-they-come", answers_as_they_come, ("answers-in-order",)),
    ("35d", "told-before-it-is-synced", told_before_it_is_synced,
     ("promise-durable", "durable-on-disk", "registered-first")),
    ("35e", "fetched-pieces-are-lost", fetched_pieces_are_lost, ("records-followed",)),
    ("35f", "slices-of-lost-clients-stay-pinned", slices_of_lost_clients_stay_pinned,
     ("assertion",)),
    ("35g", "half-a-frame-holds-memory-for-ever", half_a_frame_holds_memory_for_ever,
     ("nothing-left",)),
    ("35h", "frames-are-not-counted", frames_are_not_counted, ("peer-protocol",)),
    ("35i", "both-directions-share-a-key", both_directions_share_a_key, ("peer-protocol",)),
)  # fmt: skip

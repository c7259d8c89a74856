"""Links to the other brokers: one authenticated stream per pair, redialled with backoff.

A session is one such stream. It delivers in order or it ends. When it ends, its queued messages are
lost, and `LinkDown` reports that. Either side may dial. When a pair has two streams:

* The stream dialled by the lower node id stays, so both ends choose alike.
* A newer stream of the same dialler, or of a later boot of the same data directory, replaces the
  old one. The old one is then dead, and its end has not been noticed yet.
* Another process that claims the same node id (a copied configuration, a copied disk) is refused
  while the cluster holds the linked process for alive. Otherwise the two would cut each other off
  without end.

A frame is u32 length, u32 CRC-32C of the body, body (raftlog.broker.peer_codec), of the protocol
version that the handshake agreed on. On a sealed link the body is encrypted and has a tag behind it
(raftlog.seal.frames); a frame that does not open ends the link.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Final, final

import attrs
import trio

from raftlog.base.binary import Buffer
from raftlog.base.checksum import crc32c
from raftlog.base.errors import ProtocolError, RaftlogError, RemoteError
from raftlog.base.ids import BootNumber, ClusterId, DirectoryId, NodeId
from raftlog.base.limits import PEER_FRAME_BYTES_MAX
from raftlog.base.ports import Entropy, Tracer
from raftlog.base.trace import TraceEvent
from raftlog.broker.events import LinkDown, LinkUp, PeerAddress, PeerMessages, PeerSend, Unlink
from raftlog.broker.peer_codec import INCARNATIONS_FROM, PROTOCOLS, PeerCodec
from raftlog.kafka.frames import FrameCutter
from raftlog.runtime.driver import Driver
from raftlog.runtime.network import handshake
from raftlog.runtime.network.framing import FrameReceiver
from raftlog.runtime.network.handshake import Agreed, PeerIdentity, PlainPeerError, Trust
from raftlog.runtime.network.sender import Sender
from raftlog.runtime.network.slabs import NoMemory
from raftlog.runtime.network.streams import ByteStream, Network
from raftlog.seal.frames import OVERHEAD_BYTES, Opener, Sealer
from raftlog.storage.directories.incarnations import NONE

_HEAD: Final = struct.Struct(">II")
_CRC: Final = struct.Struct(">I")
_CRC_BYTES: Final = 4
JOIN_BYTES_MAX: Final = 4096
LINK_QUEUE_BYTES_MAX: Final = 256 * 1024 * 1024
"""Unsent bytes on one link before it is cut: Raft's windows keep it far below; a peer that reads
nothing for so long is as good as gone."""
REDIAL_SECONDS_MIN: Final = 0.05
REDIAL_SECONDS_MAX: Final = 1.0
HANDSHAKES_MAX: Final = 128
"""Strangers on the peer port at one time, each for at most HANDSHAKE_SECONDS: more than brokers.
With one more the oldest is closed."""
JOINER: Final = ClusterId(bytes(16))
"""The cluster id of a broker that does not know its cluster yet."""
HIGHER_DIALS_LATER_SECONDS: Final = 0.1
"""The lower node id's stream stays, so the higher one gives it time to come first."""


@final
class _ImpostorError(RemoteError):
    """A peer claims the node id of another process."""


@final
@attrs.define(eq=False)
class PeerLink:
    """One live session."""

    agreed: Agreed
    codec: PeerCodec
    stream: ByteStream
    sender: Sender
    sealer: Sealer | None
    """None on a plain link."""
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    gone: trio.Event = attrs.field(factory=trio.Event, init=False)


@final
@attrs.define(eq=False)
class PeerLinks:
    """The driver's `Peers`. `identity` is what we say in handshakes."""

    driver: Driver
    trust: Trust
    identity: PeerIdentity
    entropy: Entropy
    tracer: Tracer
    nursery: trio.Nursery
    stands: Callable[[NodeId, DirectoryId, BootNumber, str], bool]
    """Whether the process with this identity is the one that the cluster holds for alive under its
    node id (`Registration.peer_stands`)."""
    network: Network
    codecs: Mapping[int, PeerCodec] = PROTOCOLS
    """The codecs of this release by protocol version: the range that `identity` states."""
    _links: dict[NodeId, PeerLink] = attrs.field(factory=dict, init=False)
    _dialling: dict[PeerAddress, trio.CancelScope] = attrs.field(factory=dict, init=False)
    _shaking: dict[NodeId, trio.Lock] = attrs.field(factory=dict, init=False)
    """Held while we shake hands with a node that we dialled."""
    _to_flush: dict[NodeId, PeerLink] = attrs.field(factory=dict, init=False)
    _last_trouble: dict[tuple[NodeId, str], str] = attrs.field(factory=dict, init=False)
    """The trouble last traced for a node, by dialled address; "" for trouble without an address."""
    _handshakes: dict[int, trio.CancelScope] = attrs.field(factory=dict, init=False)
    """Handshakes under way with peers that dialled us; the oldest first."""
    _last_handshake: int = attrs.field(default=0, init=False)

    # --- what the driver calls ------------------------------------------------------------------

    def keep(self, addresses: tuple[PeerAddress, ...]) -> None:
        """Keep links to exactly these peers, as far as we dial; others may still dial us. A node
        that has two addresses is dialled at both, until one of them is linked."""
        wanted = dict.fromkeys(each for each in addresses if each.node != self.identity.node)
        for address, scope in list(self._dialling.items()):
            if address not in wanted:
                scope.cancel()
                del self._dialling[address]
        for address in wanted:
            if address not in self._dialling:
                scope = self._dialling[address] = trio.CancelScope()
                name = f"dial {address.node}"
                self.nursery.start_soon(self._dial_for_ever, address, scope, name=name)

    def send(self, send: PeerSend) -> None:
        """Queue messages on the session that they were meant for; dropped when it is over."""
        link = self._links.get(send.peer)
        if link is None or link.agreed.session != send.session:
            return
        for parts in link.codec.encode_frames(send.messages):
            _put_frame(link, parts)
        self._to_flush[send.peer] = link

    def unlink(self, unlink: Unlink) -> None:
        """Break the link of this session, if it is still there; its dialler dials again."""
        link = self._links.get(unlink.peer)
        if link is not None and link.agreed.session == unlink.session:
            self._trouble(unlink.peer, "a later boot of it registered; the link is cut")
            link.scope.cancel()

    def flush(self) -> None:
        """Send what this turn has queued."""
        waiting, self._to_flush = self._to_flush, {}
        for link in waiting.values():
            try:
                link.sender.flush()
            except trio.BrokenResourceError:
                link.scope.cancel()
            if link.sender.queued_bytes > LINK_QUEUE_BYTES_MAX:
                self._trouble(link.agreed.peer.node, "it reads nothing; the link is cut")
                link.scope.cancel()

    # --- dialling and accepting -----------------------------------------------------------------

    async def _dial_for_ever(self, address: PeerAddress, scope: trio.CancelScope) -> None:
        with scope:
            pause = REDIAL_SECONDS_MIN
            if address.node < self.identity.node:
                await trio.sleep(HIGHER_DIALS_LATER_SECONDS)
            while True:
                if (link := self._links.get(address.node)) is not None:
                    await link.gone.wait()
                    pause = REDIAL_SECONDS_MIN
                if await self._dial_once(address):
                    pause = REDIAL_SECONDS_MIN
                jitter = self.entropy.below(1000) / 1000
                await trio.sleep(pause * (0.5 + jitter / 2))
                pause = min(2 * pause, REDIAL_SECONDS_MAX)

    async def _dial_once(self, address: PeerAddress) -> bool:
        """Dial and serve the link until it ends; whether there was one. A peer that hangs up on a
        sealed hello is dialled once more for a plain link, where those are allowed."""
        for sealed in (True, False) if self.identity.seals else (False,):
            try:
                with trio.fail_after(handshake.HANDSHAKE_SECONDS):
                    stream = await self.network.connect(address.host, address.port)
            except (OSError, trio.TooSlowError) as error:
                self._trouble(address.node, f"cannot be reached: {error}", _text(address))
                return False
            with closing(stream):
                try:
                    agreed = await self._shake_dialled(address, stream, sealed=sealed)
                except PlainPeerError as error:
                    if self.trust.required:
                        self._trouble(address.node, f"handshake failed: {error}", _text(address))
                        return False
                except (RaftlogError, trio.BrokenResourceError, trio.TooSlowError) as error:
                    self._trouble(address.node, f"handshake failed: {error}", _text(address))
                    return False
                else:
                    return agreed is None or await self._serve_link(agreed, stream)
        return False

    async def _shake_dialled(
        self, address: PeerAddress, stream: ByteStream, *, sealed: bool
    ) -> Agreed | None:
        """The agreement with a node that we dialled; None when we are linked already."""
        with trio.fail_after(handshake.HANDSHAKE_SECONDS):
            # Both addresses of a node may lead to it. Two handshakes at a time could end in
            # another order there than here, and each end would then keep the other's corpse.
            async with self._shaking.setdefault(address.node, trio.Lock()):
                link = self._links.get(address.node)
                if link is not None and link.agreed.dialled_by == self.identity.node:
                    return None
                return await handshake.dial(
                    stream, self.trust, self.identity, self.entropy, address.node, sealed=sealed
                )

    async def accept(self, stream: ByteStream, address: str) -> None:
        """Serve a stream that arrived at our peer listener."""
        with closing(stream):
            agreed = await self._shake_hands(stream, address)
            # One who would join only asked which cluster this is.
            if agreed is not None and agreed.peer.cluster != JOINER:
                await self._serve_link(agreed, stream)

    async def _shake_hands(self, stream: ByteStream, address: str) -> Agreed | None:
        """The agreement with the end that dialled; None when it is no peer."""
        # Beyond the bound the oldest handshake is cancelled: a peer needs only two round trips,
        # while a stranger uses all the time it is given.
        if len(self._handshakes) == HANDSHAKES_MAX:
            self._handshakes.pop(next(iter(self._handshakes))).cancel()
        self._last_handshake = number = self._last_handshake + 1
        try:
            with trio.fail_after(handshake.HANDSHAKE_SECONDS) as scope:
                self._handshakes[number] = scope
                try:
                    return await handshake.accept(
                        stream, self.trust, self.identity, self.entropy, self._admit
                    )
                finally:
                    self._handshakes.pop(number, None)
        except _ImpostorError:
            return None
        except (RaftlogError, trio.BrokenResourceError, trio.TooSlowError) as error:
            fields = (("why", str(error) or "the handshake took too long"),)
            self.tracer.emit(TraceEvent("peer-refused", address, fields))
            return None

    def _admit(self, peer: PeerIdentity) -> None:
        """Raises `_ImpostorError` for a second process that says it is the node that is linked; it
        will come again and again, and is traced once."""
        link = self._links.get(peer.node)
        if link is None or peer.cluster not in (self.identity.cluster, JOINER):
            return  # a stranger to the cluster is told so when it knows ours
        old = link.agreed.peer
        if _same_process(peer, old):
            return
        if peer.directory == old.directory and peer.boot != old.boot:
            if peer.boot > old.boot:
                return
            what = f"a later boot of data directory {old.directory:016x} is linked"
        elif self.stands(old.node, old.directory, old.boot, old.address):
            where = f"data directory {old.directory:016x} at {old.address}"
            what = f"node id {old.node} is alive on {where}"
        else:
            return
        error = _ImpostorError(
            f"another broker says that it is node {peer.node}: {what}",
            on=peer.address,
            do="stop it, and give each broker its own node.id and data directory",
        )
        self._trouble(peer.node, str(error))
        raise error

    def _trouble(self, node: NodeId, what: str, at: str = "") -> None:
        """Trace trouble with a peer once, not at every redial; `at` is the address that was
        dialled."""
        if self._last_trouble.get((node, at)) != what:
            self._last_trouble[node, at] = what
            fields = (("why", what), ("at", at)) if at else (("why", what),)
            self.tracer.emit(TraceEvent("peer-trouble", f"node {node}", fields))

    # --- a session --------------------------------------------------------------------------------

    async def _serve_link(self, agreed: Agreed, stream: ByteStream) -> bool:
        """Serve the link until it ends; whether it was one. The caller closes the stream of one
        that never began."""
        node = agreed.peer.node
        old = self._links.get(node)
        if old is not None:
            try:
                self._admit(agreed.peer)
            except _ImpostorError:
                return False
            if not _replaces(agreed, old.agreed):
                return False
            old.scope.cancel()
            await old.gone.wait()
            if node in self._links:  # another stream was faster
                return False
        sealer = None if agreed.keys is None else Sealer(agreed.keys.sending)
        link = PeerLink(agreed, self.codecs[agreed.protocol], stream, Sender(stream), sealer)
        self._links[node] = link
        for key in [key for key in self._last_trouble if key[0] == node]:
            del self._last_trouble[key]
        peer = agreed.peer
        speaks = agreed.protocol >= INCARNATIONS_FROM
        life = peer.incarnation if speaks else NONE
        self.driver.post(LinkUp(node, agreed.session, peer.directory, peer.boot, life))
        try:
            with link.scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._write, link, name=f"peer writer {node}")
                    await self._read(link)
                    nursery.cancel_scope.cancel()
        finally:
            del self._links[node]
            self._to_flush.pop(node, None)
            link.sender.close()
            stream.close()  # before the link that replaces this one begins
            link.gone.set()
            self.driver.post(LinkDown(node, agreed.session))
        return True

    async def _write(self, link: PeerLink) -> None:
        try:
            await link.sender.run(_nothing)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            link.scope.cancel()

    async def _read(self, link: PeerLink) -> None:
        keys = link.agreed.keys
        receiver = FrameReceiver(link.stream, _peer_frames(sealed=keys is not None))
        node, session, decode = link.agreed.peer.node, link.agreed.session, link.codec.decode
        body = _body if keys is None else Opener(keys.receiving).open
        try:
            while await receiver.receive():
                self.driver.post_from_peer(
                    [PeerMessages(node, session, decode(body(each))) for each in receiver.frames()]
                )
        except ProtocolError as error:
            self._trouble(node, f"sent a bad frame: {error}")
        except NoMemory as error:
            self._trouble(node, str(error))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            link.scope.cancel()
        finally:
            receiver.close()


def _text(address: PeerAddress) -> str:
    return f"{address.host}:{address.port}"


def _put_frame(link: PeerLink, parts: Sequence[Buffer]) -> None:
    """Queue one frame; a small one as one part, for parts cost more than copying a few bytes."""
    size = sum(map(len, parts))
    assert size <= PEER_FRAME_BYTES_MAX, size
    sender = link.sender
    if link.sealer is not None:
        sender.put(link.sealer.seal(parts))
        return
    if size <= JOIN_BYTES_MAX:
        body = b"".join(parts)
        sender.put(_HEAD.pack(size + _CRC_BYTES, crc32c(body)) + body)
        return
    crc = 0
    for part in parts:
        crc = crc32c(part, crc)
    sender.put(_HEAD.pack(size + _CRC_BYTES, crc))
    for part in parts:
        sender.put(part)


def _nothing() -> None:
    """Peer links report no drained bytes: Raft's windows bound them."""


def _peer_frames(*, sealed: bool) -> FrameCutter:
    more = OVERHEAD_BYTES if sealed else _CRC_BYTES
    return FrameCutter(
        frame_bytes_min=more,
        frame_bytes_max=PEER_FRAME_BYTES_MAX + more,
        small_frame_bytes_max=PEER_FRAME_BYTES_MAX + more,
    )


def _body(frame: memoryview) -> memoryview:
    """The body of a frame; `ProtocolError` when its checksum is wrong."""
    body = frame[_CRC_BYTES:]
    said = int(_CRC.unpack_from(frame)[0])
    found = crc32c(body)
    if said != found:
        raise ProtocolError(f"peer frame has CRC {found:#010x}, says {said:#010x}")
    return body


def _same_process(one: PeerIdentity, other: PeerIdentity) -> bool:
    return (one.directory, one.boot, one.address) == (other.directory, other.boot, other.address)


def _replaces(new: Agreed, old: Agreed) -> bool:
    """Whether a new stream of an admitted peer replaces the old one; both ends come to the same
    answer."""
    if not _same_process(new.peer, old.peer):
        return True
    if new.dialled_by == old.dialled_by:
        return True
    return new.dialled_by < old.dialled_by

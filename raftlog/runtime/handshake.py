"""How two brokers prove to each other that they know the cluster's secret, before anything else
is parsed.

All messages have a fixed size until both proofs are checked, so nothing an outsider sends is
parsed:

    dialler  -> acceptor   magic 8, nonce 32
    acceptor -> dialler    magic 8, nonce 32, proof 32 = HMAC(secret, "acceptor", nonces)
    dialler  -> acceptor   proof 32 = HMAC(secret, "dialler", nonces), identity
    acceptor -> dialler    identity, or a refusal: text that says why there is no link

Both are a block of at most 1 KiB followed by HMAC(secret, role, nonces, block): it cannot be
changed or replayed by somebody who merely forwards bytes. The roles in the proofs
defeat reflection. HMAC is SHA-256; comparison takes the same time whatever differs.
"""

import hashlib
import hmac
import struct
from collections.abc import Callable
from typing import Final, NamedTuple

from raftlog.base.binary import Reader, Writer
from raftlog.base.errors import FutureFormat, ProtocolError, RemoteError
from raftlog.base.ids import BootNumber, ClusterId, DirectoryId, NodeId, SessionId
from raftlog.base.ports import Entropy
from raftlog.broker.peer_codec import common_version
from raftlog.runtime.streams import ByteStream

MAGIC: Final = b"raftlogP"
NONCE_BYTES: Final = 32
PROOF_BYTES: Final = 32
IDENTITY_BYTES_MAX: Final = 1024
HANDSHAKE_SECONDS: Final = 5.0
_SIZE: Final = struct.Struct(">I")
_CLUSTER_BYTES: Final = 16


class PeerIdentity(NamedTuple):
    """What a broker says of itself. `cluster` is all zero for a joiner that has not been told
    yet."""

    cluster: ClusterId
    node: NodeId
    directory: DirectoryId
    boot: BootNumber
    protocol_min: int
    protocol_max: int
    address: str


class Agreed(NamedTuple):
    """What a finished handshake has fixed."""

    peer: PeerIdentity
    session: SessionId
    dialled_by: NodeId
    protocol: int
    """The version of peer frames, in both directions."""


def write_identity(identity: PeerIdentity) -> bytes:
    """Layout: cluster 16, node u32, directory u64, boot u64, protocol min u16 max u16, address."""
    writer = Writer().raw(identity.cluster).u32(identity.node).u64(identity.directory)
    writer.u64(identity.boot).u16(identity.protocol_min).u16(identity.protocol_max)
    return writer.text(identity.address).bytes()


def read_identity(data: bytes, newest: int) -> PeerIdentity:
    """The reverse of `write_identity`; `ProtocolError` for anything else. What a peer that speaks a
    later protocol than `newest` says behind these fields is for its like, and is left unread."""
    reader = Reader(data, ProtocolError, "peer identity")
    identity = PeerIdentity(
        ClusterId(bytes(reader.take(_CLUSTER_BYTES))),
        NodeId(reader.u32()),
        DirectoryId(reader.u64()),
        BootNumber(reader.u64()),
        reader.u16(),
        reader.u16(),
        reader.text(IDENTITY_BYTES_MAX),
    )
    if identity.protocol_max <= newest:
        reader.end()
    return identity


def _mac(secret: bytes, *parts: bytes) -> bytes:
    return hmac.new(secret, b"".join(parts), hashlib.sha256).digest()


async def dial(
    stream: ByteStream, secret: bytes, mine: PeerIdentity, entropy: Entropy, expected: NodeId
) -> Agreed:
    """The dialler's side. Raises `RemoteError` when the other end is not a peer of this cluster."""
    nonce = entropy.bytes(NONCE_BYTES)
    await _send(stream, MAGIC + nonce)
    hello = await _receive(stream, len(MAGIC) + NONCE_BYTES + PROOF_BYTES)
    nonces = nonce + _nonce_of(hello)
    _check_proof(hello[-PROOF_BYTES:], _mac(secret, b"acceptor", nonces))
    proof = _mac(secret, b"dialler", nonces)
    mine_written = write_identity(mine)
    await _send(stream, proof + _sealed(secret, b"dialler identity", nonces, mine_written))
    body, seal = await _receive_sealed(stream)
    if hmac.compare_digest(seal, _mac(secret, b"acceptor refusal", nonces, body)):
        raise RemoteError(f"the other end refused: {body.decode(errors='replace')}")
    _check_proof(seal, _mac(secret, b"acceptor identity", nonces, body))
    peer = read_identity(body, mine.protocol_max)
    if peer.node != expected:
        raise RemoteError(f"node {expected} was dialled, node {peer.node} answered")
    return _agree(secret, nonces, mine, peer, mine.node)


async def accept(
    stream: ByteStream,
    secret: bytes,
    mine: PeerIdentity,
    entropy: Entropy,
    admit: Callable[[PeerIdentity], None],
) -> Agreed:
    """The acceptor's side, likewise. `admit` raises `RemoteError` for a peer that may not be
    linked; it is told why instead of who we are, so that for it there was no link."""
    hello = await _receive(stream, len(MAGIC) + NONCE_BYTES)
    nonce = entropy.bytes(NONCE_BYTES)
    nonces = _nonce_of(hello) + nonce
    await _send(stream, MAGIC + nonce + _mac(secret, b"acceptor", nonces))
    _check_proof(await _receive(stream, PROOF_BYTES), _mac(secret, b"dialler", nonces))
    body, seal = await _receive_sealed(stream)
    _check_proof(seal, _mac(secret, b"dialler identity", nonces, body))
    peer = read_identity(body, mine.protocol_max)
    try:
        admit(peer)
    except RemoteError as error:
        why = str(error).encode()[:IDENTITY_BYTES_MAX]
        await _send(stream, _sealed(secret, b"acceptor refusal", nonces, why))
        raise
    mine_written = write_identity(mine)
    await _send(stream, _sealed(secret, b"acceptor identity", nonces, mine_written))
    return _agree(secret, nonces, mine, peer, peer.node)


def _agree(
    secret: bytes, nonces: bytes, mine: PeerIdentity, peer: PeerIdentity, dialled_by: NodeId
) -> Agreed:
    joiner = bytes(_CLUSTER_BYTES)
    if peer.cluster != mine.cluster and joiner not in (peer.cluster, mine.cluster):
        raise RemoteError(
            f"node {peer.node} belongs to cluster {peer.cluster.hex()}, not {mine.cluster.hex()}",
            do="point it at its own cluster, or format its data directory anew",
        )
    if peer.node == mine.node:
        raise RemoteError(
            f"another broker says that it is node {mine.node}",
            on=peer.address,
            do="give each broker its own node.id",
        )
    protocol = common_version(
        (mine.protocol_min, mine.protocol_max), (peer.protocol_min, peer.protocol_max)
    )
    if protocol is None:
        raise FutureFormat(
            f"node {peer.node} speaks peer protocol {peer.protocol_min} to {peer.protocol_max}, "
            f"this release {mine.protocol_min} to {mine.protocol_max}",
            do="upgrade one release at a time",
        )
    number = int.from_bytes(_mac(secret, b"session", nonces)[:8], "big") >> 1
    return Agreed(peer, SessionId(number), dialled_by, protocol)


def _nonce_of(hello: bytes) -> bytes:
    if hello[: len(MAGIC)] != MAGIC:
        raise ProtocolError("the other end does not speak the peer protocol")
    return hello[len(MAGIC) : len(MAGIC) + NONCE_BYTES]


def _check_proof(given: bytes, right: bytes) -> None:
    if not hmac.compare_digest(given, right):
        raise RemoteError(
            "the other end does not know the cluster secret",
            do="give every broker the same raftlog.cluster.secret.file",
        )


def _sealed(secret: bytes, role: bytes, nonces: bytes, body: bytes) -> bytes:
    """Size, body, and the proof that it was said in this handshake and in this role."""
    assert len(body) <= IDENTITY_BYTES_MAX, len(body)
    return _SIZE.pack(len(body)) + body + _mac(secret, role, nonces, body)


async def _receive_sealed(stream: ByteStream) -> tuple[bytes, bytes]:
    """A body and its proof, which the caller checks before it looks at the body."""
    size = int(_SIZE.unpack(await _receive(stream, _SIZE.size))[0])
    if size > IDENTITY_BYTES_MAX:
        raise ProtocolError(f"peer identity of {size} bytes")
    return await _receive(stream, size), await _receive(stream, PROOF_BYTES)


async def _receive(stream: ByteStream, size: int) -> bytes:
    """Exactly `size` bytes and not one more, for what follows is framed by somebody else."""
    buffer = bytearray(size)
    got = 0
    with memoryview(buffer) as view:
        while got < size:
            received = await stream.receive_into(view[got:])
            if received == 0:
                raise ProtocolError(
                    "the other end hung up during the handshake",
                    do="compare cluster secrets, cluster ids and node ids in both brokers' output",
                )
            got += received
    return bytes(buffer)


async def _send(stream: ByteStream, data: bytes) -> None:
    view = memoryview(data)
    while view:
        sent = stream.send_nowait([view])
        view = view[sent:]
        if view:
            await stream.wait_writable()

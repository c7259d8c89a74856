"""The handshake by which two brokers prove to each other that they know the cluster's secret.

It comes before anything else is parsed.

Brokers of this release seal their links (`raftlog.seal.handshake`). With a broker of the last
release, which cannot, a link is plain, if `raftlog.peer.seal` allows that:

    dialler  -> acceptor   magic 8, nonce 32
    acceptor -> dialler    magic 8, nonce 32, proof 32 = HMAC(secret, "acceptor", nonces)
    dialler  -> acceptor   proof 32 = HMAC(secret, "dialler", nonces), identity
    acceptor -> dialler    identity, or a refusal: text that says why there is no link

Both are a block of at most 1 KiB followed by HMAC(secret, role, nonces, block): a relay that merely
forwards bytes can neither change nor replay it. The roles in the proofs defeat reflection.
HMAC is SHA-256; comparison takes the same time whatever differs.

A relay cannot turn a sealed link into a plain one. Each end says in its identity, which is proved
in either handshake, whether it seals, and two ends that do refuse each other on a plain link.
"""

import hashlib
import hmac
import struct
from collections.abc import Callable
from typing import Final, NamedTuple, final

import attrs

from raftlog.base.binary import Reader, Writer
from raftlog.base.errors import FutureFormat, ProtocolError, RemoteError
from raftlog.base.ids import BootNumber, ClusterId, DirectoryId, NodeId, SessionId
from raftlog.base.ports import Entropy
from raftlog.base.probes import probe
from raftlog.broker.peer_codec import SEALED_FROM, common_version
from raftlog.runtime.network.streams import ByteStream
from raftlog.seal import handshake as sealing
from raftlog.seal.fields import IDENTITY, INCARNATION, POLICY, read_fields, write_fields
from raftlog.seal.handshake import SessionKeys
from raftlog.storage.directories.incarnations import NONE, Incarnation

MAGIC: Final = b"raftlogP"
NONCE_BYTES: Final = 32
PROOF_BYTES: Final = 32
IDENTITY_BYTES_MAX: Final = 1024
HANDSHAKE_SECONDS: Final = 5.0
_SIZE: Final = struct.Struct(">I")
_LIFE: Final = struct.Struct(">Q")
_CLUSTER_BYTES: Final = 16
_ALLOWED: Final = b"\x01"
_REQUIRED: Final = b"\x02"


@final
@attrs.frozen
class Trust:
    """The demands of this end on a peer.

    `secrets`: the present secret first, then one that is also accepted while the cluster changes
    its secret. `required`: this end refuses plain links.
    """

    secrets: tuple[bytes, ...]
    required: bool = False


@final
class PlainPeerError(RemoteError):
    """The other end hung up on the hello of a sealed link, as the last release does."""


class PeerIdentity(NamedTuple):
    """The identity that a broker states. `cluster` is all zero for a joiner that does not know its
    cluster yet."""

    cluster: ClusterId
    node: NodeId
    directory: DirectoryId
    boot: BootNumber
    protocol_min: int
    protocol_max: int
    address: str
    incarnation: Incarnation = NONE
    """The incarnation of its data directory. Only sealed links carry it, in a field of its own."""

    @property
    def seals(self) -> bool:
        """Whether its release seals links."""
        return self.protocol_max >= SEALED_FROM


class Agreed(NamedTuple):
    """The facts that a finished handshake has fixed."""

    peer: PeerIdentity
    session: SessionId
    dialled_by: NodeId
    protocol: int
    """The version of peer frames, in both directions."""
    keys: SessionKeys | None = None
    """The keys of a sealed link; None on a plain one."""
    peer_requires_seals: bool = False
    """The other end refuses plain links; False when it could not say so."""


def write_identity(identity: PeerIdentity) -> bytes:
    """Layout: cluster 16, node u32, directory u64, boot u64, protocol min u16 max u16, address."""
    writer = Writer().raw(identity.cluster).u32(identity.node).u64(identity.directory)
    writer.u64(identity.boot).u16(identity.protocol_min).u16(identity.protocol_max)
    return writer.text(identity.address).bytes()


def read_identity(data: bytes, newest: int) -> PeerIdentity:
    """The reverse of `write_identity`; `ProtocolError` for anything else.

    A peer with a later protocol than `newest` may add fields behind these; they are not read.
    """
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
    stream: ByteStream,
    trust: Trust,
    mine: PeerIdentity,
    entropy: Entropy,
    expected: NodeId,
    *,
    sealed: bool,
) -> Agreed:
    """The dialler's side. Raises `RemoteError` when the other end is not a peer of this cluster,
    and `PlainPeerError` when it hangs up on a `sealed` hello."""
    if sealed:
        return await _dial_sealed(stream, trust, mine, entropy, expected)
    assert not trust.required, "a plain link is dialled, and seals are required"
    nonce = entropy.bytes(NONCE_BYTES)
    await _send(stream, MAGIC + nonce)
    hello = await _receive(stream, len(MAGIC) + NONCE_BYTES + PROOF_BYTES)
    nonces = nonce + _nonce_of(hello)
    secret = _proved(hello[-PROOF_BYTES:], trust.secrets, b"acceptor", nonces)
    proof = _mac(secret, b"dialler", nonces)
    mine_written = write_identity(mine)
    await _send(stream, proof + _sealed(secret, b"dialler identity", nonces, mine_written))
    body, seal = await _receive_sealed(stream)
    if hmac.compare_digest(seal, _mac(secret, b"acceptor refusal", nonces, body)):
        raise RemoteError(f"the other end refused: {body.decode(errors='replace')}")
    _proved(seal, (secret,), b"acceptor identity", nonces, body)
    peer = read_identity(body, mine.protocol_max)
    _expect(peer, expected)
    return _agree(_plain_session(secret, nonces), mine, peer, mine.node)


async def accept(
    stream: ByteStream,
    trust: Trust,
    mine: PeerIdentity,
    entropy: Entropy,
    admit: Callable[[PeerIdentity], None],
) -> Agreed:
    """The acceptor's side, likewise; the dialler's first bytes say which handshake it is. `admit`
    raises `RemoteError` for a peer that may not be linked. The peer then receives the reason in
    place of our identity, so it counts this as no link."""
    hello = await _receive(stream, len(MAGIC) + NONCE_BYTES)
    if mine.seals and hello.startswith(sealing.MAGIC):
        return await _accept_sealed(stream, hello, trust, mine, entropy, admit)
    theirs = _nonce_of(hello)
    if trust.required:
        probe("plain-peer-link-refused")
        raise RemoteError(
            "a plain link is refused, because raftlog.peer.seal is required here",
            do="upgrade the other broker, or set raftlog.peer.seal = allowed until all are new",
        )
    nonce = entropy.bytes(NONCE_BYTES)
    nonces, secret = theirs + nonce, trust.secrets[0]
    await _send(stream, MAGIC + nonce + _mac(secret, b"acceptor", nonces))
    _proved(await _receive(stream, PROOF_BYTES), (secret,), b"dialler", nonces)
    body, seal = await _receive_sealed(stream)
    _proved(seal, (secret,), b"dialler identity", nonces, body)
    peer = read_identity(body, mine.protocol_max)
    try:
        admit(peer)
    except RemoteError as error:
        why = str(error).encode()[:IDENTITY_BYTES_MAX]
        await _send(stream, _sealed(secret, b"acceptor refusal", nonces, why))
        raise
    mine_written = write_identity(mine)
    await _send(stream, _sealed(secret, b"acceptor identity", nonces, mine_written))
    return _agree(_plain_session(secret, nonces), mine, peer, peer.node)


async def _dial_sealed(
    stream: ByteStream, trust: Trust, mine: PeerIdentity, entropy: Entropy, expected: NodeId
) -> Agreed:
    machine = sealing.Dialler(
        trust.secrets,
        entropy.bytes(sealing.DIALLER_NONCE_BYTES),
        entropy.bytes(sealing.PROOF_BYTES),
        _said_fields(trust, mine),
    )
    await _send(stream, machine.hello())
    try:
        hello = await _receive(stream, sealing.ACCEPTOR_HELLO_BYTES)
    except _HungUpError as error:
        if error.received:
            raise
        raise PlainPeerError(
            f"node {expected} hung up on the hello of a sealed link",
            do="upgrade it, if it is of an older release; its output says why",
        ) from error
    await _send(stream, machine.prove(hello))
    fields, proof = await _receive_fields(stream), await _receive(stream, sealing.PROOF_BYTES)
    keys = machine.finish(fields, proof)
    peer, required = _read_fields(fields, mine)
    _expect(peer, expected)
    return _agree(keys, mine, peer, mine.node, required=required)


async def _accept_sealed(
    stream: ByteStream,
    hello: bytes,
    trust: Trust,
    mine: PeerIdentity,
    entropy: Entropy,
    admit: Callable[[PeerIdentity], None],
) -> Agreed:
    nonce = entropy.bytes(sealing.ACCEPTOR_NONCE_BYTES)
    machine = sealing.Acceptor(trust.secrets, nonce, hello)
    await _send(stream, machine.hello())
    second = await _receive(stream, sealing.PROOF_BYTES)
    fields, first = await _receive_fields(stream), await _receive(stream, sealing.PROOF_BYTES)
    machine.check(second, fields, first)
    peer, required = _read_fields(fields, mine)
    try:
        admit(peer)
    except RemoteError as error:
        await _send(stream, machine.refuse(str(error)))
        raise
    message, keys = machine.welcome(_said_fields(trust, mine))
    await _send(stream, message)
    return _agree(keys, mine, peer, peer.node, required=required)


def _said_fields(trust: Trust, mine: PeerIdentity) -> bytes:
    policy = _REQUIRED if trust.required else _ALLOWED
    fields = {IDENTITY: write_identity(mine), POLICY: policy}
    if mine.incarnation != NONE:
        fields[INCARNATION] = _LIFE.pack(mine.incarnation)
    return write_fields(fields)


def _read_fields(data: bytes, mine: PeerIdentity) -> tuple[PeerIdentity, bool]:
    """The identity of the other end, and whether it refuses plain links."""
    fields = read_fields(data)
    if IDENTITY not in fields or fields.get(POLICY) not in (_ALLOWED, _REQUIRED):
        raise ProtocolError("a peer handshake without an identity or a policy")
    peer = read_identity(fields[IDENTITY], mine.protocol_max)
    if not peer.seals:
        raise ProtocolError(f"node {peer.node} seals this link and says that it cannot")
    if INCARNATION in fields:
        if len(fields[INCARNATION]) != _LIFE.size:
            raise ProtocolError(f"an incarnation of {len(fields[INCARNATION])} bytes")
        peer = peer._replace(incarnation=Incarnation(_LIFE.unpack(fields[INCARNATION])[0]))
    return peer, fields[POLICY] == _REQUIRED


def _expect(peer: PeerIdentity, expected: NodeId) -> None:
    if peer.node != expected:
        raise RemoteError(f"node {expected} was dialled, node {peer.node} answered")


def _agree(
    keys: SessionKeys | int,
    mine: PeerIdentity,
    peer: PeerIdentity,
    dialled_by: NodeId,
    *,
    required: bool = False,
) -> Agreed:
    """`keys` of a sealed link, or the number of a plain session."""
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
    if not isinstance(keys, int):
        session = SessionId(keys.session)
        return Agreed(peer, session, dialled_by, protocol, keys, required)
    if mine.seals and peer.seals:
        # Both proved that they seal, so neither chose a plain link: something between them did.
        probe("peer-link-downgraded")
        raise RemoteError(
            f"node {peer.node} seals its links, and this one came as a plain one",
            on=peer.address,
            do="look for what relays or rewrites the peer connections",
        )
    return Agreed(peer, SessionId(keys), dialled_by, protocol)


def _plain_session(secret: bytes, nonces: bytes) -> int:
    return int.from_bytes(_mac(secret, b"session", nonces)[:8], "big") >> 1


@final
class _HungUpError(ProtocolError):
    """The stream ended inside the handshake, after `received` bytes of a message."""

    def __init__(self, received: int) -> None:
        super().__init__(
            "the other end hung up during the handshake",
            do="compare cluster secrets, cluster ids and node ids in both brokers' output",
        )
        self.received = received


def _nonce_of(hello: bytes) -> bytes:
    if hello[: len(MAGIC)] != MAGIC:
        raise ProtocolError("the other end does not speak the peer protocol")
    return hello[len(MAGIC) : len(MAGIC) + NONCE_BYTES]


def _proved(given: bytes, secrets: tuple[bytes, ...], *parts: bytes) -> bytes:
    """The secret by which a proof of `parts` is right; RemoteError when it is none of ours."""
    for secret in secrets:
        if hmac.compare_digest(given, _mac(secret, *parts)):
            return secret
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


async def _receive_fields(stream: ByteStream) -> bytes:
    return await _receive(stream, sealing.fields_size(await _receive(stream, sealing.SIZE.size)))


async def _receive(stream: ByteStream, size: int) -> bytes:
    """Exactly `size` bytes and no more: another reader takes the bytes that follow."""
    buffer = bytearray(size)
    got = 0
    with memoryview(buffer) as view:
        while got < size:
            received = await stream.receive_into(view[got:])
            if received == 0:
                raise _HungUpError(got)
            got += received
    return bytes(buffer)


async def _send(stream: ByteStream, data: bytes) -> None:
    view = memoryview(data)
    while view:
        sent = stream.send_nowait([view])
        view = view[sent:]
        if view:
            await stream.wait_writable()

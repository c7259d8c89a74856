"""The handshake of a sealed link, as two pure machines.

    dialler  -> acceptor   hello: magic 8, nonce 32
    acceptor -> dialler    hello: magic 8, nonce 64
    dialler  -> acceptor   proof 32 by the second secret, size u32, fields, proof 32 by the first
    acceptor -> dialler    size u32, fields or a refusal, proof 32

The dialler proves itself first: until then the acceptor has said nothing that depends on the
secret, so a stranger learns nothing to guess it by. Every length is fixed or bounded by
FIELDS_BYTES_MAX, and nothing is parsed before its proof is checked.

    said    SHA-256 of label, both hellos, size and fields of the dialler
    heard   SHA-256 of said and both proofs of the dialler
    whole   SHA-256 of heard, size and fields (or refusal) of the acceptor
    proof   HKDF(secret, said, "dialler"), HKDF(secret, whole, "acceptor" or "refusal")
    keys    HKDF(secret, whole, one label for each direction)

So the keys depend on the secret, both nonces and all that both ends said of themselves, and each
proof is worth nothing in another session, another role or behind other words.

A broker may know two secrets while the cluster changes from one to the other. The dialler proves
both (the second proof is random when it knows one), the acceptor takes the first of its own that is
proved, and the dialler sees by the acceptor's proof which one that is.
"""

import hashlib
import hmac
import struct
from typing import Final, NamedTuple, final

from raftlog.base.errors import LocalMisuse, ProtocolError, RemoteError
from raftlog.base.probes import probe
from raftlog.seal.fields import FIELDS_BYTES_MAX
from raftlog.seal.keys import derive

MAGIC: Final = b"raftlogS"
DIALLER_NONCE_BYTES: Final = 32
ACCEPTOR_NONCE_BYTES: Final = 64
DIALLER_HELLO_BYTES: Final = len(MAGIC) + DIALLER_NONCE_BYTES
ACCEPTOR_HELLO_BYTES: Final = len(MAGIC) + ACCEPTOR_NONCE_BYTES
PROOF_BYTES: Final = 32
SECRETS_MAX: Final = 2
SIZE: Final = struct.Struct(">I")
_LABEL: Final = b"raftlog seal 1 "


class SessionKeys(NamedTuple):
    """The result of a finished handshake at one end. `session` is the same number at both ends."""

    sending: bytes
    receiving: bytes
    session: int


def fields_size(head: bytes) -> int:
    """How many bytes of fields a size announces; ProtocolError when they are too many."""
    size = int(SIZE.unpack(head)[0])
    if size > FIELDS_BYTES_MAX:
        raise ProtocolError(f"a peer handshake of {size} bytes, at most {FIELDS_BYTES_MAX}")
    return size


@final
class Dialler:
    """The end that dialled. Call `hello`, `prove` and `finish`, in this order."""

    __slots__ = ("_fields", "_heard", "_hello", "_said", "_secrets", "_spare")

    def __init__(
        self, secrets: tuple[bytes, ...], nonce: bytes, spare: bytes, fields: bytes
    ) -> None:
        """`spare` stands for the proof by a second secret that this end does not have."""
        assert 1 <= len(secrets) <= SECRETS_MAX, len(secrets)
        assert (len(nonce), len(spare)) == (DIALLER_NONCE_BYTES, PROOF_BYTES), (nonce, spare)
        self._secrets = secrets
        self._hello = MAGIC + nonce
        self._spare = spare
        self._fields = _sized(fields)
        self._said = b""
        self._heard = b""

    def hello(self) -> bytes:
        """The first message."""
        return self._hello

    def prove(self, acceptor_hello: bytes) -> bytes:
        """The third message, for the acceptor's hello."""
        _in_order(not self._said)
        _check_hello(acceptor_hello, ACCEPTOR_HELLO_BYTES)
        said = self._said = _said(self._hello, acceptor_hello, self._fields)
        proofs = [_proof(secret, said, b"dialler") for secret in self._secrets]
        second = proofs[1] if len(proofs) > 1 else self._spare
        self._heard = _digest(said, second, proofs[0])
        return second + self._fields + proofs[0]

    def finish(self, fields: bytes, proof: bytes) -> SessionKeys:
        """The keys, for the acceptor's fields and proof. RemoteError when it refused, or does not
        know a secret of ours."""
        _in_order(bool(self._heard))
        whole, self._heard = _digest(self._heard, _sized(fields)), b""
        for secret in self._secrets:
            if hmac.compare_digest(proof, _proof(secret, whole, b"acceptor")):
                return _keys(secret, whole, dialled=True)
            if hmac.compare_digest(proof, _proof(secret, whole, b"refusal")):
                raise RemoteError(f"the other end refused: {fields.decode(errors='replace')}")
        raise _unknown()


@final
class Acceptor:
    """The end that was dialled. Call `hello` and `check`, then `welcome` or `refuse`."""

    __slots__ = ("_heard", "_hello", "_opening", "_secret", "_secrets")

    def __init__(self, secrets: tuple[bytes, ...], nonce: bytes, dialler_hello: bytes) -> None:
        assert 1 <= len(secrets) <= SECRETS_MAX, len(secrets)
        assert len(nonce) == ACCEPTOR_NONCE_BYTES, nonce
        _check_hello(dialler_hello, DIALLER_HELLO_BYTES)
        self._secrets = secrets
        self._opening = dialler_hello
        self._hello = MAGIC + nonce
        self._heard = b""
        self._secret = b""

    def hello(self) -> bytes:
        """The second message."""
        return self._hello

    def check(self, second: bytes, fields: bytes, first: bytes) -> None:
        """Whether the dialler knows a secret of ours; RemoteError when it does not. `fields` may be
        parsed after that."""
        _in_order(not self._heard)
        sized = _sized(fields)
        said = _said(self._opening, self._hello, sized)
        self._heard = _digest(said, second, first)
        for secret in self._secrets:
            right = _proof(secret, said, b"dialler")
            # Both are compared, whatever the first one says: time tells nothing.
            by_first = hmac.compare_digest(first, right)
            by_second = hmac.compare_digest(second, right)
            if by_first or by_second:
                if secret != self._secrets[0] or not by_first:
                    probe("peer-proved-by-the-other-secret")
                self._secret = secret
                return
        raise _unknown()

    def welcome(self, fields: bytes) -> tuple[bytes, SessionKeys]:
        """The last message of an acceptor that takes the link, and the keys."""
        sized = _sized(fields)
        whole = self._finish(sized)
        message = sized + _proof(self._secret, whole, b"acceptor")
        keys = _keys(self._secret, whole, dialled=False)
        self._secret = b""
        return message, keys

    def refuse(self, why: str) -> bytes:
        """The last message of an acceptor that takes no link; a long text is cut."""
        sized = _sized(why.encode()[:FIELDS_BYTES_MAX])
        message = sized + _proof(self._secret, self._finish(sized), b"refusal")
        self._secret = b""
        return message

    def _finish(self, sized: bytes) -> bytes:
        _in_order(bool(self._secret))
        return _digest(self._heard, sized)


def _digest(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()


def _said(dialler_hello: bytes, acceptor_hello: bytes, sized: bytes) -> bytes:
    return _digest(_LABEL, dialler_hello, acceptor_hello, sized)


def _sized(fields: bytes) -> bytes:
    assert len(fields) <= FIELDS_BYTES_MAX, len(fields)
    return SIZE.pack(len(fields)) + fields


def _proof(secret: bytes, salt: bytes, role: bytes) -> bytes:
    return derive(secret, salt, _LABEL + role + b" proof", PROOF_BYTES)


def _keys(secret: bytes, whole: bytes, *, dialled: bool) -> SessionKeys:
    out = derive(secret, whole, _LABEL + b"from dialler to acceptor")
    back = derive(secret, whole, _LABEL + b"from acceptor to dialler")
    session = int.from_bytes(derive(secret, whole, _LABEL + b"session", 8), "big") >> 1
    return SessionKeys(out, back, session) if dialled else SessionKeys(back, out, session)


def _check_hello(hello: bytes, size: int) -> None:
    if len(hello) != size or hello[: len(MAGIC)] != MAGIC:
        raise ProtocolError("the other end does not speak the sealed peer protocol")


def _in_order(right: bool) -> None:
    if not right:
        raise LocalMisuse("a handshake goes on in its order, once", do="begin another one")


def _unknown() -> RemoteError:
    return RemoteError(
        "the other end does not know the cluster secret",
        do="give every broker the same raftlog.cluster.secret.file",
    )

"""Only holders of the secret finish a handshake, and what they agree on is theirs alone."""

import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.errors import LocalMisuse, ProtocolError, RaftlogError, RemoteError
from raftlog.seal.fields import FIELDS_BYTES_MAX
from raftlog.seal.handshake import (
    ACCEPTOR_NONCE_BYTES,
    DIALLER_NONCE_BYTES,
    MAGIC,
    PROOF_BYTES,
    Acceptor,
    Dialler,
    fields_size,
)

SECRET = b"a secret of thirty-two bytes ..."
NEW = b"a new secret of thirty-two bytes"
DIALLER, ACCEPTOR = b"I am broker 1", b"I am broker 2"


def dialler(secrets=(SECRET,), nonce=b"1", fields=DIALLER):
    return Dialler(secrets, nonce * DIALLER_NONCE_BYTES, b"s" * PROOF_BYTES, fields)


def parted(message: bytes) -> tuple[bytes, bytes, bytes]:
    """Second proof, fields, first proof."""
    second, rest = message[:PROOF_BYTES], message[PROOF_BYTES:]
    size = fields_size(rest[:4])
    assert len(rest) == 4 + size + PROOF_BYTES
    return second, rest[4 : 4 + size], rest[4 + size :]


def ended(message: bytes) -> tuple[bytes, bytes]:
    """Fields and proof of the last message."""
    size = fields_size(message[:4])
    assert len(message) == 4 + size + PROOF_BYTES
    return message[4 : 4 + size], message[4 + size :]


def shake(one=(SECRET,), two=(SECRET,), nonce=b"1", other_nonce=b"2"):
    """Both ends of a handshake; their keys."""
    dials = dialler(one, nonce)
    accepts = Acceptor(two, other_nonce * ACCEPTOR_NONCE_BYTES, dials.hello())
    accepts.check(*parted(dials.prove(accepts.hello())))
    message, accepted = accepts.welcome(ACCEPTOR)
    return dials.finish(*ended(message)), accepted


def test_both_have_the_same_keys_crosswise_and_one_session():
    dialled, accepted = shake()
    assert dialled.sending == accepted.receiving
    assert dialled.receiving == accepted.sending
    assert dialled.sending != dialled.receiving
    assert dialled.session == accepted.session
    assert 0 <= dialled.session < 2**63


def hkdf(secret: bytes, salt: bytes, label: bytes) -> bytes:
    """RFC 5869 for one block of SHA-256, by itself."""
    extracted = hmac.new(salt, secret, hashlib.sha256).digest()
    return hmac.new(extracted, label + b"\1", hashlib.sha256).digest()


def test_the_messages_and_keys_are_fixed():
    """Another release must come to the same bytes: reckoned here without the product's code."""
    dials = dialler()
    accepts = Acceptor((SECRET,), b"2" * ACCEPTOR_NONCE_BYTES, dials.hello())
    assert dials.hello() == b"raftlogS" + b"1" * 32
    assert accepts.hello() == b"raftlogS" + b"2" * 64
    sized = len(DIALLER).to_bytes(4, "big") + DIALLER
    label = b"raftlog seal 1 "
    said = hashlib.sha256(label + dials.hello() + accepts.hello() + sized).digest()
    proof = hkdf(SECRET, said, label + b"dialler proof")
    message = dials.prove(accepts.hello())
    assert message == b"s" * 32 + sized + proof
    accepts.check(*parted(message))
    answer, keys = accepts.welcome(ACCEPTOR)
    back = len(ACCEPTOR).to_bytes(4, "big") + ACCEPTOR
    heard = hashlib.sha256(said + b"s" * 32 + proof).digest()
    whole = hashlib.sha256(heard + back).digest()
    assert answer == back + hkdf(SECRET, whole, label + b"acceptor proof")
    assert keys.receiving == hkdf(SECRET, whole, label + b"from dialler to acceptor")
    assert keys.sending == hkdf(SECRET, whole, label + b"from acceptor to dialler")
    assert keys.session == 2115304140163085556
    assert keys.receiving.hex() == (
        "bf9a8db56c16e1a6c7c3a118b20bf19be68408692a5353890c93fed111ffe851"
    )


def test_either_nonce_makes_another_session():
    known = {shake()[0], shake(nonce=b"3")[0], shake(other_nonce=b"4")[0]}
    assert len({keys.sending for keys in known}) == len({keys.session for keys in known}) == 3


def test_the_acceptor_says_nothing_of_the_secret_before_the_dialler_has_proved_it():
    """A stranger that dialled was given a proof for a nonce of its choice, to guess secrets by."""
    one = Acceptor((SECRET,), b"2" * ACCEPTOR_NONCE_BYTES, dialler().hello())
    other = Acceptor((NEW,), b"2" * ACCEPTOR_NONCE_BYTES, dialler().hello())
    assert one.hello() == other.hello() == MAGIC + b"2" * ACCEPTOR_NONCE_BYTES


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ((SECRET,), (SECRET, NEW)),
        ((SECRET,), (NEW, SECRET)),
        ((NEW, SECRET), (SECRET,)),
        ((SECRET, NEW), (SECRET,)),
        ((NEW, SECRET), (SECRET, NEW)),
        ((SECRET, NEW), (SECRET, NEW)),
    ],
)
def test_each_pair_of_a_rotation_comes_together(one, two):
    dialled, accepted = shake(one, two)
    assert dialled.sending == accepted.receiving


@pytest.mark.parametrize(
    ("one", "two"), [((SECRET,), (NEW,)), ((SECRET, b"x" * 32), (NEW, b"y" * 32))]
)
def test_without_a_common_secret_there_is_no_session(one, two):
    with pytest.raises(RemoteError, match="does not know the cluster secret"):
        shake(one, two)


@given(st.integers(0, 32 + 4 + len(DIALLER) + 32 - 1), st.integers(0, 7))
def test_a_changed_proof_or_word_of_the_dialler_is_refused(at, bit):
    dials = dialler((SECRET, NEW))
    accepts = Acceptor((SECRET,), b"2" * ACCEPTOR_NONCE_BYTES, dials.hello())
    message = bytearray(dials.prove(accepts.hello()))
    message[at] ^= 1 << bit
    try:
        accepts.check(*parted(bytes(message)))
        answer, _ = accepts.welcome(ACCEPTOR)
    except (RaftlogError, AssertionError):
        return
    # The proof that this acceptor did not need was changed: the dialler finds that in the answer.
    assert at < PROOF_BYTES
    with pytest.raises(RemoteError):
        dials.finish(*ended(answer))


@given(st.integers(4, 4 + len(ACCEPTOR) + 32 - 1), st.integers(0, 7))
def test_a_changed_answer_is_refused(at, bit):
    dials = dialler()
    accepts = Acceptor((SECRET,), b"2" * ACCEPTOR_NONCE_BYTES, dials.hello())
    accepts.check(*parted(dials.prove(accepts.hello())))
    answer = bytearray(accepts.welcome(ACCEPTOR)[0])
    answer[at] ^= 1 << bit
    with pytest.raises(RemoteError):
        dials.finish(*ended(bytes(answer)))


def test_a_proof_is_worth_nothing_in_another_session():
    """A recorded dialler is played back to an acceptor, which has drawn another nonce."""
    dials = dialler()
    accepts = Acceptor((SECRET,), b"2" * ACCEPTOR_NONCE_BYTES, dials.hello())
    recorded = dials.prove(accepts.hello())
    again = Acceptor((SECRET,), b"3" * ACCEPTOR_NONCE_BYTES, dials.hello())
    with pytest.raises(RemoteError):
        again.check(*parted(recorded))


def test_a_recorded_acceptor_is_worth_nothing_to_another_dialler():
    dials = dialler()
    accepts = Acceptor((SECRET,), b"2" * ACCEPTOR_NONCE_BYTES, dials.hello())
    accepts.check(*parted(dials.prove(accepts.hello())))
    recorded, _ = accepts.welcome(ACCEPTOR)
    other = dialler(nonce=b"9")
    other.prove(accepts.hello())
    with pytest.raises(RemoteError):
        other.finish(*ended(recorded))


def test_what_the_dialler_proved_cannot_be_reflected():
    """Its own words come back to it as the acceptor's."""
    dials = dialler()
    second, fields, first = parted(dials.prove(MAGIC + b"2" * ACCEPTOR_NONCE_BYTES))
    for proof in (first, second):
        other = dialler()
        other.prove(MAGIC + b"2" * ACCEPTOR_NONCE_BYTES)
        with pytest.raises(RemoteError):
            other.finish(fields, proof)


def test_a_refusal_is_proved_and_gives_no_keys():
    dials = dialler()
    accepts = Acceptor((SECRET,), b"2" * ACCEPTOR_NONCE_BYTES, dials.hello())
    accepts.check(*parted(dials.prove(accepts.hello())))
    with pytest.raises(RemoteError, match="refused: node 1 is linked"):
        dials.finish(*ended(accepts.refuse("node 1 is linked")))
    with pytest.raises(LocalMisuse):
        accepts.welcome(ACCEPTOR)


def test_a_long_refusal_is_cut():
    dials = dialler()
    accepts = Acceptor((SECRET,), b"2" * ACCEPTOR_NONCE_BYTES, dials.hello())
    accepts.check(*parted(dials.prove(accepts.hello())))
    fields, _ = ended(accepts.refuse("\N{SNOWMAN}" * FIELDS_BYTES_MAX))
    assert len(fields) == FIELDS_BYTES_MAX


def test_steps_out_of_order_are_misuse():
    dials = dialler()
    accepts = Acceptor((SECRET,), b"2" * ACCEPTOR_NONCE_BYTES, dials.hello())
    with pytest.raises(LocalMisuse):
        dials.finish(ACCEPTOR, b"p" * PROOF_BYTES)
    with pytest.raises(LocalMisuse):
        accepts.welcome(ACCEPTOR)
    with pytest.raises(LocalMisuse):
        accepts.refuse("no")
    message = dials.prove(accepts.hello())
    with pytest.raises(LocalMisuse):
        dials.prove(accepts.hello())
    accepts.check(*parted(message))
    with pytest.raises(LocalMisuse):
        accepts.check(*parted(message))
    answer, _ = accepts.welcome(ACCEPTOR)
    with pytest.raises(LocalMisuse):
        accepts.welcome(ACCEPTOR)
    dials.finish(*ended(answer))
    with pytest.raises(LocalMisuse):
        dials.finish(*ended(answer))


def test_a_size_is_looked_at_before_anything_is_received_for_it():
    assert fields_size(FIELDS_BYTES_MAX.to_bytes(4, "big")) == FIELDS_BYTES_MAX
    for size in (FIELDS_BYTES_MAX + 1, 2**32 - 1):
        with pytest.raises(ProtocolError, match=f"of {size} bytes"):
            fields_size(size.to_bytes(4, "big"))


@pytest.mark.parametrize("hello", [b"", b"raftlogP" + b"1" * 64, MAGIC + b"1" * 63])
def test_another_protocol_is_refused(hello):
    with pytest.raises(ProtocolError):
        dialler().prove(hello)
    with pytest.raises(ProtocolError):
        Acceptor((SECRET,), b"2" * ACCEPTOR_NONCE_BYTES, hello)

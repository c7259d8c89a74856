"""Sealed links: who gets one, and that no relay can turn one into a plain link."""

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base import probes
from raftlog.base.errors import ProtocolError, RaftlogError, RemoteError
from raftlog.broker.peer_codec import SEALED_FROM
from raftlog.runtime.network import handshake
from raftlog.runtime.network.handshake import PlainPeerError, Trust
from raftlog.runtime.real_ports import OsEntropy
from raftlog.seal import handshake as sealing
from raftlog.seal.fields import FIELDS_BYTES_MAX, IDENTITY, INCARNATION, POLICY, write_fields
from tests.runtime.memory_stream import memory_pair
from tests.runtime.test_handshake import CLUSTER, anybody, identity, shake

OLD_SECRET = b"an old secret with enough bytes in it"
SECRET = b"a secret of the cluster, long enough"
ALLOWED, REQUIRED = Trust((SECRET,)), Trust((SECRET,), required=True)


def broker(node, high=SEALED_FROM, cluster=CLUSTER):
    """An identity of this release, or of one that speaks up to `high`."""
    return identity(node, cluster, 1, high)


@pytest.mark.parametrize("trusts", [(ALLOWED, ALLOWED), (REQUIRED, ALLOWED), (REQUIRED, REQUIRED)])
async def test_two_of_this_release_seal_their_link(trusts):
    dialled, accepted = await shake(broker(1), broker(2), trusts=trusts)
    assert dialled.session == accepted.session
    assert dialled.dialled_by == accepted.dialled_by == 1
    assert (dialled.peer, accepted.peer) == (broker(2), broker(1))
    assert dialled.protocol == accepted.protocol == SEALED_FROM
    assert dialled.keys.sending == accepted.keys.receiving
    assert dialled.keys.receiving == accepted.keys.sending
    assert dialled.peer_requires_seals == trusts[1].required
    assert accepted.peer_requires_seals == trusts[0].required


async def test_a_joiner_is_told_which_cluster_this_is_and_that_it_requires_seals():
    dialled, accepted = await shake(
        broker(1, cluster=bytes(16)), broker(2), trusts=(ALLOWED, REQUIRED)
    )
    assert dialled.peer.cluster == CLUSTER
    assert dialled.peer_requires_seals
    assert accepted.peer.cluster == bytes(16)


@pytest.mark.parametrize("secrets", [(b"x" * 32, SECRET), (SECRET, b"x" * 32)])
async def test_a_wrong_secret_is_refused(secrets):
    trusts = tuple(Trust((each,)) for each in secrets)
    dialled, accepted = await shake(broker(1), broker(2), trusts=trusts)
    assert isinstance(dialled, RaftlogError)
    assert not isinstance(dialled, PlainPeerError)
    assert "does not know the cluster secret" in str(accepted)


async def test_a_secret_is_changed_one_broker_at_a_time():
    """Old ones know the old secret, changed ones both, and those at the end the new one only."""
    stages = [Trust((OLD_SECRET,)), Trust((SECRET, OLD_SECRET)), Trust((SECRET,))]
    for one, two in [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (2, 1), (2, 2)]:
        trusts = (stages[one], stages[two])
        dialled, accepted = await shake(broker(1), broker(2), trusts=trusts)
        assert dialled.keys.sending == accepted.keys.receiving, (one, two)
    dialled, _ = await shake(broker(1), broker(2), trusts=(stages[0], stages[2]))
    assert isinstance(dialled, RaftlogError)


async def test_refusals_name_their_reason():
    dialled, accepted = await shake(broker(1), broker(2, cluster=b"d" * 16))
    assert "belongs to cluster" in str(dialled)
    assert "belongs to cluster" in str(accepted)
    dialled, _ = await shake(broker(1), broker(3), expected=2)
    assert "node 2 was dialled, node 3 answered" in str(dialled)
    dialled, accepted = await shake(broker(2), broker(2))
    assert "another broker says that it is node 2" in str(dialled)

    def nobody(peer):
        raise RemoteError(f"node {peer.node} is linked " + "\N{SNOWMAN}" * FIELDS_BYTES_MAX)

    dialled, accepted = await shake(broker(1), broker(2), admit=nobody)
    assert "node 1 is linked" in str(accepted)
    assert "refused: node 1 is linked" in str(dialled)
    assert len(str(dialled).encode()) < 2 * FIELDS_BYTES_MAX


async def test_a_broker_of_the_last_release_is_linked_plainly_where_that_is_allowed():
    last = SEALED_FROM - 1
    dialled, _ = await shake(broker(1), broker(2, last))
    assert isinstance(dialled, PlainPeerError)
    for one, two in [(SEALED_FROM, last), (last, SEALED_FROM), (last, last)]:
        dialled, accepted = await shake(broker(1, one), broker(2, two), sealed=False)
        assert dialled.keys is accepted.keys is None
        assert dialled.session == accepted.session
        assert dialled.protocol == accepted.protocol == last


async def test_two_that_seal_take_no_plain_link_from_each_other():
    """A relay that breaks off each sealed hello makes a dialler try a plain one; it would read and
    forge that. Both ends say in what they prove that they seal, so both see that something is
    wrong."""
    before = probes.fired().get("peer-link-downgraded", 0)
    dialled, accepted = await shake(broker(1), broker(2), sealed=False)
    for error in (dialled, accepted):
        assert "this one came as a plain one" in str(error)
    assert probes.fired()["peer-link-downgraded"] == before + 2


async def test_a_relay_cannot_make_an_older_release_of_one_that_seals(monkeypatch):
    """The identity that says so is proved as a whole."""
    sealed = handshake._sealed

    def older(secret, role, nonces, body):
        whole = sealed(secret, role, nonces, body)
        newest, last = SEALED_FROM.to_bytes(2, "big"), (SEALED_FROM - 1).to_bytes(2, "big")
        assert whole.count(b"\0\1" + newest) == 1
        return whole.replace(b"\0\1" + newest, b"\0\1" + last)

    monkeypatch.setattr(handshake, "_sealed", older)
    dialled, accepted = await shake(broker(1), broker(2), sealed=False)
    assert isinstance(dialled, RemoteError)
    assert "does not know the cluster secret" in str(accepted)


async def test_a_plain_link_is_refused_where_seals_are_required():
    dialled, accepted = await shake(
        broker(1, SEALED_FROM - 1), broker(2), trusts=(ALLOWED, REQUIRED)
    )
    assert isinstance(dialled, ProtocolError)
    assert "raftlog.peer.seal" in str(accepted)


async def test_a_sealed_identity_that_cannot_seal_is_refused():
    """Only a broken release says that; its frames could not be read."""

    class Liar(handshake.PeerIdentity):
        @property
        def seals(self) -> bool:
            return True

    dialled, accepted = await shake(Liar(*broker(1, SEALED_FROM - 1)), broker(2))
    assert "says that it cannot" in str(accepted)
    assert isinstance(dialled, ProtocolError)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {POLICY: b"\1"},
        {IDENTITY: handshake.write_identity(broker(1))},
        {IDENTITY: handshake.write_identity(broker(1)), POLICY: b"\3"},
        {IDENTITY: handshake.write_identity(broker(1)), POLICY: b""},
    ],
)
async def test_what_must_be_said_is_said(monkeypatch, fields):
    monkeypatch.setattr(handshake, "_said_fields", lambda trust, mine: write_fields(fields))
    _, accepted = await shake(broker(1), broker(2))
    assert "without an identity or a policy" in str(accepted)


async def test_nothing_is_parsed_and_no_memory_taken_before_the_proof():
    left, right = memory_pair()
    hello = sealing.MAGIC + b"1" * sealing.DIALLER_NONCE_BYTES
    left.send_nowait([hello, b"p" * 32, b"\xff\xff\xff\xff"])
    with pytest.raises(ProtocolError, match="a peer handshake of 4294967295 bytes"):
        await handshake.accept(right, REQUIRED, broker(2), OsEntropy(b"2" * 32), anybody)
    left, right = memory_pair()
    garbage = b"\xff" * 20
    left.send_nowait([hello, b"p" * 32, len(garbage).to_bytes(4, "big"), garbage, b"p" * 32])
    with pytest.raises(RemoteError, match="does not know the cluster secret"):
        await handshake.accept(right, REQUIRED, broker(2), OsEntropy(b"2" * 32), anybody)
    assert b"".join(left.incoming)[:8] == sealing.MAGIC
    assert len(b"".join(left.incoming)) == sealing.ACCEPTOR_HELLO_BYTES


@given(st.binary(max_size=300), st.booleans())
def test_random_bytes_never_get_in(data, greeted):
    if greeted:
        data = sealing.MAGIC + data

    async def main() -> None:
        left, right = memory_pair()
        if data:
            left.send_nowait([data])
        left.close()
        with pytest.raises((RaftlogError, trio.BrokenResourceError)):
            await handshake.accept(right, ALLOWED, broker(2), OsEntropy(b"2" * 32), anybody)

    trio.run(main)


def test_trust_is_a_value():
    assert attrs.evolve(REQUIRED, required=False) == ALLOWED


@pytest.mark.parametrize(("mine", "theirs"), [(0, 0), (7, 0), (0, 2**64 - 1), (7, 8)])
async def test_each_end_says_which_life_of_its_directory_it_is(mine, theirs):
    """An end that has drawn none says none; the field is not in what it says then."""
    one, two = broker(1)._replace(incarnation=mine), broker(2)._replace(incarnation=theirs)
    dialled, accepted = await shake(one, two)
    assert (dialled.peer.incarnation, accepted.peer.incarnation) == (theirs, mine)


async def test_a_life_of_another_length_is_refused(monkeypatch):
    monkeypatch.setattr(handshake, "_said_fields", lambda trust, mine: write_fields(
        {IDENTITY: handshake.write_identity(mine), POLICY: b"\x01", INCARNATION: b"short"}
    ))  # fmt: skip
    _, accepted = await shake(broker(1), broker(2))
    assert isinstance(accepted, ProtocolError)
    assert "incarnation of 5 bytes" in str(accepted)

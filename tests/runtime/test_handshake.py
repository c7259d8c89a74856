"""Only who knows the secret gets past the handshake, and nothing of a stranger is parsed."""

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.errors import FutureFormat, ProtocolError, RaftlogError, RemoteError
from raftlog.base.ids import BootNumber, ClusterId, DirectoryId, NodeId
from raftlog.runtime.network import handshake
from raftlog.runtime.network.handshake import PeerIdentity, Trust
from raftlog.runtime.real_ports import OsEntropy
from tests.runtime.memory_stream import memory_pair

CLUSTER = ClusterId(b"c" * 16)
SECRET = b"a secret of the cluster"


def identity(node: int, cluster: bytes = CLUSTER, low: int = 1, high: int = 1) -> PeerIdentity:
    address = f"127.0.0.1:{9000 + node}"
    return PeerIdentity(
        ClusterId(cluster), NodeId(node), DirectoryId(99), BootNumber(3), low, high, address
    )


def anybody(peer):
    """Admits every peer."""


TRUST = Trust((SECRET,))


async def shake(
    dialler, acceptor, *, trusts=(TRUST, TRUST), expected=2, admit=anybody, sealed=None
):
    """Both sides of one handshake; returns what each agreed on, or the error that it ended with. A
    dialler that can seal does, unless it is told not to."""
    sealed = dialler.seals if sealed is None else sealed
    left, right = memory_pair()
    results: dict[str, object] = {}

    async def accept() -> None:
        try:
            results["acceptor"] = await handshake.accept(
                right, trusts[1], acceptor, OsEntropy(b"2" * 32), admit
            )
        except RaftlogError as error:
            results["acceptor"] = error
            right.close()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(accept)
        try:
            results["dialler"] = await handshake.dial(
                left, trusts[0], dialler, OsEntropy(b"1" * 32), NodeId(expected), sealed=sealed
            )
        except RaftlogError as error:
            results["dialler"] = error
            left.close()
    return results["dialler"], results["acceptor"]


async def test_both_agree_on_one_session():
    dialled, accepted = await shake(identity(1), identity(2))
    assert dialled.session == accepted.session
    assert dialled.dialled_by == accepted.dialled_by == 1
    assert dialled.peer == identity(2)
    assert accepted.peer == identity(1)


async def test_a_joiner_belongs_to_no_cluster_yet():
    dialled, accepted = await shake(identity(1, bytes(16)), identity(2))
    assert dialled.peer.cluster == CLUSTER
    assert accepted.peer.cluster == bytes(16)


@pytest.mark.parametrize("secrets", [(b"x" * 16, SECRET), (SECRET, b"x" * 16)])
async def test_a_wrong_secret_is_refused(secrets):
    dialled, accepted = await shake(
        identity(1), identity(2), trusts=tuple(Trust((each,)) for each in secrets)
    )
    assert isinstance(dialled, RemoteError)
    assert isinstance(accepted, RaftlogError)
    assert "secret" in str(dialled) + str(accepted)


async def test_another_cluster_is_refused_by_both():
    dialled, accepted = await shake(identity(1), identity(2, b"d" * 16))
    assert "belongs to cluster" in str(dialled)
    assert "belongs to cluster" in str(accepted)


async def test_two_brokers_with_one_id_are_told():
    dialled, accepted = await shake(identity(2), identity(2))
    assert "another broker says that it is node 2" in str(dialled)
    assert "another broker says that it is node 2" in str(accepted)


async def test_who_is_not_admitted_is_told_why_and_no_more():
    """A stranger with a live broker's number, on an empty disk, was only hung up on: its log said
    without end that the other end did. Our identity does not leave, so it never takes that for a
    link."""

    def nobody(peer):
        raise RemoteError(f"node {peer.node} is linked", on=peer.address)

    dialler, acceptor = await shake(identity(1), identity(2), admit=nobody)
    assert isinstance(acceptor, RemoteError)
    assert "node 1 is linked" in str(acceptor)
    assert isinstance(dialler, RemoteError)
    assert "refused: " in str(dialler)
    assert "node 1 is linked" in str(dialler)


async def test_a_refusal_is_bounded_and_needs_no_letters():
    def nobody(peer):
        raise RemoteError("\N{SNOWMAN}" * handshake.IDENTITY_BYTES_MAX)

    dialler, _ = await shake(identity(1), identity(2), admit=nobody)
    assert isinstance(dialler, RemoteError)
    assert len(str(dialler).encode()) < 2 * handshake.IDENTITY_BYTES_MAX


async def test_a_refusal_that_was_changed_on_the_way_is_none(monkeypatch):
    sealed = handshake._sealed

    def changed(secret, role, nonces, body):
        whole = sealed(secret, role, nonces, body)
        return whole[:4] + b"X" + whole[5:] if role == b"acceptor refusal" else whole

    monkeypatch.setattr(handshake, "_sealed", changed)

    def nobody(peer):
        raise RemoteError("go away")

    dialler, _ = await shake(identity(1), identity(2), admit=nobody)
    assert "refused" not in str(dialler)
    assert "does not know the cluster secret" in str(dialler)


async def test_another_node_than_the_one_dialled_is_refused():
    dialled, _ = await shake(identity(1), identity(3), expected=2)
    assert "node 2 was dialled, node 3 answered" in str(dialled)


async def test_a_peer_from_the_future_is_refused_by_name():
    dialled, accepted = await shake(identity(1), identity(2, low=2, high=3))
    assert isinstance(dialled, FutureFormat)
    assert "protocol 2 to 3" in str(dialled)
    assert "protocol 1 to 1" in str(accepted)


@pytest.mark.parametrize(("low", "high", "spoken"), [(1, 1, 2), (1, 3, 4), (2, 9, 4)])
async def test_two_releases_speak_the_newest_protocol_that_both_know(low, high, spoken):
    mine, theirs = identity(1, low=2, high=4), identity(2, low=low, high=high)
    dialled, accepted = await shake(mine, theirs, sealed=theirs.seals)
    if high < 2:
        assert isinstance(dialled, FutureFormat)
        assert isinstance(accepted, FutureFormat)
        return
    assert dialled.protocol == accepted.protocol == min(spoken, high)


async def test_what_a_later_protocol_adds_to_the_identity_is_left_unread(monkeypatch):
    """Both say who they are before either knows how new the other is, so what a release adds there
    has to be passed over by the one before it; else no two releases could ever be linked."""
    written = handshake.write_identity
    monkeypatch.setattr(
        handshake,
        "write_identity",
        lambda said: written(said) + (b"and more" if said.protocol_max > 1 else b""),
    )
    dialled, accepted = await shake(identity(1), identity(2, high=2))
    assert dialled.protocol == accepted.protocol == 1
    assert dialled.peer == identity(2, high=2)


def test_an_identity_of_a_known_protocol_has_nothing_behind_it():
    with pytest.raises(ProtocolError, match="too many"):
        handshake.read_identity(handshake.write_identity(identity(2)) + b"\0", 1)


async def test_what_a_dialler_proved_cannot_be_reflected():
    """A stranger that echoes the acceptor's own messages back proves nothing."""
    left, right = memory_pair()

    async def echo() -> None:
        buffer = bytearray(4096)
        left.send_nowait([handshake.MAGIC + b"n" * 32])
        got = 0
        while got < 72:
            got += await left.receive_into(memoryview(buffer)[got:])
        left.send_nowait([bytes(buffer[40:72]) + b"\0\0\0\0" + bytes(32)])

    refused: list[RemoteError] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(echo)
        try:
            await handshake.accept(right, TRUST, identity(2), OsEntropy(b"2" * 32), anybody)
        except RemoteError as error:
            refused.append(error)
    assert "secret" in str(refused[0])


@given(st.binary(max_size=300))
def test_random_bytes_never_get_in(data):
    async def main() -> None:
        left, right = memory_pair()
        if data:
            left.send_nowait([data])
        left.close()
        with pytest.raises((RaftlogError, trio.BrokenResourceError)):
            await handshake.accept(right, TRUST, identity(2), OsEntropy(b"2" * 32), anybody)

    trio.run(main)


@given(st.binary(max_size=200))
def test_identities_parse_or_are_refused(data):
    try:
        found = handshake.read_identity(data, 2**16 - 1)
    except ProtocolError:
        return
    assert handshake.write_identity(found) == data

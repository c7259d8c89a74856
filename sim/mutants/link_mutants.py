"""Planted bugs of links between brokers, which a relay or a lying peer of trio mode meets, as in
shell_mutants.py."""

from cryptography.exceptions import InvalidTag

from raftlog.base.errors import ProtocolError
from raftlog.runtime.network import handshake as peer_handshake
from raftlog.runtime.network.handshake import Agreed, PeerIdentity
from raftlog.seal import frames
from raftlog.seal import handshake as seal_handshake

_NOTHING = bytes(4)
"""A frame without messages."""


def frames_that_do_not_open_are_passed_over() -> None:
    """35j: a frame that does not open counts as an empty one, and the link goes on with the rest,
    be it the end of a frame that was cut short."""
    opened = frames.Opener.open

    def opens(self: frames.Opener, frame: memoryview) -> bytes:
        try:
            return opened(self, frame)
        except ProtocolError:
            self._failed = False
            return _NOTHING

    frames.Opener.open = opens  # type: ignore[method-assign]


def repeated_frames_open_again() -> None:
    """35k: the last frame opens once more, so its messages are delivered again."""
    opened = frames.Opener.open

    def opens(self: frames.Opener, frame: memoryview) -> bytes:
        number = self._keys.number
        if number:
            try:
                return self._keys.aead.decrypt(
                    frames._NONCE.pack(0, number - 1), frame[4:], frames._SIZE.pack(len(frame))
                )
            except InvalidTag:
                pass
        return opened(self, frame)

    frames.Opener.open = opens  # type: ignore[method-assign]


def every_session_has_the_same_keys() -> None:
    """35l: keys depend on the secret only, so a frame of an ended session opens in a new one."""
    keys = seal_handshake._keys

    def same(secret: bytes, whole: bytes, *, dialled: bool) -> seal_handshake.SessionKeys:
        found = keys(secret, b"", dialled=dialled)
        return found._replace(session=keys(secret, whole, dialled=dialled).session)

    seal_handshake._keys = same


def the_diallers_proof_is_not_checked() -> None:
    """35m: an acceptor takes any proof for one by its first secret."""

    def check(self: seal_handshake.Acceptor, second: bytes, fields: bytes, first: bytes) -> None:
        sized = seal_handshake._sized(fields)
        said = seal_handshake._said(self._opening, self._hello, sized)
        self._heard = seal_handshake._digest(said, second, first)
        self._secret = self._secrets[0]

    seal_handshake.Acceptor.check = check  # type: ignore[method-assign]


def other_clusters_are_linked() -> None:
    """35n: a broker is linked with a node of another cluster."""
    agree = peer_handshake._agree

    def agree_with_all(
        keys: seal_handshake.SessionKeys | int,
        mine: PeerIdentity,
        peer: PeerIdentity,
        dialled_by: peer_handshake.NodeId,
        *,
        required: bool = False,
    ) -> Agreed:
        peer = peer._replace(cluster=mine.cluster)
        return agree(keys, mine, peer, dialled_by, required=required)

    peer_handshake._agree = agree_with_all


MUTANTS = (
    ("35j", "frames-that-do-not-open-are-passed-over", frames_that_do_not_open_are_passed_over,
     ("peer-protocol",)),
    ("35k", "repeated-frames-open-again", repeated_frames_open_again, ("peer-protocol",)),
    ("35l", "every-session-has-the-same-keys", every_session_has_the_same_keys,
     ("peer-protocol",)),
    ("35m", "the-diallers-proof-is-not-checked", the_diallers_proof_is_not_checked,
     ("peer-protocol",)),
    ("35n", "other-clusters-are-linked", other_clusters_are_linked, ("peer-protocol",)),
)  # fmt: skip

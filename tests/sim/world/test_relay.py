"""A relay on links between brokers: what it does to a frame, and where its reader must end."""

import pytest
from raftlog_sim.base.streams import Stream
from raftlog_sim.base.violation import Violation
from raftlog_sim.world.link_checks import LinkChecks, place_of
from raftlog_sim.world.relay import WAYS, Strike, Tap

from raftlog.base.errors import ProtocolError
from raftlog.base.ids import NodeId
from raftlog.seal.fields import IDENTITY, INCARNATION, write_fields
from raftlog.seal.frames import Opener, Sealer
from raftlog.seal.handshake import MAGIC

KEY = bytes(range(32))
ENDS = (NodeId(1), NodeId(2))
IDENTITY_1 = bytes(16) + (1).to_bytes(4, "big") + (7).to_bytes(8, "big") + (3).to_bytes(8, "big")
FIELDS = write_fields({IDENTITY: IDENTITY_1, INCARNATION: (9).to_bytes(8, "big")})
SAID = len(FIELDS).to_bytes(4, "big") + FIELDS + bytes(32)
OPENING = MAGIC + bytes(32) + bytes(32) + SAID
ANSWER = MAGIC + bytes(64) + SAID


def tap(*, old=()):
    """A direction behind its handshake, from the dialler, with its opposite."""
    judge = LinkChecks()
    forward, back = Tap(True, ENDS, judge, old), Tap(False, ENDS[::-1], judge)
    forward.other, back.other = back, forward
    assert forward.take(OPENING, None) == OPENING
    assert back.take(ANSWER, None) == ANSWER
    return forward, back, judge


def sealed(*bodies):
    sealer = Sealer(KEY)
    return [bytes(sealer.seal([body])) for body in bodies]


def opened(data: bytes) -> tuple[list[bytes], int]:
    """Returns the frames that a reader opens in a stream, and how many bytes it has then received.

    The number is 0 where all frames open.
    """
    opener, bodies, at = Opener(KEY), [], 0
    while len(data) - at >= 4:
        size = int.from_bytes(data[at : at + 4], "big")
        if len(data) - at - 4 < size:
            return bodies, 0
        try:
            bodies.append(opener.open(memoryview(data)[at + 4 : at + 4 + size]))
        except ProtocolError:
            return bodies, at + 4 + size
        at += 4 + size
    return bodies, 0


@pytest.mark.parametrize("way", WAYS)
def test_a_struck_session_is_over_where_the_relay_says(way):
    """One frame is struck, whatever the odds; all before it were heard, nothing of it twice."""
    frames = sealed(b"one", b"two and more of it", b"three", b"four", b"five")
    forward, back, judge = tap(old=[bytes([0, 0, 0, 60]) + bytes(60)] * 3)
    before = forward.given
    data = forward.take(frames[0], None)
    for frame in frames[1:]:
        data += forward.take(frame, Strike(way, 1, Stream(1, way)))
    bodies, ends = opened(data)
    assert bodies == {"repeat": [b"one", b"two and more of it"]}.get(way, [b"one"])
    assert ends > 0
    assert forward.fatal == before + ends
    assert judge.struck == (2 if way == "reflect" else 1)
    if way == "reflect":
        given = back.given
        assert back.take(frames[0], None) == frames[0] + frames[1]
        assert back.fatal == given + len(frames[0]) + len(frames[1])


def test_without_a_strike_and_without_a_seal_all_passes():
    frames = sealed(b"one", b"two")
    forward, _, judge = tap()
    assert [
        forward.take(each, Strike("flip", 1_000_000, Stream(1, ""))) for each in frames
    ] == frames
    plain = Tap(True, ENDS, judge)
    plain.take(b"raftlogP" + OPENING[len(MAGIC) :], None)
    assert plain.take(frames[0], Strike("flip", 1, Stream(1, ""))) == frames[0]
    assert (judge.struck, forward.fatal, plain.fatal) == (0, 0, 0)


def test_nothing_old_is_no_strike():
    forward, _, judge = tap()
    (frame,) = sealed(b"one")
    assert forward.take(frame, Strike("old", 1, Stream(1, ""))) == frame
    assert (judge.struck, forward.fatal) == (0, 0)


def test_bytes_one_by_one_give_the_same():
    frames = b"".join(sealed(b"one", b"two"))
    forward, _, _ = tap()
    assert b"".join(forward.take(bytes([each]), None) for each in frames) == frames


def test_the_judge_knows_what_handshakes_said_and_no_more():
    _, _, judge = tap()
    assert place_of(FIELDS) == (1, 7, 3, 9)
    assert list(judge.lives) == [1]
    assert judge.openings[ENDS] == (OPENING[:40], OPENING[40:72], OPENING[72:])
    judge.said(b"\xffno fields")
    assert list(judge.lives) == [1]


def test_more_frames_that_do_not_open_than_were_struck_are_a_violation():
    judge = LinkChecks(struck=1)
    judge.frame_did_not_open()
    with pytest.raises(Violation, match="2 frames did not open, and 1 were struck"):
        judge.frame_did_not_open()

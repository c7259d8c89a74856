"""Faults around a broker that notes what it hears: what is kept, in which order it comes, and what
is answered in its place."""

import pytest

from raftlog.broker.events import (
    ConnectionClosed,
    ConnectionOpened,
    Drained,
    Effects,
    Hangup,
    LinkDown,
    LinkUp,
    PeerMessages,
    PeerSend,
    Reply,
    Request,
    Unlink,
)
from raftlog.kafka.codec import decode_response, encode_request
from raftlog.kafka.messages.heartbeat import HeartbeatRequest
from raftlog.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from raftlog.testing import peers
from raftlog.testing.broker import FaultyBroker
from raftlog.testing.room import FaultRoom

MS = 1_000_000
TOPIC_ID = bytes(15) + b"\x07"


class _Topic:
    name = "by-id"


class _Context:
    def __init__(self):
        self.image = self
        self.topics = {TOPIC_ID: _Topic()}


class Listener:
    """A broker that answers every request with its number, and says what it is told to say."""

    def __init__(self):
        self.context = _Context()
        self.heard = []
        self.says = []
        self.keeps_answers = False

    def handle(self, events, now_ns, wall_ms):
        self.heard += events
        effects = Effects()
        for event in events:
            if type(event) is Request and not self.keeps_answers:
                effects.replies.append(
                    Reply(event.connection, event.request_no, [b"%d" % event.request_no])
                )
        effects.sends, self.says = self.says, []
        return effects


class Bench:
    """A faulty broker at node 1, and its clock."""

    def __init__(self):
        self.room = FaultRoom(1)
        self.broker = Listener()
        self.faulty = FaultyBroker(self.broker, self.room)
        self.now = 0

    def turn(self, *events, ms=0):
        """One turn, so much later: what the broker heard, and the effects."""
        self.now += ms * MS
        self.broker.heard = []
        effects = self.faulty.handle(list(events), self.now, 0)
        return self.broker.heard, effects


@pytest.fixture
def bench():
    return Bench()


def produce(number, *, acks=-1, topic="orders", client="me", connection=5, version=9):
    data = [PartitionProduceData(0, b"records")]
    by_id = version >= 13
    named = TopicProduceData("" if by_id else topic, TOPIC_ID if by_id else bytes(16), data)
    body = ProduceRequest(None, acks, 1000, [named])
    frame = b"".join(encode_request(0, version, number, client, body))[4:]
    return Request(connection, number, frame)


def heartbeat(number, connection=5):
    body = HeartbeatRequest("group", 1, "member")
    return Request(connection, number, b"".join(encode_request(12, 4, number, "me", body))[4:])


# --- requests -------------------------------------------------------------------------------------


def test_an_error_is_answered_and_not_executed(bench):
    bench.room.install(
        {"do": "error", "on": "Produce", "error": "NOT_LEADER_OR_FOLLOWER", "nth": 2, "id": "f"}
    )
    first, second, third = produce(0), produce(1), produce(2)
    heard, effects = bench.turn(first, second, third, heartbeat(3))
    assert [each for each in heard if type(each) is Request] == [first, third, heartbeat(3)]
    told = {reply.request_no: reply.parts for reply in effects.replies}
    assert {n: told[n] for n in (0, 2, 3)} == {0: [b"0"], 2: [b"2"], 3: [b"3"]}
    answer = decode_response(0, 9, b"".join(told[1])[4:])
    assert answer.correlation_id == 1
    assert answer.body.responses[0].partition_responses[0].error_code == 6
    assert bench.room.listed()[0]["used"] == 1


def test_requests_of_a_producer_are_parted_while_a_fault_is_there(bench):
    """One answer for several of them could not be dropped for one."""
    assert bench.turn(produce(0), produce(1))[0] == [produce(0), produce(1)]
    bench.room.install({"do": "drop_response", "on": "Produce", "nth": 9})
    assert bench.turn(produce(2), produce(3))[0] == [produce(2), Drained(5, 0), produce(3)]


def test_a_dropped_answer_leaves_the_connection_silent(bench):
    bench.room.install({"do": "drop_response", "on": "Produce", "nth": 2})
    bench.turn(ConnectionOpened(5, "PLAINTEXT", "User:ANONYMOUS", "127.0.0.1:9"))
    heard, effects = bench.turn(produce(0), produce(1), produce(2), produce(0, connection=6))
    assert len([each for each in heard if type(each) is Request]) == 4
    told = {(each.connection, each.request_no): each.parts for each in effects.replies}
    assert told == {(5, 0): [b"0"], (5, 1): None, (5, 2): None, (6, 0): [b"0"]}
    assert effects.wake_at == 0  # the broker hears at once that nothing waits to be sent
    heard, effects = bench.turn(heartbeat(3))
    assert heard == [Drained(5, 1), Drained(5, 1), heartbeat(3)]
    assert effects.replies == [Reply(5, 3, None)]
    bench.turn(ConnectionClosed(5))
    assert bench.turn(produce(0))[1].replies == [Reply(5, 0, [b"0"])]


def test_an_answer_leaves_later(bench):
    bench.room.install({"do": "delay", "on": "Produce", "ms": 500, "times": 1})
    heard, effects = bench.turn(produce(0))
    assert heard == [produce(0)]
    assert effects.replies == []
    assert effects.wake_at == 500 * MS
    assert bench.turn(ms=499)[1].replies == []
    assert bench.turn(ms=1)[1].replies == [Reply(5, 0, [b"0"])]


def test_a_late_answer_of_a_connection_that_ended_is_dropped(bench):
    bench.room.install({"do": "delay", "on": "Produce", "ms": 500})
    bench.turn(produce(0), produce(0, connection=6))
    bench.turn(ConnectionClosed(5))
    assert bench.turn(ms=500)[1].replies == [Reply(6, 0, [b"0"])]


def test_a_disconnect_in_place_of_executing(bench):
    bench.room.install({"do": "disconnect", "on": "Produce", "times": 1})
    heard, effects = bench.turn(heartbeat(0), produce(1), produce(2))
    assert heard == [heartbeat(0)]
    assert effects.replies == [Reply(5, 0, [b"0"])]
    assert effects.hangups == [Hangup(5)]
    assert bench.turn(produce(3))[0] == []
    assert bench.turn(ConnectionClosed(5))[0] == [ConnectionClosed(5)]


def test_a_disconnect_in_place_of_answering(bench):
    bench.room.install({"do": "disconnect", "on": "Produce", "times": 1, "executed": True})
    bench.broker.keeps_answers = True
    heard, effects = bench.turn(produce(0))
    assert heard == [produce(0)]
    assert (effects.replies, effects.hangups) == ([], [])
    bench.broker.keeps_answers = False
    assert bench.turn(produce(0, connection=6))[1].hangups == []
    bench.room.clear()
    bench.broker.handle = lambda events, now, wall: Effects(replies=[Reply(5, 0, [b"late"])])
    effects = bench.turn()[1]
    assert (effects.replies, effects.hangups) == ([], [Hangup(5)])


@pytest.mark.parametrize("do", ["drop_response", "delay"])
def test_without_an_answer_there_is_none_to_lose(bench, do):
    ms = {"ms": 5} if do == "delay" else {}
    bench.room.install({"do": do, "on": "Produce", **ms})
    bench.turn(produce(0, acks=0))
    assert bench.room.listed()[0]["used"] == 0


def test_an_error_of_a_produce_without_answer_closes(bench):
    """As Kafka does: there is no other way to tell its client."""
    bench.room.install({"do": "error", "on": "Produce", "error": "INVALID_REQUIRED_ACKS"})
    heard, effects = bench.turn(produce(0, acks=0))
    assert (heard, effects.replies, effects.hangups) == ([], [], [Hangup(5)])


@pytest.mark.parametrize(
    ("which", "hit"),
    [
        ({"topic": "orders"}, [0]),
        ({"topic": "by-id"}, [1]),
        ({"client_id": "other"}, [2]),
        ({"connection": "127.0.0.1:60"}, [3]),
        ({"connection": "127.0.0.1:60", "topic": "orders"}, []),
    ],
)
def test_which_requests_are_meant(bench, which, hit):
    bench.turn(ConnectionOpened(5, "PLAINTEXT", "User:ANONYMOUS", "127.0.0.1:50"))
    bench.turn(ConnectionOpened(6, "PLAINTEXT", "User:ANONYMOUS", "127.0.0.1:60"))
    bench.room.install({"do": "error", "on": "Produce", "error": "INVALID_RECORD", **which})
    requests = [
        produce(0),
        produce(1, version=13),
        produce(2, client="other", topic="a"),
        produce(0, connection=6, topic="b"),
    ]
    missed = [each for each in requests if bench.turn(each)[0] == []]
    assert missed == [requests[at] for at in hit]


@pytest.mark.parametrize("frame", [b"", b"\0", b"\0\0\0\x09", b"\0\0\0\xff\0\0\0\0"])
def test_what_is_no_request_is_left_to_the_broker(bench, frame):
    bench.room.install({"do": "error", "on": "Produce", "error": "INVALID_RECORD"})
    request = Request(5, 0, frame)
    assert bench.turn(request)[0] == [request]


# --- peers ----------------------------------------------------------------------------------------

CUT = {"do": "partition", "groups": [[1], [2]], "id": "cut"}
UP, DOWN = LinkUp(2, 7, 70, 1), LinkDown(2, 7)


def said(text, peer=2, session=7):
    return PeerMessages(peer, session, [text])


def test_a_partition_keeps_everything_in_order_until_it_heals(bench):
    assert bench.turn(UP, said("a"))[0] == [UP, said("a")]
    bench.room.install(CUT)
    again = LinkUp(2, 8, 70, 2)
    assert bench.turn(said("b"), said("x", peer=3))[0] == [said("x", peer=3)]
    assert bench.turn(DOWN, again)[0] == []
    bench.broker.says = [PeerSend(2, 7, ["to 2"]), PeerSend(3, 9, ["to 3"])]
    assert bench.turn()[1].sends == [PeerSend(3, 9, ["to 3"])]
    bench.room.remove("cut")
    bench.broker.says = [PeerSend(2, 7, ["later"])]
    heard, effects = bench.turn(said("c", session=8))
    assert heard == [said("b"), DOWN, again, said("c", session=8)]
    assert effects.sends == [PeerSend(2, 7, ["to 2"]), PeerSend(2, 7, ["later"])]
    assert bench.room.uses.matches("cut") == 4


def test_one_way_keeps_one_direction(bench):
    bench.room.install({**CUT, "groups": [[2], [1]], "one_way": True})
    bench.broker.says = [PeerSend(2, 7, ["out"])]
    heard, effects = bench.turn(said("in"))
    assert (heard, effects.sends) == ([], [PeerSend(2, 7, ["out"])])


def test_messages_of_peers_come_later_and_in_order(bench):
    bench.room.install({"do": "delay_peers", "ms": 50, "id": "slow"})
    assert bench.turn(said("a"))[1].wake_at == 50 * MS
    assert bench.turn(said("b"), ms=20)[1].wake_at == 50 * MS
    assert bench.turn(ms=30)[0] == [said("a")]
    bench.room.remove("slow")
    assert bench.turn(said("c"))[0] == []  # it does not overtake
    assert bench.turn(ms=20)[0] == [said("b"), said("c")]


def test_a_link_on_which_too_much_is_kept_is_broken(bench, monkeypatch):
    monkeypatch.setattr(peers, "KEPT_MAX", 4)
    bench.turn(UP)
    bench.room.install(CUT)
    for _ in range(4):
        assert bench.turn(said("a"))[1].unlinks == []
    assert bench.turn(said("b"))[1].unlinks == [Unlink(2, 7)]
    bench.turn(DOWN)
    bench.room.clear()
    assert bench.turn()[0] == [DOWN]


def test_too_much_that_is_said_breaks_the_link_too(bench, monkeypatch):
    monkeypatch.setattr(peers, "KEPT_MAX", 4)
    bench.room.install(CUT)
    unlinks = []
    for _ in range(5):
        bench.broker.says = [PeerSend(2, 7, ["a"])]
        unlinks += bench.turn()[1].unlinks
    assert unlinks == [Unlink(2, 7)]
    bench.room.clear()
    assert bench.turn()[1].sends == []

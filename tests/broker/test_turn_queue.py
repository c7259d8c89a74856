"""The queue of a broker's turns: which events wait for another's turn, the order in which a turn
takes them, the bounds, and the order in which effects are performed."""

import pytest

from raftlog.base.ids import ConnectionId, DirectoryId, IoId, NodeId, SessionId
from raftlog.base.limits import TURN_BYTES_MAX, TURN_EVENTS_MAX
from raftlog.broker.events import (
    ConnectionClosed,
    Effects,
    Hangup,
    LinkDown,
    Pause,
    PeerMessages,
    PeerSend,
    Persisted,
    Reply,
    Request,
    Resume,
    Unlink,
    Write,
)
from raftlog.broker.turn_queue import CROWDED_SHARE, WAITING_ACKS_MAX, TurnQueue, perform
from raftlog.raft.messages import Append, AppendReply, ReadEcho

HOME = DirectoryId(1)
ACK = AppendReply(*[1] * 5, damaged=False)
ENTRIES = Append(*[1] * 8, 0, ("an entry",))
HEARTBEAT = ENTRIES._replace(entries=())


def said(*messages):
    return PeerMessages(NodeId(2), SessionId(1), messages)


def a_request(number=0, frame=b""):
    return Request(ConnectionId(1), number, frame)


def wants_turn(queue, event, *, round_ends_soon=False):
    return queue.post_from_peer([event], round_ends_soon=round_ends_soon)


@pytest.fixture
def queue():
    return TurnQueue()


def test_acknowledgements_wait_only_when_the_last_turn_said_so(queue):
    assert wants_turn(queue, said(ACK))
    assert queue.collect([]) == [said(ACK)]
    queue.acks_may_wait = True
    assert not wants_turn(queue, said(ACK, ACK))
    assert wants_turn(queue, said(ACK, HEARTBEAT))
    assert wants_turn(queue, said(ReadEcho(1, 1, 1, 1, 1)))
    assert len(queue) == 3
    assert queue.collect([])[0] == said(ACK, ACK)


def test_waiting_acknowledgements_are_bounded(queue):
    queue.acks_may_wait = True
    wanted = [wants_turn(queue, said(ACK)) for _ in range(WAITING_ACKS_MAX + 1)]
    assert wanted == [False] * WAITING_ACKS_MAX + [True]


def test_acknowledgements_alone_want_no_turn(queue):
    queue.acks_may_wait = True
    wants_turn(queue, said(ACK))
    assert not queue.wants_turn
    queue.post(a_request())
    assert queue.wants_turn


def test_entries_wait_for_the_round_that_is_written(queue):
    assert wants_turn(queue, said(ENTRIES))
    assert not wants_turn(queue, said(ENTRIES), round_ends_soon=True)
    assert wants_turn(queue, said(HEARTBEAT), round_ends_soon=True)
    assert wants_turn(queue, said(ENTRIES._replace(read_context=3)), round_ends_soon=True)
    for number in range(TURN_EVENTS_MAX):
        queue.post(a_request(number))
    assert wants_turn(queue, said(ENTRIES), round_ends_soon=True), "there is a turn's worth already"


def test_a_turn_takes_completions_then_acknowledgements_then_the_rest(queue):
    queue.acks_may_wait = True
    wants_turn(queue, said(ACK))
    down, durable = LinkDown(NodeId(2), SessionId(1)), Persisted(IoId(1), HOME)
    for event in (a_request(0), said(HEARTBEAT), durable, down):
        queue.post(event)
    at_hand = Persisted(IoId(0), HOME)
    expected = [at_hand, durable, down, said(ACK), a_request(0), said(HEARTBEAT)]
    assert queue.collect([at_hand]) == expected
    assert not len(queue)


def test_the_end_of_a_connection_comes_after_what_it_sent(queue):
    closed = ConnectionClosed(ConnectionId(1))
    for event in (a_request(0), closed, Persisted(IoId(1), HOME)):
        queue.post(event)
    assert queue.collect([]) == [Persisted(IoId(1), HOME), a_request(0), closed]


@pytest.mark.parametrize("most", [1, 2, 7, None])
def test_a_full_turn_leaves_the_rest_in_order(queue, most):
    sent = [a_request(number) for number in range(TURN_EVENTS_MAX + 5)]
    queue.acks_may_wait = True
    wants_turn(queue, said(ACK))
    wants_turn(queue, said(ACK, ACK))
    for event in sent:
        queue.post(event)
    taken = []
    while len(queue):
        taken.append(queue.collect([], most))
        assert 1 <= len(taken[-1]) <= (most or TURN_EVENTS_MAX)
    assert [event for turn in taken for event in turn] == [said(ACK), said(ACK, ACK), *sent]


def test_a_turn_stops_after_its_bytes(queue):
    half = bytes(TURN_BYTES_MAX // 2)
    for number in range(6):
        assert queue.has_room is (number < 5), "the next turn's and those of one more"
        queue.post(a_request(number, half))
    assert [event.request_no for event in queue.collect([])] == [0, 1]
    assert [event.request_no for event in queue.collect([])] == [2, 3]
    assert queue.request_bytes == 2 * len(half)
    assert queue.has_room


def test_a_connection_may_queue_little_where_others_wait(queue):
    assert queue.share(crowded=False) == TURN_EVENTS_MAX
    assert queue.share(crowded=True) == CROWDED_SHARE
    for number in range(TURN_EVENTS_MAX - 2):
        queue.post(a_request(number))
    assert queue.share(crowded=False) == 2
    for number in range(10):
        queue.post(a_request(number))
    assert queue.share(crowded=False) == 1


class RecordingHands:
    """Notes the name of each call."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        return lambda *arguments: self.calls.append(name)


def test_writes_are_queued_before_sends_and_answers():
    effects = Effects()
    effects.stopped, effects.peers = True, ()
    effects.hangups.append(Hangup(ConnectionId(1)))
    effects.replies.append(Reply(ConnectionId(1), 0, ()))
    effects.pauses += [Pause(ConnectionId(1)), Resume(ConnectionId(2))]
    effects.sends.append(PeerSend(NodeId(2), SessionId(1), ()))
    effects.unlinks.append(Unlink(NodeId(2), SessionId(1)))
    effects.writes.append(Write(HOME, IoId(1), []))
    hands = RecordingHands()
    perform(effects, hands)
    assert hands.calls == [
        "write",
        "unlink",
        "keep_peers",
        "send",
        "throttle",
        "throttle",
        "reply",
        "hang_up",
        "sync_lone_rounds",
        "leave",
    ]
    hands.calls.clear()
    perform(Effects(), hands)
    assert hands.calls == []

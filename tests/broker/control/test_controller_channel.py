"""Asking the controller: routing, hints, retries, the deadline, and answers that come too late."""

import attrs
import pytest

from raftlog.base.limits import CONTROLLER_OWN_REQUESTS_MAX, CONTROLLER_REQUESTS_MAX
from raftlog.base.units import millis
from raftlog.broker.config import BrokerConfig
from raftlog.broker.control.controller_channel import ControllerChannel
from raftlog.broker.deadlines import Timers
from raftlog.broker.events import LinkUp, PeerAddress
from raftlog.broker.peer_messages import ControllerKind, ControllerReply, ControllerRequest
from raftlog.metadata.image import EMPTY_IMAGE

CONFIG = BrokerConfig(
    node=4,
    peer=PeerAddress(4, "n4", 1),
    controllers=tuple(PeerAddress(n, f"n{n}", 1) for n in (1, 2, 3)),
    listeners=(),
)


class FakeServer:
    def __init__(self):
        self.active = False
        self.calls = []

    def serve(self, call):
        self.calls.append(call)


class FakeNode:
    def __init__(self, config=CONFIG):
        self.now = 0
        self.config = config
        self.image = EMPTY_IMAGE
        self.replicas = {}
        self.sessions = {n: LinkUp(n, 10 + n, 1, 1) for n in (1, 2, 3)}
        self.sent = []
        self.timers = Timers()
        self.later = []
        self.server = FakeServer()
        self.channel = ControllerChannel(self, self.server)
        self.answers = []

    def send(self, node, message):
        self.sent.append((node, message))

    def at(self, deadline, call, *args):
        return self.timers.at(deadline, call, *args)

    def soon(self, call, *args):
        self.later.append((call, args))

    def run(self, duration=0):
        end = self.now + duration
        self.flush()
        while self.timers.next() <= end:
            self.now = max(self.now, self.timers.next())
            self.timers.run_due(self.now)
            self.flush()
        self.now = end

    def flush(self):
        while self.later:
            call, args = self.later.pop(0)
            call(*args)

    def ask(self, body=b"q", deadline=millis(20_000), again=None, kind=ControllerKind.PROPOSE):
        self.channel.ask(kind, body, self.now + deadline, self.answers.append, again)

    def take_sent(self):
        found, self.sent = self.sent, []
        return found


@pytest.fixture
def node():
    return FakeNode()


def test_a_controller_in_reach_is_asked_and_its_answer_handed_over(node):
    node.ask()
    ((target, request),) = node.take_sent()
    assert request == ControllerRequest(1, 1, b"q")
    node.channel.replied(target, ControllerReply(1, 0, "", b"a"))
    assert node.answers == [ControllerReply(1, 0, "", b"a")]
    node.run(millis(60_000))
    assert node.sent == []
    assert len(node.timers) == 0 or node.timers.next() > node.now


def test_this_node_serves_itself_when_it_is_the_controller(node):
    node.server.active = True
    node.ask()
    node.run()
    (call,) = node.server.calls
    assert (call.sender, call.kind, call.body) == (4, 1, b"q")
    call.reply(0, "ok", b"a")
    assert node.answers == [], "never inside the reply"
    node.run()
    assert node.answers == [ControllerReply(1, 0, "ok", b"a")]


def test_a_hint_is_followed(node):
    node.ask()
    ((first, _),) = node.take_sent()
    other = next(n for n in (1, 2, 3) if n != first)
    node.channel.replied(first, ControllerReply(1, 41, str(other), b""))
    node.run(CONFIG.heartbeat_ns)
    assert [target for target, _ in node.take_sent()] == [other]


@pytest.mark.parametrize("hint", ["", "x", "-1", "99999999999999", "\uff19", "77"])
def test_a_hint_that_names_nobody_in_reach_is_no_hint(node, hint):
    node.ask()
    ((first, _),) = node.take_sent()
    node.channel.replied(first, ControllerReply(1, 41, hint, b""))
    node.run(CONFIG.heartbeat_ns)
    ((second, _),) = node.take_sent()
    assert second in (1, 2, 3)


def test_all_controllers_are_tried_in_turn(node):
    node.ask()
    asked = []
    for _ in range(6):
        ((target, _),) = node.take_sent()
        asked.append(target)
        node.channel.replied(target, ControllerReply(1, 41, "", b""))
        node.run(CONFIG.heartbeat_ns)
    assert sorted(asked) == [1, 1, 2, 2, 3, 3]


def test_a_broken_link_leads_to_another_try(node):
    node.ask()
    ((target, _),) = node.take_sent()
    del node.sessions[target]
    node.channel.link_down(target)
    node.run(CONFIG.heartbeat_ns)
    ((second, request),) = node.take_sent()
    assert second != target
    assert request.request_no == 1


def test_silence_for_a_session_leads_to_another_try(node):
    node.ask()
    node.take_sent()
    node.run(CONFIG.session_ns)
    assert len(node.take_sent()) == 1


def unanswered(node):
    """A question whose first try may still be on its way, and the second: whom, and what."""
    node.ask(b"first", again=lambda: b"again")
    ((_, first),) = node.take_sent()
    node.run(CONFIG.session_ns)
    ((asked, second),) = node.take_sent()
    assert (first.body, second.body) == (b"first", b"again")
    return asked, first.request_no, second.request_no


def test_a_refusal_of_a_try_that_went_unanswered_is_not_the_answer(node):
    """The second try is on its way behind it, and might be judged otherwise; the asker would have
    told its client that nothing was done."""
    asked, first, second = unanswered(node)
    for error in (36, 41, 7):
        node.channel.replied(asked, ControllerReply(first, error, "", b""))
    node.run(CONFIG.heartbeat_ns)
    assert (node.answers, node.sent) == ([], [])
    node.channel.replied(asked, ControllerReply(second, 36, "exists", b""))
    assert [reply.error for reply in node.answers] == [36]
    assert len(node.channel) == 0


def test_what_a_try_that_went_unanswered_has_done_is_done(node):
    asked, first, second = unanswered(node)
    node.channel.replied(asked, ControllerReply(first, 0, "", b"done"))
    assert [reply.body for reply in node.answers] == [b"done"]
    node.channel.replied(asked, ControllerReply(second, 0, "", b"done"))
    assert len(node.answers) == 1


def test_a_broken_link_leaves_a_try_under_way(node):
    node.ask(b"first", again=lambda: b"again")
    ((target, _),) = node.take_sent()
    del node.sessions[target]
    node.channel.link_down(target)
    node.run(CONFIG.heartbeat_ns)
    assert [request.body for _, request in node.take_sent()] == [b"again"]
    assert len(node.channel) == 1


def test_a_try_that_was_sent_elsewhere_is_not_under_way(node):
    node.ask(b"first", again=lambda: b"again")
    for error in (41, 7):
        ((target, request),) = node.take_sent()
        assert request == ControllerRequest(1, 1, b"first")
        node.channel.replied(target, ControllerReply(1, error, "", b""))
        node.run(CONFIG.heartbeat_ns)
    ((_, request),) = node.take_sent()
    assert request == ControllerRequest(1, 1, b"first")


def test_nobody_in_reach_is_tried_again_until_the_deadline(node):
    node.sessions.clear()
    node.ask(deadline=millis(1000))
    node.run(millis(500))
    assert node.answers == []
    node.sessions[2] = LinkUp(2, 12, 1, 1)
    node.run(CONFIG.heartbeat_ns)
    assert [target for target, _ in node.take_sent()] == [2]
    node.run(millis(1000))
    assert [reply.error for reply in node.answers] == [7]


def test_an_answer_after_the_deadline_is_dropped(node):
    node.ask(deadline=millis(100))
    ((target, _),) = node.take_sent()
    node.run(millis(100))
    node.channel.replied(target, ControllerReply(1, 0, "", b"late"))
    assert [reply.error for reply in node.answers] == [7]


def test_an_answer_of_somebody_who_was_not_asked_is_dropped(node):
    node.ask()
    ((target, _),) = node.take_sent()
    node.channel.replied(target % 3 + 1, ControllerReply(1, 0, "", b"forged"))
    assert node.answers == []


def test_a_refusal_that_is_not_about_who_controls_is_the_answer(node):
    node.ask()
    ((target, _),) = node.take_sent()
    node.channel.replied(target, ControllerReply(1, 36, "exists", b""))
    assert [reply.error for reply in node.answers] == [36]


def test_a_busy_controller_is_asked_again(node):
    """The topics beyond the 4,096th of one request were refused for good, and no code had looked at
    them."""
    node.ask()
    (asked, request) = node.take_sent()[0]
    busy = ControllerReply(request.request_no, 7, "too many calls are waiting", b"")
    node.channel.replied(asked, busy)
    node.run(millis(50))
    assert node.answers == []
    node.run(millis(100))
    (asked, request) = node.take_sent()[0]
    node.channel.replied(asked, ControllerReply(request.request_no, 0, "", b"done"))
    assert node.answers == [ControllerReply(request.request_no, 0, "", b"done")]


def test_a_controller_that_stays_busy_is_asked_until_the_deadline(node):
    node.ask(deadline=millis(1000))
    for _ in range(30):
        for asked, request in node.take_sent():
            busy = ControllerReply(request.request_no, 7, "too many calls are waiting", b"")
            node.channel.replied(asked, busy)
        node.run(millis(100))
    assert [(each.error, each.text) for each in node.answers] == [(7, "no controller in time")]
    assert len(node.channel) == 0


def test_too_many_questions_are_refused_at_once(node):
    for _ in range(CONTROLLER_REQUESTS_MAX):
        node.ask()
    node.ask(b"one too many")
    node.run()
    assert [reply.error for reply in node.answers] == [7]
    node.ask(b"alive", kind=ControllerKind.HEARTBEAT)
    node.run()
    assert len(node.answers) == 1, "no flood of requests has its broker fenced"
    for _ in range(CONTROLLER_OWN_REQUESTS_MAX):
        node.ask(b"alive", kind=ControllerKind.HEARTBEAT)
    node.run()
    assert [reply.error for reply in node.answers] == [7, 7]


def test_others_are_served_in_their_session_only(node):
    node.server.active = True
    node.channel.requested(2, 12, ControllerRequest(5, 1, b"q"))
    (call,) = node.server.calls
    node.sessions[2] = LinkUp(2, 99, 1, 1)
    call.reply(0)
    assert node.sent == [], "the session in which it was asked is over"
    node.channel.requested(2, 99, ControllerRequest(6, 1, b"q"))
    node.server.calls[1].reply(0, "", b"a")
    assert node.sent == [(2, ControllerReply(6, 0, "", b"a"))]


def test_an_inactive_node_refuses_with_what_it_knows(node):
    node.channel.requested(2, 12, ControllerRequest(5, 1, b"q"))
    assert node.sent == [(2, ControllerReply(5, 41, "", b""))]


def test_a_call_is_answered_once(node):
    node.server.active = True
    node.channel.requested(2, 12, ControllerRequest(5, 1, b"q"))
    (call,) = node.server.calls
    call.reply(0)
    with pytest.raises(AssertionError):
        call.reply(0)


def test_a_controller_asks_itself_first_even_with_links():
    node = FakeNode(attrs.evolve(CONFIG, node=2, peer=PeerAddress(2, "n2", 1)))
    node.server.active = True
    node.ask()
    assert node.sent == []

"""The admin port under whatever is sent to it: an answer or a closed connection, never more.

Regression: HEAD, which `curl -I` sends, was answered with a body; the HTTP library refused to write
it, no code caught that, and one request ended the broker.
"""

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.trace import ListTracer
from raftlog.broker.events import AdminReply
from raftlog.runtime.admin import CONNECTIONS_MAX, AdminServer
from tests.runtime.memory_stream import memory_pair

HEALTH = {"ok": True, "checks": {"disk": "ok"}}
ANSWERS = {
    "livez": HEALTH,
    "readyz": {"ok": False, "checks": {"registered": "not yet"}},
    "metrics": [["raftlog_up", "gauge", {"of": 'a"b'}, 1]],
    "status": {"version": 1},
}


IDENTITY = (("Raftlog-Cluster", "ab" * 16), ("Raftlog-Node", "1"), ("Raftlog-Process", "77"))


class AnsweringDriver:
    """A broker that answers every call at once."""

    server: AdminServer

    def post(self, event) -> None:
        self.server.answer(AdminReply(event.token, ANSWERS[event.command]))


class SilentDriver:
    """A broker whose loop is stuck."""

    def post(self, event) -> None: ...


def server_of(driver) -> AdminServer:
    server = AdminServer(driver, ListTracer(), IDENTITY)
    driver.server = server
    return server


async def answered(server: AdminServer, *pieces: bytes) -> bytes:
    """Returns the answer to a client that sends these pieces and then finishes."""
    client, stream = memory_pair(room=1 << 20)
    for piece in pieces:
        if piece:
            client.send_nowait([piece])
    client.incoming.clear()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve, stream, "somebody")
        await trio.testing.wait_all_tasks_blocked()
        client.closed = True
        stream.arrived.set()
    assert server._open == 0
    assert stream.closed
    return b"".join(client.incoming)


def ask(method: str, target: str, more: str = "") -> bytes:
    return f"{method} {target} HTTP/1.1\r\nHost: x\r\n{more}\r\n".encode("latin-1")


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/livez", 200),
        ("/livez?verbose", 200),
        ("/readyz", 503),
        ("/metrics", 200),
        ("/status", 200),
        ("/nowhere", 404),
        ("/../etc/passwd", 404),
    ],
)
async def test_what_is_served(target, status):
    told = await answered(server_of(AnsweringDriver()), ask("GET", target))
    assert told.startswith(b"HTTP/1.1 %d " % status)


async def test_head_is_told_the_length_and_gets_no_body():
    server = server_of(AnsweringDriver())
    full = await answered(server, ask("GET", "/metrics"))
    head = await answered(server, ask("HEAD", "/metrics"))
    assert head == full[: full.index(b"\r\n\r\n") + 4]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "CONNECT", "TRACE", "X"])
async def test_other_methods_are_refused(method):
    told = await answered(server_of(AnsweringDriver()), ask(method, "/livez"))
    assert told.startswith(b"HTTP/1.1 405 ")


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET /livez",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\xff\xfe\x00 GET\r\n\r\n",
        b"a" * 20_000,
        b"GET /" + b"a" * 20_000,
        b"GET /livez HTTP/1.1\r\n" + b"x: y\r\n" * 5_000,
        b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /livez HTTP/9.9\r\nHost: x\r\n\r\n",
        ask("GET", "/livez", "Content-Length: 99999999999\r\n"),
        ask("GET", "/livez", "Content-Length: -1\r\n"),
        ask("GET", "/livez", "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n"),
        ask("GET", "/livez", "Expect: 100-continue\r\nContent-Length: 5\r\n"),
        ask("GET", "/livez", "Upgrade: websocket\r\nConnection: upgrade\r\n"),
        ask("GET", "/livez") * 50,
        b"\0\0\0\x10\0\x12\0\x03\0\0\0\1\0\0\0\0",
    ],
)
async def test_bad_input_costs_its_own_connection(sent):
    server = server_of(AnsweringDriver())
    await answered(server, sent)
    assert (await answered(server, ask("GET", "/livez"))).endswith(b"ok\n")


WORDS = st.sampled_from(
    [
        b"GET",
        b"HEAD",
        b" ",
        b"/livez",
        b"/metrics?",
        b"HTTP/1.1",
        b"HTTP/1.0",
        b"\r\n",
        b"\n",
        b"Host: x",
        b"Content-Length: 3",
        b"Transfer-Encoding: chunked",
        b"Connection: upgrade",
    ]
)


@given(st.lists(WORDS | st.binary(max_size=30), max_size=12))
def test_rubbish(pieces):
    async def main() -> None:
        server = server_of(AnsweringDriver())
        await answered(server, b"".join(pieces))
        await answered(server, *pieces)
        assert (await answered(server, ask("GET", "/livez"))).endswith(b"ok\n")

    trio.run(main)


async def test_a_stuck_loop_is_said(autojump_clock):
    client, stream = memory_pair(room=1 << 20)
    client.send_nowait([ask("GET", "/livez")])
    await server_of(SilentDriver()).serve(stream, "somebody")
    assert b"".join(client.incoming).startswith(b"HTTP/1.1 503 ")


async def test_who_says_nothing_is_closed(autojump_clock):
    server = server_of(AnsweringDriver())
    pairs = [memory_pair() for _ in range(CONNECTIONS_MAX + 3)]
    async with trio.open_nursery() as nursery:
        for _, stream in pairs:
            nursery.start_soon(server.serve, stream, "somebody")
            await trio.testing.wait_all_tasks_blocked()
        assert server._open == CONNECTIONS_MAX
        assert [stream.closed for _, stream in pairs] == [True] * 3 + [False] * CONNECTIONS_MAX
    assert server._open == 0
    assert server._lingering == {}
    assert all(stream.closed for _, stream in pairs)


async def test_half_requests_do_not_keep_a_probe_out(autojump_clock):
    """32 connections that each sent half a request failed every health probe for as long as they
    were renewed: an orchestrator restarts a broker that answers no probe."""
    server = server_of(AnsweringDriver())
    pairs = [memory_pair() for _ in range(CONNECTIONS_MAX)]
    async with trio.open_nursery() as nursery:
        for client, stream in pairs:
            client.send_nowait([b"GET /livez HTTP/1.1\r\nHost: x\r\n"])
            nursery.start_soon(server.serve, stream, "stranger")
            await trio.testing.wait_all_tasks_blocked()
        for evicted in range(1, 4):
            probe, stream = memory_pair(room=1 << 20)
            probe.send_nowait([ask("GET", "/livez")])
            await server.serve(stream, "probe")
            assert b"".join(probe.incoming).startswith(b"HTTP/1.1 200 ")
            await trio.testing.wait_all_tasks_blocked()
            assert [each.closed for _, each in pairs].count(True) == 1, evicted
        assert pairs[0][1].closed, "the oldest half request made room"
        nursery.cancel_scope.cancel()


async def test_whole_requests_are_not_evicted(autojump_clock):
    """When all wait for an answer, one more is not served: no client loses its request."""
    server = server_of(SilentDriver())
    pairs = [memory_pair(room=1 << 20) for _ in range(CONNECTIONS_MAX + 1)]
    async with trio.open_nursery() as nursery:
        for client, stream in pairs:
            client.send_nowait([ask("GET", "/livez")])
            nursery.start_soon(server.serve, stream, "somebody")
            await trio.testing.wait_all_tasks_blocked()
        assert [stream.closed for _, stream in pairs] == [False] * CONNECTIONS_MAX + [True]


async def test_who_does_not_take_an_answer_makes_room(autojump_clock):
    server = server_of(AnsweringDriver())
    pairs = [memory_pair(room=1) for _ in range(CONNECTIONS_MAX + 1)]
    async with trio.open_nursery() as nursery:
        for _, stream in pairs:
            stream.incoming.append(ask("GET", "/metrics"))
            nursery.start_soon(server.serve, stream, "stranger")
            await trio.testing.wait_all_tasks_blocked()
        assert [stream.closed for _, stream in pairs] == [True] + [False] * CONNECTIONS_MAX
        nursery.cancel_scope.cancel()

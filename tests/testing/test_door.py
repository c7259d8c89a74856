"""/faults over HTTP: what a program of any language sends, and every way in which it is refused."""

import json

import pytest
import trio
import trio.testing

from raftlog.base.trace import ListTracer
from raftlog.runtime.admin import REQUEST_BYTES_MAX, AdminServer
from raftlog.testing.faults import JsonDoor
from raftlog.testing.room import FaultRoom
from tests.runtime.memory_stream import memory_pair

JSON = "application/json"
ONCE = {"id": "once", "do": "drop_response", "on": "Produce", "times": 1}


@pytest.fixture
def room():
    return FaultRoom(1)


def ask(room, method, path="/faults", body=None, content_type=JSON):
    text = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    status, _, told = JsonDoor(room).answer(method, path, content_type, text)
    return status, json.loads(told)


def test_a_fault_comes_is_listed_and_goes(room):
    assert ask(room, "GET") == (200, {"broker": 1, "faults": []})
    assert ask(room, "POST", body=ONCE) == (201, {**ONCE, "used": 0})
    assert room.acts(room.api[0])
    assert ask(room, "GET") == (200, {"broker": 1, "faults": [{**ONCE, "used": 1}]})
    gone = {"broker": 1, "removed": [{**ONCE, "used": 1}]}
    assert ask(room, "DELETE", "/faults/once") == (200, gone)
    assert ask(room, "DELETE", "/faults/once") == (404, {"error": "no fault once is in force"})
    assert ask(room, "DELETE") == (200, {"broker": 1, "removed": []})


def test_all_go_at_once(room):
    ask(room, "POST", body=ONCE)
    ask(room, "POST", body={"do": "full_disk"})
    status, told = ask(room, "DELETE")
    assert (status, len(told["removed"])) == (200, 2)
    assert room.listed() == []


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"{", "the body is no JSON"),
        (b"\xff", "the body is no JSON"),
        (b"[" * 8000, "the body is no JSON"),
        ([], "a fault must be a JSON object"),
        ({"do": "explode"}, "do must be one of"),
        ({**ONCE, "on": "Prodduce"}, "did you mean Produce"),
    ],
)
def test_what_is_no_fault_is_answered_with_why(room, body, why):
    status, told = ask(room, "POST", body=body)
    assert (status, why in told["error"]) == (400, True), told
    assert room.listed() == []


def test_a_page_in_a_browser_cannot_send_a_fault(room):
    """It may send text to any port without being asked, and JSON only when the port allows it."""
    assert ask(room, "POST", body=ONCE, content_type="text/plain")[0] == 415
    assert ask(room, "POST", body=ONCE, content_type="")[0] == 415
    assert ask(room, "POST", body=ONCE, content_type="Application/JSON; charset=utf-8")[0] == 201


def test_other_methods_and_paths_are_named(room):
    assert ask(room, "PUT")[0] == 405
    assert ask(room, "POST", "/faults/once", ONCE)[0] == 405
    assert ask(room, "GET", "/faultsonce")[0] == 404


def served(request: bytes, door) -> bytes:
    """Returns the answer of an admin listener to a client."""

    async def main():
        client, stream = memory_pair(room=1 << 20)
        client.send_nowait([request])
        server = AdminServer(None, ListTracer(), (), door)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.serve, stream, "client")
            await trio.testing.wait_all_tasks_blocked()
            heard = b"".join(client.incoming)
            nursery.cancel_scope.cancel()
        return heard

    return trio.run(main)


def post(body: bytes, *headers: str) -> bytes:
    head = ["POST /faults HTTP/1.1", "Host: h", f"Content-Type: {JSON}", *headers]
    return "\r\n".join([*head, "", ""]).encode() + body


def test_a_body_comes_with_a_length_or_in_chunks(room):
    body = json.dumps(ONCE).encode()
    heard = served(post(body, f"Content-Length: {len(body)}"), JsonDoor(room))
    assert heard.startswith(b"HTTP/1.1 201")
    room.clear()
    chunk = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    heard = served(post(chunk, "Transfer-Encoding: chunked"), JsonDoor(room))
    assert heard.startswith(b"HTTP/1.1 201")


def test_a_client_that_waits_to_be_told_to_go_on_is_told(room):
    heard = served(post(b"", "Content-Length: 5", "Expect: 100-continue"), JsonDoor(room))
    assert heard.startswith(b"HTTP/1.1 100")


def test_a_body_has_a_bound(room):
    long = b" " * (REQUEST_BYTES_MAX + 1)
    heard = served(post(long, f"Content-Length: {len(long)}"), JsonDoor(room))
    assert heard.startswith(b"HTTP/1.1 413")


def test_a_broker_that_is_not_under_test_has_no_such_path():
    heard = served(post(b"{}", "Content-Length: 2"), None)
    assert heard.startswith(b"HTTP/1.1 405")

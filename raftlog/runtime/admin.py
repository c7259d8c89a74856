"""The admin listener: /livez, /readyz, /metrics and /status over HTTP/1.1, for operators and tools.

`/livez` says "restart me" (a stuck disk, a dead loop) and is never tied to a quorum; `/readyz`
says "can serve"; both take `?verbose`. Metrics are in Prometheus' text format. Only GET and HEAD
are served, bodies are not read, and every answer closes its connection: this port has a handful of
polite clients. An impolite one costs its own connection. Headers of every answer name the cluster,
the node and the process. A broker under test serves /faults too, with bodies (`fault_port`).

At most `CONNECTIONS_MAX` connections are open. One more takes the place of the oldest that waits
for its client: to send the rest of a request, or to take the answer. A client that keeps half
requests open would else keep health probes out.
"""

import json
from collections.abc import Iterable
from typing import Any, Final, final

import attrs
import h11
import trio

from raftlog.base.ports import Tracer
from raftlog.base.trace import TraceEvent
from raftlog.broker.events import AdminCall, AdminReply
from raftlog.runtime.driver import Driver
from raftlog.runtime.fault_port import Answer, FaultDoor
from raftlog.runtime.network.streams import ByteStream

ANSWER_SECONDS: Final = 5.0
REQUEST_BYTES_MAX: Final = 8192
CONNECTIONS_MAX: Final = 32
_JSON: Final = "application/json"
_TEXT: Final = "text/plain; charset=utf-8"
_PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"


@final
@attrs.define(eq=False)
class AdminServer:
    """Asks the broker by `AdminCall` and answers over HTTP; the driver's `AdminAnswers`."""

    driver: Driver
    tracer: Tracer
    identity: tuple[tuple[str, str], ...]
    """Headers of every answer: whose health this is. A port may have become another broker's."""
    fault_door: FaultDoor | None = None
    """Serves /faults of a broker under test; None for any other broker."""
    _waiting: dict[int, trio.Event] = attrs.field(factory=dict, init=False)
    _answers: dict[int, Any] = attrs.field(factory=dict, init=False)
    _tokens: int = attrs.field(default=0, init=False)
    _open: int = attrs.field(default=0, init=False)
    _lingering: dict[int, trio.CancelScope] = attrs.field(factory=dict, init=False)
    """Connections that wait for their client, by number; who has waited longest stands first."""
    _connections: int = attrs.field(default=0, init=False)

    def answer(self, reply: AdminReply) -> None:
        """Give an answer to who waits for it; one that came too late is dropped."""
        waiting = self._waiting.get(reply.token)
        if waiting is not None:
            self._answers[reply.token] = reply.value
            waiting.set()

    async def ask(self, command: str) -> Any:
        """The broker's answer to a command. Raises `trio.TooSlowError` when the loop is stuck."""
        self._tokens += 1
        token = self._tokens
        arrived = self._waiting[token] = trio.Event()
        try:
            self.driver.post(AdminCall(token, command, ()))
            with trio.fail_after(ANSWER_SECONDS):
                await arrived.wait()
            return self._answers.pop(token)
        finally:
            del self._waiting[token]
            self._answers.pop(token, None)

    async def serve(self, stream: ByteStream, address: str) -> None:
        """Serve one request and close."""
        if self._open >= CONNECTIONS_MAX and not self._evict():
            stream.close()
            return
        self._open += 1
        self._connections += 1
        number = self._connections
        try:
            with trio.move_on_after(2 * ANSWER_SECONDS) as scope:
                self._lingering[number] = scope
                await self._serve(stream, number, scope)
        except (h11.ProtocolError, trio.BrokenResourceError, trio.ClosedResourceError) as error:
            self.tracer.emit(TraceEvent("admin-refused", address, (("why", str(error)),)))
        finally:
            self._open -= 1
            self._lingering.pop(number, None)
            stream.close()

    def _evict(self) -> bool:
        """End the oldest connection that waits for its client; False when none does."""
        oldest = next(iter(self._lingering), None)
        if oldest is None:
            return False
        # Its place is free at once, though its task ends a moment later: two newcomers between the
        # two moments take the places of two.
        self._lingering.pop(oldest).cancel()
        return True

    async def _serve(self, stream: ByteStream, number: int, scope: trio.CancelScope) -> None:
        parser = h11.Connection(h11.SERVER, max_incomplete_event_size=REQUEST_BYTES_MAX)
        buffer = bytearray(REQUEST_BYTES_MAX)
        event = await _next_event(parser, stream, buffer)
        if not isinstance(event, h11.Request):
            return
        if self.fault_door is not None and event.target.startswith(b"/faults"):
            answer = await _ask_faults(self.fault_door, event, parser, stream, buffer)
        else:
            self._lingering.pop(number, None)
            answer = await self._route(event)
        self._lingering.pop(number, None)
        status, content_type, body = answer
        payload = body.encode()
        headers = [
            ("Content-Type", content_type),
            ("Content-Length", str(len(payload))),
            ("Connection", "close"),
            *self.identity,
        ]
        pieces = [parser.send(h11.Response(status_code=status, headers=headers))]
        if event.method != b"HEAD":  # it is told how long the body would be, and gets none
            pieces.append(parser.send(h11.Data(data=payload)))
        pieces.append(parser.send(h11.EndOfMessage()))
        self._lingering[number] = scope
        await _send_all(stream, b"".join(piece for piece in pieces if piece))

    async def _route(self, request: h11.Request) -> Answer:
        path, _, query = request.target.decode("ascii", "replace").partition("?")
        if request.method not in (b"GET", b"HEAD"):
            return 405, _TEXT, "only GET and HEAD are served here\n"
        try:
            if path in ("/livez", "/readyz"):
                return health_answer(await self.ask(path[1:]), verbose="verbose" in query)
            if path == "/metrics":
                return 200, _PROMETHEUS, prometheus_text(await self.ask("metrics"))
            if path == "/status":
                return 200, _JSON, json.dumps(await self.ask("status"), indent=1) + "\n"
        except trio.TooSlowError:
            return 503, _TEXT, "the broker's loop does not answer\n"
        return 404, _TEXT, "known here: /livez /readyz /metrics /status\n"


async def _next_event(parser: h11.Connection, stream: ByteStream, buffer: bytearray) -> Any:
    while (event := parser.next_event()) is h11.NEED_DATA:
        if parser.they_are_waiting_for_100_continue:
            headers: list[tuple[str, str]] = []
            go_on = h11.InformationalResponse(status_code=100, headers=headers)
            await _send_all(stream, parser.send(go_on) or b"")
        with memoryview(buffer) as view:
            received = await stream.receive_into(view)
        parser.receive_data(bytes(buffer[:received]))
    return event


async def _ask_faults(
    door: FaultDoor,
    request: h11.Request,
    parser: h11.Connection,
    stream: ByteStream,
    buffer: bytearray,
) -> Answer:
    """The answer of a broker under test, with the request's body read to its end."""
    body = b""
    while isinstance(event := await _next_event(parser, stream, buffer), h11.Data):
        body += event.data
        if len(body) > REQUEST_BYTES_MAX:
            return 413, _TEXT, f"a body may have {REQUEST_BYTES_MAX} bytes\n"
    headers = {name.decode(): value.decode("latin-1") for name, value in request.headers}
    path = request.target.decode("ascii", "replace").partition("?")[0]
    content_type = headers.get("content-type", "")
    return door.answer(request.method.decode(), path, content_type, body)


def health_answer(value: dict[str, Any], *, verbose: bool) -> Answer:
    """200 when all checks are ok, else 503; each check on a line when verbose or failed."""
    status = 200 if value["ok"] else 503
    if value["ok"] and not verbose:
        return status, _TEXT, "ok\n"
    lines = [
        f"[{'+' if said == 'ok' else '-'}]{name} {said}" for name, said in value["checks"].items()
    ]
    return status, _TEXT, "\n".join([*lines, "ok" if value["ok"] else "failed"]) + "\n"


def prometheus_text(samples: Iterable[tuple[str, str, dict[str, str], float]]) -> str:
    """Samples (name, type, labels, value) in Prometheus' text format, a type line per name."""
    lines: list[str] = []
    typed: dict[str, None] = {}
    for name, kind, labels, value in sorted(
        samples, key=lambda each: (each[0], sorted(each[2].items()))
    ):
        if name not in typed:
            typed[name] = None
            lines.append(f"# TYPE {name} {kind}")
        inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in sorted(labels.items()))
        lines.append(f"{name}{{{inside}}} {value}" if inside else f"{name} {value}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


async def _send_all(stream: ByteStream, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[stream.send_nowait([view]) :]
        if view:
            await stream.wait_writable()

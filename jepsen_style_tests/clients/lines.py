"""A client in another language: a process that is spoken to in lines of JSON.

    driver  -> program   {"id": 7, "f": "send", "topic": "log", "partition": 1, "value": "#0-3"}
    program -> driver    {"id": 7, "type": "ok", "value": 41}

| f | further fields | value of ok |
|---|---|---|
| open | bootstrap, idempotent, retries, seconds, request_seconds | null |
| send | topic, partition, value | the record's offset |
| assign | positions: a list of [topic, partition, offset] | null |
| poll | seconds | a list of [topic, partition, offset, value] |
| end | topic, partition | the offset after the last record |

The type is `ok`, `fail` (it did not happen and never will) or `info` (it may have happened, or may
yet): a timeout is `info`. With both of these, `error` says why. Answers come in any order, one for
each request. The program ends when its input ends.
"""

import json
import os
import queue
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, final

from jepsen_style_tests.clients.face import (
    CallRefused,
    ClientSettings,
    Done,
    Found,
    Unknown,
    key_of,
)

LINE_BYTES_MAX: Final = 8 << 20
"""A poll's answer holds at most a few fetches."""
OPEN_SECONDS: Final = 20.0
"""A virtual machine starts slowly beside five others."""
END_SECONDS: Final = 5.0
TAIL_BYTES: Final = 500
_Answer = Callable[[Any, Exception | None], None]


class LineProtocolError(Exception):
    """The program broke the protocol: a fault of the test, never of a broker."""


@final
class LineClient:
    """A `face.Client`: the program `command`, one process a client."""

    def __init__(self, command: Sequence[str], settings: ClientSettings) -> None:
        self._seconds = settings.seconds
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - until close
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                start_new_session=True,
            )
        except OSError:
            self._errors.close()
            raise
        self._changed = threading.Condition()
        self._waiting: dict[int, _Answer] = {}
        self._next = 0
        self._ended = ""
        """Why there will be no more answers."""
        self._broken = ""
        """How the program broke the protocol."""
        self._reader = threading.Thread(target=self._read, name="lines", daemon=True)
        self._reader.start()
        try:
            self._call(
                OPEN_SECONDS,
                "open",
                bootstrap=settings.bootstrap,
                idempotent=settings.idempotent,
                retries=settings.retries,
                seconds=settings.seconds,
                request_seconds=settings.request_seconds,
            )
        except Unknown as error:
            ended = self._ended
            self.close()
            # Such a program never becomes a client: no worker may wait for it to the run's end.
            if ended:
                raise LineProtocolError(f"{command[0]} cannot be a client: {ended}") from error
            raise
        except BaseException:
            self.close()
            raise

    # --- face.Client ------------------------------------------------------------------------------

    def send(self, topic: str, partition: int, value: str) -> int:
        found = self._call(2 * self._seconds, "send", topic=topic, partition=partition, value=value)
        return self._offset(found)

    def send_soon(self, topic: str, partition: int, value: str, done: Done) -> None:
        def told(found: Any, error: Exception | None) -> None:
            if error is None:
                try:
                    found = self._offset(found)
                except LineProtocolError as broken:
                    found, error = None, Unknown(str(broken))
            done(found, error)

        self._ask(told, "send", topic=topic, partition=partition, value=value)

    def settle(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting, seconds)
        self._check()

    def assign(self, positions: Mapping[tuple[str, int], int]) -> None:
        places = [[topic, partition, offset] for (topic, partition), offset in positions.items()]
        self._call(2 * self._seconds, "assign", positions=places)

    def poll(self, seconds: float) -> Found:
        found: Found = {}
        for record in self._call(seconds + self._seconds, "poll", seconds=seconds):
            match record:
                case [str(topic), int(partition), int(offset), str(value)]:
                    found.setdefault(key_of(topic, partition), []).append([offset, value])
                case _:
                    raise self._breach(f"no record: {record!r}")
        return found

    def end(self, topic: str, partition: int) -> int:
        return self._offset(self._call(2 * self._seconds, "end", topic=topic, partition=partition))

    def close(self) -> None:
        # The program gets no time to flush: what is in flight stays unknown, as after a crash.
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if threading.current_thread() is not self._reader:
            self._reader.join(END_SECONDS)
        if self._process.stdin is not None and not self._process.stdin.closed:
            # Half a line may be left in the buffer when the program ended under a write.
            with suppress(OSError):
                self._process.stdin.close()
        self._errors.close()

    # --- requests and answers ---------------------------------------------------------------------

    def _call(self, seconds: float, f: str, /, **fields: Any) -> Any:
        answers: queue.SimpleQueue[tuple[Any, Exception | None]] = queue.SimpleQueue()
        number = self._ask(lambda *answer: answers.put(answer), f, **fields)
        try:
            value, error = answers.get(timeout=seconds)
        except queue.Empty:
            with self._changed:
                # An answer that comes later is dropped: the caller has been told already.
                if number in self._waiting:
                    self._waiting[number] = _dropped
            raise Unknown(f"{f}: no answer in {seconds:.1f} s") from None
        self._check()
        if error is not None:
            raise error
        return value

    def _ask(self, told: _Answer, f: str, /, **fields: Any) -> int:
        self._check()
        with self._changed:
            number = self._next
            self._next += 1
            ended = self._ended
            if not ended:
                self._waiting[number] = told
        if ended:
            told(None, Unknown(ended))
            return number
        line = json.dumps({"id": number, "f": f, **fields}) + "\n"
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()
        except (OSError, ValueError):
            # The program has ended. Its reader meets the end of its output and tells everyone.
            pass
        return number

    def _read(self) -> None:
        """Until the program ends: tell each request its answer."""
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            try:
                while line := lines.readline(LINE_BYTES_MAX):
                    self._take(line)
            except LineProtocolError as error:
                self._broken = str(error)
                with suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
        code = self._process.wait()
        with self._changed:
            self._ended = f"the program ended with {code}: {self._tail()}"
            left, self._waiting = self._waiting, {}
            self._changed.notify_all()
        for told in left.values():
            told(None, Unknown(self._ended))

    def _take(self, line: bytes) -> None:
        try:
            answer = json.loads(line)
            number, kind = answer["id"], answer["type"]
        except (ValueError, TypeError, KeyError) as error:
            raise LineProtocolError(f"no answer: {line[:TAIL_BYTES]!r}") from error
        with self._changed:
            told = self._waiting.pop(number, None)
            self._changed.notify_all()
        if told is None:
            raise LineProtocolError(f"an answer to no request: {line[:TAIL_BYTES]!r}")
        match kind:
            case "ok":
                told(answer.get("value"), None)
            case "fail":
                told(None, CallRefused(str(answer.get("error"))))
            case "info":
                told(None, Unknown(str(answer.get("error"))))
            case _:
                told(None, Unknown(f"type {kind!r}"))
                raise LineProtocolError(f"no type of an answer: {kind!r}")

    def _offset(self, found: Any) -> int:
        if type(found) is not int or found < 0:
            raise self._breach(f"no offset: {found!r}")
        return found

    def _breach(self, what: str) -> LineProtocolError:
        self._broken = self._broken or what
        return LineProtocolError(what)

    def _check(self) -> None:
        if self._broken:
            raise LineProtocolError(self._broken)

    def _tail(self) -> str:
        with suppress(ValueError, OSError):  # closed meanwhile
            size = self._errors.seek(0, os.SEEK_END)
            self._errors.seek(max(0, size - TAIL_BYTES))
            return " ".join(self._errors.read().decode(errors="replace").split())
        return ""


def _dropped(value: Any, error: Exception | None) -> None:
    """The answer to a call that was given up."""

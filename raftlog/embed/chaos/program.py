"""The user's own program beside a run: it is started, its output is shown, and it is ended with the
run.

The shell runs it in a process group of its own, so that all processes that it starts can be ended
with it.
"""

import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import BinaryIO, Final, final

from raftlog.base.errors import OperatingError

OUTPUT_BYTES_MAX: Final = 64 << 20
"""How much of the program's output the file keeps. All of it is shown."""
_END_SECONDS: Final = 5.0
_PIECE: Final = 1 << 16


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Hold back SIGINT and SIGTERM while a process is started and noted down.

    A signal that came in between would end the run before it knows the process, which would then
    run on. It is delivered at the end. Only the main thread handles signals; elsewhere this does
    nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        del frame
        came.append(number)

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    # A signal that is ignored stays ignored, and one that C code handles is left to it.
    held = [number for number, handler in before.items() if handler not in (signal.SIG_IGN, None)]
    for number in held:
        signal.signal(number, note)
    try:
        yield
    finally:
        for number in held:
            signal.signal(number, before[number])
        for late in came:
            signal.raise_signal(late)


@final
class Program:
    """The running program. Its output goes to `shown` and into a file."""

    def __init__(
        self, command: str, environment: Mapping[str, str], output: Path, shown: BinaryIO
    ) -> None:
        self._output = output
        self._shown = shown
        try:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", command],
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise OperatingError(
                f"the program cannot be started: {error.strerror}", on=command
            ) from error
        self._pump = threading.Thread(target=self._show, name="raftlog program", daemon=True)
        self._pump.start()

    def _show(self) -> None:
        pipe = self._process.stdout
        assert pipe is not None, "asked for above"
        left = OUTPUT_BYTES_MAX
        with self._output.open("wb") as kept:
            while piece := os.read(pipe.fileno(), _PIECE):
                kept.write(piece[:left])
                kept.flush()
                left -= min(left, len(piece))
                self._shown.write(piece)
                self._shown.flush()

    @property
    def code(self) -> int | None:
        """The exit code; the negative number of the signal that ended it; None while it runs."""
        return self._process.poll()

    def wait(self, seconds: float) -> str:
        """Wait until the program ends. Return what is wrong with it: "" after exit code 0."""
        try:
            code = self._process.wait(max(0.0, seconds))
        except subprocess.TimeoutExpired:
            return "it did not end in time"
        if code < 0:
            return f"{signal.Signals(-code).name} ended it"
        return f"it ended with {code}" if code else ""

    def end(self) -> None:
        """End the program and all processes that it left behind: by SIGTERM, after 5 seconds by
        SIGKILL."""
        if self._process.poll() is None:
            self._signal(signal.SIGTERM)
            try:
                self._process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                self._signal(signal.SIGKILL)
                self._process.wait()
        self._signal(signal.SIGKILL)
        self._pump.join(_END_SECONDS)
        pipe = self._process.stdout
        if pipe is not None and not self._pump.is_alive():
            pipe.close()

    def _signal(self, number: int) -> None:
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return  # no process of the group is left

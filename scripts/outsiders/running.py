"""Runs one client's program: a JSON line a feature, with a limit on the time of each.

A program that gives no result in time is ended, whatever else it prints, and its present feature is
a `hang`. It starts again with the features that remain. A program that ends early was `wrong` in
its present feature.
"""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time

from outsiders.outcomes import HANG, WORKS, WRONG, Cell, cell_of

TAIL_BYTES = 400
LINE_BYTES_MAX = 100_000


def end_whole():
    """Let SIGTERM and SIGHUP end this process as an interrupt does, from now on.

    Programs, brokers and their folders go first. By default the process would end at once, and
    leave them behind.
    """

    def end(number, _frame):
        sys.exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)


class ProgramError(Exception):
    """A program of ours printed a line that cannot be a cell."""


class Run:
    """The results of a program: its client's version, and a cell for each feature."""

    def __init__(self):
        self.version = None
        self.cells = {}

    def take(self, line, remaining):
        """Take one line of the program; returns the features that remain after it."""
        try:
            told = json.loads(line)
        except ValueError as error:
            raise ProgramError(f"its line is no JSON: {line[:TAIL_BYTES]!r}") from error
        if "version" in told:
            self.version = told["version"]
            return remaining
        if not remaining or told.get("feature") != remaining[0]:
            raise ProgramError(f"it told of {told.get('feature')!r}, not of {remaining[:1]}")
        self.cells[remaining[0]] = cell_of(told)
        return remaining[1:]


def run_program(command, place, features, seconds, environment=None, still_there=lambda: None):
    """Run `command` with `place` (bootstrap, prefix) until each feature has its cell.

    Whenever it does not come to its end, `still_there` raises if the cluster is gone: then no cell
    counts.
    """
    run = Run()
    remaining = list(features)
    while remaining:
        before = remaining
        asked = [*command, *place]
        remaining, cell = _started(run, asked, remaining, seconds, environment or {})
        if cell is not None:
            still_there()
            run.cells[remaining[0]] = cell
            remaining = remaining[1:]
        assert len(remaining) < len(before), before
    return run


def judge(run, topics):
    """Take back a client's "works" where the cluster shows otherwise."""
    for feature, cell in run.cells.items():
        if cell.outcome == WORKS and (denial := topics.denial_of(feature)) is not None:
            said = f"it said that it works, but {denial.said}" if denial.outcome == WRONG else ""
            run.cells[feature] = Cell(denial.outcome, said or denial.said)


def _started(run, command, remaining, seconds, environment):
    """Run one process; returns the features that remain after it.

    When the process did not come so far, it also returns a cell for the first of them.
    """
    folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    with folder as place, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [*command, *remaining],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
            cwd=place,
            env={**os.environ, **environment},
        )
        try:
            for line in _results(process.stdout, seconds):
                if line is None:
                    return remaining, Cell(HANG, f"silent for {seconds} s")
                remaining = run.take(line, remaining)
                if not remaining:
                    return [], None
            return remaining, Cell(WRONG, f"it ended with {process.wait()}: {_tail(errors)}")
        finally:
            _end(process)


def _results(pipe, seconds):
    """Yields the JSON lines as they come, and None when none came for `seconds`.

    Some libraries print lines of their own: these give no more time.
    """
    held = b""
    deadline = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while True:
            left = deadline - time.monotonic()
            if left <= 0 or not selector.select(left):
                yield None
                return
            piece = os.read(pipe.fileno(), 65536)
            if not piece:
                return
            held += piece
            if len(held) > LINE_BYTES_MAX:
                raise ProgramError("its line has no end")
            *whole, held = held.split(b"\n")
            for line in whole:
                if line.startswith(b"{"):
                    yield line
                    deadline = time.monotonic() + seconds


def _end(process):
    """End the program and all that it started: its last line is printed, or it is silent."""
    # When the group is gone, the program ended by itself, with everything that it had started.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()


def _tail(errors):
    size = errors.seek(0, os.SEEK_END)
    errors.seek(max(0, size - TAIL_BYTES))
    return " ".join(errors.read().decode(errors="replace").split())

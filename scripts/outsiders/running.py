"""Runs one client's program: a JSON line a feature, with a limit on its silence.

A program that stays silent is ended: the feature it was in is a `hang`. It starts again with the
features that remain. A program that ends early was `wrong` in the feature it was in.
"""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import tempfile

from outsiders.outcomes import HANG, WORKS, WRONG, Cell, cell_of

TAIL_BYTES = 400
LINE_BYTES_MAX = 100_000


class Run:
    """What a program said: its client's version, and a cell for each feature."""

    def __init__(self):
        self.version = None
        self.cells = {}

    def take(self, line, remaining):
        """One line of the program; returns the features that remain after it."""
        told = json.loads(line)
        if "version" in told:
            self.version = told["version"]
            return remaining
        if not remaining or told["feature"] != remaining[0]:
            raise ValueError(f"the program told of {told['feature']!r}, not of {remaining[:1]}")
        self.cells[remaining[0]] = cell_of(told)
        return remaining[1:]


def run_program(command, place, features, seconds, environment=None):
    """Run `command` with `place` (bootstrap, prefix) until each feature has its cell."""
    run = Run()
    remaining = list(features)
    while remaining:
        before = remaining
        asked = [*command, *place]
        remaining, cell = _started(run, asked, remaining, seconds, environment or {})
        if cell is not None:
            run.cells[remaining[0]] = cell
            remaining = remaining[1:]
        assert len(remaining) < len(before), before
    return run


def judge(run, topics):
    """Take back a client's "works" where the cluster shows otherwise."""
    for feature, cell in run.cells.items():
        if cell.outcome == WORKS and (denial := topics.denial_of(feature)) is not None:
            run.cells[feature] = Cell(WRONG, f"it said that it works, but {denial}")


def _started(run, command, remaining, seconds, environment):
    """One process: the features that remain after it, and a cell for the first of them when the
    process did not come so far."""
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
            for line in _lines(process.stdout, seconds):
                if line is None:
                    return remaining, Cell(HANG, f"silent for {seconds} s")
                # Some libraries print lines of their own.
                if not line.startswith(b"{"):
                    continue
                remaining = run.take(line, remaining)
                if not remaining:
                    return [], None
            return remaining, Cell(WRONG, f"it ended with {process.wait()}: {_tail(errors)}")
        finally:
            _end(process)


def _lines(pipe, seconds):
    """The lines as they come, and None when none came for `seconds`."""
    held = b""
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while True:
            if not selector.select(seconds):
                yield None
                return
            piece = os.read(pipe.fileno(), 65536)
            if not piece:
                return
            held += piece
            assert len(held) < LINE_BYTES_MAX, "a program's line has no end"
            *whole, held = held.split(b"\n")
            yield from whole


def _end(process):
    """End the program and all that it started: its last line is said, or it is silent."""
    # Without the group, it ended by itself, with everything that it had started.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()


def _tail(errors):
    size = errors.seek(0, os.SEEK_END)
    errors.seek(max(0, size - TAIL_BYTES))
    return " ".join(errors.read().decode(errors="replace").split())

"""Brokers inside this process: all of them in one trio loop, in a thread of its own.

`kill` cancels a broker between two turns: it hands nothing over and writes nothing more. The bytes
that the operating system already has stay in its files, as after SIGKILL. `pause` stops its turns,
as SIGSTOP does.
"""

import io
import os
import threading
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final, TypeVar, final

import attrs
import trio

from raftlog.base.errors import LocalMisuse, OperatingError, RaftlogError
from raftlog.client.system import refuse_inside_trio
from raftlog.embed.faults import RoomsInside
from raftlog.runtime import server
from raftlog.runtime.disks.recording_files import BootFolders, RecordingFolder
from raftlog.runtime.local.broker_processes import STOP_SECONDS
from raftlog.runtime.local.cluster import LocalCluster
from raftlog.runtime.real_ports import SystemClock
from raftlog.runtime.recording_port import Recordings
from raftlog.runtime.settings import config_file
from raftlog.runtime.settings.config_file import ServerConfig
from raftlog.runtime.settings.fault_settings import FAULTS
from raftlog.runtime.tracing import JsonTracer
from raftlog.testing.faults import BrokerFaults
from raftlog.testing.faulty_disk import disk_from_environment

Result = TypeVar("Result")

START_SECONDS: Final = 20.0


@final
@attrs.define(eq=False)
class _Running:
    """One broker's task. `ended` is set when the task is over, for any reason."""

    scope: trio.CancelScope
    control: server.Control
    listening: trio.Event = attrs.Factory(trio.Event)
    ended: trio.Event = attrs.Factory(trio.Event)
    error: BaseException | None = None


@final
@attrs.define(eq=False)
class InProcessBrokers:
    """The brokers of a founded cluster. The methods block; any thread but the loop's own may call
    them."""

    cluster: LocalCluster
    recordings: RecordingFolder | None = None
    _thread: threading.Thread | None = attrs.field(default=None, init=False)
    _token: trio.lowlevel.TrioToken | None = attrs.field(default=None, init=False)
    _nursery: trio.Nursery | None = attrs.field(default=None, init=False)
    _process: int = attrs.field(default=0, init=False)
    """The process that the thread belongs to. One that was forked from it has no such thread."""
    _up: threading.Event = attrs.field(factory=threading.Event, init=False)
    _broken: Exception | None = attrs.field(default=None, init=False)
    _brokers: dict[int, _Running] = attrs.field(factory=dict, init=False)
    rooms: RoomsInside | None = attrs.field(init=False)
    """The fault rooms of the brokers; None when the cluster's settings allow no faults."""

    def __attrs_post_init__(self) -> None:
        refused = self.cluster.settings.get(FAULTS, "").lower() == "false"
        self.rooms = None if refused else RoomsInside()

    def start_all(self) -> None:
        """Start the loop and every broker, if they do not run yet; return when all brokers are
        ready."""
        if self._thread is None:
            self._process = os.getpid()
            self._thread = threading.Thread(target=self._run, name="raftlog brokers", daemon=True)
            self._thread.start()
            self._up.wait()
            if self._broken is not None:
                self._thread.join()
                self._thread = None
                raise OperatingError(
                    f"the brokers' event loop does not start: {self._broken}",
                    on=str(self.cluster.directory),
                ) from self._broken
        self.cluster.hold_ports()
        nodes = [place.node for place in self.cluster.places]
        for node in nodes:
            if not self.is_running(node):
                self.start(node)
        for node in nodes:
            self.wait_ready(node)

    def start(self, node: int) -> None:
        """Start one broker. Use `wait_ready` or `wait_serving` to wait for it."""
        if self.is_running(node):
            raise LocalMisuse(f"broker {node} is running already")
        self._call(self._start, node)

    def kill(self, node: int) -> None:
        """End a broker between two turns."""
        self._call(self._kill, self._running(node))
        del self._brokers[node]

    def terminate(self, node: int) -> None:
        """End a broker gracefully: it hands over leadership first."""
        self._call(self._terminate, self._running(node))
        del self._brokers[node]

    def pause(self, node: int) -> None:
        """Let a broker take no more turns."""
        driver = self._running(node).control.driver
        assert driver is not None, node
        self._call(_async(driver.pause))

    def resume(self, node: int) -> None:
        """Let a paused broker take turns again."""
        driver = self._running(node).control.driver
        assert driver is not None, node
        self._call(_async(driver.resume))

    def running(self) -> list[int]:
        """The nodes that were started and not ended."""
        return [node for node in sorted(self._brokers) if self.is_running(node)]

    def is_running(self, node: int) -> bool:
        """Whether a broker was started, was not ended, and did not die by itself."""
        running = self._brokers.get(node)
        return running is not None and not running.ended.is_set()

    def stop(self) -> None:
        """End all brokers at once, because none is left to hand over to. Then end the loop and its
        thread. A process that was forked meanwhile leaves them to its parent."""
        if self._thread is None or os.getpid() != self._process:
            return
        # Ctrl-C may have interrupted `start_all` before the loop was there.
        up = self._up.wait(START_SECONDS)
        try:
            if up and self._broken is None:
                self._call(self._stop_all)
        finally:
            if up:
                self._thread.join()
            self._thread = None
            self._brokers.clear()

    def _running(self, node: int) -> _Running:
        self.cluster.place(node)
        if not self.is_running(node):
            raise LocalMisuse(f"broker {node} is not running")
        return self._brokers[node]

    def _call(self, function: Callable[..., Awaitable[Result]], *args: object) -> Result:
        assert self._token is not None, "not started"
        if os.getpid() != self._process:
            raise LocalMisuse(
                "the brokers run in the process from which this one was forked",
                do="call this method there",
            )
        refuse_inside_trio("this method", "await the same method of cluster.aio")
        return trio.from_thread.run(function, *args, trio_token=self._token)

    # --- waiting ----------------------------------------------------------------------------------

    def wait_ready(self, node: int) -> None:
        """Wait until a broker is ready. `OperatingError` when it ended or is not ready in time. The
        error says what the broker waits for; a late broker goes on."""
        self.cluster.files.wait([node], self._waits_for, START_SECONDS)

    def wait_serving(self, node: int) -> None:
        """Wait until a broker listens, even if it cannot reach the cluster yet."""
        self.cluster.files.wait([node], self._silent, START_SECONDS)

    def _waits_for(self, node: int) -> str | None:
        return self._silent(node) or self.cluster.lacking(node, os.getpid())

    def _silent(self, node: int) -> str | None:
        """The reason why a broker does not listen; None when it does. `OperatingError` when it has
        ended."""
        running = self._brokers[node]
        if running.ended.is_set():
            error = running.error
            text = "ended: " + ("" if error is None else str(_first(error)))
            raise self.cluster.files.trouble(node, text)
        return None if running.listening.is_set() else "it does not listen yet"

    # --- in the loop ------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            trio.run(self._main)
        except Exception as error:
            if self._up.is_set():
                raise
            # The loop itself failed; for example the process has no file descriptors left.
            self._broken = error
        finally:
            self._up.set()  # `start_all` waits for it, also after an error.

    async def _main(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self._up.set()
            await trio.sleep_forever()

    async def _start(self, node: int) -> None:
        assert self._nursery is not None, "not started"
        running = _Running(trio.CancelScope(), server.Control())
        self._brokers[node] = running
        self._nursery.start_soon(self._serve, node, running, name=f"broker {node}")

    async def _serve(self, node: int, running: _Running) -> None:
        """Run one broker. An error that ends it is kept and reported later, because the other
        brokers go on."""
        try:
            with self.cluster.log_path(node).open("a", encoding="utf-8") as output:
                await self._serve_tracing(node, running, output)
        except (Exception, BaseExceptionGroup) as error:
            running.error = error
        finally:
            running.ended.set()

    async def _serve_tracing(self, node: int, running: _Running, output: io.TextIOBase) -> None:
        clock = SystemClock()
        config = config_file.load(str(self.cluster.files.config_path(node)))
        tracer = JsonTracer(output, clock, node)  # type: ignore[arg-type]
        with ExitStack() as stack, running.scope:
            stack.callback(tracer.flush)
            await server.serve(
                config,
                tracer=tracer,
                started=partial(_listening, running),
                clock=clock,
                own_process=False,
                control=running.control,
                faults=self._faults(node, config),
                test_disk=disk_from_environment(tracer, loopback_only=config.loopback_only()),
                recordings=self._recordings(config, stack),
            )

    def _recordings(self, config: ServerConfig, stack: ExitStack) -> Recordings | None:
        """The recordings of the cluster, or those that the broker's own settings ask for."""
        if self.recordings is not None or not config.recordings_dir:
            return self.recordings
        found = BootFolders(Path(config.recordings_dir))
        stack.callback(found.close)
        return found

    def _faults(self, node: int, config: ServerConfig) -> BrokerFaults | None:
        """The faults of the cluster's fault methods. None for a broker that other machines can
        reach."""
        if self.rooms is None or not config.loopback_only():
            return None
        return BrokerFaults(self.rooms.room(node), open_door=config.faults.on)

    async def _kill(self, running: _Running) -> None:
        _end(running)
        await running.ended.wait()

    async def _terminate(self, running: _Running) -> None:
        assert running.control.stop is not None, "not started"
        running.control.stop()
        with trio.move_on_after(STOP_SECONDS):
            await running.ended.wait()
        await self._kill(running)

    async def _stop_all(self) -> None:
        for running in self._brokers.values():
            _end(running)
        for running in self._brokers.values():
            await running.ended.wait()
        assert self._nursery is not None, "not started"
        self._nursery.cancel_scope.cancel()

    def raise_failures(self) -> None:
        """Raise the error of a broker that died by itself, if there is one."""
        for node, running in self._brokers.items():
            if running.ended.is_set() and running.error is not None:
                first = _first(running.error)
                text = first.what if isinstance(first, RaftlogError) else repr(first)
                raise OperatingError(f"broker {node} ended: {text}") from running.error


def _end(running: _Running) -> None:
    """Cancel a broker between two turns. Its ending tasks still report to the driver, which takes
    no further turn."""
    if running.control.driver is not None:
        running.control.driver.pause()
    running.scope.cancel()


def _listening(running: _Running, started: server.Started) -> None:
    del started
    running.listening.set()


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _async(function: Callable[[], None]) -> Callable[[], Awaitable[None]]:
    async def run() -> None:
        function()

    return run

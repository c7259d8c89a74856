"""The network of trio mode: who listens, who connects, and what befalls what is between two
machines. `Hub` has the face of `network.Network`, as far as faults need it.

    reset      all connections between two machines break
    part       they break, and cannot be made again
    hold       one direction carries nothing, neither end is told; later everything arrives at once
    slower     one direction takes longer
    silence    a machine lost its power: its peers hear nothing until it is on again, then a reset
"""

import errno
import os
from collections import deque
from collections.abc import Iterable
from typing import Final, final

import attrs
import trio

from raftlog.base.ids import NodeId
from raftlog.base.probes import probe
from raftlog.base.units import NANOS_PER_SECOND
from raftlog_sim.shell.trio_streams import Direction, Pace, ReadFile, SimStream, TrioPipe
from raftlog_sim.world.link_checks import LinkChecks
from raftlog_sim.world.network import PairKey, SimCut
from raftlog_sim.world.relay import Tap
from raftlog_sim.world.world import PEER_PORT

CLIENTS: Final = NodeId(0)
"""The machine that all clients run on."""
LIARS: Final = NodeId(1 << 31)
"""The machine that lying peers run on."""
CONNECT_SECONDS: Final = 10.0
"""How long a machine that hears nothing tries to connect."""
BACKLOG: Final = 512
_ACCEPT_FAILS_ONE_IN: Final = 40


@final
class SimListening:
    """A bound listener; a `Listening`."""

    def __init__(self, hub: "Hub", host: str, port: int) -> None:
        self._hub = hub
        self._place = (host, port)
        times = hub.pace.times
        self._draws = times.stream(f"accept/{host}/{port}/{times.now}")
        self._waiting: deque[tuple[SimStream, str]] = deque()
        self._arrived = trio.Event()
        self._closed = False

    @property
    def port(self) -> int:
        return self._place[1]

    @property
    def has_room(self) -> bool:
        """Whether one more may wait to be accepted."""
        return len(self._waiting) < BACKLOG

    def offer(self, stream: SimStream, address: str) -> None:
        """A connection to be accepted."""
        self._waiting.append((stream, address))
        self._arrived.set()

    async def accept(self) -> tuple[SimStream, str]:
        """See `Listening`. Now and then the process has too many open files."""
        await trio.lowlevel.checkpoint()
        while not self._waiting:
            await self._arrived.wait()
            self._arrived = trio.Event()
        if self._draws.chance(1, _ACCEPT_FAILS_ONE_IN):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return self._waiting.popleft()

    def close(self) -> None:
        """Stop listening; connections that were not accepted are reset."""
        if not self._closed:
            self._closed = True
            self._hub.forget(self._place, self)
            while self._waiting:
                self._waiting.popleft()[0].reset()


@final
class ProcessNetwork:
    """The network as one process has it; a `Network`. It ends with its process."""

    def __init__(self, hub: "Hub", machine: NodeId, read_file: ReadFile | None = None) -> None:
        self._hub = hub
        self._machine = machine
        self._read_file = read_file
        self._streams: dict[SimStream, None] = {}
        self._listeners: list[SimListening] = []
        self.over = False

    async def connect(self, host: str, port: int) -> SimStream:
        """See `Network`."""
        return await self._hub.connect(self, host, port)

    async def listen(self, host: str, port: int) -> list[SimListening]:
        """See `Network`."""
        await trio.lowlevel.checkpoint()
        listening = self._hub.listen(self, host, port)
        self._listeners.append(listening)
        return [listening]

    @property
    def machine(self) -> NodeId:
        return self._machine

    def owns(self, stream: SimStream) -> None:
        """A stream of this process; those that are over are forgotten now and then."""
        stream.read_file = self._read_file
        self._streams[stream] = None
        if len(self._streams) % 64 == 0:
            self._streams = {each: None for each in self._streams if each.stands}

    def end(self, how: str) -> None:
        """The process is gone: its streams `finish`, are `reset`, or fall `silent`."""
        self.over = True
        for listening in self._listeners:
            listening.close()
        for stream in self._streams:
            stream.abandon(how)
            if how == "silent":
                self._hub.silent.setdefault(self._machine, []).append(stream)


@final
@attrs.define(eq=False)
class Hub:
    """All connections of a world."""

    pace: Pace
    buffer_bytes: int
    """How many bytes a pipe takes before its reader has received anything."""
    silent: dict[NodeId, list[SimStream]] = attrs.Factory(dict)
    """Streams of machines that lost their power, until they are on again."""
    processes: dict[tuple[str, int], ProcessNetwork] = attrs.Factory(dict)
    cut: dict[PairKey, int] = attrs.Factory(dict)
    frames_read: int = 0
    """Messages are judged by who reads them: a peer link that cannot breaks, and is traced."""
    order: LinkChecks | None = None
    """Judges links of a run in which a relay strikes or a peer lies."""
    diverted: dict[NodeId, NodeId] = attrs.Factory(dict)
    """The machine that answers brokers in the place of another one."""
    _taps: dict[PairKey, Tap] = attrs.Factory(dict)
    """The newest of each direction."""
    _listeners: dict[tuple[str, int], SimListening] = attrs.Factory(dict)
    _directions: dict[PairKey, Direction] = attrs.Factory(dict)
    _streams: dict[PairKey, list[SimStream]] = attrs.Factory(dict)
    """One end of each connection, by machines."""
    _dialled: int = 0
    _changed: trio.Event = attrs.Factory(trio.Event)

    # --- connecting -------------------------------------------------------------------------------

    def listen(self, process: ProcessNetwork, host: str, port: int) -> SimListening:
        """Bind."""
        place = (host, port)
        if process.over or place in self._listeners:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        listening = self._listeners[place] = SimListening(self, host, port)
        self.processes[place] = process
        return listening

    def forget(self, place: tuple[str, int], listening: SimListening) -> None:
        """A listener was closed."""
        if self._listeners.get(place) is listening:
            del self._listeners[place], self.processes[place]

    async def connect(self, process: ProcessNetwork, host: str, port: int) -> SimStream:
        """Connect, or an OSError after a while."""
        target = NodeId(int(host.removeprefix("n")))
        diverted = self.diverted.get(target, process.machine)
        if port == PEER_PORT and diverted not in (target, process.machine):
            probe("dial-diverted")
            target, host = diverted, f"n{diverted}"
        self._dialled += 1
        pace = self.pace
        draws = pace.times.stream(f"wire/{process.machine}/{target}/{port}/{self._dialled}")
        await trio.sleep((pace.latency_ns + draws.below(pace.jitter_ns + 1)) / NANOS_PER_SECOND)
        with trio.move_on_after(CONNECT_SECONDS):
            while self._unheard(process.machine, target):
                await self._changed.wait()
        if process.over or self._unheard(process.machine, target):
            raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
        if _pair(process.machine, target) in self.cut:
            raise OSError(errno.EHOSTUNREACH, os.strerror(errno.EHOSTUNREACH))
        listening = self._listeners.get((host, port))
        if listening is None or not listening.has_room:
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        there = self._direction(process.machine, target)
        back = self._direction(target, process.machine)
        size = max(1, self.buffer_bytes >> draws.below(3))
        out = TrioPipe(pace, there, draws.fork("out"), size)
        answer = TrioPipe(pace, back, draws.fork("in"), size)
        if self.order is not None and process.machine not in (CLIENTS, LIARS):
            out.tap = self._tap((process.machine, target), self.order, from_dialler=True)
            answer.tap = self._tap((target, process.machine), self.order, from_dialler=False)
            out.tap.other, answer.tap.other = answer.tap, out.tap
        mine, theirs = SimStream(answer, out), SimStream(out, answer)
        mine.peer, theirs.peer = theirs, mine
        out.reset = answer.reset = mine.reset
        there.pipes[out] = back.pipes[answer] = None
        self._remember(_pair(process.machine, target), mine)
        process.owns(mine)
        self.processes[host, port].owns(theirs)
        listening.offer(theirs, f"n{process.machine}:{40_000 + self._dialled}")
        return mine

    def _tap(self, ends: PairKey, judge: LinkChecks, *, from_dialler: bool) -> Tap:
        """A relay for one direction; it knows what an earlier one carried."""
        last = self._taps.get(ends)
        old = () if last is None else last.kept or last.old
        tap = self._taps[ends] = Tap(from_dialler, ends, judge, old)
        return tap

    def _remember(self, pair: PairKey, stream: SimStream) -> None:
        known = [each for each in self._streams.get(pair, ()) if each.stands]
        self._streams[pair] = [*known, stream]

    def _unheard(self, one: NodeId, other: NodeId) -> bool:
        """Whether nothing that one of them says reaches the other."""
        held = self._direction(one, other).holds or self._direction(other, one).holds
        return bool(held) or one in self.silent or other in self.silent

    def _direction(self, sender: NodeId, receiver: NodeId) -> Direction:
        return self._directions.setdefault((sender, receiver), Direction())

    def power_on(self, machine: NodeId) -> None:
        """Turn a machine on: its peers learn that their old streams are gone."""
        for stream in self.silent.pop(machine, []):
            stream.reset("the other end knows nothing of this connection")
        self._look_again()

    def _look_again(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    # --- faults -----------------------------------------------------------------------------------

    def reset(self, one: NodeId, other: NodeId) -> bool:
        """Every connection between two machines breaks; whether there was one."""
        standing = self.between(one, other)
        for stream in standing:
            stream.reset()
        return bool(standing)

    def between(self, one: NodeId, other: NodeId) -> list[SimStream]:
        """An end of every connection that stands between two machines."""
        return [stream for stream in self._streams.get(_pair(one, other), ()) if stream.stands]

    def part(self, pairs: Iterable[PairKey]) -> SimCut:
        """These pairs break and cannot reach each other."""
        cut = SimCut(tuple(dict.fromkeys(_pair(*pair) for pair in pairs)), ())
        for pair in cut.pairs:
            self.cut[pair] = self.cut.get(pair, 0) + 1
            self.reset(*pair)
        return cut

    def deafen(self, pipes: Iterable[PairKey]) -> None:
        """These directions (sender, receiver) carry nothing until all is healed."""
        self.hold(pipes)

    def hold(self, pipes: Iterable[PairKey]) -> SimCut:
        """These directions (sender, receiver) carry nothing; neither end is told."""
        cut = SimCut((), tuple(dict.fromkeys(pipes)))
        for sender, receiver in cut.pipes:
            self._direction(sender, receiver).holds += 1
        return cut

    def mend(self, cut: SimCut) -> None:
        """Take one cut back; what another cut holds stays held."""
        for pair in cut.pairs:
            left = self.cut.pop(pair, 0) - 1
            if left > 0:
                self.cut[pair] = left
        for pipe in cut.pipes:
            held = self._direction(*pipe)
            held.holds = max(0, held.holds - 1)
            self._release(held)
        self._look_again()

    def heal(self) -> None:
        """Let all machines reach each other again, without delay."""
        self.cut.clear()
        self.diverted.clear()
        for direction in self._directions.values():
            direction.holds = direction.extra_ns = 0
            direction.strike = None
            self._release(direction)
        self._look_again()

    def _release(self, direction: Direction) -> None:
        for pipe in list(direction.pipes):
            pipe.release()

    def pipe(self, sender: NodeId, receiver: NodeId) -> Direction:
        """One direction, to be shaped."""
        return self._direction(sender, receiver)


def _pair(one: NodeId, other: NodeId) -> PairKey:
    return (one, other) if one < other else (other, one)

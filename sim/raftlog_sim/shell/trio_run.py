"""One run in trio mode: the world that its nodes and clients live in, and the task that drives it
from phase to phase.
"""

import math
from collections.abc import Callable
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, cast, final

import attrs
import trio

from raftlog.base.buggify import arm
from raftlog.base.ids import DirectoryId, NodeId
from raftlog.base.limits import RECENT_WINDOW_BYTES_MAX
from raftlog.base.ports import Tracer
from raftlog.base.trace import NoTracer, TraceEvent
from raftlog.base.units import NANOS_PER_MICRO, NANOS_PER_SECOND
from raftlog.broker.config import BrokerConfig, BrokerLimits
from raftlog.client.core.values import ClientOptions
from raftlog.storage.directories.data_dir import DirectoryIdentity, format_directory
from raftlog.storage.replica import LogOptions
from raftlog_sim.base.failures import told
from raftlog_sim.base.streams import Stream
from raftlog_sim.base.violation import Violation
from raftlog_sim.checks.onlooker import Onlooker
from raftlog_sim.schedules.options import SimOptions
from raftlog_sim.schedules.schedule import Schedule, Step
from raftlog_sim.schedules.step_kinds import OF_LINKS
from raftlog_sim.shell import trio_clock
from raftlog_sim.shell.trio_consumer import TrioConsumer
from raftlog_sim.shell.trio_flood import Flood
from raftlog_sim.shell.trio_liar import Liar, fields_of_a_lie
from raftlog_sim.shell.trio_machine import first_of
from raftlog_sim.shell.trio_network import CLIENTS, LIARS, Hub, ProcessNetwork
from raftlog_sim.shell.trio_streams import ClientEnd, Pace
from raftlog_sim.shell.trio_world import TrioClient, TrioNode
from raftlog_sim.workloads.callers import client_options
from raftlog_sim.workloads.workload import SimWorkload
from raftlog_sim.world.disk import SimulatedDisk
from raftlog_sim.world.faces import Action
from raftlog_sim.world.link_checks import LinkChecks
from raftlog_sim.world.world import (
    Configure,
    World,
    config_of,
    controller_addresses,
    identities_of,
)

if TYPE_CHECKING:
    from raftlog_sim.checks.invariants import Invariants
    from raftlog_sim.world.node import Observer

TICK_SECONDS: Final = 0.001
"""How often the run looks whether its phase is over."""
BUFFER_BYTES: Final = 8_192
FLOODS_MAX: Final = 3
"""Clients at one time that ask more than they read."""


@final
class _Ears:
    """A tracer that finds the events that no broker should trace: streams here damage nothing."""

    def __init__(self, world: "TrioWorld", tracer: Tracer) -> None:
        self._world = world
        self._tracer = tracer

    def emit(self, event: TraceEvent) -> None:
        """Pass it on."""
        if event.name == "peer-trouble":
            why = str(dict(event.fields).get("why"))
            if "bad frame" in why and "stream ended" not in why:
                self._damaged(f"{event.where} {why}")
        self._tracer.emit(event)

    def _damaged(self, what: str) -> None:
        """It is right that links end which a relay strikes."""
        order = self._world.network.order
        try:
            if order is None:
                raise Violation("peer-protocol", what)
            order.frame_did_not_open()
        except Violation as error:
            self._world.fail(error)


@final
class TrioWorld:
    """Nodes, clients and what is between them, in one `trio.run`; the face of `world.World`.

    `fail` keeps the first error of any task for the task that drives the run.
    """

    def __init__(self, options: SimOptions, tracer: Tracer) -> None:
        self.seed = options.seed
        self.tracer = _Ears(self, tracer)
        self.clock = trio_clock.JumpClock()
        self.configure: Configure | None = None
        self.observer: Observer | None = None
        self.sync_ns = options.sync_us * NANOS_PER_MICRO
        self.turn_ns = options.turn_us * NANOS_PER_MICRO
        self.store_bytes = options.store_bytes
        self.tear_bytes = options.tear_bytes
        self._release = options.release
        self.nodes: dict[NodeId, TrioNode] = {}
        buffers = self.stream("trio/buffers")
        pace = Pace(self, options.latency_us * NANOS_PER_MICRO, options.jitter_us * NANOS_PER_MICRO)
        self.network = Hub(pace, BUFFER_BYTES << buffers.below(5))
        self.nursery: trio.Nursery | None = None
        self.failure: BaseException | None = None
        self.frozen = False
        self.invariants: Invariants | None = None
        """Counts the comparisons; None until the run sets it."""
        self.idle_ms = 500 << self.stream("trio/idle").below(7)
        """After how many milliseconds brokers hang up on clients that do nothing."""
        self.intake_bytes = 8_192 << self.stream("trio/intake").below(12)
        """How many bytes the unfinished frames of all clients of a broker may take."""
        self._segment_bytes = options.segment_bytes
        self._floods = 0
        self._clients = ProcessNetwork(self.network, CLIENTS)
        self._liars = ProcessNetwork(self.network, LIARS)
        self._lies = 0
        self._heap: list[tuple[int, int, Action, tuple[Any, ...]]] = []
        self._scheduled = 0
        self._sooner = trio.Event()

    def stream(self, name: str) -> Stream:
        """A named stream of this world's randomness."""
        return Stream(self.seed, name)

    # --- time and tasks ---

    @property
    def now(self) -> int:
        return self.clock.now

    def after(self, delay_ns: int, action: Action, *args: Any) -> None:
        """`action(*args)` so much later, after everything scheduled earlier for that instant."""
        self.at(self.now + delay_ns, action, *args)

    def at(self, instant: int, action: Action, *args: Any) -> None:
        """`action(*args)` at a world instant, soon when that has passed."""
        self._scheduled += 1
        heappush(self._heap, (max(instant, self.now), self._scheduled, action, args))
        if self._heap[0][1] == self._scheduled:
            self._sooner.set()

    async def perform(self) -> None:
        """The task that performs what is scheduled."""
        while True:
            while self._heap and self._heap[0][0] <= self.now:
                _, _, action, args = heappop(self._heap)
                action(*args)
            due = self._heap[0][0] / NANOS_PER_SECOND if self._heap else math.inf
            with trio.CancelScope(deadline=due):
                await self._sooner.wait()
            self._sooner = trio.Event()

    def start(self, work: Callable[[], Any], name: str) -> None:
        """A task that lives as long as it likes, at most as long as the world."""
        assert self.nursery is not None, "the world does not run"
        self.nursery.start_soon(work, name=name)

    def freeze(self) -> None:
        """The run is over: tasks may unwind, but nothing happens any more, so that what nodes hold
        in memory can be looked at."""
        self.frozen = True
        for node in self.nodes.values():
            node.freeze()

    def fail(self, error: BaseException) -> None:
        """The run has failed; what came first counts."""
        if self.failure is None:
            self.failure = error

    # --- nodes and clients ---

    def running(self) -> list[TrioNode]:
        """Nodes that are up, by number."""
        return [self.nodes[number] for number in sorted(self.nodes) if self.nodes[number].up]

    def found(self, brokers: int, controllers: int = 1) -> None:
        """Format `brokers` nodes, the first `controllers` of them as founders, and start them."""
        addresses = controller_addresses(controllers)
        for identity in identities_of(self, brokers, controllers):
            disk = self.new_disk(identity.node)
            self.format(disk, identity)
            config = self._sized(config_of(self, identity.node, addresses))
            node = self.nodes[identity.node] = TrioNode(self, config, disk, self._release)
            node.start()

    def _sized(self, config: BrokerConfig) -> BrokerConfig:
        """With limits so small that clients meet them, and with logs that keep so little in memory
        that consumers are sent slices of files."""
        draws = self.stream("trio/sizes")
        limits = BrokerLimits(
            unanswered_requests=4 << draws.below(5), output_bytes=4_096 << draws.below(8)
        )
        if config.limits != BrokerLimits():
            limits = config.limits
        window_bytes = (RECENT_WINDOW_BYTES_MAX, 1_024 << draws.below(5))[draws.below(2)]
        sizes = config.log_sizes or LogOptions(segment_bytes=self._segment_bytes)
        sizes = attrs.evolve(sizes, window_bytes=window_bytes)
        return attrs.evolve(config, limits=limits, log_sizes=sizes)

    def format(self, disk: SimulatedDisk, identity: DirectoryIdentity) -> None:
        """Give an empty disk its identity, with a store as small as this world's are."""
        format_directory(disk, identity, store_bytes=self.store_bytes)

    def new_disk(self, node: NodeId) -> SimulatedDisk:
        """An empty disk for a node."""
        return SimulatedDisk(self.stream(f"disk/{node}/{self._scheduled}"), self.tear_bytes)

    def new_directory(self, node: NodeId) -> DirectoryId:
        """A fresh directory id."""
        name = f"directory/{node}/{self._scheduled}"
        return DirectoryId(int.from_bytes(self.stream(name).bytes(8), "big") | 1)

    def client(self, name: str, options: ClientOptions) -> TrioClient:
        """A client of the product."""
        return TrioClient(self, name, options)

    def flood(self, number: NodeId, count: int, deaf_ns: int) -> None:
        """A few clients that ask more than they read."""
        self._floods += 1
        draws = self.stream(f"flood/{self._floods}")
        for each in range(draws.between(1, FLOODS_MAX)):
            flood = Flood(self, number, count, deaf_ns, draws.fork(str(each)))
            self.start(flood.run, f"flood {self._floods}.{each}")

    def lie(self, number: NodeId, peer: NodeId, what: str, lasts_ns: int) -> bool:
        """Somebody dials a broker as its peer `peer`; whether there is something to say."""
        assert self.network.order is not None, "links are not judged"
        self._lies += 1
        draws = self.stream(f"lie/{self._lies}")
        lie = fields_of_a_lie(self.network.order, number, peer, what, draws)
        if lie is not None:
            liar = Liar(self, self._liars, number, lie, lasts_ns, draws)
            self.start(liar.run, f"liar {self._lies}")
        return lie is not None

    async def connect_client(self, host: str, port: int) -> ClientEnd:
        """For clients."""
        return ClientEnd(await self._clients.connect(host, port))


class Playing(Protocol):
    """A run as this world moves it (`simulation.Run`): it says when it is over."""

    world: World
    workload: SimWorkload
    onlooker: Onlooker

    @property
    def over(self) -> bool:
        """Whether all phases have been gone through."""
        ...

    def look(self) -> bool:
        """Whether the goal of this phase is reached; raises what ends the run."""
        ...


R = TypeVar("R", bound=Playing)


def _strikes_links(step: Step) -> bool:
    """Whether a relay or a lying peer comes with this step."""
    return step.kind in OF_LINKS or (step.kind == "at-moment" and step.argument("what") == "relay")


def play(
    schedule: Schedule,
    begin: Callable[[World], R],
    *,
    tracer: Tracer | None = None,
    begun: Callable[[R], None] | None = None,
) -> tuple[R, str]:
    """A whole schedule in virtual time: the run that `begin` makes of this world, when it is over,
    and its failure. The nodes keep what they had in memory, to be looked at. `begun` hears of the
    run before its first turn."""
    world = TrioWorld(schedule.options, tracer or NoTracer())
    if any(_strikes_links(step) for step in schedule.steps):
        world.network.order = LinkChecks()
    runs: list[R] = []

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            world.nursery = nursery
            nursery.start_soon(world.perform, name="world")
            run = begin(cast("Any", world))
            runs.append(run)
            if begun is not None:
                begun(run)
            world.invariants = invariants = run.onlooker.invariants
            follower = world.client("consumer", client_options(run.world, "consumer"))
            consumer = TrioConsumer(run.world, run.workload, invariants, follower.opened)
            nursery.start_soon(consumer.run, name="consumer")
            try:
                while not run.over and world.failure is None:
                    if not run.look():
                        await trio.sleep(TICK_SECONDS)
            finally:
                world.freeze()
            nursery.cancel_scope.cancel()

    try:
        trio_clock.run(schedule.options.seed, world.clock, main)
    except BaseException as error:
        world.fail(first_of(error) or error)
    finally:
        arm(None)
    failure = world.failure
    if failure is not None and not (runs and isinstance(failure, Exception)):
        raise failure  # nothing has run, or an interrupt ended it
    return runs[0], told(failure) if failure is not None else ""

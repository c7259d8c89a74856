"""What a seed decides: the size of the cluster, the workload, and which faults are on and how
often.

Each kind of fault is off with probability one half, so that every seed is a different mixture: a
sweep with everything always on finds less (LESSONS 1.1, swarm). All options are printed with the
seed.
"""

from collections.abc import Callable
from typing import Any, Final, final

import attrs

from raftlog.base.errors import OperatingError
from raftlog_sim.streams import Stream

FAULTS: Final = (
    "crash", "power", "all", "partition", "reset", "pause", "stall", "one-way", "shape", "clog",
    "swizzle", "lossy", "slow-link", "disk-error", "failed-sync", "disk-full", "slow-disk",
    "crash-at", "rot", "wipe", "lose-replica", "rolling", "swap", "stop", "membership", "topics",
    "clock", "hangup", "trim", "kill-at", "old-disk", "replay",
)  # fmt: skip
"""Sources of faults; each has its own stream, and draws steps of one kind or a few."""
_RARER: Final = {
    "all": 4, "swizzle": 8, "shape": 2, "failed-sync": 8, "wipe": 8, "lose-replica": 8, "rot": 2,
    "disk-full": 4, "rolling": 16, "swap": 16, "membership": 2, "trim": 4, "old-disk": 8,
}  # fmt: skip
"""What takes the whole cluster away leaves no time for anything else when it comes too often."""
_YOUNG: Final = ("trim", "kill-at", "old-disk", "replay")
"""Sources that draw whether they are on from a stream of their own, so that the other options of a
seed are what they were before these came."""
SEGMENT_BYTES: Final = 65_536
"""The least that a topic may ask for; smaller ones are for every log of the cluster."""
_SEGMENTS_FROM: Final = 6_000
"""The header, and room for some records."""
PROFILES: Final = ("swarm", "calm")


@final
@attrs.frozen(kw_only=True)
class SimOptions:
    """The options of one run. Gaps are the mean time between two faults of a kind; 0 is never."""

    seed: int
    profile: str = "swarm"
    brokers: int = 3
    controllers: int = 3
    partitions: int = 1
    replication: int = 3
    min_in_sync: int = 1
    producers: int = 2
    encode: bool = False
    sync_us: int = 150
    """How long a sync takes: the longer, the more is in flight when a machine dies."""
    latency_us: int = 100
    jitter_us: int = 100
    stale: bool = False
    """What was under way when a link broke still arrives, under the name of the old session."""
    queue_max: int = 4_096
    """Messages that a held link keeps before it breaks."""
    patient: bool = False
    """Turns are put off and collected as by the driver of a real process."""
    turn_us: int = 0
    """How long a turn takes: what arrives meanwhile is worked in by the next one, together."""
    value_bytes: int = 0
    """What records are padded to: large ones fill segments."""
    segment_bytes: int = SEGMENT_BYTES
    store_bytes: int = 65_536
    """How large a store file is made: the smaller, the more generations."""
    retention_bytes: int = 0
    """What a partition keeps at the least when it removes old segments; 0 is everything."""
    narrow_appends: bool = False
    """One entry an append, one append in flight: what usually travels together is parted."""
    fault_gaps_ms: tuple[tuple[str, int], ...] = ()
    """Only for drawing a schedule; what is struck is in its steps."""
    core: tuple[int, ...] = ()
    """Nodes that must do alone, the others frozen, before all is healed; () for no such phase, and
    no such phase either when they are not enough."""
    strict_mark: bool = False
    """Acks wait until the durable mark is durable."""
    linearizable: bool = False
    """A read sees everything that was acknowledged before it began."""
    lease: bool = False
    """And needs no round of messages for that; clocks then drift within the bound of leases."""
    buggify: bool = False
    """Unusual paths of the product are taken on purpose until the liveness phase."""
    reboot: bool = False
    """After the final read all power fails, index files are gone, and everything is read again."""
    safety_ms: int = 2_000
    """How long clients and faults go on."""
    events_max: int = 10_000

    def document(self) -> dict[str, Any]:
        """For run.json and for people."""
        return {
            **attrs.asdict(self),
            "core": list(self.core),
            "fault_gaps_ms": dict(self.fault_gaps_ms),
        }


_FIELDS: Final = {each.name: each for each in attrs.fields(SimOptions)}


def options_from(document: object) -> SimOptions:
    """The options of a `document()`; what is left out has its default. Refuses, as
    `OperatingError`, a name that it does not know and a value of another type."""
    if not isinstance(document, dict) or "seed" not in document:
        raise OperatingError("options are an object with a seed", on="options")
    values: dict[str, Any] = {}
    for name, value in document.items():
        field = _FIELDS.get(name)
        if field is None:
            raise OperatingError("no such option of a run", on=str(name), do=f"{sorted(_FIELDS)}")
        reader = _SPECIAL.get(name)
        values[name] = reader(value) if reader else _plain(name, value, field.type)
    return SimOptions(**values)


def _plain(name: str, value: object, kind: Any) -> object:
    if type(value) is not kind or (kind is int and value < 0 and name != "seed"):  # type: ignore[operator]
        raise OperatingError(f"{value!r} is not a value of this option", on=name)
    return value


def _gaps(value: object) -> tuple[tuple[str, int], ...]:
    if not isinstance(value, dict):
        raise OperatingError("an object of kinds and gaps is wanted", on="fault_gaps_ms")
    for kind, gap in value.items():
        if kind not in FAULTS or type(gap) is not int or gap < 0:
            raise OperatingError(f"{kind!r}: {gap!r} is not a gap", on="fault_gaps_ms")
    return tuple(value.items())


def _core(value: object) -> tuple[int, ...]:
    if not isinstance(value, list | tuple) or not all(type(each) is int for each in value):
        raise OperatingError("a list of node numbers is wanted", on="core")
    return tuple(value)


_SPECIAL: Final[dict[str, Callable[[object], Any]]] = {"fault_gaps_ms": _gaps, "core": _core}


def draw_options(seed: int, profile: str = "swarm") -> SimOptions:
    """The options of a seed. `calm` has no faults at all: a control that must always pass."""
    stream = Stream(seed, f"options/{profile}")
    brokers = 1 if stream.chance(1, 10) else 3
    if stream.chance(1, 6):
        brokers = 5
    gaps = []
    for fault in FAULTS:
        draws = Stream(seed, f"options/{profile}/{fault}") if fault in _YOUNG else stream
        on = draws.chance(1, 2)
        gap = (_RARER.get(fault, 1) * 150) << draws.below(5)
        gaps.append((fault, gap if on and profile != "calm" else 0))
    replication = min(3, brokers)
    linearizable = stream.chance(1, 2)
    sizes = Stream(seed, f"options/{profile}/sizes")
    return SimOptions(
        seed=seed,
        profile=profile,
        brokers=brokers,
        controllers=1 if brokers < 3 or stream.chance(1, 4) else 3,
        partitions=stream.between(1, 3),
        replication=replication,
        min_in_sync=stream.between(1, 2) if replication == 3 else 1,
        producers=stream.between(1, 4),
        encode=stream.chance(1, 10),
        sync_us=150 << stream.below(8),
        latency_us=50 << stream.below(7),
        jitter_us=50 << stream.below(8),
        stale=stream.chance(1, 2),
        queue_max=8 << stream.below(10),
        turn_us=(0, 20, 100, 400)[stream.below(4)],
        patient=Stream(seed, f"options/{profile}/patient").chance(1, 3),
        narrow_appends=Stream(seed, f"options/{profile}/narrow").chance(1, 4),
        value_bytes=(value_bytes := (0, 200, 3_000, 20_000)[stream.below(4)]),
        segment_bytes=_SEGMENTS_FROM + value_bytes + 2_000 * sizes.below(4)
        if sizes.chance(1, 2)
        else SEGMENT_BYTES,
        store_bytes=8_192 << sizes.below(5),
        retention_bytes=(2_000 << sizes.below(4)) * sizes.below(2),
        fault_gaps_ms=tuple(gaps),
        core=_draw_core(stream, brokers),
        reboot=stream.chance(1, 3),
        buggify=stream.chance(1, 2) and profile != "calm",
        strict_mark=stream.chance(1, 4),
        linearizable=linearizable,
        lease=stream.chance(1, 2) and linearizable,
        safety_ms=stream.between(2, 6) * 1000,
        events_max=10_000,
    )


def _draw_core(stream: Stream, brokers: int) -> tuple[int, ...]:
    """In half of the seeds, a random majority."""
    numbers = list(range(1, brokers + 1))
    size = stream.between(brokers // 2 + 1, max(brokers - 1, brokers // 2 + 1))
    chosen = [numbers.pop(stream.below(len(numbers))) for _ in range(size)]
    return tuple(sorted(chosen)) if brokers >= 3 and stream.chance(1, 2) else ()

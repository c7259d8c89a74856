"""The options of a run: the cluster's size, the workload, and which faults are on and how often.

Each kind of fault is off with probability one half, so every seed is a different mixture. A sweep
with everything always on finds less. All options are printed with the seed.
"""

from collections.abc import Callable
from typing import Any, Final, final

import attrs

from raftlog.base.errors import OperatingError
from raftlog_sim.base.streams import Stream
from raftlog_sim.schedules.bounds import TIME_MAX_MS, check_number
from raftlog_sim.world.inode import SECTOR

FAULTS: Final = (
    "crash", "power", "all", "partition", "reset", "pause", "stall", "one-way", "shape", "clog",
    "swizzle", "lossy", "slow-link", "disk-error", "failed-sync", "disk-full", "slow-disk",
    "crash-at", "rot", "wipe", "lose-replica", "rolling", "swap", "stop", "membership", "topics",
    "clock", "hangup", "trim", "kill-at", "old-disk", "replay", "upgrade",
    "lost-file", "drop-kind", "decay", "late-error", "wave", "late-timers",
    "late-turn", "misdirect", "replay-any", "failed-name-sync",
)  # fmt: skip
"""Sources of faults; each has its own stream, and draws steps of one kind or a few."""
_RARER: Final = {
    "all": 4, "swizzle": 8, "shape": 2, "failed-sync": 8, "wipe": 8, "lose-replica": 8, "rot": 2,
    "disk-full": 4, "rolling": 16, "swap": 16, "membership": 2, "trim": 4, "old-disk": 2,
    "upgrade": 2, "lost-file": 4, "decay": 2, "wave": 4,
    "late-turn": 2, "misdirect": 4, "failed-name-sync": 4,
}  # fmt: skip
"""How many times rarer some sources are. Those that take the whole cluster away would leave no time
for anything else."""
_YOUNG: Final = (
    "trim", "kill-at", "old-disk", "replay", "upgrade", "lost-file", "drop-kind", "decay",
    "late-error", "wave", "late-timers", "late-turn", "misdirect", "replay-any",
    "failed-name-sync",
)  # fmt: skip
"""Sources that draw whether they are on from a stream of their own. So a seed's other options are
what they were before these sources existed."""
_HOUR_MS: Final = 3_600_000
_OPERATIONS: Final = ("membership", "topics", "trim")
"""The requests of operators, which come as often with few faults as with many."""
_RATIONED: Final = ("old-disk",)
"""Sources that wait for their chance and strike a node once. They are as frequent with all
doses."""
DOSES: Final = (1, 2, 4, 8)
"""How many times rarer all faults of a seed are. With the largest dose of faults a cluster has a
leader for a fifth of the time. Much breaks then, and few requests of clients and operators
succeed."""
_ONE_IN: Final = {"upgrade": 4, "lost-file": 4, "decay": 3, "late-timers": 3}
"""Sources that are on in fewer than half of the seeds: one in so many. Where releases mix, each
message is made bytes. A lost file uses up the damage that the atlas allows."""
SEGMENT_BYTES: Final = 65_536
"""The smallest segment that a topic may ask for, in bytes; smaller ones are for all logs of the
cluster."""
_SEGMENTS_FROM: Final = 6_000
"""The smallest drawn segment, in bytes: the header, and room for some records."""
NOT_ON_STREAMS: Final = (
    "lossy", "replay", "replay-any", "drop-kind", "late-timers", "late-turn",
)  # fmt: skip
"""Faults that no source draws in trio mode. Byte streams do not have those of messages, and trio
itself has timers and turns there."""
WIDE_ONLY: Final = ("late-turn", "misdirect", "replay-any", "failed-name-sync")
TRIO_ONE_IN: Final = 14
PROFILES: Final = ("swarm", "calm", "trio", "wide", "varied", "groups")
WIDE: Final = "wide"
GROUPS: Final = "groups"
VARIED: Final = "varied"
_MEMBERS_MAX: Final = 6
_EVENTS_OF_GROUPS: Final = 60_000
_NAME_CHARS_MAX: Final = 200
FROZEN, DEAF, STALLED = RESTS = ("frozen", "deaf", "stalled")
"""How nodes outside a core fail for good. `frozen`: they stand still and cannot be reached. `deaf`:
they hear nothing of the core, which hears them. `stalled`: their disks answer nothing, and all else
works."""
VOTERS_MAX: Final = 5
_SPARES_MAX: Final = 1
"""Brokers beyond those that the largest group needs, for moves."""
_OFTENER: Final = {"all": 2, "swap": 2, "rolling": 4, "swizzle": 4}
"""How many times more often wide seeds draw some sources of `_RARER`. Whole clusters that go and
come back in parts find what nothing else does."""
_TIMINGS_MS: Final = ((30, 150), (15, 150), (90, 150), (50, 300), (99, 500))
"""Heartbeat and election timeout, in milliseconds."""


@final
@attrs.frozen(kw_only=True)
class SimOptions:
    """The options of one run. A gap is the mean time between two faults of a kind; 0 is never."""

    seed: int
    profile: str = "swarm"
    scenario: str = ""
    """The named scenario of which a varied seed is a variation; only for people."""
    brokers: int = 3
    controllers: int = 3
    partitions: int = 1
    replication: int = 3
    min_in_sync: int = 1
    producers: int = 2
    pipelines: int = 0
    """How many plain producers do not wait for answers."""
    members: int = 0
    """How many members of consumer groups there are."""
    directories: int = 0
    """How many further log directories every broker has."""
    encode: bool = False
    release: int = 0
    """The release with which all nodes begin: 0 is this one, others are made from it
    (`releases`)."""
    sync_us: int = 150
    """How long a sync takes: the longer, the more is in flight when a machine dies."""
    latency_us: int = 100
    jitter_us: int = 100
    stale: bool = False
    """Whether messages that were under way when a link broke still arrive, under the old
    session."""
    queue_max: int = 4_096
    """How many messages a held link keeps before it breaks."""
    heartbeat_ms: int = 30
    election_ms: int = 150
    split_turns: bool = False
    """Whether a turn takes a drawn part of the waiting events, not all of them."""
    trio: bool = False
    """Whether the runtime of real processes runs, on simulated streams and disks, instead of a heap
    of events."""
    patient: bool = False
    """Whether turns are delayed and collected as by the driver of a real process."""
    turn_us: int = 0
    """How long a turn takes; the next turn takes all that arrives meanwhile together."""
    value_bytes: int = 0
    """The size to which records are padded; large ones fill segments."""
    segment_bytes: int = SEGMENT_BYTES
    store_bytes: int = 65_536
    """The size of a store file: the smaller, the more generations."""
    tear_bytes: int = SECTOR
    """The unit in which a power failure keeps or drops unsynced bytes."""
    retention_bytes: int = 0
    """How much a partition keeps at the least when it removes old segments; 0 keeps everything."""
    retention_ms: int = 0
    """The age, by its own timestamp, at which a record may be removed; 0 keeps it for good."""
    snapshot_every: int = 0
    """Versions of the metadata between two snapshots of it, in files of a few kilobytes; 0 is the
    product's default."""
    producer_expiration_ms: int = 0
    """When a silent producer is forgotten; 0 is the product's default. A client that is heard again
    later has lost its number, so only scenarios without such late retries set it."""
    tight: bool = False
    """Whether a few requests or kilobytes are enough to pause a connection."""
    narrow_appends: bool = False
    """Whether an append has one entry and only one is in flight, so entries travel apart."""
    fault_gaps_ms: tuple[tuple[str, int], ...] = ()
    """Mean gaps of faults, which only the drawing of a schedule needs; steps say what strikes."""
    core: tuple[int, ...] = ()
    """Nodes that must work alone, the others having failed, before all is healed. The phase is left
    out with (), and when they are not enough."""
    rest: str = FROZEN
    """How the nodes outside the core fail meanwhile (`RESTS`)."""
    scrub_ms: int = 0
    """The interval of the scrubber; 0 is the product's default, which is longer than any run."""
    strict_mark: bool = False
    """Whether acknowledgements wait until the durable mark is durable."""
    linearizable: bool = False
    """Whether a read sees everything that was acknowledged before it began."""
    lease: bool = False
    """Whether such reads need no round of messages; clocks then drift within the bound of
    leases."""
    buggify: bool = False
    """Whether the product takes unusual paths on purpose until the liveness phase."""
    reboot: bool = False
    """Whether all nodes boot once more, in three ways, after the final read, and all is read
    again."""
    safety_ms: int = 2_000
    """How long clients and faults go on."""
    events_max: int = 10_000

    def document(self) -> dict[str, Any]:
        """Returns the options for run.json and for people."""
        return {
            **attrs.asdict(self),
            "core": list(self.core),
            "fault_gaps_ms": dict(self.fault_gaps_ms),
        }


_FIELDS: Final = {each.name: each for each in attrs.fields(SimOptions)}


def options_from(document: object) -> SimOptions:
    """Returns the options of a `document()`; an option that is left out has its default.

    Raises `OperatingError` for an unknown name, a value of another type, and one out of bounds.
    """
    if not isinstance(document, dict) or "seed" not in document:
        raise OperatingError("options are an object with a seed", on="options", do=_WRITTEN)
    values: dict[str, Any] = {}
    for name, value in document.items():
        field = _FIELDS.get(name)
        if field is None:
            raise OperatingError(
                "no such option of a run", on=str(name)[:80], do=f"one of {', '.join(_FIELDS)}"
            )
        reader = _SPECIAL.get(name)
        values[name] = reader(value) if reader else _plain(name, value, field.type)
    options = SimOptions(**values)
    check_together(options)
    return options


def check_together(options: SimOptions) -> None:
    """Raise `OperatingError` when options that are good alone make no cluster."""
    for name, above in (
        ("controllers", "brokers"),
        ("replication", "brokers"),
        ("min_in_sync", "replication"),
    ):
        value, most = getattr(options, name), getattr(options, above)
        if value > most:
            raise OperatingError(
                f"{name} {value} is more than {above} {most}", on=name,
                do=f"lower it, or raise {above}",
            )  # fmt: skip
    if options.tear_bytes % SECTOR:
        raise OperatingError(
            f"{options.tear_bytes} bytes are no whole sectors", on="tear_bytes",
            do=f"give a multiple of {SECTOR}",
        )  # fmt: skip
    core = options.core
    if len(set(core)) != len(core) or not all(1 <= node <= options.brokers for node in core):
        raise OperatingError(
            f"{str(list(core[:10]))[:80]} are not some of the nodes 1 to {options.brokers}",
            on="core",
            do="name each node once, or none for no such phase",
        )  # fmt: skip


def _plain(name: str, value: object, kind: Any) -> object:
    if type(value) is not kind:
        raise OperatingError(
            f"{value!r:.80} is not a value of this option", on=name,
            do="give a whole number" if kind is int else "give yes or no (in JSON true or false)",
        )  # fmt: skip
    if isinstance(value, int) and kind is int:
        check_number(name, value)
    return value


def _scenario(value: object) -> str:
    if not isinstance(value, str) or len(value) > _NAME_CHARS_MAX:
        raise OperatingError(
            f"{value!r:.80} is no name of a scenario", on="scenario", do="see raftlog sim scenarios"
        )
    return value


def _profile(value: object) -> str:
    if value not in PROFILES:
        raise OperatingError(
            f"{value!r:.80} is no profile", on="profile", do=f"one of {', '.join(PROFILES)}"
        )
    return str(value)


def _gaps(value: object) -> tuple[tuple[str, int], ...]:
    if not isinstance(value, dict):
        raise OperatingError(
            "an object of kinds and gaps is wanted", on="fault_gaps_ms", do=_WRITTEN
        )
    for kind, gap in value.items():
        if kind not in FAULTS or type(gap) is not int or not 0 <= gap <= TIME_MAX_MS:
            raise OperatingError(
                f"{kind!r:.80}: {gap!r:.80} is not a gap", on="fault_gaps_ms",
                do=f"one of {', '.join(FAULTS)}, with ms from 0 to {TIME_MAX_MS}",
            )  # fmt: skip
    return tuple(value.items())


def _core(value: object) -> tuple[int, ...]:
    if not isinstance(value, list | tuple) or not all(type(each) is int for each in value):
        raise OperatingError("a list of node numbers is wanted", on="core", do="such as [1, 3]")
    return tuple(value)


def _rest(value: object) -> str:
    if value not in RESTS:
        raise OperatingError(
            f"{value!r:.80} is nothing that becomes of the rest", on="rest",
            do=f"one of {', '.join(RESTS)}",
        )  # fmt: skip
    return str(value)


_SPECIAL: Final[dict[str, Callable[[object], Any]]] = {
    "fault_gaps_ms": _gaps,
    "core": _core,
    "rest": _rest,
    "profile": _profile,
    "scenario": _scenario,
}
_WRITTEN: Final = "give a file that run, sweep or shrink wrote"


def draw_options(seed: int, profile: str = "swarm") -> SimOptions:
    """Returns the options of a seed, drawn by the rules of a profile.

    * `calm` has no faults at all: a control that must always pass.
    * `trio` is `swarm` with the real runtime in every seed, not only in some.
    * `wide` has groups of up to five voters, other timings, turns that are split at random, longer
      delays, more kinds of faults, and whole clusters that go more often.
    * `groups` has members in every seed; faults strike their coordinators, and little else.
    """
    trio = profile == "trio" or Stream(seed, f"options/{profile}/trio-mode").chance(1, TRIO_ONE_IN)
    trio = trio and profile != GROUPS  # members are played on the heap of events
    stream = Stream(seed, f"options/{profile}")
    brokers = 1 if stream.chance(1, 10) else 3
    if stream.chance(1, 6):
        brokers = 5
    gaps = _draw_gaps(stream, seed, profile, trio)
    if brokers == 3 and dict(gaps)["membership"]:
        brokers += Stream(seed, f"options/{profile}/spare").below(3)
    replication = min(3, brokers)
    linearizable = stream.chance(1, 2)
    sizes = Stream(seed, f"options/{profile}/sizes")
    options = SimOptions(
        seed=seed,
        profile=profile,
        brokers=brokers,
        controllers=1 if brokers < 3 or stream.chance(1, 4) else 3,
        partitions=stream.between(1, 3),
        replication=replication,
        min_in_sync=stream.between(1, 2) if replication == 3 else 1,
        producers=stream.between(1, 4),
        pipelines=_draw_pipelines(seed, profile),
        members=0 if trio else _draw_members(seed, profile),
        encode=stream.chance(1, 10),
        release=_draw_release(seed, profile, dict(gaps)["upgrade"]),
        sync_us=150 << stream.below(8),
        latency_us=50 << stream.below(7),
        jitter_us=50 << stream.below(8),
        stale=stream.chance(1, 2),
        queue_max=8 << stream.below(10),
        turn_us=(0, 20, 100, 400)[stream.below(4)],
        trio=trio,
        patient=Stream(seed, f"options/{profile}/patient").chance(1, 3),
        snapshot_every=_draw_snapshots(seed, profile),
        tight=Stream(seed, f"options/{profile}/tight").chance(1, 4),
        narrow_appends=Stream(seed, f"options/{profile}/narrow").chance(1, 4),
        value_bytes=(value_bytes := (0, 200, 3_000, 20_000)[stream.below(4)]),
        segment_bytes=_SEGMENTS_FROM + value_bytes + 2_000 * sizes.below(4)
        if sizes.chance(1, 2)
        else SEGMENT_BYTES,
        store_bytes=8_192 << sizes.below(5),
        tear_bytes=(SECTOR, 8 * SECTOR)[Stream(seed, f"options/{profile}/tears").below(2)],
        retention_bytes=(2_000 << sizes.below(4)) * sizes.below(2),
        retention_ms=_HOUR_MS if Stream(seed, f"options/{profile}/age").chance(1, 3) else 0,
        fault_gaps_ms=gaps,
        core=_draw_core(stream, brokers),
        reboot=stream.chance(1, 3),
        buggify=stream.chance(1, 2) and profile != "calm",
        scrub_ms=_draw_scrub(seed, profile),
        strict_mark=stream.chance(1, 4),
        linearizable=linearizable,
        lease=stream.chance(1, 2) and linearizable,
        safety_ms=stream.between(2, 6) * 1000,
        events_max=10_000,
    )
    more = {WIDE: _widened, GROUPS: _with_groups}.get(profile)
    return options if more is None else more(options)


def _with_groups(options: SimOptions) -> SimOptions:
    """Returns options with members, brokers for another coordinator, and room for all group
    requests."""
    stream = Stream(options.seed, "options/groups/more")
    brokers = max(3, options.brokers)
    return attrs.evolve(
        options,
        brokers=brokers,
        replication=3,
        core=_draw_core(stream, brokers),
        members=stream.between(2, _MEMBERS_MAX),
        events_max=_EVENTS_OF_GROUPS,
    )


def _draw_directories(seed: int) -> int:
    """Draw further log directories, one or two, in a third of the wide seeds."""
    stream = Stream(seed, "options/wide/directories")
    return stream.between(1, 2) if stream.chance(1, 3) else 0


def _draw_scrub(seed: int, profile: str) -> int:
    """Draw an interval of the scrubber that comes several times in a run, in every fourth seed."""
    stream = Stream(seed, f"options/{profile}/scrub")
    return stream.between(400, 1_500) if stream.chance(1, 4) else 0


def _widened(options: SimOptions) -> SimOptions:
    """Returns the options with those that only wide seeds have."""
    stream = Stream(options.seed, "options/wide/more")
    replication = stream.between(1, VOTERS_MAX)
    brokers = replication + stream.below(_SPARES_MAX + 1)
    controllers = [count for count in (1, 3, 5) if count <= brokers]
    heartbeat_ms, election_ms = _TIMINGS_MS[stream.below(len(_TIMINGS_MS))]
    longer = election_ms // 150  # a round of messages stays far below an election
    return attrs.evolve(
        options,
        brokers=brokers,
        controllers=controllers[stream.below(len(controllers))],
        replication=replication,
        min_in_sync=stream.between(1, replication // 2 + 1),
        core=_draw_core(stream, brokers),
        rest=_draw_rest(options.seed, options.trio),
        directories=0 if options.trio else _draw_directories(options.seed),
        heartbeat_ms=heartbeat_ms,
        election_ms=election_ms,
        split_turns=stream.chance(1, 2),
        latency_us=options.latency_us * stream.between(1, 3 * longer),
        jitter_us=options.jitter_us * stream.between(1, 3 * longer),
    )


def _draw_gaps(stream: Stream, seed: int, profile: str, trio: bool) -> tuple[tuple[str, int], ...]:
    """Draw how often each source strikes; half of them never do."""
    dose = DOSES[Stream(seed, f"options/{profile}/dose").below(len(DOSES))]
    dose = max(DOSES) if profile == GROUPS else dose
    gaps = []
    for fault in FAULTS:
        draws = Stream(seed, f"options/{profile}/{fault}") if fault in _YOUNG else stream
        on = draws.chance(1, _ONE_IN.get(fault, 2))
        rarer = {**_RARER, **(_OFTENER if profile == WIDE else {})}
        gap = (rarer.get(fault, 1) * 150) << draws.below(5)
        able = profile != "calm" and not (trio and fault in NOT_ON_STREAMS)
        able = able and (profile == WIDE or fault not in WIDE_ONLY)
        times = 1 if fault in (*_OPERATIONS, *_RATIONED) else dose
        gaps.append((fault, times * gap if on and able else 0))
    return tuple(gaps)


def _draw_release(seed: int, profile: str, upgrades_ms: int) -> int:
    """Draw the first release: where releases change, one cluster in four is founded by the
    second."""
    later = Stream(seed, f"options/{profile}/release").chance(1, 4)
    return 1 if later and upgrades_ms else 0


def _draw_pipelines(seed: int, profile: str) -> int:
    """Draw how many producers send without waiting, in a third of the seeds."""
    stream = Stream(seed, f"options/{profile}/pipelines")
    return stream.between(1, 2) if stream.chance(1, 3) else 0


def _draw_members(seed: int, profile: str) -> int:
    """Draw how many members share the topic in groups, in a fifth of the seeds."""
    stream = Stream(seed, f"options/{profile}/members")
    return stream.between(1, 4) if stream.chance(1, 5) else 0


def _draw_snapshots(seed: int, profile: str) -> int:
    """Draw how often the metadata log is cut short, in a third of the seeds."""
    stream = Stream(seed, f"options/{profile}/metadata")
    return (4, 16, 64)[stream.below(3)] if stream.chance(1, 3) else 0


def _draw_core(stream: Stream, brokers: int) -> tuple[int, ...]:
    """Draw a random majority as the core, in half of the seeds."""
    numbers = list(range(1, brokers + 1))
    size = stream.between(brokers // 2 + 1, max(brokers - 1, brokers // 2 + 1))
    chosen = [numbers.pop(stream.below(len(numbers))) for _ in range(size)]
    return tuple(sorted(chosen)) if brokers >= 3 and stream.chance(1, 2) else ()


def _draw_rest(seed: int, trio: bool) -> str:
    """Draw how the others fail: frozen in half of the wide seeds, and in all of trio mode."""
    found = RESTS[max(0, Stream(seed, "options/wide/rest").below(4) - 1)]
    return FROZEN if trio else found

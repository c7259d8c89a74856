"""Counts the seeds of a sweep, and groups its failures by signature."""

from collections import Counter
from typing import Any, Final, NamedTuple, final

import attrs

from raftlog.base.amounts import amount
from raftlog_sim.base.probe_names import missed_names, missed_places
from raftlog_sim.schedules.fault_pairs import PairCounts

SHOWN_SEEDS: Final = 8
_POWER: Final = ("under-a-process", "before-a-sync")


@final
class TallyRow(NamedTuple):
    """The result of one seed, as a worker reports it."""

    seed: int
    failure: str
    failure_class: str
    signature: str
    trace_hash: str
    events: int
    simulated_ns: int
    probes: dict[str, int]
    faults: dict[str, int]
    buggified: dict[str, int]
    core: str
    """The outcome of the core phase; empty for subjects that have none."""
    core_records: int
    """How many records had to be acknowledged in the core phase."""
    core_unable: int
    """In how many partitions the core was no majority of the voters."""
    agreed: bool
    near_faults: tuple[tuple[str, str], ...] = ()


@final
@attrs.define
class TallyGroup:
    """The failures of one signature."""

    failure_class: str
    example: str
    count: int = 0
    seeds: list[int] = attrs.Factory(list)
    """The first few seeds of the group."""
    folders: list[str] = attrs.Factory(list)

    def document(self, signature: str) -> dict[str, Any]:
        """Returns the group as JSON."""
        return {
            "class": self.failure_class,
            "signature": signature,
            "count": self.count,
            "seeds": self.seeds,
            "example": self.example,
            "folders": self.folders,
        }


@final
@attrs.define(eq=False)
class SweepTally:
    """The sums of a sweep. `of_brokers` says that our own brokers are simulated. Their source tells
    which probes could have been reached. `pairs`, if wanted, counts which faults came together."""

    of_brokers: bool
    pairs: PairCounts | None = None
    seeds: int = 0
    events: int = 0
    simulated_ns: int = 0
    disagreed: list[int] = attrs.Factory(list)
    groups: dict[str, TallyGroup] = attrs.Factory(dict)
    probes: Counter[str] = attrs.Factory(Counter)
    faults: Counter[str] = attrs.Factory(Counter)
    buggified: Counter[str] = attrs.Factory(Counter)
    cores: Counter[str] = attrs.Factory(Counter)
    core_records: int = 0
    core_unable: int = 0
    scenarios_failed: list[str] = attrs.Factory(list)
    interrupted: bool = False
    gave_up: str = ""
    shrunk: list[str] = attrs.Factory(list)
    """Folders of the bug base whose failure was shrunk."""

    @property
    def failed(self) -> int:
        return sum(group.count for group in self.groups.values())

    @property
    def folders(self) -> int:
        return sum(len(group.folders) for group in self.groups.values())

    @property
    def probes_missed(self) -> list[str]:
        """Probes of the product that no seed passed."""
        return missed_names(self.probes) if self.of_brokers else []

    @property
    def places_missed(self) -> list[str]:
        """Unusual paths of the product that no seed took on purpose."""
        return missed_places(self.buggified) if self.of_brokers else []

    @property
    def power_told(self) -> str:
        """How often a power failure found bytes that were written and not synced.

        It is empty when power never failed under a process.
        """
        failed, pending = (self.probes[f"power-failed-{when}"] for when in _POWER)
        if not failed:
            return ""
        torn, processes = (
            self.probes["torn-tail-cut"],
            amount(failed, "process", plural="processes"),
        )
        return (
            f"power failed under {processes}, in {pending} of them "
            f"({pending / failed:.0%}) between a write and its sync; "
            f"{amount(torn, 'torn tail')} cut, {1000 * torn / self.seeds:.0f} per thousand seeds"
        )

    def time_is_up(self, asked: int) -> bool:
        """Whether the time limit ended the sweep before it had played all seeds."""
        return self.seeds < asked and not self.interrupted and not self.gave_up

    def add(self, row: TallyRow) -> TallyGroup | None:
        """Count a seed; returns its group when it failed."""
        self.seeds += 1
        self.events += row.events
        self.simulated_ns += row.simulated_ns
        self.probes.update(row.probes)
        self.faults.update(row.faults)
        self.buggified.update(row.buggified)
        self.cores.update([row.core] if row.core else [])
        self.core_records += row.core_records
        self.core_unable += row.core_unable
        if self.pairs is not None:
            self.pairs.add(row.faults, row.near_faults)
        if not row.agreed:
            self.disagreed.append(row.seed)
        if not row.failure:
            return None
        group = self.groups.setdefault(row.signature, TallyGroup(row.failure_class, row.failure))
        group.count += 1
        if len(group.seeds) < SHOWN_SEEDS:
            group.seeds.append(row.seed)
        return group

    def by_count(self) -> list[tuple[str, TallyGroup]]:
        """Returns signatures with their groups, the largest first."""
        return sorted(self.groups.items(), key=lambda item: (-item[1].count, item[0]))

    def document(self, asked: int, seconds: float) -> dict[str, Any]:
        """Returns the sweep as JSON; `asked` seeds were wanted, and it took `seconds`."""
        return {
            "seeds": self.seeds,
            "seeds_asked": asked,
            "time_is_up": self.time_is_up(asked),
            "failed": self.failed,
            "failures": [group.document(alike) for alike, group in self.by_count()],
            "disagreed": self.disagreed,
            "seconds": round(seconds, 1),
            "seeds_per_hour": round(self.seeds / seconds * 3600),
            "events_per_second": round(self.events / seconds),
            "simulated_seconds": round(self.simulated_ns / 1e9, 1),
            "faults": dict(sorted(self.faults.items())),
            **({} if self.pairs is None else {"pairs": self.pairs.document()}),
            "buggified": dict(sorted(self.buggified.items())),
            "buggified_missed": self.places_missed,
            "core": dict(sorted(self.cores.items())),
            "core_records": self.core_records,
            "core_unable": self.core_unable,
            "probes": dict(sorted(self.probes.items())),
            "probes_missed": self.probes_missed,
            "scenarios_failed": self.scenarios_failed,
            "interrupted": self.interrupted,
            "gave_up": self.gave_up,
            "shrunk": self.shrunk,
        }

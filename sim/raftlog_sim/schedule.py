"""A run as explicit data: options, and a list of steps that say what happens when, to whom.

Any subset of the steps is a legal run: a step whose target is not there does nothing, and what
undoes a step belongs to the step (`for_ms`). Targets are named, so that a subset still means the
same: a node by its number, or a role that is looked up when the step strikes.

    n2            node 2
    leader:0      who leads partition 0 of the topic
    follower:0    the lowest-numbered running node with a replica of partition 0 that does not lead
    controller    who leads the metadata group
    coordinator:0 who coordinates the consumer group g0
    most-led      who leads the most partitions
    n1+leader:2   several
    all           every node

The document form is plain JSON, `{"version": 1, "options": {...}, "steps": [{"at": 120, "kind":
"power", "node": "leader:0", "keep": "none", "for": 300}, ...]}`; it round-trips exactly, and what
is not understood is refused.
"""

import json
import re
from collections.abc import Iterable
from typing import Any, Final, NamedTuple, final

import attrs

from raftlog.base.amounts import amount
from raftlog.base.errors import OperatingError
from raftlog_sim.bounds import TIME_MAX_MS
from raftlog_sim.options import SimOptions, options_from

VERSION: Final = 1
STEPS_MAX: Final = 100_000
REPEATING: Final = ("load", "reads")
"""Kinds that stand for `count` steps each."""
SMALL_MAX: Final = 999
_BELOW: Final = {"small": SMALL_MAX + 1, "int": 1 << 40}
_TARGET: Final = re.compile(
    r"(n[1-9][0-9]{0,2}|leader:[0-9]{1,3}|follower:[0-9]{1,3}|coordinator:[0-9]{1,3}|controller|most-led|all)"
)
_WRITTEN: Final = "give a file that run, sweep or shrink wrote"
_SEE_KINDS: Final = "see docs/guides/simulate.md for what each kind takes"
Argument = int | str


@final
class Kind(NamedTuple):
    """One kind of step: its arguments by name and type, whether it lasts, who performs it.

    Types: `small` (an integer from 0 to 999), `int` (any from 0 up), `nodes` (a target), or the
    words allowed, parted by `|`.
    """

    arguments: tuple[tuple[str, str], ...]
    lasts: bool
    by: str
    what: str


_KEEP: Final = "none|some|all"
_FILES: Final = "segment|header|headers|index|snapshot|store"
_CALLS: Final = "open|create|read|write|truncate|rename|remove|list"
_CHANGING: Final = "create|write|truncate|rename|remove"
_ROTS: Final = "flip|zero|alien|unreadable|twin|gone|cut|old-chunk|before-membership|base-offset"
_MESSAGES: Final = "appends|acks|asks|votes|echoes"
_HOW: Final = "loud|silent"
_WAY: Final = "kill|stop"
_MOMENTS: Final = "joins|generation|syncs|assignment|commits|stable"
_IMPOSTORS: Final = "generations|strangers|joins|twice|left|deleter|vanished-leader|traveller"
KINDS: Final = {
    "crash": Kind(
        (("node", "nodes"),), True, "nemesis",
        "a process is killed; its machine's page cache lives on",
    ),
    "power": Kind(
        (("node", "nodes"), ("keep", _KEEP)), True, "nemesis",
        "a machine loses power; of what was not synced its disk keeps all, none or some",
    ),
    "power-in-write": Kind(
        (("node", "nodes"), ("keep", _KEEP)), True, "nemesis",
        "the same, of all these machines at once, when one of them has something written and not "
        "synced, and 300 ms later at the latest",
    ),
    "partition": Kind(
        (("side", "nodes"), ("how", _HOW)), True, "nemesis",
        "every link between a side and the others is cut",
    ),
    "one-way": Kind(
        (("side", "nodes"), ("way", "in|out")), True, "nemesis",
        "nothing gets into a side, or nothing gets out of it; the other direction works",
    ),
    "bridge": Kind(
        (("hub", "nodes"), ("how", _HOW)), True, "nemesis",
        "two halves that see each other only through one node",
    ),
    "ring": Kind(
        (("how", _HOW),), True, "nemesis",
        "each node sees its neighbours on a ring: a majority, of five no two the same",
    ),
    "clog": Kind(
        (("sender", "nodes"), ("receiver", "nodes")), True, "nemesis",
        "links hold what is sent, and deliver it in one burst in the end",
    ),
    "reset": Kind(
        (("one", "nodes"), ("other", "nodes")), False, "nemesis",
        "links break and lose what was queued on them",
    ),
    "hangup": Kind(
        (("node", "nodes"),), False, "nemesis", "all connections of clients to a broker break",
    ),
    "lossy": Kind(
        (("sender", "nodes"), ("receiver", "nodes"), ("drop", "small"), ("duplicate", "small"),
         ("reorder_ms", "small")), True, "nemesis",
        "messages vanish or come twice (percent), or overtake each other; the link then breaks",
    ),
    "drop-kind": Kind(
        (("sender", "nodes"), ("receiver", "nodes"), ("what", _MESSAGES), ("drop", "small")), True,
        "nemesis", "messages of one kind vanish (percent), all others arrive; the link then breaks",
    ),
    "replay": Kind(
        (("sender", "nodes"), ("receiver", "nodes"), ("ms", "small")), True, "nemesis",
        "the last append that a link carried before arrives again and again, every so many ms",
    ),
    "replay-any": Kind(
        (("sender", "nodes"), ("receiver", "nodes"), ("of", "any|ended"), ("ms", "small")), True,
        "nemesis", "something that a link carried before, of any kind and any of its sessions or "
        "one that has ended, arrives again under that session, every so many ms; in wide seeds",
    ),
    "slow-link": Kind(
        (("sender", "nodes"), ("receiver", "nodes"), ("ms", "small")), True, "nemesis",
        "messages take so much longer",
    ),
    "pause": Kind((("node", "nodes"),), True, "nemesis", "a process stands still"),
    "late-turn": Kind(
        (("node", "nodes"), ("ms", "small")), True, "nemesis",
        "a process reads its clock, and serves by it only so much later; in wide seeds",
    ),
    "stall": Kind((("node", "nodes"),), True, "nemesis", "a disk answers nothing"),
    "elect": Kind(
        (("node", "nodes"), ("partition", "small")), False, "nemesis",
        "a replica's election timeout ends now",
    ),
    "disk-error": Kind(
        (("node", "nodes"), ("call", _CALLS), ("count", "small")), False, "nemesis",
        "the next calls of a kind on a disk fail",
    ),
    "late-error": Kind(
        (("node", "nodes"), ("call", _CHANGING), ("count", "small")), False, "nemesis",
        "the next calls of a kind on a disk are done, and fail all the same",
    ),
    "lying-sync": Kind(
        (("node", "nodes"),), True, "nemesis",
        "syncs say that they are done, and are not; outside the atlas, for scenarios",
    ),
    "failed-sync": Kind(
        (("node", "nodes"),), False, "nemesis",
        "the next sync fails, and what it should have made durable is gone; within the atlas",
    ),
    "failed-name-sync": Kind(
        (("node", "nodes"), ("call", "dir|all")), False, "nemesis",
        "the next sync of a directory, or of a whole disk, fails, and what it should have made "
        "durable, names too, is gone; within the atlas, of wide seeds and scenarios",
    ),
    "disk-full": Kind(
        (("node", "nodes"), ("bytes", "int")), True, "nemesis", "so many bytes are left on a disk",
    ),
    "slow-disk": Kind(
        (("node", "nodes"), ("ms", "small")), True, "nemesis", "a disk takes so much longer",
    ),
    "crash-at": Kind(
        (("node", "nodes"), ("calls", "small"), ("keep", _KEEP), ("tear", "no|yes")), False,
        "nemesis", "a machine stops after so many changing disk calls, or in the middle of one",
    ),
    "kill-at": Kind(
        (("node", "nodes"), ("calls", "small"), ("tear", "no|yes")), False, "nemesis",
        "a process is killed at one of its next changing disk calls: written, not synced",
    ),
    "rot": Kind(
        (("node", "nodes"), ("file", _FILES), ("how", _ROTS)), False, "nemesis",
        "bytes at rest are damaged, below the durable mark and within the atlas; headers are both "
        "copies, gone is the whole file of a broker that is down, old-chunk needs a remember",
    ),
    "remember": Kind(
        (("node", "nodes"),), False, "nemesis", "what files hold now is kept for an old-chunk",
    ),
    "misdirect": Kind(
        (("node", "nodes"), ("to", "batch|bytes|index|snapshot")), False, "nemesis",
        "a write has gone astray: a segment misses what was written, and it lies in a segment "
        "instead, where a batch begins or anywhere, or in an index or snapshot; below the durable "
        "mark and within the atlas, in wide seeds",
    ),
    "rot-everywhere": Kind(
        (("node", "nodes"), ("partition", "small")), False, "nemesis",
        "one batch rots on all these nodes; outside the atlas, for scenarios",
    ),
    "wipe": Kind(
        (("node", "nodes"),), True, "nemesis",
        "a machine comes back with an empty disk; within the atlas",
    ),
    "empty-disk": Kind(
        (("node", "nodes"),), True, "nemesis",
        "a machine boots with an empty disk, and later with its own; outside the atlas, for "
        "scenarios",
    ),
    "lose-replica": Kind(
        (("node", "nodes"), ("partition", "small")), True, "nemesis",
        "the files of one partition are gone from a machine; within the atlas",
    ),
    "lose-metadata": Kind(
        (("node", "nodes"),), True, "nemesis",
        "the files of the metadata are gone from a machine; within the atlas",
    ),
    "image": Kind(
        (("node", "nodes"),), False, "nemesis", "a copy of a disk is put aside, as a backup is",
    ),
    "old-disk": Kind(
        (("node", "nodes"),), True, "nemesis",
        "a machine comes back with the copy of its disk from two boots ago; within the atlas",
    ),
    "stop": Kind(
        (("node", "nodes"),), True, "nemesis", "a broker stops gracefully: leadership goes first",
    ),
    "upgrade": Kind(
        (("node", "nodes"), ("to", "small"), ("how", _WAY)), True, "nemesis",
        "a node that runs an earlier release is restarted into this one (`releases`)",
    ),
    "downgrade": Kind(
        (("node", "nodes"), ("to", "small"), ("how", _WAY)), True, "nemesis",
        "a node that runs a later release goes back to this one, if the feature level lets it",
    ),
    "raise-level": Kind(
        (("level", "small"),), False, "nemesis", "the cluster's feature level is to be raised",
    ),
    "reassign": Kind(
        (("partition", "small"), ("nodes", "nodes")), False, "nemesis",
        "a partition is to move to these nodes",
    ),
    "cancel-move": Kind(
        (("partition", "small"),), False, "nemesis",
        "a move of a partition is taken back, if it has not ended; in wide seeds",
    ),
    "unregister": Kind(
        (("node", "nodes"),), False, "nemesis",
        "the cluster is to forget a broker; it does when that is fenced and holds nothing",
    ),
    "transfer": Kind(
        (("partition", "small"), ("node", "nodes")), False, "nemesis",
        "leadership of a partition is to go to a node",
    ),
    "trim": Kind(
        (("partition", "small"),), False, "nemesis",
        "all records below the high watermark are deleted",
    ),
    "must-be-led": Kind(
        (("partition", "small"), ("nodes", "nodes")), False, "nemesis",
        "one of these nodes leads the partition now and takes records, or the run has failed",
    ),
    "create-topic": Kind(
        (("topic", "small"), ("partitions", "small")), False, "nemesis",
        "a topic that nobody writes to is made",
    ),
    "grow-topic": Kind(
        (("topic", "small"), ("partitions", "small")), False, "nemesis", "it gets more partitions",
    ),
    "delete-topic": Kind((("topic", "small"),), False, "nemesis", "it is deleted"),
    "clock-jump": Kind(
        (("node", "nodes"), ("way", "ahead|back"), ("ms", "int")), True, "nemesis",
        "a wall clock is wrong by so much",
    ),
    "clock-drift": Kind(
        (("node", "nodes"), ("way", "fast|slow"), ("permille", "small")), True, "nemesis",
        "a monotonic clock runs fast or slow",
    ),
    "clock-wave": Kind(
        (("node", "nodes"), ("ms", "int"), ("period_ms", "int")), True, "nemesis",
        "a wall clock goes so much ahead and so much back, again and again",
    ),
    "late-timers": Kind(
        (("node", "nodes"), ("ms", "small")), True, "nemesis",
        "timers ring up to so much later than asked",
    ),
    "produce": Kind(
        (("slot", "small"), ("partition", "small"), ("count", "small")), False, "clients",
        "a producer sends some records, one after another",
    ),
    "load": Kind(
        (("slot", "small"), ("partition", "small"), ("count", "small"), ("every_ms", "small")),
        False, "clients",
        "a producer sends a record every so many ms, so many times; shrinking makes it of many",
    ),
    "pipeline": Kind(
        (("slot", "small"), ("partition", "small"), ("count", "small"), ("acks", "all|leader")),
        False, "clients",
        "a plain producer sends so many requests, of one to three records, without waiting",
    ),
    "read": Kind((("partition", "small"),), False, "clients", "one of three readers polls once"),
    "reads": Kind(
        (("partition", "small"), ("count", "small"), ("every_ms", "small")), False, "clients",
        "a reader polls every so many ms, so many times; shrinking makes it of many",
    ),
    "ask": Kind(
        (("partition", "small"), ("what", "latest|earliest|epoch-end"), ("back", "small")), False,
        "clients",
        "a client asks where a partition ends or begins, or where an epoch ends, so many before "
        "the leader's; in wide seeds",
    ),
    "kill-coordinator": Kind(
        (("group", "small"), ("when", _MOMENTS)), True, "nemesis",
        "the process that coordinates a group is killed as soon as the group is at that moment",
    ),
    "consume": Kind(
        (("member", "small"), ("group", "small"), ("how", "eager|cooperative"),
         ("id", "dynamic|static|shared"), ("every_ms", "small")), True, "clients",
        "a member of a group subscribes, polls every so many ms, commits, and leaves in the end",
    ),
    "commit": Kind((("member", "small"),), False, "clients", "a member commits where it stands"),
    "die": Kind(
        (("member", "small"),), False, "clients", "a member is gone, and has not left its group",
    ),
    "committed": Kind(
        (("group", "small"),), False, "clients", "a client asks what a group has committed",
    ),
    "impostor": Kind(
        (("group", "small"), ("what", _IMPOSTORS)), False, "clients",
        "a client speaks for members of a group, or for nobody, and must be refused",
    ),
    "flood": Kind(
        (("node", "nodes"), ("count", "small")), True, "clients",
        "in trio mode: a few clients send so many requests at once and read nothing for so long",
    ),
}  # fmt: skip

CHURN: Final = ("reassign", "create-topic", "grow-topic")
"""Kinds that place replicas anew."""
OUTSIDE_ATLAS: Final = ("lying-sync", "rot-everywhere", "empty-disk")
"""Kinds that no protocol survives: for scenarios that are about them."""
OF_MEMBERS: Final = ("consume", "commit", "die", "committed", "impostor")
"""Kinds of members of groups, and of who would be one."""
DEMANDS: Final = ("must-be-led",)
"""Kinds that do nothing, and say what a scenario expects at an instant."""


def is_fault(kind: str) -> bool:
    """Whether the nemesis performs it; clients do the others."""
    return KINDS[kind].by == "nemesis"


@final
class Step(NamedTuple):
    """What happens at an instant, in ms from the start of the safety phase. `for_ms` 0, for a kind
    that lasts: until everything is healed."""

    at_ms: int
    kind: str
    arguments: tuple[Argument, ...]
    for_ms: int = 0

    def argument(self, name: str) -> Argument:
        """An argument by its name."""
        names = [each for each, _ in KINDS[self.kind].arguments]
        return self.arguments[names.index(name)]

    def document(self) -> dict[str, Argument]:
        """As JSON."""
        found: dict[str, Argument] = {"at": self.at_ms, "kind": self.kind}
        for (name, _), value in zip(KINDS[self.kind].arguments, self.arguments, strict=True):
            found[name] = value
        if self.for_ms:
            found["for"] = self.for_ms
        return found

    def __str__(self) -> str:
        words = " ".join(
            f"{name}={value}"
            for (name, _), value in zip(KINDS[self.kind].arguments, self.arguments, strict=True)
        )
        lasting = f" for {self.for_ms}" if self.for_ms else ""
        return f"{self.at_ms} {self.kind} {words}{lasting}"


def step(at_ms: int, kind: str, for_ms: int = 0, **arguments: Argument) -> Step:
    """A checked step. Raises `OperatingError` for what no step can be."""
    spec = KINDS.get(kind)
    if spec is None:
        raise OperatingError(
            "no such kind of step", on=f"{kind!r:.80}", do=f"one of {', '.join(sorted(KINDS))}"
        )
    wanted = [name for name, _ in spec.arguments]
    if sorted(arguments) != sorted(wanted):
        raise OperatingError(
            f"it takes {wanted}, not {str(sorted(arguments))[:200]}", on=kind, do=_SEE_KINDS
        )
    _check_time(kind, "at", at_ms)
    _check_time(kind, "for", for_ms)
    if for_ms and not spec.lasts:
        raise OperatingError("it happens at once and does not last", on=kind, do="leave `for` out")
    for name, form in spec.arguments:
        _check_argument(kind, name, form, arguments[name])
    return Step(at_ms, kind, tuple(arguments[name] for name in wanted), for_ms)


def _check_time(kind: str, name: str, value: object) -> None:
    if type(value) is not int or not 0 <= value <= TIME_MAX_MS:
        raise OperatingError(
            f"{name} is {value!r:.80}, not ms up to {TIME_MAX_MS}", on=kind, do=_SEE_KINDS
        )


def _check_argument(kind: str, name: str, form: str, value: object) -> None:
    if form in _BELOW:
        good = type(value) is int and 0 <= value < _BELOW[form]
    elif form == "nodes":
        good = isinstance(value, str) and is_target(value)
    else:
        good = value in form.split("|")
    if not good:
        raise OperatingError(f"{name} is {value!r:.80}, not {form}", on=kind, do=_SEE_KINDS)


def is_target(text: str) -> bool:
    """Whether this names nodes, see the module."""
    return len(text) <= 200 and all(_TARGET.fullmatch(part) for part in text.split("+"))


def _in_order(steps: Iterable[Step]) -> tuple[Step, ...]:
    return tuple(sorted(steps, key=lambda each: each.at_ms))


@final
@attrs.frozen
class Schedule:
    """A whole run. Steps are kept in the order of their instants; equal instants in the order
    given."""

    options: SimOptions
    steps: tuple[Step, ...] = attrs.field(converter=_in_order)

    def with_steps(self, steps: Iterable[Step]) -> "Schedule":
        """The same run with other steps."""
        return Schedule(self.options, tuple(steps))

    def document(self) -> dict[str, Any]:
        """As JSON; `schedule_from` reads it back."""
        return {
            "version": VERSION,
            "options": self.options.document(),
            "steps": [each.document() for each in self.steps],
        }

    def text(self) -> str:
        """The document as text, a line a step; equal schedules give equal text."""
        rows = ",\n".join(json.dumps(each.document()) for each in self.steps)
        options = json.dumps(self.options.document())
        return f'{{"version": {VERSION}, "options": {options}, "steps": [\n{rows}\n]}}\n'


def schedule_from(document: object) -> Schedule:
    """The schedule of a document. Raises `OperatingError` for another version, an unknown kind or
    option, and every value that cannot be."""
    if not isinstance(document, dict):
        raise OperatingError("a schedule is an object", on="schedule", do=_WRITTEN)
    if document.get("version") != VERSION:
        raise OperatingError(
            f"version {document.get('version')!r:.80} is not {VERSION}", on="schedule",
            do="replay it with the release that wrote it",
        )  # fmt: skip
    unknown = sorted(set(document) - {"version", "options", "steps"})
    if unknown:
        raise OperatingError(f"unknown member {unknown[0]!r:.80}", on="schedule", do=_WRITTEN)
    rows = document.get("steps")
    if not isinstance(rows, list) or len(rows) > STEPS_MAX:
        raise OperatingError(f"steps are a list of at most {STEPS_MAX}", on="schedule", do=_WRITTEN)
    options = options_from(document.get("options"))
    steps = tuple(_step_from(row, number) for number, row in enumerate(rows))
    repeated = sum(int(each.argument("count")) for each in steps if each.kind in REPEATING)
    if repeated > STEPS_MAX:
        raise OperatingError(
            f"{' and '.join(REPEATING)} stand for {amount(repeated, 'step')}, at most {STEPS_MAX}",
            on="schedule", do=_WRITTEN,
        )  # fmt: skip
    return Schedule(options, steps)


def _step_from(row: object, number: int) -> Step:
    if not isinstance(row, dict) or not all(isinstance(name, str) for name in row):
        raise OperatingError("a step is an object", on=f"step {number}", do=_WRITTEN)
    arguments = {name: row[name] for name in row if name not in ("at", "kind", "for")}
    kind = row.get("kind")
    if not isinstance(kind, str):
        raise OperatingError("a step has a kind", on=f"step {number}", do=_WRITTEN)
    if {"at_ms", "for_ms"} & set(arguments):
        raise OperatingError("instants are `at` and `for`", on=f"step {number}", do=_WRITTEN)
    try:
        return step(row.get("at", -1), kind, row.get("for", 0), **arguments)
    except OperatingError as error:
        raise OperatingError(error.what, on=f"step {number}: {error.on}", do=error.do) from None


def schedule_from_text(text: str) -> Schedule:
    """As `schedule_from`, from JSON text."""
    try:
        return schedule_from(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise OperatingError(f"not JSON: {error}", on="schedule", do=_WRITTEN) from None

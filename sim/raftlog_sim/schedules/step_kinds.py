"""All kinds of steps: their arguments, whether they last, who performs them, and what they do."""

from typing import Final, NamedTuple, final


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
_WHEN: Final = (
    "membership|learner|caught-up|joint|final|transfer|marker|install|roll|lease|level|controllers"
)
_WHAT: Final = (
    "crash|power|pause|stall|cut|deaf|mute|cut-old|crash-new|power-new|cut-new|cancel|relay"
)
_RELAYS: Final = "flip|damage|repeat|drop|swap|cut|truncate|reflect|old|any"
_LIES: Final = "other-cluster|other-directory|old-life|old-handshake"
_IMPOSTORS: Final = (
    "generations|strangers|joins|twice|left|deleter|vanished-leader|traveller|writer"
)
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
    "relay": Kind(
        (("sender", "nodes"), ("receiver", "nodes"), ("what", _RELAYS), ("one_in", "small")), True,
        "nemesis", "in trio mode: a relay without the secret strikes one in so many frames between "
        "brokers, each session once",
    ),
    "divert": Kind(
        (("node", "nodes"), ("to", "nodes")), True, "nemesis",
        "in trio mode: brokers that dial this node reach the other one",
    ),
    "lie": Kind(
        (("node", "nodes"), ("peer", "nodes"), ("what", _LIES)), True, "nemesis",
        "in trio mode: a process dials a broker and says in its handshake that it is a peer, of "
        "another cluster, with another directory, in an earlier life, or as it was said before",
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
        "instead, where a batch begins or anywhere, or in an index or snapshot. It lies below the "
        "durable mark and within the atlas, in wide seeds",
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
        "a machine comes back with the copy of its disk from an earlier boot; within the atlas",
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
    "throttle": Kind(
        (("rate", "int"),), True, "nemesis",
        "moves of the topic are throttled to so many bytes a second at each broker, for good where "
        "no time is given; 0 ends that",
    ),
    "unregister": Kind(
        (("node", "nodes"),), False, "nemesis",
        "the cluster is to forget a broker; it does when that is fenced and holds nothing",
    ),
    "move-replicas": Kind(
        (("node", "nodes"), ("to", "small")), False, "nemesis",
        "replicas of the topic are to move to that log directory of their broker, 0 is the data "
        "directory; in wide seeds",
    ),
    "break-directory": Kind(
        (("node", "nodes"), ("number", "small"), ("how", "writes|all")), True, "nemesis",
        "nothing can be written to a further log directory any more, or read from it either; the "
        "broker is restarted when that is over; within the atlas, in wide seeds",
    ),
    "add-controller": Kind(
        (("node", "nodes"),), False, "nemesis",
        "a broker is to vote as a controller; in wide seeds, within the atlas",
    ),
    "remove-controller": Kind(
        (("node", "nodes"),), False, "nemesis",
        "a controller is to be a broker only; in wide seeds, within the atlas",
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
        (("partition", "small"), ("what", "latest|earliest|epoch-end|time|largest"),
         ("back", "small")), False, "clients",
        "a client asks where a partition ends or begins, where an epoch ends, so many before the "
        "leader's, or which record has the largest timestamp. Or it asks for the first record from "
        "a timestamp on, of a batch farther from the end with each `back`. In wide seeds",
    ),
    "ask-id": Kind(
        (("node", "nodes"),), False, "clients",
        "a client asks this broker for a producer id, and waits for as long as it takes; for "
        "scenarios, not in trio mode",
    ),
    "kill-coordinator": Kind(
        (("group", "small"), ("when", _MOMENTS)), True, "nemesis",
        "the process that coordinates a group is killed as soon as the group is at that moment",
    ),
    "cut-coordinator": Kind(
        (("group", "small"), ("when", _MOMENTS)), True, "nemesis",
        "the broker that coordinates a group is cut off from the others as soon as the group is at "
        "that moment; members still reach it, and its records are decided late",
    ),
    "at-moment": Kind(
        (("partition", "small"), ("when", _WHEN), ("what", _WHAT)), True, "nemesis",
        "a fault strikes as soon as the partition is at that moment, within 1500 ms: the leader, "
        "the follower that is installed, the replicas that join, or the controller that proposed "
        "a `level` or other `controllers`. Or a move is taken back. Drawn in wide seeds",
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
"""Kinds that give replicas new places."""
OUTSIDE_ATLAS: Final = ("lying-sync", "rot-everywhere", "empty-disk")
"""Kinds that no protocol survives, only for scenarios about them."""
OF_LINKS: Final = ("relay", "divert", "lie")
"""Kinds that strike byte streams between brokers, in trio mode."""
OF_MEMBERS: Final = ("consume", "commit", "die", "committed", "impostor")
"""Kinds of members of groups, and of impostors."""
DEMANDS: Final = ("must-be-led",)
"""Kinds that do nothing, and say what a scenario expects at an instant."""


def is_fault(kind: str) -> bool:
    """Whether the nemesis performs the kind; clients perform the others."""
    return KINDS[kind].by == "nemesis"

"""Texts and examples for the page of scenario lines.

They stand beside the tables that the reader itself uses (`step_kinds.KINDS`, `options.SimOptions`,
`bounds.BOUNDS`). A test reads every example, and compares the names.
"""

from typing import Final

from raftlog_sim.schedules.step_kinds import KINDS

EXAMPLES: Final = {
    "crash": "500 crash node=leader:0 for 800",
    "power": "500 power node=n2+n3 keep=none for 300",
    "power-in-write": "500 power-in-write node=n1+n2+n3 keep=some for 300",
    "partition": "500 partition side=n1 how=silent for 1000",
    "one-way": "500 one-way side=leader:0 way=in for 1000",
    "bridge": "500 bridge hub=n3 how=loud for 1000",
    "ring": "500 ring how=loud for 1000",
    "clog": "500 clog sender=n1 receiver=n2+n3 for 400",
    "reset": "500 reset one=n1 other=n2",
    "hangup": "500 hangup node=leader:0",
    "lossy": "500 lossy sender=n1 receiver=all drop=20 duplicate=5 reorder_ms=10 for 1000",
    "drop-kind": "500 drop-kind sender=n2 receiver=leader:0 what=acks drop=100 for 600",
    "replay": "500 replay sender=leader:0 receiver=n2 ms=20 for 500",
    "replay-any": "500 replay-any sender=n1 receiver=n2 of=ended ms=20 for 500",
    "relay": "500 relay sender=leader:0 receiver=n2 what=damage one_in=20 for 400",
    "divert": "500 divert node=n2 to=n3 for 300",
    "lie": "500 lie node=n1 peer=n2 what=old-life for 200",
    "slow-link": "500 slow-link sender=n1 receiver=n2+n3 ms=40 for 1000",
    "pause": "500 pause node=leader:0 for 700",
    "late-turn": "500 late-turn node=n1 ms=50 for 500",
    "stall": "500 stall node=n2 for 500",
    "elect": "500 elect node=n2 partition=0",
    "disk-error": "500 disk-error node=n2 call=write count=2",
    "late-error": "500 late-error node=n2 call=rename count=1",
    "lying-sync": "500 lying-sync node=n2 for 500",
    "failed-sync": "500 failed-sync node=leader:0",
    "failed-name-sync": "500 failed-name-sync node=n2 call=dir",
    "disk-full": "500 disk-full node=n2 bytes=1500 for 300",
    "slow-disk": "500 slow-disk node=leader:0 ms=60 for 1000",
    "crash-at": "500 crash-at node=n1 calls=3 keep=some tear=yes",
    "kill-at": "500 kill-at node=n1 calls=3 tear=no",
    "rot": "500 rot node=n2 file=segment how=flip",
    "remember": "500 remember node=n2",
    "misdirect": "500 misdirect node=n2 to=batch",
    "rot-everywhere": "500 rot-everywhere node=n1+n2+n3 partition=0",
    "wipe": "500 wipe node=n2 for 300",
    "empty-disk": "500 empty-disk node=n2 for 600",
    "lose-replica": "500 lose-replica node=n2 partition=0 for 300",
    "lose-metadata": "500 lose-metadata node=n2 for 300",
    "image": "500 image node=n2",
    "old-disk": "500 old-disk node=n2 for 300",
    "stop": "500 stop node=n1 for 500",
    "upgrade": "500 upgrade node=n1 to=1 how=stop for 150",
    "downgrade": "500 downgrade node=n1 to=0 how=kill for 100",
    "raise-level": "500 raise-level level=2",
    "reassign": "500 reassign partition=0 nodes=n1+n2+n3",
    "throttle": "500 throttle rate=20000 for 3000",
    "cancel-move": "500 cancel-move partition=0",
    "unregister": "500 unregister node=n3",
    "transfer": "500 transfer partition=0 node=n2",
    "trim": "500 trim partition=0",
    "must-be-led": "900 must-be-led partition=0 nodes=n2+n3",
    "create-topic": "500 create-topic topic=0 partitions=2",
    "grow-topic": "500 grow-topic topic=0 partitions=3",
    "delete-topic": "500 delete-topic topic=0",
    "clock-jump": "500 clock-jump node=n1 way=back ms=60000 for 1000",
    "clock-drift": "500 clock-drift node=n1 way=slow permille=20 for 1000",
    "clock-wave": "500 clock-wave node=n1 ms=5000 period_ms=300 for 1500",
    "late-timers": "500 late-timers node=n1 ms=40 for 1000",
    "produce": "100 produce slot=0 partition=0 count=4",
    "load": "10 load slot=0 partition=0 count=150 every_ms=10",
    "pipeline": "100 pipeline slot=0 partition=0 count=10 acks=leader",
    "read": "300 read partition=0",
    "reads": "10 reads partition=0 count=50 every_ms=20",
    "ask": "300 ask partition=0 what=epoch-end back=1",
    "ask-id": "500 ask-id node=n2",
    "kill-coordinator": "800 kill-coordinator group=0 when=commits for 200",
    "cut-coordinator": "800 cut-coordinator group=0 when=assignment for 100",
    "at-moment": "500 at-moment partition=0 when=transfer what=deaf for 900",
    "add-controller": "500 add-controller node=n2",
    "remove-controller": "500 remove-controller node=controller",
    "move-replicas": "500 move-replicas node=n1 to=1",
    "break-directory": "500 break-directory node=n1 number=0 how=writes for 800",
    "consume": "50 consume member=0 group=0 how=eager id=dynamic every_ms=5",
    "commit": "400 commit member=0",
    "die": "600 die member=0",
    "committed": "700 committed group=0",
    "impostor": "500 impostor group=0 what=strangers",
    "flood": "500 flood node=leader:0 count=200 for 400",
}
"""Examples worth copying; a kind without one has a line made of its arguments."""
_VALUES: Final = {"small": "1", "int": "1000", "nodes": "n2"}


def example(name: str) -> str:
    """Returns a line of this kind of step."""
    kind = KINDS[name]
    words = [f"{each}={_VALUES.get(form, form.split('|')[0])}" for each, form in kind.arguments]
    made = " ".join(["500", name, *words, *(["for 500"] if kind.lasts else [])])
    return EXAMPLES.get(name, made.replace("partition=1", "partition=0"))


SETTINGS: Final = {
    "seed": ("which random numbers decide what no line says", "7"),
    "brokers": ("how many brokers there are: n1, n2 and so on", "5"),
    "controllers": ("how many of them, from n1 on, hold the metadata; at most all", "3"),
    "partitions": ("of the topic that clients write to; a step names them from 0 on", "3"),
    "replication": ("replicas of each partition; at most a broker each", "3"),
    "min_in_sync": ("`min.insync.replicas` of the topic; at most `replication`", "2"),
    "producers": ("idempotent producers; a step names them by its slot, from 0 on", "4"),
    "pipelines": ("plain producers that do not wait for answers, for `pipeline`", "2"),
    "members": ("members of consumer groups that seeds draw; `consume` needs none", "2"),
    "directories": ("further log directories of every broker; not in trio mode", "2"),
    "encode": ("each message between brokers is made bytes and read again", "yes"),
    "release": ("the release that all nodes begin with; 0 is this one", "1"),
    "sync_us": ("how long a sync of a disk takes", "20000"),
    "latency_us": ("how long a message takes at the least", "2000"),
    "jitter_us": ("how much longer it may take, as drawn", "500"),
    "stale": ("what was under way when a link broke arrives later", "yes"),
    "queue_max": ("messages that a held link keeps before it breaks", "64"),
    "heartbeat_ms": ("time between two heartbeats of a leader", "30"),
    "election_ms": ("the shortest election timeout", "300"),
    "split_turns": ("a turn of a broker takes only some of what waits for it", "yes"),
    "trio": ("play the runtime of real processes, on simulated disks and streams", "yes"),
    "patient": ("turns are put off and collected as in a real process", "yes"),
    "turn_us": ("how long a turn of a broker takes", "400"),
    "value_bytes": ("what each record is padded to", "3000"),
    "segment_bytes": ("`segment.bytes` of the topic; small segments roll often", "9000"),
    "store_bytes": ("how large a store file is made", "8192"),
    "tear_bytes": ("the unit in which a power failure keeps what was not synced", "4096"),
    "retention_bytes": ("what a partition keeps of old segments; 0 is everything", "4000"),
    "retention_ms": ("how old a record becomes; 0 is no limit", "3600000"),
    "snapshot_every": ("versions of the metadata between two snapshots; 0: the product's", "4"),
    "producer_expiration_ms": ("when a silent producer is forgotten; 0: the product's", "800"),
    "tight": ("connections are paused by a few requests or kilobytes", "yes"),
    "narrow_appends": ("one entry in an append, one append on the way", "yes"),
    "scrub_ms": ("within so long every closed segment is verified; 0: the product's", "500"),
    "strict_mark": ("an answer waits until the durable mark itself is durable", "yes"),
    "linearizable": ("a read sees all that was acknowledged before it began", "yes"),
    "lease": ("such a read is answered by a lease, without a round of messages", "yes"),
    "buggify": ("unusual paths of the product are taken on purpose", "yes"),
    "reboot": ("in the end all boot once more, and everything is read again", "yes"),
    "safety_ms": ("how long clients and faults go on; steps after it do nothing", "3000"),
    "events_max": (
        "events after which clients and faults end, if `safety_ms` is not over",
        "50000",
    ),
}
"""The meaning of each setting, and an example value."""

HEADERS: Final = {
    "#": ("a story; the first line is the title", "# the leader dies"),
    "set": ("`set NAME VALUE`: a setting, see below; the last line of a name counts",
            "set brokers 5"),
    "mutants": ("planted bugs that the scenario is also played with, one at a time; of a checkout",
                "mutants 3 9b"),
    "reaches": ("rare paths of the product that the run must pass, or it differs",
                "reaches torn-tail-cut"),
    "avoids": ("rare paths that it must not pass", "avoids installed"),
    "demands": ("`demands as-drawn`: a `must-be-led` holds with the file's own seed only, so "
                "varied seeds leave it out", "demands as-drawn"),
    "=>": ("a line that must come of the run: `=> ok` or the failure, `=> struck: ` with each kind "
           "of fault that did something and how often, `=> mutant N: ` with what caught it",
           "=> struck: crash 1"),
}  # fmt: skip
"""The meaning of each other line, and an example."""

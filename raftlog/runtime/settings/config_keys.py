"""Every broker setting by Kafka's name: what this release does with it.

SETTINGS are read. `BROKER_DEFAULT_NAMES` are the broker-wide forms of topic settings and are passed
on under the topic-level name. OTHERS are all other settings of Kafka's. Those without effect are
accepted, so that a `server.properties` can stay as it is, and listed once at start. Those that
promise what this release does not keep stop the start, unless they have their default.
`security_settings.NO_OPS` are those of security, refused away from the value that asks for nothing.
"""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from raftlog.base.limits import SEGMENT_BYTES_MIN
from raftlog.broker.config import ToldSetting
from raftlog.metadata.settings.config_checks import (
    LONG_MAX,
    Check,
    flag,
    integer,
    number,
    text,
    words,
)
from raftlog.metadata.settings.topic_config_table import ConfigType, SettingClass
from raftlog.metadata.settings.topic_configs import BROKER_DEFAULT_NAMES, default_of
from raftlog.runtime.settings.kafka_settings import GROUPS
from raftlog.runtime.settings.security_settings import DEFAULT_PROTOCOL_MAP, NO_OPS

Kind = Literal["int", "text", "flag", "choice"]


class Setting(NamedTuple):
    """One setting: its kind, its default as text, its bounds or choices, and what it is for."""

    kind: Kind
    default: str
    low: int = 0
    high: int = 2**63 - 1
    choices: tuple[str, ...] = ()
    about: str = ""


class KafkaSetting(NamedTuple):
    """A setting of Kafka's that is not honoured, and why."""

    kind: str
    default: str
    classed: SettingClass
    why: str


SETTINGS: Final[dict[str, Setting]] = {
    "node.id": Setting(
        "int", "", 0, 2**31 - 1, about="This broker's number, unique in the cluster."
    ),
    "broker.id": Setting("int", "", 0, 2**31 - 1, about="The older name of node.id."),
    "process.roles": Setting(
        "text",
        "",
        about="broker, or broker,controller for a broker that controller.quorum.voters names. No "
        "process is a controller alone.",
    ),
    "broker.rack": Setting("text", "", about="Failure domain; replicas are spread over racks."),
    "log.dirs": Setting(
        "text", "", about="The data directory, then further directories for replicas."
    ),
    "log.dir": Setting("text", "", about="The older name of log.dirs."),
    "listeners": Setting(
        "text", "PLAINTEXT://127.0.0.1:9092", about="Where clients connect; no host means loopback."
    ),
    "advertised.listeners": Setting(
        "text",
        "",
        about="The addresses that clients are told to connect to; the listeners when not set.",
    ),
    "listener.security.protocol.map": Setting(
        "text",
        DEFAULT_PROTOCOL_MAP,
        about="Listener name to protocol. It may name any protocol of Kafka's; a listener that "
        "uses another one than PLAINTEXT stops the start.",
    ),
    "controller.listener.names": Setting(
        "text", "", about="Names the peer listener when raftlog.peer.listener is not set."
    ),
    "controller.quorum.voters": Setting(
        "text",
        "",
        about="id@host:port of each controller's peer listener, comma-separated: brokers look for "
        "controllers there. A cluster is founded with 1, 3 or 5 of them.",
    ),
    "raftlog.peer.listener": Setting("text", "", about="host:port for the other brokers."),
    "raftlog.peer.routes": Setting(
        "text",
        "",
        about="id@host:port of brokers that this one reaches elsewhere than where they are "
        "registered: behind a NAT, a forwarded port, a proxy.",
    ),
    "raftlog.admin.listener": Setting(
        "text", "", about="host:port of /metrics, /livez and /readyz; none when empty."
    ),
    "raftlog.cluster.secret.file": Setting(
        "text",
        "",
        about="File with the secret (32 bytes or more) that brokers prove; mode 0600.",
    ),
    "raftlog.cluster.secret.other.file": Setting(
        "text",
        "",
        about="File with a second secret, which is taken too while the cluster changes from one to "
        "the other.",
    ),
    "raftlog.peer.seal": Setting(
        "choice",
        "",
        choices=("", "allowed", "required"),
        about="required: plain links, which a relay can read and forge, are refused. allowed: "
        "brokers of the last release, which cannot seal, are linked too. When empty, required for "
        "a cluster that this release or a later one formatted, else allowed.",
    ),
    "raftlog.testing.faults": Setting(
        "flag",
        "false",
        about="For tests of programs that use this broker: /faults on the admin listener makes it "
        "fail. Every listener must be on loopback.",
    ),
    "raftlog.testing.faults.directory": Setting(
        "text",
        "",
        about="A folder that the brokers of one cluster share: faults lie there across restarts, "
        "and are counted together. When empty, a broker that ends forgets its faults.",
    ),
    "raftlog.recordings.directory": Setting(
        "text",
        "",
        about="A folder into which the broker records everything that it is told, records "
        "included, from each boot on, for `raftlog incident`. The newest 8 boots of a broker stay. "
        "When empty, nothing is recorded.",
    ),
    "raftlog.storage.strict.mark": Setting(
        "flag", "false", about="Hold acknowledgements until the durable mark covers them."
    ),
    "raftlog.scrub.interval.ms": Setting(
        "int",
        "604800000",
        0,
        2**40,
        about="Within so long the broker reads and verifies every closed segment once, and repairs "
        "what rotted; 0 for never.",
    ),
    "raftlog.read.consistency": Setting(
        "choice", "committed", choices=("committed", "linearizable"), about="How fetches read."
    ),
    "raftlog.read.lease.enable": Setting(
        "flag",
        "false",
        about="Linearizable reads without a round to the followers, when a quorum of brokers has "
        "this on; needs clocks that keep step.",
    ),
    "raftlog.raft.heartbeat.ms": Setting("int", "100", 1, 60_000, about="Heartbeat interval."),
    "raftlog.raft.election.timeout.ms": Setting(
        "int", "500", 2, 600_000, about="Election timeout, drawn from once to twice this."
    ),
    "broker.session.timeout.ms": Setting(
        "int", "3000", 10, 600_000, about="A broker silent for so long is fenced."
    ),
    "replica.lag.time.max.ms": Setting(
        "int", "30000", 10, 2**31, about="A replica silent or behind for so long is out of sync."
    ),
    "auto.leader.rebalance.enable": Setting(
        "flag", "true", about="Partitions go back to their first replicas by themselves."
    ),
    "leader.imbalance.check.interval.seconds": Setting(
        "int",
        "300",
        1,
        2**31 - 1,
        about="How often leaders look for partitions to hand back. A first replica that was in "
        "sync at two looks in a row gets its partition.",
    ),
    "leader.imbalance.per.broker.percentage": Setting(
        "int",
        "10",
        0,
        100,
        about="So many percent of the partitions whose first replica a broker has may be led by "
        "others before they hand them back.",
    ),
    "producer.id.expiration.ms": Setting(
        "int",
        "86400000",
        1,
        2**31 - 1,
        about="An idempotent producer that was silent for so long is forgotten.",
    ),
    "num.partitions": Setting(
        "int", "1", 1, 10_000, about="Partitions of a topic made by default."
    ),
    "default.replication.factor": Setting("int", "1", 1, 5, about="Replicas made by default."),
    "auto.create.topics.enable": Setting("flag", "true", about="Create topics on first use."),
    "delete.topic.enable": Setting(
        "flag", "true", about="Clients may delete topics; else TOPIC_DELETION_DISABLED."
    ),
    "log.retention.check.interval.ms": Setting(
        "int",
        "300000",
        1,
        2**31 - 1,
        about="How often a leader looks whether old segments may go.",
    ),
    "group.min.session.timeout.ms": Setting(
        "int",
        "6000",
        1,
        2**31 - 1,
        about="The shortest session timeout that a member of a group may ask for.",
    ),
    "group.max.session.timeout.ms": Setting(
        "int",
        "1800000",
        1,
        2**31 - 1,
        about="The longest session timeout that a member of a group may ask for.",
    ),
    "group.initial.rebalance.delay.ms": Setting(
        "int",
        "3000",
        0,
        2**31 - 1,
        about="How long the first rebalance of an empty group waits for more members.",
    ),
    "group.max.size": Setting(
        "int", "2147483647", 1, 2**31 - 1, about="The most members that a group takes."
    ),
    "offset.metadata.max.bytes": Setting(
        "int", "4096", 0, 2**31 - 1, about="The most bytes of text beside a committed offset."
    ),
    "offsets.commit.timeout.ms": Setting(
        "int", "5000", 1, 2**31 - 1, about="How long a commit of offsets may take."
    ),
    "offsets.retention.minutes": Setting(
        "int",
        "10080",
        1,
        2**31 - 1,
        about="Offsets of a group that has been empty for so long are forgotten.",
    ),
    "offsets.retention.check.interval.ms": Setting(
        "int",
        "600000",
        1,
        2**31 - 1,
        about="How often a coordinator looks for offsets to forget.",
    ),
    "offsets.topic.num.partitions": Setting(
        "int",
        "50",
        1,
        10_000,
        about="Partitions of __consumer_offsets; fixed when the first group makes the topic.",
    ),
    "offsets.topic.replication.factor": Setting(
        "int",
        "3",
        1,
        5,
        about="Replicas of __consumer_offsets; fewer when fewer brokers live as it is made.",
    ),
    "offsets.topic.segment.bytes": Setting(
        "int",
        "104857600",
        SEGMENT_BYTES_MIN,
        2**31 - 1,
        about="Segment size of __consumer_offsets.",
    ),
    "socket.request.max.bytes": Setting(
        "int", "33554432", 65_536, 104_857_600, about="The largest request that is received."
    ),
    "fetch.max.bytes": Setting(
        "int",
        "57671680",
        1024,
        2**31 - 1,
        about="The most bytes of records in one answer to a fetch; its first batch goes whole.",
    ),
    "max.connections": Setting(
        "int",
        "2048",
        1,
        1_000_000,
        about="Client connections in all; at most half of the files that the process may open.",
    ),
    "connections.max.idle.ms": Setting(
        "int",
        "600000",
        1_000,
        2**31 - 1,
        about="A client that neither asks nor takes anything for so long, or at most twice as "
        "long, is hung up on.",
    ),
}

OTHERS: Final[dict[str, KafkaSetting]] = {
    name: KafkaSetting(kind, default, group.classed, group.why)
    for group in GROUPS
    for name, (kind, default) in group.settings.items()
}
"""Kafka's settings that are not honoured."""

assert len(OTHERS) == sum(len(group.settings) for group in GROUPS), "a name stands in two groups"
assert not [name for name in OTHERS if name in SETTINGS or name in BROKER_DEFAULT_NAMES]


def other_problem(name: str, value: str) -> str | None:
    """The problem with a setting that is not honoured: no value of its kind, or another one than
    the default where that would promise what is not kept. None when the file may say it."""
    setting = OTHERS[name]
    if not value or _same(value, setting.default):
        return None
    wrong = _CHECKS[setting.kind](value)
    if wrong is None and setting.classed is SettingClass.DEFAULT_ONLY:
        wrong = f"must be {setting.default or 'empty'}: {setting.why}"
    return None if wrong is None else f"{name}={value} {wrong}"


def has_no_effect(name: str) -> bool:
    """Whether a broker setting is taken and changes nothing."""
    if name in OTHERS:
        return OTHERS[name].classed is SettingClass.NO_EFFECT
    return name in BROKER_DEFAULT_NAMES and default_of(name).classed is SettingClass.NO_EFFECT


def told_settings(given: Mapping[str, str]) -> tuple[ToldSetting, ...]:
    """Every setting of a broker but the defaults of topics, by name, for DescribeConfigs."""
    found: list[tuple[str, str, str, str]] = [
        (name, each.kind, each.default, each.about) for name, each in SETTINGS.items()
    ]
    for name, other in OTHERS.items():
        found.append((name, other.kind, other.default, f"{other.classed.value}: {other.why}"))
    refused = SettingClass.DEFAULT_ONLY.value
    for name, default in NO_OPS.items():
        found.append((name, "text", default, f"{refused}: no security is served"))
    return tuple(
        ToldSetting(
            name=name,
            value=given.get(name, default),
            given=name in given,
            kind=_KINDS.get(kind, ConfigType.STRING),
            about=about,
        )
        for name, kind, default, about in sorted(found)
        if name not in BROKER_DEFAULT_NAMES
    )


def all_names() -> list[str]:
    """Every name that a configuration file may use, sorted."""
    return sorted({*SETTINGS, *BROKER_DEFAULT_NAMES, *OTHERS, *NO_OPS})


def _same(value: str, default: str) -> bool:
    return [word.lower() for word in words(value)] == [word.lower() for word in words(default)]


_KINDS: Final = {
    "int": ConfigType.LONG,
    "number": ConfigType.DOUBLE,
    "flag": ConfigType.BOOLEAN,
}

_CHECKS: Final[dict[str, Check]] = {
    "int": integer(-LONG_MAX - 1, LONG_MAX),
    "number": number,
    "flag": flag,
    "text": text,
}

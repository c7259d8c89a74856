"""The settings of a broker; nothing here changes while it runs.

The shell makes them from a properties file, embed and tests from keyword arguments. Durations are
nanoseconds. Topic settings keep Kafka's names and texts, so that one table (`metadata`) judges
them.
"""

from typing import Final, Literal, final

import attrs

from raftlog.base.ids import NodeId
from raftlog.base.limits import (
    APPEND_BYTES_MAX,
    APPENDS_IN_FLIGHT_MAX,
    HELD_BYTES_MAX,
    METADATA_SEGMENT_BYTES,
    OUTPUT_BYTES_MAX,
    PINNED_BYTES_MAX,
    UNANSWERED_BYTES_MAX,
    UNANSWERED_REQUESTS_MAX,
    UNCOMMITTED_BYTES_MAX,
    WAITING_BYTES_MAX,
)
from raftlog.base.units import Nanos, millis
from raftlog.broker.events import PeerAddress
from raftlog.broker.release import THIS_RELEASE, Release
from raftlog.groups.settings import GroupSettings
from raftlog.storage.replica import LogOptions

ReadConsistency = Literal["committed", "linearizable"]

SECOND: Final = millis(1_000)
DIGEST_EVERY: Final = 256
"""Image versions between two comparisons of digests over all brokers."""
SNAPSHOT_EVERY: Final = 10_000
"""Image versions between two snapshots in the metadata log: a few megabytes of commands."""


def session_timeout_ms_least(heartbeat_ns: Nanos, election_ns: Nanos) -> int:
    """The shortest session timeout that a group's members may ask for, in ms.

    A coordinator that is cut off answers heartbeats until it steps down. Its successor opens after
    an election of the longest kind, and after another when the first one is split. It then starts
    every session in full. A shorter session could end while the old coordinator still answers.
    """
    election_at_longest = 2 * election_ns
    link_detection = 2 * heartbeat_ns
    return (2 * election_at_longest + link_detection) // millis(1)


@final
@attrs.frozen(kw_only=True)
class Listener:
    """Where clients reach this broker; `name` is what `ConnectionOpened.listener` says."""

    name: str
    host: str
    port: int


@final
@attrs.frozen(kw_only=True)
class ToldSetting:
    """A setting as DescribeConfigs gives it: the file's text (`given`) or the default.

    `kind` is Kafka's number of its type.
    """

    name: str
    value: str
    given: bool
    kind: int
    about: str


@final
@attrs.frozen(kw_only=True)
class BrokerLimits:
    """The bounds of the ledger. Tests make them tiny, so that edges are common."""

    unanswered_bytes: int = UNANSWERED_BYTES_MAX
    unanswered_requests: int = UNANSWERED_REQUESTS_MAX
    uncommitted_bytes: int = UNCOMMITTED_BYTES_MAX
    pinned_bytes: int = PINNED_BYTES_MAX
    output_bytes: int = OUTPUT_BYTES_MAX
    held_bytes: int = HELD_BYTES_MAX
    waiting_bytes: int = WAITING_BYTES_MAX


@final
@attrs.frozen(kw_only=True)
class OffsetsTopicSettings:
    """The settings with which the topic of consumer groups is made.

    `offsets.topic.num.partitions` is fixed from then on. `offsets.topic.replication.factor` is
    limited by the number of live brokers. `offsets.topic.segment.bytes` is its size of segments.
    `commit_ns` is `offsets.commit.timeout.ms`: how long a write of a group may take to be
    committed.
    """

    partitions: int = 50
    replication: int = 3
    segment_bytes: int = 104_857_600
    commit_ns: Nanos = millis(5_000)


@final
@attrs.frozen(kw_only=True)
class BrokerConfig:
    """The settings of one broker process.

    `controllers` are the metadata group's formatted voters.
    """

    node: NodeId
    peer: PeerAddress
    controllers: tuple[PeerAddress, ...]
    listeners: tuple[Listener, ...]
    rack: str = ""
    routes: tuple[PeerAddress, ...] = ()
    """Addresses at which this broker reaches others, instead of their registered ones (a NAT, a
    proxy)."""

    heartbeat_ns: Nanos = millis(100)
    election_ns: Nanos = millis(500)
    """The shortest election timeout, in ns: timeouts are drawn from once to twice this."""
    session_ns: Nanos = millis(3_000)
    """The silence after which the controller fences a broker, in ns."""
    mark_idle_ns: Nanos = millis(10)
    """The time after which a mark that no later write carried is written by itself, in ns."""
    replica_lag_ns: Nanos = millis(30_000)
    """replica.lag.time.max.ms: a replica that is silent or behind for so long is out of sync."""
    balance_leaders: bool = True
    """auto.leader.rebalance.enable: partitions go back to their first replicas by themselves."""
    balance_ns: Nanos = millis(300_000)
    """leader.imbalance.check.interval.seconds: how often leaders look for those."""
    imbalance_percent: int = 10
    """leader.imbalance.per.broker.percentage: the share of a broker's partitions (those whose first
    replica it has) that others may lead before the partitions go back."""
    request_ns: Nanos = millis(30_000)
    """The time for which the controller is asked before a client gets REQUEST_TIMED_OUT, in ns."""
    create_wait_ns: Nanos = millis(5_000)
    """The longest time after which a Metadata request that creates topics is answered, in ns."""
    leaders_wait_ns: Nanos = millis(2_000)
    """The longest time for which the answer to a creation or growth waits until all brokers name
    the leaders, in ns."""

    auto_create: bool = True
    fetch_bytes_max: int = 57_671_680
    """fetch.max.bytes: the most record bytes in one answer to a fetch; its first batch goes whole.
    """
    delete_topics: bool = True
    """delete.topic.enable: clients may delete topics."""
    partitions_default: int = 1
    replication_default: int = 1
    producer_expiration_ms: int = 86_400_000
    """producer.id.expiration.ms: an idempotent producer that is silent for so long is forgotten."""
    groups: GroupSettings = attrs.Factory(GroupSettings)
    """group.* and offsets.*: the settings of the coordinators of consumer groups."""
    offsets_topic: OffsetsTopicSettings = attrs.Factory(OffsetsTopicSettings)
    topic_defaults: tuple[(tuple[str, str]), ...] = ()
    """Broker-wide topic settings, (Kafka's topic-level name, text), over the built-in defaults."""

    data_path: str = ""
    """The data directory as DescribeLogDirs names it; empty where there is no file system."""
    told: tuple[ToldSetting, ...] = ()
    """Every broker setting, for DescribeConfigs alone; empty where no file was read."""

    retention_check_ns: Nanos = millis(300_000)
    """log.retention.check.interval.ms: how often a leader checks whether old segments may go."""
    scrub_interval_ns: Nanos = millis(604_800_000)
    """raftlog.scrub.interval.ms: the time in which every closed segment is read and verified once;
    0 for never."""
    log_sizes: LogOptions | None = None
    """The sizes of every log, over those of topics; simulations make them tiny, to meet edges
    often."""

    metadata_segment_bytes: int = METADATA_SEGMENT_BYTES
    metadata_snapshot_every: int = SNAPSHOT_EVERY
    metadata_digest_every: int = DIGEST_EVERY
    """The sizes of the metadata log: bytes of a file, and the versions of the image between two
    snapshots and between two digests. Simulations make them tiny."""

    append_bytes_max: int = APPEND_BYTES_MAX
    appends_in_flight_max: int = APPENDS_IN_FLIGHT_MAX
    """The most bytes of one append to a follower, and the most appends that wait for their answers.
    Simulations make both tiny, to part what usually travels together."""

    read_consistency: ReadConsistency = "committed"
    strict_mark: bool = False
    """raftlog.storage.strict.mark: acks wait until the mark is durable."""
    lease: bool = False
    """raftlog.read.lease.enable: linearizable reads need no round while a lease lasts."""
    eager_founder: bool = False
    """Whether the first founder is the first choice to lead the metadata group, and campaigns after
    a heartbeat. `raftlog serve` sets it; scenarios of the simulator are timed without."""
    release: Release = THIS_RELEASE
    """The versions that the process can read and may write; only simulations change it."""
    limits: BrokerLimits = attrs.Factory(BrokerLimits)

    def __attrs_post_init__(self) -> None:
        assert self.controllers, "a cluster has controllers"
        assert self.heartbeat_ns < self.election_ns, (self.heartbeat_ns, self.election_ns)
        assert self.peer.node == self.node, (self.peer, self.node)
        least = session_timeout_ms_least(self.heartbeat_ns, self.election_ns)
        shortest = self.groups.session_timeout_ms_min
        assert shortest > least, (shortest, least)
        names = [listener.name for listener in self.listeners]
        assert len(names) == len(dict.fromkeys(names)), names

    def route_to(self, registered: PeerAddress) -> PeerAddress:
        """The address at which this broker reaches another one, by its registered address."""
        own = (route for route in self.routes if route.node == registered.node)
        return next(own, registered)

    @property
    def lease_ns(self) -> Nanos:
        """The time that a voter promises with the echo of a read round, in ns."""
        return self.election_ns if self.lease else Nanos(0)

    @property
    def is_controller(self) -> bool:
        """Whether this node is one of the configured controllers."""
        return any(address.node == self.node for address in self.controllers)

    def fast(self) -> "BrokerConfig":
        """These settings with the timings of embed and tests: failover in a third of a second."""
        return attrs.evolve(
            self,
            heartbeat_ns=millis(30),
            election_ns=millis(150),
            session_ns=millis(1_000),
            request_ns=millis(10_000),
        )

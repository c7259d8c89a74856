"""A broker's configuration file: `key = value` with Kafka's names, judged before anything starts.

Errors name file, line and key, and for a typo the nearest name. Nothing is guessed: a value that
does not parse stops the start.
"""

import difflib
import os
from collections.abc import Mapping
from typing import Final, NamedTuple, final

import attrs

from raftlog.base.errors import ConfigError
from raftlog.base.ids import NodeId
from raftlog.base.units import millis
from raftlog.broker.config import BrokerConfig, Listener
from raftlog.broker.events import PeerAddress
from raftlog.metadata.settings.topic_configs import (
    BROKER_DEFAULT_NAMES,
    broker_default_problem,
    broker_defaults,
)
from raftlog.runtime.disks.log_dirs import log_dirs
from raftlog.runtime.settings.config_keys import (
    OTHERS,
    SETTINGS,
    Setting,
    all_names,
    has_no_effect,
    other_problem,
    told_settings,
)
from raftlog.runtime.settings.fault_settings import (
    NO_FAULTS,
    FaultSettings,
    fault_settings,
    refuse_reachable,
)
from raftlog.runtime.settings.group_settings import group_settings, offsets_topic_settings
from raftlog.runtime.settings.secret_file import read_secrets
from raftlog.runtime.settings.security_settings import (
    PROTOCOLS,
    SERVED_PROTOCOL,
    advice_for,
    protocol_of,
    security_name,
    security_problem,
)

LOOPBACK: Final = "127.0.0.1"


class SettingLine(NamedTuple):
    """Where a value came from."""

    value: str
    where: str


class Address(NamedTuple):
    """A host and a port to bind or to tell."""

    host: str
    port: int


@final
@attrs.frozen(kw_only=True)
class ServerConfig:
    """Everything `serve` needs. `broker` is what decides; the rest is the shell's."""

    broker: BrokerConfig
    data_dir: str
    bind: tuple[Listener, ...]
    peer_bind: Address
    admin_bind: Address | None
    secrets: tuple[bytes, ...]
    frame_bytes_max: int
    connections_max: int
    connections_idle_ms: int
    peer_seal: str = ""
    """`raftlog.peer.seal`; "" when the data directory decides."""
    ignored: tuple[str, ...] = ()
    faults: FaultSettings = NO_FAULTS
    further_dirs: tuple[str, ...] = ()
    """The log directories beside `data_dir`."""
    recordings_dir: str = ""
    """`raftlog.recordings.directory`; "" when nothing is recorded."""

    def loopback_only(self) -> bool:
        """Whether every listener is on the loopback interface (test disks demand it)."""
        hosts = [each.host for each in self.bind] + [self.peer_bind.host]
        if self.admin_bind is not None:
            hosts.append(self.admin_bind.host)
        return all(host in (LOOPBACK, "localhost", "::1") for host in hosts)


def parse_properties(text: str, name: str) -> dict[str, SettingLine]:
    """Java properties as people write them for Kafka: `=` or `:`, `#` and `!` comments, a backslash
    at the end of a line joins the next. A key given twice is an error, for one of them is lost."""
    found: dict[str, SettingLine] = {}
    pending, pending_from = "", 0
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.strip()
        if not pending and (not line or line[0] in "#!"):
            continue
        if line.endswith("\\"):
            pending, pending_from = pending + line[:-1], pending_from or number
            continue
        whole, first = pending + line, pending_from or number
        pending, pending_from = "", 0
        cut = min((at for at in (whole.find("="), whole.find(":")) if at >= 0), default=-1)
        where = f"{name}, line {first}"
        if cut < 0:
            raise ConfigError(f"{whole!r} has no '='", on=where, do="write it as key = value")
        key, value = whole[:cut].strip(), whole[cut + 1 :].strip()
        if key in found:
            raise ConfigError(f"{key} is set twice", on=where, do=f"first at {found[key].where}")
        found[key] = SettingLine(value, f"{where}, {key}")
    return found


def load(path: str, overrides: Mapping[str, str] | None = None) -> ServerConfig:
    """Read and judge a file; `overrides` (from `--set k=v`) win over it."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot be read: {error}", on=path, do="give --config FILE") from error
    lines = parse_properties(text, path)
    for key, value in (overrides or {}).items():
        lines[key] = SettingLine(value, f"--set {key}")
    return judge(lines, path)


def judge(lines: dict[str, SettingLine], name: str) -> ServerConfig:
    """The configuration that these settings make; `ConfigError` for the first one that is wrong."""
    _refuse_unknown(lines)
    _refuse_security(lines)
    _refuse_promises(lines)
    settings = _Settings(lines, name)
    node = NodeId(settings.node_id())
    bind = _listeners(settings, "listeners")
    names = _controller_names(settings)
    clients = tuple(each for each in bind if each.name not in names)
    if not clients:
        raise ConfigError(
            "no listener is left for clients",
            on=settings.where("listeners"),
            do="add one that controller.listener.names does not name",
        )
    peer_bind = _peer_listener(settings, bind, names)
    controllers = _controllers(settings)
    own = next((each for each in controllers if each.node == node), None)
    _judge_roles(settings, is_voter=own is not None)
    peer = own or PeerAddress(node, peer_bind.host, peer_bind.port)
    broker = _broker_config(settings, node, clients, peer, controllers)
    config = ServerConfig(
        broker=broker,
        data_dir=log_dirs(settings)[0],
        further_dirs=log_dirs(settings)[1:],
        bind=clients,
        peer_bind=peer_bind,
        admin_bind=settings.address("raftlog.admin.listener"),
        secrets=read_secrets(settings),
        peer_seal=settings.text("raftlog.peer.seal"),
        frame_bytes_max=settings.number("socket.request.max.bytes"),
        connections_max=settings.number("max.connections"),
        connections_idle_ms=settings.number("connections.max.idle.ms"),
        ignored=tuple(key for key in sorted(lines) if has_no_effect(key)),
        faults=fault_settings(settings),
        recordings_dir=settings.text("raftlog.recordings.directory"),
    )
    refuse_reachable(config.faults, config.loopback_only(), settings)
    return config


def _refuse_unknown(lines: dict[str, SettingLine]) -> None:
    known = all_names()
    for key, line in lines.items():
        if key not in known and security_name(key) is None:
            near = difflib.get_close_matches(key, known, n=1)
            advice = (
                f"did you mean {near[0]}?"
                if near
                else "docs/reference/broker_settings.md has all of them"
            )
            raise ConfigError(f"no setting is called {key}", on=line.where, do=advice)


def _refuse_security(lines: dict[str, SettingLine]) -> None:
    """A broker that is told to be secure and is not would lie: it does not start."""
    for key, line in lines.items():
        problem = security_problem(key, line.value) if security_name(key) else None
        if problem is not None:
            raise ConfigError(problem, on=line.where, do=advice_for(key))


def _refuse_promises(lines: dict[str, SettingLine]) -> None:
    """A setting that would change what clients get, and is not honoured, stops the start."""
    for key, line in lines.items():
        problem = other_problem(key, line.value) if key in OTHERS else None
        if problem is not None:
            raise ConfigError(
                problem,
                on=line.where,
                do="leave it out; docs/reference/broker_settings.md has every setting",
            )


@final
class _Settings:
    """The lines with defaults and types."""

    __slots__ = ("_name", "lines")

    def __init__(self, lines: dict[str, SettingLine], name: str) -> None:
        self.lines = lines
        self._name = name

    def where(self, key: str) -> str:
        line = self.lines.get(key)
        return line.where if line else f"{self._name}, {key}"

    def text(self, key: str) -> str:
        line = self.lines.get(key)
        value = line.value if line else SETTINGS[key].default
        choices = SETTINGS[key].choices
        if choices and value not in choices:
            raise ConfigError(
                f"{value!r} is none of {', '.join(choices)}",
                on=self.where(key),
                do=f"set it to {' or '.join(choices)}, or leave it out",
            )
        return value

    def required(self, *keys: str) -> str:
        for key in keys:
            if self.text(key):
                return self.text(key)
        raise ConfigError(f"{keys[0]} is not set", on=self._name, do=SETTINGS[keys[0]].about)

    def node_id(self) -> int:
        for key in ("node.id", "broker.id"):
            if key in self.lines:
                return self.number(key)
        raise ConfigError("node.id is not set", on=self._name, do="give each broker its own number")

    def number(self, key: str) -> int:
        setting: Setting = SETTINGS[key]
        value = self.text(key)
        advice = f"set it to a number from {setting.low} to {setting.high}"
        if setting.default:
            advice += f"; {setting.default} is the default"
        try:
            number = int(value)
        except ValueError:
            problem = f"{value!r} is not a whole number"
            raise ConfigError(problem, on=self.where(key), do=advice) from None
        if not setting.low <= number <= setting.high:
            bounds = f"{setting.low} to {setting.high}"
            raise ConfigError(f"{number} is outside {bounds}", on=self.where(key), do=advice)
        return number

    def flag(self, key: str) -> bool:
        value = self.text(key).lower()
        if value not in ("true", "false"):
            raise ConfigError(
                f"{value!r} is neither true nor false",
                on=self.where(key),
                do="write true or false",
            )
        return value == "true"

    def address(self, key: str) -> Address | None:
        value = self.text(key)
        return _address(value, self.where(key)) if value else None


def _address(text: str, where: str) -> Address:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ConfigError(f"{text!r} is not host:port", on=where, do="as in 127.0.0.1:9092")
    return Address(host.strip("[]") or LOOPBACK, int(port))


def _listeners(settings: _Settings, key: str) -> tuple[Listener, ...]:
    """`NAME://host:port`, comma-separated, names in capitals as in Kafka. TLS and SASL are refused
    until they are served."""
    where = settings.where(key)
    protocols, controllers = _protocol_map(settings), _controller_names(settings)
    found: list[Listener] = []
    for item in settings.text(key).split(","):
        name, slashes, rest = item.strip().partition("://")
        name = name.upper()
        if not slashes or not name:
            raise ConfigError(
                f"{item!r} is not NAME://host:port",
                on=where,
                do="as in PLAINTEXT://127.0.0.1:9092",
            )
        protocol = protocol_of(name, protocols, controllers)
        if protocol is None:
            raise ConfigError(
                f"listener {name} has no protocol",
                on=where,
                do=f"add {name}:PLAINTEXT to listener.security.protocol.map",
            )
        if protocol != SERVED_PROTOCOL:
            raise ConfigError(
                f"listener {name} wants {protocol}", on=where, do="this release serves PLAINTEXT"
            )
        address = _address(rest, where)
        found.append(Listener(name=name, host=address.host, port=address.port))
    if len({each.name for each in found}) < len(found):
        raise ConfigError("a listener name is used twice", on=where, do="give each its own name")
    return tuple(found)


def _protocol_map(settings: _Settings) -> dict[str, str]:
    key = "listener.security.protocol.map"
    pairs: dict[str, str] = {}
    for item in filter(None, (each.strip() for each in settings.text(key).split(","))):
        name, colon, protocol = item.partition(":")
        if not colon:
            raise ConfigError(
                f"{item!r} is not NAME:PROTOCOL",
                on=settings.where(key),
                do="as in PLAINTEXT:PLAINTEXT",
            )
        protocol = protocol.strip().upper()
        if protocol not in PROTOCOLS:
            raise ConfigError(
                f"{protocol!r} is no security protocol",
                on=settings.where(key),
                do=f"the protocols are {', '.join(PROTOCOLS)}",
            )
        pairs[name.strip().upper()] = protocol
    return pairs


def _controller_names(settings: _Settings) -> list[str]:
    names = settings.text("controller.listener.names").split(",")
    return [name.strip().upper() for name in names if name.strip()]


def _peer_listener(
    settings: _Settings, bind: tuple[Listener, ...], controller_names: list[str]
) -> Address:
    given = settings.address("raftlog.peer.listener")
    if given is not None:
        return given
    for each in bind:
        if each.name in controller_names:
            return Address(each.host, each.port)
    raise ConfigError(
        "there is no listener for the other brokers",
        on=settings.where("raftlog.peer.listener"),
        do="set raftlog.peer.listener = host:port",
    )


def _judge_roles(settings: _Settings, *, is_voter: bool) -> None:
    """Every process is a broker; it is a controller exactly if controller.quorum.voters names it.
    Kafka refuses a file that says otherwise, too."""
    roles = [role.strip() for role in settings.text("process.roles").split(",") if role.strip()]
    where = settings.where("process.roles")
    if any(role not in ("broker", "controller") for role in roles):
        raise ConfigError(f"{','.join(roles)!r} names no role", on=where, do="write broker")
    if roles and "broker" not in roles:
        problem, do = "no process is a controller alone", "write broker,controller"
        raise ConfigError(problem, on=where, do=do)
    if roles and is_voter != ("controller" in roles):
        names, fit = ("names", "broker,controller") if is_voter else ("does not name", "broker")
        problem = f"controller.quorum.voters {names} this broker"
        raise ConfigError(problem, on=where, do=f"write {fit}, or change the voters")


def _controllers(settings: _Settings) -> tuple[PeerAddress, ...]:
    key = "controller.quorum.voters"
    return _peers(settings.required(key), settings.where(key))


def _peers(text: str, where: str) -> tuple[PeerAddress, ...]:
    """`id@host:port`, comma-separated, each broker once."""
    found: list[PeerAddress] = []
    for item in text.split(","):
        node, at, rest = item.strip().partition("@")
        if not at or not node.isascii() or not node.isdigit():
            raise ConfigError(
                f"{item!r} is not id@host:port", on=where, do="as in 1@127.0.0.1:9192"
            )
        address = _address(rest, where)
        found.append(PeerAddress(NodeId(int(node)), address.host, address.port))
    if len({each.node for each in found}) < len(found):
        raise ConfigError("a broker is named twice", on=where, do="name each broker once")
    return tuple(found)


def _broker_config(
    settings: _Settings,
    node: NodeId,
    clients: tuple[Listener, ...],
    peer: PeerAddress,
    controllers: tuple[PeerAddress, ...],
) -> BrokerConfig:
    advertised = clients
    if settings.text("advertised.listeners"):
        # Kafka's own file advertises the controllers' listener, too. Clients are not sent there.
        names = _controller_names(settings)
        advertised = tuple(
            each for each in _listeners(settings, "advertised.listeners") if each.name not in names
        )
    routes = settings.text("raftlog.peer.routes")
    heartbeat_ms = settings.number("raftlog.raft.heartbeat.ms")
    election_ms = settings.number("raftlog.raft.election.timeout.ms")
    if heartbeat_ms * 2 > election_ms:
        raise ConfigError(
            f"an election timeout of {election_ms} ms is too near a heartbeat of {heartbeat_ms} ms",
            on=settings.where("raftlog.raft.election.timeout.ms"),
            do="make it at least twice the heartbeat, better five times",
        )
    session_ms = settings.number("broker.session.timeout.ms")
    if session_ms <= heartbeat_ms:
        raise ConfigError(
            f"broker.session.timeout.ms = {session_ms} is not larger than "
            f"raftlog.raft.heartbeat.ms = {heartbeat_ms}: a broker would count as silent between "
            "two heartbeats",
            on=settings.where("broker.session.timeout.ms"),
            do="make it several times the heartbeat; thirty times is the default",
        )
    consistency = settings.text("raftlog.read.consistency")
    return BrokerConfig(
        node=node,
        peer=peer,
        controllers=controllers,
        listeners=advertised,
        rack=settings.text("broker.rack"),
        routes=_peers(routes, settings.where("raftlog.peer.routes")) if routes else (),
        heartbeat_ns=millis(heartbeat_ms),
        election_ns=millis(election_ms),
        session_ns=millis(session_ms),
        replica_lag_ns=millis(settings.number("replica.lag.time.max.ms")),
        balance_leaders=settings.flag("auto.leader.rebalance.enable"),
        balance_ns=millis(1_000 * settings.number("leader.imbalance.check.interval.seconds")),
        imbalance_percent=settings.number("leader.imbalance.per.broker.percentage"),
        producer_expiration_ms=settings.number("producer.id.expiration.ms"),
        auto_create=settings.flag("auto.create.topics.enable"),
        data_path=os.path.abspath(log_dirs(settings)[0]),
        told=told_settings({key: line.value for key, line in settings.lines.items()}),
        fetch_bytes_max=settings.number("fetch.max.bytes"),
        groups=group_settings(settings, millis(heartbeat_ms), millis(election_ms)),
        offsets_topic=offsets_topic_settings(settings),
        delete_topics=settings.flag("delete.topic.enable"),
        retention_check_ns=millis(settings.number("log.retention.check.interval.ms")),
        partitions_default=settings.number("num.partitions"),
        replication_default=settings.number("default.replication.factor"),
        topic_defaults=_topic_defaults(settings),
        read_consistency="linearizable" if consistency == "linearizable" else "committed",
        lease=settings.flag("raftlog.read.lease.enable"),
        strict_mark=settings.flag("raftlog.storage.strict.mark"),
        scrub_interval_ns=millis(settings.number("raftlog.scrub.interval.ms")),
        eager_founder=True,
    )


def _topic_defaults(settings: _Settings) -> tuple[tuple[str, str], ...]:
    given = {key: line.value for key, line in settings.lines.items() if key in BROKER_DEFAULT_NAMES}
    for key, value in given.items():
        problem = broker_default_problem(key, value)
        if problem is not None:
            raise ConfigError(
                problem,
                on=settings.where(key),
                do="docs/reference/topic_settings.md has the bounds",
            )
    return broker_defaults(given)

"""DescribeConfigs: every setting of a topic or of this broker, with where its value comes from."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from raftlog.base.amounts import amount
from raftlog.base.limits import DESCRIBED_RESOURCES_MAX
from raftlog.base.units import NANOS_PER_MILLI
from raftlog.broker.config import BrokerConfig
from raftlog.broker.context import Context
from raftlog.broker.front.requests import KafkaRequest
from raftlog.broker.topic_settings import (
    SOURCE_BROKER,
    SOURCE_DEFAULT,
    SOURCE_DYNAMIC_BROKER,
    SOURCE_DYNAMIC_DEFAULT,
    BrokerDefaults,
    EffectiveSetting,
    effective_settings,
)
from raftlog.kafka.error_bodies import error_body
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from raftlog.metadata.rules.topic_names import topic_name_problem
from raftlog.metadata.settings.broker_settings import BROKER_ONLY, CHANGEABLE, EVERY_BROKER
from raftlog.metadata.settings.topic_config_table import ConfigType, SettingClass, TopicConfig
from raftlog.metadata.settings.topic_defaults import MADE_NOW

TOPIC: Final = 2
BROKER: Final = 4
_DYNAMIC_SOURCES: Final = (SOURCE_DYNAMIC_BROKER, SOURCE_DYNAMIC_DEFAULT)
_KNOWN_EMPTY: Final = {8: "broker loggers", 16: "client metrics", 32: "groups"}


class _BrokerSetting(NamedTuple):
    name: str
    value: str
    kind: int
    about: str
    source: int = SOURCE_BROKER
    places: tuple[tuple[str, str, int], ...] = ()
    """All places that give the setting a value, where there may be several."""

    @property
    def lines(self) -> tuple[tuple[str, str, int], ...]:
        return self.places or ((self.name, self.value, self.source),)


def handle(context: Context, request: KafkaRequest) -> None:
    """One result per resource asked for."""
    body: DescribeConfigsRequest = request.body
    if len(body.resources) > DESCRIBED_RESOURCES_MAX:
        what = (
            f"{amount(len(body.resources), 'resource')}; ask for {DESCRIBED_RESOURCES_MAX} "
            "at a time"
        )
        request.answer(error_body(body, ErrorCode.INVALID_REQUEST, what))
        return
    results = [_describe(context, resource, body) for resource in body.resources]
    request.answer(DescribeConfigsResponse(results=results))


def _describe(
    context: Context, resource: DescribeConfigsResource, body: DescribeConfigsRequest
) -> DescribeConfigsResult:
    if resource.resource_type == TOPIC:
        return _topic(context, resource, body)
    if resource.resource_type == BROKER:
        return _broker(context, resource, body)
    if resource.resource_type in _KNOWN_EMPTY:
        return _result(resource, [])
    what = f"resource type {resource.resource_type} is not known"
    return _refused(resource, ErrorCode.INVALID_REQUEST, what)


def _topic(
    context: Context, resource: DescribeConfigsResource, body: DescribeConfigsRequest
) -> DescribeConfigsResult:
    name = resource.resource_name
    problem = topic_name_problem(name)
    if problem is not None:
        return _refused(resource, ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    topic = context.image.topic(name)
    if topic is None:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return _refused(resource, code, code.message)
    settings = effective_settings(topic.configs, context.defaults)
    wanted = _filter(resource, [each.setting.name for each in settings])
    return _result(
        resource, [_line(each, body) for each in settings if each.setting.name in wanted]
    )


def _line(each: EffectiveSetting, body: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = [DescribeConfigsSynonym(*line) for line in each.synonyms]
    return DescribeConfigsResourceResult(
        each.setting.name,
        each.value,
        False,
        each.source,
        False,
        synonyms if body.include_synonyms else (),
        each.setting.kind,
        _documentation(each.setting) if body.include_documentation else None,
    )


def _documentation(setting: TopicConfig) -> str:
    if setting.classed is SettingClass.HONOURED:
        return setting.about
    return f"{setting.classed.value}: {setting.about}"


def _broker(
    context: Context, resource: DescribeConfigsResource, body: DescribeConfigsRequest
) -> DescribeConfigsResult:
    """This broker's own settings.

    The empty name asks for those that were given to every broker while it ran.
    """
    if resource.resource_name == "":
        settings = _given_to_every(context)
    elif resource.resource_name == str(context.node):
        settings = _all_settings(context)
    else:
        what = f"this is broker {context.node}; ask broker {resource.resource_name} itself"
        return _refused(resource, ErrorCode.INVALID_REQUEST, what)
    wanted = _filter(resource, [each.name for each in settings])
    return _result(
        resource,
        [
            DescribeConfigsResourceResult(
                each.name,
                each.value,
                each.name not in CHANGEABLE,
                each.source,
                False,
                [DescribeConfigsSynonym(*line) for line in each.lines]
                if body.include_synonyms
                else (),
                each.kind,
                each.about if body.include_documentation else None,
            )
            for each in sorted(settings)
            if each.name in wanted
        ],
    )


def _given_to_every(context: Context) -> list[_BrokerSetting]:
    """The settings that group 0 holds for every broker."""
    return [
        _BrokerSetting(
            name,
            value,
            CHANGEABLE[name].kind,
            _documentation(CHANGEABLE[name]),
            SOURCE_DYNAMIC_DEFAULT,
        )
        for name, value in context.image.settings.get(EVERY_BROKER, ())
        if name in CHANGEABLE
    ]


def _all_settings(context: Context) -> list[_BrokerSetting]:
    """The settings of the file, those it leaves out, and the values in force where known."""
    config = context.config
    found = {
        each.name: _BrokerSetting(
            each.name,
            each.value,
            each.kind,
            each.about,
            SOURCE_BROKER if each.given else SOURCE_DEFAULT,
        )
        for each in config.told
    }
    given = _given_to_this(context)
    for setting in (*_broker_settings(config), *given, *_topic_defaults(context.defaults)):
        told = found.get(setting.name, setting)
        source = setting.source if setting.source in _DYNAMIC_SOURCES else told.source
        found[setting.name] = setting._replace(source=source, about=told.about)
    return list(found.values())


def _given_to_this(context: Context) -> Iterable[_BrokerSetting]:
    """The settings of the broker itself, which no topic has, where group 0 holds a value."""
    settings = context.image.settings
    owners = ((context.node, SOURCE_DYNAMIC_BROKER), (EVERY_BROKER, SOURCE_DYNAMIC_DEFAULT))
    for name, config in BROKER_ONLY.items():
        lines = [
            (name, value, source)
            for owner, source in owners
            for known, value in settings.get(owner, ())
            if known == name
        ]
        if lines:
            lines.append((name, config.default, SOURCE_DEFAULT))
            _, value, source = lines[0]
            about = _documentation(config)
            yield _BrokerSetting(name, value, config.kind, about, source, tuple(lines))


def _broker_settings(config: BrokerConfig) -> list[_BrokerSetting]:
    number, text, flag = ConfigType.INT, ConfigType.STRING, ConfigType.BOOLEAN
    voters = ",".join(f"{each.node}@{each.host}:{each.port}" for each in config.controllers)
    listeners = ",".join(f"{each.name}://{each.host}:{each.port}" for each in config.listeners)
    return [
        _BrokerSetting("node.id", str(config.node), number, "this broker's number"),
        _BrokerSetting("broker.rack", config.rack, text, "failure domain of this broker"),
        _BrokerSetting("advertised.listeners", listeners, text, "where clients connect"),
        _BrokerSetting("controller.quorum.voters", voters, text, "voters of the metadata group"),
        _BrokerSetting(
            "auto.create.topics.enable",
            str(config.auto_create).lower(),
            flag,
            "topics are created on first use",
        ),
        _BrokerSetting(
            "num.partitions", str(config.partitions_default), number, "partitions by default"
        ),
        _BrokerSetting(
            "default.replication.factor", str(config.replication_default), number, "by default"
        ),
        _BrokerSetting(
            "broker.session.timeout.ms", _ms(config.session_ns), number, "silence until fenced"
        ),
        _BrokerSetting(
            "replica.lag.time.max.ms", _ms(config.replica_lag_ns), number, "lag until out of sync"
        ),
        _BrokerSetting(
            "producer.id.expiration.ms",
            str(config.producer_expiration_ms),
            number,
            "silence until a producer is forgotten",
        ),
        _BrokerSetting(
            "raftlog.raft.heartbeat.ms", _ms(config.heartbeat_ns), number, "heartbeat interval"
        ),
        _BrokerSetting(
            "raftlog.raft.election.timeout.ms", _ms(config.election_ns), number, "drawn up to twice"
        ),
        _BrokerSetting(
            "raftlog.storage.strict.mark",
            str(config.strict_mark).lower(),
            flag,
            "acknowledgements wait for the durable mark",
        ),
    ]


def _topic_defaults(defaults: BrokerDefaults) -> Iterable[_BrokerSetting]:
    """The broker-wide forms of topic settings, as they take effect."""
    for each in effective_settings((MADE_NOW,), defaults):
        name = each.synonyms[-1][0]
        about = _documentation(each.setting)
        dynamic = each.source in _DYNAMIC_SOURCES
        places = each.synonyms if dynamic else ()
        yield _BrokerSetting(name, each.value, each.setting.kind, about, each.source, places)


def _ms(nanos: int) -> str:
    return str(nanos // NANOS_PER_MILLI)


def _filter(resource: DescribeConfigsResource, names: list[str]) -> dict[str, None]:
    """The names that the client asked for; null means all."""
    keys = resource.configuration_keys
    return dict.fromkeys(names if keys is None else keys)


def _result(
    resource: DescribeConfigsResource, configs: list[DescribeConfigsResourceResult]
) -> DescribeConfigsResult:
    return DescribeConfigsResult(0, None, resource.resource_type, resource.resource_name, configs)


def _refused(
    resource: DescribeConfigsResource, code: ErrorCode, message: str
) -> DescribeConfigsResult:
    return DescribeConfigsResult(code, message, resource.resource_type, resource.resource_name)

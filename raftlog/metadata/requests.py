"""The requests of brokers to the controller, and its answers: the bodies of controller messages.

    request body: tag u8, then the fields of that request (tables below)
    answer body:  refusal u16 (0: none), message, version u64, value u64, optional grant

A broker repeats a request whose answer was lost. A request that must not be performed twice goes
inside of a `OnceRequest`, which numbers it. `version` in an answer is the version of an image that
shows the change; the broker waits until its own image has reached it.
"""

from typing import Any, Final, final

import attrs

from raftlog.base.binary import Buffer, Reader, Writer
from raftlog.base.errors import ProtocolError
from raftlog.base.ids import BootNumber, ClusterId, DirectoryId, NodeId, ReplicaId, Term, TopicId
from raftlog.base.limits import (
    CONTROLLER_TEXT_BYTES_MAX,
    PARTITIONS_PER_TOPIC_MAX,
    REMOVALS_MAX,
    REPLICATION_FACTOR_MAX,
    TOPIC_NAME_CHARS_MAX,
)
from raftlog.base.units import Nanos
from raftlog.metadata import commands as c
from raftlog.metadata import fields as f
from raftlog.metadata.command_codec import (
    REGISTER_FIELDS,
    Proposal,
    decode_proposal,
    encode_proposal,
)
from raftlog.metadata.performed import REFUSAL
from raftlog.metadata.refusals import Refusal
from raftlog.metadata.settings.broker_settings import OWNER
from raftlog.metadata.settings.config_changes import CHANGES, ConfigChange
from raftlog.metadata.topic_image import CONFIGS, REPORTED_FIELDS, Configs

_ON: Final = "controller request"


@final
@attrs.frozen(kw_only=True)
class SubmitCommand:
    """Propose this command as it is; only those that a broker may decide by itself are taken."""

    command: c.Command


@final
@attrs.frozen(kw_only=True)
class NewTopicRequest:
    """A topic, placed by the controller: `count` partitions of `factor` replicas, or the nodes of
    each partition in `nodes` (then `count` and `factor` are 0)."""

    topic_id: TopicId
    name: str
    internal: bool
    count: int
    factor: int
    nodes: tuple[tuple[NodeId, ...], ...]
    configs: Configs
    validate_only: bool


@final
@attrs.frozen(kw_only=True)
class GrowTopicRequest:
    """`count` partitions in all; `nodes` of each new one, or empty to have them placed."""

    topic_id: TopicId
    count: int
    nodes: tuple[tuple[NodeId, ...], ...]
    validate_only: bool


@final
@attrs.frozen(kw_only=True)
class ReassignRequest:
    """Move one partition to these nodes, the preferred leader first; no nodes: cancel, which makes
    the last reported membership the target. `same_factor`: refuse another number of nodes than the
    partition has."""

    topic_id: TopicId
    partition: int
    nodes: tuple[NodeId, ...]
    same_factor: bool = False


@final
@attrs.frozen(kw_only=True)
class Heartbeat:
    """A registered boot is alive; `version` is that of its image."""

    node: NodeId
    directory: DirectoryId
    boot: BootNumber
    incarnation: int
    version: int


@final
@attrs.frozen(kw_only=True)
class Reports:
    """The states that the partitions led by the sender have reached."""

    reports: tuple[c.ReportMembership, ...]


@final
@attrs.frozen(kw_only=True)
class CurrentVersion:
    """Nothing is to be done: the answer's version is that of an image that shows everything that
    anybody was told before this was asked."""


@final
@attrs.frozen(kw_only=True)
class ShownEverywhere:
    """Answer when the images of all brokers that are alive have reached `version`, or after
    `wait_ns` without those that lag; the answer's message names them, joined by commas. A
    controller of an earlier release does not know this request and refuses it at once."""

    version: int
    wait_ns: Nanos


@final
@attrs.frozen(kw_only=True)
class AlterTopicRequest:
    """Change settings of a topic. `replace`: those that no change names go back to their
    defaults."""

    topic_id: TopicId
    changes: tuple[ConfigChange, ...]
    replace: bool
    validate_only: bool


@final
@attrs.frozen(kw_only=True)
class AlterBrokerRequest:
    """Change settings of one broker, or of every one. `replace`: those that no change names go
    away."""

    owner: NodeId
    changes: tuple[ConfigChange, ...]
    replace: bool
    validate_only: bool


@final
@attrs.frozen(kw_only=True)
class PreferLeaderRequest:
    """Hand a partition to its preferred leader: its target is set once more as it is, which tells
    the leader to do so now."""

    topic_id: TopicId
    partition: int


@final
@attrs.frozen(kw_only=True)
class DescribeQuorum:
    """How the metadata group stands; the answer's message is that of `quorum_view`."""


Performable = (
    SubmitCommand
    | NewTopicRequest
    | GrowTopicRequest
    | ReassignRequest
    | AlterTopicRequest
    | PreferLeaderRequest
    | AlterBrokerRequest
)
"""The requests that one command performs."""


@final
@attrs.frozen(kw_only=True)
class OnceRequest:
    """Perform `request` once, however often this comes. The numbers are those of
    `performed.OnceId`, the node is the sender. `again`: an earlier try may still be on its way, and
    must do nothing when this one is refused."""

    incarnation: int
    number: int
    settled: int
    again: bool
    request: Performable


RequestBody = (
    SubmitCommand
    | NewTopicRequest
    | GrowTopicRequest
    | ReassignRequest
    | AlterTopicRequest
    | PreferLeaderRequest
    | AlterBrokerRequest
    | DescribeQuorum
    | c.RegisterBroker
    | Heartbeat
    | Reports
    | CurrentVersion
    | OnceRequest
    | ShownEverywhere
)


@final
@attrs.frozen(kw_only=True)
class Grant:
    """The result of a registration: enough for a joiner to begin its replica of the metadata
    group."""

    cluster_id: ClusterId
    epoch: int
    metadata_replica: ReplicaId
    founders: tuple[ReplicaId, ...]


@final
@attrs.frozen(kw_only=True)
class ControllerAnswer:
    """`refusal` None: done, and an image of `version` shows it. `value` is what was allocated."""

    refusal: Refusal | None
    message: str
    version: int
    value: int = 0
    grant: Grant | None = None


def _read_command(reader: Reader) -> c.Command:
    return decode_proposal(reader.take(reader.remaining()), ProtocolError, _ON).command


_COMMAND: Final = f.Field(
    lambda writer, command: writer.raw(encode_proposal(Proposal(Term(0), 0, command))),
    _read_command,
    1,
)
_ONCE_TAGS: Final = (1, 2, 3, 4, 11, 12, 14)


def _read_once(reader: Reader) -> RequestBody:
    body = reader.take(reader.remaining())
    if not body or body[0] not in _ONCE_TAGS:
        raise reader.fail("a request that is not for once")
    return decode_body(body)


_ONCE: Final = f.Field(lambda writer, request: writer.raw(encode_body(request)), _read_once, 1)
_NODES: Final = f.many(f.NODE, REPLICATION_FACTOR_MAX)
_NODES_OF_EACH: Final = f.many(_NODES, PARTITIONS_PER_TOPIC_MAX)
_REPORT: Final = f.record(c.ReportMembership, (("group", f.U64), *REPORTED_FIELDS))

_TABLE: Final[dict[int, tuple[type[Any], f.Fields]]] = {
    1: (SubmitCommand, (("command", _COMMAND),)),
    2: (
        NewTopicRequest,
        (
            ("topic_id", f.TOPIC),
            ("name", f.text(4 * TOPIC_NAME_CHARS_MAX)),
            ("internal", f.FLAG),
            ("count", f.U32),
            ("factor", f.U16),
            ("nodes", _NODES_OF_EACH),
            ("configs", CONFIGS),
            ("validate_only", f.FLAG),
        ),
    ),
    3: (
        GrowTopicRequest,
        (
            ("topic_id", f.TOPIC),
            ("count", f.U32),
            ("nodes", _NODES_OF_EACH),
            ("validate_only", f.FLAG),
        ),
    ),
    4: (
        ReassignRequest,
        (
            ("topic_id", f.TOPIC),
            ("partition", f.U32),
            ("nodes", _NODES),
            ("same_factor", f.FLAG),
        ),
    ),
    5: (c.RegisterBroker, REGISTER_FIELDS),
    6: (
        Heartbeat,
        (
            ("node", f.NODE),
            ("directory", f.DIRECTORY),
            ("boot", f.U64),
            ("incarnation", f.U64),
            ("version", f.U64),
        ),
    ),
    7: (Reports, (("reports", f.many(_REPORT, REMOVALS_MAX)),)),
    8: (CurrentVersion, ()),
    9: (
        OnceRequest,
        (
            ("incarnation", f.U64),
            ("number", f.U64),
            ("settled", f.U64),
            ("again", f.FLAG),
            ("request", _ONCE),
        ),
    ),
    10: (ShownEverywhere, (("version", f.U64), ("wait_ns", f.U64))),
    11: (
        AlterTopicRequest,
        (
            ("topic_id", f.TOPIC),
            ("changes", CHANGES),
            ("replace", f.FLAG),
            ("validate_only", f.FLAG),
        ),
    ),
    12: (PreferLeaderRequest, (("topic_id", f.TOPIC), ("partition", f.U32))),
    13: (DescribeQuorum, ()),
    14: (
        AlterBrokerRequest,
        (
            ("owner", OWNER),
            ("changes", CHANGES),
            ("replace", f.FLAG),
            ("validate_only", f.FLAG),
        ),
    ),
}
_TAGS: Final = {made_by: tag for tag, (made_by, _) in _TABLE.items()}

_GRANT: Final = f.record(
    Grant,
    (
        ("cluster_id", f.CLUSTER),
        ("epoch", f.U64),
        ("metadata_replica", f.REPLICA),
        ("founders", f.REPLICAS),
    ),
)


def encode_body(request: RequestBody) -> bytes:
    """The body of a request."""
    tag = _TAGS[type(request)]
    writer = Writer().u8(tag)
    f.write_fields(writer, request, _TABLE[tag][1])
    return writer.bytes()


def decode_body(body: Buffer) -> RequestBody:
    """The reverse; ProtocolError for anything else (FutureFormat for a command of a later
    release)."""
    reader = Reader(body, ProtocolError, _ON)
    tag = reader.u8()
    if tag not in _TABLE:
        raise reader.fail(f"request of unknown tag {tag}")
    made_by, fields = _TABLE[tag]
    request: RequestBody = made_by(**f.read_fields(reader, fields))
    reader.end()
    return request


def encode_answer(answer: ControllerAnswer) -> bytes:
    """The body of an answer; a long message is cut."""
    message = answer.message.encode()[:CONTROLLER_TEXT_BYTES_MAX].decode(errors="ignore")
    writer = Writer()
    REFUSAL.write(writer, answer.refusal)
    writer.text(message).u64(answer.version).u64(answer.value)
    f.optional(_GRANT).write(writer, answer.grant)
    return writer.bytes()


def decode_answer(body: Buffer) -> ControllerAnswer:
    """The reverse; ProtocolError for anything else."""
    reader = Reader(body, ProtocolError, "controller answer")
    answer = ControllerAnswer(
        refusal=REFUSAL.read(reader),
        message=reader.text(CONTROLLER_TEXT_BYTES_MAX),
        version=reader.u64(),
        value=reader.u64(),
        grant=f.optional(_GRANT).read(reader),
    )
    reader.end()
    return answer

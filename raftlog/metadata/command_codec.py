"""Commands as bytes: the value of one record of the metadata log.

    0 format u8 = 1   1 kind u8   2 command version u8   3 flags u8: 1 when a request id follows
    4 term u32   8 serial u64   16 request id (flag), body (fields in the order of the table below)

Term and serial name the proposal: the controller that made it knows by them that its own proposal
was committed. The request id names the request of a broker that the command fulfils
(`performed`). Each version of a command is a `Form` that says from which feature level on it is
written. An unknown kind or version is never skipped: FutureFormat stops the replica, and the
feature level has kept anyone from writing it before all brokers could read it.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, final

import attrs

from raftlog.base.amounts import amount
from raftlog.base.binary import Buffer, Reader, Writer
from raftlog.base.errors import FutureFormat, RaftlogError
from raftlog.base.ids import Term
from raftlog.base.limits import (
    COMMAND_BYTES_MAX,
    CONFIG_NAME_BYTES_MAX,
    CONFIGS_PER_TOPIC_MAX,
    HOST_BYTES_MAX,
    PARTITIONS_PER_TOPIC_MAX,
    RACK_BYTES_MAX,
    REMOVALS_MAX,
    REPLICATION_FACTOR_MAX,
    TOPIC_NAME_CHARS_MAX,
)
from raftlog.metadata import commands as c
from raftlog.metadata import fields as f
from raftlog.metadata.broker_image import LISTENERS
from raftlog.metadata.features import FEATURE_LEVEL_MIN
from raftlog.metadata.image import DIGEST_BYTES
from raftlog.metadata.performed import ONCE_ID, REFUSAL, OnceId
from raftlog.metadata.settings.broker_settings import OWNER
from raftlog.metadata.topic_image import CONFIGS, REPORTED_FIELDS

_FORMAT: Final = 1
_ASKED: Final = 1
PLACE: Final = f.pair(f.NODE, f.DIRECTORY)
ASSIGNMENT: Final = f.many(PLACE, REPLICATION_FACTOR_MAX)
ASSIGNMENTS: Final = f.many(ASSIGNMENT, PARTITIONS_PER_TOPIC_MAX)

REGISTER_FIELDS: Final[f.Fields] = (
    ("node", f.NODE),
    ("directory", f.DIRECTORY),
    ("boot", f.U64),
    ("incarnation", f.U64),
    ("listeners", LISTENERS),
    ("peer_host", f.text(HOST_BYTES_MAX)),
    ("peer_port", f.U16),
    ("rack", f.text(RACK_BYTES_MAX)),
    ("level_min", f.U16),
    ("level_max", f.U16),
)

# kind -> command, fields. Kinds are never given twice.
_TABLE: Final[dict[int, tuple[type[Any], f.Fields]]] = {
    1: (
        c.FoundCluster,
        (("cluster_id", f.CLUSTER), ("controllers", f.REPLICAS), ("feature_level", f.U16)),
    ),
    2: (c.RegisterBroker, REGISTER_FIELDS),
    3: (c.CondemnDirectory, (("node", f.NODE), ("directory", f.DIRECTORY))),
    4: (c.FenceBroker, (("node", f.NODE), ("epoch", f.U64))),
    5: (c.UnfenceBroker, (("node", f.NODE), ("epoch", f.U64))),
    6: (c.UnregisterBroker, (("node", f.NODE),)),
    7: (
        c.CreateTopic,
        (
            ("topic_id", f.TOPIC),
            ("name", f.text(TOPIC_NAME_CHARS_MAX)),
            ("internal", f.FLAG),
            ("configs", CONFIGS),
            ("assignments", ASSIGNMENTS),
        ),
    ),
    8: (c.DeleteTopic, (("topic_id", f.TOPIC),)),
    9: (
        c.CreatePartitions,
        (("topic_id", f.TOPIC), ("count_before", f.U32), ("assignments", ASSIGNMENTS)),
    ),
    10: (
        c.SetTarget,
        (
            ("topic_id", f.TOPIC),
            ("partition", f.U32),
            ("assignment", ASSIGNMENT),
            ("if_target_version", f.U64),
        ),
    ),
    11: (c.ReplaceReplica, (("group", f.U64), ("lost", f.REPLICA))),
    12: (c.ReportMembership, (("group", f.U64), *REPORTED_FIELDS)),
    13: (
        c.ConfirmRemoved,
        (
            ("node", f.NODE),
            ("directory", f.DIRECTORY),
            ("removed", f.many(f.pair(f.U64, f.U64), REMOVALS_MAX)),
        ),
    ),
    14: (c.AllocateProducerIds, (("node", f.NODE), ("count", f.U32))),
    15: (
        c.AlterTopicConfigs,
        (
            ("topic_id", f.TOPIC),
            ("changed", CONFIGS),
            ("removed", f.many(f.text(CONFIG_NAME_BYTES_MAX), CONFIGS_PER_TOPIC_MAX)),
        ),
    ),
    16: (c.RaiseFeatureLevel, (("level", f.U16),)),
    17: (c.CompareDigest, (("version", f.U64), ("digest", f.blob(DIGEST_BYTES)))),
    18: (c.SnapshotImage, (("snapshot", f.blob(COMMAND_BYTES_MAX)),)),
    19: (c.CloseRequest, (("refusal", REFUSAL),)),
    20: (
        c.AlterBrokerConfigs,
        (
            ("owner", OWNER),
            ("changed", CONFIGS),
            ("removed", f.many(f.text(CONFIG_NAME_BYTES_MAX), CONFIGS_PER_TOPIC_MAX)),
        ),
    ),
    21: (c.ChangeController, (("node", f.NODE), ("directory", f.DIRECTORY), ("votes", f.FLAG))),
}


class Proposal(NamedTuple):
    """A command with the name of its proposal."""

    term: Term
    serial: int
    command: c.Command
    once: OnceId | None = None


class Form(NamedTuple):
    """One version of a command: the feature level from which on it is written, and its fields."""

    level: int
    fields: f.Fields


@final
@attrs.frozen
class CommandCodec:
    """The commands that a release knows: by kind the command, and its forms from version 1 on, of
    rising level. The form of a version never changes, for its bytes lie in the logs of clusters.
    """

    table: Mapping[int, tuple[type[Any], tuple[Form, ...]]]
    _kinds: Mapping[type[Any], int] = attrs.field(init=False)

    @_kinds.default
    def _by_command(self) -> Mapping[type[Any], int]:
        return {command: kind for kind, (command, _) in self.table.items()}

    def encode(self, proposal: Proposal, level: int) -> bytes:
        """The record value, in the newest form that a cluster at this feature level reads."""
        kind = self._kinds[type(proposal.command)]
        version, form = self._form_at(kind, level)
        once = proposal.once
        writer = Writer().u8(_FORMAT).u8(kind).u8(version).u8(0 if once is None else _ASKED)
        writer.u32(proposal.term).u64(proposal.serial)
        if once is not None:
            ONCE_ID.write(writer, once)
        f.write_fields(writer, proposal.command, form.fields)
        assert len(writer) <= COMMAND_BYTES_MAX, len(writer)
        return writer.bytes()

    def _form_at(self, kind: int, level: int) -> tuple[int, Form]:
        command, forms = self.table[kind]
        allowed = [each for each in enumerate(forms, 1) if each[1].level <= level]
        assert allowed, f"{command.__name__} is written from level {forms[0].level}, not {level}"
        return allowed[-1]

    def decode(self, data: Buffer, error: type[RaftlogError], on: str) -> Proposal:
        """The reverse. Raises `error` for bytes that no release writes, FutureFormat for those
        that a later one may have written."""
        reader = Reader(data, error, on)
        if len(data) > COMMAND_BYTES_MAX:
            raise reader.fail(f"command of {amount(len(data), 'byte')}")
        shape, kind, version, flags = reader.u8(), reader.u8(), reader.u8(), reader.u8()
        if shape == 0 or kind == 0 or version == 0:
            raise reader.fail(f"command of format {shape}, kind {kind}, version {version}")
        made_by, forms = self.table.get(kind, (None, ()))
        if shape > _FORMAT or made_by is None or version > len(forms):
            raise FutureFormat(
                f"metadata command of format {shape}, kind {kind}, version {version}; this release"
                f" reads format {_FORMAT}, kinds up to {max(self.table)}, of this one"
                f" {amount(len(forms), 'version')}",
                on=on,
                do="start the newer release on this broker",
            )
        if flags not in (0, _ASKED):
            raise reader.fail(f"flags are {flags:#x}")
        term, serial = f.TERM.read(reader), reader.u64()
        once = ONCE_ID.read(reader) if flags == _ASKED else None
        command: c.Command = made_by(**f.read_fields(reader, forms[version - 1].fields))
        reader.end()
        return Proposal(term, serial, command, once)


COMMANDS: Final = CommandCodec(
    {kind: (command, (Form(1, fields),)) for kind, (command, fields) in _TABLE.items()}
)


def encode_proposal(proposal: Proposal) -> bytes:
    """The record value in the form that every broker reads, of whatever release."""
    return COMMANDS.encode(proposal, FEATURE_LEVEL_MIN)


def decode_proposal(data: Buffer, error: type[RaftlogError], on: str) -> Proposal:
    """Decode a record with the commands of this release, see `CommandCodec.decode`."""
    return COMMANDS.decode(data, error, on)

"""Releases that meet in one simulated cluster: 0 is this one, 1 and 2 are the next two.

The product has one release so far. This module makes the next ones out of it, in every way in which
two releases may differ. Release n speaks n further versions of the peer protocol. From feature
levels of its own on, it writes n further forms of every metadata command. It still reads all
earlier protocols and forms, and speaks an earlier protocol to an older peer.

    a later protocol    one kind of message, 15 + version: count u8 of tagged fields, one more with
                        each version, each tag u8 and a block; then the kind and the body that
                        this release gives the message
    a later form        the fields of a command in another order

So an earlier release cannot read a later one by chance: kinds, versions and lengths all differ.
"""

from typing import Any, Final

from raftlog.base.binary import Buffer, Reader, Writer
from raftlog.base.errors import ProtocolError
from raftlog.broker.peer_codec import PeerCodec
from raftlog.broker.release import THIS_RELEASE, Release
from raftlog.metadata.command_codec import CommandCodec, Form
from raftlog.metadata.fields import Fields

_LATER: Final = 2
_KIND_FROM: Final = 15
_TAG_BYTES: Final = 16
_ON: Final = "peer message of a later protocol"
_NEWEST: Final = THIS_RELEASE.codecs[THIS_RELEASE.protocols[1]]


def _later_codec(version: int) -> PeerCodec:
    """Make the codec of a protocol version after this release's newest."""
    kind, tags = _KIND_FROM + version, range(1, version - _NEWEST.version + 1)

    def write(message: Any) -> list[Buffer]:
        inner, write_inner = _NEWEST.writers[type(message)]
        envelope = Writer().u8(len(tags))
        for tag in tags:
            envelope.u8(tag).block(b"field %d" % tag)
        return [envelope.u8(inner).bytes(), *write_inner(message)]

    def read(view: memoryview) -> Any:
        reader = Reader(view, ProtocolError, _ON)
        found = [(reader.u8(), reader.block(_TAG_BYTES)) for _ in range(reader.u8())]
        if [tag for tag, _ in found] != list(tags):
            raise reader.fail(f"tags {[tag for tag, _ in found]} in protocol {version}")
        inner = _NEWEST.readers.get(reader.u8())
        if inner is None:
            raise reader.fail("kind of no message")
        return inner(reader.take(reader.remaining()))

    return PeerCodec(
        version=version,
        writers=dict.fromkeys(_NEWEST.writers, (kind, write)),
        readers={kind: read},
    )


def _later_commands(number: int) -> CommandCodec:
    """Add `number` further forms to every command, each from one feature level higher on."""
    table = {}
    for kind, (command, forms) in THIS_RELEASE.commands.table.items():
        fields, level = forms[-1].fields, THIS_RELEASE.level_max
        later = [Form(level + step, _shuffled(fields, step)) for step in range(1, number + 1)]
        table[kind] = (command, (*forms, *later))
    return CommandCodec(table)


def _shuffled(fields: Fields, step: int) -> Fields:
    """Returns the fields in another order for each step, as far as they have other orders."""
    return tuple(reversed(fields[step - 1 :] + fields[: step - 1]))


def _later_release(number: int) -> Release:
    newest = _NEWEST.version
    later = {newest + step: _later_codec(newest + step) for step in range(1, number + 1)}
    return Release(
        codecs={**THIS_RELEASE.codecs, **later},
        commands=_later_commands(number),
        level_min=THIS_RELEASE.level_min,
        level_max=THIS_RELEASE.level_max + number,
    )


RELEASES: Final = (THIS_RELEASE, *(_later_release(number) for number in range(1, _LATER + 1)))


def level_of(number: int) -> int:
    """Returns the highest feature level that a release supports."""
    return RELEASES[number].level_max


def supports(number: int, level: int) -> bool:
    """Whether a release can take part in a cluster at that feature level."""
    return RELEASES[number].level_min <= level <= RELEASES[number].level_max

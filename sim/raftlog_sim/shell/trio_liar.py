"""A peer that lies in its handshake with a broker.

    other-cluster     it knows the secret, and says that it is a node of another cluster
    other-directory   it knows the secret, and says that it is a node with another node's directory
    old-life          it knows the secret, and says an earlier life of a node's directory
    old-handshake     it does not know the secret, and repeats the handshake of an ended session

It sends no frames: a holder of the secret who sends them is outside the trust model. The first and
the last must never be linked (`LinkChecks`); the others may be, while the node that they say they
are is not, and must not keep that one from its peers. Everything stays as it was said to a broker:
the lies are made of the fields of real handshakes.
"""

from typing import Final, NamedTuple, final

import attrs
import trio

from raftlog.base.errors import RemoteError
from raftlog.base.ids import NodeId
from raftlog.base.probes import probe
from raftlog.base.units import NANOS_PER_SECOND
from raftlog.seal import handshake
from raftlog.seal.fields import IDENTITY, INCARNATION, read_fields, write_fields
from raftlog_sim.base.streams import Stream
from raftlog_sim.base.violation import Violation
from raftlog_sim.shell.trio_network import ProcessNetwork
from raftlog_sim.shell.trio_streams import SimStream
from raftlog_sim.shell.trio_surroundings import SECRET, Surroundings
from raftlog_sim.world.link_checks import IDENTITY_HEAD, LinkChecks, place_of
from raftlog_sim.world.world import PEER_PORT

_CHUNK_BYTES: Final = 64 * 1024


class Lie(NamedTuple):
    """The words of a liar: fields of a handshake of its own, or the messages of an old one."""

    fields: bytes
    opening: tuple[bytes, ...] = ()


def fields_of_a_lie(
    known: LinkChecks, number: NodeId, peer: NodeId, what: str, draws: Stream
) -> Lie | None:
    """Returns the lie for node `number` as `peer`; None when too little was said before."""
    said = list(known.lives.get(peer, ()))
    if what == "old-handshake":
        opening = known.openings.get((peer, number), ())
        if opening:
            probe("lie-of-an-old-handshake")
        return Lie(b"", opening) if opening else None
    if not said:
        return None
    fields = read_fields(said[-1])
    cluster, node, directory, boot = IDENTITY_HEAD.unpack_from(fields[IDENTITY])
    if what == "other-cluster":
        probe("lie-of-another-cluster")
        cluster, directory = draws.bytes(16), int.from_bytes(draws.bytes(8), "big")
    elif what == "other-directory":
        others = [each for each in sorted(known.lives) if each not in (peer, number)]
        if not others:
            return None
        probe("lie-of-another-directory")
        _, directory, boot, _ = place_of(list(known.lives[others[draws.below(len(others))]])[-1])
    else:
        places = [(place_of(each), each) for each in said]
        earlier = [(place, each) for place, each in places if place[1] == directory]
        earlier = [(place, each) for place, each in earlier if place[2] < boot]
        if not earlier:
            return None
        probe("lie-of-an-old-life")
        place, old = earlier[draws.below(len(earlier))]
        fields[INCARNATION] = read_fields(old)[INCARNATION]
        if draws.chance(1, 2):
            boot = place[2]
    rest = fields[IDENTITY][IDENTITY_HEAD.size :]
    fields[IDENTITY] = IDENTITY_HEAD.pack(cluster, node, directory, boot) + rest
    lie = write_fields(fields)
    if what != "other-cluster":
        known.lies[place_of(lie)] = None
    return Lie(lie)


@final
@attrs.define(eq=False)
class Liar:
    """Dials node `number`, says a lie, and stays for a while if it is let in."""

    world: Surroundings
    network: ProcessNetwork
    number: NodeId
    lie: Lie
    lasts_ns: int
    draws: Stream

    async def run(self) -> None:
        """The task."""
        with trio.move_on_after(self.lasts_ns / NANOS_PER_SECOND):
            try:
                stream = await self.network.connect(f"n{self.number}", PEER_PORT)
            except OSError:
                return
            try:
                await (self._repeat(stream) if self.lie.opening else self._say(stream))
            except (RemoteError, trio.BrokenResourceError, _HungUpError):
                pass
            finally:
                stream.close()

    async def _repeat(self, stream: SimStream) -> None:
        hello, *proofs = self.lie.opening
        await _send(stream, hello)
        await _receive(stream, handshake.ACCEPTOR_HELLO_BYTES)
        await _send(stream, b"".join(proofs))
        await _receive(stream, 1)
        what = f"node {self.number} answers the handshake of an ended session"
        self.world.fail(Violation("peer-protocol", what))

    async def _say(self, stream: SimStream) -> None:
        dialler = handshake.Dialler(
            (SECRET,),
            self.draws.bytes(handshake.DIALLER_NONCE_BYTES),
            self.draws.bytes(handshake.PROOF_BYTES),
            self.lie.fields,
        )
        await _send(stream, dialler.hello())
        await _send(stream, dialler.prove(await _receive(stream, handshake.ACCEPTOR_HELLO_BYTES)))
        size = handshake.fields_size(await _receive(stream, handshake.SIZE.size))
        fields, proof = await _receive(stream, size), await _receive(stream, handshake.PROOF_BYTES)
        dialler.finish(fields, proof)
        buffer = memoryview(bytearray(_CHUNK_BYTES))
        while await stream.receive_into(buffer):
            pass  # a byte at a time would be thousands of passes within an instant


@final
class _HungUpError(Exception):
    """The broker has ended the connection."""


async def _send(stream: SimStream, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[stream.send_nowait([view]) :]
        if view:
            await stream.wait_writable()


async def _receive(stream: SimStream, size: int) -> bytes:
    buffer, got = bytearray(size), 0
    with memoryview(buffer) as view:
        while got < size:
            received = await stream.receive_into(view[got:])
            if received == 0:
                raise _HungUpError
            got += received
    return bytes(buffer)

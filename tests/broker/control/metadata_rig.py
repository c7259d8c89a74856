"""A stand-in for the broker around the metadata parts: time, timers, links, and an engine to
command.

`FakeTurn` has what the parts ask of the broker's context. `FakeEngine` commits exactly when a
test says so, and can lose leadership with proposals undecided. `Rig` is a controller with its
loader.
"""

from collections import deque
from types import SimpleNamespace

import attrs

from raftlog.base.errors import CorruptData
from raftlog.base.ids import (
    METADATA_GROUP,
    BootNumber,
    ClusterId,
    NodeId,
    SessionId,
    Term,
)
from raftlog.base.units import Instant, WallMillis, millis
from raftlog.broker.config import BrokerConfig, Listener
from raftlog.broker.control.controller import Controller
from raftlog.broker.control.metadata_loader import MetadataLoader
from raftlog.broker.control.metadata_log import CommittedRecord
from raftlog.broker.deadlines import Timers
from raftlog.broker.events import LinkUp, PeerAddress
from raftlog.metadata.command_codec import Proposal, decode_proposal, encode_proposal
from raftlog.metadata.commands import AllocateProducerIds
from raftlog.metadata.image import EMPTY_IMAGE
from raftlog.metadata.requests import (
    Heartbeat,
    NewTopicRequest,
    SubmitCommand,
    decode_answer,
    encode_body,
)
from raftlog.partition.output import ReadAnswer
from tests.metadata.clusters import CLUSTER, ORDERS, directory, founder, registration

SESSION_NS = millis(3000)


def config(node: int = 1) -> BrokerConfig:
    address = PeerAddress(NodeId(node), "localhost", 9100 + node)
    return BrokerConfig(
        node=NodeId(node),
        peer=address,
        controllers=(address,),
        listeners=(Listener(name="PLAINTEXT", host="localhost", port=9000 + node),),
    )


class FakeTurn:
    """The part of the broker's context that the metadata parts use."""

    def __init__(self, node: int = 1):
        self.config = config(node)
        self.node = NodeId(node)
        self.cluster = ClusterId(CLUSTER)
        self.directory = directory(node)
        self.boot = BootNumber(1)
        self.now = Instant(millis(1_000_000))
        self.wall = WallMillis(1_700_000_000_000)
        self.image = EMPTY_IMAGE
        self.replicas = {}
        self.sessions = {}
        self.timers = Timers()
        self.touched = []
        self.traces = []
        self.counted = []
        self.deltas = []
        self.asked = []
        self.jobs = []
        self._soon = deque()

    def at(self, deadline, call, *args):
        return self.timers.at(deadline, call, *args)

    def soon(self, call, *args):
        self._soon.append((call, args))

    def run_soon(self):
        while self._soon:
            call, args = self._soon.popleft()
            call(*args)

    def pass_time(self, duration_ns):
        """Run timers one at a time in order up to the new instant."""
        end = Instant(self.now + duration_ns)
        while self.timers.next() <= end:
            self.now = max(self.now, self.timers.next())
            self.timers.run_due(self.now)
            self.run_soon()
        self.now = end

    def touch(self, group):
        self.touched.append(group)

    def image_changed(self, image, delta):
        self.image = image
        self.deltas.append(delta)

    def ask(self, kind, body, deadline, then):
        self.asked.append(SimpleNamespace(kind=kind, body=body, deadline=deadline, then=then))

    def job(self, where, function, args, then):
        self.jobs.append(SimpleNamespace(where=where, function=function, args=args, then=then))

    def trace(self, name, where, **fields):
        self.traces.append((name, where, fields))

    def count(self, name, add=1):
        self.counted.append(name)

    def link(self, node, *, at=0, boot=1):
        """A link session with a node, proved by its handshake."""
        self.sessions[NodeId(node)] = LinkUp(
            NodeId(node), SessionId(node), directory(node, at), BootNumber(boot)
        )

    def traced(self):
        return [name for name, _, _ in self.traces]


class FakeEngine:
    """Orders records; `commit` decides what has been proposed, `depose` loses it."""

    def __init__(self):
        self.log = []
        self.undecided = []
        self.handed = 0
        self.trimmed = []
        self.leader = None
        self.leading_term = None

    @property
    def caught_up(self):
        return not self.undecided and self.handed == len(self.log)

    def propose(self, values, now, wall_ms):
        if self.leading_term is None:
            return False
        self.undecided += values
        return True

    def committed(self):
        fresh = self.log[self.handed :]
        start, self.handed = self.handed, len(self.log)
        return [CommittedRecord(start + place, value) for place, value in enumerate(fresh)]

    def lead(self, term, node=1):
        self.leader, self.leading_term = NodeId(node), Term(term)

    def depose(self, leader=None, *, keep=0):
        """Another node leads; the first `keep` undecided records turn out to be committed."""
        self.log += self.undecided[:keep]
        self.undecided = []
        self.leader = None if leader is None else NodeId(leader)
        self.leading_term = None

    def commit(self):
        self.log += self.undecided
        self.undecided = []

    def trim(self, position, now, wall_ms):
        self.trimmed.append(position)


class Call:
    """A request at the controller, and its one answer."""

    def __init__(self, sender, request):
        self.sender = NodeId(sender)
        self.body = request if isinstance(request, bytes) else encode_body(request)
        self.error = None
        self.text = ""
        self.answer = None

    def reply(self, error, text="", body=b""):
        assert self.error is None, "answered twice"
        self.error, self.text = error, text
        self.answer = decode_answer(body) if body else None


class FakeGroupZero:
    """The replica of group 0, as far as the controller moves its membership and reads by it:
    `reads` wait for `confirm`, unless no reader is `silent`."""

    def __init__(self):
        self.wanted = []
        self.stopped = False
        self.silent = False
        self.reads = []

    def read_index(self, then, now):
        self.reads.append(then)
        if not self.silent:
            self.confirm()

    def confirm(self, error=0):
        """The majority has spoken; an error: of another leader."""
        reads, self.reads = self.reads, []
        for then in reads:
            then(ReadAnswer(error))

    def change_membership(self, target, now, wall_ms):
        self.wanted.append(target)

    def stop(self, now):
        self.stopped = True


class Rig:
    """A controller on node 1 of a cluster whose controllers are 1, 2 and 3."""

    def __init__(self, *controllers, digest_every=256, snapshot_every=10_000):
        self.services = FakeTurn()
        self.engine = FakeEngine()
        self.group_zero = FakeGroupZero()
        self.services.replicas[METADATA_GROUP] = self.group_zero
        founders = tuple(founder(node) for node in controllers or (1, 2, 3))
        self.controller = Controller(
            self.services,
            self.engine,
            founders,
            digest_every=digest_every,
            snapshot_every=snapshot_every,
        )
        self.loader = MetadataLoader(
            self.services, self.engine, self.controller, self.services.image_changed
        )

    @property
    def image(self):
        return self.services.image

    def turn(self):
        """Do the part of a broker's turn that concerns the metadata."""
        self.services.run_soon()
        self.loader.advance()
        self.services.run_soon()

    def commit(self):
        """Everything proposed is committed, and what follows from it too."""
        self.turn()
        while self.engine.undecided:
            self.engine.commit()
            self.turn()

    def lead(self, term=1):
        self.engine.lead(term)
        self.commit()

    def append(self, *commands, term=1):
        """Records that another leader committed."""
        for command in commands:
            self.engine.log.append(encode_proposal(Proposal(Term(term), 1_000_000, command)))
        self.turn()

    def ask(self, sender, request, *, commit=True):
        call = Call(sender, request)
        self.controller.serve(call)
        if commit:
            self.commit()
        return call

    def join(self, *nodes, at=0, boot=1):
        """Nodes register, have applied it, and are unfenced."""
        for node in nodes:
            if node != 1:
                self.services.link(node, at=at, boot=boot)
            self.ask(node, registration(node, boot=boot, at=at))
            self.beat(node)

    def beat(self, node, *, version=None):
        """The heartbeat of the present registration of a node."""
        broker = self.image.brokers[NodeId(node)]
        return self.ask(
            node,
            Heartbeat(
                node=NodeId(node),
                directory=broker.directory,
                boot=broker.boot,
                incarnation=broker.incarnation,
                version=self.image.version if version is None else version,
            ),
        )

    def pass_time(self, duration_ns):
        self.services.pass_time(duration_ns)
        self.commit()


def led(*nodes, **options):
    """A rig that leads a founded cluster in which these nodes are live."""
    rig = Rig(**options)
    rig.lead()
    rig.join(*nodes)
    return rig


def create(name="orders", *, topic_id=ORDERS, count=1, factor=1, **changes):
    request = NewTopicRequest(
        topic_id=topic_id,
        name=name,
        internal=False,
        count=count,
        factor=factor,
        nodes=(),
        configs=(),
        validate_only=False,
    )
    return attrs.evolve(request, **changes)


def allocate(node, count=1000):
    return SubmitCommand(command=AllocateProducerIds(node=NodeId(node), count=count))


def commands(rig):
    """Every command that was committed, in order."""
    return [decode_proposal(value, CorruptData, "").command for value in rig.engine.log]

"""The controller: the duties that only the leader of the metadata group has.

Theory of operation. The leader of group 0 is *active* once it has committed in its own term and has
applied everything before. It decides on top of a projection: the committed image with every
proposal applied that is not committed yet. No other node proposes in its term, so records commit in
the order of proposal or not at all. Hence the projection is exact, which is asserted at each
commit. An answer leaves when everything proposed before it is committed. When leadership is lost,
all callers that wait are told to ask again.

Laws:

1. A controller request becomes at most one command; refusals are judged by the same `apply` that
   every replica runs.
2. The link tells who the sender is. A broker speaks of its own boots, replicas and files only.
3. No answer that rests on the projection leaves before that part is committed.
4. An answer about the state of the cluster waits until a majority has confirmed this leadership:
   this node may have been deposed and not know it. Answers about the sender's own command do not
   wait.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final, final, get_args

import attrs

from raftlog.base.entries import Membership
from raftlog.base.errors import FutureFormat, LocalMisuse, ProtocolError
from raftlog.base.ids import (
    METADATA_GROUP,
    BootNumber,
    DirectoryId,
    NodeId,
    ReplicaId,
    Term,
)
from raftlog.base.limits import (
    CONTROLLER_BROKER_CALLS_MAX,
    CONTROLLER_CALLS_MAX,
    SNAPSHOT_BYTES_MAX,
)
from raftlog.base.probes import probe
from raftlog.base.units import Instant
from raftlog.broker.config import DIGEST_EVERY, SNAPSHOT_EVERY
from raftlog.broker.control import controller_requests
from raftlog.broker.control.confirmations import Confirmations
from raftlog.broker.control.metadata_log import MetadataLog
from raftlog.broker.control.quorum_view import quorum_answer
from raftlog.broker.control.sessions import BrokerSessions
from raftlog.broker.control.version_waits import VersionWaits, WaitingCall
from raftlog.broker.turn import Turn
from raftlog.metadata import commands as c
from raftlog.metadata import requests as r
from raftlog.metadata.command_codec import Proposal
from raftlog.metadata.image import EMPTY_IMAGE, ClusterImage, encode_snapshot
from raftlog.metadata.performed import OnceId
from raftlog.metadata.refusals import Refusal, kafka_code
from raftlog.metadata.rules.applied import Applied
from raftlog.metadata.rules.apply import apply
from raftlog.metadata.rules.once import done_before, once_problem

_LOOKS_PER_SESSION: Final = 6
"""Checks in the time of one session: a silent broker is fenced at most that part too late."""

_REPEATED: Final = (r.Heartbeat, r.Reports)
"""Requests to which law 4 does not apply: brokers repeat them, and act by the image and not by the
answer."""

_OF_BROKERS: Final = (c.RegisterBroker, r.Reports)
"""Requests with places that those of clients cannot take: an unregistered broker takes no part."""


@final
@attrs.define(eq=False)
class Controller:
    """Answers controller requests and proposes commands, while this node is active.

    `term` is the term in which this node is active, None when it is not. `founders` are the
    formatted controllers, () on a joiner, which can never lead an unfounded cluster.

    `_expected`: serial of each proposal not yet committed -> the result of applying it here.
    `_after`: serial -> answers that leave when it is committed. `_outgoing`: proposals not yet
    handed to the log. `_waiting` is the number of calls without an answer: those in `_after`, and
    those that a majority must confirm first.
    """

    turn: Turn
    log: MetadataLog
    founders: tuple[ReplicaId, ...]
    digest_every: int = DIGEST_EVERY
    snapshot_every: int = SNAPSHOT_EVERY
    term: Term | None = None
    projected: ClusterImage = EMPTY_IMAGE
    sessions: BrokerSessions = attrs.field(init=False)
    _version_waits: VersionWaits = attrs.field(init=False)
    _serial: int = 0
    _expected: dict[int, Applied] = attrs.Factory(dict)
    _after: dict[int, list[tuple[WaitingCall, r.ControllerAnswer]]] = attrs.Factory(dict)
    _outgoing: list[bytes] = attrs.Factory(list)
    _confirmations: Confirmations = attrs.field(init=False)
    _waiting: int = 0
    _flushing: bool = False
    _compared: int = 0
    _snapshot_at: int = 0
    _wanted: Membership | None = None

    def __attrs_post_init__(self) -> None:
        self.sessions = BrokerSessions(self.turn.config.session_ns)
        self._version_waits = VersionWaits(self.turn, self.sessions, self._reply)
        self._confirmations = Confirmations(self.turn, self._resign)

    @property
    def active(self) -> bool:
        """Whether this node decides now."""
        return self.term is not None

    # --- leadership ---

    def advance(self) -> None:
        """Follow the log: call after the loader, and when group 0's leadership changed."""
        leading = self.log.leading_term
        if self.term is not None and leading != self.term:
            self._resign()
        if self.term is None and leading is not None and self.log.caught_up:
            self._begin(leading)
        if self.term is not None:
            self._move_metadata_group()

    def _begin(self, term: Term) -> None:
        image = self.turn.image
        self.term = term
        self.projected = image
        self.sessions.begin(image, self.turn.now)
        self._wanted = None
        self._compared = image.version
        self._snapshot_at = image.version - image.version % self.snapshot_every
        self.turn.trace("controller-active", self._where(), term=term, version=image.version)
        self.turn.count("controller_terms")
        if image.cluster_id is None:
            self._found()
        else:
            self._compare_digest(image)
        self._look(term)

    def _found(self) -> None:
        assert self.founders, "a joiner leads a cluster that was never founded"
        probe("cluster-founded")
        self._propose(
            c.FoundCluster(
                cluster_id=self.turn.cluster,
                controllers=self.founders,
                feature_level=self.turn.config.release.level_max,
            )
        )

    def _resign(self) -> None:
        """End the leadership: another node decides now.

        Open proposals may or may not be committed.
        """
        self.turn.trace("controller-resigned", self._where(), term=self.term)
        waiting = [call for entries in self._after.values() for call, _ in entries]
        if self._waiting:
            probe("controller-resigned-with-calls-open")
        self.term = None
        self.projected = EMPTY_IMAGE
        self._expected.clear()
        self._after.clear()
        self._outgoing.clear()
        self._waiting -= len(waiting)
        for call in [*waiting, *self._version_waits.end()]:
            self._redirect(call)
        self._confirmations.end()
        assert self._waiting == 0, self._waiting

    def _look(self, term: Term) -> None:
        """Fence brokers that fell silent, and check again later, while this leadership lasts."""
        if self.term != term:
            return
        turn = self.turn
        for node in self.sessions.silent(self.projected, turn.now):
            probe("broker-fenced")
            turn.trace("broker-fenced", f"node {node}")
            self._propose(c.FenceBroker(node=node, epoch=self.projected.brokers[node].epoch))
        pause = turn.config.session_ns // _LOOKS_PER_SESSION
        turn.at(Instant(turn.now + pause), self._look, term)

    def _move_metadata_group(self) -> None:
        """Move group 0's own membership: the wanted controllers vote, every other broker learns."""
        image = self.turn.image
        replica = self.turn.replicas.get(METADATA_GROUP)
        if replica is None or image.cluster_id is None:
            return
        wanted = controller_requests.metadata_target(image)
        if wanted == self._wanted:
            return
        try:
            replica.change_membership(wanted, self.turn.now, self.turn.wall)
        except LocalMisuse:
            return
        self._wanted = wanted
        self.turn.touch(METADATA_GROUP)

    # --- proposals ---

    def _propose(self, command: c.Command, once: OnceId | None = None) -> Applied:
        """Judge a command on the projection and, when it changes something, propose it."""
        assert self.term is not None, command
        applied = apply(self.projected, command, once)
        compares = isinstance(command, c.CompareDigest | c.SnapshotImage)
        if applied.refusal is not None or (applied.image is self.projected and not compares):
            return applied
        self._serial += 1
        self._expected[self._serial] = applied
        release, level = self.turn.config.release, self.projected.feature_level
        written = release.commands.encode(
            Proposal(self.term, self._serial, command, once), max(level, release.level_min)
        )
        self._outgoing.append(written)
        self.projected = applied.image
        if not self._flushing:
            self._flushing = True
            self.turn.soon(self._flush)
        return applied

    def _flush(self) -> None:
        """Hand all proposals of a turn to the log together: one batch, one sync."""
        self._flushing = False
        if self.term is None or not self._outgoing:
            return
        values, self._outgoing = self._outgoing, []
        if not self.log.propose(values, self.turn.now, self.turn.wall):
            probe("controller-cannot-propose")
            self._resign()

    def applied(self, proposal: Proposal, applied: Applied, position: int) -> None:
        """Take a record that was committed and applied; the loader shows every one, in order."""
        if self.term is None or proposal.term != self.term:
            return
        expected = self._expected.pop(proposal.serial)
        assert (applied.refusal, applied.image.version, applied.value) == (
            expected.refusal,
            expected.image.version,
            expected.value,
        ), (proposal, applied.refusal, applied.image.version, expected.image.version)
        for call, answer in self._after.pop(proposal.serial, ()):
            self._waiting -= 1
            self._reply(call, answer)
        if isinstance(proposal.command, c.SnapshotImage):
            self.log.trim(position, self.turn.now, self.turn.wall)
        if not self._expected:
            self._check_images(applied.image)

    def _check_images(self, image: ClusterImage) -> None:
        """Propose a digest or a snapshot of the image now and then, when nothing else is proposed.

        By the digest every replica compares its image with this one. Before a snapshot the log may
        be trimmed.
        """
        if image.version - self._snapshot_at >= self.snapshot_every:
            self._snapshot_at = self._compared = image.version
            self._put_snapshot(encode_snapshot(image))
        elif image.version - self._compared >= self.digest_every:
            self._compare_digest(image)

    def _put_snapshot(self, snapshot: bytes) -> None:
        if len(snapshot) > SNAPSHOT_BYTES_MAX:
            probe("metadata-snapshot-too-large")
            self.turn.trace("snapshot-too-large", self._where(), size=len(snapshot))
            return
        self._propose(c.SnapshotImage(snapshot=snapshot))

    def _compare_digest(self, image: ClusterImage) -> None:
        self._compared = image.version
        self._propose(c.CompareDigest(version=image.version, digest=image.digest()))

    # --- calls ---

    def serve(self, call: WaitingCall) -> None:
        """Answer a call, now or when the command that it led to is committed."""
        if self.term is None:
            self._redirect(call)
            return
        try:
            request = r.decode_body(call.body)
        except ProtocolError as error:
            self._reply(call, self._refusal(Refusal.MALFORMED, str(error)))
            return
        except FutureFormat as error:
            self._reply(call, self._refusal(Refusal.FEATURE_UNSUPPORTED, str(error)))
            return
        if self._is_full(type(request)):
            self._reply(call, self._refusal(Refusal.BUSY, "too many calls are waiting"))
            return
        if isinstance(request, r.ShownEverywhere):  # law 4: a version that was told stays true
            self._version_waits.wait(call, request)
            return
        proposed = self._serial
        answer = _SERVE[type(request)](self, call.sender, request)
        if self._serial != proposed or type(request) in _REPEATED:
            self._answer(call, answer, self._serial)
        else:
            self._confirm(call, answer, self._serial)

    def _is_full(self, kind: type[Any]) -> bool:
        """Whether a call of this kind must be refused for now.

        A heartbeat never is: brokers are few and known, and a broker whose heartbeats are refused
        is fenced.
        """
        if kind is r.Heartbeat:
            return False
        more = CONTROLLER_BROKER_CALLS_MAX if kind in _OF_BROKERS else 0
        return self._waiting >= CONTROLLER_CALLS_MAX + more

    def _confirm(self, call: WaitingCall, answer: r.ControllerAnswer, serial: int) -> None:
        """Answer once a majority has confirmed this leadership too."""
        self._waiting += 1
        self._confirmations.wait(partial(self._confirmed, call, answer, serial))

    def _confirmed(
        self, call: WaitingCall, answer: r.ControllerAnswer, serial: int, confirmed: bool
    ) -> None:
        self._waiting -= 1
        if confirmed:
            self._answer(call, answer, serial)
        else:
            self._redirect(call)

    def _answer(self, call: WaitingCall, answer: r.ControllerAnswer, serial: int) -> None:
        """Answer when the proposals up to `serial` are committed: they commit in order."""
        if serial not in self._expected:
            self._reply(call, answer)
            return
        self._after.setdefault(serial, []).append((call, answer))
        self._waiting += 1

    def _reply(self, call: WaitingCall, answer: r.ControllerAnswer) -> None:
        error = 0 if answer.refusal is None else kafka_code(answer.refusal)
        call.reply(error, answer.message, r.encode_answer(answer))

    def _redirect(self, call: WaitingCall) -> None:
        leader = self.log.leader
        known = leader is not None and leader != self.turn.config.node
        call.reply(kafka_code(Refusal.NOT_CONTROLLER), str(leader) if known else "")

    def _refusal(self, refusal: Refusal, message: str) -> r.ControllerAnswer:
        return r.ControllerAnswer(refusal=refusal, message=message, version=self.projected.version)

    def _submit(
        self,
        command: c.Command | controller_requests.Refused,
        *,
        once: OnceId | None = None,
        validate_only: bool = False,
    ) -> r.ControllerAnswer:
        """Propose a command and return what to answer."""
        if isinstance(command, controller_requests.Refused):
            return self._refusal(command.refusal, command.message)
        applied = apply(self.projected, command) if validate_only else self._propose(command, once)
        return r.ControllerAnswer(
            refusal=applied.refusal,
            message=applied.message,
            version=self.projected.version,
            value=applied.value,
        )

    def _serve_submit(
        self, sender: NodeId, request: r.Performable, once: OnceId | None = None
    ) -> r.ControllerAnswer:
        command = controller_requests.command_of(self.projected, sender, request)
        if command is None:
            return r.ControllerAnswer(refusal=None, message="", version=self.projected.version)
        validate_only = getattr(request, "validate_only", False)
        return self._submit(command, once=once, validate_only=validate_only)

    def _serve_once(self, sender: NodeId, request: r.OnceRequest) -> r.ControllerAnswer:
        once = OnceId(
            node=sender,
            incarnation=request.incarnation,
            number=request.number,
            settled=request.settled,
        )
        done = done_before(self.projected, once)
        if done is not None:
            probe("request-decided-before")
            version = self.projected.version
            return r.ControllerAnswer(
                refusal=done.refusal, message=done.message, version=version, value=done.value
            )
        problem = once_problem(self.projected, once)
        if problem is not None:
            return self._refusal(*problem)
        answer = self._serve_submit(sender, request.request, once)
        if request.again and done_before(self.projected, once) is None:
            # Nothing was done. A first try that is still on its way must do nothing either.
            probe("request-closed")
            self._propose(c.CloseRequest(refusal=answer.refusal), once)
        return answer

    def _serve_version(self, sender: NodeId, request: r.CurrentVersion) -> r.ControllerAnswer:
        return r.ControllerAnswer(refusal=None, message="", version=self.projected.version)

    def _serve_register(self, sender: NodeId, request: c.RegisterBroker) -> r.ControllerAnswer:
        if not self._is_sender(sender, request.node, request.directory, request.boot):
            return self._refusal(Refusal.MALFORMED, f"broker {sender} registers as {request.node}")
        answer = self._submit(request)
        if answer.refusal is Refusal.ROLLED_BACK:
            probe("rolled-back-directory-condemned")
            self._propose(c.CondemnDirectory(node=request.node, directory=request.directory))
        if answer.refusal is not None:
            return answer
        self.sessions.registered(request.node, self.turn.now)
        broker = self.projected.brokers[request.node]
        assert self.projected.cluster_id is not None
        grant = r.Grant(
            cluster_id=self.projected.cluster_id,
            epoch=broker.epoch,
            metadata_replica=broker.metadata_replica,
            founders=self.projected.founders,
        )
        return attrs.evolve(answer, grant=grant)

    def _serve_heartbeat(self, sender: NodeId, beat: r.Heartbeat) -> r.ControllerAnswer:
        if not self._is_sender(sender, beat.node, beat.directory, beat.boot):
            return self._refusal(Refusal.MALFORMED, f"broker {sender} speaks for {beat.node}")
        broker = self.projected.brokers.get(beat.node)
        if broker is None:
            return self._refusal(Refusal.UNKNOWN_BROKER, f"broker {beat.node} is not registered")
        if broker.condemned and broker.directory == beat.directory:
            return self._refusal(Refusal.CONDEMNED_DIRECTORY, "the data directory was rolled back")
        present = (broker.directory, broker.boot, broker.incarnation)
        if (beat.directory, beat.boot, beat.incarnation) != present:
            return self._refusal(Refusal.STALE, f"broker {beat.node} registered again meanwhile")
        self.sessions.touch(beat.node, beat.version, self.turn.now)
        self._version_waits.heard()
        if broker.fenced and beat.version >= broker.epoch:
            self._propose(c.UnfenceBroker(node=beat.node, epoch=broker.epoch))
        return r.ControllerAnswer(refusal=None, message="", version=self.projected.version)

    def _serve_reports(self, sender: NodeId, request: r.Reports) -> r.ControllerAnswer:
        """Propose each report by itself.

        A report that is not newer, or of a group that is gone, is no error: the reporter sees the
        result in the image.
        """
        for report in request.reports:
            if report.leader is not None and report.leader.node != sender:
                what = f"broker {sender} reports for {report.leader}"
                return self._refusal(Refusal.MALFORMED, what)
            if self._propose(report).refusal is not None:
                self.turn.count("reports_refused")
        return r.ControllerAnswer(refusal=None, message="", version=self.projected.version)

    def _serve_quorum(self, _sender: NodeId, _request: r.DescribeQuorum) -> r.ControllerAnswer:
        return quorum_answer(self.turn, self.sessions.heard, self.projected.version)

    def _is_sender(
        self, sender: NodeId, node: NodeId, directory: DirectoryId, boot: BootNumber
    ) -> bool:
        """Whether a boot that a request names is the one that the link's handshake proved."""
        if sender != node:
            return False
        if sender == self.turn.config.node:
            return (directory, boot) == (self.turn.directory, self.turn.boot)
        link = self.turn.sessions.get(sender)
        return link is not None and (link.directory, link.boot) == (directory, boot)

    def _where(self) -> str:
        return f"node {self.turn.config.node}"


_SERVE: Final[dict[type[Any], Callable[[Controller, NodeId, Any], r.ControllerAnswer]]] = {
    **dict.fromkeys(get_args(r.Performable), Controller._serve_submit),
    r.OnceRequest: Controller._serve_once,
    r.CurrentVersion: Controller._serve_version,
    r.DescribeQuorum: Controller._serve_quorum,
    c.RegisterBroker: Controller._serve_register,
    r.Heartbeat: Controller._serve_heartbeat,
    r.Reports: Controller._serve_reports,
}

"""Registers a boot of this broker, keeps it known, and tells which replicas it lost or deleted.

Rules:

1. Each boot registers its directory id, its boot number and an incarnation drawn for this boot.
   Until that is granted, no replica of a topic takes part here: the controller alone can tell a
   directory that was rolled back from one that merely restarted.
2. A refusal of the directory (rolled back, condemned, replaced) is final for this boot. So is the
   failure of its disk. The controller is not asked or told anything after it. After any other
   refusal the broker asks again, with a pause.
3. After the grant a heartbeat goes out six times per session. One goes out as soon as the image has
   changed, because the answers of other brokers wait until all brokers name a new leader. At most
   one of these early ones is unanswered. When the controller does not know this registration any
   more, the broker registers again.
4. The broker tells of lost or deleted replicas until the image shows them gone; telling it twice is
   harmless.
"""

from collections.abc import Callable, Iterable
from typing import Final, final

import attrs

from raftlog.base.errors import ProtocolError
from raftlog.base.ids import (
    METADATA_GROUP,
    BootNumber,
    DirectoryId,
    GroupId,
    NodeId,
    ReplicaEpoch,
    ReplicaId,
)
from raftlog.base.limits import REMOVALS_MAX
from raftlog.base.probes import probe
from raftlog.base.units import Instant
from raftlog.broker.control.controller_channel import ControllerChannel
from raftlog.broker.peer_messages import ControllerKind, ControllerReply
from raftlog.broker.turn import Turn
from raftlog.metadata import commands as c
from raftlog.metadata.broker_image import BrokerListener
from raftlog.metadata.refusals import Refusal
from raftlog.metadata.requests import (
    ControllerAnswer,
    Grant,
    Heartbeat,
    SubmitCommand,
    decode_answer,
    encode_body,
)

HEARTBEATS_PER_SESSION: Final = 6
"""Heartbeats per session: several may be lost before a session ends."""
_FINAL: Final = (Refusal.ROLLED_BACK, Refusal.CONDEMNED_DIRECTORY, Refusal.FEATURE_UNSUPPORTED)
_AGAIN: Final = (Refusal.NOT_CONTROLLER, Refusal.NOT_FOUNDED, Refusal.BUSY, Refusal.TIMED_OUT)
_UNKNOWN: Final = (Refusal.UNKNOWN_BROKER, Refusal.STALE)


@final
@attrs.define(eq=False)
class BrokerRegistration:
    """The registration of this boot.

    `granted()` is called after every grant; `grant` is then set. `refused` is why this directory
    may take part in nothing. `ended`: this boot tells and asks the controller nothing more, so the
    cluster will soon take the broker for dead.
    """

    turn: Turn
    channel: ControllerChannel
    incarnation: int
    granted: Callable[[], None]
    grant: Grant | None = None
    refused: Refusal | None = None
    message: str = ""
    ended: bool = False
    _asking: bool = False
    _asked_again: bool = False
    """Whether a caller needs a grant that is newer than the request now open."""
    _beating: bool = False
    _version_said: int = -1
    """The image version that the newest heartbeat named."""
    _early: bool = False
    """Whether a heartbeat because of a changed image is due or unanswered."""
    _lost: dict[tuple[GroupId, ReplicaId], None] = attrs.Factory(dict)
    _removed: dict[tuple[GroupId, ReplicaEpoch], None] = attrs.Factory(dict)
    _telling: bool = False
    _told_lost: bool = False
    """Whether the last message told of a lost replica."""

    @property
    def registered(self) -> bool:
        """Whether this boot may run replicas of topics."""
        return self.grant is not None and not self.ended

    # --- registering ---

    def start(self) -> None:
        """Register this boot, however long it takes."""
        self._register()

    def _register(self) -> None:
        if self._asking or self.ended:
            self._asked_again = self._asking
            return
        self._asking, self._asked_again = True, False
        turn = self.turn
        deadline = Instant(turn.now + turn.config.request_ns)
        body = encode_body(self._command())
        self.channel.ask(ControllerKind.REGISTER, body, deadline, self._registered)

    def _command(self) -> c.RegisterBroker:
        turn = self.turn
        config = turn.config
        return c.RegisterBroker(
            node=config.node,
            directory=turn.directory,
            boot=turn.boot,
            incarnation=self.incarnation,
            listeners=tuple(
                BrokerListener(name=each.name, host=each.host, port=each.port, protocol="PLAINTEXT")
                for each in config.listeners
            ),
            peer_host=config.peer.host,
            peer_port=config.peer.port,
            rack=config.rack,
            level_min=config.release.level_min,
            level_max=config.release.level_max,
        )

    def _registered(self, reply: ControllerReply) -> None:
        self._asking = False
        answer = _answer(reply)
        if answer is not None and answer.refusal is None and answer.grant is not None:
            self._take_grant(answer.grant)
            if self._asked_again:  # the grant may be older than the second request
                self._register()
            return
        if answer is not None and answer.refusal in _FINAL:
            self._refuse(answer.refusal, answer.message)
            return
        why = reply.text if answer is None else answer.message
        self.turn.trace("registration-refused", self._where(), why=why)
        self._later(self._register)

    def _take_grant(self, grant: Grant) -> None:
        if self.grant is None:
            self.turn.trace("registered", self._where(), epoch=grant.epoch)
        self.grant = grant
        self.granted()
        if not self._beating:
            self._beating = True
            self._beat()

    def _refuse(self, refusal: Refusal, message: str) -> None:
        if self.refused is not None:
            return
        probe("registration-refused-for-good")
        self.refused, self.message = refusal, message
        self.end()
        self.turn.trace("directory-refused", self._where(), why=message)
        self.turn.count("directory_refused")

    def end(self) -> None:
        """End this boot: it was refused, or has no disk to keep promises on."""
        self.ended = True

    def put_back(self, why: str) -> None:
        """Refuse this directory: a peer has shown that it is an old copy."""
        self._refuse(Refusal.ROLLED_BACK, why)

    def evicted(self) -> None:
        """Refuse this directory: the image says that it was condemned or replaced."""
        self._refuse(Refusal.CONDEMNED_DIRECTORY, "the cluster goes on without this data directory")

    # --- heartbeats ---

    def image_changed(self) -> None:
        """Tell the controller at once that the image changed; all changes of a turn go together."""
        if self._beating and not self._early:
            self._early = True
            self.turn.soon(self._beat_early)

    def _beat_early(self) -> None:
        if self.ended or self.turn.image.version <= self._version_said:
            self._early = False
        else:
            self._send_beat(self._early_beaten)

    def _early_beaten(self, reply: ControllerReply) -> None:
        self._early = False
        self._beaten(reply)
        self.image_changed()  # the image may have changed since

    def _beat(self) -> None:
        if self.ended:
            return
        turn = self.turn
        self._send_beat(self._beaten)
        pause = turn.config.session_ns // HEARTBEATS_PER_SESSION
        turn.at(Instant(turn.now + pause), self._beat)

    def _send_beat(self, then: Callable[[ControllerReply], None]) -> None:
        turn = self.turn
        self._version_said = turn.image.version
        beat = Heartbeat(
            node=turn.config.node,
            directory=turn.directory,
            boot=turn.boot,
            incarnation=self.incarnation,
            version=turn.image.version,
        )
        deadline = Instant(turn.now + turn.config.session_ns)
        body = encode_body(beat)
        self.channel.ask(ControllerKind.HEARTBEAT, body, deadline, then)

    def _beaten(self, reply: ControllerReply) -> None:
        answer = _answer(reply)
        if answer is None or answer.refusal is None:
            return
        if answer.refusal in _UNKNOWN:
            probe("registration-forgotten")
            self._register()
        elif answer.refusal in _FINAL:
            self._refuse(answer.refusal, answer.message)

    # --- what was lost, what is gone ---

    def report_lost(self, group: GroupId, replica: ReplicaId) -> None:
        """Tell that this id runs here no more: its files are gone, or a younger one replaced it.

        If the cluster wants it, it needs a successor. Group 0 goes first, since it brings all other
        news.
        """
        self._add_lost(group, replica)
        self._tell_soon()

    def _add_lost(self, group: GroupId, replica: ReplicaId) -> None:
        if group == METADATA_GROUP:
            self._lost = {(group, replica): None, **self._lost}
        else:
            self._lost[group, replica] = None

    def confirm_removed(self, removed: Iterable[tuple[GroupId, ReplicaEpoch]]) -> None:
        """Tell that these replicas' files are gone, as the image asked."""
        self._removed.update(dict.fromkeys(removed))
        self._tell_soon()

    def _tell_soon(self) -> None:
        if not self._telling:
            self._telling = True
            self.turn.soon(self._tell)

    def _tell(self) -> None:
        """Tell of one lost replica, or of all removals at once, in turns, one request at a time."""
        self._telling = False
        command = None if self.ended else self._next_news()
        if command is None:
            return
        self._telling = True
        turn = self.turn
        deadline = Instant(turn.now + turn.config.request_ns)
        body = encode_body(SubmitCommand(command=command))
        self.channel.ask(ControllerKind.PROPOSE, body, deadline, _Told(self, command).told)

    def _next_news(self) -> c.Command | None:
        """Take the next replica to tell of, or all removals.

        A lost replica leaves the list, and goes to its end when it must be told again: so it delays
        no other.
        """
        if self._lost and not (self._removed and self._told_lost):
            self._told_lost = True
            group, replica = next(iter(self._lost))
            del self._lost[group, replica]
            return c.ReplaceReplica(group=group, lost=replica)
        self._told_lost = False
        if not self._removed:
            return None
        return c.ConfirmRemoved(
            node=self.turn.config.node,
            directory=self.turn.directory,
            removed=tuple(self._removed)[:REMOVALS_MAX],
        )

    def told(self, command: c.Command, reply: ControllerReply) -> None:
        """Take the answer to a command; one that was not heard is told again."""
        answer = _answer(reply)
        if answer is None or answer.refusal in _AGAIN:
            if isinstance(command, c.ReplaceReplica):
                self._add_lost(command.group, command.lost)
            self._later(self._tell)
            return
        if isinstance(command, c.ReplaceReplica):
            if command.group == METADATA_GROUP:  # perhaps it was refused because it was done before
                self._register()
        elif isinstance(command, c.ConfirmRemoved):
            for key in command.removed:
                self._removed.pop(key, None)
        self._tell()

    # --- peers ---

    def peer_allowed(self, peer: NodeId, directory: DirectoryId, boot: BootNumber) -> bool:
        """Whether a link of that peer may be used.

        It may not when the peer's directory was replaced, condemned, or has booted with a higher
        number.
        """
        broker = self.turn.image.brokers.get(peer)
        if broker is None:
            return True
        if directory != broker.directory:
            return directory not in broker.former
        return not broker.condemned and boot >= broker.boot

    def peer_outlived(self, peer: NodeId, directory: DirectoryId, boot: BootNumber) -> bool:
        """Whether a later boot of that peer's directory registered."""
        broker = self.turn.image.brokers.get(peer)
        return broker is not None and directory == broker.directory and boot < broker.boot

    def peer_stands(
        self, peer: NodeId, directory: DirectoryId, boot: BootNumber, address: str
    ) -> bool:
        """Whether the cluster takes that process for the living one under this node id.

        It does for the process that registered, and for a later boot of the directory that did.
        """
        broker = self.turn.image.brokers.get(peer)
        if broker is None or broker.fenced or directory != broker.directory:
            return False
        registered = f"{broker.peer_host}:{broker.peer_port}"
        return boot > broker.boot or (boot == broker.boot and address == registered)

    def _later(self, call: Callable[[], None]) -> None:
        pause = self.turn.config.session_ns // HEARTBEATS_PER_SESSION
        self.turn.at(Instant(self.turn.now + pause), call)

    def _where(self) -> str:
        return f"node {self.turn.config.node}"


@final
@attrs.frozen
class _Told:
    """The command that an answer is about."""

    registration: BrokerRegistration
    command: c.Command

    def told(self, reply: ControllerReply) -> None:
        self.registration.told(self.command, reply)


def _answer(reply: ControllerReply) -> ControllerAnswer | None:
    """The controller's answer; None when none came in time, or it makes no sense."""
    if not reply.body:
        return None
    try:
        return decode_answer(reply.body)
    except ProtocolError:
        return None

"""Tells old copies of data directories from their originals, by the lives that peers have met.

The problem: a broker is put back on an old copy of its disk. The copy has forgotten votes and
records that the broker has promised to keep. Counted in a majority, it loses acknowledged records.

Each boot draws an incarnation and syncs it into a list (`storage.incarnations`). Only then does the
broker begin handshakes, which carry it. Peers of an older release send none, and count as they
always did. In each session between X and Y, and the other way round likewise:

1. Y names the incarnation of X's directory that it has synced last, by `IncarnationQuestion`, which
   is the first message of the session.
2. When that incarnation is not on X's list, Y has met a later life of the directory. So X is an old
   copy, and refuses itself. Otherwise X syncs that Y may hold this incarnation and the present one,
   and answers `IncarnationConfirmed`. So X's list never loses an incarnation that Y may name later.
   While Y is still syncing an incarnation of X's directory, it repeats the question after that.
3. Y then syncs X's present incarnation in place of the one before. Y may not do so earlier: the
   one before could be the only sign that X is an old copy.
4. From then on votes, acknowledgements and read confirmations of X may count at Y, once X has also
   named the incarnation of Y that it knows. Otherwise Y could be the old copy, and X could elect
   it. Y keeps the newest earlier message of each kind, and counts it then.

That is not yet enough where Y and X together are no majority. A third voter Z may have met a later
life of X, and Y not. So X's messages count at Y, in a group, only once a majority *vouches* for X;
Y and X belong to that majority. Y asks the other voters what they know of X (`VouchQuestion`,
answered at once from memory). When Z names a life other than X's present one, Y asks X whether its
list holds that life. Y waits only for voters of that majority: without them the group could decide
nothing anyway. With three voters Y asks none. A joint configuration needs such a majority in each
half that X is a voter of. In the other half X's messages decide nothing.

The invariant: X never counts when every majority that X is in holds a voter that has synced a later
life of X and was not itself put back. docs/internals/security.md says what is outside it.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, final

import attrs

from raftlog.base.entries import Membership
from raftlog.base.ids import DirectoryId, GroupId, NodeId, ReplicaId, SessionId
from raftlog.base.probes import probe
from raftlog.broker.events import LinkUp
from raftlog.broker.peer_messages import (
    IncarnationConfirmed,
    IncarnationQuestion,
    Naming,
    VouchAnswer,
    VouchQuestion,
)
from raftlog.broker.replicas.volume import Volume
from raftlog.broker.turn import Turn
from raftlog.partition.replica import PartitionReplica
from raftlog.raft.messages import AppendReply, InstallReply, ReadEcho, VoteReply
from raftlog.raft.quorum import VoteResult, majority_vote
from raftlog.storage.directories.incarnations import NONE, Held, Incarnation, Known

COUNTED: Final = frozenset((VoteReply, AppendReply, ReadEcho, InstallReply))
"""Messages by which a majority decides. All others decide nothing, and are heard at once."""
Place = tuple[NodeId, DirectoryId]


@final
@attrs.define(eq=False)
class Acquaintance:
    """A session with a peer that sends its incarnation.

    `synced`: the peer's incarnation is durable here. `heard`: the peer has named the incarnation of
    this end that it knows, and it is on the list here. `vouched`: directories that know of no other
    life of the peer, or only of one that the peer has confirmed. `doubts`: other lives that the
    peer has not confirmed yet, each with the directories that named it.
    """

    link: LinkUp
    synced: bool = False
    heard: bool = False
    named: Incarnation | None = None
    """The peer's incarnation that this end has asked to replace; None before that."""
    vouched: dict[Place, None] = attrs.Factory(dict)
    doubts: dict[Incarnation, dict[Place, None]] = attrs.Factory(dict)
    asked: dict[NodeId, SessionId] = attrs.Factory(dict)
    counts_in: dict[GroupId, Membership] = attrs.Factory(dict)
    """Groups in which a majority vouches, each with the membership for which that was found."""


@final
@attrs.define(eq=False)
class Incarnations:
    """The incarnations that this directory and its peers know of each other.

    Calls `refuse` with the reason when this directory is an old copy, and `deliver` with messages
    that count from now on. Both may be called in any turn.
    """

    turn: Turn
    volume: Volume
    refuse: Callable[[str], None]
    deliver: Callable[[LinkUp, GroupId, list[Any]], None] = attrs.field(init=False)
    _met: dict[NodeId, Acquaintance] = attrs.Factory(dict)
    _known: dict[DirectoryId, Known] = attrs.field(init=False)
    """The durable part of the store's table, which may be ahead."""
    _held: dict[DirectoryId, Held] = attrs.field(init=False)
    _writing: dict[DirectoryId, Incarnation] = attrs.Factory(dict)
    _kept: dict[tuple[NodeId, GroupId, type], Any] = attrs.Factory(dict)
    """Messages that do not count yet."""

    def __attrs_post_init__(self) -> None:
        book = self.volume.store.incarnations
        self._known, self._held = dict(book.known), dict(book.held)

    @property
    def own(self) -> Incarnation:
        """The incarnation of this boot."""
        return self.volume.store.incarnation

    def met(self, peer: NodeId) -> Acquaintance | None:
        """The acquaintance with a peer; None when the peer sends no incarnation."""
        return self._met.get(peer)

    # --- sessions ---

    def link_up(self, link: LinkUp) -> None:
        """Begin a session. The peer asks once in it, so its question is heard even while this end
        refuses it."""
        if link.incarnation != NONE and self.own != NONE:
            self._met[link.peer] = Acquaintance(link)

    def admitted(self, peer: NodeId) -> None:
        """Let the peer take part; called before any other message is sent to it."""
        met = self._met.get(peer)
        if met is None:
            return
        self._name(met)
        # Votes of other peers may have waited, since an earlier session, for this peer to vouch.
        self._look_again()

    def link_down(self, peer: NodeId) -> None:
        """End the session, and drop the messages that came over it."""
        self._met.pop(peer, None)
        self.forget_words(peer)

    def forget_words(self, peer: NodeId) -> None:
        """Drop the peer's messages that do not count yet."""
        for key in [key for key in self._kept if key[0] == peer]:
            del self._kept[key]

    def _name(self, met: Acquaintance) -> None:
        """Name the last synced incarnation of the peer's directory (rule 1)."""
        link, naming = met.link, Naming.KNOWN
        before = self._known.get(link.directory)
        known = NONE if before is None else before.incarnation
        if known == link.incarnation:
            met.synced = True
        elif link.directory not in self._writing:
            met.named, naming = known, Naming.REPLACED
        self.turn.send(link.peer, IncarnationQuestion(known, naming))

    # --- the peer's questions ---

    def question(self, link: LinkUp, message: IncarnationQuestion) -> None:
        """Answer which of our lives the peer has met, or refuse this directory (rule 2)."""
        book, named = self.volume.store.incarnations, message.incarnation
        if named != NONE and not book.has(named):
            probe("old-copy-refuses-itself")
            self.refuse(
                f"node {link.peer} has met a later life of this data directory: it is an old copy"
            )
            return
        if message.naming is Naming.NAMED:
            self.turn.send(link.peer, IncarnationConfirmed(named, Naming.NAMED))
            return
        met = self._met.get(link.peer)
        if met is not None and met.link.session == link.session and not met.heard:
            met.heard = True
            self._count(met)
        if message.naming is Naming.KNOWN:
            return
        held = (named, self.own)
        answer = partial(self._confirm, link, named, held)
        if self._held.get(link.directory) == held:
            answer()
            return
        self.volume.records.append(book.hold(link.directory, held))
        self.volume.when_durable(answer)

    def _confirm(self, link: LinkUp, named: Incarnation, held: Held) -> None:
        self._held[link.directory] = held
        if self._is_present(link):
            self.turn.send(link.peer, IncarnationConfirmed(named, Naming.REPLACED))

    def _is_present(self, link: LinkUp) -> bool:
        present = self.turn.sessions.get(link.peer)
        return present is not None and present.session == link.session

    def confirmed(self, link: LinkUp, message: IncarnationConfirmed) -> None:
        """Replace the incarnation that the peer confirmed (rule 3).

        Or note that the peer also had the life that another voter named.
        """
        met = self._met.get(link.peer)
        if met is None or met.link.session != link.session:
            return
        if message.naming is not Naming.REPLACED:
            met.vouched.update(met.doubts.pop(message.incarnation, {}))
            self._count(met)
            return
        if met.synced or met.named != message.incarnation or link.directory in self._writing:
            return  # late: it answers a question that a newer one has replaced
        known = Known(link.peer, link.incarnation)
        self._writing[link.directory] = link.incarnation
        self.volume.records.append(self.volume.store.incarnations.know(link.directory, known))
        self.volume.when_durable(partial(self._synced, link.directory, known))

    def _synced(self, directory: DirectoryId, known: Known) -> None:
        """Count the peer's messages from now on (rule 4).

        Another session with that directory may have begun meanwhile.
        """
        del self._writing[directory]
        self._known[directory] = known
        met = self._met.get(known.node)
        if met is None or met.link.directory != directory:
            return
        if met.link.incarnation == known.incarnation:
            met.synced = True
            self._count(met)
        else:
            self._name(met)

    # --- what counts ---

    def that_count(
        self, link: LinkUp, replica: PartitionReplica, messages: Sequence[Any]
    ) -> Sequence[Any]:
        """A peer's messages for a replica that count now; keeps the newest other of each kind."""
        if self.counts(link.peer, replica):
            return messages
        found = []
        for message in messages:
            if type(message) in COUNTED:
                probe("word-kept-until-its-incarnation-counts")
                self._kept[link.peer, replica.group, type(message)] = message
            else:
                found.append(message)
        return found

    def counts(self, peer: NodeId, replica: PartitionReplica) -> bool:
        """Whether a peer's messages may decide in this group; asks the voters that must vouch."""
        met = self._met.get(peer)
        if met is None:
            return True
        if not (met.synced and met.heard):
            return False
        membership = replica.membership
        if met.counts_in.get(replica.group) is membership:
            return True
        halves = _halves_of(membership, (peer, met.link.directory))
        votes = {
            each: True
            for half in halves
            for each in half
            if each == replica.me or self._vouches(met, each[:2])
        }
        if any(majority_vote(half, votes) is not VoteResult.WON for half in halves):
            for node in dict.fromkeys(each.node for half in halves for each in half):
                self._ask(met, node)
            return False
        met.counts_in[replica.group] = membership
        return True

    def _vouches(self, met: Acquaintance, place: Place) -> bool:
        if place == (met.link.peer, met.link.directory) or place in met.vouched:
            return True
        # A voter of an older release has synced no incarnation at all.
        other = self.turn.sessions.get(place[0])
        return other is not None and other.directory == place[1] and other.incarnation == NONE

    def _ask(self, met: Acquaintance, node: NodeId) -> None:
        other = self._met.get(node)
        if other is None or other is met or met.asked.get(node) == other.link.session:
            return
        probe("voter-asked-to-vouch")
        met.asked[node] = other.link.session
        self.turn.send(node, VouchQuestion(met.link.directory, met.link.incarnation))

    def vouch_question(self, link: LinkUp, message: VouchQuestion) -> None:
        """Answer with the durable incarnation that is known here of a third directory."""
        known = self._known.get(message.directory)
        incarnation = NONE if known is None else known.incarnation
        answer = VouchAnswer(message.directory, message.incarnation, incarnation)
        self.turn.send(link.peer, answer)

    def vouch_answer(self, link: LinkUp, message: VouchAnswer) -> None:
        """Take in what another voter knows of a peer."""
        place = (link.peer, link.directory)
        for met in list(self._met.values()):
            about = (met.link.directory, met.link.incarnation)
            if about != (message.directory, message.incarnation):
                continue
            if message.known in (NONE, message.incarnation):
                met.vouched[place] = None
                self._count(met)
                continue
            probe("another-life-named-by-a-voter")
            met.doubts.setdefault(message.known, {})[place] = None
            self.turn.send(met.link.peer, IncarnationQuestion(message.known, Naming.NAMED))

    def _count(self, met: Acquaintance) -> None:
        """Deliver those kept messages of this peer that count now."""
        for key in [key for key in self._kept if key[0] == met.link.peer]:
            replica = self.turn.replicas.get(key[1])
            if replica is None:
                del self._kept[key]
            elif self.counts(key[0], replica):
                probe("kept-word-counts")
                self.deliver(met.link, key[1], [self._kept.pop(key)])

    def _look_again(self) -> None:
        """Count the kept messages again: a voter came that may vouch."""
        for peer in dict.fromkeys(key[0] for key in self._kept):
            met = self._met.get(peer)
            if met is not None:
                self._count(met)


def _halves_of(membership: Membership, place: Place) -> list[tuple[ReplicaId, ...]]:
    """The halves of a membership in which a replica at this place is a voter.

    A learner is in neither half, so both must vouch for it: it may soon be a voter of either, and
    then holds what it acknowledged as a learner.
    """
    halves = [membership.voters, membership.outgoing]
    found = [half for half in halves if any(each[:2] == place for each in half)]
    return found or halves

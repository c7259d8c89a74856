"""Tells old copies of data directories from their originals, by the lives that peers have met.

The problem: a broker is put back on an old copy of its disk. The copy has forgotten votes and
records that the broker has promised to keep. Counted in a majority, it loses acknowledged records.

Each boot draws an incarnation and syncs it into a list (`storage.incarnations`) before any
handshake, which says it. Peers of an older release say none, and count as they always did. In each
session, X and Y being the two ends, and the other way round likewise:

1. Y names the incarnation of X's directory that it has synced last, by `IncarnationQuestion`, which
   is the first message of the session.
2. When that one is not on X's list, Y has met a later life: X is an old copy, and refuses itself.
   Otherwise X syncs that Y may hold this one and the present one, and answers
   `IncarnationConfirmed`. So X's list never loses what Y may name later. While Y is syncing
   something about this directory, it asks to be answered only after that.
3. Y then syncs X's present incarnation in place of the one before. It may not do so earlier: the
   one before could be all that tells that X is an old copy.
4. From then on votes, acknowledgements and read confirmations of X may count at Y, when X has named
   what it knows of Y, too: else Y could be the old copy, and be elected by X. Messages that
   came before are kept, the newest of each kind, and count then.

That is not yet enough where Y and X together are no majority. A third voter Z may have met a later
life of X which Y has not. So what X says counts at Y, in a group, once a majority *vouches* that
holds Y and X. Y asks the other voters what they know of X (`VouchQuestion`, answered at once from
memory). Where Z names another life than X's present one, Y asks X whether that one is on its list,
too. Only voters of that majority are waited for, never third parties: without them nothing could be
decided anyway. With three voters no broker is asked. In a joint configuration that goes for each
half that X is a voter of: in the other one its words decide nothing.

A voter that is not put back, and has synced a later life of X, is in every majority that X is in:
then X never counts. That is the invariant; docs/internals/security.md says what is outside it.
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
"""By these a majority decides. All else decides nothing, and is heard at once."""
Place = tuple[NodeId, DirectoryId]


@final
@attrs.define(eq=False)
class Acquaintance:
    """A session with a peer that says its incarnation. `synced`: it is durable here. `heard`: the
    peer has named what it knows of this end, and this end has had that life. `vouched` are
    directories that know of no other life, or of one that the peer has confirmed; `doubts` are such
    lives, and who named them, until it has."""

    link: LinkUp
    synced: bool = False
    heard: bool = False
    named: Incarnation | None = None
    """The incarnation of it that this end has named to be replaced; None before."""
    vouched: dict[Place, None] = attrs.Factory(dict)
    doubts: dict[Incarnation, dict[Place, None]] = attrs.Factory(dict)
    asked: dict[NodeId, SessionId] = attrs.Factory(dict)
    counts_in: dict[GroupId, Membership] = attrs.Factory(dict)
    """Groups in which a majority vouches, by the membership of which that is true."""


@final
@attrs.define(eq=False)
class Incarnations:
    """See the module. `refuse` is called with the reason when this directory is an old copy;
    `deliver` with what counts now. Both may be called in any turn."""

    turn: Turn
    volume: Volume
    refuse: Callable[[str], None]
    deliver: Callable[[LinkUp, GroupId, list[Any]], None] = attrs.field(init=False)
    _met: dict[NodeId, Acquaintance] = attrs.Factory(dict)
    _known: dict[DirectoryId, Known] = attrs.field(init=False)
    """As far as it is durable; the store's own table may be ahead."""
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
        """How far the acquaintance with a peer is; None with one that says no incarnation."""
        return self._met.get(peer)

    # --- sessions ---

    def link_up(self, link: LinkUp) -> None:
        """A session begins. The peer asks once in it, so it is heard even while this end lets it
        take no part."""
        if link.incarnation != NONE and self.own != NONE:
            self._met[link.peer] = Acquaintance(link)

    def admitted(self, peer: NodeId) -> None:
        """The peer may take part; called before anything else is said to it."""
        met = self._met.get(peer)
        if met is None:
            return
        self._name(met)
        # An earlier session with this one may have left votes of others waiting for its word.
        self._look_again()

    def link_down(self, peer: NodeId) -> None:
        """The session is over, and with it what was said in it."""
        self._met.pop(peer, None)
        self.forget_words(peer)

    def forget_words(self, peer: NodeId) -> None:
        """Messages of the peer that did not count yet never will."""
        for key in [key for key in self._kept if key[0] == peer]:
            del self._kept[key]

    def _name(self, met: Acquaintance) -> None:
        """Rule 1."""
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
        """Rule 2."""
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
        """Rule 3; or the peer has that life, too, which another voter named."""
        met = self._met.get(link.peer)
        if met is None or met.link.session != link.session:
            return
        if message.naming is not Naming.REPLACED:
            met.vouched.update(met.doubts.pop(message.incarnation, {}))
            self._count(met)
            return
        if met.synced or met.named != message.incarnation or link.directory in self._writing:
            return  # late: of a question that another one has followed
        known = Known(link.peer, link.incarnation)
        self._writing[link.directory] = link.incarnation
        self.volume.records.append(self.volume.store.incarnations.know(link.directory, known))
        self.volume.when_durable(partial(self._synced, link.directory, known))

    def _synced(self, directory: DirectoryId, known: Known) -> None:
        """Rule 4. Another session with that directory may have begun meanwhile."""
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
        """Those of a peer's messages for a replica that count; the newest of the rest is kept."""
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
        """Whether a peer's words may decide in this group; asks who must vouch for it."""
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
        """Say what is known here of a third directory, and durable."""
        known = self._known.get(message.directory)
        incarnation = NONE if known is None else known.incarnation
        answer = VouchAnswer(message.directory, message.incarnation, incarnation)
        self.turn.send(link.peer, answer)

    def vouch_answer(self, link: LinkUp, message: VouchAnswer) -> None:
        """Another voter says what it knows of a peer."""
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
        """More of what this peer said may count now."""
        for key in [key for key in self._kept if key[0] == met.link.peer]:
            replica = self.turn.replicas.get(key[1])
            if replica is None:
                del self._kept[key]
            elif self.counts(key[0], replica):
                probe("kept-word-counts")
                self.deliver(met.link, key[1], [self._kept.pop(key)])

    def _look_again(self) -> None:
        """A voter came that may vouch."""
        for peer in dict.fromkeys(key[0] for key in self._kept):
            met = self._met.get(peer)
            if met is not None:
                self._count(met)


def _halves_of(membership: Membership, place: Place) -> list[tuple[ReplicaId, ...]]:
    """The halves in which a replica at this place is a voter. A learner is in none: it may soon be
    in either, and keeps what it has acknowledged, so all must vouch for it."""
    halves = [membership.voters, membership.outgoing]
    found = [half for half in halves if any(each[:2] == place for each in half)]
    return found or halves

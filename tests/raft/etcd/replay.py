"""Runs a transcript of this folder on RaftNode and compares the projected state with what it
expects.

A transcript is a text: commands, one a line, each followed by the lines that begin with `=` and
say what must hold then. Each replica has a clock of its own, so that time can pass for one of
them alone.

    group nodes=1,2,3 voters=1,2,3 learners=4 index=10 pre-vote check-quorum window=3 async
                        replicas whose logs begin after `index`, all committed
    join N              one more replica, with an empty log from the founding on
    campaign N          its election timeout passes now
    propose N TEXT      one batch
    members N v1,2 l3   change the membership to these voters and learners
    transfer A B        A hands its leadership to B
    ready N..           take and sync (async: take only)
    sync N..            one write of each is synced
    deliver N..         what is on the wire to them arrives
    lose N..            it is lost
    settle [N..]        ready and deliver, again and again, among these (or all)
    beat N              a heartbeat interval passes for N, twice
    elapse N            an election timeout passes for N
    forget N            the link to its leader's node falls
    unreachable A B     A's link to B falls
    compact N I         entries up to I are dropped

    = hard N term vote commit          = role N role leader       = log N term/index"text" ..
    = follows A B state match next     = says A>B what term last  = commits N term/index"text" ..
    = disk N term/index"text" ..       = members N v1,2 l3        = payloads N text ..
    = joint N yes|no                   = durable N index          = full A B   = refused
"""

from collections.abc import Iterator
from pathlib import Path

import attrs

from raftlog.base.entries import EntryKind, HardState, Membership
from raftlog.base.ids import NodeId, RaftIndex
from raftlog.base.units import Instant
from raftlog.raft.messages import PreVoteReply, PreVoteRequest, VoteReply, VoteRequest
from raftlog.raft.node import Role
from raftlog.raft.progress import ProgressState
from raftlog.raft.proposals import append_batches
from raftlog.records.batch import HEADER
from tests.raft.cluster import BEAT, ELECTION, OPTIONS, START, WALL, Peer, make_batch, rid
from tests.raft.memory_log import MemoryLog

FAR = 1 << 60


def numbers(words: list[str]) -> list[int]:
    return [int(word) for word in words]


def listed(text: str) -> tuple:
    return tuple(sorted(rid(int(n)) for n in text.split(",") if n))


def text_of(entry) -> str:
    """`term/index"text"`; Raft's own entries have no text."""
    payload = (
        "" if entry.kind is not EntryKind.RECORDS else bytes(entry.batch[HEADER.size :]).decode()
    )
    return f'{entry.term}/{entry.raft_index}"{payload}"'


class Replay:
    """One transcript under way."""

    def __init__(self) -> None:
        self.peers: dict[int, Peer] = {}
        self.clock: dict[int, int] = {}
        self.wire: list = []
        self.said: list[str] = []
        self.asynchronous = False
        self.base = 0

    # --- commands ---------------------------------------------------------------------------------

    def do_group(self, *words: str) -> None:
        given = dict(word.partition("=")[::2] for word in words)
        self.asynchronous = "async" in given
        self.base = int(given["index"])
        self.membership = Membership(
            listed(given["voters"]), learners=listed(given.get("learners", ""))
        )
        self.options = attrs.evolve(
            OPTIONS,
            pre_vote="pre-vote" in given,
            check_quorum="check-quorum" in given,
            appends_in_flight_max=int(given.get("window", 1000)),
            eager_commit=True,
        )
        for number in numbers(given["nodes"].split(",")):
            self._boot(number, self.base)

    def _boot(self, number: int, index: int) -> None:
        log = MemoryLog.founded(self.membership)
        log._first = index + 1
        log.snapshot = b"founded"
        log._disk = log._image()
        peer = Peer(
            rid(number), log, hard_state=HardState(0, None), options=self.options, commit_hint=index
        )
        self.peers[number] = peer
        self.clock[number] = START
        peer.node._state.election_deadline = Instant(FAR)

    def do_join(self, number: str) -> None:
        self._boot(int(number), 0)

    def do_campaign(self, number: str) -> None:
        peer, now = self.peers[int(number)], self.clock[int(number)]
        peer.node._state.election_deadline = Instant(now)
        peer.node.tick(Instant(now))

    def do_propose(self, number: str, text: str) -> None:
        peer, now = self.peers[int(number)], self.clock[int(number)]
        if not peer.node.leading:
            self.said.append(f"{number} refuses a proposal")
            return
        batch = make_batch(peer.log.next_offset, peer.node.term, text.encode())
        if peer.node.ready:
            peer.node.propose([batch], Instant(now), WALL)
        else:  # etcd takes proposals before the first commit of the term: go round our gate
            append_batches(peer.node._state, [batch])
        self._take(int(number))

    def do_ready(self, *words: str) -> None:
        for number in numbers(words):
            self._take(number)
            while not self.asynchronous and self._sync(number):
                self._take(number)
            while self.peers[number].answer_reads():
                self._take(number)

    def do_sync(self, *words: str) -> None:
        for number in numbers(words):
            self._sync(number)
            self._take(number)

    def do_deliver(self, *words: str) -> None:
        for number in numbers(words):
            self._deliver(number)

    def do_lose(self, *words: str) -> None:
        gone = {rid(number) for number in numbers(words)}
        self.wire = [message for message in self.wire if message.to not in gone]

    def do_settle(self, *words: str) -> None:
        among = numbers(words) or list(self.peers)
        for _ in range(100):
            before = len(self.said), len(self.wire)
            moved = False
            for number in among:
                moved |= bool(self._take(number))
                while self._sync(number):
                    self._take(number)
                    moved = True
                while self.peers[number].answer_reads():
                    moved |= bool(self._take(number))
            arrived = [self._deliver(number) for number in among]
            moved |= any(arrived)
            if not moved:
                return
        raise AssertionError(f"the group does not come to rest: {before}")

    def do_beat(self, number: str) -> None:
        """Twice, for we leave a heartbeat out when something was said in its interval."""
        self._beat(number)
        self._beat(number)

    def _beat(self, number: str) -> None:
        peer = self.peers[int(number)]
        self.clock[int(number)] += BEAT
        if peer.role is Role.LEADER:
            peer.node._state.heartbeat_deadline = Instant(self.clock[int(number)])
        peer.node.tick(Instant(self.clock[int(number)]))

    def do_elapse(self, number: str) -> None:
        for _ in range(ELECTION // BEAT + 1):
            self.do_beat(number)
            self._take(int(number))

    def do_forget(self, number: str) -> None:
        peer, now = self.peers[int(number)], Instant(self.clock[int(number)])
        if peer.node.leader is not None and peer.role is Role.FOLLOWER:
            peer.node.link_down(peer.node.leader.node, now)
            peer.node._state.election_deadline = Instant(FAR)

    def do_unreachable(self, number: str, other: str) -> None:
        now = Instant(self.clock[int(number)])
        self.peers[int(number)].node.link_down(NodeId(int(other)), now)

    def do_compact(self, number: str, index: str) -> None:
        log = self.peers[int(number)].log
        log.drop_before(RaftIndex(int(index) + 1))
        log._disk = log._image()

    def do_transfer(self, number: str, to: str) -> None:
        self.peers[int(number)].node.transfer(rid(int(to)), Instant(self.clock[int(number)]))

    def do_members(self, number: str, voters: str, learners: str = "l") -> None:
        target = Membership(listed(voters[1:]), learners=listed(learners[1:]))
        node = self.peers[int(number)].node
        node.change_membership(target, Instant(self.clock[int(number)]), WALL)

    # --- the driver -------------------------------------------------------------------------------

    def _take(self, number: int) -> int:
        """One take; how much left."""
        peer = self.peers[number]
        out = peer.take()
        self.wire.extend(out.send)
        self.said.extend(filter(None, map(self._spoken, out.send)))
        for held in self.peers.values():
            if held.role is not Role.LEADER:
                held.node._state.election_deadline = Instant(FAR)
        return len(out.send) + (out.commit is not None)

    def _sync(self, number: int) -> bool:
        return self.peers[number].persist(Instant(self.clock[number]))

    def _deliver(self, number: int) -> bool:
        mine = [message for message in self.wire if message.to == rid(number)]
        self.wire = [message for message in self.wire if message.to != rid(number)]
        for message in mine:
            self.peers[number].node.receive([message], Instant(self.clock[number]))
        return bool(mine)

    def _spoken(self, message) -> str | None:
        """Votes and pre-votes as a transcript writes them. Refused pre-votes are left out: where
        etcd keeps silent because it has a leader, we say so."""
        who = f"{message.sender.node}>{message.to.node}"
        if isinstance(message, VoteRequest | PreVoteRequest):
            kind = "vote" if isinstance(message, VoteRequest) else "pre-vote"
            last = f"{self._term(message.last_index, message.last_term)}/{message.last_index}"
            return f"{who} {kind} {message.term} {last}"
        if isinstance(message, VoteReply):
            return f"{who} {'grants' if message.granted else 'refuses'} {message.term}"
        if isinstance(message, PreVoteReply) and message.granted:
            return f"{who} pre-grants {message.term}"
        return None

    def _term(self, index: int, term: int) -> int:
        """etcd's groups begin after a snapshot of term 1, ours after a founding of term 0."""
        return 1 if index <= self.base else term

    # --- expectations -----------------------------------------------------------------------------

    def is_hard(self, number: str, term: str, vote: str, commit: str) -> None:
        peer = self.peers[int(number)]
        stored_vote = 0 if peer.stored.vote is None else peer.stored.vote.node
        held = (peer.stored.term, stored_vote, peer.node.commit)
        assert held == (int(term), int(vote), int(commit)), (number, held)

    def is_role(self, number: str, role: str, leader: str) -> None:
        node = self.peers[int(number)].node
        known = 0 if node.leader is None else node.leader.node
        assert (node.role.value, known) == (role, int(leader)), (number, node.role, known)

    def is_log(self, number: str, *entries: str) -> None:
        held = [text_of(e) for e in self.peers[int(number)].log.all_entries]
        assert held == list(entries), (number, held)

    def is_disk(self, number: str, *entries: str) -> None:
        held = [text_of(e) for e in self.peers[int(number)].log._disk["_entries"]]
        assert held == list(entries), (number, held)

    def is_durable(self, number: str, index: str) -> None:
        assert self.peers[int(number)].node.durable == int(index), self.peers[
            int(number)
        ].node.durable

    def is_commits(self, number: str, *entries: str) -> None:
        peer = self.peers[int(number)]
        held = [text_of(e) for e in peer.log.all_entries if e.raft_index <= peer.node.commit]
        assert held[-len(entries) :] == list(entries), (number, held)

    def is_follows(self, number: str, other: str, state: str, match: str, following: str) -> None:
        """`next` of a follower that is being installed is another thing to etcd, hence `*`."""
        progress = self.peers[int(number)].node.progress[rid(int(other))]
        assert (progress.state.value, progress.match) == (state, int(match)), progress
        assert following == "*" or progress.next == int(following), progress

    def is_full(self, number: str, other: str) -> None:
        progress = self.peers[int(number)].node.progress[rid(int(other))]
        assert progress.state is not ProgressState.INSTALL
        assert not progress.has_room(self.options), progress

    def is_members(self, number: str, voters: str, learners: str = "l") -> None:
        held = self.peers[int(number)].node.membership
        wanted = Membership(listed(voters[1:]), learners=listed(learners[1:]))
        assert held == wanted, (number, held)

    def is_payloads(self, number: str, *texts: str) -> None:
        held = [payload.decode() for payload in self.peers[int(number)].payloads]
        assert held == list(texts), (number, held)

    def is_joint(self, number: str, answer: str) -> None:
        assert self.peers[int(number)].node.membership.joint is (answer == "yes")

    def is_refused(self) -> None:
        assert any("refuses a proposal" in line for line in self.said), self.said


def blocks(path: Path) -> Iterator[tuple[int, str, list[str]]]:
    """Line number, command, and its expectations."""
    found: list[tuple[int, str, list[str]]] = []
    for number, raw in enumerate(path.read_text().splitlines(), 1):
        line = raw.strip()
        if line.startswith("="):
            found[-1][2].append(line[1:].strip())
        elif line and not line.startswith("#"):
            found.append((number, line, []))
    yield from found


def replay(path: Path) -> int:
    """Run a transcript; how many expectations it had."""
    run = Replay()
    checked = 0
    for number, command, expectations in blocks(path):
        run.said.clear()
        name, *words = command.split()
        try:
            getattr(run, f"do_{name}")(*words)
            says = sorted(e.removeprefix("says ") for e in expectations if e.startswith("says "))
            if says:
                assert sorted(run.said) == says, run.said
            for expectation in expectations:
                what, *rest = expectation.split()
                if what != "says":
                    getattr(run, f"is_{what}")(*rest)
                checked += 1
            for peer in run.peers.values():
                assert peer.role is not Role.STOPPED, peer.node.stopped_why
        except AssertionError as error:
            raise AssertionError(f"{path.name}:{number}: {command}: {error}") from error
    return checked

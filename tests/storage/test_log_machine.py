"""PartitionLog and recovery against a dumb model, through random histories with crashes.

The model is a list of entries, and of everything that ever lay at each index. After a crash the
recovered log must hold every entry that was reported durable, and beyond that only entries that
were once appended at their place; nothing may be called damaged, for nothing rots here.
"""

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from raftlog_sim.world.disk import Keep, SimulatedCrashError

from raftlog.base.entries import EntryKind, InstallPosition, Membership
from raftlog.base.ids import ReplicaId
from raftlog.records.chain import chain_next, chain_start
from raftlog.records.control import write_log_start, write_membership_body
from raftlog.storage.boot.recovery import ReplicaState
from raftlog.storage.segments.snapshot import write_snapshot
from tests.storage.making import CLUSTER, FOUNDERS, ME, SPEC, TINY, Driver, new_disk

SIZES = st.integers(1, 700)


class LogMachine(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 2**32))
    def begin(self, seed):
        self.driver = Driver(new_disk(seed))
        self.before = (0, 0, chain_start(CLUSTER, SPEC.group), 0)  # index, term, chain, offset
        self.entries = []
        self.ever = {}
        self.memberships = [(0, FOUNDERS)]
        self.replaced = None
        self.driver.lead(1)
        self._note()
        self.driver.round()

    @property
    def log(self):
        return self.driver.log

    def _note(self):
        """Take what was just appended into the model."""
        first = self.before[0] + len(self.entries) + 1
        for entry in self.log.entries(first, 1 << 30):
            self.entries.append(entry)
            self.ever.setdefault(entry.raft_index, []).append(entry)
            if entry.kind is EntryKind.MEMBERSHIP:
                self.memberships.append(self.log.memberships[-1])

    @rule(count=st.integers(1, 3), size=SIZES, batches=st.integers(1, 4))
    def append(self, count, size, batches):
        self.driver.append(batches, count, size=size)
        self._note()

    @rule()
    def new_term(self):
        self.driver.lead(self.log.last_term + 1)
        self._note()

    @rule(member=st.integers(2, 9))
    def change_membership(self, member):
        body = write_membership_body(Membership((ME, ReplicaId(member, member, 1))))
        self.log.append([self.driver.control(EntryKind.MEMBERSHIP, body)])
        self._note()

    @rule(back=st.integers(0, 6))
    def truncate(self, back):
        index = self.log.last_index - back
        if index <= max(self.driver.commit, self.before[0]):
            return
        self.log.truncate_from(index)
        keep = index - self.before[0] - 1
        del self.entries[keep:]
        self.memberships = [pair for pair in self.memberships if pair[0] < index]

    @rule()
    def round(self):
        self.driver.round()

    @rule(calls=st.integers(1, 12), tears=st.booleans(), keep=st.sampled_from(list(Keep)))
    def crash_in_a_round(self, calls, tears, keep):
        """The power goes at some changing call of a round, its tail not acknowledged."""
        disk = self.driver.disk
        disk.crash_at, disk.crash_tears = disk.mutations + calls, tears
        try:
            self.driver.round()
        except SimulatedCrashError:
            self.crash(keep)
        else:
            disk.crash_at = None

    @rule()
    def jobs(self):
        self.driver.run_jobs()

    @rule()
    def commit(self):
        self.driver.commit = max(self.driver.commit, self.log.durable_index)
        self.log.set_commit(self.driver.commit)

    @rule()
    def trim(self):
        self.log.trim_window(0)

    @precondition(lambda self: self.log.durable_end is not None)
    @rule(ahead=st.integers(1, 5))
    def install(self, ahead):
        index = self.log.last_index + ahead
        term = self.log.last_term + 1
        position = InstallPosition(
            raft_index=index,
            term=term,
            chain=chain_next(self.log.last_chain, bytes(61)),
            next_offset=self.log.next_offset + 10,
            log_start=self.log.next_offset,
            membership=FOUNDERS,
            membership_index=index,
        )
        self.replaced = (self.before, self.entries, self.memberships)
        self.log.install(position, b"snapshot %d" % index)
        self.before = (index, term, position.chain, position.next_offset)
        self.entries = []
        self.memberships = [(index, FOUNDERS)]
        self.driver.commit = 0

    @precondition(lambda self: 0 < self.log.durable_index == self.log.last_index)
    @rule()
    def retain(self):
        """A committed log-start marker, then whole segments go."""
        self.commit()
        body = write_log_start(self.log.next_offset)
        self.log.append([self.driver.control(EntryKind.LOG_START, body)])
        self._note()
        self.driver.round()
        self.commit()
        self.log.set_log_start(self.log.next_offset, self.log.last_index)
        plan = self.log.plan_removal()
        if plan is None:
            return
        (order,) = plan.args
        write_snapshot(self.driver.disk, SPEC, order.heads[0].position, b"state")
        self.driver.run(plan)
        gone = self.log.first_index - 1 - self.before[0]
        last = self.entries[gone - 1]
        self.before = (self.log.first_index - 1, last.term, self.log.prev_chain, last.next_offset)
        del self.entries[:gone]

    @rule(keep=st.sampled_from(list(Keep)))
    def crash(self, keep):
        durable = self.log.durable_index
        if self.log.durable_end is not None:
            self.replaced = None
        found = self.driver.crash(keep)
        assert found.state is ReplicaState.INTACT, found.why
        if self.replaced and self.log.first_index != self.before[0] + 1:
            self.before, self.entries, self.memberships = self.replaced
            durable = 0  # what was durable then is checked by `ever` alone
        self.replaced = None
        assert durable <= self.log.last_index, (durable, self.log.last_index)
        expected = {entry.raft_index: entry for entry in self.entries}
        memberships = dict(self.memberships)
        for index, membership in found.memberships:
            assert index > durable or memberships[index] == membership
        self.memberships = list(found.memberships)
        self._adopt(durable, expected)

    def _adopt(self, durable, expected):
        adopted = self._all_entries()
        for entry in adopted:
            if entry.raft_index <= durable:
                assert entry == expected[entry.raft_index]
            else:
                assert entry in self.ever[entry.raft_index]
        self.entries = adopted

    def _all_entries(self):
        """Everything in the recovered log, by the jobs that feed followers."""
        found = []
        index = self.log.first_index
        while index <= self.log.last_index:
            read = self.driver.run(self.log.plan_entries(index, 2000))
            assert read.first_index == index
            found += read.entries
            index += len(read.entries)
        return found

    @rule(bytes_max=st.integers(1, 3000))
    def fetch_everything(self, bytes_max):
        records = [bytes(entry.batch) for entry in self.entries if not entry.kind]
        assert self.driver.read_all(bytes_max) == records

    @rule()
    def feed_a_follower(self):
        if self.log.first_index <= self.log.written_index:
            read = self.driver.run(self.log.plan_entries(self.log.first_index, 1000))
            known = self.entries[: len(read.entries)]
            assert list(read.entries) == known
            assert read.prev_chain == self.before[2]

    @invariant()
    def agrees_with_the_model(self):
        log = self.log
        index, term, chain, offset = self.before
        assert log.first_index == index + 1
        assert log.last_index == index + len(self.entries)
        assert log.term_at(index) == term
        assert log.chain_at(index) == chain
        for entry in self.entries:
            chain = chain_next(chain, entry.batch)
            offset = entry.next_offset
            assert log.term_at(entry.raft_index) == entry.term
            assert log.chain_at(entry.raft_index) in (chain, None)
        assert log.last_chain == chain
        assert log.next_offset == offset
        assert log.last_term == (self.entries[-1].term if self.entries else term)
        assert log.durable_index <= log.written_index <= log.last_index
        assert log.memberships[-1] == self.memberships[-1]
        assert log.term_at(log.last_index + 1) is None

    @invariant()
    def terms_agree(self):
        log = self.log
        for term in range(log.last_term + 2):
            at = [entry.raft_index for entry in self.entries if entry.term == term]
            assert log.first_index_of(term) == (at[0] if at else None)
            below = [entry.raft_index for entry in self.entries if entry.term <= term]
            assert log.last_index_at_or_below(term) == (below[-1] if below else self.before[0])


# A failure here is found fast and shrunk slowly: the unshrunk steps say enough.
LogMachine.TestCase.settings = settings(
    stateful_step_count=40, phases=[Phase.explicit, Phase.generate], report_multiple_bugs=False
)
TestLogMachine = LogMachine.TestCase
assert TINY.segment_bytes < 8192

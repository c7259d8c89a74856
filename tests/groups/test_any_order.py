"""Any order of requests, deadlines, failed writes and failovers: what must hold all the same.

Each request is answered once. No two members own a partition in one generation. Generations rise.
An acknowledged commit is what is read until a later one. The replicas' machines agree, and a replay
of the log, or of a compacted prefix of it, gives the same state.
"""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from raftlog.base.errors import CorruptData
from raftlog.groups.machine import GroupsMachine
from raftlog.groups.records import NewRecord
from raftlog.groups.settings import GroupSettings
from raftlog.kafka.error_codes import ErrorCode
from raftlog.records.record import records_of
from tests.groups.feeding import machine_of
from tests.groups.world import World

GROUPS = st.sampled_from(["g", "h"])
FAILURES = st.sampled_from(
    [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.MESSAGE_TOO_LARGE]
)
SMALL = GroupSettings(
    initial_rebalance_delay_ms=1_000, group_size_max=3, offsets_retention_ms=10**9
)
PROTOCOLS = st.sampled_from(
    [(("range", b"1"),), (("range", b"2"), ("sticky", b"2")), (("sticky", b"3"),)]
)


class AnyOrder(RuleBasedStateMachine):
    @initialize(delay=st.booleans())
    def begin(self, delay):
        settings = SMALL if delay else GroupSettings(group_size_max=3, initial_rebalance_delay_ms=0)
        self.world = World(settings=settings, writes=False)
        self.members = {"g": [""], "h": [""]}
        self.generations = {"g": 0, "h": 0}
        """The highest number that a join was answered with."""
        self.owners = {}
        self.commits = []
        self.acknowledged = {}
        self.waiting = []

    # --- requests -------------------------------------------------------------------------------

    def member(self, data, group):
        return data.draw(st.sampled_from(self.members[group]))

    @rule(
        group=GROUPS,
        data=st.data(),
        version=st.sampled_from([3, 8, 9]),
        instance=st.sampled_from([None, None, "i"]),
        protocols=PROTOCOLS,
    )
    def join(self, group, data, version, instance, protocols):
        member = self.member(data, group)
        reply = self.world.join(
            group, member, version=version, instance=instance, protocols=protocols
        )
        self.waiting.append(("join", group, self.generations[group], reply))
        self.look()

    @rule(group=GROUPS, data=st.data(), back=st.sampled_from([0, 0, 0, 1]))
    def sync(self, group, data, back):
        member = self.member(data, group)
        shown = self.world.coordinator.describe(group, 5)
        parts = {each.member_id: each.member_id.encode() for each in shown.members}
        generation = self.generations[group] - back
        reply = self.world.sync(group, member, generation, parts)
        self.waiting.append(("sync", group, (generation, member), reply))
        self.look()

    @rule(group=GROUPS, behaved=st.booleans())
    def go_through(self, group, behaved):
        """The members that are there do what they should; or the leader alone does not."""
        live = self.world.coordinator._shared.groups.get(group)
        if live is None or not live.members:
            self.waiting.append(("join", group, 0, self.world.join(group, version=3)))
            return
        for each in list(live.members.values()):
            reply = self.world.join(
                group, each.member_id, instance=each.instance_id, protocols=each.protocols
            )
            self.waiting.append(("join", group, 0, reply))
        self.time_passes(1_000)
        for member in list(live.members):
            if behaved or member != live.leader:
                parts = {each: each.encode() for each in live.members}
                reply = self.world.sync(group, member, live.generation, parts)
                self.waiting.append(("sync", group, (live.generation, member), reply))
        self.look()

    @rule(group=GROUPS, data=st.data(), back=st.sampled_from([0, 0, 1]))
    def heartbeat(self, group, data, back):
        self.world.heartbeat(group, self.member(data, group), self.generations[group] - back)

    @rule(group=GROUPS, data=st.data(), version=st.sampled_from([2, 5]))
    def leave(self, group, data, version):
        self.world.leave(group, self.member(data, group), version=version)

    @rule(group=GROUPS, data=st.data(), simple=st.booleans(), offset=st.integers(0, 1_000))
    def commit(self, group, data, simple, offset):
        member = "" if simple else self.member(data, group)
        generation = -1 if simple else self.generations[group]
        reply = self.world.commit(group, {("t", 0): offset}, member=member, generation=generation)
        self.commits.append((group, offset, reply))

    @rule(group=GROUPS)
    def delete(self, group):
        reply = self.world.delete(group)
        self.commits.append((group, None, reply))

    # --- what happens to them ---------------------------------------------------------------------

    @rule()
    def write(self):
        self.world.write()
        self.look()

    @rule(error=FAILURES)
    def fail(self, error):
        self.world.write(error)
        self.look()

    @rule()
    def time_out_and_be_written_all_the_same(self):
        """The outcome of a timed out proposal is unknown: here it was written."""
        while (proposal := self.world.coordinator.take()) is not None:
            self.world.append(proposal.batch)
            late = ErrorCode.REQUEST_TIMED_OUT
            self.world.coordinator.decided(proposal.token, late, *self.world.time)
        for group, offset, reply in self.commits:
            if not reply.waits:
                self.acknowledged.pop(group, None)
            if offset is None:
                self.forget(group)
        self.look()

    @rule(ms=st.sampled_from([0, 500, 5_000, 11_000, 61_000]))
    def time_passes(self, ms):
        self.world.writes = True
        self.world.pass_ms(ms)
        self.world.writes = False
        self.look()

    @rule()
    def fail_over(self):
        self.world.fail_over()
        assert not any(reply.waits for reply in self.world.replies)
        self.look()

    @precondition(lambda self: self.world.log)
    @rule(data=st.data())
    def replay(self, data):
        written = [
            NewRecord(each.key, each.value, tuple((h.key, h.value) for h in each.headers))
            for batch in self.world.log
            for each in records_of(batch, CorruptData, "the log")
        ]
        cut = data.draw(st.integers(0, len(written)))
        last = {record.key: place for place, record in enumerate(written[:cut])}
        kept = [record for place, record in enumerate(written[:cut]) if last[record.key] == place]
        replayed = machine_of(kept + written[cut:])
        assert replayed.snapshot() == self.world.machine.snapshot()
        restored = GroupsMachine()
        restored.restore(replayed.snapshot())
        assert restored.digest() == self.world.follower.digest()

    # --- what must hold ---------------------------------------------------------------------------

    def look(self):
        """Take in the answers that came."""
        still = []
        for kind, group, known, reply in self.waiting:
            if reply.waits:
                still.append((kind, group, known, reply))
            elif kind == "join":
                self.joined(group, known, reply.value)
            elif reply.error is ErrorCode.NONE:
                self.synced(group, *known, bytes(reply.value.assignment))
        self.waiting = still

    def forget(self, group):
        """A removed group begins again, generations too."""
        self.generations[group] = 0
        self.owners = {key: owner for key, owner in self.owners.items() if key[0] != group}

    def joined(self, group, before, value):
        if value.member_id and value.member_id not in self.members[group]:
            self.members[group].append(value.member_id)
        if value.error_code:
            return
        if value.members:
            leaders = self.owners.setdefault((group, value.generation_id, "leader"), value.leader)
            assert leaders == value.leader or value.skip_assignment
        self.generations[group] = max(self.generations[group], value.generation_id)

    def synced(self, group, generation, member, part):
        """One assignment per generation: every part goes to the one whom it names."""
        if not part:
            return
        owner = self.owners.setdefault((group, generation, part), member)
        assert owner == member or member.startswith("i-")

    @invariant()
    def state_is_bounded_by_its_records(self):
        shared = self.world.coordinator._shared
        assert shared.live_bytes.total >= 0
        for group in shared.groups.values():
            waiting = [each for each in group.members.values() if each.join_answer is not None]
            assert group.joined == len(waiting)
            assert set(group.unsynced) <= set(group.members)
            assert set(group.static.values()) <= set(group.members)
            assert (group.leader in group.members) == bool(group.members)
            assert not group.is_idle

    @invariant()
    def offsets_are_found_by_their_topic(self):
        machine = self.world.machine
        by_group = [
            (topic, group, partition)
            for group in machine.group_ids()
            for topic, partition in machine.offset_keys(group)
        ]
        by_topic = [
            (topic, *place)
            for topic in machine.topics()
            for place in machine.offsets_of_topic(topic)
        ]
        assert sorted(by_topic) == sorted(by_group)

    @invariant()
    def acknowledged_commits_are_read(self):
        self.look()
        still = []
        for group, offset, reply in self.commits:
            if reply.waits:
                still.append((group, offset, reply))
            elif offset is None:
                if reply.error is ErrorCode.NONE:
                    self.acknowledged[group] = -1
                    self.forget(group)
            elif reply.partition_errors == [ErrorCode.NONE]:
                self.acknowledged[group] = offset
        self.commits = still
        for group, offset in self.acknowledged.items():
            assert self.world.committed(group) == offset

    def teardown(self):
        if not hasattr(self, "world"):
            return
        self.world.coordinator.close(ErrorCode.NOT_COORDINATOR)
        assert not any(reply.waits for reply in self.world.replies)


TestAnyOrder = AnyOrder.TestCase

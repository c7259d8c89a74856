"""apply as a whole: total, deterministic, and true to its laws over any history.

The first machine draws commands that mean something for the image at hand, mixed with noise; after
every command it checks the laws of identity, of the image and of deletion.
"""

from typing import get_args

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from raftlog.base.entries import Membership
from raftlog.base.errors import CorruptData
from raftlog.base.ids import GroupId, NodeId, RaftIndex, Term
from raftlog.metadata import commands as c
from raftlog.metadata.command_codec import Proposal, decode_proposal, encode_proposal
from raftlog.metadata.delta import delta_between
from raftlog.metadata.image import EMPTY_IMAGE, decode_snapshot, encode_snapshot
from raftlog.metadata.rules.apply import _RULES, apply
from tests.metadata.clusters import directory, found, registration
from tests.metadata.strategies import commands

TOPICS = [bytes([number]) * 16 for number in (1, 2, 3)]
NODES = st.integers(1, 4)
EARLY_AND_LATE = st.integers(-1, 2)


def test_every_command_has_a_rule():
    assert set(_RULES) == set(get_args(c.Command))


@given(st.lists(commands, max_size=12))
def test_no_command_raises_and_a_refusal_changes_nothing(some):
    image = apply(EMPTY_IMAGE, found(1, 2, 3)).image
    for command in some:
        applied = apply(image, command)
        if applied.refusal is not None:
            assert applied.image is image
        if applied.image is not image:
            assert applied.image.version == image.version + 1
        image = applied.image


class MetadataMachine(RuleBasedStateMachine):
    """A history of the metadata group, followed by a second replica that reads bytes only."""

    def __init__(self):
        super().__init__()
        self.image = EMPTY_IMAGE
        self.follower = EMPTY_IMAGE
        self.leaders = {}
        self.placed = {}
        self.departed = {}
        self.groups_given = set()
        self.boots = {}

    def do(self, command):
        before = self.image
        data = encode_proposal(Proposal(Term(1), 1, command))
        applied = apply(before, command)
        read = apply(self.follower, decode_proposal(data, CorruptData, "").command)
        assert (read.refusal, read.message, read.value) == (
            applied.refusal,
            applied.message,
            applied.value,
        )
        assert (applied.image is before) == (applied.image.version == before.version)
        self.image, self.follower = applied.image, read.image
        if applied.image is not before:
            self.check_step(before, applied.image)
        return applied

    def check_step(self, before, after):
        assert after.version == before.version + 1
        assert after.next_group >= before.next_group
        assert after.next_producer_id >= before.next_producer_id
        for group, place in after.places.items():
            partition = after.partition(*place)
            old = before.partition_of_group(group)
            if old is None:
                assert group not in self.groups_given, "a group id was given twice"
                self.groups_given.add(group)
                continue
            assert old.founding == partition.founding
            self.check_reports(group, old, partition, after)

    def check_reports(self, group, old, new, after):
        assert new.reported.order >= old.reported.order
        for gone in (replica for replica in old.replicas if replica not in new.replicas):
            membership = new.reported.membership
            assert not membership.joint
            assert gone not in membership.everyone()
            assert gone not in new.target
            assert new.reported.target_version >= new.target_version
            self.departed[group, gone] = True
            if after.directory_of(gone.node) == gone.directory:
                named = [(r.group, r.replica) for r in after.removals[gone.node]]
                assert (group, gone) in named

    @initialize(controllers=st.integers(1, 3))
    def found(self, controllers):
        assert self.do(found(*range(1, controllers + 1))).done

    @rule(node=NODES, up=st.integers(-1, 2), at=st.integers(0, 2), twin=st.booleans())
    def register(self, node, up, at, twin):
        known = self.image.brokers.get(node)
        boot = max(1, up if known is None else known.boot + up)
        command = registration(node, boot=boot, at=at)
        if twin:
            command = attrs.evolve(command, incarnation=7)
        if self.do(command).done:
            seen = self.boots.get((node, at), (0, 0))
            assert (boot, 0) >= (seen[0], 0), "a lower boot number was accepted"
            if boot == seen[0]:
                assert command.incarnation == seen[1], "two boots had one number"
            self.boots[node, at] = (boot, command.incarnation)

    @rule(node=NODES, fenced=st.booleans(), shift=st.sampled_from([0, 0, 0, -1]))
    def set_fenced(self, node, fenced, shift):
        broker = self.image.brokers.get(node)
        epoch = 1 if broker is None else max(0, broker.epoch + shift)
        made_by = c.FenceBroker if fenced else c.UnfenceBroker
        self.do(made_by(node=NodeId(node), epoch=epoch))

    @rule(node=NODES, at=st.integers(0, 2))
    def condemn(self, node, at):
        self.do(c.CondemnDirectory(node=NodeId(node), directory=directory(node, at)))

    @rule(
        number=st.integers(0, 2),
        name=st.sampled_from(["a", "b", "c", "__cluster_metadata", ""]),
        chosen=st.lists(st.lists(NODES, min_size=1, max_size=3, unique=True), max_size=3),
    )
    def create(self, number, name, chosen):
        self.do(
            c.CreateTopic(
                topic_id=TOPICS[number],
                name=name,
                internal=False,
                configs=(),
                assignments=tuple(self.places(nodes) for nodes in chosen),
            )
        )

    def places(self, nodes):
        return tuple(
            (NodeId(node), self.image.directory_of(NodeId(node)) or directory(node))
            for node in nodes
        )

    @rule(number=st.integers(0, 2))
    def delete(self, number):
        topic = self.image.topics.get(TOPICS[number])
        if self.do(c.DeleteTopic(topic_id=TOPICS[number])).done:
            for partition in topic.partitions:
                for replica in partition.replicas:
                    self.departed[partition.group, replica] = True

    @rule(number=st.integers(0, 2), count=st.integers(0, 3), nodes=st.lists(NODES, max_size=3))
    def grow(self, number, count, nodes):
        self.do(
            c.CreatePartitions(
                topic_id=TOPICS[number], count_before=count, assignments=(self.places(nodes),)
            )
        )

    @rule(
        number=st.integers(0, 2),
        partition=st.integers(0, 2),
        nodes=st.lists(NODES, min_size=1, max_size=3, unique=True),
        stale=st.booleans(),
    )
    def retarget(self, number, partition, nodes, stale):
        known = self.image.partition(TOPICS[number], partition)
        version = 0 if known is None or stale else known.target_version
        self.do(
            c.SetTarget(
                topic_id=TOPICS[number],
                partition=partition,
                assignment=self.places(nodes),
                if_target_version=version,
            )
        )

    @rule(data=st.data())
    def lose(self, data):
        known = [
            (group, replica)
            for group in self.image.places
            for replica in self.image.partition_of_group(group).replicas
        ]
        if known:
            group, lost = data.draw(st.sampled_from(known))
            self.do(c.ReplaceReplica(group=group, lost=lost))

    @rule(data=st.data(), term=EARLY_AND_LATE, index=EARLY_AND_LATE, joint=st.booleans())
    def report(self, data, term, index, joint):
        if not self.image.places:
            return
        group = data.draw(st.sampled_from(sorted(self.image.places)))
        partition = self.image.partition_of_group(group)
        last = partition.reported
        pool = data.draw(st.permutations(partition.replicas))
        voters = tuple(sorted(pool[: data.draw(st.integers(0, len(pool)))][:5]))
        versions = st.sampled_from([partition.target_version, last.target_version])
        command = c.ReportMembership(
            group=GroupId(group),
            term=Term(max(0, last.term + term)),
            membership_index=RaftIndex(max(0, last.membership_index + index)),
            serial=data.draw(st.integers(0, 2)),
            membership=Membership(voters, last.membership.voters if joint else ()),
            leader=data.draw(st.none() | st.sampled_from(partition.replicas)),
            in_sync=voters,
            target_version=data.draw(versions),
        )
        if self.do(command).done:
            key = (group, command.term)
            assert self.leaders.setdefault(key, command.leader) == command.leader

    @rule(node=NODES, at=st.integers(0, 2))
    def confirm(self, node, at):
        waiting = self.image.removals.get(node, ())
        self.do(
            c.ConfirmRemoved(
                node=NodeId(node),
                directory=directory(node, at),
                removed=tuple((r.group, r.replica.epoch) for r in waiting[:2]),
            )
        )

    @rule(command=commands)
    def noise(self, command):
        self.do(command)

    @rule()
    def restart_follower(self):
        self.follower = decode_snapshot(encode_snapshot(self.follower))

    @invariant()
    def replicas_agree(self):
        assert self.image.digest() == self.follower.digest()
        compare = c.CompareDigest(version=self.image.version, digest=self.image.digest())
        assert apply(self.follower, compare).done

    @invariant()
    def derived_parts_are_derived(self):
        read = decode_snapshot(encode_snapshot(self.image))
        assert read == self.image

    @invariant()
    def ids_are_given_once(self):
        for group in self.image.places:
            partition = self.image.partition_of_group(group)
            nodes = [replica.node for replica in partition.target]
            assert len(nodes) == len(set(nodes))
            needed = (*partition.target, *partition.reported.membership.everyone())
            assert set(needed) <= set(partition.replicas)
            for replica in partition.replicas:
                assert (group, replica) not in self.departed, "a replica id came back"
                assert replica.epoch <= self.image.version

    @invariant()
    def deletions_are_licensed(self):
        """Invariant 21: a node is told to delete only what left, and never what it must run."""
        for node, broker in self.image.brokers.items():
            change = delta_between(EMPTY_IMAGE, self.image, node, broker.directory)
            running = {(start.group, start.replica) for start in change.start}
            for removal in change.delete:
                assert (removal.group, removal.replica) in self.departed
                assert (removal.group, removal.replica) not in running
                assert removal.replica.directory == broker.directory


TestMetadataMachine = MetadataMachine.TestCase
TestMetadataMachine.settings = settings(stateful_step_count=40)

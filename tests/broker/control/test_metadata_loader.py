"""Committed records -> image -> delta; what cannot be understood stops the replica."""

import pytest

from raftlog.base import probes
from raftlog.base.errors import CorruptData, DiskError
from raftlog.base.ids import METADATA_GROUP, NodeId, Term
from raftlog.metadata import commands as c
from raftlog.metadata.command_codec import Proposal, encode_proposal
from raftlog.metadata.image import encode_snapshot
from tests.broker.cluster import Cluster
from tests.broker.control.metadata_rig import Rig
from tests.metadata.clusters import ORDERS, cluster, directory, do, found, registration, topic

HISTORY = (found(1, 2, 3), registration(1), registration(2))


def test_several_commands_give_one_image_and_one_delta():
    rig = Rig()
    for command in HISTORY:
        rig.engine.log.append(encode_proposal(Proposal(Term(1), 1, command)))
    rig.turn()
    assert rig.image.version == 3
    assert len(rig.services.deltas) == 1
    assert rig.services.deltas[0].brokers == (1, 2)


def test_a_delta_begins_where_the_last_one_ended():
    rig = Rig()
    rig.append(*HISTORY)
    rig.append(topic(rig.image, (1,), (1, 2)))
    assert [s.group for s in rig.services.deltas[-1].start] == [1, 2]
    rig.append(registration(3))
    assert rig.services.deltas[-1].start == ()


def test_nothing_new_is_no_change():
    rig = Rig()
    rig.append(*HISTORY)
    rig.turn()
    rig.turn()
    assert len(rig.services.deltas) == 1


def test_a_refused_command_changes_nothing():
    rig = Rig()
    rig.append(*HISTORY)
    rig.append(c.DeleteTopic(topic_id=bytes(15) + b"x"))
    assert len(rig.services.deltas) == 1
    assert rig.loader.stopped is None


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (b"", "bytes wanted"),
        (b"\x01\x63\x01\x00" + bytes(12), "this release reads"),
        (b"\x02\x01\x01\x00" + bytes(12), "this release reads"),
        (b"\x01\x06\x01\x00" + bytes(11), "bytes wanted"),
        (encode_proposal(Proposal(Term(1), 1, found(1))) + b"x", "too many"),
    ],
)
def test_what_is_not_understood_stops_the_replica_and_is_not_skipped(value, words):
    rig = Rig()
    rig.append(*HISTORY)
    rig.engine.log.append(value)
    rig.append(registration(3))
    assert words in rig.loader.stopped
    assert "record 3" in rig.loader.stopped
    assert NodeId(3) not in rig.image.brokers
    assert rig.group_zero.stopped
    assert "metadata-stopped" in rig.services.traced()
    assert METADATA_GROUP in rig.services.touched
    rig.append(registration(4))
    assert rig.image.version == 3


def test_damage_found_by_the_engine_stops_it_too():
    rig = Rig()
    rig.append(*HISTORY)

    def committed():
        raise CorruptData("fewer records than the batch says")

    rig.engine.committed = committed
    rig.turn()
    assert "fewer records" in rig.loader.stopped
    assert rig.group_zero.stopped
    rig.turn()


def test_a_replica_that_is_opened_after_the_stop_is_stopped_too():
    """The loader of a follower had stopped, and its replica with it. Then the replica was opened
    anew for a failed write, and followed: its image never moved again, so it was behind for good,
    and dropped every vote of the metadata group."""
    cluster = Cluster(3, 3).ready()
    follower = next(n for n in cluster.world.running() if not n.broker.metadata_log.leading_term)
    broker, replicas = follower.broker, follower.broker.context.replicas
    broker.loader._stop("a wrong image")
    cluster.run(0.1)
    first = replicas[METADATA_GROUP]
    assert first.stopped
    broker.manager.failed(METADATA_GROUP, first, DiskError("a write failed", on="a test"))
    cluster.wait(lambda: METADATA_GROUP in replicas, 5.0, "a replica that was opened anew")
    cluster.run(0.1)
    assert replicas[METADATA_GROUP] is not first
    assert replicas[METADATA_GROUP].stopped
    assert METADATA_GROUP not in broker.context.touched


def test_a_different_digest_stops_this_replica_only():
    """An apply that differs by release. The same log lets the others go on."""
    digest = cluster(1, 2, live=False).digest()
    history = (found(1, 2), registration(1), registration(2))
    good, bad = Rig(1, 2), Rig(1, 2)
    good.append(*history)
    bad.append(*history[:2], registration(2, rack="differs"))
    probes.reset()
    for rig in (good, bad):
        rig.append(c.CompareDigest(version=3, digest=digest), registration(3))
    assert good.loader.stopped is None
    assert NodeId(3) in good.image.brokers
    assert good.image.version == 4
    assert digest.hex() in bad.loader.stopped
    assert NodeId(3) not in bad.image.brokers
    assert bad.group_zero.stopped
    assert probes.fired()["metadata-loader-stopped"] == 1


def test_a_stopped_loader_leads_no_more():
    rig = Rig()
    rig.lead()
    rig.engine.log.append(b"nonsense")
    rig.engine.leading_term = None
    rig.turn()
    assert not rig.controller.active


def test_the_first_delta_is_from_nothing():
    """A boot: whatever the recovered log holds is one delta, removals included."""
    rig = Rig()
    image = cluster(1, 2)
    rig.append(
        *(found(1, 2), registration(1), registration(2)),
        topic(image, (1, 2)),
        c.DeleteTopic(topic_id=topic(image, (1,)).topic_id),
        topic(image, (1,), name="other", topic_id=bytes(15) + b"x"),
    )
    starts = [start for delta in rig.services.deltas for start in delta.start]
    deletes = [one for delta in rig.services.deltas for one in delta.delete]
    assert [start.replica.directory for start in starts] == [directory(1)]
    assert [one.replica.node for one in deletes] == [1]


class TestSnapshots:
    """A log that was trimmed: what is left begins in the middle, and a snapshot makes sense of
    it."""

    def records(self, *commands):
        return [encode_proposal(Proposal(Term(1), 1, command)) for command in commands]

    def gap(self, rig, position, *commands):
        """The engine goes on at a later position."""
        rig.engine.log = [b"gone"] * position + self.records(*commands)
        rig.engine.handed = position
        rig.turn()

    def test_a_boot_from_a_trimmed_log_waits_for_the_snapshot(self):
        image = cluster(1, 2, live=False)
        rig = Rig()
        snapshot = c.SnapshotImage(snapshot=encode_snapshot(image))
        self.gap(rig, 7, registration(9), c.DeleteTopic(topic_id=ORDERS))
        assert rig.image.version == 0
        assert rig.services.deltas == []
        rig.engine.log += self.records(snapshot, registration(3))
        rig.turn()
        assert sorted(rig.image.brokers) == [1, 2, 3]
        assert rig.image.version == image.version + 1

    def test_a_replica_that_was_away_takes_over_and_gets_one_delta(self):
        rig = Rig(1, 2)
        rig.append(found(1, 2), registration(1), registration(2))
        later = do(rig.image, topic(rig.image, (1, 2), (1,)))
        snapshot = c.SnapshotImage(snapshot=encode_snapshot(later))
        self.gap(rig, 20, c.UnregisterBroker(node=NodeId(2)), snapshot)
        assert rig.image == later
        assert [start.group for start in rig.services.deltas[-1].start] == [1, 2]
        assert rig.loader.stopped is None

    def test_what_lies_between_is_not_applied(self):
        rig = Rig(1, 2)
        rig.append(found(1, 2), registration(1))
        before = rig.image
        self.gap(rig, 20, registration(5))
        assert rig.image is before

    def test_a_snapshot_that_differs_stops_the_replica(self):
        rig = Rig(1, 2)
        rig.append(found(1, 2), registration(1))
        rig.append(c.SnapshotImage(snapshot=encode_snapshot(cluster(1, 2, 3))))
        assert "differs" in rig.loader.stopped
        assert rig.group_zero.stopped

    def test_a_damaged_snapshot_after_a_gap_stops_it_too(self):
        rig = Rig(1, 2)
        self.gap(rig, 5, c.SnapshotImage(snapshot=b"RLIMAGE1 and nonsense" * 9))
        assert rig.loader.stopped is not None
        assert rig.image.version == 0

    def test_what_is_not_understood_stops_it_even_while_skipping(self):
        """An old release must not sit out a record of a newer one and then go on."""
        rig = Rig(1, 2)
        rig.engine.log = [b"gone"] * 3 + [b"\x01\x63\x01\x00" + bytes(12)]
        rig.engine.handed = 3
        rig.turn()
        assert "this release reads" in rig.loader.stopped

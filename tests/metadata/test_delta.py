"""The replicas that a node must start, delete and retarget, named by whole replica ids."""

import attrs

from raftlog.base.entries import Membership
from raftlog.base.ids import GroupId, NodeId, ReplicaEpoch
from raftlog.metadata import commands as c
from raftlog.metadata.delta import delta_between, local_replica
from raftlog.metadata.image import EMPTY_IMAGE
from raftlog.metadata.settings.broker_settings import EVERY_BROKER
from tests.metadata.clusters import (
    FLIGHTS,
    ORDERS,
    cluster,
    directory,
    do,
    fence,
    part,
    registration,
    replica,
    report,
    retarget,
    topic,
    unfence,
)


def delta(before, after, node, at=0):
    return delta_between(before, after, NodeId(node), directory(node, at))


def four():
    image = cluster(1, 2, 3, 4)
    return do(image, topic(image, (1, 2, 3), (4, 1, 2)))


def test_a_new_topic_starts_its_replicas_here():
    before = cluster(1, 2, 3, 4)
    after = do(before, topic(before, (1, 2, 3), (4, 1, 2)))
    change = delta(before, after, 1)
    assert [(s.group, s.partition, s.preferred) for s in change.start] == [
        (1, 0, True),
        (2, 1, False),
    ]
    start = change.start[0]
    assert start.replica == (1, directory(1), after.version)
    assert start.founding == Membership(part(after).founding)
    assert change.created == (ORDERS,)
    assert change.moved == (1, 2)
    assert change.configured == (ORDERS,)
    assert change.version == after.version
    assert [s.group for s in delta(before, after, 3).start] == [1]


def test_nothing_changed_nothing_to_do():
    image = four()
    change = delta(image, image, 1)
    assert attrs.asdict(change) == {
        "version": image.version,
        "start": (),
        "delete": (),
        "retarget": (),
        "configured": (),
        "moved": (),
        "created": (),
        "deleted": (),
        "deleted_names": (),
        "brokers": (),
        "feature_level": 1,
        "evicted": False,
    }


def test_a_wiped_directory_starts_new_ids_with_the_founding_membership():
    before = four()
    after = do(before, fence(before, 2), registration(2, at=1))
    change = delta(EMPTY_IMAGE, after, 2, at=1)
    assert [s.replica for s in change.start] == [(2, directory(2, 1), after.version)] * 2
    assert change.start[0].founding == Membership(part(before).founding)
    assert change.start[0].replica not in change.start[0].founding.voters


def test_the_old_directory_is_told_nothing():
    """The old directory gets nothing: no start, no delete. An intruder with it would learn
    nothing."""
    before = four()
    after = do(before, fence(before, 2), registration(2, at=1))
    assert replica(part(before), 2) in part(after).replicas
    change = delta(EMPTY_IMAGE, after, 2, at=0)
    assert (change.start, change.delete, change.retarget) == ((), (), ())
    assert change.evicted
    assert not delta(EMPTY_IMAGE, after, 2, at=1).evicted


def test_a_condemned_directory_is_evicted():
    before = four()
    after = do(before, c.CondemnDirectory(node=NodeId(2), directory=directory(2)))
    assert delta(before, after, 2).evicted
    assert delta(EMPTY_IMAGE, after, 2).start == ()
    assert not delta(before, after, 1).evicted


def test_a_broker_that_is_not_registered_yet_is_not_evicted():
    assert not delta(EMPTY_IMAGE, four(), 9).evicted
    assert not delta(EMPTY_IMAGE, EMPTY_IMAGE, 1).evicted


def test_everyone_who_stays_is_retargeted():
    before = four()
    after = do(before, retarget(before, 1, 2, 4))
    assert [s.replica.node for s in delta(before, after, 4).start] == [4]
    for node in (1, 2, 3):
        change = delta(before, after, node)
        assert change.start == ()
        assert [(r.group, r.target_version) for r in change.retarget] == [(1, after.version)]
        assert change.retarget[0].target == part(after).target


def test_a_replica_is_deleted_only_after_the_report_and_by_its_epoch():
    before = four()
    moved = do(before, retarget(before, 1, 2, 4))
    old = replica(part(moved), 3)
    assert delta(before, moved, 3).delete == ()
    after = do(moved, report(moved, index=5, voters=part(moved).target))
    assert [r.replica for r in delta(moved, after, 3).delete] == [old]
    assert delta(moved, after, 3).start == ()


def test_a_late_delete_and_a_new_placement_name_different_ids():
    """Seen in one delta, after a node was away for both."""
    before = four()
    moved = do(before, retarget(before, 1, 2, 4))
    gone = do(moved, report(moved, index=5, voters=part(moved).target))
    again = do(gone, retarget(gone, 1, 2, 3))
    change = delta(before, again, 3)
    assert [r.replica for r in change.delete] == [replica(part(before), 3)]
    assert [s.replica for s in change.start] == [replica(part(again), 3)]
    assert change.delete[0].replica != change.start[0].replica


def test_removals_are_repeated_at_boot_until_confirmed():
    image = four()
    image = do(image, c.DeleteTopic(topic_id=ORDERS))
    assert len(delta(EMPTY_IMAGE, image, 1).delete) == 2
    epoch = image.removals[NodeId(1)][0].replica.epoch
    confirm = c.ConfirmRemoved(
        node=NodeId(1),
        directory=directory(1),
        removed=((GroupId(1), ReplicaEpoch(epoch)), (GroupId(2), ReplicaEpoch(epoch))),
    )
    after = do(image, confirm)
    assert delta(EMPTY_IMAGE, after, 1).delete == ()
    assert delta(image, after, 1).delete == ()


def test_a_deleted_topic():
    before = four()
    after = do(before, c.DeleteTopic(topic_id=ORDERS))
    change = delta(before, after, 3)
    assert change.deleted == (ORDERS,)
    assert [r.group for r in change.delete] == [1]


def test_a_lost_replica_is_started_as_its_successor():
    before = four()
    lost = replica(part(before), 2)
    after = do(before, c.ReplaceReplica(group=GroupId(1), lost=lost))
    change = delta(before, after, 2)
    assert [s.replica for s in change.start] == [(2, directory(2), after.version)]
    assert change.delete == ()
    assert local_replica(part(after), NodeId(2), directory(2)) == change.start[0].replica


def test_reports_move_groups_everywhere_and_start_nothing():
    before = four()
    after = do(before, report(before))
    change = delta(before, after, 4)
    assert (change.moved, change.start, change.retarget) == ((1,), (), ())


def test_settings_concern_those_who_host():
    before = four()
    alter = c.AlterTopicConfigs(topic_id=ORDERS, changed=(("retention.ms", "1"),), removed=())
    after = do(before, alter)
    assert delta(before, after, 3).configured == (ORDERS,)
    only = do(cluster(1, 2), topic(cluster(1, 2), (1,)))
    assert delta(only, do(only, alter), 2).configured == ()


def test_settings_of_brokers_concern_every_topic_that_they_host():
    before = do(four(), topic(four(), (1,), name="flights", topic_id=FLIGHTS))
    changed = (("log.retention.ms", "1"),)
    for owner, hosts in ((EVERY_BROKER, (1, 2, 3)), (NodeId(2), (2,))):
        alter = c.AlterBrokerConfigs(owner=owner, changed=changed, removed=())
        after = do(before, alter)
        for node in (1, 2, 3):
            topics = delta(before, after, node).configured
            assert (ORDERS in topics) == (node in hosts), (owner, node)
            assert (FLIGHTS in topics) == (node == 1 and node in hosts), (owner, node)
        assert delta(after, do(after, fence(after, 4)), 1).configured == ()
    both = do(
        before,
        alter,
        c.AlterTopicConfigs(topic_id=ORDERS, changed=(("retention.ms", "1"),), removed=()),
    )
    assert delta(before, both, 2).configured == (ORDERS,)


def test_brokers_that_changed_are_named_in_order():
    before = cluster(1, 2, 3)
    after = do(before, fence(before, 3), registration(4), fence(before, 1))
    assert delta(before, after, 2).brokers == (1, 3, 4)
    back = do(after, unfence(after, 1))
    assert delta(after, back, 2).brokers == (1,)

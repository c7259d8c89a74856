"""Placement: distinct brokers, spread over racks, balanced replicas and leaders (FEATURES M13)."""

from collections import Counter

import attrs
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.ids import GroupId, NodeId, ReplicaEpoch, ReplicaId
from raftlog.base.limits import REMOVALS_WAITING_MAX
from raftlog.metadata import commands as c
from raftlog.metadata.broker_image import Removal
from raftlog.metadata.rules.placement import Load, PlaceableBroker, place, place_partitions
from tests.metadata.clusters import ORDERS, cluster, directory, do, fence, places, topic


def candidates(count, racks=None):
    return [
        PlaceableBroker(NodeId(node), directory(node), (racks or {}).get(node, ""))
        for node in range(1, count + 1)
    ]


def empty(some):
    return Load(*(dict.fromkeys((item.node for item in some), 0) for _ in range(4)))


def spread(counts, nodes):
    values = [counts.get(node, 0) for node in nodes]
    return max(values) - min(values)


def leaders(placed):
    return Counter(assignment[0][0] for assignment in placed)


def replicas(placed):
    return Counter(node for assignment in placed for node, _ in assignment)


@given(st.integers(1, 9), st.integers(1, 5), st.integers(1, 60))
def test_without_racks_nobody_has_one_more_than_another(brokers, factor, count):
    some = candidates(brokers)
    if factor > brokers:
        return
    placed = place(some, empty(some), count=count, factor=factor)
    nodes = [item.node for item in some]
    assert len(placed) == count
    for assignment in placed:
        assert len({node for node, _ in assignment}) == factor
        assert all(at == directory(node) for node, at in assignment)
    assert spread(replicas(placed), nodes) <= 1
    assert spread(leaders(placed), nodes) <= 1


@given(st.lists(st.integers(1, 3), min_size=1, max_size=5), st.integers(1, 5), st.integers(1, 30))
def test_racks_are_shared_as_evenly_as_they_can_be(sizes, factor, count):
    racks = {}
    for number, size in enumerate(sizes):
        for _ in range(size):
            racks[len(racks) + 1] = f"rack {number}"
    some = candidates(len(racks), racks)
    if factor > len(some):
        return
    for assignment in place(some, empty(some), count=count, factor=factor):
        used = Counter(racks[node] for node, _ in assignment)
        most = max(used.values())
        for number, size in enumerate(sizes):
            rack = f"rack {number}"
            assert used[rack] >= min(size, most - 1), (used, sizes)


@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 5), st.integers(1, 40))
def test_equal_racks_cost_no_balance(racks, size, factor, count):
    names = {node: f"rack {node % racks}" for node in range(1, racks * size + 1)}
    some = candidates(racks * size, names)
    if factor > len(some):
        return
    placed = place(some, empty(some), count=count, factor=factor)
    nodes = [item.node for item in some]
    assert spread(replicas(placed), nodes) <= 2
    assert spread(leaders(placed), nodes) <= 1


@given(st.integers(2, 6), st.integers(1, 3), st.lists(st.integers(1, 7), min_size=1, max_size=8))
def test_many_small_topics_are_balanced_over_the_cluster(brokers, factor, counts):
    """Ties within a topic go to the broker with less elsewhere: single-partition topics spread."""
    image = cluster(*range(1, brokers + 1))
    total, led = Counter(), Counter()
    for number in range(len(counts)):
        placed = place_partitions(image, count=1, factor=min(factor, brokers))
        command = topic(image, name=f"t{number}", topic_id=bytes([number + 1]) * 16)
        image = do(image, c.CreateTopic(**{**asdict(command), "assignments": placed}))
        total.update(replicas(placed))
        led.update(leaders(placed))
    nodes = range(1, brokers + 1)
    assert spread(total, nodes) <= 1
    assert spread(led, nodes) <= 1


def asdict(command):
    return {name: getattr(command, name) for name in command.__slots__ if name[0] != "_"}


def test_a_topic_that_grows_stays_balanced():
    image = cluster(1, 2, 3)
    image = do(image, topic(image, (1, 2), (1, 2)))
    orders = image.topics[ORDERS]
    placed = place_partitions(image, count=4, factor=2, topic=orders)
    total = replicas(placed) + Counter({NodeId(1): 2, NodeId(2): 2})
    led = leaders(placed) + Counter({NodeId(1): 2})
    assert total == {1: 4, 2: 4, 3: 4}
    assert led == {1: 2, 2: 2, 3: 2}


def test_fenced_brokers_are_not_used_while_live_ones_suffice():
    image = cluster(1, 2, 3, 4)
    image = do(image, fence(image, 2))
    placed = place_partitions(image, count=8, factor=3)
    assert sorted(replicas(placed)) == [1, 3, 4]


def test_one_broker_down_does_not_stop_creation_at_factor_three():
    image = cluster(1, 2, 3)
    image = do(image, fence(image, 2))
    placed = place_partitions(image, count=3, factor=3)
    assert replicas(placed) == {1: 3, 2: 3, 3: 3}


def test_who_is_away_with_very_many_removals_waiting_is_given_no_more():
    """Topics that come and go while it is away would leave more of them without an end."""
    image = cluster(1, 2, 3)
    image = do(image, fence(image, 2))
    replica = ReplicaId(NodeId(2), directory(2), ReplicaEpoch(7))
    waiting = Removal(group=GroupId(1), replica=replica, topic_id=ORDERS, partition=0)
    few, many = [{NodeId(2): (waiting,) * (REMOVALS_WAITING_MAX - less)} for less in (1, 0)]
    assert place_partitions(attrs.evolve(image, removals=few), count=1, factor=3) is not None
    assert place_partitions(attrs.evolve(image, removals=many), count=1, factor=3) is None
    assert place_partitions(attrs.evolve(image, removals=many), count=1, factor=2) is not None


def test_live_ones_must_be_a_majority_of_each_partition():
    image = cluster(1, 2, 3)
    image = do(image, fence(image, 2), fence(image, 3))
    assert place_partitions(image, count=1, factor=3) is None
    assert place_partitions(image, count=1, factor=2) is None
    assert place_partitions(image, count=1, factor=1) == (places(image, 1),)


def test_a_condemned_broker_takes_nothing():
    image = cluster(1, 2, 3)
    image = do(image, c.CondemnDirectory(node=NodeId(3), directory=directory(3)))
    assert place_partitions(image, count=1, factor=3) is None


def test_more_replicas_than_brokers():
    assert place_partitions(cluster(1, 2), count=1, factor=3) is None


def test_the_same_image_gives_the_same_places():
    first = place_partitions(cluster(1, 2, 3, 4, 5), count=12, factor=3)
    assert first == place_partitions(cluster(5, 4, 3, 2, 1), count=12, factor=3)


def test_chains_even_out_leaders_that_single_swaps_cannot():
    """Sets {1,2} and {2,3} only: 1 cannot give to 3 directly, but by way of 2."""
    from raftlog.metadata.rules.placement import _even_out

    load = empty(candidates(3))
    led = [[NodeId(1), NodeId(2)], [NodeId(1), NodeId(2)], [NodeId(2), NodeId(3)]]
    load.leaders.update({1: 2, 2: 1, 3: 0})
    _even_out(led, load)
    assert load.leaders == {1: 1, 2: 1, 3: 1}
    assert [nodes[0] for nodes in led] in ([2, 1, 3], [1, 2, 3])

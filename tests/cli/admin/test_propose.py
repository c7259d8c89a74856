"""Plans of `reassign generate`: valid, even, spread over racks, and with few moves."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.errors import OperatingError
from raftlog.cli.admin.propose import propose
from raftlog.client.core.values import TopicPartition


def placed(*nodes, topic="t"):
    return {TopicPartition(topic, at): each for at, each in enumerate(nodes)}


NO_RACKS = dict.fromkeys(range(1, 10), "")


def of(*brokers):
    return {node: NO_RACKS[node] for node in brokers}


def test_what_is_even_stays():
    current = placed((1, 2), (2, 3), (3, 1))
    assert propose(current, of(1, 2, 3)) == current


def test_a_new_broker_gets_its_share_and_the_rest_stays():
    current = placed((1, 2), (2, 3), (3, 1), (1, 2))
    plan = propose(current, of(1, 2, 3, 4))
    assert sorted(Counter(node for nodes in plan.values() for node in nodes).values()) == [2] * 4
    moved = sum(len(set(plan[place]) - set(current[place])) for place in plan)
    assert moved == 2


def test_a_broker_that_is_left_out_is_drained():
    plan = propose(placed((1, 2), (2, 3), (3, 1)), of(1, 2, 4))
    assert all(3 not in nodes for nodes in plan.values())
    assert all(len(set(nodes)) == 2 for nodes in plan.values())


def test_replicas_of_a_partition_lie_in_different_racks():
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    plan = propose(placed((1, 2), (1, 2), (3, 4), (3, 4)), racks, 2)
    moved = propose(placed((1,), (1,), (1,), (1,)), racks, 2)
    assert all({racks[node] for node in nodes} == {"a", "b"} for nodes in moved.values())
    assert all(len(set(nodes)) == 2 for nodes in plan.values())


def test_the_number_of_replicas_may_change():
    current = placed((1, 2, 3), (2, 3, 1))
    assert all(len(nodes) == 1 for nodes in propose(current, of(1, 2, 3), 1).values())
    grown = propose(placed((1,), (2,)), of(1, 2, 3), 3)
    assert all(sorted(nodes) == [1, 2, 3] for nodes in grown.values())


def test_too_few_brokers_are_refused():
    with pytest.raises(OperatingError, match="3 replicas of a partition need as many brokers"):
        propose(placed((1, 2, 3)), of(1, 2))


@given(
    st.lists(
        st.lists(st.integers(1, 9), min_size=1, max_size=4, unique=True), min_size=1, max_size=30
    ),
    st.dictionaries(st.integers(1, 9), st.sampled_from(["", "a", "b", "c"]), min_size=4),
    st.one_of(st.none(), st.integers(1, 4)),
)
def test_every_plan_holds_the_rules(nodes, racks, factor):
    current = placed(*map(tuple, nodes))
    plan = propose(current, racks, factor)
    assert plan == propose(current, racks, factor)
    assert list(plan) == sorted(current)
    for place, found in plan.items():
        assert len(found) == (factor or len(current[place])) == len(set(found))
        assert set(found) <= set(racks)
    if len(set(racks.values())) == 1:
        loads = Counter(dict.fromkeys(racks, 0))
        loads.update(node for found in plan.values() for node in found)
        assert max(loads.values()) - min(loads.values()) <= 1

"""Every assignor gives each partition exactly once, evenly; the sticky ones move as few as can be.

The members and topics are drawn; what a wanted division is stands here in the plainest form.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.client.core.group.assignors import (
    ASSIGNORS,
    MemberView,
    assign_cooperative_sticky,
    assign_range,
    assign_round_robin,
    assign_sticky,
)
from raftlog.client.core.values import TopicPartition

TOPICS = ("a", "b", "c")


def place(text):
    topic, _, partition = text.rpartition("-")
    return TopicPartition(topic, int(partition))


def places(text):
    return [place(each) for each in text.split()]


def member(name, topics="a", owned="", generation=-1, instance=None):
    return MemberView(
        member_id=name,
        instance_id=instance,
        topics=tuple(topics),
        owned=tuple(places(owned)),
        generation=generation,
    )


def drawn_members(same):
    """Members with topics; all with the same ones, or each with its own."""
    topics = st.lists(st.sampled_from(TOPICS), min_size=1, unique=True)
    count = st.integers(1, 6)

    def build(data):
        number, shared, own, statics = data
        return [
            MemberView(
                member_id=f"m{at}",
                instance_id=f"i{at}" if statics[at] else None,
                topics=tuple(shared if same else own[at]),
            )
            for at in range(number)
        ]

    lists = st.lists(topics, min_size=6, max_size=6)
    return st.tuples(count, topics, lists, st.lists(st.booleans(), min_size=6, max_size=6)).map(
        build
    )


COUNTS = st.fixed_dictionaries({topic: st.integers(0, 9) for topic in TOPICS})


def each_once(members, counts, given_out):
    """Whether each partition of a subscribed topic went to one subscriber."""
    wanted = {topic for each in members for topic in each.topics}
    expected = [
        TopicPartition(topic, at)
        for topic in TOPICS
        if topic in wanted
        for at in range(counts[topic])
    ]
    topics = {each.member_id: each.topics for each in members}
    for name, got in given_out.items():
        assert all(each.topic in topics[name] for each in got), (name, got)
    assert sorted(each for got in given_out.values() for each in got) == expected


@pytest.mark.parametrize("name", list(ASSIGNORS))
@given(members=drawn_members(same=False), counts=COUNTS)
def test_each_partition_goes_to_one_subscriber(name, members, counts):
    given_out = ASSIGNORS[name].assign(members, counts)
    assert list(given_out) == [each.member_id for each in members] or set(given_out) == {
        each.member_id for each in members
    }
    each_once(members, counts, given_out)


@pytest.mark.parametrize("name", list(ASSIGNORS))
@given(members=drawn_members(same=False), counts=COUNTS)
def test_the_order_of_the_members_decides_nothing(name, members, counts):
    """Else two leaders with the same group would divide it in two ways."""
    assign = ASSIGNORS[name].assign
    assert assign(members, counts) == assign(list(reversed(members)), counts)


@pytest.mark.parametrize("name", ["roundrobin", "sticky", "cooperative-sticky"])
@given(members=drawn_members(same=True), counts=COUNTS)
def test_the_loads_differ_by_one_at_most(name, members, counts):
    loads = [len(got) for got in ASSIGNORS[name].assign(members, counts).values()]
    assert max(loads) - min(loads) <= 1, loads


@given(members=drawn_members(same=True), counts=COUNTS)
def test_range_is_even_within_each_topic(members, counts):
    given_out = assign_range(members, counts)
    for topic in members[0].topics:
        loads = [sum(each.topic == topic for each in got) for got in given_out.values()]
        assert max(loads) - min(loads) <= 1, loads


def owning(members, given_out, generation):
    return [
        MemberView(
            member_id=each.member_id,
            instance_id=each.instance_id,
            topics=each.topics,
            owned=tuple(given_out.get(each.member_id, ())),
            generation=generation,
        )
        for each in members
    ]


@given(members=drawn_members(same=False), counts=COUNTS)
def test_sticky_changes_nothing_when_nothing_changed(members, counts):
    first = assign_sticky(members, counts)
    assert assign_sticky(owning(members, first, 1), counts) == first


@given(members=drawn_members(same=True), counts=COUNTS, gone=st.integers(0, 5))
def test_sticky_moves_only_what_a_gone_member_had(members, counts, gone):
    first = assign_sticky(members, counts)
    left = [each for at, each in enumerate(members) if at != gone]
    if not left:
        return
    second = assign_sticky(owning(left, first, 1), counts)
    for each in left:
        assert set(first[each.member_id]) <= set(second[each.member_id])


@given(members=drawn_members(same=True), counts=COUNTS)
def test_sticky_takes_for_a_newcomer_no_more_than_its_share(members, counts):
    first = assign_sticky(members, counts)
    more = [*owning(members, first, 1), MemberView(member_id="new", topics=members[0].topics)]
    second = assign_sticky(more, counts)
    moved = sum(len(set(first[name]) - set(second[name])) for name in first)
    assert moved == len(second["new"])


@given(members=drawn_members(same=False), counts=COUNTS)
def test_sticky_leaves_no_single_move_that_would_make_it_more_even(members, counts):
    given_out = assign_sticky(members, counts)
    for source, got in given_out.items():
        for each in got:
            for target in members:
                if each.topic in target.topics:
                    assert len(given_out[target.member_id]) >= len(given_out[source]) - 1


@given(members=drawn_members(same=False), more=drawn_members(same=False), counts=COUNTS)
def test_cooperative_rounds_never_hand_over_what_another_still_has(members, more, counts):
    """From any division, two rounds reach one that is whole, and no partition passes from one
    member to another within a round."""
    owned = assign_sticky(members, counts)
    for generation in (1, 2):
        present = owning(more, owned, generation)
        given_out = assign_cooperative_sticky(present, counts)
        for each in present:
            for other in present:
                if other is not each:
                    assert not set(given_out[each.member_id]) & set(other.owned)
        owned = given_out
    each_once(more, counts, owned)
    assert assign_cooperative_sticky(owning(more, owned, 3), counts) == owned


# --- Kafka's examples -----------------------------------------------------------------------------


def test_range_gives_the_first_members_one_more():
    given_out = assign_range([member("x", "ab"), member("y", "ab")], {"a": 3, "b": 3})
    assert given_out["x"] == places("a-0 a-1 b-0 b-1")
    assert given_out["y"] == places("a-2 b-2")


def test_range_puts_static_members_first_and_in_the_order_of_their_instances():
    """A static member comes back under another member id, and keeps its partitions."""
    members = [member("a"), member("z", instance="one"), member("b", instance="two")]
    given_out = assign_range(members, {"a": 3})
    assert given_out == {"z": places("a-0"), "b": places("a-1"), "a": places("a-2")}


def test_round_robin_skips_who_does_not_subscribe():
    members = [member("x", "a"), member("y", "ab"), member("z", "abc")]
    given_out = assign_round_robin(members, {"a": 1, "b": 2, "c": 3})
    assert given_out["x"] == places("a-0")
    assert given_out["y"] == places("b-0")
    assert given_out["z"] == places("b-1 c-0 c-1 c-2")


def test_an_older_generation_is_not_believed():
    """A member that was away still says that it has what another was given meanwhile."""
    members = [
        member("old", owned="a-0 a-1", generation=3),
        member("new", owned="a-0", generation=4),
    ]
    given_out = assign_sticky(members, {"a": 2})
    assert given_out == {"old": places("a-1"), "new": places("a-0")}


def test_two_that_claim_one_partition_both_give_it_up():
    members = [member("x", owned="a-0", generation=4), member("y", owned="a-0", generation=4)]
    assert assign_cooperative_sticky(members, {"a": 1}) == {"x": [], "y": []}


def test_sticky_balances_through_a_member_between():
    """x may only give to y, and y only to z: one move alone would help nothing."""
    members = [
        member("x", "a", owned="a-0 a-1 a-2", generation=1),
        member("y", "ab", owned="b-0 b-1", generation=1),
        member("z", "b", owned="b-2", generation=1),
    ]
    given_out = assign_sticky(members, {"a": 3, "b": 3})
    assert {name: len(got) for name, got in given_out.items()} == {"x": 2, "y": 2, "z": 2}

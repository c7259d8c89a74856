"""Goal: a busy node elects leaders for thousands of groups one after another, and never the same
ones in vain, without end."""

from collections import Counter

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.ids import METADATA_GROUP, GroupId
from raftlog.base.units import NANOS_PER_SECOND, Instant, Nanos
from raftlog.broker.replicas.campaigns import WINDOW_MAX, WINDOW_MIN, WINDOW_START, Campaigns
from raftlog.kafka.versions import ApiKey
from tests.broker.cluster import Cluster
from tests.broker.whole_brokers import broker, cluster, group_zero, image, settled
from tests.runtime.setting_effects import judged

ELECTION = 1_000


def campaigns(window=WINDOW_START):
    return Campaigns(Nanos(ELECTION), window)


def admit(parts, group, now=0):
    return parts.admit(GroupId(group), Instant(now))


def test_as_many_campaign_at_once_as_the_window_allows():
    parts = campaigns(2)
    assert [admit(parts, group) for group in (1, 2, 3, 4)] == [True, True, False, False]
    assert parts.next() is None
    parts.ended(GroupId(1), led=False)
    assert parts.has_next
    assert parts.next() == 3
    assert parts.next() is None


def test_a_leader_widens_the_window_and_a_time_out_halves_it_once_an_election_time():
    parts = campaigns(16)
    for group in range(16):
        assert admit(parts, group, ELECTION)
    parts.ended(GroupId(0), led=True)
    assert parts.window == 17
    for group in (1, 2, 3):
        admit(parts, group, 2 * ELECTION)
    assert parts.window == 8
    admit(parts, 4, 3 * ELECTION)
    assert parts.window == WINDOW_MIN
    admit(parts, 5, 4 * ELECTION)
    assert parts.window == WINDOW_MIN


def test_the_window_is_bounded():
    parts = campaigns(WINDOW_MAX)
    admit(parts, 1)
    parts.ended(GroupId(1), led=True)
    assert parts.window == WINDOW_MAX


def test_who_timed_out_goes_to_the_end_of_the_line():
    """Groups that lost their quorum held every place, and a group that had one never got any."""
    parts = campaigns(4)
    for group in range(8):
        admit(parts, group)
    for group in range(4):
        assert not admit(parts, group, 10 * ELECTION)
    order = []
    while (group := parts.next()) is not None:
        order.append(group)
    assert order == [4, 5, 6, 7]


def test_asking_again_while_waiting_changes_nothing():
    parts = campaigns(1)
    admit(parts, 1)
    assert not admit(parts, 2)
    assert not admit(parts, 2, 5 * ELECTION)
    parts.ended(GroupId(1), led=False)
    assert parts.next() == 2
    assert parts.next() is None


def test_a_group_that_is_gone_gives_its_place_back():
    parts = campaigns(1)
    admit(parts, 1)
    admit(parts, 2)
    parts.dropped(GroupId(1))
    parts.dropped(GroupId(2))
    assert not parts.has_next
    assert admit(parts, 3)


def test_the_end_of_no_campaign_is_harmless():
    parts = campaigns()
    parts.ended(GroupId(9), led=True)
    assert parts.window == WINDOW_START


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 12)), max_size=200))
def test_no_place_is_lost_and_no_group_forgotten(steps):
    """A waiting group gets a place once the running ones have ended, whatever happened before."""
    parts, now = campaigns(4), 0
    asked = set()
    for kind, group in steps:
        now += 300
        if kind == 0:
            admit(parts, group, now)
            asked.add(group)
        elif kind == 1:
            parts.ended(GroupId(group), led=bool(group % 2))
        elif kind == 2:
            parts.dropped(GroupId(group))
        else:
            parts.next()
    for group in range(13):
        parts.ended(GroupId(group), led=False)
    while (group := parts.next()) is not None:
        parts.ended(group, led=False)
    assert not parts.has_next
    assert all(admit(parts, group, now) for group in range(WINDOW_MIN))


def test_campaigns_that_a_stalled_disk_did_not_let_begin_keep_no_places():
    """Regression: a disk stood still while a link was cut, and each group that would have asked for
    votes only put that off. It had its place all the same, each attempt counted as one that timed
    out, and when all was well again nothing ever ended it: no role had changed. Four places were
    left, all taken, and no group of that broker could elect itself any more."""
    world = cluster(brokers=4, controllers=1)
    world.create("t", partitions=48, factor=3)
    world.wait(lambda: settled(world, "t"), 60, "settled")
    topic = image(world, 1).topic("t")
    led = Counter(
        (follower, replica.leader.node)
        for follower in (2, 3, 4)
        for group, replica in broker(world, follower).context.replicas.items()
        if group and replica.leader is not None
    )
    follower, leader = max((pair for pair in led if pair[0] != pair[1]), key=led.__getitem__)
    node = world.world.nodes[follower]
    node.stalled = True
    for number, _ in enumerate(topic.partitions):  # rounds are under way on the disk that stalls
        body = world.produce_body("t", [b"y"], number, 1, 5000)
        world.client(leader).request(ApiKey.PRODUCE, body, 11)
    world.run(0.8)
    cut = world.world.network.part([(follower, leader)])
    world.run(1.5)
    assert not node.broker.campaigns._running
    assert node.broker.campaigns.window >= WINDOW_START, "no attempt counts as timed out"
    world.world.network.mend(cut)
    node.stalled = False
    world.run(3)
    assert not node.broker.campaigns._running
    assert not node.broker.campaigns._waiting


def test_the_first_controller_of_a_new_cluster_is_elected_at_once():
    """None of the founders was the first choice of the metadata group, so all held back for two
    election times, and a new cluster was ready a second later than it could be."""
    for seed in range(5):
        world = Cluster(3, 3, seed=seed, configure=eager)
        election_s = broker(world, 1).context.config.election_ns / NANOS_PER_SECOND
        world.wait(lambda world=world: group_zero(world), election_s, "a controller")
        assert group_zero(world) is broker(world, 1).context.replicas[METADATA_GROUP]


def test_without_the_first_choice_another_controller_is_elected():
    world = Cluster(3, 3, configure=eager)
    world.kill(1)
    world.wait(lambda: group_zero(world), 10.0, "a controller")


def test_a_founder_that_starts_again_is_no_first_choice():
    """It would disturb the leader that was elected meanwhile."""
    world = cluster(3, 3, configure=eager)
    world.kill(1)
    world.run(10.0)
    leader, term = group_zero(world), group_zero(world).term
    world.restart(1)
    world.run(10.0)
    assert (group_zero(world), group_zero(world).term) == (leader, term)


def eager(config):
    """As brokers are configured by a file."""
    return attrs.evolve(config, eager_founder=True)


@pytest.fixture
def secret(tmp_path):
    file = tmp_path / "secret"
    file.write_text("0123456789abcdef")
    file.chmod(0o600)
    return file


def test_brokers_of_a_file_are_eager(secret):
    assert judged(secret, {}).broker.eager_founder

"""A topic of the cluster's own with a state machine, on whole brokers."""

import copy
from collections import Counter

import pytest
from raftlog_sim.world.world import seconds

from raftlog.base.ids import TopicId
from raftlog.base.units import NEVER
from raftlog.broker.replicas import machines
from raftlog.broker.replicas.hosts import HostState
from raftlog.kafka.error_codes import ErrorCode
from raftlog.metadata import requests as r
from raftlog.partition.machine.machine_feed import MachineFeed
from tests.broker.whole_brokers import ask_controller, broker, cluster, partition, wait_settled
from tests.partition.toy_machine import LastValues, pairs

NAME = "__toy"


@pytest.fixture
def world(monkeypatch):
    monkeypatch.setattr(machines, "MACHINES", {NAME: LastValues})
    world = cluster()
    create(world, NAME, internal=True)
    return world


def create(world, name, *, internal):
    reply = ask_controller(
        world,
        r.NewTopicRequest(
            topic_id=TopicId(name.encode().ljust(16, b"t")),
            name=name,
            internal=internal,
            count=1,
            factor=3,
            nodes=(),
            configs=(("segment.bytes", "1048576"),),
            validate_only=False,
        ),
    )
    assert reply.error == 0, reply
    wait_settled(world, name)


def replicas(world, name=NAME):
    found = {}
    for node in world.world.running():
        for host in node.broker.manager.hosts.values():
            if host.label == f"{name}-0" and host.replica is not None:
                found[node.number] = host.replica
    return found


def serving(world):
    return [number for number, each in replicas(world).items() if each.serves_machine]


def put(world, *items, limit=20.0):
    """Propose until the leader says that it is applied."""
    answers = []
    world.wait(lambda: bool(serving(world)), limit, "a replica serves its machine")
    (number,) = serving(world)
    context, replica = broker(world, number).context, replicas(world)[number]
    error = replica.propose_records(pairs(*items), NEVER, answers.append, context.now, context.wall)
    assert error is None
    context.touch(replica.group)
    node = world.world.nodes[number]
    node._turn_soon(node.live)
    world.wait(lambda: bool(answers), limit, "an answer")
    assert answers[0].error is ErrorCode.NONE
    return number


def level(world):
    commits = [(each.commit, each.applied_index) for each in replicas(world).values()]
    return len(commits) == 3 and len(set(commits)) == 1


def test_all_brokers_feed_the_machines_of_a_topic_of_the_clusters_own(world):
    put(world, (b"k", b"v"), (b"l", b"w"))
    world.wait(lambda: level(world), 10.0, "all level")
    held = [each.machine.values for each in replicas(world).values()]
    assert held == [{b"k": b"v", b"l": b"w"}] * 3


def test_a_topic_of_a_user_has_no_machine_whatever_its_name(monkeypatch):
    monkeypatch.setattr(machines, "MACHINES", {"orders": LastValues})
    world = cluster()
    create(world, "orders", internal=False)
    assert [each.machine for each in replicas(world, "orders").values()] == [None] * 3


def test_machines_come_back_after_a_restart_of_all_brokers(world):
    for number in range(20):
        put(world, (b"%d" % (number % 3), b"%d" % number))
    for number in (1, 2, 3):
        world.kill(number)
    for number in (1, 2, 3):
        world.restart(number)
    put(world, (b"more", b"v"))
    world.wait(lambda: level(world), 20.0, "all level")
    for each in replicas(world).values():
        assert each.machine.values == {b"0": b"18", b"1": b"19", b"2": b"17", b"more": b"v"}


def test_a_boot_restores_the_snapshot_in_a_job(world, monkeypatch):
    """It took the loop 1.4 s of 100,000 committed offsets."""
    for number in range(24):
        put(world, (b"%d" % (number % 3), b"x" * 100_000))
    world.run(5.0)
    booted, asked = [], MachineFeed.booted

    def watched(feed, replay, *, restored):
        booted.append((replay.snapshot is not None, restored))
        asked(feed, replay, restored=restored)

    monkeypatch.setattr(MachineFeed, "booted", watched)
    for number in (1, 2, 3):
        world.kill(number)
        world.restart(number)
    put(world, (b"more", b"v"))
    world.wait(lambda: level(world), 20.0, "all level")
    assert booted == [(True, True)] * 3
    values = {b"%d" % number: b"x" * 100_000 for number in range(3)}
    assert [each.machine.values for each in replicas(world).values()] == [
        {**values, b"more": b"v"}
    ] * 3


def test_a_broker_that_goes_while_a_snapshot_is_restored_comes_back(world):
    for number in range(24):
        put(world, (b"%d" % (number % 3), b"x" * 100_000))
    world.run(5.0)
    for delay in (0.0, 0.01, 0.05, 0.1, 0.3):
        world.kill(2)
        world.restart(2)
        world.run(delay)
    world.kill(2)
    world.restart(2)
    world.wait(lambda: level(world), 20.0, "all level")
    assert len({each.machine.snapshot() for each in replicas(world).values()}) == 1


def test_a_broker_that_is_killed_passes_its_machine_on(world):
    for round_ in range(3):
        led = put(world, (b"k", b"%d" % round_))
        world.kill(led)
        again = put(world, (b"again", b"%d" % round_))
        assert again != led
        world.restart(led)
        world.wait(lambda: level(world), 20.0, "all level")
    assert len({each.machine.snapshot() for each in replicas(world).values()}) == 1


def test_a_copy_of_a_broker_has_machines_of_its_own(world):
    led = put(world, (b"k", b"v"))
    twin = copy.deepcopy(broker(world, led))
    put(world, (b"k", b"w"))
    (host,) = [host for host in twin.manager.hosts.values() if host.label == f"{NAME}-0"]
    assert host.replica.machine.values == {b"k": b"v"}


def test_a_replica_whose_machine_stops_stays_closed_and_the_others_go_on(world):
    led = put(world, (b"k", b"v"))
    world.wait(lambda: level(world), 10.0, "all level")
    other = next(number for number in (1, 2, 3) if number != led)
    manager = broker(world, other).manager
    group = partition(world, NAME).group
    manager.hosts[group].replica._feed._stop("a difference, for this test")
    put(world, (b"k", b"w"))

    def closed():
        return manager.hosts[group].state is HostState.REFUSED

    world.wait(closed, 10.0, "the replica closed")
    assert "a difference" in manager.hosts[group].why
    assert group not in broker(world, other).context.replicas
    assert broker(world, other).context.counters["replicas_that_differ"] == 1
    put(world, (b"k", b"x"))
    world.run(seconds(5.0) / 1e9)
    assert closed(), "no retry opens it again in this boot"
    states = Counter(host.state for host in manager.hosts.values())
    assert states[HostState.RUNNING] >= 1, "group 0 runs here as before"
    world.kill(other)
    world.restart(other)
    world.wait(lambda: level(world), 20.0, "all level")
    assert replicas(world)[other].machine.values[b"k"] == b"x"

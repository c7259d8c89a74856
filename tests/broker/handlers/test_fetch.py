"""Goal: Fetch through real frames: the long poll, its bounds, its errors, linearizable reads."""

import attrs
import pytest
from raftlog_sim.world.disk import Keep

from raftlog.base import probes
from raftlog.base.errors import CorruptData, DiskError
from raftlog.base.limits import LOG_READ_FAILURES_MAX
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.fetch import FetchRequest
from raftlog.kafka.versions import ApiKey
from raftlog.partition.replica import PartitionReplica
from raftlog.storage.segments.cold import ColdRead
from raftlog.storage.segments.jobs import remove_files
from tests.broker.handlers.data_path import (
    batch_of,
    fetch,
    fetch_later,
    fetch_request,
    led_topic,
    produce,
    topic_id,
    values,
)

LONG_MS = 60_000


def filled(count=3, size=100, **options):
    cluster = led_topic(brokers=1, **options)
    for number in range(count):
        produce(cluster, 1, batch_of(b"%03d" % number + b"x" * (size - 3)))
    return cluster


def replica_of(cluster, number=0):
    return cluster.leader("t", number).broker.context.router.replica("t", number)


def test_everything_there_is_comes_at_once():
    cluster = filled()
    (answer,) = fetch(cluster, 1, 0)
    assert [value[:3] for value in values(answer)] == [b"000", b"001", b"002"]
    assert (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset) == (3, 3, 0)
    assert answer.preferred_read_replica == -1


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version(version):
    cluster = filled()
    by_id = version >= 13
    topic = topic_id(cluster) if by_id else None
    (answer,) = fetch(cluster, 1, 1, version=version, topic=topic, name="" if by_id else "t")
    assert [value[:3] for value in values(answer)] == [b"001", b"002"]


def test_an_offset_inside_a_batch_returns_the_whole_batch():
    cluster = led_topic(brokers=1)
    produce(cluster, 1, batch_of(b"a", b"b", b"c"))
    (answer,) = fetch(cluster, 1, 2)
    assert values(answer) == [b"a", b"b", b"c"]


def test_at_the_end_without_patience_it_is_empty():
    (answer,) = fetch(filled(), 1, 3)
    assert (answer.error_code, values(answer), answer.high_watermark) == (0, [], 3)


@pytest.mark.parametrize("offset", [4, 100, -1])
def test_out_of_range(offset):
    (answer,) = fetch(filled(), 1, offset, max_wait_ms=LONG_MS)
    assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_unknown_topics_and_partitions():
    cluster = filled()
    assert fetch(cluster, 1, 0, name="nope")[0].error_code == 3
    assert fetch(cluster, 1, 0, 0)[1].error_code == 3
    unknown = fetch(cluster, 1, 0, name="", topic=b"u" * 16, version=13)
    assert unknown[0].error_code == 100
    assert fetch(cluster, 1, 0, name="__cluster_metadata")[0].error_code == 3


def test_leader_epochs():
    cluster = filled()
    term = replica_of(cluster).term
    assert fetch(cluster, 1, 0, epoch=term)[0].error_code == 0
    assert fetch(cluster, 1, 0, epoch=term - 1)[0].error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert fetch(cluster, 1, 0, epoch=term + 1)[0].error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_a_follower_names_the_leader():
    cluster = led_topic()
    leader = cluster.leader("t").number
    other = next(n for n in (1, 2, 3) if n != leader)
    cluster.run(1.0)
    body = fetch_request(0, name="", topic=topic_id(cluster), max_wait_ms=LONG_MS)
    answer = cluster.ask(other, ApiKey.FETCH, body, 16)
    partition = answer.responses[0].partitions[0]
    assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.current_leader.leader_id == leader
    assert [endpoint.node_id for endpoint in answer.node_endpoints] == [leader]


# --- sizes ----------------------------------------------------------------------------------------


def test_max_bytes_is_soft_for_the_first_batch_only():
    cluster = filled(count=3, size=1_000)
    (answer,) = fetch(cluster, 1, 0, max_bytes=10)
    assert [value[:3] for value in values(answer)] == [b"000"]
    (answer,) = fetch(cluster, 1, 1, partition_bytes=1)
    assert [value[:3] for value in values(answer)] == [b"001"]


def test_the_first_non_empty_partition_goes_whole_and_the_next_waits_its_turn():
    cluster = led_topic(brokers=1, partitions=3)
    for number in (1, 2):
        produce(cluster, 1, batch_of(b"x" * 1_000), partitions=(number,))
    answers = fetch(cluster, 1, 0, 0, 0, max_bytes=10)
    assert [len(values(answer)) for answer in answers] == [0, 1, 0]
    answers = fetch(cluster, 1, 0, 0, 0, max_bytes=5_000)
    assert [len(values(answer)) for answer in answers] == [0, 1, 1]


def test_no_partition_asked_is_answered_at_once():
    cluster = filled()
    body = FetchRequest(max_wait_ms=LONG_MS, min_bytes=1, topics=[])
    answer = cluster.ask(1, ApiKey.FETCH, body, 12, limit=1.0)
    assert (answer.error_code, len(answer.responses)) == (0, 0)


# --- waiting --------------------------------------------------------------------------------------


def test_it_waits_for_a_commit_and_answers_then():
    cluster = filled()
    pending = fetch_later(cluster, 1, 3, max_wait_ms=LONG_MS)
    cluster.run(2.0)
    assert not pending.done
    other = cluster.clients.pop(1)
    produce(cluster, 1, batch_of(b"new"))
    cluster.wait(lambda: pending.done, 1.0, "woken")
    assert values(pending.answer.responses[0].partitions[0]) == [b"new"]
    assert replica_of(cluster).waiting == 0
    assert other.connection is not None


def test_it_waits_for_min_bytes_over_all_partitions():
    cluster = led_topic(brokers=1, partitions=2)
    pending = fetch_later(cluster, 1, 0, 0, max_wait_ms=LONG_MS, min_bytes=1_500)
    cluster.clients.pop(1)
    produce(cluster, 1, batch_of(b"x" * 900), partitions=(0,))
    cluster.run(0.5)
    assert not pending.done
    produce(cluster, 1, batch_of(b"y" * 900), partitions=(1,))
    cluster.wait(lambda: pending.done, 1.0, "enough")
    answers = pending.answer.responses[0].partitions
    assert [len(values(answer)) for answer in answers] == [1, 1]
    assert [replica_of(cluster, number).waiting for number in (0, 1)] == [0, 0]


def test_when_its_time_is_up_it_gets_what_there_is():
    cluster = filled()
    pending = fetch_later(cluster, 1, 1, max_wait_ms=500, min_bytes=10**6)
    cluster.run(0.4)
    assert not pending.done
    cluster.run(0.2)
    assert pending.done
    assert len(values(pending.answer.responses[0].partitions[0])) == 2
    assert replica_of(cluster).waiting == 0


def test_any_error_is_answered_at_once():
    cluster = filled()
    answers = fetch(cluster, 1, 3, 0, max_wait_ms=LONG_MS)
    assert [answer.error_code for answer in answers] == [0, 3]


def test_a_lost_leader_wakes_it():
    cluster = led_topic()
    leader = cluster.leader("t").number
    pending = fetch_later(cluster, leader, 0, max_wait_ms=LONG_MS)
    cluster.run(0.1)
    others = [n for n in (1, 2, 3) if n != leader]
    for number in others:
        cluster.kill(number)
    cluster.wait(lambda: pending.done, 10.0, "stepped down")
    assert pending.answer.responses[0].partitions[0].error_code in (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
    )


def test_a_deleted_topic_wakes_it():
    from raftlog.kafka.messages.delete_topics import DeleteTopicsRequest

    cluster = filled()
    pending = fetch_later(cluster, 1, 3, max_wait_ms=LONG_MS)
    cluster.clients.pop(1)
    cluster.ask(1, ApiKey.DELETE_TOPICS, DeleteTopicsRequest(topic_names=["t"]), 5)
    cluster.wait(lambda: pending.done, 10.0, "deleted")
    assert pending.answer.responses[0].partitions[0].error_code in (3, 5, 6)


def test_a_closed_connection_leaves_no_waiter_and_no_timer():
    cluster = filled()
    fetch_later(cluster, 1, 3, max_wait_ms=LONG_MS)
    cluster.run(0.1)
    assert replica_of(cluster).waiting == 1
    cluster.client(1).close()
    cluster.run(0.1)
    assert replica_of(cluster).waiting == 0


# --- sessions, replicas, isolation ----------------------------------------------------------------


def test_a_session_is_not_kept():
    cluster = filled()
    answer = cluster.ask(1, ApiKey.FETCH, fetch_request(0), 12)
    assert answer.session_id == 0
    for epoch in (1, 7, -2):
        body = fetch_request(0, session_id=5, session_epoch=epoch)
        answer = cluster.ask(1, ApiKey.FETCH, body, 12)
        assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert not answer.responses


@pytest.mark.parametrize("epoch", [0, -1])
def test_a_fetch_that_begins_or_ends_a_session_is_a_full_one(epoch):
    """Whatever session it names: such a fetch says all that it wants (KIP-227)."""
    cluster = filled()
    body = fetch_request(0, session_id=12345, session_epoch=epoch)
    answer = cluster.ask(1, ApiKey.FETCH, body, 12)
    assert (answer.error_code, answer.session_id) == (0, 0)
    assert len(values(answer.responses[0].partitions[0])) == 3


@pytest.mark.parametrize("version", [12, 16])
def test_a_client_that_says_it_is_a_replica_is_refused_and_noted(version):
    """CVE-2018-1288: a forged replica id in Fetch lost data."""
    cluster = filled()
    topic = topic_id(cluster) if version >= 13 else None
    name = "" if version >= 13 else "t"
    body = fetch_request(0, replica_id=2, topic=topic, name=name)
    answer = cluster.ask(1, ApiKey.FETCH, body, version)
    codes = [answer.error_code, *(p.error_code for t in answer.responses for p in t.partitions)]
    assert ErrorCode.INVALID_REQUEST in codes
    assert any(event.name == "replica-claim-refused" for event in cluster.tracer.events)


def test_read_committed_has_an_empty_list_of_aborted_transactions():
    cluster = filled()
    assert fetch(cluster, 1, 0)[0].aborted_transactions is None
    answer = fetch(cluster, 1, 0, isolation_level=1)[0]
    assert answer.aborted_transactions in ((), [])
    assert len(values(answer)) == 3


# --- linearizable reads ---------------------------------------------------------------------------

LINEARIZABLE = (("raftlog.read.consistency", "linearizable"),)


def test_a_linearizable_fetch_sees_what_was_acknowledged():
    cluster = led_topic(configs=LINEARIZABLE)
    leader = cluster.leader("t").number
    produce(cluster, leader, batch_of(b"a"))
    (answer,) = fetch(cluster, leader, 0)
    assert values(answer) == [b"a"]


def reads_by_lease(lease):
    """How often a second linearizable fetch, right after a first one, was answered by a lease."""
    cluster = led_topic(
        configs=LINEARIZABLE, configure=lambda config: attrs.evolve(config, lease=lease)
    )
    leader = cluster.leader("t").number
    produce(cluster, leader, batch_of(b"a"))
    fetch(cluster, leader, 0)
    probes.reset()
    (answer,) = fetch(cluster, leader, 0)
    assert values(answer) == [b"a"]
    return probes.fired().get("read-by-lease", 0)


def test_with_leases_a_linearizable_fetch_needs_no_round():
    assert reads_by_lease(lease=True) >= 1
    assert reads_by_lease(lease=False) == 0


def test_a_linearizable_fetch_waits_like_any_other():
    cluster = led_topic(configs=LINEARIZABLE)
    leader = cluster.leader("t").number
    pending = fetch_later(cluster, leader, 0, max_wait_ms=LONG_MS)
    cluster.run(0.5)
    assert not pending.done
    cluster.clients.pop(leader)
    produce(cluster, leader, batch_of(b"a"))
    cluster.wait(lambda: pending.done, 2.0, "woken")
    assert values(pending.answer.responses[0].partitions[0]) == [b"a"]


def test_without_a_majority_a_linearizable_fetch_says_nothing_about_the_log():
    cluster = led_topic(configs=LINEARIZABLE)
    leader = cluster.leader("t").number
    produce(cluster, leader, batch_of(b"a"))
    for number in (1, 2, 3):
        if number != leader:
            cluster.kill(number)
    (answer,) = fetch(cluster, leader, 0, max_wait_ms=100)
    assert answer.error_code in (
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
    )
    assert values(answer) == []


def test_a_leader_that_nobody_confirms_says_nothing_when_patience_ends(monkeypatch):
    """Not even that there is nothing: another broker may lead and have more."""
    cluster = led_topic(configs=LINEARIZABLE)
    leader = cluster.leader("t").number
    produce(cluster, leader, batch_of(b"a"))
    monkeypatch.setattr(PartitionReplica, "read_index", lambda replica, then, now: None)
    pending = fetch_later(cluster, leader, 0, max_wait_ms=10)
    cluster.wait(lambda: pending.done, 5.0, "patience")
    (answer,) = pending.answer.responses[0].partitions
    assert (answer.error_code, values(answer)) == (ErrorCode.REQUEST_TIMED_OUT, [])


# --- cold reads -----------------------------------------------------------------------------------


def test_after_a_boot_old_segments_are_verified_and_then_served():
    cluster = filled(count=200, size=1_000, configs=(("segment.bytes", "65536"),))
    cluster.kill(1)
    cluster.restart(1)
    cluster.ready()
    cluster.leader("t")
    assert [int(value[:3]) for _, value in cluster.read_all("t")] == list(range(200))
    assert [int(value[:3]) for _, value in cluster.read_all("t", offset=57)][:2] == [57, 58]


def test_a_read_that_is_never_warm_enough_ends_empty(monkeypatch):
    """Each job should make the next plan succeed; if that fails again and again, the client is told
    that there is nothing this time, rather than kept waiting."""
    cluster = filled()
    never = ColdRead(remove_files, ((),))
    monkeypatch.setattr(PartitionReplica, "read", lambda replica, offset, bytes_max: never)
    (answer,) = fetch(cluster, 1, 0)
    assert (answer.error_code, values(answer)) == (0, [])


def test_damage_found_by_a_fetch_is_a_storage_error_and_is_reported(monkeypatch):
    cluster = filled()
    rotten = ColdRead(damaged, ())
    monkeypatch.setattr(PartitionReplica, "read", lambda replica, offset, bytes_max: rotten)
    (answer,) = fetch(cluster, 1, 0)
    assert answer.error_code in (
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
    )
    monkeypatch.undo()
    cluster.leader("t", limit=30.0)
    assert [value[:3] for _, value in cluster.read_all("t")] == [b"000", b"001", b"002"]


def test_a_disk_that_fails_again_and_again_makes_somebody_else_lead(monkeypatch):
    """Four fetches in a row that a leader's disk cannot serve, though its peers have it all."""
    cluster = led_topic(brokers=3)
    before = cluster.leader("t")
    number = before.number
    for value in (b"one", b"two"):
        produce(cluster, number, batch_of(value))
    replica = before.broker.context.router.replica("t", 0)
    unreadable = ColdRead(failing, ())
    monkeypatch.setattr(PartitionReplica, "read", lambda replica, offset, bytes_max: unreadable)
    for _ in range(LOG_READ_FAILURES_MAX - 1):
        (answer,) = fetch(cluster, number, 0)
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert replica.is_leader
    fetch(cluster, number, 0)
    assert not replica.is_leader
    monkeypatch.undo()
    assert [value for _, value in cluster.read_all("t")] == [b"one", b"two"]


def test_two_bad_disks_of_two_lose_no_partition():
    """The third is down, and each of the others has a bad sector somewhere else. To call that
    damage made both of them damaged: none could campaign any more."""
    cluster = led_topic(brokers=3, configs=(("segment.bytes", "65536"),))
    leader = cluster.leader("t")
    one, away = (node for node in cluster.world.running() if node is not leader)
    if away.number == 1:
        one, away = away, one
    away.crash(Keep.ALL)
    for number in range(12):
        node = cluster.leader("t").number
        produce(cluster, node, batch_of(b"%03d" % number + b"x" * 30_000))
    cluster.run(1)
    for ordinal, node in ((0, leader), (2, one)):
        node.crash(Keep.ALL)
        node.start()
        cluster.run(3)
        folder = replica_of(cluster).log.spec.path.rpartition("-")[0]
        paths = [path for path in node.disk.paths() if path.startswith(folder)]
        segments = sorted(path for path in paths if path.endswith(".log"))
        node.disk.make_unreadable(segments[ordinal], 4_096 + 31_000)
    for _ in range(30):
        node = cluster.leader("t").number
        for offset in (1, 5):
            fetch(cluster, node, offset)
        cluster.run(0.3)
    assert replica_of(cluster).is_leader


def test_who_has_the_log_alone_goes_on_leading_when_its_disk_fails(monkeypatch):
    cluster = filled()
    unreadable = ColdRead(failing, ())
    monkeypatch.setattr(PartitionReplica, "read", lambda replica, offset, bytes_max: unreadable)
    for _ in range(2 * LOG_READ_FAILURES_MAX):
        (answer,) = fetch(cluster, 1, 0)
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert replica_of(cluster).is_leader


def failing(disk):
    raise DiskError("sector cannot be read", on="test")


def damaged(disk):
    raise CorruptData("a batch fails its CRC", on="test")

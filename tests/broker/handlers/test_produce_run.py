"""Runs of produce requests: taken together, and told what each would have been told alone."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from raftlog_sim.world.client import ConnectionLostError, HeapClient

from raftlog.base import probes
from raftlog.base.limits import RECORD_COPY_BYTES_MAX
from raftlog.broker.handlers.produce_run import RUN_REQUESTS_MAX
from raftlog.kafka.codec import encode_request
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from raftlog.kafka.messages.metadata import MetadataRequest
from raftlog.kafka.repeats import ProduceRepeats
from raftlog.kafka.versions import ApiKey
from tests.broker.handlers.data_path import (
    WALL,
    batch_of,
    led_topic,
    produce_request,
    topic_id,
)
from tests.records.making import changed

VERSION = 11


def runs_taken():
    return probes.fired().get("produce-run", 0)


def connected(cluster, node=1):
    """A connection that has produced once, so that its stream is known."""
    client = HeapClient(cluster.world.nodes[node]).connect()
    finished(cluster, [send(client, batch_of(b"first"))])
    return client


def send(client, records, version=VERSION, **options):
    return client.request(ApiKey.PRODUCE, produce_request(records, **options), version)


def finished(cluster, pending):
    cluster.wait(lambda: all(each.done for each in pending), 20.0, "answers")
    return [each.answer for each in pending]


def good(number, size=1):
    return batch_of(*(b"%d-%d" % (number, at) for at in range(size)))


KINDS = {
    "good": lambda number: (good(number, 1 + number % 3), {}),
    "compressed": lambda number: (batch_of(b"%d" % number * 50, codec=1), {}),
    "numbered": lambda number: (batch_of(b"n%d" % number, pid=number, epoch=0, first=0), {}),
    "wrong crc": lambda number: (changed(good(number), fix_crc=False, crc=number), {}),
    "cut": lambda number: (good(number)[:-1], {}),
    "short": lambda number: (good(number)[:20], {}),
    "none": lambda number: (None, {}),
    "two": lambda number: (good(number) + good(number), {}),
    "of the future": lambda number: (batch_of(b"f", timestamp_ms=WALL + 10**10), {}),
    "large": lambda number: (batch_of(b"%d" % number * RECORD_COPY_BYTES_MAX), {}),
    "too large": lambda number: (batch_of(b"x" * 1_100_000), {}),
    "acks 1": lambda number: (good(number), {"acks": 1}),
    "acks 0": lambda number: (good(number), {"acks": 0}),
    "acks 7": lambda number: (good(number), {"acks": 7}),
    "other partition": lambda number: (good(number), {"partitions": (1,)}),
    "no partition": lambda number: (good(number), {"partitions": (9,)}),
    "no topic": lambda number: (good(number), {"name": "nowhere"}),
    "transactional": lambda number: (good(number), {"transactional": "t"}),
}
USUAL = ["good"] * 6


def played(script, *, together, configs=()):
    """Returns the answer to each request, and the final content of the log."""
    cluster = led_topic(brokers=1, partitions=2, configs=configs)
    client = connected(cluster)
    pending = []
    for number, kind in enumerate(script):
        records, options = KINDS[kind](number)
        pending.append(send(client, records, **options))
        if not together:
            finished(cluster, pending)
    answers = finished(cluster, pending)
    assert client.connection is not None
    return answers, cluster.read_all("t"), cluster.read_all("t", 1)


@settings(deadline=None)
@given(st.lists(st.sampled_from([*KINDS, *USUAL, *USUAL, *USUAL]), min_size=2, max_size=40))
def test_a_run_is_told_what_each_request_would_be_told_alone(script):
    script = [kind for kind in script if kind != "acks 0"]  # its failure ends the connection
    assert played(script, together=True) == played(script, together=False)


def frames_played(frames, *, together):
    """The bytes of each answer, or None once the connection is lost; and the log."""
    cluster = led_topic(brokers=1)
    client = connected(cluster)
    pending = []
    for frame in frames:
        if client.connection is not None:
            pending.append(client.send_frame(frame))
        if not together:
            finished(cluster, pending)
    finished(cluster, pending)
    lost = client.connection is None
    cluster.run(0.2)  # what was appended before the connection was lost is committed
    return [each.answer for each in pending if each.done], lost, cluster.read_all("t")


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_bytes_that_changed_in_the_midst_of_a_run(data):
    """Whatever they say now: the same answers, or the connection is lost at the same request."""
    frames = [frame_of(good(number, 2), number + 1) for number in range(6)]
    struck = bytearray(frames[3])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.one_of(st.integers(0, 50), st.integers(0, len(struck) - 1)))
        struck[at] = data.draw(st.integers(0, 255))
    frames[3] = bytes(struck)
    answers, lost, log = frames_played(frames, together=True)
    alone, lost_alone, log_alone = frames_played(frames, together=False)
    assert (lost, log) == (lost_alone, log_alone)
    if not lost:
        assert answers == alone


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_is_unusual_in_the_midst_of_a_run(kind):
    script = [*USUAL, kind, kind, *USUAL]
    probes.reset()
    found = played(script, together=True)
    assert runs_taken() >= 1
    assert found == played(script, together=False)


def test_a_long_burst_is_several_runs():
    cluster = led_topic()
    client = connected(cluster, cluster.leader("t").number)
    probes.reset()
    count = 2 * RUN_REQUESTS_MAX + 1
    answers = finished(cluster, [send(client, good(number)) for number in range(count)])
    offsets = [each.responses[0].partition_responses[0].base_offset for each in answers]
    assert offsets == list(range(1, count + 1))
    assert runs_taken() >= 2
    assert [value for _, value in cluster.read_all("t")][1:] == [
        b"%d-0" % number for number in range(count)
    ]


@pytest.mark.parametrize("version", range(9, 14))
def test_every_version_that_can_be_repeated(version):
    cluster = led_topic(brokers=1)
    client = HeapClient(cluster.world.nodes[1]).connect()
    by_id = {"topic": topic_id(cluster), "name": ""} if version >= 13 else {}
    finished(cluster, [send(client, good(0), version, **by_id)])
    probes.reset()
    answers = finished(cluster, [send(client, good(n, 2), version, **by_id) for n in range(5)])
    assert runs_taken() == 1
    found = [each.responses[0].partition_responses[0] for each in answers]
    assert [(one.error_code, one.base_offset) for one in found] == [
        (0, 1 + 2 * number) for number in range(5)
    ]
    assert all(each.responses[0].topic_id == (by_id.get("topic") or bytes(16)) for each in answers)


def test_requests_of_two_connections_in_turn_are_no_run():
    cluster = led_topic(brokers=1)
    one, other = connected(cluster), connected(cluster)
    probes.reset()
    pending = [send(each, good(number)) for number in range(6) for each in (one, other)]
    finished(cluster, pending)
    assert runs_taken() == 0


def test_log_append_time_is_stamped_one_by_one():
    script = ["good"] * 5
    configs = [("message.timestamp.type", "LogAppendTime")]
    probes.reset()
    answers, log, _ = played(script, together=True, configs=configs)
    assert runs_taken() == 0
    assert len(log) == 1 + sum(1 + number % 3 for number in range(5))
    times = [each.responses[0].partition_responses[0].log_append_time_ms for each in answers]
    assert min(times) > 0


def test_too_few_in_sync_replicas_refuse_each():
    cluster = led_topic(configs=[("min.insync.replicas", "3")])
    leader = cluster.leader("t")
    client = connected(cluster, leader.number)
    lost = next(node for node in cluster.world.running() if node is not leader)
    lost.crash()
    replica = leader.broker.context.router.replica("t", 0)
    cluster.wait(lambda: len(replica.in_sync) == 2, 60.0, "shrunk")
    answers = finished(cluster, [send(client, good(number)) for number in range(4)])
    codes = [each.responses[0].partition_responses[0].error_code for each in answers]
    assert codes == [ErrorCode.NOT_ENOUGH_REPLICAS] * 4


def hold_acknowledgements(cluster, leader):
    others = [node.number for node in cluster.world.running() if node is not leader]
    cluster.world.network.hold((other, leader.number) for other in others)


def frame_of(records, correlation):
    parts = encode_request(ApiKey.PRODUCE, VERSION, correlation, "sim", produce_request(records))
    return b"".join(bytes(part) for part in parts)[4:]


def undecided(cluster, client, leader, count=5):
    """A run that waits: what its followers acknowledge is held up, until `heal`."""
    hold_acknowledgements(cluster, leader)
    probes.reset()
    pending = [send(client, good(number)) for number in range(count)]
    cluster.run(0.05)
    assert runs_taken() == 1
    assert not any(each.done for each in pending)
    return pending


def test_a_deposed_leader_tells_each_request_of_a_run_that_its_end_is_unknown():
    cluster = led_topic()
    leader = cluster.leader("t")
    client = connected(cluster, leader.number)
    pending = undecided(cluster, client, leader)
    others = [node.number for node in cluster.world.running() if node is not leader]
    cluster.world.network.partition(others)
    answers = finished(cluster, pending)
    found = [each.responses[0].partition_responses[0] for each in answers]
    assert [one.error_code for one in found] == [ErrorCode.REQUEST_TIMED_OUT] * len(pending)
    account = leader.broker.context.ledger._accounts[client.connection]
    assert (account.requests, account.request_bytes) == (0, 0)


def test_a_client_that_leaves_is_owed_nothing():
    cluster = led_topic()
    leader = cluster.leader("t")
    client = connected(cluster, leader.number)
    pending = undecided(cluster, client, leader)
    client.close()
    assert all(isinstance(each.answer, ConnectionLostError) for each in pending)
    cluster.world.network.heal()
    cluster.run(2)
    assert [value for _, value in cluster.read_all("t")] == [
        b"first",
        *(b"%d-0" % number for number in range(5)),
    ]


def test_a_run_counts_as_its_requests_against_the_bound():
    cluster = led_topic()
    leader = cluster.leader("t")
    client = connected(cluster, leader.number)
    pending = undecided(cluster, client, leader, count=7)
    account = leader.broker.context.ledger._accounts[client.connection]
    assert account.requests == 7
    assert account.request_bytes == sum(len(frame_of(good(number), 0)) for number in range(7))
    cluster.world.network.heal()
    finished(cluster, pending)


@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("size", [1, 2_000])
def test_what_waits_for_its_partition_pins_no_receive_memory(count, size):
    """A request alone kept the view of its records until its answer. Only large frames are counted
    as pinned; so a hundred small ones that wait, each received with something large behind it, held
    a slab of up to four megabytes each."""
    cluster = led_topic()
    leader = cluster.leader("t")
    client = connected(cluster, leader.number)
    hold_acknowledgements(cluster, leader)
    slabs = [bytearray(frame_of(good(number, size), number + 1)) for number in range(count)]
    pending = [client.send_frame(memoryview(slab), ApiKey.PRODUCE, VERSION) for slab in slabs]
    cluster.run(0.05)
    assert not any(each.done for each in pending)
    for slab in slabs:
        slab.append(0)  # BufferError while a view is left
    cluster.world.network.heal()
    found = [each.responses[0].partition_responses[0] for each in finished(cluster, pending)]
    assert [(one.error_code, one.base_offset) for one in found] == [
        (0, 1 + number * size) for number in range(count)
    ]


@pytest.mark.parametrize("why", ["numbered", "log append time", "too few in sync"])
def test_what_is_no_run_is_compared_only_a_few_times(why, monkeypatch):
    """Each request of a burst looked at up to 32 that followed it, and then was taken alone: with
    many under way that cost more than the request."""
    configs = {
        "numbered": [],
        "log append time": [("message.timestamp.type", "LogAppendTime")],
        "too few in sync": [("min.insync.replicas", "2")],
    }[why]
    cluster = led_topic(brokers=1, configs=configs)
    client = connected(cluster)
    batches = [good(number) for number in range(20)]
    if why == "numbered":
        batches = [batch_of(b"n", pid=number, epoch=0, first=0) for number in range(20)]
    match, compared = ProduceRepeats.match, []

    def counted(self, frame):
        compared.append(len(frame))
        return match(self, frame)

    monkeypatch.setattr(ProduceRepeats, "match", counted)
    probes.reset()
    finished(cluster, [send(client, batch) for batch in batches])
    assert runs_taken() == 0
    assert len(compared) <= 2 * len(batches)


# --- how runs end ---------------------------------------------------------------------------------


def codes(answers):
    return [each.responses[0].partition_responses[0].error_code for each in answers]


def owes_nothing(leader, client):
    account = leader.broker.context.ledger._accounts[client.connection]
    return (account.requests, account.request_bytes) == (0, 0)


def test_a_run_whose_time_is_up_is_unknown_and_stays():
    cluster = led_topic()
    leader = cluster.leader("t")
    client = connected(cluster, leader.number)
    hold_acknowledgements(cluster, leader)
    pending = [send(client, good(number), timeout_ms=100) for number in range(5)]
    answers = finished(cluster, pending)
    assert codes(answers) == [ErrorCode.REQUEST_TIMED_OUT] * 5
    assert owes_nothing(leader, client)
    assert client.order[-5:] == sorted(client.order[-5:])
    cluster.world.network.heal()
    cluster.run(2)
    assert len(cluster.read_all("t")) == 6


def test_a_run_that_too_few_hold_when_the_set_shrinks():
    """Committed by two, while the third, whom the topic wants too, is not heard of; then it is
    gone."""
    cluster = led_topic(configs=[("min.insync.replicas", "3")])
    leader = cluster.leader("t")
    client = connected(cluster, leader.number)
    lost = next(node for node in cluster.world.running() if node is not leader)
    cluster.world.network.hold([(lost.number, leader.number)])
    probes.reset()
    pending = [send(client, good(number)) for number in range(5)]
    cluster.run(0.05)
    assert runs_taken() == 1
    assert not any(each.done for each in pending)
    assert leader.broker.context.router.replica("t", 0).high_watermark == 6
    lost.crash()
    answers = finished(cluster, pending)
    assert codes(answers) == [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND] * 5
    assert owes_nothing(leader, client)


def test_runs_of_both_acks_and_other_requests_are_answered_in_order():
    cluster = led_topic()
    leader = cluster.leader("t")
    client = connected(cluster, leader.number)
    probes.reset()
    pending = []
    for acks in (-1, 1, -1, 1):
        pending += [send(client, good(number), acks=acks) for number in range(4)]
        pending.append(client.request(ApiKey.METADATA, MetadataRequest(None, False), 12))
    answers = finished(cluster, pending)
    assert runs_taken() == 4
    produced = [each for each in answers if hasattr(each, "responses")]
    offsets = [each.responses[0].partition_responses[0].base_offset for each in produced]
    assert offsets == list(range(1, 17))
    assert owes_nothing(leader, client)


def test_a_segment_that_begins_in_the_midst_of_a_run():
    cluster = led_topic(configs=[("segment.bytes", "65536")])
    leader = cluster.leader("t")
    client = connected(cluster, leader.number)
    values = [b"%d" % number * 30_000 for number in range(9)]
    probes.reset()
    answers = finished(cluster, [send(client, batch_of(value)) for value in values])
    assert runs_taken() >= 1
    assert codes(answers) == [0] * 9
    assert [value for _, value in cluster.read_all("t")] == [b"first", *values]
    assert len(leader.broker.context.router.replica("t", 0).log.segments) >= 4


def test_a_topic_that_is_deleted_under_a_run():
    cluster = led_topic()
    leader = cluster.leader("t")
    client = connected(cluster, leader.number)
    pending = undecided(cluster, client, leader)
    body = DeleteTopicsRequest((DeleteTopicState("t"),), ("t",), 5_000)
    deleted = HeapClient(leader).connect().request(ApiKey.DELETE_TOPICS, body)
    cluster.run(0.2)
    cluster.world.network.heal()
    answers = finished(cluster, [*pending, deleted])[:-1]
    assert len(set(codes(answers))) == 1
    assert owes_nothing(leader, client)
    late = finished(cluster, [send(client, good(number)) for number in range(4)])
    assert codes(late) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 4


@pytest.mark.parametrize("call", ["write", "sync"])
def test_a_disk_that_fails_under_a_run(call):
    cluster = led_topic()
    leader = cluster.leader("t")
    client = connected(cluster, leader.number)
    path = leader.broker.context.router.replica("t", 0).log.spec.path
    leader.disk.fail(call, path)
    hold_acknowledgements(cluster, leader)
    began = cluster.world.now
    answers = finished(cluster, [send(client, good(number)) for number in range(5)])
    assert cluster.world.now - began < leader.config.election_ns / 2, "not for its followers' sake"
    assert codes(answers) == [ErrorCode.REQUEST_TIMED_OUT] * 5
    if call == "sync":
        assert client.connection is None, "after its answers; the directory is poisoned"
    else:
        assert owes_nothing(leader, client)

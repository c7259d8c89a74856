"""Any weather: records that were acknowledged are in the log once, in order, where it was said.

Hypothesis draws sends and faults; at the end all faults stop and everything must settle. The
cluster in memory keeps the rules of idempotence, so a sequence sent wrongly shows as a duplicate,
a gap or an error.
"""

from hypothesis import given, settings
from hypothesis import strategies as st

from raftlog.base.units import millis
from raftlog.client.core.errors import OutcomeUnknown
from raftlog.kafka.versions import ApiKey
from tests.client.test_producer import start

PASSING = (2, 3, 5, 6, 7, 9, 13, 19, 20, 56, 74)

STEPS = st.one_of(
    st.tuples(st.just("send"), st.integers(1, 12)),
    st.tuples(st.just("run"), st.integers(1, 400)),
    st.tuples(st.just("refuse"), st.sampled_from(PASSING)),
    st.tuples(st.just("forget"), st.sampled_from((45, 47, 59))),
    st.tuples(st.just("never"), st.sampled_from((10, 87))),
    st.tuples(st.just("lose"), st.integers(1, 3)),
    st.tuples(st.just("cut"), st.integers(1, 3)),
    st.tuples(st.just("garble"), st.just(1)),
    st.tuples(st.just("move"), st.integers(1, 3)),
    st.tuples(st.just("pause"), st.integers(1, 3)),
    st.tuples(st.just("resume"), st.just(0)),
    st.tuples(st.just("kill"), st.integers(1, 3)),
    st.tuples(st.just("revive"), st.just(0)),
    st.tuples(st.just("leaderless"), st.just(0)),
)


def play(harness, step, sent):
    """One step; the records it sent are added to `sent`."""
    cluster, (kind, number) = harness.cluster, step
    match kind:
        case "send":
            for _ in range(number):
                value = b"%06d" % len(sent)
                sent.append((value, harness.send("t", value, partition=len(sent) % 2)))
            harness.turn()
        case "run":
            harness.run_for(millis(number))
        case "refuse" | "forget" | "never":
            cluster.refuse(ApiKey.PRODUCE, number)
        case "lose":
            cluster.losses[ApiKey.PRODUCE] += number
        case "cut":
            cluster.cuts[ApiKey.PRODUCE] += number
        case "garble":
            cluster.garbled += 1
        case "move":
            cluster.move("t", number % 2, number)
        case "leaderless":
            cluster.move("t", 0, -1)
        case "pause":
            cluster.paused.add(number)
        case "resume":
            cluster.paused.clear()
        case "kill":
            if len(cluster.dead) < 2:
                harness.kill(number)
        case "revive":
            cluster.dead.clear()


def calm(harness):
    """All faults stop; living brokers lead."""
    cluster = harness.cluster
    cluster.paused.clear()
    cluster.dead.clear()
    cluster.refusals.clear()
    cluster.losses.clear()
    cluster.cuts.clear()
    cluster.garbled = 0
    for partition in range(2):
        cluster.move("t", partition, 1 + partition)


@settings(max_examples=150)
@given(st.lists(STEPS, min_size=3, max_size=60))
def test_acknowledged_records_are_there_once_in_order_and_where_it_was_said(steps):
    harness, log = start(2, batch_bytes=150)
    sent = []
    for step in steps:
        play(harness, step, sent)
    calm(harness)
    harness.settle()
    assert harness.core.producer.unsettled_bytes == 0
    check(log, sent)


@settings(max_examples=50)
@given(st.lists(STEPS, min_size=3, max_size=40))
def test_the_same_with_little_time(steps):
    """A short delivery timeout makes outcomes unknown; what is acknowledged must hold all the
    same, and what comes after is acknowledged again."""
    harness, log = start(2, batch_bytes=150, delivery_timeout_ns=millis(700))
    sent = []
    for step in steps:
        play(harness, step, sent)
    calm(harness)
    harness.settle()
    harness.run_for(millis(2000))
    last = (b"last", harness.send("t", b"last", partition=0))
    harness.settle()
    assert last[1].batch.error is None
    check(log, [*sent, last])


def check(log, sent):
    where = [partition.values() for partition in log]
    for value, record in sent:
        copies = [values.count(value) for values in where]
        if record.batch.error is None:
            position = record.position()
            assert sum(copies) == 1, (value, copies)
            if position.offset >= 0:
                assert where[position.partition][position.offset] == value
        elif not isinstance(record.batch.error, OutcomeUnknown):
            assert sum(copies) == 0, (value, record.batch.error)
        else:
            assert sum(copies) <= 1, (value, copies)
    for partition, values in enumerate(where):
        kept = [
            value
            for value, record in sent
            if record.batch.error is None and record.batch.place.partition == partition
        ]
        assert [value for value in values if value in set(kept)] == kept

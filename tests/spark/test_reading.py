"""A task's reader against a client that plays a log with holes: compaction is told from loss, loss
is an error or a warning, and whatever happens no record comes twice and none goes back.

Brokers of ours compact nothing, so here the client is a stand-in: it gives out batches, troubles
and settings as the real one would for a topic of another cluster.
"""

import warnings
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.errors import OperatingError
from raftlog.client.core import asks
from raftlog.client.core.errors import KafkaError, LogTruncated
from raftlog.client.core.fetched import FetchedBatches
from raftlog.client.core.fetcher import Trouble
from raftlog.client.core.values import TopicPartition
from raftlog.kafka.error_codes import ErrorCode
from raftlog.spark.connector import reading
from raftlog.spark.connector.offsets import DataLoss, Range, TopicPlace
from raftlog.spark.connector.options import Mode, read_options
from raftlog.spark.connector.reading import RangeReader
from tests.spark.batches import built, by_hand, record

PLACE = TopicPartition("orders", 0)


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch):
    """Brokers are asked as often before loss is told, but at once."""
    monkeypatch.setattr(reading, "WAITS_SECONDS", (0.0, 0.0, 0.0))


TOPIC_ID = "0" * 31 + "1"
OTHER_ID = "0" * 31 + "2"


class StandIn:
    """A client of one partition. `log` maps the first offset of a batch to the batch."""

    def __init__(self, log, *, first=0, policy="delete", fails=()):
        self.log = dict(sorted(log.items()))
        self.first = first
        self.policy = policy
        self.fails = list(fails)
        """Errors to give instead of records, before the rest."""
        self.topic_id = TOPIC_ID
        self.position = 0
        self.sought = []
        self.per_poll = 2

    @property
    def end(self):
        return max((base + _width(batch) for base, batch in self.log.items()), default=self.first)

    def assign(self, positions):
        (self.position,) = positions.values()

    def seek(self, place, offset):
        assert place == PLACE
        assert offset >= self.position, "a reader went back"
        self.sought.append(int(offset))
        self.position = offset

    def poll(self, *, seconds, bytes_max):
        del seconds, bytes_max
        if self.fails:
            return [Trouble(PLACE, self.position, self.fails.pop(0))]
        if not self.first <= self.position <= self.end:
            code = ErrorCode.OFFSET_OUT_OF_RANGE
            return [Trouble(PLACE, self.position, KafkaError(code))]
        pieces = []
        for base, batch in self.log.items():
            if base + _width(batch) > self.position and len(pieces) < self.per_poll:
                end = base + _width(batch)
                pieces.append(
                    FetchedBatches(PLACE, self.position, end, 99, 0, 0, (memoryview(batch),))
                )
                self.position = end
        return pieces

    def describe(self, topic):
        if self.topic_id is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return SimpleNamespace(topic_id=bytes.fromhex(self.topic_id))

    def offset(self, place, which):
        return SimpleNamespace(offset=self.first if which == asks.EARLIEST else self.end)

    def ask(self, request):
        settings = {} if self.policy is None else {"cleanup.policy": _setting(self.policy)}
        return {"orders": settings}


def _setting(value):
    return SimpleNamespace(value=value)


def _width(batch):
    return int.from_bytes(batch[23:27], "big", signed=True) + 1


def full(base, count):
    """A batch with a record at each offset."""
    return built([(1, None, b"%d" % (base + at), ()) for at in range(count)], base=base)


def thinned(base, deltas, last):
    """A batch of which compaction has left these records."""
    body = b"".join(record(delta, value=b"%d" % (base + delta)) for delta in deltas)
    return by_hand(body, count=len(deltas), last_delta=last, base=base)


def reader(client, start, stop, **options):
    given = {"bootstrap.servers": "h:1", "subscribe": "orders", "decoder": "numpy"} | options
    planned = Range(TopicPlace("orders", 0), TOPIC_ID, start, stop)
    return RangeReader(client, planned, ("offset", "value"), read_options(given, Mode.BATCH))


def offsets(client, start, stop, **options):
    found = []
    for rows in reader(client, start, stop, **options).batches():
        for offset, value in zip(*(rows.column(at).to_pylist() for at in (0, 1)), strict=True):
            assert value == b"%d" % offset
            found.append(offset)
    return found


# --- holes ----------------------------------------------------------------------------------------

THINNED = {0: thinned(0, [1, 4], 5), 6: full(6, 2), 12: full(12, 3)}


def test_holes_of_a_compacted_topic_are_no_loss():
    assert offsets(StandIn(THINNED, policy="compact"), 0, 15) == [1, 4, 6, 7, 12, 13, 14]
    assert offsets(StandIn(THINNED, policy="compact,delete"), 5, 13) == [6, 7, 12]


def test_a_range_may_lie_in_a_hole():
    """Both borders, or one, or all of it: the reader ends at the first batch beyond."""
    assert offsets(StandIn(THINNED, policy="compact"), 9, 11) == []
    assert offsets(StandIn(THINNED, policy="compact"), 7, 11) == [7]
    assert offsets(StandIn(THINNED, policy="compact"), 2, 4) == []


@pytest.mark.parametrize("policy", ["delete", "", None])
def test_the_same_holes_are_loss_where_nothing_is_compacted(policy):
    with pytest.raises(DataLoss, match="4 of the offsets 0 to 5 are missing"):
        offsets(StandIn(THINNED, policy=policy), 0, 15)
    with pytest.raises(DataLoss, match="offsets 8 to 11 are missing, and the topic is not compac"):
        offsets(StandIn(THINNED, policy=policy), 6, 15)
    assert offsets(StandIn(THINNED, policy=policy), 6, 8) == [6, 7]


def test_accepted_loss_is_warned_of_and_read_over():
    with pytest.warns(UserWarning, match="data loss, accepted") as told:
        found = offsets(StandIn(THINNED), 0, 15, failOnDataLoss="false")
    assert found == [1, 4, 6, 7, 12, 13, 14]
    assert len(told) == 2


def test_records_before_a_hole_are_given_out_before_the_error():
    client = StandIn({0: full(0, 3), 5: full(5, 2)})
    batches = reader(client, 0, 7).batches()
    assert next(batches).column(0).to_pylist() == [0, 1, 2]
    with pytest.raises(DataLoss, match="offsets 3 to 4 are missing"):
        next(batches)


# --- retention ------------------------------------------------------------------------------------


class Deleting(StandIn):
    """Retention deletes up to an offset once the first batches were read."""

    def __init__(self, log, *, up_to, **more):
        super().__init__(log, **more)
        self.up_to = up_to
        self.per_poll = 1

    def poll(self, *, seconds, bytes_max):
        found = super().poll(seconds=seconds, bytes_max=bytes_max)
        self.first = self.up_to
        self.log = {base: batch for base, batch in self.log.items() if base >= self.up_to}
        return found


TENS = {base: full(base, 10) for base in range(0, 60, 10)}


def test_retention_in_the_middle_of_a_task_is_loss():
    with pytest.raises(DataLoss, match="offsets 10 to 29 were deleted; the log begins at 30"):
        offsets(Deleting(TENS, up_to=30), 0, 50)


def test_retention_is_read_over_where_loss_is_accepted():
    client = Deleting(TENS, up_to=30)
    with pytest.warns(UserWarning, match="offsets 10 to 29 were deleted"):
        found = offsets(client, 0, 45, failOnDataLoss="false")
    assert found == [*range(10), *range(30, 45)]
    assert client.sought == [30]


def test_retention_beyond_the_range_ends_the_task():
    """All that is left of the range was deleted: no more of the loss is told than was asked for,
    and nothing is sought."""
    client = Deleting(TENS, up_to=50)
    with pytest.warns(UserWarning, match="offsets 10 to 24 were deleted; the log begins at 50"):
        assert offsets(client, 0, 25, failOnDataLoss="false") == [*range(10)]
    assert client.sought == []


def test_retention_of_a_compacted_topic_is_loss_too():
    with pytest.raises(DataLoss, match="were deleted"):
        offsets(Deleting(TENS, up_to=30, policy="compact"), 0, 50)


# --- other troubles -------------------------------------------------------------------------------


def test_out_of_range_that_is_over_is_tried_again():
    """A new leader did not know the end yet: the offset is there, so the reader asks again."""
    client = StandIn(TENS, fails=[KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)])
    assert offsets(client, 20, 30) == [*range(20, 30)]
    assert client.sought == [20]


def test_a_log_that_ends_before_the_range_is_never_rewound():
    with pytest.raises(DataLoss, match="offset 70 is out of range: the log ends at 60"):
        offsets(StandIn(TENS), 70, 80)
    with pytest.warns(UserWarning, match="out of range"):
        assert offsets(StandIn(TENS), 70, 80, failOnDataLoss="false") == []


@pytest.mark.parametrize(("now", "said"), [(OTHER_ID, "created again"), (None, "was deleted")])
def test_another_topic_under_the_name(now, said):
    """The brokers say so in the middle of a task: records of the new topic are not read."""
    client = StandIn(TENS)
    client.per_poll = 1
    batches = reader(client, 0, 60).batches()
    assert next(batches).num_rows == 10
    client.topic_id = now
    client.fails = [KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)]
    with pytest.raises(DataLoss, match=said):
        next(batches)


@pytest.mark.parametrize("now", [OTHER_ID, None])
def test_another_topic_where_loss_is_accepted_ends_the_range(now):
    """The broker's error was raised behind the warning, and the query failed all the same."""
    client = StandIn(TENS)
    client.per_poll = 1
    batches = reader(client, 0, 60, failOnDataLoss="false").batches()
    assert next(batches).num_rows == 10
    client.topic_id = now
    client.fails = [KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)]
    with pytest.warns(UserWarning, match="data loss, accepted"):
        assert list(batches) == []


def test_a_broker_that_is_behind_tells_no_loss(monkeypatch):
    """It does not know the topic yet, or only fewer records, and is asked again."""
    client = StandIn(TENS, fails=[KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)])
    ids, ends = [None, OTHER_ID], [7, 60]
    describe = client.describe

    def behind(topic):
        client.topic_id = ids.pop(0) if ids else TOPIC_ID
        return describe(topic)

    def offset(place, which):
        return SimpleNamespace(offset=0 if which == asks.EARLIEST else ends.pop(0))

    monkeypatch.setattr(client, "describe", behind)
    monkeypatch.setattr(client, "offset", offset)
    assert offsets(client, 20, 30) == [*range(20, 30)]
    assert (ids, ends) == ([], [])


def test_a_log_that_was_cut_off_is_loss():
    """It is told as such, and where that is accepted the task goes on with what is left."""
    error = LogTruncated("the log has ended epoch 3 at offset 5, before what was read")
    with pytest.raises(DataLoss, match="ended epoch 3 at offset 5"):
        offsets(StandIn(TENS, fails=[error]), 20, 30)
    client = StandIn(TENS, fails=[error])
    with pytest.warns(UserWarning, match="ended epoch 3"):
        assert offsets(client, 20, 30, failOnDataLoss="false") == [*range(20, 30)]
    assert client.sought == [20]


def test_trouble_without_progress_ends_in_an_error():
    """A broker that says out of range, again and again, of an offset that is in range: the task
    asked without end, for each trouble counted as a sign of life."""
    error = KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    client = StandIn(TENS, fails=[error] * 1_000_000)
    client.poll = lambda **_: [] if len(client.sought) > 100_000 else [Trouble(PLACE, 3, error)]
    with pytest.raises(OperatingError, match="nothing was read for 50 ms, at offset 3"):
        offsets(client, 3, 9, **{"kafkaConsumer.pollTimeoutMs": "50"})
    assert len(client.sought) < 100_000


def test_the_time_that_rows_are_used_is_no_silence(monkeypatch):
    """A slow query took longer with a batch than the poll timeout: the next poll that found nothing
    at once ended the task."""
    client = StandIn(TENS)
    client.per_poll = 1
    clock = [100.0]
    monkeypatch.setattr(reading.time, "monotonic", lambda: clock[0])
    batches = reader(client, 0, 20).batches()
    assert next(batches).num_rows == 10
    clock[0] += 500
    poll, empty = client.poll, [[]]
    monkeypatch.setattr(client, "poll", lambda **more: empty.pop() if empty else poll(**more))
    assert next(batches).num_rows == 10


def test_an_error_that_is_nobodys_loss_is_raised_as_it_is():
    error = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaError) as raised:
        offsets(StandIn(TENS, fails=[error]), 0, 60)
    assert raised.value is error


def test_silence_ends_in_an_error(monkeypatch):
    client = StandIn(TENS)
    monkeypatch.setattr(client, "poll", lambda **_: [])
    with pytest.raises(OperatingError, match="nothing was read for 1 ms, at offset 3 of up to 9"):
        offsets(client, 3, 9, **{"kafkaConsumer.pollTimeoutMs": "1"})


# --- any log --------------------------------------------------------------------------------------


@given(st.data())
def test_a_compacted_log_is_read_whole_from_anywhere(data):
    """The rest of a random log is read in any range, with any number of batches a poll."""
    base, log, left = 0, {}, []
    for _ in range(data.draw(st.integers(1, 6))):
        base += data.draw(st.sampled_from([0, 0, 1, 7]))
        last = data.draw(st.integers(0, 8))
        deltas = sorted(data.draw(st.sets(st.integers(0, last), min_size=1)))
        log[base] = thinned(base, deltas, last)
        left += [base + delta for delta in deltas]
        base += last + 1
    start = data.draw(st.integers(0, base - 1))
    stop = data.draw(st.integers(start, base))
    client = StandIn(log, policy="compact")
    client.per_poll = data.draw(st.integers(1, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert offsets(client, start, stop) == [at for at in left if start <= at < stop]

"""A wrapped client behaves as the client does. No broker listens at the addresses."""

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, SerializingProducer
from confluent_kafka.serialization import StringSerializer

from raftlog import verify
from raftlog.base.errors import LocalMisuse, WrongValue
from raftlog.runtime.local.ports import free_ports
from tests.embed.recording.applications import lines_of, sends_of


@pytest.fixture
def history(tmp_path):
    with verify.recording(tmp_path / "history.jsonl") as history:
        yield history


@pytest.fixture
def nowhere():
    return {
        "bootstrap.servers": f"127.0.0.1:{free_ports(1)[0]}",
        "log_level": 0,
        "message.timeout.ms": 200,
    }


def consumer_of(nowhere):
    settings = {**nowhere, "group.id": "shop"}
    del settings["message.timeout.ms"]
    return Consumer(settings)


def test_a_producer_is_seen_as_its_class_and_has_its_attributes(history, nowhere):
    original = Producer(nowhere)
    producer = verify.record(original, history)
    assert isinstance(producer, Producer)
    assert len(producer) >= 0  # librdkafka counts its own events as well
    assert bool(producer) == bool(original)
    assert dir(producer) == dir(original)
    assert producer.poll(0) >= 0
    with pytest.raises(AttributeError):
        _ = producer.no_such_thing
    with producer as entered:
        assert entered is producer


def test_delivery_callbacks_are_called_once_each_by_either_name(history, nowhere):
    producer = verify.record(Producer(nowhere), history)
    told = []
    for name in ("on_delivery", "callback"):
        producer.produce("orders", name, **{name: lambda *each: told.append(each)})
    producer.produce("orders", "positional", None, -1, lambda *each: told.append(each))
    producer.flush(30)
    assert [error.name() for error, _ in told] == ["_MSG_TIMED_OUT"] * 3
    assert sorted(message.value() for _, message in told) == [
        b"callback",
        b"on_delivery",
        b"positional",
    ]


def test_the_error_of_a_callback_comes_where_it_came(history, nowhere):
    producer = verify.record(Producer(nowhere), history)

    def fail(error, message):
        raise ZeroDivisionError

    producer.produce("orders", "a", on_delivery=fail)
    with pytest.raises(ZeroDivisionError):
        producer.flush(30)


def test_a_callback_of_the_configuration_has_to_be_handed_over(history, nowhere):
    told = []

    def told_of(error, message):
        told.append(message.value())

    original = Producer({**nowhere, "on_delivery": told_of})
    with pytest.raises(LocalMisuse, match="on_delivery=told"):
        verify.record(original, history)
    producer = verify.record(original, history, on_delivery=told_of)
    producer.produce("orders", "a")
    producer.flush(30)
    assert told == [b"a"]


def test_a_full_queue_is_a_refusal_and_may_be_tried_again(history, nowhere):
    producer = verify.record(Producer({**nowhere, "queue.buffering.max.messages": 1}), history)
    producer.produce("orders", "one")
    with pytest.raises(BufferError):
        producer.produce("orders", "two")
    with pytest.raises(BufferError):
        producer.produce("orders", "three")
    producer.flush(30)
    producer.produce("orders", "two")
    producer.flush(30)
    history.judge()
    sends = {
        value: [line["type"] for line in each] for value, each in sends_of(history.path).items()
    }
    assert sends == {
        "one": ["invoke", "info"],
        "two": ["invoke", "info"],
        "three": ["invoke", "fail"],
    }


def test_what_is_too_large_is_a_refusal(history, nowhere):
    producer = verify.record(Producer({**nowhere, "message.max.bytes": 1000}), history)
    with pytest.raises(KafkaException):
        producer.produce("orders", "x" * 2000)
    history.judge()
    assert [line["type"] for line in lines_of(history.path)] == ["invoke", "fail"]


@pytest.mark.parametrize("call", [lambda p: p.produce(), lambda p: p.produce("t", topic="t")])
def test_wrong_calls_raise_what_the_client_raises(history, nowhere, call):
    with pytest.raises(TypeError):
        call(verify.record(Producer(nowhere), history))
    assert lines_of(history.path) == []


def test_what_cannot_be_recorded_is_refused_by_name(history, nowhere):
    producer = verify.record(Producer({**nowhere, "transactional.id": "t"}), history)
    for call in (producer.init_transactions, producer.begin_transaction):
        with pytest.raises(LocalMisuse, match="transactional"):
            call()
    with pytest.raises(LocalMisuse, match="one by one"):
        producer.produce_batch("orders", [{"value": b"a"}])


def test_a_client_is_recorded_once(history, nowhere):
    with pytest.raises(LocalMisuse, match="already"):
        verify.record(verify.record(Producer(nowhere), history), history)


def test_a_value_that_repeats_is_refused_before_it_is_sent(history, nowhere):
    producer, told = verify.record(Producer(nowhere), history), []
    producer.produce("orders", "a", on_delivery=lambda *each: told.append(each))
    with pytest.raises(WrongValue, match="sent before"):
        producer.produce("orders", "a", on_delivery=lambda *each: told.append(each))
    producer.flush(30)
    assert len(told) == 1
    by_key = verify.record(Producer(nowhere), history, identity=lambda record: record.key)
    by_key.produce("orders", "same", key="1")
    by_key.produce("orders", "same", key="2")
    assert list(sends_of(history.path)) == ["a", "1", "2"]


def test_a_serializing_producer_takes_key_before_value(history, nowhere):
    serializer = StringSerializer("utf_8")
    producer = SerializingProducer(
        {**nowhere, "key.serializer": serializer, "value.serializer": serializer}
    )
    producer = verify.record(producer, history)
    producer.produce("orders", "the key", "the value")
    producer.flush(30)
    assert list(sends_of(history.path)) == ["the value"]


def test_topics_that_are_not_named_are_not_recorded(tmp_path, nowhere):
    with verify.recording(tmp_path / "h.jsonl", topics=["orders"]) as history:
        producer = verify.record(Producer(nowhere), history)
        producer.produce("others", "a")
        producer.produce("others", "a")
        producer.produce("orders", "a")
        producer.flush(30)
    assert list(sends_of(tmp_path / "h.jsonl")) == ["a"]
    assert {line["key"] for line in lines_of(tmp_path / "h.jsonl")} == {"orders/?"}


def test_a_poll_without_records_read_nothing(history, nowhere):
    consumer = verify.record(consumer_of(nowhere), history)
    assert isinstance(consumer, Consumer)
    assert consumer.poll(0.01) is None
    assert consumer.consume(5, 0.01) == []
    consumer.close()
    with pytest.raises(RuntimeError):
        consumer.poll(0)
    history.judge()
    kinds = [(line["f"], line["type"]) for line in lines_of(history.path)]
    assert kinds == [("poll", "invoke"), ("poll", "ok")] * 2 + [
        ("poll", "invoke"),
        ("poll", "info"),
    ]


def test_after_the_recording_clients_say_so(tmp_path, nowhere):
    with verify.recording(tmp_path / "h.jsonl") as history:
        producer = verify.record(Producer(nowhere), history)
        producer.produce("orders", "a")
    producer.flush(30)  # the callback finds the history closed
    with pytest.raises(LocalMisuse, match="not being recorded"):
        producer.produce("orders", "b")

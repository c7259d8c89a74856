"""A performed request is remembered as long as a broker may ask for it again, and no longer."""

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.errors import CorruptData, ProtocolError
from raftlog.base.ids import NodeId
from raftlog.base.limits import BROKERS_MAX, PERFORMED_MAX
from raftlog.metadata import commands as c
from raftlog.metadata import requests as r
from raftlog.metadata.image import decode_snapshot, encode_image, encode_snapshot
from raftlog.metadata.performed import Done, OnceId, Performed
from raftlog.metadata.refusals import Refusal
from raftlog.metadata.rules.apply import apply
from tests.metadata.clusters import FLIGHTS, ORDERS, cluster, do, registration, topic


def once(number, settled=1, node=2, boot=1):
    incarnation = registration(node, boot).incarnation
    return OnceId(node=NodeId(node), incarnation=incarnation, number=number, settled=settled)


def made(image, number=1, settled=1, **changes):
    return apply(image, topic(image, (1,), **changes), once(number, settled))


def numbers(image):
    known = image.performed.get(NodeId(2))
    return [] if known is None else [done.number for done in known.done]


def test_performed_again_changes_nothing_even_when_it_was_undone():
    image = made(cluster(1, 2)).image
    image = do(image, c.DeleteTopic(topic_id=ORDERS))
    again = made(image)
    assert again.done
    assert again.image is image


def test_without_a_number_the_topic_comes_back():
    """The numbers exist to prevent this."""
    image = cluster(1, 2)
    create = topic(image, (1,))
    image = do(image, create, c.DeleteTopic(topic_id=ORDERS), create)
    assert ORDERS in image.topics


def test_what_was_given_is_given_again():
    """Without the value of the first try, every broker that asked twice for producer ids would get
    those from 0 on, and two producers the same id."""
    image = do(cluster(1, 2), c.AllocateProducerIds(node=NodeId(1), count=5))
    ids = c.AllocateProducerIds(node=NodeId(2), count=1000)
    first = apply(image, ids, once(1))
    assert first.value == 5
    image = do(first.image, c.AllocateProducerIds(node=NodeId(1), count=7))
    again = apply(image, ids, once(1))
    assert (again.value, again.image) == (5, image)


def test_refused_and_unchanged_is_not_remembered():
    image = made(cluster(1, 2)).image
    refused = made(image, 2, topic_id=FLIGHTS)
    assert refused.refusal is Refusal.TOPIC_EXISTS
    assert refused.image is image
    same = apply(image, topic(image, (1,)), once(3))
    assert same.done
    assert same.image is image


def test_the_version_rises_by_one_as_without_a_number():
    image = cluster(1, 2)
    assert made(image).image.version == image.version + 1


def test_answered_requests_are_forgotten_and_refused():
    image = made(cluster(1, 2), 1).image
    image = made(image, 2, name="flights", topic_id=FLIGHTS).image
    assert numbers(image) == [1, 2]
    image = apply(image, c.DeleteTopic(topic_id=ORDERS), once(3, settled=3)).image
    assert numbers(image) == [3]
    assert made(image, 2).refusal is Refusal.STALE
    late = made(image, 4, settled=1)
    assert late.done, "an older word about what is settled takes nothing back"
    assert late.image.performed[NodeId(2)].settled == 3


def test_a_boot_that_is_not_the_registered_one_is_told_to_wait():
    image = cluster(1, 2)
    create = topic(image, (1,))
    for stranger in (once(1, boot=2), once(1, node=7)):
        applied = apply(image, create, stranger)
        assert (applied.refusal, applied.image) == (Refusal.BUSY, image)


def test_a_new_boot_counts_anew():
    image = made(cluster(1, 2), 5, settled=5).image
    image = do(image, registration(2, boot=2))
    assert made(image, 6).refusal is Refusal.BUSY
    delete = apply(image, c.DeleteTopic(topic_id=ORDERS), once(1, boot=2))
    assert delete.done
    assert numbers(delete.image) == [1]


def test_a_boot_that_was_unregistered_and_comes_back_asks_on():
    """It was only cut off; what it had asked for was performed a second time."""
    image = do(cluster(1), registration(4))
    ids = c.AllocateProducerIds(node=NodeId(4), count=1)
    first = apply(image, ids, once(1, node=4))
    image = do(first.image, c.UnregisterBroker(node=NodeId(4)))
    assert apply(image, ids, once(2, node=4)).refusal is Refusal.BUSY
    image = do(image, registration(4))
    again = apply(image, ids, once(1, node=4))
    assert (again.value, again.image) == (first.value, image)


def test_who_asks_for_its_own_unregistration_is_remembered():
    image = do(cluster(1), registration(4))
    unregister = c.UnregisterBroker(node=NodeId(4))
    image = do(apply(image, unregister, once(1, node=4)).image, registration(4))
    assert apply(image, unregister, once(1, node=4)).done
    assert NodeId(4) in image.brokers


def test_brokers_that_are_gone_make_room_for_those_that_are_there():
    """The snapshot of an image that remembers more than BROKERS_MAX would not be read."""
    image = made(cluster(1, 2)).image
    known = image.performed[NodeId(2)]
    gone = {NodeId(100 + n): known for n in range(BROKERS_MAX - 1)}
    image = attrs.evolve(image, performed={**gone, **image.performed})
    image = made(image, 2, name="flights", topic_id=FLIGHTS).image
    assert len(image.performed) == BROKERS_MAX
    image = apply(image, c.DeleteTopic(topic_id=ORDERS), once(1, node=1)).image
    assert set(image.performed) == {1, 2}
    assert decode_snapshot(encode_snapshot(image)) == image


def test_who_says_that_its_own_request_was_answered_is_refused():
    """Remembered, it would refuse every later request of that boot."""
    image = cluster(1, 2)
    for settled in (2, 2**64 - 1):
        applied = made(image, 1, settled=settled)
        assert (applied.refusal, applied.image) == (Refusal.MALFORMED, image)


def test_a_closed_request_is_not_performed():
    image = cluster(1, 2)
    close = c.CloseRequest(refusal=Refusal.TOPIC_EXISTS)
    closed = apply(image, close, once(1))
    assert closed.done
    assert closed.image.version == image.version + 1
    assert decode_snapshot(encode_snapshot(closed.image)) == closed.image
    late = made(closed.image, 1)
    assert (late.refusal, late.image) == (Refusal.TOPIC_EXISTS, closed.image)
    assert numbers(made(closed.image, 2, settled=2).image) == [2]


def test_what_was_performed_is_not_closed():
    first = made(cluster(1, 2))
    close = apply(first.image, c.CloseRequest(refusal=Refusal.TOPIC_EXISTS), once(1))
    assert (close.refusal, close.image) == (None, first.image)
    assert apply(first.image, c.CloseRequest(refusal=None)).refusal is Refusal.MALFORMED


def test_what_is_remembered_is_bounded():
    image = cluster(1, 2)
    known = Performed(
        incarnation=once(1).incarnation,
        settled=1,
        done=tuple(Done(n) for n in range(1, PERFORMED_MAX + 1)),
    )
    image = attrs.evolve(image, performed={NodeId(2): known})
    assert made(image, PERFORMED_MAX + 1).refusal is Refusal.BUSY
    room = made(image, PERFORMED_MAX + 1, settled=2)
    assert room.done
    assert len(numbers(room.image)) == PERFORMED_MAX


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), max_size=60))
def test_against_a_set(requests):
    """Each number is performed at most once, and never after it was settled."""
    image, performed, floor = cluster(1, 2), set(), 0
    for number, told in requests:
        settled = min(told, number)
        ids = c.AllocateProducerIds(node=NodeId(2), count=1)
        before = image.next_producer_id
        applied = apply(image, ids, once(number, settled))
        ran = number not in performed and number >= floor
        assert applied.image.next_producer_id == before + ran, (number, settled)
        assert applied.done == (ran or number >= floor)
        image = applied.image
        if ran:
            performed.add(number)
            floor = max(floor, settled)
        assert numbers(image) == sorted(n for n in performed if n >= floor)


def test_images_carry_it_and_are_canonical():
    image = made(cluster(1, 2), 7, settled=3).image
    assert decode_snapshot(encode_snapshot(image)) == image
    known = image.performed[NodeId(2)]
    for done in (
        (Done(7), Done(3)),
        (Done(7), Done(7, 1)),
        (Done(2), Done(7)),
        (),
    ):
        wrong = attrs.evolve(image, performed={NodeId(2): attrs.evolve(known, done=done)})
        with pytest.raises(CorruptData, match=r"in order|repeats|answered"):
            decode_snapshot(encode_snapshot(wrong))


def test_an_image_without_any_has_the_bytes_of_version_1():
    image = made(cluster(1, 2)).image
    assert encode_image(image)[8:12] == bytes([0, 2, 0, 2])
    assert encode_image(attrs.evolve(image, performed={}))[8:12] == bytes([0, 1, 0, 1])


def test_a_request_within_a_request_is_refused_before_it_is_read():
    """Nested as deep as a body is long, they would exhaust the stack."""
    nested = b"\x09" + bytes(25)
    with pytest.raises(ProtocolError, match="not for once"):
        r.decode_body(nested * 100_000)
    with pytest.raises(ProtocolError, match="not for once"):
        r.decode_body(nested + r.encode_body(r.CurrentVersion()))

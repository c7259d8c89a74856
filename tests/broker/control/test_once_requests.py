"""A numbered request of a broker is performed once, whichever node is the controller."""

import attrs

from raftlog.base.ids import NodeId
from raftlog.metadata import commands as c
from raftlog.metadata import requests as r
from raftlog.metadata.refusals import Refusal
from tests.broker.control.metadata_rig import SESSION_NS, allocate, commands, create, led
from tests.metadata.clusters import ORDERS, part, report


def once(rig, node, number, request, *, settled=1, again=False):
    """A request that the registered boot of a node numbered."""
    incarnation = rig.image.brokers[NodeId(node)].incarnation
    return r.OnceRequest(
        incarnation=incarnation, number=number, settled=settled, again=again, request=request
    )


def test_a_request_that_was_performed_is_done_whatever_came_after_it():
    rig = led(1, 2, 3)
    request = once(rig, 2, 1, create(count=3))
    assert rig.ask(2, request).error == 0
    (topic_id,) = rig.image.topics
    rig.ask(1, r.SubmitCommand(command=c.DeleteTopic(topic_id=topic_id)))
    before = rig.image
    assert rig.ask(2, request).error == 0
    assert rig.image is before


def test_its_answer_waits_until_the_first_try_is_committed():
    rig = led(1, 2, 3)
    request = once(rig, 2, 1, create())
    first, second = rig.ask(2, request, commit=False), rig.ask(2, request, commit=False)
    assert (first.error, second.error) == (None, None)
    rig.commit()
    assert (first.error, second.error) == (0, 0)
    assert len([one for one in commands(rig) if isinstance(one, c.CreateTopic)]) == 1


def test_the_next_controller_knows_what_was_performed_and_what_it_gave():
    rig = led(1, 2, 3)
    assert rig.ask(1, allocate(1)).answer.value == 0
    request = once(rig, 2, 1, allocate(2))
    rig.ask(2, request, commit=False)
    rig.turn()
    rig.engine.depose(keep=1)
    rig.turn()
    rig.lead(term=2)
    before = rig.image
    answer = rig.ask(2, request).answer
    assert answer.refusal is None
    assert answer.value == before.next_producer_id // 2 > 0
    assert rig.image is before


def test_a_late_copy_of_what_was_answered_is_refused():
    rig = led(1, 2, 3)
    first = once(rig, 2, 1, create())
    assert rig.ask(2, first).error == 0
    (topic_id,) = rig.image.topics
    delete = r.SubmitCommand(command=c.DeleteTopic(topic_id=topic_id))
    assert rig.ask(2, once(rig, 2, 2, delete, settled=2)).error == 0
    assert rig.ask(2, first).answer.refusal is Refusal.STALE
    assert not rig.image.topics


def test_who_is_not_registered_is_asked_to_come_again():
    rig = led(1, 2)
    request = once(rig, 2, 1, create())
    other = rig.ask(2, attrs.evolve(request, incarnation=4711))
    assert (other.error, other.answer.refusal) == (7, Refusal.BUSY)
    rig.services.link(3)
    stranger = rig.ask(3, attrs.evolve(request, incarnation=1))
    assert (stranger.error, stranger.answer.refusal) == (7, Refusal.BUSY)
    assert rig.ask(2, request).error == 0


def test_a_refusal_does_nothing_and_is_judged_anew():
    rig = led(1, 2)
    request = once(rig, 2, 1, create(factor=3))
    assert rig.ask(2, request).error == 38
    rig.join(3)
    assert rig.ask(2, request).error == 0


def test_a_refusal_at_the_second_try_is_kept_from_the_first_one():
    """The first try lay on a link that carried nothing; the client was told of the second."""
    rig = led(1, 2)
    first = once(rig, 2, 1, create(factor=3))
    second = attrs.evolve(first, again=True)
    assert rig.ask(2, second).error == 38
    rig.join(3)
    before = rig.image
    assert rig.ask(2, first).answer.refusal is Refusal.INVALID_REPLICATION_FACTOR
    assert rig.ask(2, second).answer.refusal is Refusal.INVALID_REPLICATION_FACTOR
    assert rig.image is before


def test_the_refusal_of_a_second_try_is_not_told_before_it_is_committed():
    rig = led(1, 2)
    first = once(rig, 2, 1, create(factor=3))
    second = rig.ask(2, attrs.evolve(first, again=True), commit=False)
    assert second.error is None
    rig.turn()
    rig.engine.depose(keep=0)
    rig.turn()
    assert second.error == 41, "the next controller knows nothing of it"


def test_a_second_try_of_what_was_performed_is_done():
    rig = led(1, 2)
    first = once(rig, 2, 1, allocate(2))
    value = rig.ask(2, first).answer.value
    again = rig.ask(2, attrs.evolve(first, again=True)).answer
    assert (again.refusal, again.value) == (None, value)


def test_a_second_try_of_what_changes_nothing_keeps_the_first_from_changing_it_later():
    rig = led(1, 2)
    raise_level = r.SubmitCommand(command=c.RaiseFeatureLevel(level=rig.image.feature_level))
    first = once(rig, 2, 1, raise_level)
    assert rig.ask(2, attrs.evolve(first, again=True)).error == 0
    before = rig.image
    assert rig.ask(2, first).error == 0
    assert rig.image is before


def test_a_cancel_that_had_to_be_asked_twice_is_not_refused_for_its_own_success():
    rig = led(1, 2, 3)
    rig.ask(1, create(count=0, factor=0, nodes=((1, 2),)))
    rig.append(report(rig.image), term=0)
    rig.engine.depose()
    rig.turn()
    rig.lead(term=2)
    move = r.ReassignRequest(topic_id=ORDERS, partition=0, nodes=(2, 3))
    assert rig.ask(2, once(rig, 2, 1, move)).error == 0
    cancel = once(rig, 2, 2, attrs.evolve(move, nodes=()))
    assert rig.ask(2, cancel).error == 0
    assert rig.ask(2, attrs.evolve(cancel, again=True)).error == 0
    assert rig.ask(2, once(rig, 2, 3, cancel.request)).error == 85


def test_a_late_copy_of_a_move_does_not_undo_the_next_one():
    rig = led(1, 2, 3)
    rig.ask(1, create(count=0, factor=0, nodes=((1, 2),)))
    there = once(rig, 2, 1, r.ReassignRequest(topic_id=ORDERS, partition=0, nodes=(2, 3)))
    elsewhere = r.ReassignRequest(topic_id=ORDERS, partition=0, nodes=(1, 3))
    assert rig.ask(2, there).error == 0
    assert rig.ask(1, once(rig, 1, 1, elsewhere)).error == 0
    assert rig.ask(2, there).error == 0
    assert [one.node for one in part(rig.image).target] == [1, 3]


def test_a_move_that_changes_nothing_is_done_and_its_first_try_does_nothing_later():
    rig = led(1, 2, 3)
    rig.ask(1, create(count=0, factor=0, nodes=((1, 2),)))
    stay = once(rig, 2, 1, r.ReassignRequest(topic_id=ORDERS, partition=0, nodes=(1, 2)))
    assert rig.ask(2, attrs.evolve(stay, again=True)).error == 0
    assert rig.ask(1, r.ReassignRequest(topic_id=ORDERS, partition=0, nodes=(2, 3))).error == 0
    assert rig.ask(2, stay).error == 0
    assert [one.node for one in part(rig.image).target] == [2, 3]


def test_a_boot_that_was_unregistered_and_came_back_asks_on():
    rig = led(1, 4)
    request = once(rig, 4, 1, allocate(4))
    value = rig.ask(4, request).answer.value
    rig.pass_time(SESSION_NS * 2)
    rig.ask(1, r.SubmitCommand(command=c.UnregisterBroker(node=NodeId(4))))
    assert NodeId(4) not in rig.image.brokers
    later = attrs.evolve(request, number=2)
    assert rig.ask(4, later).answer.refusal is Refusal.BUSY
    rig.join(4)
    before = rig.image
    assert rig.ask(4, request).answer.value == value
    assert rig.image is before


def test_what_only_validates_is_not_performed():
    rig = led(1, 2)
    request = once(rig, 2, 1, attrs.evolve(create(), validate_only=True))
    assert rig.ask(2, request).error == 0
    assert not rig.image.topics
    assert not rig.image.performed

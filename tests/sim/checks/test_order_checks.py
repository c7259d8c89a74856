"""The order in which the produce requests of one connection are appended."""

from raftlog_sim.checks.order_checks import AppendOrder

from raftlog.base.ids import GroupId

GROUP, OTHER = GroupId(1), GroupId(2)


def test_answers_may_come_in_any_order_while_places_follow_the_requests():
    order = AppendOrder()
    for number, offset in ((1, 10), (3, 30), (2, 20), (0, 0)):
        assert order.acknowledged(GROUP, number, offset, (number,)) == ""


def test_a_request_that_overtook_an_earlier_one_is_found_whichever_is_answered_first():
    for first, second in (((0, 20), (1, 10)), ((1, 10), (0, 20))):
        order = AppendOrder()
        assert order.acknowledged(GROUP, *first, (first[0],)) == ""
        found = order.acknowledged(GROUP, *second, (second[0],))
        assert found == (
            "of group 1 request 0 is stored at 20, request 1 that came behind it at 10"
        )


def test_groups_have_orders_of_their_own():
    order = AppendOrder()
    assert order.acknowledged(GROUP, 0, 20, (0,)) == ""
    assert order.acknowledged(OTHER, 1, 10, (1,)) == ""


def test_a_batch_that_came_twice_lies_where_its_first_copy_does():
    order = AppendOrder()
    assert order.acknowledged(GROUP, 0, 20, (7, 0, 3)) == ""
    assert order.acknowledged(GROUP, 1, 20, (7, 0, 3)) == ""

"""Which brokers a question avoids after it was asked in vain."""

from raftlog.base.units import millis
from raftlog.client.core.search import BrokerSearch
from raftlog.client.core.values import ClientOptions
from tests.client.fake_cluster import HOST

OPTIONS = ClientOptions(
    bootstrap=((HOST, 9001),), suspect_ns=millis(500), retry_backoff_max_ns=millis(1_000)
)


def ask(search, node, at_ms):
    """Put the question to a node after a miss. Returns the nodes that were to be avoided."""
    search.missed(millis(at_ms))
    avoided = search.asked_in_vain(millis(at_ms))
    search.asked = node
    return avoided


def test_a_broker_has_its_time_to_help_and_is_then_avoided_with_those_before_it():
    search = BrokerSearch(OPTIONS)
    assert [ask(search, 1, at) for at in (0, 100, 499)] == [(), (), ()]
    assert [ask(search, 2, at) for at in (500, 600, 999)] == [(1,)] * 3
    assert [ask(search, 3, at) for at in (1000, 1499)] == [(1, 2)] * 2
    assert ask(search, 1, 1500) == (1, 2, 3)
    assert ask(search, 2, 2000) == (2, 3, 1), "the one that was asked last is avoided most"


def test_a_request_for_another_reason_does_not_begin_the_search_anew():
    search = BrokerSearch(OPTIONS)
    ask(search, 1, 0)
    assert search.asked_in_vain(millis(300)) == ()
    assert ask(search, 2, 500) == (1,)


def test_a_search_is_over_when_nothing_was_missing_for_a_while():
    search = BrokerSearch(OPTIONS)
    ask(search, 1, 0)
    assert ask(search, 2, 600) == (1,)
    assert search.asked_in_vain(millis(2_600)) == (1, 2)
    assert search.asked_in_vain(millis(2_601)) == ()
    assert ask(search, 2, 2_602) == (), "the next search begins with the same broker"
    assert ask(search, 2, 3_102) == (2,)

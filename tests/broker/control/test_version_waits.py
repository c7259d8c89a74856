"""Requests that wait at the controller until the images of all brokers have reached a version.

Goal: an answer "done" is followed by the same leaders at every broker, and no broker that lags or
is gone holds creations up for long.
"""

import pytest

from raftlog.base.ids import NodeId
from raftlog.base.probes import fired, reset
from raftlog.base.units import millis
from raftlog.broker.control import version_waits
from raftlog.broker.control.registration import HEARTBEATS_PER_SESSION
from raftlog.metadata import requests as r
from tests.broker.control.metadata_rig import SESSION_NS, create, led
from tests.metadata.clusters import registration

BEAT_NS = SESSION_NS // HEARTBEATS_PER_SESSION
LONG_NS = millis(60_000)


def everywhere(rig, wait_ns=LONG_NS, sender=1):
    """A broker asks when all others have what it has."""
    return rig.ask(sender, r.ShownEverywhere(version=rig.image.version, wait_ns=wait_ns))


@pytest.fixture
def three():
    """Brokers 1 and 2 have said that they know the new topic, broker 3 has not."""
    rig = led(1, 2, 3)
    rig.ask(1, create())
    rig.beat(1)
    rig.beat(2)
    return rig


def keep_beating(rig, duration_ns, behind=(3,)):
    """All are heard; those that are behind do not get on."""
    for _ in range(duration_ns // (BEAT_NS // 2)):
        rig.pass_time(BEAT_NS // 2)
        for node in (1, 2, 3):
            rig.beat(node, version=rig.image.version - (node in behind))


def test_is_answered_with_the_last_heartbeat_that_names_the_version(three):
    call = everywhere(three)
    assert call.error is None
    three.beat(3, version=three.image.version - 1)
    assert call.error is None, "one version short"
    three.beat(3)
    assert (call.error, call.text) == (0, "")


def test_is_answered_at_once_when_all_have_it_already(three):
    three.beat(3)
    assert (everywhere(three).error, everywhere(three, wait_ns=0).text) == (0, "")


def test_each_waits_for_its_own_version(three):
    earlier = everywhere(three)
    three.ask(1, create("flights", topic_id=b"f" * 16))
    version = three.image.version
    for node in (1, 2):
        three.beat(node)
    later = everywhere(three)
    three.beat(3, version=version - 1)
    assert (earlier.error, later.error) == (0, None)
    three.beat(3)
    assert later.error == 0


def test_a_broker_that_misses_two_heartbeats_is_not_waited_for(three):
    """Until then it is: it may be on its way."""
    three.beat(3, version=0)
    call = everywhere(three)
    three.pass_time(2 * BEAT_NS - 1)
    assert call.error is None
    three.pass_time(1)
    assert (call.error, call.text) == (0, "3")
    for node in (1, 2):
        three.beat(node)
    assert everywhere(three).text == "3", "and not at all while it stays silent"


@pytest.mark.parametrize("wait_ms", [0, 1, 700, 1999])
def test_is_answered_when_its_time_is_over_with_those_that_lag(three, wait_ms):
    call = everywhere(three, millis(wait_ms))
    if wait_ms:
        keep_beating(three, millis(wait_ms) - millis(wait_ms) % (BEAT_NS // 2))
        three.pass_time(millis(wait_ms) % (BEAT_NS // 2) - 1)
        assert call.error is None
        three.pass_time(1)
    assert (call.error, call.text) == (0, "3")


def test_nothing_waits_longer_than_two_seconds(three):
    call = everywhere(three)
    keep_beating(three, millis(1750))
    three.pass_time(millis(250) - 1)
    assert call.error is None
    three.pass_time(1)
    assert (call.error, call.text) == (0, "3")


def test_a_fenced_broker_is_not_waited_for(three):
    for _ in range(2 * HEARTBEATS_PER_SESSION):
        three.pass_time(BEAT_NS)
        three.beat(1)
        three.beat(2)
    assert three.image.brokers[NodeId(3)].fenced
    three.beat(1)
    three.beat(2)
    assert (everywhere(three).error, everywhere(three).text) == (0, "")


def test_a_broker_that_boots_again_begins_without_a_version():
    """The image that the last boot had is not on its disk for sure."""
    rig = led(1, 2)
    rig.services.link(2, boot=2)
    rig.ask(2, registration(2, boot=2))
    rig.beat(2, version=rig.image.brokers[NodeId(2)].epoch)
    assert not rig.image.brokers[NodeId(2)].fenced
    rig.beat(1)
    call = everywhere(rig)
    assert call.error is None
    rig.beat(2)
    assert (call.error, call.text) == (0, "")


def test_a_late_heartbeat_takes_no_version_back(three):
    three.beat(3)
    three.beat(3, version=0)
    assert (everywhere(three).error, everywhere(three).text) == (0, "")


def test_a_deposed_controller_sends_those_that_wait_elsewhere(three):
    call = everywhere(three)
    three.engine.depose(leader=2)
    three.turn()
    assert (call.error, call.text) == (41, "2")
    three.lead(term=2)
    again = everywhere(three)
    assert again.error is None, "a new leadership has heard nothing yet"
    for node in (1, 2, 3):
        three.beat(node)
    assert (again.error, again.text) == (0, "")


def test_more_than_may_wait_are_answered_at_once(three, monkeypatch):
    monkeypatch.setattr(version_waits, "CONTROLLER_CALLS_MAX", 2)
    reset()
    calls = [everywhere(three) for _ in range(3)]
    assert [call.error for call in calls] == [None, None, 0]
    assert calls[2].text == "3"
    assert fired()["version-waits-full"] == 1


def test_no_timer_is_left_when_nothing_waits(three):
    calls = [everywhere(three) for _ in range(5)]
    three.beat(3)
    assert all(call.error == 0 for call in calls)
    three.pass_time(SESSION_NS)
    assert len([1 for item in three.services.timers._heap if item[2].alive]) == 1, "sessions only"

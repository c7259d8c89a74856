"""A controller answers from its state only when a majority has confirmed that it still decides.

It may have been deposed and not know it. Only the results of its own new decisions need no such
confirmation.
"""

import pytest

from raftlog.base.errors import DiskError
from raftlog.base.ids import METADATA_GROUP
from raftlog.base.limits import CONTROLLER_CALLS_MAX
from raftlog.broker.events import WriteFailed
from raftlog.metadata import commands as c
from raftlog.metadata import requests as r
from raftlog.metadata.refusals import Refusal
from raftlog.partition.output import ReadAnswer
from tests.broker.cluster import Cluster
from tests.broker.control.metadata_rig import Call, create, led
from tests.metadata.clusters import FLIGHTS, ORDERS


def test_a_refusal_that_rests_on_the_committed_image_is_confirmed_first():
    """A controller that had been paused refused to make a topic which its successor had
    deleted (seed 8104786): the refusal came by its old image."""
    rig = led(1)
    rig.ask(1, create())
    rig.group_zero.silent = True
    calls = [
        rig.ask(1, create(topic_id=FLIGHTS), commit=False),
        rig.ask(1, create(""), commit=False),
    ]
    rig.commit()
    assert [call.error for call in calls] == [None, None]
    assert len(rig.group_zero.reads) == 1, "one for all of a turn"
    rig.group_zero.confirm()
    assert [call.error for call in calls] == [36, 17]


@pytest.mark.parametrize("learns", ["by its read", "first"])
def test_what_a_deposed_controller_cannot_confirm_is_asked_elsewhere(learns):
    rig = led(1)
    rig.ask(1, create())
    rig.group_zero.silent = True
    calls = [rig.ask(1, create(topic_id=FLIGHTS)), rig.ask(1, r.CurrentVersion())]
    late = rig.ask(1, create(""), commit=False)
    if learns == "first":
        rig.engine.depose(leader=2)
        rig.turn()
        assert late.error == 41
    for _ in range(2):
        rig.turn()
        rig.group_zero.confirm(error=6)
    assert [call.error for call in calls] == [41, 41]
    assert late.error == 41
    rig.group_zero.silent = False
    rig.lead(term=3)
    assert rig.ask(1, create(topic_id=FLIGHTS)).error == 36


def test_what_is_so_already_is_confirmed_too():
    """Else a change that the next controller has undone would be said to be made."""
    rig = led(1)
    rig.ask(1, create())
    changed = (("retention.ms", "1"),)
    command = c.AlterTopicConfigs(topic_id=ORDERS, changed=changed, removed=())
    alter = r.SubmitCommand(command=command)
    assert rig.ask(1, alter).error == 0
    rig.group_zero.silent = True
    again = rig.ask(1, alter)
    assert again.error is None
    rig.group_zero.confirm()
    assert again.error == 0


def test_what_was_done_for_the_call_needs_no_other_word():
    rig = led(1)
    rig.group_zero.silent = True
    assert rig.ask(1, create()).error == 0
    assert rig.beat(1).error == 0
    assert rig.group_zero.reads == []


def test_what_is_confirmed_still_waits_for_what_it_rests_on():
    rig = led(1)
    first = rig.ask(1, create(), commit=False)
    second = rig.ask(1, create(topic_id=FLIGHTS), commit=False)
    rig.turn()
    assert rig.group_zero.reads == []
    assert (first.error, second.error) == (None, None)
    rig.commit()
    assert (first.error, second.error) == (0, 36)


def test_what_was_proposed_later_holds_up_no_refusal():
    rig = led(1)
    rig.ask(1, create())
    rig.group_zero.silent = True
    refused = rig.ask(1, create(topic_id=FLIGHTS))
    later = rig.ask(1, create("flights", topic_id=FLIGHTS), commit=False)
    rig.turn()
    rig.group_zero.confirm()
    assert (refused.error, later.error) == (36, None)


def test_one_read_is_open_and_what_comes_meanwhile_waits_for_the_next():
    """A word that was asked for before a call came says nothing of the time when it came."""
    rig = led(1)
    rig.group_zero.silent = True
    calls = [rig.ask(1, create("")) for _ in range(3)]
    assert len(rig.group_zero.reads) == 1
    rig.group_zero.confirm()
    assert [call.error for call in calls] == [17, None, None]
    rig.turn()
    assert len(rig.group_zero.reads) == 1
    rig.group_zero.confirm()
    assert [call.error for call in calls] == [17, 17, 17]
    rig.turn()
    assert rig.group_zero.reads == []


def test_a_read_of_an_earlier_leadership_confirms_nothing():
    rig = led(1)
    rig.group_zero.silent = True
    before = rig.ask(1, create(""))
    old, rig.group_zero.reads = rig.group_zero.reads, []
    rig.engine.depose()
    rig.turn()
    rig.lead(term=3)
    after = rig.ask(1, create(""))
    old[0](ReadAnswer(0))
    assert (before.error, after.error) == (41, None)
    rig.group_zero.confirm()
    assert after.error == 17


def test_calls_that_wait_for_a_word_are_bounded():
    rig = led(1)
    rig.group_zero.silent = True
    for _ in range(CONTROLLER_CALLS_MAX):
        rig.controller.serve(Call(1, create("")))
    assert rig.ask(1, create("")).answer.refusal is Refusal.BUSY
    rig.group_zero.confirm()
    rig.group_zero.silent = False
    assert rig.ask(1, create("")).error == 17


@pytest.mark.parametrize("disk", ["a write", "the directory"])
def test_who_was_the_controller_knows_when_its_log_is_closed(disk):
    """A failed write closed its replica of the metadata group, and no part told it. Until a session
    had passed it held itself for the controller and answered heartbeats. Its own broker asked no
    other broker, only to be refused."""
    cluster = Cluster(brokers=3, controllers=3).ready()
    nodes = cluster.world.running()
    node = next(node for node in nodes if node.broker.controller.active)
    broker, error = node.broker, DiskError("gone")
    if disk == "a write":
        broker.manager.failed(METADATA_GROUP, broker.context.replicas[METADATA_GROUP], error)
    else:
        broker.rounds.failed(WriteFailed(0, node.directory, None, error))
    broker.handle([], node.live.clock.now(cluster.world.now), 0)
    assert not broker.controller.active
    cluster.wait(lambda: any(n.broker.controller.active for n in nodes), 10.0, "a successor")


def test_who_resigned_in_this_turn_reads_nothing():
    rig = led(1)
    rig.ask(1, create())
    rig.group_zero.silent = True
    calls = [
        rig.ask(1, create("b", topic_id=FLIGHTS), commit=False),
        rig.ask(1, create(""), commit=False),
    ]
    rig.engine.depose(leader=2)
    rig.turn()
    assert [call.error for call in calls] == [41, 41]
    assert rig.group_zero.reads == []
    assert rig.services.traced().count("controller-resigned") == 1

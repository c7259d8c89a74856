"""The controller: leadership, projection, answers, sessions, registrations, requests."""

import attrs
import pytest

from raftlog.base.entries import Membership
from raftlog.base.ids import GroupId, NodeId
from raftlog.base.limits import CONTROLLER_BROKER_CALLS_MAX, CONTROLLER_CALLS_MAX
from raftlog.base.units import millis
from raftlog.metadata import commands as c
from raftlog.metadata import requests as r
from raftlog.metadata.image import EMPTY_IMAGE
from raftlog.metadata.refusals import Refusal
from tests.broker.control.metadata_rig import SESSION_NS, Call, Rig, allocate, commands, create, led
from tests.metadata.clusters import (
    CLUSTER,
    FLIGHTS,
    directory,
    do,
    founder,
    part,
    registration,
    replica,
)


class TestLeadership:
    def test_the_first_leader_founds_the_cluster(self):
        rig = Rig()
        rig.lead()
        assert rig.controller.active
        assert rig.image.cluster_id == CLUSTER
        assert rig.image.founders == (founder(1), founder(2), founder(3))

    def test_a_later_leader_does_not_found_it_again(self):
        rig = Rig()
        rig.lead()
        rig.engine.depose()
        rig.turn()
        rig.lead(term=2)
        founded = [one for one in commands(rig) if isinstance(one, c.FoundCluster)]
        assert len(founded) == 1

    def test_a_founding_that_was_not_committed_is_proposed_again(self):
        rig = Rig()
        rig.engine.lead(1)
        rig.turn()
        assert len(rig.engine.undecided) == 1
        rig.engine.depose()
        rig.turn()
        assert rig.image.cluster_id is None
        rig.lead(term=3)
        assert rig.image.cluster_id == CLUSTER

    def test_it_is_not_active_before_it_has_applied_everything(self):
        """Deciding on an older image would give out what was given out already."""
        rig = Rig()
        rig.engine.lead(1)
        rig.engine.undecided.append(b"left over from an earlier leadership of this node")
        rig.turn()
        assert not rig.controller.active
        call = rig.ask(2, create(), commit=False)
        assert call.error == 41

    def test_others_are_sent_to_the_leader(self):
        rig = led(1)
        rig.engine.depose(leader=3)
        rig.turn()
        call = rig.ask(2, create())
        assert (call.error, call.text, call.answer) == (41, "3", None)

    def test_losing_leadership_redirects_all_that_wait(self):
        """Requests that were seen committed are answered. The others may be committed or not:
        brokers ask again, with the same ids."""
        rig = led(1, 2, 3)
        calls = [
            rig.ask(2, create(f"t{number}", topic_id=bytes([number]) * 16), commit=False)
            for number in (1, 2)
        ]
        rig.turn()
        assert [call.error for call in calls] == [None, None]
        rig.engine.depose(leader=2, keep=1)
        rig.turn()
        assert [(call.error, call.text) for call in calls] == [(0, ""), (41, "2")]
        assert sorted(rig.image.names) == ["t1"]

    def test_a_leadership_lost_and_won_again_starts_from_what_was_committed(self):
        rig = led(1, 2, 3)
        rig.ask(2, create("a"), commit=False)
        rig.ask(2, create("b", topic_id=FLIGHTS), commit=False)
        rig.turn()
        rig.engine.depose(keep=1)
        rig.turn()
        rig.lead(term=4)
        assert rig.controller.projected is rig.image
        again = rig.ask(2, create("b", topic_id=FLIGHTS))
        assert again.error == 0
        assert rig.image.places[GroupId(2)] == (FLIGHTS, 0)

    def test_an_engine_that_takes_nothing_ends_the_leadership(self):
        rig = led(1)
        call = rig.ask(1, create(), commit=False)
        rig.engine.leading_term = None
        rig.services.run_soon()
        assert call.error == 41
        assert not rig.controller.active


class TestAnswers:
    def test_nothing_is_answered_before_it_is_committed(self):
        rig = led(1)
        call = rig.ask(1, create(), commit=False)
        rig.turn()
        assert call.error is None
        rig.commit()
        assert call.error == 0
        assert call.answer.version == rig.image.version

    def test_a_refusal_waits_for_what_it_rests_on(self):
        """ "exists" would be wrong if the creation before it were never committed."""
        rig = led(1)
        first = rig.ask(1, create(), commit=False)
        second = rig.ask(1, create(topic_id=FLIGHTS), commit=False)
        assert second.error is None
        rig.commit()
        assert first.error == 0
        assert (second.error, second.text) == (36, "Topic 'orders' already exists.")

    def test_a_repeated_creation_is_performed_once(self):
        rig = led(1, 2, 3)
        assert rig.ask(2, create(count=3)).error == 0
        before = rig.image
        assert rig.ask(2, create(count=3)).error == 0
        assert rig.image is before

    def test_many_waiting_calls_make_it_refuse(self):
        rig = led(1)
        for _ in range(CONTROLLER_CALLS_MAX):
            rig.controller.serve(Call(1, allocate(1)))
        late = rig.ask(1, allocate(1), commit=False)
        assert (late.error, late.answer.refusal) == (7, Refusal.BUSY)
        rig.commit()
        assert rig.ask(1, allocate(1)).error == 0

    def test_a_flood_of_calls_fences_nobody(self):
        """A request for 5,000 topics filled the places for calls, and heartbeats were refused with
        all else until every broker's session had run out."""
        rig = led(1, 2, 3)
        for _ in range(CONTROLLER_CALLS_MAX):
            rig.controller.serve(Call(1, allocate(1)))
        rig.services.now += 5
        broker = rig.image.brokers[NodeId(2)]
        beat = r.Heartbeat(
            node=NodeId(2),
            directory=broker.directory,
            boot=broker.boot,
            incarnation=broker.incarnation,
            version=rig.image.version,
        )
        assert rig.ask(2, beat, commit=False).error is None, "it waits, and is not refused"
        assert rig.controller.sessions.heard[NodeId(2)] == rig.services.now

    def test_a_flood_of_calls_keeps_no_broker_out(self):
        """Registrations and reports were refused with all else: a broker that booted meanwhile took
        part in nothing, and what partitions had reached was not heard. They, too, are bounded."""
        rig = led(1, 2)
        for _ in range(CONTROLLER_CALLS_MAX):
            rig.controller.serve(Call(1, allocate(1)))
        rig.services.link(3)
        own = [rig.ask(3, registration(3), commit=False)]
        reports = r.Reports(reports=())
        own += [rig.ask(2, reports, commit=False) for _ in range(CONTROLLER_BROKER_CALLS_MAX - 1)]
        assert {call.error for call in own} == {None}
        assert rig.ask(2, reports, commit=False).answer.refusal is Refusal.BUSY
        assert rig.ask(3, registration(3), commit=False).answer.refusal is Refusal.BUSY
        rig.commit()
        assert {call.error for call in own} == {0}
        assert NodeId(3) in rig.image.brokers

    def test_all_proposals_of_a_turn_go_to_the_engine_together(self):
        rig = led(1)
        for number in range(1, 4):
            rig.ask(1, create(f"t{number}", topic_id=bytes([number]) * 16), commit=False)
        assert rig.engine.undecided == []
        rig.services.run_soon()
        assert len(rig.engine.undecided) == 3

    def test_noise_is_answered(self):
        rig = led(1)
        assert rig.ask(2, b"\xff").error == 42
        assert rig.ask(2, b"").error == 42
        future = bytes([1, 1, 99, 1, 0]) + bytes(12)
        assert rig.ask(2, future).error == 35


class TestRegistration:
    def test_a_joiner_gets_what_it_needs_to_begin(self):
        rig = led(1, 2, 3)
        rig.services.link(4)
        call = rig.ask(4, registration(4))
        grant = call.answer.grant
        assert grant.cluster_id == CLUSTER
        assert grant.metadata_replica == (4, directory(4), grant.epoch)
        assert grant.founders == rig.image.founders
        assert rig.image.brokers[NodeId(4)].epoch == grant.epoch

    def test_it_is_unfenced_when_it_has_applied_its_registration(self):
        rig = led(1)
        rig.services.link(2)
        epoch = rig.ask(2, registration(2)).answer.grant.epoch
        assert rig.image.brokers[NodeId(2)].fenced
        rig.beat(2, version=epoch - 1)
        assert rig.image.brokers[NodeId(2)].fenced
        rig.beat(2, version=epoch)
        assert not rig.image.brokers[NodeId(2)].fenced

    def test_the_same_boot_again_gets_the_same_grant(self):
        rig = led(1, 2)
        first = rig.ask(2, registration(2)).answer
        again = rig.ask(2, registration(2)).answer
        assert again.grant == first.grant
        assert not rig.image.brokers[NodeId(2)].fenced

    def test_nobody_registers_for_another(self):
        rig = led(1, 2)
        rig.services.link(3)
        for sender in (1, 2):
            call = rig.ask(sender, registration(3))
            assert call.answer.refusal is Refusal.MALFORMED
        assert NodeId(3) not in rig.image.brokers

    @pytest.mark.parametrize("changes", [{"at": 1}, {"boot": 9}])
    def test_what_is_said_must_be_what_the_handshake_proved(self, changes):
        rig = led(1)
        rig.services.link(3)
        assert rig.ask(3, registration(3, **changes)).answer.refusal is Refusal.MALFORMED

    def test_without_a_link_nobody_registers(self):
        assert led(1).ask(3, registration(3)).answer.refusal is Refusal.MALFORMED

    def test_a_rolled_back_directory_is_condemned_for_good(self):
        """An old copy of the directory was restored: the boot number is not above the last."""
        rig = led(1, 2)
        rig.services.link(2, boot=5)
        assert rig.ask(2, registration(2, boot=5)).error == 0
        rig.services.link(2, boot=4)
        call = rig.ask(2, registration(2, boot=4))
        assert call.answer.refusal is Refusal.ROLLED_BACK
        assert rig.image.brokers[NodeId(2)].condemned
        for boot in (5, 6, 7):
            rig.services.link(2, boot=boot)
            later = rig.ask(2, registration(2, boot=boot))
            assert later.answer.refusal is Refusal.CONDEMNED_DIRECTORY

    def test_the_answer_waits_until_the_condemnation_is_committed(self):
        rig = led(1, 2)
        rig.services.link(2, boot=1)
        twin = registration(2, incarnation=4711)
        call = rig.ask(2, twin, commit=False)
        assert call.error is None
        rig.commit()
        assert call.answer.refusal is Refusal.ROLLED_BACK

    def test_a_node_id_is_taken_over_only_after_its_session(self):
        rig = led(1, 2)
        rig.services.link(2, at=1)
        assert rig.ask(2, registration(2, at=1)).answer.refusal is Refusal.NODE_ID_IN_USE
        rig.pass_time(2 * SESSION_NS)
        rig.lead()
        assert rig.ask(2, registration(2, at=1)).error == 0

    def test_a_wiped_broker_gets_new_ids_everywhere(self):
        """The replica ids of the wiped disk never come back."""
        rig = led(1, 2, 3)
        rig.ask(1, create(count=4, factor=3))
        old = [replica(part(rig.image, number), 3) for number in range(4)]
        keep_alive(rig, (1, 2), 2 * SESSION_NS)
        rig.services.link(3, at=1)
        assert rig.ask(3, registration(3, at=1)).error == 0
        for number in range(4):
            partition = part(rig.image, number)
            new = replica(partition, 3)
            assert new.directory == directory(3, 1)
            assert new in partition.target
            assert old[number] not in partition.target
            assert old[number] in partition.replicas
        wanted = rig.group_zero.wanted[-1]
        assert founder(3) not in wanted.voters
        assert rig.image.brokers[NodeId(3)].metadata_replica in wanted.voters


def keep_alive(rig, nodes, duration_ns):
    for _ in range(8):
        rig.pass_time(duration_ns // 8)
        for node in nodes:
            rig.beat(node)


class TestSessions:
    def test_a_silent_broker_is_fenced_after_its_session(self):
        rig = led(1, 2, 3)
        keep_alive(rig, (1, 2), SESSION_NS - millis(400))
        assert not rig.image.brokers[NodeId(3)].fenced
        keep_alive(rig, (1, 2), millis(1000))
        assert rig.image.brokers[NodeId(3)].fenced
        assert not rig.image.brokers[NodeId(2)].fenced

    def test_a_heartbeat_brings_it_back(self):
        rig = led(1, 2)
        keep_alive(rig, (1,), 2 * SESSION_NS)
        assert rig.image.brokers[NodeId(2)].fenced
        rig.beat(2)
        assert not rig.image.brokers[NodeId(2)].fenced
        keep_alive(rig, (1,), SESSION_NS - millis(600))
        assert not rig.image.brokers[NodeId(2)].fenced

    def test_a_new_controller_gives_everybody_a_whole_session(self):
        """Silence before it could listen counts against no broker."""
        rig = led(1, 2)
        rig.pass_time(SESSION_NS - millis(600))
        rig.engine.depose()
        rig.turn()
        rig.pass_time(10 * SESSION_NS)
        rig.lead(term=2)
        rig.pass_time(SESSION_NS - millis(600))
        assert not rig.image.brokers[NodeId(2)].fenced
        rig.pass_time(millis(1200))
        assert rig.image.brokers[NodeId(2)].fenced

    def test_one_timer_per_leadership(self):
        rig = led(1)
        for term in range(2, 6):
            rig.engine.depose()
            rig.turn()
            rig.lead(term=term)
        rig.pass_time(SESSION_NS)
        assert len(rig.services.timers) == 1

    def test_heartbeats_of_other_boots_tell_to_register_again(self):
        rig = led(1, 2)
        broker = rig.image.brokers[NodeId(2)]
        beat = r.Heartbeat(
            node=NodeId(2),
            directory=broker.directory,
            boot=broker.boot,
            incarnation=broker.incarnation,
            version=0,
        )
        other = attrs.evolve(beat, incarnation=1)
        assert rig.ask(2, other).answer.refusal is Refusal.STALE
        rig.services.link(3)
        unknown = attrs.evolve(beat, node=NodeId(3), directory=directory(3))
        assert rig.ask(3, unknown).answer.refusal is Refusal.UNKNOWN_BROKER
        assert rig.ask(1, beat).answer.refusal is Refusal.MALFORMED

    def test_heartbeats_of_a_condemned_directory_are_told_so(self):
        rig = led(1, 2)
        rig.append(c.CondemnDirectory(node=NodeId(2), directory=directory(2)), term=0)
        rig.engine.depose()
        rig.turn()
        rig.lead(term=2)
        assert rig.beat(2).answer.refusal is Refusal.CONDEMNED_DIRECTORY


class TestGroupZero:
    def test_controllers_vote_and_all_others_learn(self):
        rig = led(1, 2, 3, 4)
        assert rig.group_zero.wanted[-1] == Membership(
            voters=(founder(1), founder(2), founder(3)),
            learners=(rig.image.brokers[NodeId(4)].metadata_replica,),
        )

    def test_it_is_told_only_what_is_new(self):
        rig = led(1, 2, 3)
        told = len(rig.group_zero.wanted)
        rig.ask(1, create())
        assert len(rig.group_zero.wanted) == told

    def test_a_condemned_broker_learns_nothing_more(self):
        rig = led(1, 4)
        rig.services.link(4, boot=1)
        rig.ask(4, registration(4, incarnation=99))
        assert rig.image.brokers[NodeId(4)].condemned
        assert rig.group_zero.wanted[-1].learners == ()

    def test_a_new_leader_tells_it_again(self):
        rig = led(1, 2)
        told = len(rig.group_zero.wanted)
        rig.engine.depose()
        rig.turn()
        rig.lead(term=2)
        assert len(rig.group_zero.wanted) == told + 1

    def test_a_lost_replica_of_group_0_is_replaced_too(self):
        rig = led(1, 2, 3)
        lost = c.ReplaceReplica(group=GroupId(0), lost=founder(2))
        assert rig.ask(2, r.SubmitCommand(command=lost)).error == 0
        assert founder(2) not in rig.group_zero.wanted[-1].voters
        grant = rig.ask(2, registration(2)).answer.grant
        assert grant.metadata_replica in rig.group_zero.wanted[-1].voters


class TestDigests:
    def test_are_compared_every_so_many_versions_and_at_the_start(self):
        rig = led(1, digest_every=4)
        for number in range(1, 12):
            rig.ask(1, create(f"t{number}", topic_id=bytes([number]) * 16))
        compared = [one for one in commands(rig) if isinstance(one, c.CompareDigest)]
        assert len(compared) >= 2
        assert all(one.digest for one in compared)
        rig.engine.depose()
        rig.turn()
        rig.lead(term=2)
        assert isinstance(commands(rig)[-1], c.CompareDigest)

    def test_a_projection_that_differs_from_what_was_applied_is_a_bug(self):
        rig = led(1)
        rig.ask(1, create(), commit=False)
        rig.services.run_soon()
        rig.services.image = do(rig.image, registration(5))
        rig.loader.image = rig.services.image
        rig.engine.commit()
        with pytest.raises(AssertionError):
            rig.turn()


class TestSnapshots:
    def test_come_every_so_many_versions_and_the_log_is_trimmed_before_them(self):
        rig = led(1, snapshot_every=5)
        for number in range(1, 14):
            rig.ask(1, create(f"t{number}", topic_id=bytes([number]) * 16))
        places = [
            place for place, one in enumerate(commands(rig)) if isinstance(one, c.SnapshotImage)
        ]
        assert len(places) == 3
        assert rig.engine.trimmed == places

    def test_hold_the_image_as_of_their_place(self):
        rig = led(1, snapshot_every=5)
        for number in range(1, 9):
            rig.ask(1, create(f"t{number}", topic_id=bytes([number]) * 16))
        log = commands(rig)
        place = next(n for n, one in enumerate(log) if isinstance(one, c.SnapshotImage))
        rest = do(EMPTY_IMAGE, *log[place:])
        assert rest.digest() == rig.image.digest()

    def test_wait_until_nothing_is_undecided(self):
        """A snapshot speaks of everything before it, so it must not overtake or follow a proposal
        that is not in it."""
        rig = led(1, snapshot_every=3)
        for number in range(1, 8):
            rig.ask(1, create(f"t{number}", topic_id=bytes([number]) * 16), commit=False)
        rig.commit()
        assert rig.loader.stopped is None
        assert isinstance(commands(rig)[-1], c.SnapshotImage)

    def test_one_that_is_too_large_is_left_out(self, monkeypatch):
        monkeypatch.setattr("raftlog.broker.control.controller.SNAPSHOT_BYTES_MAX", 100)
        rig = led(1, snapshot_every=3)
        for number in range(1, 8):
            rig.ask(1, create(f"t{number}", topic_id=bytes([number]) * 16))
        assert rig.engine.trimmed == []
        assert "snapshot-too-large" in rig.services.traced()

    def test_a_new_leader_goes_on_counting(self):
        rig = led(1, snapshot_every=8)
        for term in range(2, 12):
            rig.ask(1, create(f"t{term}", topic_id=bytes([term]) * 16))
            rig.engine.depose()
            rig.turn()
            rig.lead(term=term)
        assert any(isinstance(one, c.SnapshotImage) for one in commands(rig))

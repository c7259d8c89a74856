"""How a boot presents itself, stays known, and tells what it lost or deleted."""

import pytest

from raftlog.base.ids import METADATA_GROUP, BootNumber, GroupId, NodeId, ReplicaEpoch, ReplicaId
from raftlog.base.units import millis
from raftlog.broker.control.registration import HEARTBEATS_PER_SESSION, BrokerRegistration
from raftlog.broker.peer_messages import ControllerKind, ControllerReply
from raftlog.metadata import commands as c
from raftlog.metadata.refusals import Refusal, kafka_code
from raftlog.metadata.requests import ControllerAnswer, Grant, Heartbeat, decode_body, encode_answer
from tests.broker.control.metadata_rig import SESSION_NS, FakeTurn
from tests.metadata.clusters import (
    CLUSTER,
    cluster,
    directory,
    do,
    fence,
    founder,
    registration,
    unfence,
)

BEAT_NS = SESSION_NS // HEARTBEATS_PER_SESSION


def answered(refusal=None, grant=None, message="why"):
    answer = ControllerAnswer(refusal=refusal, message=message, version=9, grant=grant)
    error = 0 if refusal is None else kafka_code(refusal)
    return ControllerReply(0, error, message, encode_answer(answer))


TIMED_OUT = ControllerReply(0, 7, "no controller in time", b"")
GRANT = Grant(cluster_id=CLUSTER, epoch=5, metadata_replica=founder(1), founders=(founder(1),))


class Boot:
    """One boot of node 1, and the controller as the test plays it."""

    def __init__(self):
        self.services = FakeTurn(1)
        self.grants = 0
        self.registration = BrokerRegistration(self.services, self.services, 4711, self.granted)

    def granted(self):
        self.grants += 1

    @property
    def asked(self):
        return [(ask.kind, decode_body(ask.body)) for ask in self.services.asked]

    def kinds(self):
        return [kind for kind, _ in self.asked]

    def reply(self, reply, *, ask=0):
        self.services.asked.pop(ask).then(reply)
        self.services.run_soon()

    def register(self):
        self.registration.start()
        self.reply(answered(grant=GRANT))
        self.reply(answered())
        return self


class TestRegistering:
    def test_says_who_boots_where(self):
        boot = Boot()
        boot.registration.start()
        kind, request = boot.asked[0]
        assert kind == ControllerKind.REGISTER
        assert (request.node, request.directory, request.boot, request.incarnation) == (
            1,
            directory(1),
            1,
            4711,
        )
        assert request.listeners[0].port == 9001
        assert (request.peer_host, request.peer_port) == ("localhost", 9101)
        assert (request.level_min, request.level_max) == (1, 1)
        assert not boot.registration.registered

    def test_a_grant_opens_the_boot_and_starts_heartbeats(self):
        boot = Boot()
        boot.registration.start()
        boot.reply(answered(grant=GRANT))
        assert boot.registration.registered
        assert boot.registration.grant == GRANT
        assert boot.grants == 1
        assert boot.kinds() == [ControllerKind.HEARTBEAT]

    @pytest.mark.parametrize(
        "reply",
        [TIMED_OUT, answered(Refusal.NODE_ID_IN_USE), ControllerReply(0, 0, "", b"\xff" * 30)],
    )
    def test_everything_else_is_asked_again_after_a_pause(self, reply):
        boot = Boot()
        boot.registration.start()
        boot.reply(reply)
        assert boot.asked == []
        boot.services.pass_time(BEAT_NS)
        assert boot.kinds() == [ControllerKind.REGISTER]
        boot.reply(answered(grant=GRANT))
        assert boot.registration.registered

    @pytest.mark.parametrize(
        "refusal",
        [Refusal.ROLLED_BACK, Refusal.CONDEMNED_DIRECTORY, Refusal.FEATURE_UNSUPPORTED],
    )
    def test_a_refused_directory_takes_part_in_nothing(self, refusal):
        boot = Boot()
        boot.registration.start()
        boot.reply(answered(refusal, message="seen at boot 7"))
        boot.services.pass_time(100 * SESSION_NS)
        assert boot.asked == []
        assert boot.registration.refused is refusal
        assert boot.registration.message == "seen at boot 7"
        assert not boot.registration.registered
        assert "directory-refused" in boot.services.traced()


class TestHeartbeats:
    def test_go_out_six_times_a_session(self):
        boot = Boot().register()
        for _ in range(12):
            boot.services.pass_time(BEAT_NS)
        assert len(boot.asked) == 12
        assert set(boot.kinds()) == {ControllerKind.HEARTBEAT}

    def test_say_how_far_the_image_is(self):
        boot = Boot().register()
        boot.services.image = cluster(1, 2)
        boot.services.pass_time(BEAT_NS)
        _, beat = boot.asked[0]
        assert isinstance(beat, Heartbeat)
        assert beat.version == boot.services.image.version
        assert beat.incarnation == 4711

    @pytest.mark.parametrize("refusal", [Refusal.UNKNOWN_BROKER, Refusal.STALE])
    def test_a_forgotten_registration_is_made_again(self, refusal):
        boot = Boot().register()
        boot.services.pass_time(BEAT_NS)
        boot.reply(answered(refusal))
        assert boot.kinds() == [ControllerKind.REGISTER]
        boot.services.pass_time(BEAT_NS)
        assert boot.kinds().count(ControllerKind.REGISTER) == 1
        boot.reply(answered(grant=GRANT))
        assert boot.grants == 2
        boot.services.pass_time(BEAT_NS)
        assert boot.kinds().count(ControllerKind.HEARTBEAT) == 2

    def test_a_condemned_directory_hears_it_and_falls_silent(self):
        boot = Boot().register()
        boot.services.pass_time(BEAT_NS)
        boot.reply(answered(Refusal.CONDEMNED_DIRECTORY))
        assert not boot.registration.registered
        boot.services.pass_time(10 * SESSION_NS)
        assert boot.asked == []

    def test_an_eviction_seen_in_the_image_does_the_same(self):
        boot = Boot().register()
        boot.registration.evicted()
        boot.registration.evicted()
        assert boot.registration.refused is Refusal.CONDEMNED_DIRECTORY
        assert boot.services.traced().count("directory-refused") == 1

    def test_a_change_of_the_image_is_told_at_once_and_all_of_a_turn_together(self):
        boot = Boot().register()
        boot.services.image = cluster(1, 2)
        for _ in range(3):
            boot.registration.image_changed()
        boot.services.run_soon()
        (said,) = boot.asked
        assert (said[0], said[1].version) == (ControllerKind.HEARTBEAT, cluster(1, 2).version)
        boot.reply(answered())
        boot.registration.image_changed()
        boot.services.run_soon()
        assert boot.asked == [], "that version was told"

    def test_what_changes_while_it_is_told_is_told_after_the_answer(self):
        boot = Boot().register()
        versions = []
        for count in (1, 2, 3):
            boot.services.image = cluster(*range(1, count + 1))
            boot.registration.image_changed()
            boot.services.run_soon()
            versions.append(boot.services.image.version)
        assert [beat.version for _, beat in boot.asked] == versions[:1]
        boot.reply(TIMED_OUT)
        assert [beat.version for _, beat in boot.asked] == versions[2:]
        boot.reply(answered(Refusal.STALE))
        assert boot.kinds() == [ControllerKind.REGISTER]

    def test_before_the_grant_and_after_the_end_no_change_is_told(self):
        boot = Boot()
        boot.services.image = cluster(1, 2)
        boot.registration.image_changed()
        boot.services.run_soon()
        assert boot.asked == []
        boot.register()
        boot.services.image = cluster(1, 2, 3)
        boot.registration.image_changed()
        boot.registration.end()
        boot.services.run_soon()
        assert boot.asked == []

    def test_lost_heartbeats_are_not_repeated_and_no_reason_to_register(self):
        boot = Boot().register()
        boot.services.pass_time(BEAT_NS)
        boot.reply(TIMED_OUT)
        assert boot.asked == []


LOST = ReplicaId(NodeId(1), directory(1), ReplicaEpoch(7))


class TestNews:
    def test_a_lost_replica_is_told_until_it_is_heard(self):
        boot = Boot().register()
        boot.registration.report_lost(GroupId(3), LOST)
        boot.services.run_soon()
        assert boot.asked[0][1].command == c.ReplaceReplica(group=GroupId(3), lost=LOST)
        for bad in (TIMED_OUT, answered(Refusal.BUSY), answered(Refusal.NOT_FOUNDED)):
            boot.reply(bad)
            boot.services.asked.clear()
            boot.services.pass_time(millis(500))
            boot.services.asked[:] = [a for a in boot.services.asked if a.kind == 1]
            assert len(boot.asked) == 1
        boot.reply(answered())
        boot.services.pass_time(SESSION_NS)
        assert ControllerKind.PROPOSE not in boot.kinds()

    def test_what_the_controller_knows_better_is_dropped(self):
        boot = Boot().register()
        boot.registration.report_lost(GroupId(3), LOST)
        boot.services.run_soon()
        boot.reply(answered(Refusal.UNKNOWN_REPLICA))
        assert boot.asked == []

    def test_one_question_at_a_time(self):
        boot = Boot().register()
        for group in (3, 4, 5):
            boot.registration.report_lost(GroupId(group), LOST)
        boot.registration.confirm_removed([(GroupId(9), ReplicaEpoch(2))])
        boot.services.run_soon()
        told = []
        while boot.asked:
            told.append(boot.asked[0][1].command)
            assert len(boot.asked) == 1
            boot.reply(answered())
        lost = [c.ReplaceReplica(group=GroupId(group), lost=LOST) for group in (3, 4, 5)]
        assert [told[0], *told[2:]] == lost
        assert type(told[1]) is c.ConfirmRemoved

    def test_what_must_wait_holds_up_nothing_else(self):
        """A group of 64 ids without a majority is busy for good."""
        boot = Boot().register()
        for group in (3, 4):
            boot.registration.report_lost(GroupId(group), LOST)
        boot.registration.confirm_removed([(GroupId(9), ReplicaEpoch(2))])
        boot.services.run_soon()
        told = []
        for _ in range(9):
            command = boot.asked[0][1].command
            told.append(command)
            busy = isinstance(command, c.ReplaceReplica) and command.group == 3
            boot.reply(answered(Refusal.BUSY if busy else None))
            boot.services.asked[:] = [one for one in boot.services.asked if one.kind == 1]
            if not boot.asked:
                boot.services.pass_time(millis(500))
                boot.services.asked[:] = [one for one in boot.services.asked if one.kind == 1]
        waits, other = (c.ReplaceReplica(group=GroupId(group), lost=LOST) for group in (3, 4))
        assert type(told[1]) is c.ConfirmRemoved
        assert [one for one in told if type(one) is not c.ConfirmRemoved][:3] == [
            waits, other, waits,
        ]  # fmt: skip
        assert told[3:] == [waits] * 6

    def test_what_is_lost_again_while_it_is_told_is_told_again(self):
        """It was not wanted when the controller heard of it first, and is wanted now."""
        boot = Boot().register()
        boot.registration.report_lost(GroupId(3), LOST)
        boot.services.run_soon()
        boot.registration.report_lost(GroupId(3), LOST)
        boot.services.run_soon()
        assert len(boot.asked) == 1
        boot.reply(answered())
        assert boot.asked[0][1].command == c.ReplaceReplica(group=GroupId(3), lost=LOST)

    def test_group_0_is_told_of_first(self):
        boot = Boot().register()
        boot.registration.report_lost(GroupId(3), LOST)
        boot.registration.report_lost(METADATA_GROUP, founder(1))
        boot.services.run_soon()
        for _ in range(3):
            assert boot.asked[0][1].command.group == METADATA_GROUP
            boot.reply(TIMED_OUT)
            boot.services.pass_time(millis(500))
            boot.services.asked[:] = [one for one in boot.services.asked if one.kind == 1]

    def test_a_grant_that_was_asked_for_before_the_loss_was_told_is_not_the_last(self):
        """The answer of a controller that was deposed meanwhile names the lost replica."""
        boot = Boot()
        boot.registration.start()
        boot.registration.report_lost(METADATA_GROUP, founder(1))
        boot.services.run_soon()
        assert boot.kinds() == [ControllerKind.REGISTER, ControllerKind.PROPOSE]
        boot.reply(answered(), ask=1)
        assert boot.kinds() == [ControllerKind.REGISTER]
        boot.reply(answered(grant=GRANT))
        assert boot.kinds().count(ControllerKind.REGISTER) == 1
        boot.reply(answered(grant=GRANT), ask=boot.kinds().index(ControllerKind.REGISTER))
        assert boot.grants == 2
        assert ControllerKind.REGISTER not in boot.kinds()

    def test_removals_go_together(self):
        boot = Boot().register()
        items = [(GroupId(group), ReplicaEpoch(2)) for group in range(1, 6)]
        boot.registration.confirm_removed(items[:3])
        boot.registration.confirm_removed(items[2:])
        boot.services.run_soon()
        command = boot.asked[0][1].command
        assert command == c.ConfirmRemoved(
            node=NodeId(1), directory=directory(1), removed=tuple(items)
        )

    def test_what_comes_while_one_is_told_is_told_next(self):
        boot = Boot().register()
        boot.registration.confirm_removed([(GroupId(1), ReplicaEpoch(2))])
        boot.services.run_soon()
        boot.registration.confirm_removed([(GroupId(2), ReplicaEpoch(2))])
        boot.services.run_soon()
        assert len(boot.asked) == 1
        boot.reply(answered())
        assert boot.asked[0][1].command.removed == ((2, 2),)

    @pytest.mark.parametrize("refusal", [None, Refusal.STALE])
    def test_a_lost_replica_of_group_0_leads_to_a_new_grant(self, refusal):
        """The new id comes with a grant, for there is no image here to read it from. Stale: it was
        replaced when it was told first, and that answer was lost."""
        boot = Boot().register()
        boot.registration.report_lost(METADATA_GROUP, founder(1))
        boot.services.run_soon()
        boot.reply(answered(refusal))
        assert boot.kinds() == [ControllerKind.REGISTER]
        boot.reply(answered(grant=GRANT))
        assert boot.grants == 2


class TestPeers:
    def peer(self, image, node, *, at=0, boot=1):
        boots = Boot()
        boots.services.image = image
        return boots.registration.peer_allowed(NodeId(node), directory(node, at), BootNumber(boot))

    def test_unknown_and_known_ones(self):
        image = cluster(1, 2)
        assert self.peer(image, 3)
        assert self.peer(image, 2)
        assert self.peer(image, 2, boot=2)

    def stands(self, image, node, *, at=0, boot=1, address=None):
        boots = Boot()
        boots.services.image = image
        address = address or f"localhost:{9100 + node}"
        return boots.registration.peer_stands(
            NodeId(node), directory(node, at), BootNumber(boot), address
        )

    def test_who_is_held_for_alive_under_its_id(self):
        image = do(cluster(1, 2), registration(2, boot=5))
        assert not self.stands(image, 2, boot=5), "fenced until it is heard"
        image = do(image, unfence(image, 2))
        assert self.stands(image, 2, boot=5)
        assert self.stands(image, 2, boot=6), "it restarts"
        assert not self.stands(image, 2, boot=4)
        assert not self.stands(image, 2, boot=9, at=1), "a second broker with its configuration"
        assert not self.stands(image, 2, boot=5, address="localhost:1"), "a copy of its directory"
        assert not self.stands(image, 3)
        image = do(image, fence(image, 2))
        assert not self.stands(image, 2, boot=5)

    def test_a_lower_boot_number_is_a_rolled_back_disk(self):
        image = do(cluster(1, 2), registration(2, boot=5))
        assert not self.peer(image, 2, boot=4)
        assert self.peer(image, 2, boot=5)

    def test_former_and_condemned_directories(self):
        image = cluster(1, 2)
        image = do(image, fence(image, 2), registration(2, at=1))
        assert not self.peer(image, 2, at=0, boot=9)
        assert self.peer(image, 2, at=1)
        assert self.peer(image, 2, at=2)
        image = do(image, c.CondemnDirectory(node=NodeId(2), directory=directory(2, 1)))
        assert not self.peer(image, 2, at=1, boot=9)

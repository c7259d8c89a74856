"""Disks in a world that fail, fill, slow down, rot, vanish; and the atlas that rations damage."""

import pytest
from raftlog_sim.base.streams import Stream
from raftlog_sim.base.violation import Violation
from raftlog_sim.facts.truth import image_at_boot
from raftlog_sim.faults import loss_faults, rot_faults
from raftlog_sim.faults.disk_faults import _disk_error
from raftlog_sim.faults.rot_faults import _ends_below_marks, _place
from raftlog_sim.playing.simulation import Run, simulate
from raftlog_sim.schedules.options import SimOptions
from raftlog_sim.schedules.schedule import Schedule, step
from raftlog_sim.world.disk import Keep

from raftlog.base import probes
from raftlog.base.ids import METADATA_GROUP, NodeId
from raftlog.base.units import millis
from raftlog.broker.events import Effects, PeerSend
from raftlog.metadata.image import EMPTY_IMAGE
from raftlog.raft.messages import VoteReply
from raftlog.storage.directories.store_file import STORE_FILES

WRITES = tuple(step(at, "produce", slot=0, partition=0, count=3) for at in range(0, 900, 30))


def schedule(*some, brokers=3, **options):
    values = {"seed": 21, "safety_ms": 1_000, "brokers": brokers, "value_bytes": 3_000, **options}
    return Schedule(SimOptions(**values), (*WRITES, *some))


def until(run, at_ms):
    """Into the safety phase."""
    while run.phase == "set-up":
        run.advance()
    end = run.world.now + millis(at_ms)
    while run.world.now < end and run.advance():
        pass
    return run


@pytest.mark.parametrize(
    "fault",
    [
        step(200, "disk-error", node="n1", call="write", count=2),
        step(200, "disk-error", node="all", call="read", count=2),
        step(200, "disk-error", node="leader:0", call="open", count=3),
        step(200, "late-error", node="leader:0", call="write", count=2),
        step(200, "late-error", node="all", call="create", count=2),
        step(200, "failed-sync", node="leader:0"),
        step(200, "failed-name-sync", node="leader:0", call="dir"),
        step(200, "failed-name-sync", node="n2", call="all"),
        step(200, "disk-full", 300, node="follower:0", bytes=1_000),
        step(200, "slow-disk", 300, node="leader:0", ms=60),
        step(200, "crash-at", node="leader:0", calls=3, keep="some", tear="yes"),
        step(200, "kill-at", node="leader:0", calls=3, tear="yes"),
        step(200, "rot", node="leader:0", file="segment", how="flip"),
        step(200, "rot", node="n2", file="store", how="zero"),
        step(200, "rot", node="n2", file="header", how="zero"),
        step(200, "wipe", 100, node="follower:0"),
        step(200, "lose-replica", 100, node="follower:0", partition=0),
        step(200, "lose-metadata", 100, node="follower:0"),
        step(200, "lose-metadata", 100, node="controller"),
    ],
    ids=lambda fault: fault.kind,
)
def test_one_fault_is_survived(fault):
    result = simulate(schedule(fault))
    assert result.failure == ""
    assert result.faults.get(fault.kind) == 1
    assert result.acknowledged > 0


def test_a_killed_process_finds_what_it_wrote_and_did_not_sync():
    run = until(Run(schedule(step(300, "kill-at", node="n2", calls=0, tear="no"))), 250)
    disk = run.world.nodes[NodeId(2)].disk
    crashes = []
    disk.crash = lambda *more: crashes.append(more)
    assert run.play() == ""
    assert run.nemesis.done == {"kill-at": 1}
    assert run.world.nodes[NodeId(2)].boots == 2
    assert crashes == [], "the machine lived on"


def zero_the_store(disk):
    for name in ("store-0", "store-1"):
        disk.overwrite(name, 0, bytes(len(disk.content(name))))


def test_a_store_that_cannot_be_read_is_replaced_and_the_node_joins_as_new():
    run = until(Run(schedule(step(300, "rot", node="n2", file="store", how="flip"))), 350)
    node = run.world.nodes[NodeId(2)]
    directory = node.directory
    zero_the_store(node.disk)
    assert run.play() == ""
    assert node.directory != directory


def test_a_store_that_rots_by_itself_is_not_replaced():
    run = until(Run(schedule(step(400, "crash", 50, node="n2"))), 350)
    zero_the_store(run.world.nodes[NodeId(2)].disk)
    assert run.play().startswith("exception: CorruptData")


def old_disk(*between, **options):
    steps = (step(100, "image", node="n2"), *between, step(700, "old-disk", 50, node="n2"))
    return schedule(*steps, **options)


def test_an_old_copy_of_a_disk_takes_part_in_nothing_until_it_is_replaced():
    crashes = [step(at, "crash", 20, node="n2") for at in (200, 400)]
    result = simulate(old_disk(*crashes))
    assert result.failure == ""
    assert result.faults == {"image": 1, "crash": 2, "old-disk": 1}
    assert result.probes["rolled-back-directory-condemned"] >= 1


def test_a_copy_of_the_same_life_is_left():
    """Nothing tells it from a crash that lost what was not synced."""
    result = simulate(old_disk())
    assert result.failure == ""
    assert "old-disk" not in result.faults


@pytest.mark.parametrize("seed", range(21, 29))
def test_one_later_life_is_enough_whatever_the_copy_does_alone(seed):
    result = simulate(old_disk(step(300, "crash", 20, node="n2"), seed=seed))
    assert result.failure == ""
    assert result.faults == {"image": 1, "crash": 1, "old-disk": 1}
    assert result.probes["old-copy-refuses-itself"] >= 1


@pytest.mark.parametrize("away", ["crash", "stall"])
def test_a_copy_that_another_voter_cannot_tell_waits(away):
    """n1 was away during the only later life of n2, or its disk stood still. With the copy it would
    make a majority, and what n2 and n3 had committed meanwhile would be known to n3 alone. It comes
    back when n1 knows."""
    steps = (step(250, away, 800, node="n1"), step(300, "crash", 20, node="n2"))
    run = until(Run(old_disk(*steps, safety_ms=2_000)), 1_040)
    assert away in run.nemesis.done
    assert "old-disk" not in run.nemesis.done
    assert run.play() == ""
    assert run.nemesis.done["old-disk"] == 1


def test_what_was_said_before_an_old_copy_came_back_still_counts():
    """Seed 3000884: n1 acknowledged an entry, an old copy of its disk came back, and then the
    leader, which had been paused, heard the acknowledgement and committed by it. The copy is
    refused: it votes nowhere, so the entry is not lost."""
    run = until(Run(old_disk(*[step(at, "crash", 20, node="n2") for at in (200, 400)])), 690)
    checks, node = run.onlooker.invariants, run.world.nodes[NodeId(2)]
    replica = node.broker.context.replicas[METADATA_GROUP]
    key, said, term = (METADATA_GROUP, replica.me), replica.log.durable_index, replica.node.term
    assert run.play() == ""
    copy = checks.outlines[key].durable
    assert copy < said, "the copy knows less"
    assert checks._has(*key, term) == said
    assert checks._has(*key, term + 1) == copy, "no leader of a later term ever heard it"


def test_what_an_old_copy_says_to_who_refuses_it_is_no_promise():
    """Seed 4100339: n3 had voted for itself in a term. An old copy of its disk came back, n1 asked
    for its vote in that term, and heard no answer, for it refused the copy."""
    run = until(Run(old_disk(*[step(at, "crash", 20, node="n2") for at in (200, 400)])), 690)
    checks, node, n1 = run.onlooker.invariants, *(run.world.nodes[NodeId(n)] for n in (2, 1))
    replicas = [each.broker.context.replicas[METADATA_GROUP] for each in (node, n1)]
    (me, asks), term = [replica.me for replica in replicas], replicas[0].node.term
    while not (node.rolled_back and NodeId(2) in n1.broker.links.refused):
        assert run.advance()
    checks.elections.votes[METADATA_GROUP, term, me] = me
    vote = VoteReply(METADATA_GROUP, me, asks, term, granted=True)
    effects = Effects(sends=[PeerSend(NodeId(1), 1, [vote])])
    checks.after_turn(node, (), effects)
    del n1.broker.links.refused[NodeId(2)]
    met = n1.broker.links.incarnations.met(NodeId(2))
    met.synced = met.heard = True
    with pytest.raises(Violation, match="one-vote-a-term"):
        checks.after_turn(node, (), effects)


def test_a_copy_that_nobody_can_tell_in_time_is_left():
    steps = (step(250, "stall", 2_000, node="n1"), step(300, "crash", 20, node="n2"))
    result = simulate(old_disk(*steps))
    assert result.failure == ""
    assert "old-disk" not in result.faults


def test_what_a_boot_would_know_of_the_cluster_is_read_from_the_disk():
    run = until(Run(schedule(step(200, "crash", 20, node="n2"))), 690)
    checks = run.onlooker.invariants.metadata
    for node in run.world.running():
        known = image_at_boot(node)
        assert known.brokers[NodeId(2)].boot == 2
        assert checks.digests[known.version] == known.digest()
        node.crash(Keep.NONE)
        node.disk.vanish(next(path for path in node.disk.paths() if path.startswith("groups/000")))
        assert image_at_boot(node).version == 0


def test_a_twin_of_another_partition_is_found_by_the_chain():
    both = [
        step(at, "produce", slot=slot, partition=slot, count=2)
        for at in range(0, 400, 40)
        for slot in (0, 1)
    ]
    options = SimOptions(seed=21, safety_ms=1_000, partitions=2, value_bytes=200)
    faults = (
        step(500, "crash", 100, node="n2"),
        step(550, "rot", node="n2", file="segment", how="twin"),
    )
    result = simulate(Schedule(options, (*both, *faults)))
    assert result.failure == ""
    assert result.faults == {"crash": 1, "rot": 1}
    assert result.probes["damage-found-at-boot"] >= 1


@pytest.mark.parametrize("how", ["flip", "zero", "alien", "unreadable", "base-offset"])
def test_rot_below_the_mark_is_found_at_a_boot_and_repaired(how):
    result = simulate(
        schedule(
            step(500, "power", 40, node="n2", keep="none"),
            step(530, "rot", node="n2", file="segment", how=how),
        )
    )
    assert result.failure == ""
    assert result.faults == {"power": 1, "rot": 1}


def test_rot_strikes_below_durable_marks_only():
    run = until(Run(schedule()), 500)
    disk = run.world.nodes[NodeId(1)].disk
    ends = _ends_below_marks(disk)
    assert ends
    for path, end in ends:
        assert 4_096 <= end <= len(disk.durable_content(path))


def test_a_failed_sync_restarts_the_broker():
    run = Run(schedule(step(200, "failed-sync", node="n1")))
    assert run.play() == ""
    assert run.world.nodes[NodeId(1)].boots == 3, "and once more when all is healed"
    assert probes.fired()["data-directory-poisoned"] >= 1


def test_a_machine_that_stops_in_a_disk_call_boots_again_by_itself():
    run = Run(schedule(step(200, "crash-at", node="n1", calls=0, keep="none", tear="no")))
    assert run.play() == ""
    assert run.world.nodes[NodeId(1)].boots == 2


def test_an_error_at_boot_is_tried_again():
    run = Run(
        schedule(
            step(200, "crash", 100, node="n1"),
            step(210, "disk-error", node="n1", call="open", count=1),
        )
    )
    assert run.play() == ""
    assert run.world.nodes[NodeId(1)].boots == 3


def test_a_full_disk_has_room_again():
    run = until(Run(schedule(step(100, "disk-full", 100, node="n1", bytes=0))), 150)
    assert run.world.nodes[NodeId(1)].disk.free == 0
    until(run, 60)
    assert run.world.nodes[NodeId(1)].disk.free is None


def test_a_copy_of_what_is_durable_leaves_the_disk_alone():
    run = until(Run(schedule()), 300)
    disk = run.world.nodes[NodeId(1)].disk
    before = {path: disk.content(path) for path in disk.paths()}
    copy = disk.durable_copy()
    kept = copy.paths()
    copy.crash()
    assert kept == copy.paths() != (), "a power loss takes nothing of it: all of it is durable"
    assert {path: disk.content(path) for path in disk.paths()} == before
    for path in copy.paths():
        assert copy.content(path) == disk.durable_content(path)


# --- the atlas ------------------------------------------------------------------------------------


def test_one_of_three_may_be_damaged_and_never_another():
    run = until(Run(schedule()), 100)
    assert run.nemesis.atlas.allow(NodeId(2))
    assert not run.nemesis.atlas.allow(NodeId(1))
    assert not run.nemesis.atlas.allow(NodeId(3))
    assert run.nemesis.atlas.allow(NodeId(2)), "it may be damaged again"


def test_two_of_five_only_where_no_group_of_three_holds_both():
    run = until(Run(schedule(brokers=5, controllers=3, partitions=1)), 100)
    group = run.world.nodes[NodeId(1)].broker.context.image.topic("t").partitions[0]
    holders = sorted(replica.node for replica in group.target)
    assert run.nemesis.atlas.allow(holders[0])
    assert not run.nemesis.atlas.allow(holders[1])


def test_where_partitions_will_be_moved_counts_before_they_are():
    """Seed 640015: n3 was wiped while it alone was up. The others, who were down, knew that the
    partition was on its way to n1 and n3: of the new configuration a majority was gone."""
    move = step(900, "reassign", partition=0, nodes="n1+n3")
    run = until(Run(schedule(move)), 100)
    assert not run.nemesis.atlas.allow(NodeId(3))
    assert not run.nemesis.atlas.allow(NodeId(1))
    assert run.nemesis.atlas.allow(NodeId(2))


def test_a_wiped_node_alone_does_not_say_who_votes():
    """Seed 302202: n3 was wiped and knew of no topic yet; while it was alone, n2 was wiped too, and
    of three replicas one was left."""
    run = until(Run(schedule(controllers=1)), 100)
    assert run.nemesis.atlas.allow(NodeId(3))
    for number in (1, 2):
        run.world.nodes[NodeId(number)].stop_process()
    run.world.nodes[NodeId(3)].broker.context.image = EMPTY_IMAGE
    assert not run.nemesis.atlas.allow(NodeId(3))
    assert not run.nemesis.atlas.allow(NodeId(2))


def test_what_was_seen_to_vote_counts_when_those_who_know_are_down():
    run = until(Run(schedule(brokers=5, controllers=3, partitions=1)), 100)
    image = run.world.nodes[NodeId(1)].broker.context.image
    first, second, _ = sorted(each.node for each in image.topic("t").partitions[0].target)
    assert run.nemesis.atlas.allow(first)
    assert (*sorted(each.node for each in image.topic("t").partitions[0].target),) in (
        run.nemesis.atlas.voters
    )
    run.world.nodes[first].stop_process()
    assert not run.nemesis.atlas.allow(second)


@pytest.mark.parametrize(("file", "how"), [("segment", "gone"), ("headers", "zero")])
def test_a_file_is_lost_only_when_its_mark_covers_it(monkeypatch, file, how):
    """Seed 302467: a segment was removed that held more than its mark spoke of; its replica forgot
    what it had acknowledged there, and voted for one without it."""
    disk = until(Run(schedule()), 300).world.nodes[NodeId(2)].disk
    strike = step(0, "rot", node="n2", file=file, how=how)
    path, end = next((path, end) for path, end in _ends_below_marks(disk))
    for marked, chosen in ((len(disk.content(path)), path), (end - 1, None)):
        monkeypatch.setattr(rot_faults, "_ends_below_marks", lambda disk, at=marked: [(path, at)])
        place = _place(disk, strike, Stream(1, "rot"))
        assert (place and place[0]) == chosen


def test_failing_reads_are_damage():
    """Seed 12: eight reads of n1 failed while one of its replicas was opened again, which then took
    its last entries for lost. The core of the liveness phase was n1 and n2, and n2 did not have
    those entries yet: no node in it could be elected, and rightly so."""
    run = until(Run(schedule()), 100)
    nemesis = run.nemesis
    assert _disk_error(nemesis, step(0, "disk-error", node="n1", call="read", count=8))
    assert not _disk_error(nemesis, step(0, "disk-error", node="n2", call="read", count=8))
    assert list(nemesis.atlas.damaged) == [NodeId(1)]
    assert _disk_error(nemesis, step(0, "disk-error", node="n2", call="write", count=8))


def test_while_placements_change_one_damaged_node_is_enough():
    """Seed 74: two of five nodes were wiped while a topic was being placed on both; of its group
    only one replica ever existed."""
    move = step(900, "create-topic", topic=0, partitions=1)
    run = until(Run(schedule(move, brokers=5, partitions=1)), 100)
    image = run.world.nodes[NodeId(1)].broker.context.image
    holders = {replica.node for replica in image.topic("t").partitions[0].target}
    free = [number for number in (4, 5) if number not in holders]
    assert run.nemesis.atlas.allow(NodeId(1))
    assert not any(run.nemesis.atlas.allow(NodeId(number)) for number in free)


def test_a_lone_controller_or_broker_is_never_damaged():
    run = until(Run(schedule(controllers=1)), 100)
    assert not run.nemesis.atlas.allow(NodeId(1))
    alone = until(Run(schedule(brokers=1, controllers=1, replication=1)), 100)
    assert not alone.nemesis.atlas.allow(NodeId(1))


def test_with_everybody_down_nobody_may_be_damaged():
    run = until(Run(schedule()), 100)
    for node in run.world.nodes.values():
        node.stop_process()
    assert not run.nemesis.atlas.allow(NodeId(1))


def test_steps_beyond_the_atlas_do_nothing():
    result = simulate(
        schedule(
            step(100, "wipe", 100, node="n1"),
            step(300, "wipe", 100, node="n2"),
            step(400, "rot", node="n3", file="segment", how="flip"),
            step(500, "failed-sync", node="n2"),
        )
    )
    assert result.failure == ""
    assert result.faults == {"wipe": 1}


def test_a_store_that_nobody_can_read_stops_no_other_fault():
    """Seed 7800338: two sectors of one frame had rotted, and the nemesis read the store itself."""
    run = until(Run(schedule()), 300)
    disk = run.world.nodes[NodeId(2)].disk
    assert _ends_below_marks(disk) != []
    for name in STORE_FILES:
        disk.overwrite(name, 0, bytes(len(disk.content(name))))
    assert loss_faults.readable(disk) is None
    assert _ends_below_marks(disk) == []

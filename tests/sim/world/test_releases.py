"""Releases that meet in one cluster: what they say and write, and what becomes of one too old.

The later releases are made of this one (`raftlog_sim.world.releases`); what is tested here is that
they really differ from it, and that the product keeps them apart.
"""

import attrs
import pytest
from raftlog_sim.playing.simulation import Run, simulate
from raftlog_sim.schedules.drawing import draw_schedule
from raftlog_sim.schedules.options import SimOptions, draw_options
from raftlog_sim.schedules.schedule import Schedule, step
from raftlog_sim.world.releases import RELEASES, level_of

from raftlog.base.errors import CorruptData, FutureFormat, ProtocolError
from raftlog.base.ids import NodeId, Term
from raftlog.base.units import Instant, millis
from raftlog.broker import peer_codec
from raftlog.broker.peer_codec import common_version
from raftlog.broker.peer_messages import ControllerKind
from raftlog.metadata import commands as c
from raftlog.metadata.command_codec import CommandCodec, Proposal
from raftlog.metadata.refusals import Refusal
from raftlog.metadata.requests import SubmitCommand, encode_body
from tests.broker.cluster import Cluster
from tests.broker.test_peer_codec import EXAMPLES

FENCE = Proposal(Term(3), 4, c.FenceBroker(node=NodeId(1), epoch=7))


def frame(version, messages):
    return b"".join(bytes(part) for part in RELEASES[-1].codecs[version].encode(messages))


@pytest.mark.parametrize("version", RELEASES[-1].codecs)
@pytest.mark.parametrize("messages", EXAMPLES, ids=range(len(EXAMPLES)))
def test_each_protocol_carries_every_message_and_no_other_reads_it(version, messages):
    """This release's own protocols share most of their kinds."""
    written, spoken = frame(version, messages), RELEASES[-1].codecs
    kinds = [spoken[version].writers[type(message)][0] for message in messages]
    for other, codec in spoken.items():
        if all(kind in codec.readers for kind in kinds):
            assert other == version or max(version, other) in RELEASES[0].codecs or not messages
            assert codec.decode(written) == messages
        else:
            with pytest.raises(ProtocolError):
                codec.decode(written)


def test_the_bytes_of_later_protocols():
    """Golden: one message (a reply to round 9, without a clock), seven protocols."""
    message = EXAMPLES[3]
    body = "000000000000000900000000"
    assert frame(1, message).hex() == frame(2, message).hex() == "00000001030000000c" + body
    body = "ff" * 8 + body
    for version in (3, 4, 5):
        assert frame(version, message).hex() == "000000010800000014" + body
    first = "0100000007" + b"field 1".hex()
    assert frame(6, message).hex() == "00000001150000002201" + first + "08" + body
    second = "0200000007" + b"field 2".hex()
    assert frame(7, message).hex() == "00000001160000002e02" + first + second + "08" + body


@pytest.mark.parametrize("one", range(len(RELEASES)))
@pytest.mark.parametrize("other", range(len(RELEASES)))
def test_any_two_releases_can_be_linked(one, other):
    spoken = common_version(RELEASES[one].protocols, RELEASES[other].protocols)
    assert spoken == RELEASES[min(one, other)].protocols[1]


@pytest.mark.parametrize("level", [1, 2, 3])
def test_a_command_is_read_from_its_level_on_only(level):
    written = RELEASES[-1].commands.encode(FENCE, level)
    for release in RELEASES:
        if level <= release.level_max:
            assert release.commands.decode(written, CorruptData, "") == FENCE
        else:
            with pytest.raises(FutureFormat, match="start the newer release"):
                release.commands.decode(written, CorruptData, "")


# --- an operator who starts the wrong one ---------------------------------------------------------


def restart(node, release):
    node.installed = release
    node.stop_process()
    node.start()


def at_level(level, brokers=3):
    """A cluster of release 1 whose feature level is `level`, with a record in it."""
    cluster = Cluster(brokers, brokers)
    cluster.ready()
    for node in list(cluster.world.nodes.values()):
        restart(node, 1)
        cluster.ready()
    raise_level(cluster, level)
    cluster.wait(lambda: all(level_at(node) == level for node in cluster.world.running()))
    cluster.create("t")
    assert cluster.produce("t", [b"before"]).error_code == 0
    return cluster


def raise_level(cluster, level):
    node = cluster.world.running()[0]
    heard = []
    node.broker.context.controller.ask(
        ControllerKind.PROPOSE,
        encode_body(SubmitCommand(command=c.RaiseFeatureLevel(level=level))),
        Instant(node.live.clock.now(cluster.world.now) + millis(3000)),
        heard.append,
    )
    node.deliver_nothing()
    cluster.wait(lambda: bool(heard))
    return heard[0]


def level_at(node):
    return node.broker.context.image.feature_level


def test_a_level_that_one_broker_does_not_support_is_refused_by_name():
    cluster = Cluster(3, 3)
    cluster.ready()
    for number in (1, 2):
        restart(cluster.world.nodes[number], 1)
        cluster.ready()
    assert "broker 3 supports levels 1 to 1, not 2" in raise_level(cluster, 2).text
    assert {level_at(node) for node in cluster.world.running()} == {1}


def test_a_release_below_the_level_is_refused_takes_no_part_and_hurts_nobody():
    """The others go on, and it comes back whole as soon as the right release is started."""
    cluster = at_level(2)
    late = cluster.world.nodes[2]
    restart(late, 0)
    cluster.run(3.0)
    registration = late.broker.registration
    assert registration.refused is Refusal.FEATURE_UNSUPPORTED or late.broker.loader.stopped
    assert not late.broker.admin.readyz()["ok"]
    assert "t" not in late.broker.context.image.names, "it followed what it cannot read"
    others = [cluster.world.nodes[number] for number in (1, 3)]
    assert cluster.produce("t", [b"without it"]).error_code == 0
    cluster.create("u", factor=2, at=others[0].number)
    restart(late, 1)
    cluster.ready()
    cluster.wait(lambda: "u" in late.broker.context.image.names)
    assert late.broker.loader.stopped is None
    assert cluster.produce("t", [b"with it again"]).error_code == 0


def test_a_loader_that_meets_a_later_form_says_which_release_is_wanted():
    cluster = at_level(2)
    late = cluster.world.nodes[2]
    restart(late, 0)
    cluster.wait(lambda: late.broker.loader.stopped is not None, what="the loader stops")
    assert "start the newer release on this broker" in late.broker.loader.stopped
    assert "version 2" in late.broker.loader.stopped


# --- schedules ------------------------------------------------------------------------------------


def test_upgrades_leave_everything_else_of_a_seed_as_it_is():
    """Options and steps of all other sources are the same whether releases mix or not."""
    mixed = [seed for seed in range(1, 80) if dict(draw_options(seed).fault_gaps_ms)["upgrade"]]
    assert 8 <= len(mixed) <= 40, "about a quarter of the seeds"
    options = draw_options(mixed[0])
    gaps = tuple((name, 0 if name == "upgrade" else gap) for name, gap in options.fault_gaps_ms)
    plain = attrs.evolve(options, fault_gaps_ms=gaps, release=0)
    kinds = ("upgrade", "downgrade", "raise-level")
    steps = [each for each in draw_schedule(options).steps if each.kind not in kinds]
    assert list(draw_schedule(plain).steps) == steps
    assert {draw_options(seed).release for seed in mixed} == {0, 1}
    assert all(draw_options(seed).release == 0 for seed in range(1, 80) if seed not in mixed)


def run(*some, **options):
    writes = [step(at, "produce", slot=0, partition=0, count=2) for at in range(50, 1500, 50)]
    values = {"seed": 3, "safety_ms": 1600, **options}
    return Schedule(SimOptions(**values), (*writes, *some))


def upgrades(to, kind="upgrade", start=100):
    return [
        step(start + 200 * number, kind, 60, node=f"n{number}", to=to, how="kill")
        for number in (1, 2, 3)
    ]


def test_a_rolling_upgrade_and_the_way_back():
    back = upgrades(0, "downgrade", start=800)
    result = simulate(run(*upgrades(2), *back))
    assert result.failure == ""
    assert result.faults == {"downgrade": 3, "upgrade": 3}
    assert result.invariants["peer-protocol"]["checked"] > 100


def test_an_end_that_speaks_its_newest_protocol_is_seen_at_once(monkeypatch):
    monkeypatch.setattr(peer_codec, "common_version", lambda mine, theirs: mine[1])
    assert simulate(run(*upgrades(1))).failure.startswith("peer-protocol: ")


def test_a_command_that_not_all_can_read_is_seen_at_once(monkeypatch):
    def newest(self, kind, level):
        return len(self.table[kind][1]), self.table[kind][1][-1]

    monkeypatch.setattr(CommandCodec, "_form_at", newest)
    assert simulate(run(*upgrades(1))).failure.startswith("metadata-followed: node ")


def test_no_way_back_below_a_level_that_was_asked_for():
    back = upgrades(0, "downgrade", start=800)
    result = simulate(run(*upgrades(1), step(790, "raise-level", level=2), *back))
    assert result.failure == ""
    assert result.faults == {"raise-level": 1, "upgrade": 3}


def test_no_level_is_asked_for_while_a_node_goes_back():
    down = step(760, "downgrade", 300, node="n2", to=0, how="kill")
    result = simulate(run(*upgrades(1), down, step(800, "raise-level", level=2)))
    assert result.failure == ""
    assert result.faults == {"downgrade": 1, "upgrade": 3}


def test_a_cluster_that_was_founded_by_a_later_release():
    going = Run(run(release=1))
    assert going.play() == ""
    assert {level_at(node) for node in going.world.running()} == {level_of(1)}

"""A smoke of each workload and of every nemesis against real brokers.

Nemeses that go together share a cluster and take turns: one fault each, healed before the next.
"""

import gc
import json
from collections.abc import Iterator
from itertools import islice

import attrs
import pytest

from jepsen_style_tests import control, runner
from jepsen_style_tests.nemeses.all import NEMESES
from jepsen_style_tests.runner import RunPlan
from jepsen_style_tests.world import CONTROL, EVERYBODY, PEERS, Nemesis, ProcessWorld, Setup

pytestmark = pytest.mark.filterwarnings(
    # kafka-python forgets to close sockets of connections that broke while they were being made.
    "ignore:unclosed <socket:ResourceWarning",
    "ignore:Exception ignored in. <socket.socket:pytest.PytestUnraisableExceptionWarning",
    # aiokafka leaves a connection that was being made when its client was closed.
    "ignore:Unclosed AIOKafkaConnection:ResourceWarning",
    "ignore:Exception ignored in. <function AIOKafka:pytest.PytestUnraisableExceptionWarning",
    "ignore:Exception ignored in. <function (StreamWriter|_Selector):"
    "pytest.PytestUnraisableExceptionWarning",
)

FAULT_SECONDS_MAX = 1.0
"""Enough for a fault to be felt; the matrix has the long ones."""
TURN_STEPS = 3
RUN_SECONDS_MAX = 240.0

LINKS = ("isolate", "one-way", "bridge", "ring", "delay", "throttle", "resets", "lost-answers")
ENDS = ("none", "kill-one", "kill-leader", "rolling", "transfers", "wipe")
PAUSES = ("pause-leader", "pause-majority", "pause-and-kill", "bit-flips")
DISKS = ("disk-full", "slow-sync", "failing-sync", "kill-all")
RELAYS = {
    "links": ("append", LINKS, Setup(proxies=EVERYBODY)),
    "ends": ("idempotent", ENDS, Setup(lost_copies=True)),
    "pauses": ("register", PAUSES, Setup(lost_copies=True)),
    "disks": ("append", DISKS, Setup(test_disk=f"writeback,control={CONTROL}")),
}
ALONE = {"clock-jumps": "topics", "disk-full-tmpfs": "idempotent", "drop-packets": "append"}
"""Their brokers need a machine of a certain kind, or root."""


@pytest.fixture(autouse=True)
def forgotten_sockets():
    """They are found here, where they are forgiven, and not in whatever test comes next."""
    yield
    gc.collect()


def relay(names: tuple[str, ...], setup: Setup, had: list[str]) -> Nemesis:
    """These nemeses in turn; `had` gets the name of each that has had its turn."""

    def steps(world: ProcessWorld) -> Iterator[float]:
        for name in names:
            for wait in islice(NEMESES[name].steps(world), TURN_STEPS):
                yield min(wait, FAULT_SECONDS_MAX)
            world.heal()
            world.wait_ready(world.nodes, runner.HEAL_SECONDS)
            world.wait_in_sync(runner.HEAL_SECONDS)
            had.append(name)
            yield 0.2

    return Nemesis(name="relay", about="one after the other", steps=steps, setup=setup)


def ran(folder, workload: str, names: tuple[str, ...], setup: Setup) -> list[str]:
    """Run a relay; the faults that the history has."""
    had: list[str] = []
    plan = RunPlan(workload=workload, nemesis=" ".join(names), seconds=RUN_SECONDS_MAX, seed=11)
    found = runner.run(plan, folder, print, relay(names, setup, had))
    assert (found.verdict, found.failing) == ("valid", ())
    assert had == list(names), "each had its turn"
    assert found.operations > 20
    lines = (folder / runner.HISTORY).read_text().splitlines()
    notes = [line for line in map(json.loads, lines[1:]) if line["process"] == "nemesis"]
    return [line["f"] for line in notes]


def test_every_nemesis_has_its_smoke():
    known = [name for _, names, _ in RELAYS.values() for name in names]
    known += [*ALONE, control.BROKEN_DISK.name]
    assert sorted(known) == sorted(NEMESES)


@pytest.mark.parametrize("name", RELAYS)
def test_a_relay_gives_each_nemesis_what_it_needs(name):
    _, names, setup = RELAYS[name]
    for each in names:
        needs = NEMESES[each].setup
        if needs.proxies:
            assert setup.proxies in (needs.proxies, EVERYBODY), each
            assert needs.proxies in (PEERS, EVERYBODY)
        assert needs.test_disk in ("", "writeback", setup.test_disk), each
        assert "writeback" in setup.test_disk or not needs.test_disk, each
        assert setup.lost_copies or not needs.lost_copies, each
        plain = attrs.evolve(needs, proxies="", test_disk="", lost_copies=False)
        assert plain == Setup(), f"{each} needs something of its own"


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", RELAYS)
def test_nemeses_in_turn(tmp_path, name):
    workload, names, setup = RELAYS[name]
    faults = ran(tmp_path, workload, names, setup)
    assert len([f for f in faults if not f.startswith("stop-")]) >= len(names) - ("none" in names)


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", ALONE)
def test_a_nemesis_that_needs_a_machine_of_its_kind(tmp_path, name):
    nemesis = NEMESES[name]
    missing = nemesis.setup.missing()
    if missing:
        pytest.skip(missing)
    assert ran(tmp_path, ALONE[name], (name,), nemesis.setup)


@pytest.mark.soak
@pytest.mark.processes
@pytest.mark.timeout(900)
def test_brokers_on_a_disk_that_only_pretends_are_caught(tmp_path):
    """The control of every suite. The power may fail when nothing was pretended, so it has more
    than one try. Brokers that found their records gone are waited for, which takes minutes."""
    for seed in range(3):
        plan = RunPlan(workload="append", nemesis="broken-disk", seconds=8.0, seed=seed)
        found = runner.run(plan, tmp_path, print)
        if found.verdict == "invalid":
            break
    assert found.verdict == "invalid"
    assert found.failing


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("workload", "nemesis"),
    [
        ("append", "isolate"),
        ("idempotent", "lost-answers"),
        ("groups", "kill-leader"),
        ("register", "pause-leader"),
        ("topics", "kill-all"),
    ],
)
def test_a_smoke_of_each_workload(tmp_path, workload, nemesis):
    for seconds in (3.0, 6.0, 12.0):  # on a busy machine a broker alone needs three to come back
        plan = RunPlan(workload=workload, nemesis=nemesis, seconds=seconds, seed=7)
        found = runner.run(plan, tmp_path, print)
        assert found.failing == ()
        assert found.verdict == "valid"
        if found.operations > 20:
            break
    assert found.operations > 20
    assert found.faults > 0
    report = (tmp_path / runner.REPORT).read_text()
    assert "PASS" in report
    assert json.loads((tmp_path / "verdict.json").read_text())["verdict"] == "valid"
    assert json.loads((tmp_path / "run.json").read_text())["seed"] == 7
    assert not (tmp_path / "cluster").exists(), "data of a valid run is removed"

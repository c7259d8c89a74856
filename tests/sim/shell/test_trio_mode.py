"""Trio mode: the real runtime in virtual time. Same seed, same bytes; planted bugs of the shell are
caught there and nowhere else."""

import io
import json
import math
import os
import socket
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import attrs
import pytest
import trio
from raftlog_sim.__main__ import main
from raftlog_sim.base.violation import NAMES, Violation
from raftlog_sim.checks.invariants import Invariants
from raftlog_sim.hunting.debugger import Debugger
from raftlog_sim.playing.scenario_files import load
from raftlog_sim.playing.simulation import simulate
from raftlog_sim.playing.stepping import TrioSteps
from raftlog_sim.schedules.drawing import draw_schedule
from raftlog_sim.schedules.options import NOT_ON_STREAMS, draw_options
from raftlog_sim.schedules.schedule import Schedule, schedule_from_text, step
from raftlog_sim.schedules.step_kinds import OF_LINKS, OF_MEMBERS
from raftlog_sim.shell.trio_run import TrioWorld
from raftlog_sim.shell.trio_world import TrioNode
from raftlog_sim.workloads.workload import SimWorkload

from raftlog.base import buggify
from raftlog.runtime.network.framing import FrameReceiver
from raftlog.storage.directories.data_dir import is_formatted

ROOT = Path(__file__).resolve().parents[3]
OF_GROUPS = {name for name in NAMES if name.startswith("group-")} | {"machine-agrees"}
READS_NOTHING = "shell-a-client-that-reads-nothing"


def short(seed: int, profile: str = "trio", **more):
    options = attrs.evolve(draw_options(seed, profile), trio=True, safety_ms=600)
    return attrs.evolve(options, brokers=3, controllers=3, replication=3, **more)


def calm(seed: int, *steps, **more):
    """A run without faults but for these steps."""
    options = short(seed, "calm", **more)
    return Schedule(options, (*draw_schedule(options).steps, *steps))


def test_a_calm_seed_passes_and_streams_were_judged():
    result = simulate(calm(1, step(50, "flood", 200, node="leader:0", count=500)))
    assert result.failure == ""
    assert result.acknowledged == result.sent > 10
    assert result.verdict.verdict == "valid"
    counts = {name: row["checked"] for name, row in result.invariants.items()}
    idle = {name for name, count in counts.items() if count == 0}
    assert idle <= {
        "leader-completeness",
        *OF_GROUPS,  # members play in the heap of events only
        "membership-steps",
        "one-change-at-a-time",
        "linearizable-read",
        "truncation-proven",
        "removed-rightly",
        "same-after-reboot",
        "kept-across-lives",
        "copied-exactly",
        "recovered-exactly",  # a heap of events looks at jobs
        "failed-write-is-the-end",
        "offsets-told",
        "epoch-ends-told",
        "times-told",
        "kept-by-age",
        "kept-by-size",
        "rot-found",
        "moves-paced",
        "controllers-wanted",
        "directories-apart",
    }
    assert counts["answers-in-order"] >= 200
    assert counts["peer-protocol"] > 100
    assert counts["records-followed"] > 10


def test_the_same_seed_gives_the_same_bytes():
    one, two = simulate(short(7)), simulate(short(7))
    assert one.failure == ""
    assert one.trace_hash == two.trace_hash
    assert one.history == two.history
    assert simulate(short(8)).trace_hash != one.trace_hash


RUN = """
import sys
sys.path[:0] = ["sim", "."]
if "hypothesis" in sys.argv: import hypothesis
from raftlog_sim.playing.simulation import simulate
from tests.sim.shell.test_trio_mode import short
result = simulate(short(9))
print(result.trace_hash, result.events, result.simulated_ns, result.failure)
"""


def test_two_processes_with_other_hash_seeds_give_one_trace():
    said = []
    for hash_seed, more in (("1", []), ("2", ["hypothesis"]), ("random", [])):
        done = subprocess.run(
            [sys.executable, "-c", RUN, *more],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        said.append(done.stdout)
    assert len(said[0].split()[0]) == 16
    assert said[1:] == said[:1] * 2


def test_a_run_needs_no_thread_and_no_connection_of_the_machine(monkeypatch, tmp_path):
    def refuse(*args, **more):
        raise AssertionError(f"{args} {more}")

    schedule = calm(2)
    simulate(schedule)  # whatever is imported late is imported now
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "bind", refuse)
    for name in ("open", "pread", "pwritev", "fsync", "sendfile"):
        monkeypatch.setattr(os, name, refuse)
    assert simulate(schedule).failure == ""
    assert list(tmp_path.iterdir()) == []


# --- the share of the seeds ---


def test_a_share_of_the_seeds_runs_in_trio_mode():
    drawn = [draw_options(seed) for seed in range(1, 1001)]
    assert 50 <= sum(each.trio for each in drawn) <= 100
    assert all(draw_options(seed, "trio").trio for seed in range(20))


def test_what_else_a_seed_draws_does_not_depend_on_the_mode(monkeypatch):
    seeds = [seed for seed in range(1, 100) if draw_options(seed).trio]
    with_trio = [draw_options(seed) for seed in seeds]
    monkeypatch.setattr("raftlog_sim.schedules.options.TRIO_ONE_IN", 1 << 60)
    for one, seed in zip(with_trio, seeds, strict=True):
        other = draw_options(seed)
        assert not other.trio
        gaps = {name: gap for name, gap in other.fault_gaps_ms if name not in NOT_ON_STREAMS}
        mine = dict(one.fault_gaps_ms)
        assert all(mine.pop(name) == 0 for name in NOT_ON_STREAMS)
        assert mine == gaps
        assert one.members == 0
        heap_only = {"fault_gaps_ms": other.fault_gaps_ms, "members": other.members}
        assert attrs.evolve(one, trio=False, **heap_only) == other
        not_played = {*NOT_ON_STREAMS, *OF_MEMBERS, "kill-coordinator", "cut-coordinator"}
        of_streams = ("flood", *OF_LINKS)
        kinds = {each.kind for each in draw_schedule(one).steps}
        assert not kinds & not_played
        drawn = [each for each in draw_schedule(one).steps if each.kind not in of_streams]
        rest = [
            each
            for each in draw_schedule(other).steps
            if each.kind not in not_played and "coordinator" not in str(each)
        ]
        assert drawn == rest


def test_a_schedule_of_trio_mode_is_a_file_like_any_other():
    schedule = calm(3, step(60, "crash", 80, node="leader:0"))
    assert schedule_from_text(schedule.text()) == schedule
    one = simulate(schedule)
    assert one.failure == ""
    assert one.faults == {"crash": 1}
    assert simulate(schedule_from_text(schedule.text())).trace_hash == one.trace_hash


def test_commands_know_the_mode(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "case.json"
    path.write_text(calm(4).text())
    assert main(["replay", str(path), "--out", "r"]) == 0
    said = capsys.readouterr().out
    assert "trio=true" in said
    assert main(["replay", str(tmp_path / "r"), "--no-folder", "--format", "json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["trace_hash"] in said
    monkeypatch.setattr("sys.stdin", io.StringIO("next 5\nwhere"))
    assert main(["debug", str(path)]) == 0
    assert "turn 5 at" in capsys.readouterr().out


def test_a_run_can_be_stepped_forwards_and_backwards():
    with closing(Debugger(calm(4))) as debugger:
        assert debugger.where() == "turn 0 at 0.000 ms, set-up"
        debugger.until(["phase", "safety"])
        there, state = debugger.where(), debugger.state()
        debugger.next(30)
        assert debugger.diff()
        debugger.back(30)
        assert (debugger.where(), debugger.state()) == (there, state)
        debugger.until(["end"])
        assert debugger.ended.startswith("over; every invariant holds")
    assert "the run" not in {thread.name for thread in threading.enumerate()}


def test_a_stepped_run_fails_as_it_does_when_played():
    """An error of a watcher of turns ends the run as an error of a broker does."""
    schedule = calm(4)

    def broken(turn):
        raise Violation("order", f"turn {turn.number}")

    steps = TrioSteps(schedule, broken)
    assert steps.advance() == "order: turn 1"
    steps.close()


def test_a_run_that_is_given_up_ends_its_thread():
    with closing(Debugger(calm(4))) as debugger:
        debugger.next(40)
    assert "the run" not in {thread.name for thread in threading.enumerate()}


# --- faults ---


@pytest.mark.parametrize(
    "fault",
    [
        step(100, "crash", 150, node="leader:0"),
        step(100, "power", 150, node="all", keep="none"),
        step(100, "pause", 400, node="leader:0"),
        step(100, "stall", 300, node="leader:0"),
        step(100, "partition", 400, side="leader:0", how="silent"),
        step(100, "partition", 400, side="leader:0", how="loud"),
        step(100, "hangup", node="all"),
        step(100, "reset", one="all", other="all"),
        step(100, "kill-at", node="n1", calls=3, tear="yes"),
        step(100, "stop", 200, node="leader:0"),
        step(100, "failed-sync", node="n2"),
        step(100, "slow-link", 400, sender="all", receiver="all", ms=40),
    ],
    ids=lambda each: each.kind,
)
def test_a_cluster_lives_through_a_fault(fault):
    result = simulate(calm(5, fault, sync_us=300, latency_us=200, jitter_us=200))
    assert result.failure == ""
    assert result.faults == {fault.kind: 1}


def test_a_process_that_ends_while_it_is_paused_boots_unpaused(monkeypatch):
    """Seed 6305504: it was paused between its last turn and its end, and its next boot, of which
    no task thought that it was paused, did nothing any more."""
    ended = TrioNode._ended

    def paused_at_last(self, boot, error):
        self.suspended = not boot.over
        ended(self, boot, error)

    monkeypatch.setattr(TrioNode, "_ended", paused_at_last)
    result = simulate(calm(1, step(100, "stop", 150, node="n1")))
    assert (result.failure, result.faults) == ("", {"stop": 1})


def test_an_empty_disk_joins_by_asking_a_controller(monkeypatch):
    """In a heap of events disks are formatted by hand; here the shell does it, over the network."""
    format_disk, left = TrioWorld.format, []

    def leave_empty(world, disk, identity):
        if world.now:
            left.append(disk)
        else:
            format_disk(world, disk, identity)

    monkeypatch.setattr(TrioWorld, "format", leave_empty)
    joins = step(100, "wipe", 100, node="n3")
    result = simulate(calm(6, joins, sync_us=300, latency_us=200, jitter_us=200))
    assert result.failure == ""
    assert [is_formatted(disk) for disk in left] == [True]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 4])
def test_seeds_with_many_faults_pass(seed):
    result = simulate(draw_options(seed, "trio"))
    assert result.failure == ""
    assert sum(result.faults.values()) > 3


def test_what_goes_wrong_in_a_turn_is_the_failure_of_the_run(monkeypatch):
    """Whichever task has run the turn; and nothing of the run is left behind."""
    after_turn, start, turns = Invariants.after_turn, SimWorkload.start, []

    def started(self):
        start(self)
        turns.append(0)

    def violated(self, node, events, effects):
        if turns:
            turns.append(node.number)
        if len(turns) == 100:
            raise Violation("order", "planted")
        after_turn(self, node, events, effects)

    monkeypatch.setattr(SimWorkload, "start", started)
    monkeypatch.setattr(Invariants, "after_turn", violated)
    result = simulate(calm(1, buggify=True))
    assert (result.failure, result.phase) == ("order: planted", "safety")
    assert len(turns) < 120, "it ends soon"
    assert buggify._ARMED.decision is None


def test_a_bug_while_tasks_unwind_is_found(monkeypatch):
    """A process that was killed has no effect any more, but its cleaning up is code too."""
    close = FrameReceiver.close

    def broken(self):
        close(self)
        if trio.current_effective_deadline() == -math.inf:
            raise ZeroDivisionError("in a cleanup")

    monkeypatch.setattr(FrameReceiver, "close", broken)
    result = simulate(calm(2, step(100, "crash", 100, node="n1")))
    assert result.failure.startswith("exception: ZeroDivisionError: in a cleanup")


# --- planted bugs: `load(READS_NOTHING).mutants` are hunted by test_scenarios ---

IN_A_HEAP = """
import sys
sys.path[:0] = ["sim", "."]
import attrs
from raftlog_sim.hunting import mutation
from raftlog_sim.playing.scenario_files import load
from raftlog_sim.playing.simulation import simulate
mutation.switch_on(sys.argv[1])
schedule = load(sys.argv[2]).case.schedule
heap = attrs.evolve(schedule, options=attrs.evolve(schedule.options, trio=False))
print([simulate(each).failure.partition(":")[0] for each in (heap, schedule)])
"""


@pytest.mark.parametrize("mutant", ["35", "35d"])
def test_a_bug_of_the_shell_is_caught_here_and_not_in_a_heap_of_events(mutant):
    assert mutant in load(READS_NOTHING).mutants
    done = subprocess.run(
        [sys.executable, "-c", IN_A_HEAP, mutant, READS_NOTHING],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    caught = {"35": "back-pressure", "35d": "registered-first"}[mutant]
    assert done.stdout.strip() == str(["", caught])

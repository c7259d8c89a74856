"""Workers that die, get stuck or are told to end. `sweep --jobs 2` lost everything when one was
killed, and SIGTERM left them running."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from raftlog_sim.hunting.workers import AHEAD, CALLS_A_WORKER, DEATHS_MAX, Lost, SeedWorkers

from raftlog.base.errors import OperatingError

ROOT = Path(__file__).resolve().parents[3]
WAIT_SECONDS = 60


def played(what, *more):
    if what == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "leave":
        os._exit(7)
    if what == "raise":
        raise ValueError("no such thing")
    if what == "refuse":
        raise OperatingError("it cannot be", on="this", do="that")
    if what == "where":
        return sys.path[0]
    if what == "wait":
        time.sleep(600)
    return (what, os.getpid(), *more)


def nothing():
    pass


def workers_of(jobs=2, **more):
    return SeedWorkers(
        **{"jobs": jobs, "play": played, "prepare": nothing, "may_go_on": lambda: True, **more}
    )


def test_answers_come_in_the_order_of_the_calls():
    answers = list(workers_of(3).answers((number,) for number in range(40)))
    assert [call for call, _ in answers] == [(number,) for number in range(40)]
    assert [answer[0] for _, answer in answers] == list(range(40))
    assert len({answer[1] for _, answer in answers}) <= 3


def test_a_worker_that_dies_costs_the_call_that_it_had():
    workers = workers_of()
    calls = [("a",), ("die",), ("b",), ("leave",), ("raise",), ("c",)]
    answers = dict(workers.answers(calls))
    assert {call[0] for call, answer in answers.items() if type(answer) is tuple} == {"a", "b", "c"}
    assert answers["die",] == Lost("worker-died: the process that played it was ended by SIGKILL")
    assert answers["leave",] == Lost(
        "worker-died: the process that played it ended with exit code 7"
    )
    assert answers["raise",].why.startswith("worker-failed: ValueError: no such thing at ")
    assert (workers.deaths, workers.gave_up) == (2, False)


def test_after_a_few_deaths_nothing_more_is_handed_out():
    workers = workers_of()
    answers = list(workers.answers([("die",)] * 100))
    assert workers.gave_up
    assert DEATHS_MAX <= len(answers) <= DEATHS_MAX + 2
    assert all(isinstance(answer, Lost) for _, answer in answers)


def test_what_is_refused_reaches_the_caller_whole():
    with pytest.raises(OperatingError) as raised:
        list(workers_of().answers([("refuse",)]))
    assert raised.value.as_json() == {"what": "it cannot be", "on": "this", "do": "that"}


def test_a_worker_is_replaced_after_some_calls():
    answers = list(workers_of(1).answers([("a",)] * (CALLS_A_WORKER + 1)))
    assert len({answer[1] for _, answer in answers}) == 2


def test_a_worker_imports_from_the_home_of_its_calls(tmp_path):
    before = sys.path.copy()
    workers = workers_of(home_of=lambda call: call[1])
    homes = ["", str(tmp_path), "", str(tmp_path)] * 3
    answers = [answer for _, answer in workers.answers(("where", home) for home in homes)]
    assert answers == [home or before[0] for home in homes]
    assert sys.path == before


def test_a_slow_call_does_not_let_the_others_run_far_ahead():
    taken = []

    def calls():
        yield ("wait",)
        for number in range(1_000):
            taken.append(number)
            yield (number,)

    workers = workers_of(grace_seconds=0.1, may_go_on=lambda: len(taken) < AHEAD * 2 - 1)
    answers = list(workers.answers(calls()))
    assert len(taken) == len(answers) - 1 == AHEAD * 2 - 1
    assert answers[0][1].why.startswith("worker-stuck: ")


def test_who_stops_listening_leaves_nobody_behind():
    workers = workers_of()
    with closing(workers.answers([("a",), ("wait",), ("wait",)])) as answers:
        _, (_, process) = next(answers)
    assert not runs(process)


# --- a sweep --------------------------------------------------------------------------------------


def sweep(*arguments, cwd, seeds="1..6"):
    command = [sys.executable, "-m", "raftlog_sim", "sweep", "--jobs", "2", "--check-every", "0"]
    return subprocess.Popen(
        [*command, "--seeds", seeds, "--format", "json", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'sim'}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.fixture
def heeds_interrupts():
    """A shell's background process ignores SIGINT, and so does all that it starts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def children_of(pid):
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                command = (folder / "cmdline").read_text()
            except (OSError, IndexError):
                continue
            if parent == pid and "resource_tracker" not in command:
                found.append(int(folder.name))
    return sorted(found)


def runs(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def within(holds):
    """Wait until it holds, generously."""
    deadline = time.perf_counter() + WAIT_SECONDS
    while not (found := holds()):
        assert time.perf_counter() < deadline, holds
        time.sleep(0.02)
    return found


def two_workers(process):
    return within(lambda: len(children_of(process.pid)) == 2 and children_of(process.pid))


pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks at processes in /proc")


@pytest.mark.slow
def test_a_sweep_names_the_seed_whose_worker_was_killed_and_goes_on(tmp_path):
    process = sweep(cwd=tmp_path, seeds="1..12")
    try:
        os.kill(two_workers(process)[0], signal.SIGKILL)
        out, error = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == 1, error
    # A sweep that takes half a minute says how far it is.
    assert [line for line in error.splitlines() if not line.startswith("seeds: ")] == []
    document = json.loads(out)
    assert (document["seeds"], document["failed"]) == (12, 1)
    (group,) = document["failures"]
    assert group["class"] == "worker-died"
    assert "SIGKILL" in group["example"]
    assert group["seeds"][0] in range(1, 13)
    assert (group["folders"], document["gave_up"]) == ([], "")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.usefixtures("heeds_interrupts")
def test_a_sweep_that_is_told_to_end_tells_what_it_did_and_leaves_nobody(number, tmp_path):
    process = sweep("--check-every", "1", cwd=tmp_path, seeds="1..100000")
    try:
        started = two_workers(process)
        below = within(lambda: [each for pid in started for each in children_of(pid)])
        process.send_signal(number)
        out, error = process.communicate(timeout=WAIT_SECONDS)
    finally:
        process.kill()
    assert process.returncode == 130, error
    # A sweep that takes half a minute says how far it is.
    assert [line for line in error.splitlines() if not line.startswith("seeds: ")] == []
    assert json.loads(out)["interrupted"] is True
    within(partial(all_gone, [*started, *below]))


def all_gone(pids):
    return not any(map(runs, pids))


@pytest.mark.slow
def test_workers_end_with_a_sweep_that_is_killed(tmp_path):
    process = sweep(cwd=tmp_path, seeds="1..100000")
    try:
        started = two_workers(process)
    finally:
        process.kill()
        process.communicate()
    within(partial(all_gone, started))

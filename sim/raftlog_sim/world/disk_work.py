"""Performs the disk work of a simulated machine: write rounds, step by step, and jobs.

A round takes time at each of its steps. A step that waits for the disk takes effect when its time
is over. Until then the written bytes are pending, and power may fail in between. Where the product
may do the syncs of a round in any order, the seed chooses the order. In a patient world waiting
rounds share their syncs, as in a real process.

A job is a plain function. The machine performs it in one instant, when its time is over. A process
that ends earlier has done the job up to some call to the disk.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from raftlog.base.errors import RaftlogError
from raftlog.base.units import NANOS_PER_MICRO, millis
from raftlog.broker import events as e
from raftlog.storage.segments.jobs import read_slice
from raftlog.storage.write_round import SYNCS
from raftlog_sim.base.streams import Stream
from raftlog_sim.world import turns
from raftlog_sim.world.boot import Boot, Performing
from raftlog_sim.world.disk import SimulatedCrashError, SimulatedDisk
from raftlog_sim.world.faces import SimNode

WRITE_NS: Final = 50 * NANOS_PER_MICRO
"""The time from the hand-over of a round to its first written byte."""
STEP_NS: Final = 5 * NANOS_PER_MICRO
"""How long a step takes that does not wait for the disk."""
_BEGIN_NS: Final = WRITE_NS - STEP_NS
JOB_NS: Final = 200 * NANOS_PER_MICRO
RESTART_NS: Final = millis(400)
"""How long a supervisor takes to start a process again."""
_LOOK_AGAIN_NS: Final = 100 * WRITE_NS
"""How long a round waits before it looks again at a stalled disk."""
ROUNDS_TOGETHER_MAX: Final = 64
_JOB_CALLS_BITS: Final = 6


# --- rounds ---------------------------------------------------------------------------------------


def begin_round(node: SimNode, boot: Boot) -> None:
    """Let the disk begin with the waiting rounds, soon."""
    boot.writing = True
    node.world.after(_BEGIN_NS + node.slower_ns, _take_up, node, boot)


def _take_up(node: SimNode, boot: Boot) -> None:
    if node.boot_state is not boot:
        return
    if node.stalled:
        node.world.after(_LOOK_AGAIN_NS, _take_up, node, boot)
        return
    together = ROUNDS_TOGETHER_MAX if node.world.patient else 1
    writes = [boot.rounds.popleft() for _ in range(min(together, len(boot.rounds)))]
    _go_on(node, boot, _performing(boot, writes, inline=False))


def begin_inline(node: SimNode, boot: Boot) -> None:
    """Write and sync the lone round at the end of its turn: the process does nothing else."""
    if node.boot_state is not boot:
        return
    boot.writing = True
    boot.inline = _performing(boot, [boot.rounds.popleft()], inline=True)
    _go_on(node, boot, boot.inline)


def _performing(boot: Boot, writes: list[e.Write], *, inline: bool) -> Performing:
    ops = [op for write in writes for op in write.ops]
    return Performing(writes, boot.writer.begin(writes[-1].io_id, ops), inline)


def _step(node: SimNode, boot: Boot, performing: Performing) -> None:
    """Take one step of a round, when the step's time is over."""
    if node.boot_state is not boot:
        return
    if node.stalled:
        node.world.after(_LOOK_AGAIN_NS, _step, node, boot, performing)
        return
    try:
        performing.steps.take(_choice(node, performing.steps.choices))
    except SimulatedCrashError:
        node.halted()
        return
    _go_on(node, boot, performing)


def _go_on(node: SimNode, boot: Boot, performing: Performing) -> None:
    """Begin the next step, or end the round."""
    steps = performing.steps
    if steps.written and not performing.told:
        performing.told = True
        if not performing.inline:
            for write in performing.writes:
                node.deliver(e.Written(write.io_id, write.directory))
    if steps.result is None:
        waits = steps.next in SYNCS
        takes_ns = node.world.sync_ns + node.slower_ns if waits else STEP_NS
        node.world.after(takes_ns, _step, node, boot, performing)
    else:
        _ended(node, boot, performing)


def _choice(node: SimNode, choices: int) -> int:
    """Draw which of the possible steps comes next."""
    if choices == 1:
        return 0
    return node.world.stream(f"syncs/{node.number}/{node.world.now}").below(choices)


def _ended(node: SimNode, boot: Boot, performing: Performing) -> None:
    boot.writing = False
    result, writes = performing.steps.result, performing.writes
    assert result is not None, writes
    if performing.inline:
        boot.inline = None
        quiet = result.poisoned is None and not result.failed
        if quiet and not any(write.awaited for write in writes):
            # No client waits for this round alone, so its result waits for the next turn.
            for write in writes:
                boot.inbox.post(e.Persisted(write.io_id, write.directory))
            writes = []
        if boot.turn_refused:
            boot.turn_refused = False
            node.deliver_nothing()
    for write in writes:
        if result.poisoned is not None:
            node.deliver(e.WriteFailed(write.io_id, write.directory, None, result.poisoned))
            continue
        for group, error in sorted(result.failed.items()):
            node.deliver(e.WriteFailed(write.io_id, write.directory, (group,), error))
        node.deliver(e.Persisted(write.io_id, write.directory))
    if result.poisoned is not None:
        node.world.after(RESTART_NS, node.supervise, boot)
    if boot.rounds:
        begin_round(node, boot)


def syncs_inline(node: SimNode, boot: Boot) -> bool:
    """Whether the waiting round is synced inside the turn that handed it out."""
    quick = node.world.sync_ns <= turns.INLINE_SYNC_NS and node.slower_ns == 0
    return node.world.patient and quick and not node.stalled and turns.is_lone(boot)


# --- jobs -----------------------------------------------------------------------------------------


def begin_job(node: SimNode, boot: Boot) -> None:
    """Let the next job begin."""
    boot.working = True
    node.world.after(JOB_NS + node.slower_ns, _perform_job, node, boot)


def _perform_job(node: SimNode, boot: Boot) -> None:
    if node.boot_state is not boot:
        return
    if node.stalled:
        node.world.after(JOB_NS * 100, _perform_job, node, boot)
        return
    job, checks = boot.jobs.popleft(), node.world.boot_checks
    there = None if checks is None else checks.before(node, job)
    try:
        done = _done(node, job)
    except SimulatedCrashError:
        boot.working = False
        node.halted()
        return
    if checks is not None:
        checks.after(node, job, there, done)
    node.deliver(done)
    boot.working = False
    if boot.jobs:
        begin_job(node, boot)


def _done(node: SimNode, job: e.Job | e.Read) -> e.Event:
    try:
        if isinstance(job, e.Read):
            return e.ReadDone(job.token, read_slice(node.files, job.slice))
        return e.JobDone(job.token, job.function(node.files, *job.args))
    except RaftlogError as error:
        if isinstance(job, e.Read):
            return e.ReadDone(job.token, error)
        return e.JobDone(job.token, error)


def cut_job_short(node: SimNode, boot: Boot) -> None:
    """Leave a job half done when its process ends.

    Every second job that is under way then runs up to some call to the disk, into the middle of a
    write, or to its end. The broker hears nothing of it.
    """
    if not boot.working or node.stalled or isinstance(boot.jobs[0], e.Read):
        return
    draws = node.world.stream(f"node/{node.number}/job/{node.boots}")
    if draws.chance(1, 2):
        return
    calls, tears = draw_stop(draws)
    with stopping_after(node.disk, calls, tears=tears):
        _done(node, boot.jobs[0])


@contextmanager
def stopping_after(disk: SimulatedDisk, calls: int, *, tears: bool) -> Iterator[None]:
    """A context whose body ends after `calls` changing calls to the disk.

    With `tears` it ends in the middle of the next call, if that writes. A stop that was asked for
    before is restored at the end.
    """
    asked = disk.crash_at, disk.crash_tears
    mine = disk.mutations + 1 + calls
    if disk.crash_at is None or mine < disk.crash_at:
        disk.crash_at, disk.crash_tears = mine, tears
    try:
        yield
    except SimulatedCrashError:
        pass
    finally:
        disk.crash_at, disk.crash_tears = asked


def draw_stop(draws: Stream) -> tuple[int, bool]:
    """Draw after how many changing calls a job ends, and whether in the middle of the next one."""
    return draws.below(1 << draws.below(_JOB_CALLS_BITS)), draws.chance(1, 2)

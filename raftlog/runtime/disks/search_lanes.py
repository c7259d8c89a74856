"""Searches: jobs that only read and may take seconds, for one of them decompresses a whole batch.

The problem: one look-up by time in a topic of hostile batches held up the cold reads and the
look-ups of every other topic, went on when its request was over, and kept the process from ending.

How it works:
1. Searches run on threads of their own, a few at a time, so that cold reads and the jobs that
   write never wait behind one.
2. A group has one search at a time. The groups that wait are taken in turn.
3. A search that nobody wants any more when its turn comes is answered with None, and not run.
4. Nobody waits for a search at the end: it writes nothing, its threads are daemons, and what it
   reports is dropped.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, final

import attrs

from raftlog.broker.events import Event, Job, JobDone
from raftlog.runtime.disks.workers import Worker, Workers

SEARCHES_MAX: Final = 4
"""Searches at a time: as many topics may be hostile before others wait for one of their jobs."""


@final
@attrs.define(eq=False)
class SearchLanes:
    """The searches of one data directory; all methods but `_work` are called on the loop."""

    name: str
    workers: Workers
    perform: Callable[[Job], JobDone]
    deliver: Callable[[Sequence[Event]], None]
    _lanes: list[Worker[Job]] = attrs.field(factory=list, init=False)
    _idle: list[int] = attrs.field(factory=list, init=False)
    _running: dict[int, None] = attrs.field(factory=dict, init=False)
    """Groups that have a search now."""
    _waiting: dict[int, deque[Job]] = attrs.field(factory=dict, init=False)
    """By group; the one whose turn it is stands first."""
    _ended: bool = attrs.field(default=False, init=False)

    def put(self, job: Job) -> None:
        """Queue a search of the group `job.search_of`."""
        assert job.search_of is not None, job
        self._waiting.setdefault(job.search_of, deque()).append(job)
        self._start_waiting()

    def end(self) -> None:
        """Start nothing more, and report nothing more."""
        self._ended = True
        self._waiting.clear()
        for lane in self._lanes:
            lane.end()

    def _start_waiting(self) -> None:
        """Start what has room, then answer what nobody wants any more."""
        unwanted: list[Event] = []
        for group in tuple(self._waiting):
            if group in self._running:
                continue
            job = self._next_wanted(group, unwanted)
            if job is None:
                continue
            number = self._idle_lane()
            if number is None:
                self._waiting[group].appendleft(job)
                break
            self._to_the_end(group)
            self._running[group] = None
            self._lanes[number].put(job)
        if unwanted:
            self.deliver(unwanted)

    def _next_wanted(self, group: int, unwanted: list[Event]) -> Job | None:
        queue = self._waiting[group]
        while queue:
            job = queue.popleft()
            if job.wanted is None or job.wanted():
                return job
            unwanted.append(JobDone(job.token, None))
        del self._waiting[group]
        return None

    def _to_the_end(self, group: int) -> None:
        queue = self._waiting.pop(group)
        if queue:
            self._waiting[group] = queue

    def _idle_lane(self) -> int | None:
        if not self._idle and len(self._lanes) < SEARCHES_MAX:
            number = len(self._lanes)
            start = self.workers.start
            self._lanes.append(
                start(f"search {number} {self.name}", partial(self._work, number), 1)
            )
            return number
        return self._idle.pop() if self._idle else None

    def _work(self, number: int, jobs: list[Job]) -> None:
        for job in jobs:
            self._lanes[number].report(self._done, number, job, self.perform(job))

    def _done(self, number: int, job: Job, event: JobDone) -> None:
        if self._ended:
            return
        assert job.search_of is not None, job
        del self._running[job.search_of]
        self._idle.append(number)
        self.deliver([event])
        self._start_waiting()

"""The store as the broker's turn sees it: memory only; changes leave as records to write.

Votes and registrations are urgent. Their records are due in the round of the turn that made them,
and messages that depend on them leave only after that round is persisted. Marks are not urgent:
they ride on a round that carries urgent records anyway, or wait at most `mark_delay_ns`. So a busy
log costs one sync a round and not two (docs/decisions has the figures). Once, a round also records
that the promises of earlier boots are over, when these were longer than those of this boot.
"""

from typing import Final, final

from raftlog.base.entries import HardState
from raftlog.base.ids import GroupId
from raftlog.base.probes import probe
from raftlog.base.units import NEVER, Instant, Nanos, millis
from raftlog.storage.directories.data_dir import DirectoryImage
from raftlog.storage.directories.store_records import (
    hard_state_record,
    mark_record,
    promise_record,
    register_record,
    unregister_record,
)
from raftlog.storage.replica import Mark, Registration

MARK_DELAY_NS: Final = millis(10)


@final
class StoreImage:
    """The facts that the directory's store holds or is about to hold.

    * `registrations`, `hard_states`, `marks`: as of the last call, durable or not. A caller that
      needs them durable waits for the round that carried the record.
    * `incarnation`: of this boot; `incarnations`: the list of them, and those known of others.
    * `deadline`: when a turn must take pending marks, or record that earlier promises are over.
      NEVER when neither is pending.
    """

    __slots__ = (
        "_dirty",
        "_lease_ns",
        "_mark_delay_ns",
        "_promised_ns",
        "_promises_end",
        "deadline",
        "hard_states",
        "incarnation",
        "incarnations",
        "marks",
        "registrations",
    )

    def __init__(self, image: DirectoryImage, mark_delay_ns: Nanos = MARK_DELAY_NS) -> None:
        self.registrations: dict[GroupId, Registration] = dict(image.registrations)
        self.hard_states: dict[GroupId, HardState] = dict(image.hard_states)
        self.marks: dict[GroupId, Mark] = dict(image.marks)
        self.incarnation = image.incarnation
        self.incarnations = image.incarnations.copy()
        self.deadline = NEVER
        self._dirty: dict[GroupId, Mark] = {}
        self._mark_delay_ns = mark_delay_ns
        self._lease_ns = image.lease_ns
        self._promised_ns = image.promised_ns
        self._promises_end: Instant | None = None

    def register(self, group: GroupId, registration: Registration) -> list[bytes]:
        """The records by which this directory answers for the replica; they belong in one round.

        An older registration of the group ends, with its vote and its mark. Its term goes on. This
        directory may have told followers about leaders of that term, and a successor of the replica
        must not contradict that. A leader of an earlier term gives way when it hears from the
        successor (Raft, section 5.1).
        """
        before = self.hard_states.get(group)
        self._forget(group)
        self.registrations[group] = registration
        records = [register_record(group, registration)]
        if before is not None:
            probe("successor-goes-on-in-the-term")
            records.append(self.set_hard_state(group, HardState(before.term, None)))
        return records

    def relocate(self, group: GroupId, path: str) -> list[bytes]:
        """The records by which this directory answers for the same replica at another path.

        Its term, vote and mark stay. The records belong in one round, which is one frame.
        """
        known = self.registrations[group]
        self.registrations[group] = Registration(known.replica, path)
        records = [register_record(group, self.registrations[group])]
        if (state := self.hard_states.get(group)) is not None:
            records.append(hard_state_record(group, state))
        if (mark := self.marks.get(group)) is not None:
            records.append(mark_record(mark))
        return records

    def unregister(self, group: GroupId) -> bytes:
        """The record by which this directory no longer answers for the group."""
        self._forget(group)
        return unregister_record(group)

    def set_hard_state(self, group: GroupId, state: HardState) -> bytes:
        """The record of a (term, vote); the term never falls and its vote never changes."""
        known = self.hard_states.get(group)
        if known is not None:
            assert state.term >= known.term, (group, state, known)
            changed = state.term == known.term and known.vote not in (None, state.vote)
            assert not changed, (group, state, known)
        self.hard_states[group] = state
        return hard_state_record(group, state)

    def note_mark(self, mark: Mark | None, now: Instant) -> None:
        """Note the mark that the log has after a persisted round; None changes nothing."""
        if mark is None or mark.group not in self.registrations:
            return
        if self.marks.get(mark.group) == mark:
            return
        self.marks[mark.group] = mark
        self._dirty[mark.group] = mark
        self.deadline = min(self.deadline, Instant(now + self._mark_delay_ns))

    def take_records(self, urgent: list[bytes], now: Instant) -> list[bytes]:
        """The records for this round; [] when it needs none.

        These are the urgent ones, and all pending marks when there are urgent ones or the deadline
        has come.
        """
        over_at = self._promises_end
        if over_at is None:
            over_at = self._promises_end = self._end_of_promises(now)
            self.deadline = min(self.deadline, over_at)
        if not (urgent or now >= self.deadline):
            return urgent
        records = urgent + [mark_record(mark) for mark in self._dirty.values()]
        if self._promised_ns != self._lease_ns and now >= over_at:
            probe("promises-of-earlier-boots-over")
            records.append(promise_record(self._lease_ns))
            self._promised_ns, over_at = self._lease_ns, NEVER
        self._dirty.clear()
        self.deadline = self._promises_end = over_at
        return records

    def _end_of_promises(self, now: Instant) -> Instant:
        """When the promises of earlier boots are over; NEVER when they are as long as this boot's.

        They are counted from the first turn of this boot. Replicas that began later gave promises
        of their own and no earlier ones.
        """
        longer = self._promised_ns != self._lease_ns
        return Instant(now + self._promised_ns) if longer else NEVER

    def _forget(self, group: GroupId) -> None:
        self.registrations.pop(group, None)
        self.hard_states.pop(group, None)
        self.marks.pop(group, None)
        self._dirty.pop(group, None)
        if not self._dirty:
            self.deadline = NEVER if self._promises_end is None else self._promises_end

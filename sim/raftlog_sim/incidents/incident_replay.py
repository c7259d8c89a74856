"""Plays the recording of one broker through the same Broker, alone, turn by turn.

The broker is given what the recorded one was given: its disk's image, its clocks, its events, its
draws. After each turn its effects are compared with the recorded digests. The first difference ends
the replay, for from there on the recorded inputs answer questions that this broker has not asked.

Going back is a new replay to the turn before, as in the debugger.
"""

from typing import Final, final

import attrs

from raftlog.base import buggify
from raftlog.base.errors import CorruptData, LocalMisuse
from raftlog.base.trace import ListTracer
from raftlog.broker.broker import Broker
from raftlog.broker.events import Effects, Event, Job, JobDone
from raftlog.broker.incident.digests import KINDS, Digest, described, digests_of
from raftlog.broker.incident.draws import DrawDiffers, ReplayedDraws
from raftlog.broker.incident.reading import BrokerRecording, RecordedTurn, TurnOutcome

NO_END: Final = "it has no end: the process was killed, or it was copied while the broker ran"
_NOTHING: Final = "none"


@final
@attrs.frozen
class Difference:
    """Where the replay does something else than the record. Turn 0 is the making of the broker."""

    turn: int
    what: str
    recorded: str
    replayed: str

    def __str__(self) -> str:
        return f"turn {self.turn}: {self.what}: recorded {self.recorded}, replayed {self.replayed}"


@final
@attrs.frozen
class ReplayedTurn:
    """A turn that was played. `effects` is None when it raised."""

    number: int
    turn: RecordedTurn
    events: list[Event]
    effects: Effects | None


@final
class Replay:
    """See the module. `ended` says how the replay is over, empty while it goes on."""

    def __init__(self, recording: BrokerRecording) -> None:
        self.recording = recording
        self._restart()

    def _restart(self) -> None:
        recording = self.recording
        self.turn: ReplayedTurn | None = None
        self.difference: Difference | None = None
        self.ended = ""
        self.tracer = ListTracer()
        self._jobs: dict[int, Job] = {}
        self._draws = ReplayedDraws()
        self._turns = recording.turns()
        self._draws.load(recording.made.draws)
        before = buggify.armed()
        buggify.arm(None)
        try:
            self._make()
        except DrawDiffers as error:
            self._differs(0, "draws", "as asked", str(error))
        finally:
            buggify.arm(before)

    def _make(self) -> None:
        recording = self.recording
        self.broker = Broker(
            config=recording.config,
            directories=recording.directories,
            further=recording.further,
            entropy=self._draws,
            tracer=self.tracer,
            now=recording.begun_at,
        )

    @property
    def position(self) -> int:
        """Returns how many turns were played."""
        return 0 if self.turn is None else self.turn.number

    # --- moving -----------------------------------------------------------------------------------

    def run(self) -> Difference | None:
        """Play to the end, or to the first difference, and return that."""
        while not self.ended:
            self.next()
        return self.difference

    def next(self) -> None:
        """Play one turn; do nothing at the end."""
        if self.ended:
            return
        turn = next(self._turns, None)
        if turn is None:
            why = self.recording.ended or NO_END
            self.ended = f"the recording is over: {why}"
            return
        try:
            events = self.recording.events(turn, self._jobs)
        except CorruptData as error:
            self._differs(turn.number, "the events", "as they are", str(error))
            return
        self._play(turn, events)

    def back(self, turns: int = 1) -> None:
        """Go back by some turns."""
        if turns < 0:
            raise LocalMisuse(f"{turns} turns back")
        target = max(0, self.position - turns)
        self._restart()
        while self.position < target and not self.ended:
            self.next()

    # --- one turn ---------------------------------------------------------------------------------

    def _play(self, turn: RecordedTurn, events: list[Event]) -> None:
        outcome = turn.outcome or TurnOutcome([], [])
        self._draws.load(outcome.draws)
        for event in events:
            if type(event) is JobDone:
                del self._jobs[event.token]
        self.turn = ReplayedTurn(turn.number, turn, events, None)
        before = buggify.armed()
        buggify.arm(self._draws.decide if self._draws.decides else None)
        try:
            effects = self.broker.handle(events, turn.now, turn.wall)
        except DrawDiffers as error:
            self._differs(turn.number, "draws", "as asked", str(error))
            return
        except Exception as error:
            self._raised(turn, f"{type(error).__name__}: {error}")
            return
        finally:
            buggify.arm(before)
        self.turn = ReplayedTurn(turn.number, turn, events, effects)
        for each in effects.jobs:
            self._jobs[each.token] = each
        self._compare(turn, events, effects)

    def _raised(self, turn: RecordedTurn, error: str) -> None:
        recorded = turn.outcome.raised if turn.outcome is not None else ""
        if turn.outcome is None or recorded == error:
            self.ended = f"turn {turn.number} raises, as recorded: {error}"
        else:
            self._differs(turn.number, "what the turn raised", recorded or "nothing", error)

    def _compare(self, turn: RecordedTurn, events: list[Event], effects: Effects) -> None:
        if turn.outcome is None:
            return
        if turn.outcome.raised:
            self._differs(turn.number, "what the turn raised", turn.outcome.raised, "nothing")
        elif self._draws.left:
            self._differs(turn.number, "draws", f"{self._draws.left} more", "no more")
        else:
            replayed = digests_of(self.broker, events, effects)
            self._compare_digests(turn.number, turn.outcome.digests, replayed)

    def _compare_digests(self, number: int, recorded: list[Digest], replayed: list[Digest]) -> None:
        before = {each.kind: each for each in recorded}
        after = {each.kind: each for each in replayed}
        for kind, name in enumerate(KINDS):
            if before.get(kind) != after.get(kind):
                texts = [
                    _NOTHING if each is None else described(each)
                    for each in (before.get(kind), after.get(kind))
                ]
                self._differs(number, name, *texts)
                return

    def _differs(self, number: int, what: str, recorded: str, replayed: str) -> None:
        self.difference = Difference(number, what, recorded, replayed)
        self.ended = str(self.difference)

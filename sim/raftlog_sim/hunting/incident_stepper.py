"""Steps through the replay of a recording, forwards and backwards, a turn at a time."""

from collections.abc import Callable
from typing import Any, Final, final

import attrs

from raftlog.base.amounts import amount
from raftlog.base.errors import OperatingError
from raftlog.base.units import NANOS_PER_MILLI
from raftlog_sim.hunting.debugger import TEXT_CHARS, State, replica_line
from raftlog_sim.incidents.incident_replay import Replay

HELP: Final = """\
next [N]         N turns on
back [N]         N turns back (a new replay to there)
until GOAL       on until: turn N, time MS (since the boot), event TYPE, trace NAME, leader, end
show             the events and effects of this turn
state            the replicas of the broker
diff             what the last movement changed
trace [N]        the last N lines of the broker's own trace
where            this turn, on one line
quit"""


@final
@attrs.define(eq=False)
class Stepper:
    """Steps through a replay. `obey` performs the command of a line."""

    replay: Replay
    _before: State = attrs.Factory(dict)

    @property
    def position(self) -> int:
        """Returns how many turns were played."""
        return self.replay.position

    def obey(self, words: list[str]) -> list[str]:
        """Perform a command; returns the lines to print. Raises `OperatingError` for one without
        sense."""
        name, *rest = words
        moves: dict[str, Callable[[], None]] = {
            "next": lambda: self._on(_number(rest)),
            "back": lambda: self.replay.back(_number(rest)),
            "until": lambda: self._until(self._goal(rest)),
        }
        looks: dict[str, Callable[[], list[str]]] = {
            "show": self.show,
            "state": lambda: [f"{key}: {line}" for key, line in self.state().items()],
            "diff": lambda: self.diff() or ["nothing changed"],
            "trace": lambda: self._trace(_number(rest, 10)),
            "where": lambda: [self.where()],
            "help": HELP.splitlines,
        }
        if name in moves:
            before = self.state()
            moves[name]()
            self._before = before
            ended = self.replay.ended
            return [self.where(), *([f"ended: {ended}"] if ended else [])]
        if name not in looks:
            raise OperatingError(f"no command {name!r}", do="`help` lists them")
        return looks[name]()

    # --- moving -----------------------------------------------------------------------------------

    def _on(self, turns: int) -> None:
        target = self.position + turns
        while self.position < target and not self.replay.ended:
            self.replay.next()

    def _until(self, reached: Callable[[], bool]) -> None:
        self._on(1)
        while not self.replay.ended and not reached():
            self._on(1)

    def _goal(self, words: list[str]) -> Callable[[], bool]:
        replay = self.replay
        match words:
            case ["turn", number] if number.isdigit():
                return lambda: replay.position >= int(number)
            case ["time", milliseconds] if milliseconds.isdigit():
                return lambda: self._since_boot_ms() >= int(milliseconds)
            case ["event", name]:
                return lambda: any(type(each).__name__ == name for each in self._events())
            case ["trace", name]:
                count = sum(each.name == name for each in replay.tracer.events)
                return lambda: sum(each.name == name for each in replay.tracer.events) > count
            case ["leader"]:
                led = self._led()
                return lambda: self._led() != led
            case ["end"]:
                return lambda: False
        raise OperatingError(
            f"until {' '.join(words)!r} makes no sense",
            do="turn N, time MS, event TYPE, trace NAME, leader, end",
        )

    # --- looking ----------------------------------------------------------------------------------

    def where(self) -> str:
        """Returns one line: the turn, the time since the boot, and what the broker took."""
        turn = self.replay.turn
        if turn is None:
            return "turn 0, before the first"
        took = ", ".join(type(event).__name__ for event in turn.events) or "nothing"
        return f"turn {turn.number} at {self._since_boot_ms():.3f} ms: took {took}"

    def show(self) -> list[str]:
        """Returns the events and effects of the turn; long ones are cut."""
        turn = self.replay.turn
        if turn is None:
            return ["no turn yet"]
        lines = [f"took  {event!r}"[:TEXT_CHARS] for event in turn.events]
        effects = turn.effects
        if effects is None:
            return [*lines, "the turn raised"]
        for send in effects.sends:
            lines += [f"sends n{send.peer} {message!r}"[:TEXT_CHARS] for message in send.messages]
        lines += [
            f"writes {write.io_id}: {amount(len(write.ops), 'operation')}"
            for write in effects.writes
        ]
        lines += [
            f"answers request {reply.request_no} of connection {reply.connection}"
            for reply in effects.replies
        ]
        lines += [f"job {job.token}: {job.function.__qualname__}" for job in effects.jobs]
        return lines or ["nothing"]

    def state(self) -> State:
        """Returns the state of each replica: `group 2` -> one line."""
        replicas = sorted(self.replay.broker.context.replicas.items())
        return {f"group {group}": replica_line(replica) for group, replica in replicas}

    def diff(self) -> list[str]:
        """Returns the differences from before the last movement."""
        now, before = self.state(), self._before
        return [
            f"{key}: {before.get(key, 'not there')}  =>  {now.get(key, 'not there')}"
            for key in sorted({**before, **now})
            if before.get(key) != now.get(key)
        ]

    def _trace(self, count: int) -> list[str]:
        found = self.replay.tracer.events[-count:]
        lines = [
            " ".join((each.name, each.where, *(f"{name}={value}" for name, value in each.fields)))
            for each in found
        ]
        return [line[:TEXT_CHARS] for line in lines] or ["nothing was traced"]

    def _since_boot_ms(self) -> float:
        turn = self.replay.turn
        begun = self.replay.recording.begun_at
        return 0.0 if turn is None else (turn.turn.now - begun) / NANOS_PER_MILLI

    def _events(self) -> list[Any]:
        turn = self.replay.turn
        return [] if turn is None else list(turn.events)

    def _led(self) -> list[int]:
        replicas = self.replay.broker.context.replicas
        return sorted(group for group, replica in replicas.items() if replica.is_leader)


def _number(words: list[str], default: int = 1) -> int:
    if not words:
        return default
    if len(words) > 1 or not words[0].isdigit():
        raise OperatingError(f"{' '.join(words)!r} is no number", do="give how many")
    return int(words[0])

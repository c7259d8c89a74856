"""Step through a run, forwards and backwards, a turn at a time.

Going back is a new run to the turn before: the same schedule gives the same turns. Positions are
numbers of turns. The debugger shows what the brokers hold in memory, and changes nothing. In trio
mode a turn is seen before its effects are performed.
"""

from collections.abc import Callable
from typing import Any, Final, final

import attrs

from raftlog.base.errors import OperatingError
from raftlog.base.units import NANOS_PER_MILLI
from raftlog_sim.checks.onlooker import WatchedTurn
from raftlog_sim.facts.targets import group_of, leaders_of
from raftlog_sim.playing.simulation import Run
from raftlog_sim.playing.stepping import Steps, steps_of
from raftlog_sim.schedules.schedule import Schedule
from raftlog_sim.workloads.callers import TOPIC

QUEUE_SHOWN: Final = 10
TEXT_CHARS: Final = 160

State = dict[str, str]
Goal = Callable[[], bool]


@final
@attrs.define(eq=False)
class Debugger:
    """A run at some turn. `ended` says how it ended; it is empty while the run goes on."""

    schedule: Schedule
    turn: WatchedTurn | None = None
    ended: str = ""
    _steps: Steps = attrs.field(init=False)
    _before: State = attrs.Factory(dict)
    """The state before the last movement, for `diff`."""

    def __attrs_post_init__(self) -> None:
        self._restart()

    def _restart(self) -> None:
        self.turn, self.ended = None, ""
        self._steps = steps_of(self.schedule, self._saw)

    @property
    def _run(self) -> Run:
        return self._steps.run

    def close(self) -> None:
        """End the debugger. A run in trio mode is a thread, which ends here."""
        self._steps.close()

    def _saw(self, turn: WatchedTurn) -> None:
        self.turn = turn

    # --- moving -----------------------------------------------------------------------------------

    @property
    def position(self) -> int:
        """Returns how many turns were played."""
        return 0 if self.turn is None else self.turn.number

    def next(self, turns: int = 1) -> None:
        """Play some turns, or to the end."""
        self._before = self.state()
        self._go(self.position + turns)

    def back(self, turns: int = 1) -> None:
        """Go back by some turns."""
        self._before = self.state()
        target = max(0, self.position - turns)
        self._steps.close()
        self._restart()
        self._go(target)

    def until(self, words: list[str]) -> None:
        """Play to the first turn after which the words hold, or to the end."""
        goal = self._goal(words)
        self._before = self.state()
        self._go(self.position + 1)
        while not self.ended and not goal():
            self._go(self.position + 1)

    def _go(self, target: int) -> None:
        while not self.ended and self.position < target:
            self.ended = self._steps.advance()

    def _goal(self, words: list[str]) -> Goal:
        match words:
            case ["turn", number] if number.isdigit():
                return lambda: self.position >= int(number)
            case ["time", milliseconds] if milliseconds.isdigit():
                return lambda: self._run.world.now >= int(milliseconds) * NANOS_PER_MILLI
            case ["phase", *name] if name:
                return lambda: self._run.phase == " ".join(name)
            case ["node", node]:
                return lambda: self.turn is not None and f"n{self.turn.node.number}" == node
            case ["event", name]:
                return self._has_event(name)
            case ["leader", node]:
                return lambda: self._leader() == node
            case ["fault"]:
                count = sum(self._run.nemesis.done.values())
                return lambda: sum(self._run.nemesis.done.values()) > count
            case ["end"]:
                return lambda: False
        raise OperatingError(
            f"until {' '.join(words)!r} makes no sense",
            do="turn N, time MS, phase NAME, node nK, event TYPE, leader nK, fault, end",
        )

    def _has_event(self, name: str) -> Goal:
        def found() -> bool:
            turn = self.turn
            return turn is not None and any(type(event).__name__ == name for event in turn.events)

        return found

    def _leader(self) -> str:
        group = group_of(self._run.world, TOPIC, 0)
        leading = leaders_of(self._run.world, group) if group is not None else []
        return f"n{leading[-1]}" if leading else ""

    # --- looking ----------------------------------------------------------------------------------

    def where(self) -> str:
        """Returns one line: the turn, the instant, the phase, and what the turn was."""
        run, turn = self._run, self.turn
        now = f"{run.world.now / 1e6:.3f} ms"
        if turn is None:
            return f"turn 0 at {now}, {run.phase}"
        events = ", ".join(type(event).__name__ for event in turn.events) or "nothing"
        sends = ", ".join(
            f"{type(message).__name__} to n{send.peer}"
            for send in turn.effects.sends
            for message in send.messages
        )
        more = f"; sends {sends}" if sends else ""
        writes = f"; writes {len(turn.effects.writes)}" if turn.effects.writes else ""
        text = f"turn {turn.number} at {now}, {run.phase}: n{turn.node.number} took {events}"
        return f"{text}{writes}{more}"

    def show(self) -> list[str]:
        """Returns the events and effects of the turn, whole."""
        if self.turn is None:
            return ["no turn yet"]
        lines = [f"took  {event!r}"[:TEXT_CHARS] for event in self.turn.events]
        for send in self.turn.effects.sends:
            lines += [f"sends n{send.peer} {message!r}"[:TEXT_CHARS] for message in send.messages]
        effects = self.turn.effects
        lines += [f"writes {write.io_id}: {len(write.ops)} operations" for write in effects.writes]
        lines += [
            f"answers request {reply.request_no} of connection {reply.connection}"
            for reply in effects.replies
        ]
        return lines or ["nothing"]

    def state(self, node: str = "") -> State:
        """Returns the state of each node, and of each replica: `n1 group 2` -> one line."""
        found: State = {}
        for number, each in sorted(self._run.world.nodes.items()):
            name = f"n{number}"
            if node not in ("", name):
                continue
            up = "suspended" if each.suspended else ("up" if each.up else "down")
            found[name] = f"{up}, boot {each.boots}{', disk stalled' if each.stalled else ''}"
            if each.up:
                for group, replica in sorted(each.broker.context.replicas.items()):
                    found[f"{name} group {group}"] = replica_line(replica)
        return found

    def diff(self) -> list[str]:
        """Returns the differences from before the last movement."""
        now, before = self.state(), self._before
        return [
            f"{key}: {before.get(key, 'not there')}  =>  {now.get(key, 'not there')}"
            for key in sorted({**before, **now})
            if before.get(key) != now.get(key)
        ]

    def queue(self, count: int = QUEUE_SHOWN) -> list[str]:
        """Returns the next actions of the world, earliest first."""
        return [
            f"{instant / 1e6:.3f} ms {_action_text(action, arguments)}"
            for instant, _, action, arguments in sorted(
                self._run.world._heap, key=lambda entry: entry[:2]
            )[:count]
        ]


def replica_line(replica: Any) -> str:
    """Returns a replica as the debuggers show it."""
    node, log = replica.node, replica.log
    return (
        f"{node.role.name.lower():9} term {node.term} commit {replica.commit} "
        f"durable {log.durable_index} last {log.last_index}/{log.last_term} "
        f"high watermark {replica.high_watermark}"
    )


def _action_text(action: Any, arguments: tuple[Any, ...]) -> str:
    name = getattr(action, "__qualname__", type(action).__name__)
    words = [str(each) for each in arguments if isinstance(each, int | str)]
    words += [type(each).__name__ for each in arguments if not isinstance(each, int | str)]
    owner = getattr(getattr(action, "__self__", None), "number", None)
    return f"{name}{f' of n{owner}' if owner is not None else ''} {' '.join(words)}"[:TEXT_CHARS]

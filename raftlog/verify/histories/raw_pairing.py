"""Pairs usual lines without parsing again what earlier lines said.

Every poll repeats pairs that were acknowledged. Here their bytes are compared with the known ones
(`raftlog.verify.histories.pairs.KnownLog`), and only new pairs are parsed. Only an acknowledged
send of one value and a poll of known pairs take this way. All other lines go to
`raftlog.verify.histories.pairing`, which decides everything.
"""

from collections.abc import Iterable
from sys import intern
from typing import Any, Final, cast, final

import attrs
import msgspec

from raftlog.base.arguments import check, checked
from raftlog.verify.histories.history import BadHistory, Line, Op
from raftlog.verify.histories.history_reader import HistoryReader, RawLine
from raftlog.verify.histories.interval import OPEN, Interval
from raftlog.verify.histories.pairing import Pairing, add_evidence
from raftlog.verify.histories.pairs import KnownLog

_ANYTHING: Final = msgspec.json.Decoder().decode


@final
@attrs.define(eq=False)
class RawPairing:
    """A `Pairing` that accepts raw lines as well."""

    pairing: Pairing = attrs.field(factory=Pairing)

    def feed(self, lines: Iterable[RawLine]) -> None:
        """Pair one block of lines."""
        pairing = self.pairing
        open_ops, retired, logs = pairing.open_ops, pairing.retired, pairing.logs
        usual, add = self._usual, pairing.found.append
        last = pairing.last_index
        for line in lines:
            index, process = line.index, line.process
            call = open_ops.get(process)
            interval = None
            if call is None:
                if (
                    line.type == "invoke"
                    and index > last
                    and type(process) is int
                    and process not in retired
                    and type(line.value) is not dict
                ):
                    open_ops[process] = line  # type: ignore[assignment]  # an `Op` for us
                    last = index
                    continue
            elif line.type == "ok" and index > last and line.f == call.f and line.key == call.key:
                interval = usual(call, line, logs)
            if interval is None:
                pairing.last_index = last
                pairing.one(_op(line))
            else:
                del open_ops[process]
                add(interval)
            last = index
        pairing.last_index = last

    def _usual(self, call: Op, end: RawLine, logs: dict[str, KnownLog]) -> Interval | None:
        """The interval of an acknowledged send of one text, or of a poll of known pairs.

        None for every other operation.
        """
        asked, key, answer = call.value, call.key, end.value
        start_ns, end_ns = call.time_ns, end.time_ns
        # All lines share one text for `f` and one for each key: a text per line would cost much
        # memory.
        if type(answer) is list:
            if type(asked) is not str or len(answer) != 2 or key is None or end.f != "send":
                return None
            value, echoed = answer
            if type(value) is not int or value < 0 or echoed != asked:
                return None
            log = logs.get(key)
            if log is None:
                log = self.pairing.log_of(key)
            f, key = "send", log.key
            log.put(value, asked)
        elif type(answer) is dict:
            if len(answer) != 1 or end.f != "poll":
                return None
            ((name, words),) = answer.items()
            log = logs.get(name)
            pairs = None if log is None else log.told(bytes(words))
            if log is None or pairs is None:
                return None
            f, value = "poll", {log.key: pairs}
            if key is not None:
                key = intern(key)
        else:
            return None
        if not -OPEN < start_ns <= end_ns < OPEN:
            return None
        process: Any = call.process  # no nemesis has an open operation
        found = Interval(
            call.index, process, f, key, "ok", start_ns, end_ns, asked, value, end.node
        )
        # The same question as `says_more`, without the call.
        if not (
            end.hw is end.term is end.log_start is end.producer is end.rebalance is None
            and end.error is end.member is call.producer is call.member is None
        ):
            add_evidence(found, call, end)  # type: ignore[arg-type]  # an `Op` for it
        return found


def _op(line: RawLine) -> Op:
    """The operation of a line, parsed to the end."""
    op = Op(*(getattr(line, name) for name in Line.__struct_fields__))
    if type(op.value) is dict:
        op.value = {name: _ANYTHING(value) for name, value in op.value.items()}
    return op


def _bad_value(lines: list[RawLine], before: int) -> BadHistory:
    """The first line whose value is no JSON after all, as the slow road names it."""
    for number, line in enumerate(lines, before + 1):
        if type(line.value) is dict:
            try:
                _op(line)
            except UnicodeError:
                return BadHistory("not UTF-8 text", on=f"line {number}")
            except msgspec.DecodeError:
                return BadHistory("not a JSON object", on=f"line {number}")
    raise AssertionError("all values parse")


@checked
def intervals(ops: Iterable[Op] | HistoryReader) -> tuple[list[Interval], list[Op]]:
    """All intervals of a history, and its nemesis lines."""
    raw = RawPairing()
    pairing = raw.pairing
    if isinstance(ops, HistoryReader):
        for block in ops.raw_blocks():
            if type(block) is list:
                try:
                    raw.feed(block)
                except (msgspec.DecodeError, UnicodeError):
                    raise _bad_value(block, ops.line_number - len(block)) from None
            else:
                pairing.feed(cast("Iterable[Op]", block))
    else:
        pairing.feed(check(f"ops[{at}]", op, Op) for at, op in enumerate(ops))
    pairing.finish()
    return pairing.found, pairing.nemesis

"""Pairing usual lines without parsing what they say twice.

An acknowledgement repeats the value that was sent, and every poll repeats acknowledged pairs: here
they are compared as bytes (`raftlog.verify.pairs.KnownLog`), and only what is new is parsed.
Whatever is not simply that goes the way of `raftlog.verify.pairing`, which decides everything.
"""

from collections.abc import Iterable
from sys import intern
from typing import Any, Final, cast, final

import attrs
import msgspec

from raftlog.verify.history import NEMESIS, BadHistory, Line, Op
from raftlog.verify.history_reader import HistoryReader, RawLine
from raftlog.verify.pairing import OPEN, Interval, Pairing, add_evidence
from raftlog.verify.pairs import KnownLog, Pairs

_ANYTHING: Final = msgspec.json.Decoder().decode
_ANSWER: Final = msgspec.json.Decoder(tuple[int, str]).decode
_DIGITS_MAX: Final = 18
"""Digits of an offset that fits into 63 bits."""


@final
@attrs.define(eq=False)
class RawPairing:
    """A `Pairing` that is fed raw lines as well."""

    pairing: Pairing = attrs.field(factory=Pairing)
    _logs: dict[str, KnownLog] = attrs.field(factory=dict)
    _keys: dict[bytes, KnownLog] = attrs.field(factory=dict)
    """A key's bytes, as JSON without escapes has them -> its log."""

    def feed(self, lines: Iterable[RawLine]) -> None:
        """Pair one block of lines."""
        pairing = self.pairing
        open_ops, retired, add = pairing.open_ops, pairing.retired, pairing.found.append
        usual = self._usual
        last = pairing.last_index
        for line in lines:
            index, process = line.index, line.process
            call = open_ops.get(process)
            interval = None
            if call is None:
                if line.type == "invoke" and index > last and process not in retired:
                    # A value that stays raw would keep its whole block of lines in memory.
                    line.value = _ANYTHING(line.value)
                    if process != NEMESIS:
                        open_ops[process] = line  # type: ignore[assignment]  # an `Op` for us
                        last = index
                        continue
            elif line.type == "ok" and index > last and line.f == call.f and line.key == call.key:
                interval = usual(call, line)
            if interval is None:
                pairing.last_index = last
                pairing.one(_op(line))
            else:
                del open_ops[process]
                add(interval)
            last = index
        pairing.last_index = last

    def _usual(self, call: Op, end: RawLine) -> Interval | None:
        """An acknowledged send of one value, or a poll that returned only what is known; None for
        all else."""
        asked, key = call.value, call.key
        start_ns, end_ns = call.time_ns, end.time_ns
        value: Any
        if end.f == "poll":
            f = "poll"  # a text of each line's own would cost as much memory as all else here
            key = key if key is None else intern(key)
            value = self._polled(bytes(end.value))
            if value is None:
                return None
        elif end.f == "send" and key is not None:
            f = "send"
            answer = bytes(end.value)
            try:
                value, echoed = _ANSWER(answer)
            except msgspec.ValidationError:
                return None
            if echoed != asked or value < 0:
                return None
            log = self._logs.get(key)
            if log is None:
                log = self._new_log(key)
            key = log.key
            log.put(value, asked, answer)
        else:
            return None
        if not start_ns <= end_ns < OPEN:
            return None
        process = cast("int", call.process)
        found = Interval(
            call.index, process, f, key, "ok", start_ns, end_ns, asked, value, end.node
        )
        # What `says_more` asks, without the call.
        if not (
            end.hw is end.term is end.log_start is end.producer is end.rebalance is None
            and end.error is call.producer is None
        ):
            add_evidence(found, call, cast("Op", end))
        return found

    def _new_log(self, key: str) -> KnownLog:
        log = self._logs[key] = self.pairing.log_of(key)
        if "\\" not in key and '"' not in key:
            self._keys[key.encode()] = log
        return log

    def _polled(self, answer: bytes) -> dict[str, Pairs] | None:
        """What `{key: [[offset, value], ...]}` says, if that is word for word what is known."""
        name_end = answer.find(b'"', 2)
        log = self._keys.get(answer[2:name_end])
        begin = answer.find(b"[[", name_end, name_end + 5)
        if log is None or begin < 0 or answer[-3:] != b"]]}":
            return None
        digits = answer[begin + 2 : answer.find(b",", begin)]
        if not digits.isdigit() or len(digits) > _DIGITS_MAX:
            return None
        first = int(digits)
        values = log.told(first, answer[begin + 1 : -2])
        return None if values is None else {log.key: Pairs(first, values)}


def _op(line: RawLine) -> Op:
    """The operation of a line."""
    if type(line.value) is msgspec.Raw:
        line.value = _ANYTHING(line.value)
    return Op(*(getattr(line, name) for name in Line.__struct_fields__))


def _bad_value(lines: list[RawLine], before: int) -> BadHistory:
    """The first line whose value is no JSON after all, as the slow road names it."""
    for number, line in enumerate(lines, before + 1):
        if type(line.value) is msgspec.Raw:
            try:
                _ANYTHING(line.value)
            except UnicodeError:
                return BadHistory("not UTF-8 text", on=f"line {number}")
            except msgspec.DecodeError:
                return BadHistory("not a JSON object", on=f"line {number}")
    raise AssertionError("all values parse")


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
        pairing.feed(ops)
    pairing.finish()
    return pairing.found, pairing.nemesis

"""Reads histories as others publish them: tells the format of a text and reads its operations.

* Jepsen's and Knossos' EDN (`raftlog.verify.imports.jepsen_edn`), whatever the file is called;
* the console logs of Jepsen that Porcupine tests itself with (`test_data/jepsen/etcd_*.log`): `INFO
  jepsen.util - <process> :invoke :cas [1 2]`, one compare-and-set register without a name;
* Porcupine's `test_data/kv/*.txt`: EDN with `get`, `put` and `append` of texts by key.

None of them has times, so the place in the file stands for the time, as for EDN without `:time`.
"""

import re
from collections.abc import Iterator
from typing import Final

from raftlog.verify.histories.history import BadHistory, Op
from raftlog.verify.imports.edn import read_all
from raftlog.verify.imports.jepsen_edn import ONE_REGISTER, read_ops

_CONSOLE: Final = re.compile(
    r"INFO\s+jepsen\.util - (\d+)\s+:(invoke|ok|fail|info)\s+:(read|write|cas)\s+(.*)"
)
_LOOKED_AT: Final = 4_096
"""Characters that are enough to tell the format: a console log may begin with other lines."""


def is_public(text: str) -> bool:
    """Whether a text that is no `history.jsonl` looks like one of the formats here."""
    begin = text[:_LOOKED_AT].lstrip()
    return begin.startswith((";", "(", "[", "{:", "#")) or _is_console(begin)


def read_public(text: str) -> Iterator[Op]:
    """The operations of a text in one of the formats. Raises `BadHistory` for any other text."""
    return _console_ops(text) if _is_console(text[:_LOOKED_AT]) else read_ops(text)


def _is_console(text: str) -> bool:
    return any(_CONSOLE.match(line) for line in text.splitlines())


def _console_ops(text: str) -> Iterator[Op]:
    """The operations of a console log.

    A failed compare is a fact about the register; a failed read says nothing.
    """
    for index, line in enumerate(text.splitlines()):
        match = _CONSOLE.match(line)
        if match is None:
            continue
        process, kind, f, rest = match.groups()
        value = next(read_all(rest), None)
        if kind == "fail" and f == "cas":
            kind, value = "ok", False
        elif value == "timed-out":
            value = None
        if f == "cas" and kind == "invoke" and not (isinstance(value, list) and len(value) == 2):
            raise BadHistory("a cas asks for [old new]", on=f"line {index + 1}")
        yield Op(index, index, int(process), kind, f, ONE_REGISTER, value)

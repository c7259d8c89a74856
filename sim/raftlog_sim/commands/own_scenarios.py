"""Scenarios of a user's own: files and folders that are named on a command line.

A file has the language of the named scenarios (`scenario_files`). All files are read before any of
them is played, so that a bad one costs no time. Errors stand on `file:line`.
"""

import difflib
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from raftlog.base.amounts import amount
from raftlog.base.errors import OperatingError
from raftlog_sim.base.probe_names import fault_names, probe_names
from raftlog_sim.playing.cases import LibraryMissingError, read_text
from raftlog_sim.playing.scenario_files import SUFFIX, Scenario, read

BYTES_MAX: Final = 4 << 20
"""The most bytes of a file. A file with as many steps as a run may have is smaller."""
FILES_MAX: Final = 1_000
_A_SCENARIO: Final = "give a text of steps, as docs/guides/simulate_failures.md shows"


def is_path(word: str) -> bool:
    """Whether a word of the command line can only mean a file or a folder."""
    return "/" in word or word.endswith(SUFFIX) or word in (".", "..") or Path(word).exists()


def files_of(words: Sequence[str]) -> list[Path]:
    """Returns the files that the words mean: files, and the .txt files of folders, by name.

    Raises `OperatingError` for a missing, irregular or too large file, or too many files.
    """
    found: dict[Path, None] = {}
    for word in words:
        found |= dict.fromkeys(_files(Path(word)))
        if len(found) > FILES_MAX:
            raise OperatingError(
                f"more than {FILES_MAX} scenarios", on=word, do="name fewer of them at a time"
            )
    return list(found)


def _files(path: Path) -> list[Path]:
    try:
        mode = path.stat().st_mode
        if not stat.S_ISDIR(mode):
            return [path]
        found = sorted(each for each in path.iterdir() if each.suffix == SUFFIX)
    except OSError as error:
        raise OperatingError(
            f"cannot be read: {error.strerror}", on=str(path), do=_A_SCENARIO
        ) from None
    if not found:
        raise OperatingError(
            f"no file *{SUFFIX} lies in this folder", on=str(path), do="name one with scenarios"
        )
    return found


def load(path: Path) -> Scenario:
    """Read a scenario and check it to its last line. Raises `OperatingError` on `file:line`."""
    _check_size(path)
    scenario = read(str(path), read_text(path))
    try:
        size = scenario.case.size
    except LibraryMissingError:
        return scenario  # it is skipped, with what to install
    except OperatingError as error:
        number = error.on.removeprefix(f"{path}, ").removeprefix("line ")
        on = f"{path}:{number}" if number.isdecimal() else str(path)
        raise OperatingError(error.what, on=on, do=error.do or _A_SCENARIO) from None
    if not size and not scenario.expected:
        raise OperatingError("it has no steps", on=str(path), do=_A_SCENARIO)
    _check_names(path, scenario)
    return scenario


def _check_names(path: Path, scenario: Scenario) -> None:
    """Refuse a misspelt rare path: it would look like one that was not reached, or was avoided."""
    known = (*probe_names(), *fault_names())
    for head, names in (("reaches", scenario.reaches), ("avoids", scenario.avoids)):
        for name in names:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=3, cutoff=0.0)
                raise OperatingError(
                    f"no rare path is called {name[:80]}", on=f"{path}:{scenario.line_of(head)}",
                    do=f"the nearest are {', '.join(near)}",
                )  # fmt: skip


def _check_size(path: Path) -> None:
    try:
        size = path.stat().st_size
    except OSError as error:
        raise OperatingError(
            f"cannot be read: {error.strerror}", on=str(path), do=_A_SCENARIO
        ) from None
    if size > BYTES_MAX:
        raise OperatingError(
            f"{amount(size, 'byte')}, at most {BYTES_MAX}",
            on=str(path),
            do="divide it into several",
        )

"""A user's patch as a planted bug: a copy of the product with a unified diff applied to it.

The copy lies in a folder for the time of a hunt, and processes import `raftlog` from there; the
checkout stays as it is. A diff applies exactly or not at all: each hunk's old lines must stand in
the file, where the hunk says or in one other place. It may change, add and delete files of the
product (`raftlog/`) and nothing else, so a patch can neither soften a check of the simulator nor
write outside the copy.
"""

import ast
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

import raftlog
from raftlog.base.amounts import amount
from raftlog.base.errors import OperatingError
from raftlog_sim.playing.cases import read_text

PRODUCT: Final = Path(raftlog.__file__).resolve().parent
BYTES_MAX: Final = 4 << 20
"""The most bytes of a patch; a larger one is no planted bug."""
_HUNK: Final = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_NO_FILE: Final = "/dev/null"
_MAKE_ONE: Final = "give a unified diff of raftlog/, as `git diff` writes it"
_NO_NEWLINE: Final = "\\ No newline at end of file"
_NOT_READ: Final = ("rename from ", "copy from ", "GIT binary patch", "Binary files ")
_IMPORTS: Final = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "import raftlog_sim.playing.seeds, raftlog_sim.hunting.scenarios, raftlog_sim.hunting.shrink, "
    "raftlog_sim.shell.trio_run"
)


class Hunk(NamedTuple):
    """Lines of a file, with their ends, and their replacement. `line` is the first old one, from
    0."""

    number: int
    line: int
    old: list[str]
    new: list[str]


class FilePatch(NamedTuple):
    """The change of one file. `path` is its path in the product's folder, with `raftlog/`
    before."""

    path: str
    hunks: list[Hunk]
    added: bool
    deleted: bool


@contextmanager
def patched_product(patch: Path) -> Iterator[str]:
    """Make a folder with the patched package, to import from before any other, for the block.

    Raises `OperatingError` when the patch cannot be read, does not apply, or leaves nothing to
    import.
    """
    files = parsed(_text(patch), str(patch))
    with tempfile.TemporaryDirectory(prefix="raftlog-patched-") as home:
        copy = Path(home) / PRODUCT.name
        shutil.copytree(PRODUCT, copy, ignore=shutil.ignore_patterns("__pycache__"))
        for each in files:
            _apply(each, Path(home), str(patch))
        _check_imports(home, str(patch))
        yield home


def _text(patch: Path) -> str:
    try:
        size = patch.stat().st_size
    except OSError as error:
        raise OperatingError(
            f"cannot be read: {error.strerror}", on=str(patch), do=_MAKE_ONE
        ) from None
    if size > BYTES_MAX:
        what = f"{amount(size, 'byte')}, at most {BYTES_MAX}"
        raise OperatingError(what, on=str(patch), do="plant one bug at a time")
    return read_text(patch)


# --- reading a diff -------------------------------------------------------------------------------


def parsed(text: str, on: str) -> list[FilePatch]:
    """Returns the files of a unified diff. Raises `OperatingError` on `file:line` for any other
    text."""
    lines = text.splitlines(keepends=True)
    found, at = list[FilePatch](), 0
    while at < len(lines):
        if lines[at].startswith(_NOT_READ):
            raise _refused("renames, copies and binary files are not applied", on, at)
        if lines[at].startswith("--- ") and at + 1 < len(lines):
            if not lines[at + 1].startswith("+++ "):
                raise _refused("no line +++ follows", on, at)
            file, at = _file(lines, at, on)
            if any(each.path == file.path for each in found):
                raise _refused(f"{file.path} is changed a second time", on, at - 1)
            found.append(file)
        else:
            at += 1  # text of git or people around a diff
    if not found:
        raise OperatingError("no file is changed by it", on=on, do=_MAKE_ONE)
    return found


def _file(lines: list[str], at: int, on: str) -> tuple[FilePatch, int]:
    old, new = (_name(lines[place]) for place in (at, at + 1))
    path = _of_product(new if new != _NO_FILE else old, on, at + 1)
    at += 2
    hunks = list[Hunk]()
    while at < len(lines) and (head := _HUNK.match(lines[at])):
        hunk, at = _hunk(lines, at, head, len(hunks) + 1, on)
        hunks.append(hunk)
    if not hunks:
        raise _refused("no hunk @@ follows", on, at - 1)
    return FilePatch(path, hunks, old == _NO_FILE, new == _NO_FILE), at


def _name(line: str) -> str:
    """Returns the path of a line `--- path`, which may have a time after a tab."""
    return line[4:].rstrip("\r\n").partition("\t")[0].strip().strip('"')


def _of_product(name: str, on: str, at: int) -> str:
    """Returns `raftlog/...` of a name, with or without a first folder, as in `b/raftlog/...`."""
    parts = PurePosixPath(name).parts
    if parts[:1] != (PRODUCT.name,):
        parts = parts[1:]
    if parts[:1] != (PRODUCT.name,) or ".." in parts or len(parts) < 2:
        raise _refused(f"{name[:80]} is no file of {PRODUCT.name}/", on, at)
    return "/".join(parts)


def _hunk(lines: list[str], at: int, head: re.Match[str], number: int, on: str) -> tuple[Hunk, int]:
    old_left, new_left = (int(head[place] or 1) for place in (2, 4))
    first = int(head[1]) - (1 if old_left else 0)
    old, new = list[str](), list[str]()
    begin, at = at, at + 1
    while old_left > 0 or new_left > 0:
        line = lines[at] if at < len(lines) else ""
        mark, content = (line[:1], line[1:]) if line.strip("\r\n") else (" ", line)
        if not line or mark not in " +-":
            raise _refused(f"hunk {number} is shorter than it says", on, begin)
        if mark != "+":
            old.append(content)
            old_left -= 1
        if mark != "-":
            new.append(content)
            new_left -= 1
        at += 1
        if at < len(lines) and lines[at].startswith(_NO_NEWLINE[:2]):
            for side, has in ((old, mark != "+"), (new, mark != "-")):
                if has:
                    side[-1] = side[-1].rstrip("\r\n")
            at += 1
    if old_left < 0 or new_left < 0:
        raise _refused(f"hunk {number} is longer than it says", on, begin)
    return Hunk(number, max(0, first), old, new), at


def _refused(what: str, on: str, at: int) -> OperatingError:
    return OperatingError(what, on=f"{on}:{at + 1}", do=_MAKE_ONE)


# --- applying it ----------------------------------------------------------------------------------


def _apply(file: FilePatch, home: Path, on: str) -> None:
    path = home / file.path
    if file.added and path.exists():
        raise OperatingError(f"{file.path} is there already", on=on, do=_MAKE_ONE)
    if not file.added and not path.is_file():
        raise OperatingError(f"there is no {file.path}", on=on, do="make the diff of this checkout")
    text = "" if file.added else path.read_text(encoding="utf-8")
    lines = applied(file, text.splitlines(keepends=True), on)
    if file.deleted:
        if lines:
            what = f"{file.path} has lines that the patch does not delete"
            raise OperatingError(what, on=on, do="make the diff of this checkout")
        path.unlink()
        return
    changed = "".join(lines)
    if path.suffix == ".py":
        _check_syntax(file.path, changed, on)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(changed, encoding="utf-8")


def applied(file: FilePatch, lines: Sequence[str], on: str) -> list[str]:
    """Returns the file's lines after all hunks. Raises `OperatingError` for one that does not
    fit."""
    found, moved = list(lines), 0
    for hunk in file.hunks:
        place = _place(hunk, found, hunk.line + moved)
        if place is None:
            raise OperatingError(
                f"hunk {hunk.number} of {file.path} does not fit",
                on=on,
                do="make the diff of this checkout, with three lines around each change",
            )
        found[place : place + len(hunk.old)] = hunk.new
        moved = place - hunk.line + len(hunk.new) - len(hunk.old)
    return found


def _place(hunk: Hunk, lines: list[str], expected: int) -> int | None:
    """Returns where the hunk's old lines are: where they should be, or in the only other place."""
    size = len(hunk.old)
    if lines[expected : expected + size] == hunk.old:
        return expected
    places = [
        at for at in range(len(lines) - size + 1) if size and lines[at : at + size] == hunk.old
    ]
    return places[0] if len(places) == 1 else None


def _check_syntax(path: str, text: str, on: str) -> None:
    try:
        ast.parse(text, path)
    except (SyntaxError, ValueError) as error:
        line = f":{error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        raise OperatingError(
            f"{path}{line} is no Python when it is patched: {error}",
            on=on,
            do="plant a bug that the interpreter can load",
        ) from None


def _check_imports(home: str, on: str) -> None:
    """Import the patched package in a process of its own, to report an error before the hunt."""
    path = [each for each in sys.path if each]
    ended = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[1:1] = {path!r}; {_IMPORTS}", home],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    if ended.returncode:
        last = (ended.stderr.strip().splitlines() or ["no word"])[-1]
        raise OperatingError(
            f"the patched product cannot be imported: {last[:300]}",
            on=on,
            do="plant a bug that the interpreter can load",
        )
